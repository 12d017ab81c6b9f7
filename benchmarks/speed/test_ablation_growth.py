"""How the cost of disabling every head grows with layers, heads, rows and sequence length.

pytest benchmarks/speed/test_ablation_growth.py
"""

import numpy as np
import pytest
import torch
from plain import engine_count, of_one_length, plain_count, plain_passes
from tabulate import tabulate
from transformers import BertConfig, BertForSequenceClassification

from bertsecrets.ablation import Engine, ablate
from bertsecrets.encoding import Encoded
from bertsecrets.headsets import single_heads
from bertsecrets.models import Classifier

BASE = {"layers": 4, "heads": 4, "rows": 16, "tokens": 32}
GROWTH = {"layers": [2, 4, 8, 12], "heads": [2, 4, 8, 12], "rows": [8, 16, 32, 64], "tokens": [16, 32, 64, 128]}
HEAD_SIZE = 16


@pytest.mark.parametrize("axis", GROWTH)
def test_growth_with(axis, benchmark, timed, show):
    """Time and counted multiply-adds along one axis, the others at rest; results equal plain passes at every point."""
    table = []

    def measure():
        for value in GROWTH[axis]:
            table.append([value, *_point({**BASE, axis: value}, timed)])

    benchmark.pedantic(measure, rounds=1)
    rest = ", ".join(f"{value} {name}" for name, value in BASE.items() if name != axis)
    headings = [axis, "sets", "ours s", "plain s", "ratio", "counted", "ours, G multiply-adds", "G multiply-adds/s"]
    show(f"growing {axis} ({rest}; heads of size {HEAD_SIZE})\n" + tabulate(table, headings, floatfmt=".2f"))


def _point(size: dict[str, int], timed) -> list[float]:
    width = HEAD_SIZE * size["heads"]
    torch.manual_seed(0)
    config = BertConfig(
        vocab_size=1000,
        hidden_size=width,
        intermediate_size=4 * width,
        num_hidden_layers=size["layers"],
        num_attention_heads=size["heads"],
    )
    classifier = Classifier(BertForSequenceClassification(config).eval(), None, "random")
    ids = np.random.default_rng(0).integers(5, 1000, (size["rows"], size["tokens"])).tolist()
    encoded, sets = Encoded(ids, None, 0), single_heads(size["layers"], size["heads"])
    engine = Engine.open(classifier)
    ablate(engine, encoded, sets[:1])
    logits, own = timed(lambda: ablate(engine, encoded, sets))
    batches = of_one_length(encoded)
    plain, other = timed(lambda: plain_passes(classifier.model, batches, sets))
    np.testing.assert_allclose(logits, plain, rtol=0, atol=1e-5)
    counted = engine_count(config, encoded, sets)
    allowed = plain_count(config, batches) * len(sets) / counted
    return [
        len(sets),
        own.clock,
        other.clock,
        other.clock / own.clock,
        allowed,
        counted / 1e9,
        counted / own.clock / 1e9,
    ]
