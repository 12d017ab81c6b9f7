"""Decide whether training in bfloat16 instead of float32 changes a conclusion, with the same seeds.

    python benchmarks/precision_study.py --glue DIR --train-limit 8000 [--task rte] [--seeds 8] [--json FILE]

No conclusion changes if the mean difference between the scores lies within half a point (90% interval, over seeds and
tasks), and if verdicts differ between precisions no more often than between two halves of the float32 seeds.

All results are stored, so an interrupted study resumes, and a complete one only reads the store. With --json, the
result is written after every task, and tasks that the file already contains are not run again, so a study can be
continued on another machine.
"""

import argparse
import json
import sys
from collections.abc import Sequence
from pathlib import Path
from typing import Any

import numpy as np
from tabulate import tabulate

from bertsecrets.claims.band import reach
from bertsecrets.claims.eligibility import Skipped
from bertsecrets.claims.loading import cases
from bertsecrets.claims.requirements import required_measurements
from bertsecrets.claims.schema import Case
from bertsecrets.errors import UserError
from bertsecrets.judging import attempt
from bertsecrets.options import RunOptions, add_options
from bertsecrets.provenance import TRAINING_MODULE, made_by
from bertsecrets.session import Session
from bertsecrets.store.entries import write_json
from bertsecrets.texts.tasks import task

PRECISIONS = ("float32", "bfloat16")
TASKS = ("rte", "mrpc", "stsb", "sst2")
MEASURES = ("attention-change", "special-tokens", "scores")  # measures of the claims whose verdicts are compared
CONFIDENCE = 0.90
LARGEST = 0.5  # points, the smallest difference in scores that matters
OPTIONS = ("model", "glue", "store", "threads", "limit", "train_limit", "offline", "allow_unofficial_data")


def study(
    sessions: dict[str, Session], task_name: str, seeds: Sequence[int], claims: Sequence[str] | None = None
) -> dict[str, Any]:
    """Return the scores and verdicts of both precisions on a task.

    Verdicts are those on the first half of the seeds in float32 and in bfloat16, and on the other half in float32.

    Args:
        claims: Claims to judge; by default all that need only scores and maps of the pretrained and fine-tuned model.
    """
    scores: dict[str, list[float]] = {precision: [] for precision in PRECISIONS}
    for seed in seeds:
        for precision, session in sessions.items():
            score = session.measure("scores", task_name, seed=seed).values[task(task_name).metric]
            scores[precision].append(100 * float(score))
            print(f"{task_name}, seed {seed}, {precision}: {100 * score:.2f}", flush=True)
    half = len(seeds) // 2
    sets = (("float32", seeds[:half]), ("bfloat16", seeds[:half]), ("float32", seeds[half : 2 * half]))
    chosen = [
        case
        for case in cases()
        if case.task == task_name and case.claim.id in (claims or [case.claim.id])
        if needs_only_maps(sessions["float32"], case)
    ]
    verdicts = {
        str(case): [outcome(sessions[precision], case, half_of_seeds) for precision, half_of_seeds in sets]
        for case in chosen
    }
    return {"task": task_name, "seeds": list(seeds), "scores": scores, "verdicts": verdicts}


def recorded(file: Path | None, about: dict[str, Any]) -> dict[str, dict[str, Any]]:
    """Return the results in the file of an earlier run, by task, or nothing if there is no file.

    Args:
        about: Model, seeds, training rows and code of the study, which must match those in the file.

    Raises:
        UserError: The file is not the result of the same study.
    """
    if file is None or not file.exists():
        return {}
    try:
        content = json.loads(file.read_text(encoding="utf-8"))
        if differing := [name for name in about if content[name] != about[name]]:
            raise UserError(f"{file} differs in {', '.join(differing)} from this study: choose another file")
        return {result["task"]: result for result in content["tasks"]}
    except (OSError, ValueError, KeyError, TypeError) as error:
        raise UserError(f"{file} is not the result of a study: choose another file") from error


