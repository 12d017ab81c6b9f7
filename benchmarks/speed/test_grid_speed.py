"""Grids of disabled heads in bfloat16 against float32: predictions are compared first, then times.

    pytest benchmarks/speed/test_grid_speed.py --glue DIR -k minilm

Measurements in both precisions alternate, and the fastest of several counts. The time in bfloat16 includes the sample
that is also computed in float32 to count differing predictions.
"""

from collections.abc import Callable

import numpy as np
import pytest
import torch
from bert import TITLES, bert_base, minilm

from bertsecrets.ablation.head_sets import single_heads
from bertsecrets.devices import native_bfloat16
from bertsecrets.measures.base.ablation_measure import set_ablation
from bertsecrets.models.encoding import encode
from bertsecrets.models.opening import OpenModel
from bertsecrets.texts.tasks import task

REPEATS = 2
DIFFER = 0.05  # largest share of the sample's predictions that may differ; with a new classifier, many are near ties

pytestmark = pytest.mark.skipif(
    not native_bfloat16(torch.device("cpu")), reason="needs a CPU that computes bfloat16 natively (AMX or AVX512-BF16)"
)


@pytest.mark.parametrize(
    ("make", "rows", "every"),
    [pytest.param(minilm, 277, 1, id="minilm"), pytest.param(bert_base, 64, 24, id="bert_base")],
)
def test_grid_in_bfloat16_over_float32(
    make: Callable[[], OpenModel], rows: int, every: int, rte_rows, benchmark, timed, show, record
):
    """Disable all heads of MiniLM on RTE's validation set, or every 24th head of BERT-base's shape on 64 rows."""
    split = rte_rows(rows)
    sets = single_heads(make().layers, make().heads)[::every]
    taken: dict[str, list[tuple[float, float]]] = {"float32": [], "bfloat16": []}
    results = {}

    def turns():
        for _ in range(REPEATS):
            for precision, seconds in taken.items():
                opened = make()  # reopened, since the model stays in bfloat16
                encoded = encode(split, opened.tokenizer, 200)
                results[precision], took = timed(
                    lambda opened=opened, encoded=encoded, precision=precision: set_ablation(
                        opened, encoded, task("rte"), split.targets(), sets, precision=precision
                    )
                )
                seconds.append(took)

    benchmark.pedantic(turns, rounds=1)
    (values, half), (_, full) = results["bfloat16"], results["float32"]
    differ = values["sample_differs"] / values["sampled"]
    assert differ <= DIFFER
    everywhere = float(np.mean(half["predicted"] != full["predicted"]))
    assert everywhere <= DIFFER
    (full_clock, full_processor), (clock, processor) = (np.min(taken[name], axis=0) for name in ("float32", "bfloat16"))
    ratio = full_clock / clock
    record(f"disabling {len(sets)} heads in bfloat16, {TITLES[make.__name__]}, {rows} rows, over float32", ratio)
    show(
        f"{len(sets)} heads, {make.__name__}, {rows} rows of RTE, {torch.get_num_threads()} threads: "
        f"{values['sample_differs']} of {values['sampled']} predictions of the sample differ ({differ:.2%}; of all "
        f"{everywhere:.2%}); float32 {full_clock:.1f} s, bfloat16 {clock:.1f} s: ratio {ratio:.2f}, "
        f"of processor time {full_processor / processor:.2f}"
    )
