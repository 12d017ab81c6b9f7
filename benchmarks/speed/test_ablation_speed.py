"""The ablation engine against one plain pass per head: results must be equal before times are compared.

    pytest benchmarks/speed/test_ablation_speed.py --glue DIR -k minilm

Plain passes take the same time for every head. With the large model, only every 12th head is timed, and the time is
multiplied. BERTSECRETS_PLAIN_EVERY=N times every Nth head with both models (all heads take an hour on two cores).
"""

import os

import numpy as np
import pytest
import torch
from bert import TITLES, bert_base, minilm
from plain import by_length, engine_count, in_file_order, of_one_length, plain_count, plain_passes
from tabulate import tabulate

from bertsecrets.ablation.engine import Engine, ablate
from bertsecrets.ablation.head_sets import single_heads
from bertsecrets.devices import best_device
from bertsecrets.models.encoding import encode

ORDERS = {"file order": in_file_order, "order of length": by_length, "batches of one length": of_one_length}


@pytest.mark.parametrize(
    ("make", "rows", "every", "goal"),
    [pytest.param(minilm, 100, 1, 5.0, id="minilm"), pytest.param(bert_base, 32, 12, 3.5, id="bert_base")],
)
def test_all_heads_against_plain_passes(make, rows, every, goal, rte_rows, benchmark, timed, show, record):
    """Goal: at least 5 times as fast as passes in file order with MiniLM's 72 heads, 3.5 times with BERT-base's 144."""
    every = int(os.environ.get("BERTSECRETS_PLAIN_EVERY") or every)
    classifier = make()
    encoded = encode(rte_rows(rows), classifier.tokenizer, 128)
    sets = single_heads(classifier.layers, classifier.heads)
    engine = Engine.open(classifier)
    assert engine.blocks is not None
    logits, own = benchmark.pedantic(timed, [lambda: ablate(engine, encoded, sets)], rounds=1)
    counted = engine_count(classifier.model.config, encoded, sets)
    table = []
    for order, make_batches in ORDERS.items():
        batches, timed_sets = make_batches(encoded), sets[::every]
        plain, took = timed(
            lambda batches=batches, timed_sets=timed_sets: plain_passes(classifier.model, batches, timed_sets)
        )
        np.testing.assert_allclose(logits[::every], plain, rtol=0, atol=1e-5)
        np.testing.assert_array_equal(logits[::every].argmax(-1), plain.argmax(-1))
        ratio, processor = took.clock * every / own.clock, took.processor * every / own.processor
        allowed = plain_count(classifier.model.config, batches) * len(sets) / counted
        what = f"disabling each of {len(sets)} heads, {TITLES[make.__name__]}, {rows} rows"
        record(f"{what}, over a pass per head in {order}", processor, goal if order == "file order" else None, allowed)
        table.append([order, took.clock * every, own.clock, ratio, processor, allowed, ratio / allowed])
    show(
        f"{len(sets)} heads, {rows} rows, {torch.get_num_threads()} threads, equal results; goal in file order {goal}\n"
        f"plain passes timed: one in {every} of {len(sets)}\n"
        + tabulate(
            table,
            ["plain passes in", "plain s", "ours s", "ratio", "ratio of CPU time", "counted", "achieved / counted"],
            floatfmt=".2f",
        )
    )


@pytest.mark.gpu
def test_bert_base_in_bfloat16_on_a_gpu(rte_rows, benchmark, timed, show, record):
    """Goal: in bfloat16, at least 20 times as fast as plain float32 passes. Differing predictions are counted."""
    classifier = bert_base()
    encoded = encode(rte_rows(277), classifier.tokenizer, 128)
    sets = single_heads(classifier.layers, classifier.heads)
    batches = in_file_order(encoded)
    classifier.model.to(best_device("cuda"))
    plain_passes(classifier.model, batches[:1], sets[:1], "cuda")  # warms up
    full, plain = timed(lambda: plain_passes(classifier.model, batches, sets, "cuda"))
    exact, single = timed(lambda: ablate(Engine.open(classifier, "cuda"), encoded, sets))
    np.testing.assert_allclose(exact, full, rtol=0, atol=1e-4)
    assert (exact.argmax(-1) != full.argmax(-1)).mean() < 1e-4  # ties may be broken differently on a GPU
    allowed = plain_count(classifier.model.config, batches) * len(sets)
    allowed /= engine_count(classifier.model.config, encoded, sets)
    classifier.model.to(torch.bfloat16)
    engine = Engine.open(classifier, "cuda")
    ablate(engine, encoded, sets[:12])
    torch.cuda.reset_peak_memory_stats()
    half, took = benchmark.pedantic(timed, [lambda: ablate(engine, encoded, sets)], rounds=1)
    peak = torch.cuda.max_memory_allocated()
    differs = half.argmax(-1) != full.argmax(-1)
    margin = np.abs(full[..., 0] - full[..., 1])[differs].max(initial=0)
    benchmark.extra_info.update(differing=int(differs.sum()), predictions=differs.size, peak_memory=peak)
    what = f"disabling each of {len(sets)} heads, {TITLES['bert_base']}, 277 rows"
    passes = "over a float32 pass per head in file order"
    record(f"{what}, in bfloat16, {passes}", plain.clock / took.clock, 20, allowed)
    record(f"{what}, in float32, {passes}", plain.clock / single.clock, None, allowed)
    show(
        f"plain float32 {plain.clock:.2f} s; ours in float32 {single.clock:.2f} s: {plain.clock / single.clock:.1f}, "
        f"in bfloat16 {took.clock:.2f} s: {plain.clock / took.clock:.1f} (goal 20); counted {allowed:.2f}; "
        f"peak memory {peak / 2**30:.1f} GiB\n"
        f"bfloat16: {differs.sum()} of {differs.size} predictions differ, all with a margin under {margin:.4f}"
    )
