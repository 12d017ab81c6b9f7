"""The cost of classifying all attention maps, compared with the forward pass that computes them.

pytest benchmarks/speed/test_pattern_speed.py --glue DIR
"""

import torch
from bert import minilm

from bertsecrets.measures.patterns import PatternObserver
from bertsecrets.models.attention import Pass
from bertsecrets.models.encoding import encode, special_ids
from bertsecrets.patterns.classifier import SHIPPED_FOLDER, PatternClassifier

ROWS = 277


class Nothing:
    """An observer that ignores all maps."""

    pairs = False

    def update(self, batch, layer, maps, other):
        pass

    def compute(self):
        return {}, {}


def test_classes_of_all_maps_of_rte(rte_rows, benchmark, timed, show, record):
    """Goal: computing and classifying the 277 x 72 maps of MiniLM takes at most twice as long as computing them."""
    model = minilm()
    encoded, shape = encode(rte_rows(ROWS), model.tokenizer, 200), (ROWS, model.layers, model.heads)
    classifiers = {"special": PatternClassifier.load(SHIPPED_FOLDER, "special")}
    observer = PatternObserver(
        *shape, classifiers=classifiers, errors={}, separator=special_ids(model.tokenizer)["sep"]
    )
    _, forward = timed(lambda: Pass(model).feed(encoded, [Nothing()]))
    _, took = benchmark.pedantic(timed, [lambda: Pass(model).feed(encoded, [observer])], rounds=1)
    classes = observer.predicted["special"]
    assert classes.min() >= 0
    ratio, processor = took.clock / forward.clock, took.processor / forward.processor
    record(f"computing {classes.size} maps, over computing and classifying them", 1 / processor, 0.5)
    show(
        f"{classes.size} maps, {torch.get_num_threads()} threads: forward pass {forward.clock:.1f} s, with classes "
        f"{took.clock:.1f} s: ratio {ratio:.2f}, of processor time {processor:.2f} (goal 2)"
    )
