"""Training a model of BERT-base's shape on a GPU (five seeds on each of seven tasks), against a plain Trainer.

    pytest benchmarks/speed/test_gpu_training_speed.py --glue DIR

First, losses and gradients in bfloat16 and in float32 are compared at the same weights, without dropout. Then steps on
up to 3200 training rows of each task are timed, and multiplied by the number of steps of the official training set. The
suite trains eight models at a time in bfloat16. The Trainer trains one model after another, like transformers'
run_glue, with SDPA, in float32 without TF32, padded to 128 tokens.
"""

import multiprocessing
from concurrent.futures import ProcessPoolExecutor

import pytest
import torch
from bert import bert_base
from trainings import piece, run_glue, set_gate, training_of

from bertsecrets.devices import best_device
from bertsecrets.settings import load_settings
from bertsecrets.texts.tasks import TASKS, task

SEEDS = 5
GOAL = 6.0
AT_ONCE = 8  # number of simultaneous trainings
ROWS = 3200  # training rows of each task
CLOSE = 0.02  # relative difference between losses and gradient norms in bfloat16 and in float32
COMPARED = 12  # batches
SPAWN = multiprocessing.get_context("spawn")


@pytest.mark.gpu
def test_all_trainings_over_a_plain_trainer(training_rows, benchmark, show, record, tmp_path):
    """Goal: train table 1's pretrained column with five seeds at least 6 times as fast as with a Trainer."""
    splits = {name: training_rows(name).head(ROWS) for name in TASKS}
    off = largest_difference(splits["rte"])
    assert off < CLOSE
    plain_step, _ = run_glue(bert_base("rte", "sdpa"), splits["rte"], tmp_path, steps=30, device="cuda")()
    torch.cuda.empty_cache()
    timed = benchmark.pedantic(at_once, [AT_ONCE, splits], rounds=1)
    alone, _ = at_once(1, {"rte": splits["rte"]})["rte"]
    gain = alone * AT_ONCE / timed["rte"][0]
    steps = {name: SEEDS * steps_of(name) for name in TASKS}
    ours = {name: steps[name] * seconds / AT_ONCE for name, (seconds, _) in timed.items()}
    plain = {name: steps[name] * plain_step for name in TASKS}
    ratio = sum(plain.values()) / sum(ours.values())
    peak = max(memory for _, memory in timed.values())
    benchmark.extra_info.update(ours=ours, plain=plain, largest_difference=off, peak_memory=peak)
    what = "in bfloat16, BERT-base's shape"
    record(f"training on {len(TASKS)} tasks {what}, over a plain Trainer in float32", ratio, GOAL)
    record(f"training on RTE {what}, {AT_ONCE} at once, over one after another", gain)
    shown = ", ".join(f"{name} {plain[name]:.0f} s and {ours[name]:.0f} s" for name in TASKS)
    show(
        f"{SEEDS} seeds of BERT-base's shape, a plain Trainer and ours with {AT_ONCE} at once: {shown}; "
        f"losses and gradient norms differ by {off:.2%} at most; peak memory of a training {peak / 2**30:.1f} GiB; "
        f"ratio {ratio:.1f} (goal {GOAL:.0f}); a step on RTE {1000 * alone:.1f} ms alone, "
        f"{1000 * timed['rte'][0]:.1f} ms with {AT_ONCE} at once: {gain:.2f} times as many steps per second"
    )


def steps_of(name: str) -> int:
    """Return the number of training steps on a task's official training set."""
    settings = load_settings().finetune
    return -(-task(name).train_rows // settings.batch_size) * settings.epochs


def at_once(processes: int, splits, device: str = "cuda", make=bert_base) -> dict[str, tuple[float, int]]:
    """Return the seconds per step and the peak memory, each the maximum of simultaneous trainings, by task."""
    with ProcessPoolExecutor(processes, SPAWN, set_gate, [SPAWN.Barrier(processes)]) as pool:
        pieces = {
            name: [pool.submit(piece, make, split, seed, device) for seed in range(processes)]
            for name, split in splits.items()
        }
        results = {name: [future.result() for future in futures] for name, futures in pieces.items()}
    return {name: (max(s for s, _ in result), max(m for _, m in result)) for name, result in results.items()}


def largest_difference(split) -> float:
    """Return the largest relative difference between steps in bfloat16 and in float32 at the same weights.

    The losses and gradient norms of `COMPARED` batches are compared. The learning rate is 0 to keep weights constant.
    """
    tables = []
    for precision in ("float32", "bfloat16"):
        classifier = bert_base("rte", "sdpa")
        for module in classifier.model.modules():
            if isinstance(module, torch.nn.Dropout):
                module.p = 0.0
        training = training_of(classifier, split, precision, best_device("cuda"))
        training.peak = 0.0
        for _ in range(COMPARED):
            training.take_step()
        tables.append(torch.stack(training.unchecked)[:, :2].cpu())
    full, half = tables
    return float(((half - full) / full).abs().max())
