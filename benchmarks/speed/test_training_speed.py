"""Training steps in bfloat16, compared with float32 and with transformers' run_glue.

    pytest benchmarks/speed/test_training_speed.py --glue DIR -k minilm

All trainings start from the same weights, use the same rows and alternate. Losses must agree before times are compared.
The timed steps are spread evenly over an epoch, so that lengths are typical. Each step is repeated, and its fastest
time counts. BERTSECRETS_STEPS sets how many steps are timed.
"""

import os
import time

import numpy as np
import pytest
import torch
from bert import TITLES, bert_base, minilm
from torch.utils.flop_counter import FlopCounterMode
from trainings import run_glue, training_of

from bertsecrets.devices import native_bfloat16
from bertsecrets.models.memory import return_large_blocks
from bertsecrets.models.opening import OpenModel
from bertsecrets.models.training.loop import Training

CPU = torch.device("cpu")
REPEATS = 3
CLOSE = 0.15  # difference between losses of single steps from the same weights with different dropout
ROWS = 2500  # number of training rows used, about as many as RTE has
STEPS = int(os.environ.get("BERTSECRETS_STEPS") or 4)

pytestmark = pytest.mark.skipif(not native_bfloat16(CPU), reason="needs a CPU that computes bfloat16 natively")


class Steps:
    """The suite's training in one precision, which takes single steps."""

    def __init__(self, classifier: OpenModel, split, precision: str):
        self.training = training_of(classifier, split, precision, CPU)
        torch.manual_seed(1)  # both precisions draw the same order
        self.training.take_step()
        self.seconds: dict[int, list[float]] = {}
        self.losses: list[float] = []

    def take(self, step: int) -> None:
        """Take one step of the epoch and time it."""
        self.training.step = step
        before = self.training.total.item()
        began = time.perf_counter()
        self.training.take_step()
        self.seconds.setdefault(step, []).append(time.perf_counter() - began)
        self.losses.append(self.training.total.item() - before)

    @property
    def mean(self) -> float:
        """The mean over steps of each step's fastest time in seconds."""
        return float(np.mean([min(times) for times in self.seconds.values()]))


def spread_over(training: Training) -> list[int]:
    """Return the numbers of `STEPS` steps, spread evenly over an epoch, excluding the first step of the epoch."""
    return [1 + int(place) for place in (np.arange(STEPS) + 0.5) / STEPS * (training.per_epoch - 1)]


@pytest.mark.parametrize(
    ("make", "goal"), [pytest.param(minilm, 2.5, id="minilm"), pytest.param(bert_base, 2.0, id="bert_base")]
)
def test_bfloat16_over_float32(make, goal, training_rows, benchmark, show, record):
    """Goal: autocast makes steps on RTE at least 2.5 times as fast with MiniLM, 2 times with BERT-base's shape."""
    split = training_rows("rte").head(ROWS)
    with return_large_blocks():
        full, half = (Steps(make("rte"), split, precision) for precision in ("float32", "bfloat16"))
        assert full.training.order == half.training.order

        def turns():
            for step in spread_over(full.training):
                for _ in range(REPEATS):
                    full.take(step)
                    half.take(step)

        benchmark.pedantic(turns, rounds=1)
    assert np.mean(np.abs(np.subtract(full.losses, half.losses))) < CLOSE
    ratio = full.mean / half.mean
    record(f"training step on RTE in bfloat16, {TITLES[make.__name__]}, over float32", ratio, goal)
    show(
        f"a step of RTE, {make.__name__}, {torch.get_num_threads()} threads, equal batches, losses within {CLOSE}: "
        f"float32 {1000 * full.mean:.0f} ms, bfloat16 {1000 * half.mean:.0f} ms: ratio {ratio:.2f} (goal {goal})"
    )


def test_share_of_the_rate_of_matrix_products(training_rows, benchmark, show, record):
    """The rate of a training step on RTE with MiniLM, relative to its largest matrix product alone, in bfloat16."""
    split = training_rows("rte").head(ROWS)
    with return_large_blocks():
        ours = Steps(minilm("rte"), split, "bfloat16")
        products, operations = [], []

        def turns():
            for step in spread_over(ours.training):
                with FlopCounterMode(display=False) as counted:
                    ours.take(step)
                operations.append(counted.get_total_flops())
                ours.seconds.pop(step)  # counting takes time
                for _ in range(REPEATS):
                    ours.take(step)
                    products.append(product_rate())

        benchmark.pedantic(turns, rounds=1)
    assert min(operations) > 0
    rate, highest = np.mean(operations) / ours.mean, max(products)
    record("rate of a training step on RTE in bfloat16, MiniLM, over that of one large matrix product", rate / highest)
    show(
        f"a step of RTE, MiniLM, {torch.get_num_threads()} threads: {rate / 1e9:.0f} GFLOP/s; a matrix product alone: "
        f"{highest / 1e9:.0f} GFLOP/s: share {rate / highest:.2f}"
    )


def product_rate(tokens: int = 2048, inputs: int = 384, outputs: int = 1536) -> float:
    """Return the operations per second of a matrix product of MiniLM's feed-forward layer in bfloat16."""
    left, right = torch.randn(tokens, inputs).bfloat16(), torch.randn(inputs, outputs).bfloat16()
    left @ right  # the first call prepares the kernel
    began = time.perf_counter()
    for _ in range(20):
        left @ right
    return 20 * 2 * tokens * inputs * outputs / (time.perf_counter() - began)


@pytest.mark.parametrize(("name", "goal"), [("rte", 4.0), ("sst2", 15.0)])
def test_ours_over_run_glue(name, goal, training_rows, benchmark, show, record, tmp_path):
    """Goal: MiniLM's mean step in bfloat16 is 4 times as fast as run_glue's on RTE, and 15 times on SST-2."""
    split = training_rows(name).head(ROWS)
    with return_large_blocks():
        ours = Steps(minilm(name), split, "bfloat16")
        theirs = run_glue(minilm(name, "sdpa"), split, tmp_path)
        taken = []

        def turns():
            for _ in range(REPEATS):
                taken.append(theirs())
                for step in spread_over(ours.training):
                    ours.take(step)

        benchmark.pedantic(turns, rounds=1)
    assert abs(np.mean(ours.losses) - np.mean([loss for _, loss in taken])) < CLOSE
    plain = min(seconds for seconds, _ in taken)
    ratio = plain / ours.mean
    record(f"training step on {name} in bfloat16, MiniLM, over run_glue with its defaults", ratio, goal)
    show(
        f"a mean step of {name}, MiniLM, {torch.get_num_threads()} threads, losses within {CLOSE}: run_glue "
        f"{1000 * plain:.0f} ms, ours in bfloat16 {1000 * ours.mean:.0f} ms: ratio {ratio:.1f} (goal {goal})"
    )