def conclusion(results: Sequence[dict[str, Any]]) -> dict[str, Any]:
    """Return the mean difference over tasks (points, bfloat16 less float32), its interval, and differing verdicts.

    `missing` lists the tasks without results. Until it is empty, `unchanged` is false.

    >>> same = {"float32": [60.0, 62.0, 64.0], "bfloat16": [60.1, 62.1, 64.1]}
    >>> results = [{"task": name, "scores": same, "verdicts": {f"C1-{name}": ["reproduced"] * 3}} for name in TASKS]
    >>> round(conclusion(results)["difference"], 3), conclusion(results)["unchanged"]
    (0.1, True)
    >>> conclusion(results[:3])["missing"], conclusion(results[:3])["unchanged"]
    (['sst2'], False)
    """
    differences = [np.subtract(result["scores"]["bfloat16"], result["scores"]["float32"]) for result in results]
    mean = float(np.mean([difference.mean() for difference in differences]))
    errors = [(each.std(ddof=1) / np.sqrt(len(each)) / len(differences), len(each) - 1.0) for each in differences]
    half = reach(errors, CONFIDENCE)
    verdicts = [outcomes for result in results for outcomes in result["verdicts"].values()]
    by_precision = sum(float32 != bfloat16 for float32, bfloat16, _ in verdicts)
    by_seeds = sum(one_half != other_half for one_half, _, other_half in verdicts)
    interval = [mean - half, mean + half]
    missing = sorted(set(TASKS) - {result["task"] for result in results}, key=TASKS.index)
    return {
        "missing": missing,
        "difference": mean,
        "interval": interval,
        "verdicts": len(verdicts),
        "differ_by_precision": by_precision,
        "differ_by_seeds": by_seeds,
        "unchanged": not missing and max(map(abs, interval)) <= LARGEST and by_precision <= by_seeds,
    }


def needs_only_maps(session: Session, case: Case) -> bool:
    """Return whether a case needs only scores and maps of the pretrained and the fine-tuned model."""
    if case.claim.measure not in MEASURES:
        return False
    required = required_measurements(session, case)
    return all(each.initialisation in ("pretrained", "untrained") for each in required)


def outcome(session: Session, case: Case, seeds: Sequence[int]) -> str:
    """Return the outcome of a case."""
    result = attempt(case, lambda: session.judge_case(case, seeds))
    return "skipped" if isinstance(result, Skipped) else result.status


def lines(result: dict[str, Any]) -> str:
    """Return the scores and the differing verdicts on one task as text."""
    rows = zip(result["seeds"], *(result["scores"][precision] for precision in PRECISIONS), strict=True)
    differing = [f"{case} ({' / '.join(each)})" for case, each in result["verdicts"].items() if len(set(each)) > 1]
    return "\n".join(
        [
            tabulate(rows, ["seed", *PRECISIONS], floatfmt=".2f"),
            f"{result['task']}: {len(result['verdicts'])} verdicts (float32 / bfloat16 / float32, other seeds), "
            f"different: {', '.join(differing) or 'none'}",
        ]
    )


def summary(result: dict[str, Any]) -> str:
    """Return the conclusion as text."""
    low, high = result["interval"]
    decision = "no conclusion changes" if result["unchanged"] else "not shown to be equal"
    if result["missing"]:
        decision = f"not complete without {', '.join(result['missing'])}"
    return (
        f"bfloat16 less float32: {result['difference']:+.2f} points [{low:+.2f}, {high:+.2f}]; "
        f"{result['differ_by_precision']} of {result['verdicts']} verdicts differ by precision, "
        f"{result['differ_by_seeds']} by seeds: {decision}"
    )


def main(arguments: Sequence[str] | None = None) -> int:
    """Run the study and return the exit code."""
    parser = argparse.ArgumentParser(description=(__doc__ or "").partition("\n")[0])
    add_options(parser.add_argument, OPTIONS)
    parser.add_argument("--task", action="append", help=f"task to train; repeatable (default: {', '.join(TASKS)})")
    parser.add_argument("--seeds", type=int, default=8, metavar="N", help="seeds 1 to N (default: 8)")
    parser.add_argument("--claim", action="append", help="compare only the verdicts on this claim; repeatable")
    parser.add_argument("--json", type=Path, metavar="FILE", help="write the result to this file")
    given = parser.parse_args(arguments)
    if given.seeds < 2:
        parser.error(f"--seeds {given.seeds}: give 2 or more")
    given.model = given.model or "minilm"
    chosen = RunOptions.from_namespace(given)
    try:
        sessions = {precision: Session(chosen, precision=precision, device="cpu") for precision in PRECISIONS}
        by = made_by(TRAINING_MODULE, sessions["bfloat16"].resources.device)
        seeds = list(range(1, given.seeds + 1))
        about = {"model": given.model, "seeds": seeds, "train_limit": given.train_limit, "code": by["code"]}
        results = recorded(given.json, about)
        for name in given.task or TASKS:
            if name not in results:
                results[name] = {**study(sessions, name, seeds, given.claim), "made_by": by}
                if given.json:
                    together = list(results.values())
                    write_json(given.json, {**about, "tasks": together, **conclusion(together)})
            print(lines(results[name]), flush=True)
        print(summary(conclusion(list(results.values()))))
    except UserError as error:
        print(f"precision_study: {error}", file=sys.stderr)
        return 2
    return 0


if __name__ == "__main__":
    sys.exit(main())
