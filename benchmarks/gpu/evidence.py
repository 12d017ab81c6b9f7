"""Collect the results of a GPU run in one evidence file in `expected/evidence/`."""

from collections.abc import Sequence
from pathlib import Path
from typing import Any

from environment import ROOT
from parts import Part
from results import EVIDENCE, code_digest, commit, read_record

from bertsecrets.errors import UserError
from bertsecrets.store.entries import write_json
from bertsecrets.types import slug

SAME = ("code", "software", "device")  # in all parts of one run
OF_VERDICT = ("id", "unit", "published", "band", "observed", "interval", "verdict", "reason", "remarks", "seeds")


def collect(out: Path, parts: Sequence[Part], root: Path = ROOT) -> Path:
    """Write the evidence file from the results in a folder, and return its path.

    Args:
        root: Checkout that produced the results.

    Raises:
        UserError: A result is missing, damaged, or from other code, another machine or a run without a GPU; or the
            checkout has uncommitted changes.
    """
    records = {part.name: read_record(out, part) for part in parts}
    absent = [name for name, record in records.items() if record is None]
    if absent:
        raise UserError(f"{out} is incomplete: no undamaged result of {', '.join(absent)}; run `make gpu` again")
    whole = [record for record in records.values() if record is not None]
    first = whole[0]["made_by"]
    for record in whole:
        for name in SAME:
            if record["made_by"][name] != first[name]:
                raise UserError(
                    f"{out} has results of two runs: {record['part']} has another {name}; run `make gpu` again"
                )
    if first["device"].startswith(("CPU", "mps")):
        raise UserError(f"{out} was made on {first['device']}, not on a GPU")
    if first["code"] != code_digest(root):
        at = f" (commit {whole[0]['commit']})" if whole[0]["commit"] else ""
        raise UserError(
            f"{out} was made by other code than this checkout's{at}: check that commit out, or run `make gpu` again"
        )
    head = commit(root)
    if head is None or head.endswith("+changes"):
        raise UserError("this checkout has changes that are not committed: evidence names the commit that made it")
    made = max(record["made"] for record in whole)
    data = {
        "made": made,
        "commit": head,
        **{name: first[name] for name in SAME},
        "parts": {record["part"]: _part(record) for record in whole},
    }
    path = root / "expected" / EVIDENCE / f"gpu-{slug(first['device']).lower()}-{made[:10]}.json"
    write_json(path, data)
    return path


def _part(record: dict[str, Any]) -> dict[str, Any]:
    """Return the recorded results of a part. Verdicts on random weights are excluded, since they are meaningless."""
    kept = {name: record[name] for name in ("made", "seconds", "calls", "figures")}
    kept |= {name: record["made_by"][name] for name in ("model", "data", "command")}
    if record["verdicts"] and record["claimed"]:
        kept["verdicts"] = [{name: verdict[name] for name in OF_VERDICT} for verdict in record["verdicts"]]
    return kept
