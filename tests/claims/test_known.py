"""Outcomes on record: they agree with the verdicts on record, belong to a version of a claim, and to weights."""

import functools
import hashlib
import json
import os
import re
import shutil
from dataclasses import replace
from pathlib import Path

import pytest
from measurements import measured, of_id

from bertsecrets.benchmarks.output import expected_failure
from bertsecrets.claims.figure import Known
from bertsecrets.claims.loading import load_claims
from bertsecrets.claims.schema import ANY_MODEL, Case
from bertsecrets.claims.verdict import Verdict
from bertsecrets.compare.changes import read_verdicts_file
from bertsecrets.models.families import full_name
from bertsecrets.models.locations import is_papers_model, recorded_name
from bertsecrets.models.packaged import packaged_folder
from bertsecrets.report.text import outcome_mark, status
from bertsecrets.settings import project_path

DEFINITIONS = Path(__file__).with_name("definitions.json")  # by claim: its version, and a digest of its definition
EVIDENCE = "as seen in five seeds"


@functools.cache
def on_record():
    """Return the newest verdict on record for each model and case."""
    runs = [read_verdicts_file(file) for file in project_path("expected").glob("evidence/verdicts-*.json")]
    newest = sorted(runs, key=lambda run: run.measured.last if run.measured else run.made)
    return {(full_name(run.model), verdict.id): verdict for run in newest for verdict in run.verdicts}


def known_outcomes():
    return [(Case(claim, known.task), known) for claim in load_claims() for known in claim.known]


@pytest.mark.parametrize(
    ("case", "known"), known_outcomes(), ids=lambda each: str(each) if isinstance(each, Case) else each.model
)
def test_a_known_outcome_agrees_with_the_verdict_on_record(case, known):
    verdict = on_record().get((known.model, str(case)))
    if verdict is None:
        assert known.model == ANY_MODEL or known.status == "expected", "no verdict on record shows it"
        return
    if known.version != (verdict.claim_version or 1):
        return  # it is shown as old
    assert (known.status == "expected") == bool(verdict.limits)  # rows that were left out may have decided it
    assert verdict.verdict == ("reproduced" if known.status == "reproduces" else "deviates")
    intervals = re.findall(r"\[(-?[\d.]+), (-?[\d.]+)\]", known.evidence)
    assert not intervals or any(_is_rounded(interval, verdict.interval) for interval in intervals)


def _is_rounded(interval, ends):
    """Return whether an interval in text is a rounded one, up to its sign, such as that of a cost instead of a gain."""
    rounded = sorted((abs(float(end)), 0.51 * 10 ** -len(end.partition(".")[2])) for end in interval)
    pairs = zip(rounded, sorted(map(abs, ends)), strict=True)
    return all(abs(shown - end) <= tolerance for (shown, tolerance), end in pairs)


def test_a_changed_definition_needs_a_new_version():
    """Run this test with RENEW=yes after increasing the version of each claim whose definition has changed."""
    now = {}
    for claim in load_claims():
        digest = hashlib.sha256(json.dumps([case.definition for case in claim.cases]).encode()).hexdigest()[:12]
        now[claim.name] = [claim.version, digest]
    recorded = json.loads(DEFINITIONS.read_text(encoding="utf-8")) if DEFINITIONS.is_file() else {}
    unchanged = [name for name, was in recorded.items() if name in now and now[name] != was and now[name][0] <= was[0]]
    assert not unchanged, f"changed without a new version: {', '.join(unchanged)}"
    if os.environ.get("RENEW"):
        lines = ",\n".join(f" {json.dumps(name)}: {json.dumps(entry)}" for name, entry in sorted(now.items()))
        DEFINITIONS.write_text(f"{{\n{lines}\n}}\n", encoding="utf-8")
    assert now == json.loads(DEFINITIONS.read_text(encoding="utf-8")), "run it with RENEW=yes"


# ---------------------------------------------------------------------- versions and expectations


def with_known(status="deviates", version=1, claim_version=1, model="minilm"):
    known = Known(model=model, task="rte", evidence=EVIDENCE, status=status, version=version)
    claim = of_id("C1-rte").claim.model_copy(update={"known": (known,), "version": claim_version})
    return Case(claim, "rte")


@pytest.mark.parametrize(
    ("known", "strict"),
    [
        ({}, True),
        ({"status": "expected"}, False),
        ({"claim_version": 2}, False),
        ({"version": 2, "claim_version": 2}, True),
    ],
)
def test_only_a_deviation_that_was_observed_for_this_version_must_appear(known, strict):
    case = with_known(**known)
    deviation = case.known_deviation("minilm")
    assert deviation is not None
    assert case.observed_deviation("minilm") == strict
    mark = expected_failure(deviation, strict=case.observed_deviation("minilm")).mark
    assert mark.kwargs["strict"] == strict
    word = "expected" if known.get("status") == "expected" else "known"
    assert mark.kwargs["reason"] == f"{word} to deviate: {EVIDENCE}"


@pytest.mark.parametrize(("status", "mark"), [("deviates", "known"), ("expected", "expected"), ("reproduces", "")])
def test_an_expected_deviation_is_not_called_known(status, mark):
    measurement = measured("attention-change")
    measurement = replace(measurement, subject=replace(measurement.subject, model="minilm"))
    deviating = Verdict(with_known(status), "deviates", "", measurements=(measurement,))
    assert (outcome_mark(deviating), deviating.known_deviation) == (mark, bool(mark))
    assert outcome_mark(deviating, ["C1-rte"]) == "accepted"


def test_an_outcome_for_an_earlier_version_is_visibly_old():
    assert status(with_known(claim_version=3).claim) == "deviates: minilm on RTE (version 1, now 3)"
    assert status(with_known(status="expected").claim) == "expected to deviate: minilm on RTE"
    assert of_id("C1-rte").definition != with_known(claim_version=3).definition


# ---------------------------------------------------------------------- weights


def test_a_model_is_recognised_by_its_weights_wherever_they_are(tmp_path, monkeypatch):
    copy = tmp_path / "my copy"
    shutil.copytree(packaged_folder("minilm"), copy)
    monkeypatch.chdir(tmp_path)
    for name in (str(copy), "./my copy", "minilm"):
        assert recorded_name(name) == "minilm"
        assert with_known().known_deviation(name) is not None
    (copy / "model.safetensors").write_bytes(b"other weights")
    assert recorded_name(str(copy)) == str(copy)
    assert with_known().known_deviation(str(copy)) is None
    assert not is_papers_model(str(copy))
