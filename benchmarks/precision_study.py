"""Compare measurements after training in float32 and in bfloat16 with the same seeds.

    python benchmarks/precision_study.py --glue DIR [--task rte] [--seeds 5] [--claim C1] [--store DIR] [--json FILE]

All results are stored, so an interrupted study resumes, and a complete one only reads the store. With --json, the
result is written after all tasks are complete.
"""

import argparse
import sys
from collections.abc import Sequence
from pathlib import Path
from typing import Any

import numpy as np
from scipy import stats
from tabulate import tabulate

from bertsecrets.claims.requirements import required_measurements
from bertsecrets.claims.schema import Case, cases
from bertsecrets.errors import UserError
from bertsecrets.judging import Skipped, attempt
from bertsecrets.options import RunOptions, add_options
from bertsecrets.provenance import TRAINING, made_by
from bertsecrets.session import Session
from bertsecrets.store.entries import write_json
from bertsecrets.texts.tasks import task

PRECISIONS = ("float32", "bfloat16")
TASKS = ("rte", "mrpc", "stsb")
MAPS = {"attention-change": ("cosine",), "special-tokens": ("cls", "sep")}  # measures of maps, with their values
CONFIDENCE = 0.95
OPTIONS = ("model", "glue", "store", "threads", "limit", "train_limit", "offline", "allow_unofficial_data")


def study(
    sessions: dict[str, Session], task_name: str, seeds: Sequence[int], claims: Sequence[str] | None = None
) -> dict[str, Any]:
    """Return the results of both precisions on a task: scores by seed, paired difference, attention and verdicts.

    Args:
        claims: Claims to judge; by default all that need only maps of the pretrained and fine-tuned model.
    """
    scores: dict[str, list[float]] = {precision: [] for precision in PRECISIONS}
    for seed in seeds:
        for precision, session in sessions.items():
            score = session.measure("scores", task_name, seed=seed).values[task(task_name).metric]
            scores[precision].append(float(score))
            print(f"{task_name}, seed {seed}, {precision}: {score:.4f}", flush=True)
    result: dict[str, Any] = {"task": task_name, "seeds": list(seeds), "scores": scores, **compared(**scores)}
    result["maps"] = {}
    for measure, names in MAPS.items():
        for name in names:
            values = {
                precision: np.array([session.measure(measure, task_name, seed=seed).values[name] for seed in seeds])
                for precision, session in sessions.items()
            }
            result["maps"][f"{measure}: {name}"] = maps_compared(values["float32"], values["bfloat16"])
    chosen = [
        case
        for case in cases()
        if case.task == task_name and case.claim.id in (claims or [case.claim.id])
        if needs_only_maps(sessions["float32"], case)
    ]
    result["verdicts"] = {
        str(case): [outcome(session, case, seeds) for session in sessions.values()] for case in chosen
    }
    return result


def compared(float32: Sequence[float], bfloat16: Sequence[float]) -> dict[str, Any]:
    """Return the mean difference paired by seeds, its interval, and half the standard deviation over seeds.

    >>> compared([0.60, 0.62, 0.64], [0.60, 0.62, 0.64])["agree"]
    True
    """
    difference = np.subtract(bfloat16, float32)
    count = len(difference)
    error = difference.std(ddof=1) / np.sqrt(count) if count > 1 else np.inf
    half = float(stats.t.ppf((1 + CONFIDENCE) / 2, max(1, count - 1)) * error)
    mean, most = float(difference.mean()), float(np.std(float32, ddof=1) / 2) if count > 1 else np.inf
    interval = [mean - half, mean + half]
    agree = count > 1 and interval[0] <= 0 <= interval[1] and max(map(abs, interval)) <= most
    return {"difference": mean, "interval": interval, "half_spread": most, "agree": bool(agree)}


def maps_compared(float32: np.ndarray, bfloat16: np.ndarray) -> dict[str, float]:
    """Return the differences by layer and head: between means over seeds, and between seeds of one precision."""
    difference = np.abs(float32.mean(0) - bfloat16.mean(0))
    spread = float(float32.std(0, ddof=1).mean()) if len(float32) > 1 else np.inf
    correlation = float(np.corrcoef(float32.mean(0).ravel(), bfloat16.mean(0).ravel())[0, 1])
    return {
        "mean": float(difference.mean()),
        "largest": float(difference.max()),
        "spread": spread,
        "correlation": correlation,
    }


def needs_only_maps(session: Session, case: Case) -> bool:
    """Return whether a case needs only maps of the pretrained and the fine-tuned model."""
    if case.claim.measure not in MAPS:
        return False
    required = required_measurements(session, case)
    return all(each.initialisation in ("pretrained", "untrained") for each in required)


def outcome(session: Session, case: Case, seeds: Sequence[int]) -> str:
    """Return the outcome of a case."""
    result = attempt(case, lambda: session.verdict(case, session.measure_case(case, seeds)))
    return "skipped" if isinstance(result, Skipped) else result.status


def lines(result: dict[str, Any]) -> str:
    """Return the result on one task as text."""
    low, high = result["interval"]
    rows = zip(result["seeds"], *(result["scores"][precision] for precision in PRECISIONS), strict=True)
    differing = [f"{case} ({' / '.join(pair)})" for case, pair in result["verdicts"].items() if len(set(pair)) > 1]
    maps = [[name, *values.values()] for name, values in result["maps"].items()]
    return "\n".join(
        [
            f"{result['task']}: {'agrees' if result['agree'] else 'does not agree'}",
            tabulate(rows, ["seed", *PRECISIONS], floatfmt=".4f"),
            f"difference {result['difference']:+.4f} [{low:+.4f}, {high:+.4f}], half the seeds' spread "
            f"{result['half_spread']:.4f}",
            tabulate(maps, ["maps", "mean difference", "largest", "spread over seeds", "correlation"], floatfmt=".4f"),
            f"{len(result['verdicts'])} verdicts, different: {', '.join(differing) or 'none'}",
        ]
    )


def main(arguments: Sequence[str] | None = None) -> int:
    """Run the study and return the exit code."""
    parser = argparse.ArgumentParser(description=(__doc__ or "").partition("\n")[0])
    add_options(parser.add_argument, OPTIONS)
    parser.add_argument("--task", action="append", help="repeatable (default: rte, mrpc, stsb)")
    parser.add_argument("--seeds", type=int, default=5, metavar="N", help="seeds 1 to N (default: 5)")
    parser.add_argument("--claim", action="append", help="repeatable: compare the verdicts on these claims only")
    parser.add_argument("--json", type=Path, metavar="FILE", help="write the result to this file")
    given = parser.parse_args(arguments)
    given.model = given.model or "minilm"
    chosen = RunOptions.of(given)
    try:
        sessions = {precision: Session(chosen, precision=precision, device="cpu") for precision in PRECISIONS}
        results = []
        for name in given.task or TASKS:
            results.append(study(sessions, name, range(1, given.seeds + 1), given.claim))
            print(lines(results[-1]), flush=True)
        if given.json:
            by = made_by(TRAINING, sessions["bfloat16"].resources.device)
            write_json(given.json, {"model": given.model, "made_by": by, "tasks": results})
    except UserError as error:
        print(f"precision_study: {error}", file=sys.stderr)
        return 2
    return 0


if __name__ == "__main__":
    sys.exit(main())
