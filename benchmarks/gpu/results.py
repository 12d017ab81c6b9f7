"""Results of parts, one file each with its provenance, and a summary of all parts."""

import json
import os
import subprocess
import time
import xml.etree.ElementTree as ElementTree
from collections.abc import Mapping, Sequence
from pathlib import Path
from typing import Any

from environment import ROOT
from parts import Part

from bertsecrets.errors import UserError
from bertsecrets.store.entries import CHECKPOINTS, DROPPED, entries, finite, read_json, read_manifest, write_json
from bertsecrets.store.files import digest, file_sha256, folder_digest, is_intact, signed
from bertsecrets.texts.tasks import task

CODE = ("bertsecrets", "benchmarks", "tests", "expected", "params.yaml", "pyproject.toml")  # what a result depends on
EVIDENCE = "evidence"  # in expected/: results, which no result depends on
SUMMARY = "summary.json"
LOG_LINES = 200
RANDOM = "random weights"

Record = dict[str, Any]


# ---------------------------------------------------------------------- what makes a result


def code_digest(root: Path = ROOT) -> str:
    """Return a digest of all code, tests, claims and settings of a checkout."""
    files = sorted(file for name in CODE for file in (root / name, *(root / name).rglob("*")) if file.is_file())
    names = {file: file.relative_to(root) for file in files}
    return digest({str(name): file_sha256(file) for file, name in names.items() if _counts(name)})


def _counts(name: Path) -> bool:
    hidden = any(part.startswith(".") or part == "__pycache__" for part in name.parts)
    return not hidden and name.parts[:2] != ("expected", EVIDENCE)


def commit(root: Path = ROOT) -> str | None:
    """Return the commit of a checkout, with `+changes` if code differs from it; None without git."""
    try:
        head = _git(root, "rev-parse", "HEAD")
        return head + ("+changes" if _git(root, "status", "--porcelain", "--", *_tracked()) else "")
    except (OSError, subprocess.CalledProcessError):
        return os.environ.get("COMMIT")


def _tracked() -> list[str]:
    return [*CODE, f":!expected/{EVIDENCE}"]


def _git(root: Path, *words: str) -> str:
    return subprocess.run(["git", "-C", str(root), *words], capture_output=True, text=True, check=True).stdout.strip()


def identity(part: Part, machine: Mapping[str, Any], model: str | None, glue: Path, root: Path = ROOT) -> Record:
    """Return all dependencies of a part's result.

    Args:
        machine: Output of `identity.py`.
        model: Model for the part's placeholder; None for random weights.

    Raises:
        UserError: The task's data are missing.
    """
    rows = glue / task(part.task).folder if part.task else None
    if rows is not None and not rows.is_dir():
        raise UserError(
            f"no folder {rows}: GLUE must name a folder in GLUE's own layout with RTE, MRPC, STS-B and SST-2"
        )
    measured = machine["models"][model] if part.model and model else part.model and RANDOM
    return {
        "command": part.command,
        "code": code_digest(root),
        "software": machine["software"],
        "device": machine["device"],
        "model": measured,
        "data": folder_digest(rows, "*.tsv") if rows else None,
    }


# ---------------------------------------------------------------------- records


def read_record(folder: Path, part: Part, made_by: Record | None = None) -> Record | None:
    """Return the result of a part; None if it is missing, damaged, or its provenance is not `made_by`."""
    try:
        record = read_json(folder / f"{part.name}.json")
    except UserError:
        return None
    whole = is_intact(record) and record.get("part") == part.name
    return record if whole and made_by in (None, record["made_by"]) else None


def write_record(
    folder: Path, part: Part, made_by: Record, *, work: Path, store: Path, log: Path, **facts: Any
) -> Record:
    """Write and return the result of a finished part, from its output files."""
    results = dict(_found(work))
    claimed = made_by["model"] != RANDOM
    verdicts = [{**verdict, "claimed": claimed} for verdict in results.pop("verdicts", ())]
    record = signed(
        finite(
            {
                "part": part.name,
                "made": time.strftime("%Y-%m-%dT%H:%M:%SZ", time.gmtime()),
                "made_by": made_by,
                "claimed": claimed,
                **facts,
                "figures": results | ({"stages": made} if (made := stages(store)) else {}),
                "verdicts": verdicts,
                "log": log_tail(log),
            }
        )
    )
    write_json(folder / f"{part.name}.json", record)
    return record


def write_summary(folder: Path, parts: Sequence[Part], states: Mapping[str, Record]) -> None:
    """Write the current state of every part, without verdicts and logs."""
    shown = {
        part.name: {name: value for name, value in states.get(part.name, {"state": "left"}).items()
                    if name not in ("part", "verdicts", "log", "sha256")}
        for part in parts
    }  # fmt: skip
    write_json(folder / SUMMARY, {"parts": shown})


def log_tail(log: Path) -> list[str]:
    """Return the last lines of a log."""
    try:
        return log.read_text(encoding="utf-8", errors="replace").splitlines()[-LOG_LINES:]
    except OSError:
        return []


def _found(work: Path):
    """Yield a part's outputs: counts of tests, benchmark figures, verdicts.

    Raises:
        UserError: A file is not valid.
    """
    if (work / "junit.xml").exists():
        yield "tests", _tests(work / "junit.xml")
    if (work / "benchmark.json").exists():
        yield (
            "benchmarks",
            [
                {"name": benchmark["name"], "seconds": benchmark["stats"]["min"], **benchmark["extra_info"]}
                for benchmark in read_json(work / "benchmark.json")["benchmarks"]
            ],
        )
    if (work / "verdicts.json").exists():
        yield "verdicts", read_json(work / "verdicts.json")["verdicts"]


def _tests(file: Path) -> Record:
    suites = ElementTree.parse(file).getroot().iter("testsuite")
    counts = [
        {name: int(suite.get(name, 0)) for name in ("tests", "skipped", "failures", "errors")} for suite in suites
    ]
    return {name: sum(count[name] for count in counts) for name in ("tests", "skipped", "failures", "errors")}


def stages(store: Path) -> list[Record]:
    """Return the seconds that each stage took: trainings by initialisation, and measurements by measure.

    If an entry was created several times by different code, the last one counts.
    """
    last: dict[str, Record] = {}
    for entry in entries(store):
        try:
            manifest = read_manifest(entry)
            measured = entry / "measurement.json"
            facts = read_json(measured)["provenance"] if measured.exists() else manifest.get("training") or {}
        except UserError:  # a damaged one, which is not used either
            continue
        if manifest.get("kind") in (CHECKPOINTS, DROPPED):
            stage = {"stage": f"train {manifest['subject']['initialisation']}", "steps": facts.get("steps")}
            stage["precision"] = facts.get("precision")
        else:
            stage = {"stage": f"measure {manifest['measure']}"}
        name = json.dumps([manifest["kind"], manifest["name"], manifest["key"]["inputs"].get("options")])
        made = {**stage, "seconds": facts.get("seconds", 0), "made": manifest["made"]}
        last[name] = max(last.get(name, made), made, key=lambda benchmark: benchmark["made"])
    grouped: dict[str, Record] = {}
    for made in last.values():
        kind = {name: value for name, value in made.items() if name not in ("seconds", "made")}
        group = grouped.setdefault(digest(kind), {**kind, "times": 0, "seconds": 0.0})
        group["times"] += 1
        group["seconds"] = round(group["seconds"] + made["seconds"], 2)
    return sorted(grouped.values(), key=lambda benchmark: -benchmark["seconds"])
