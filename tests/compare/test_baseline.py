"""A baseline: a run fails only if a verdict is worse than the accepted one, and only comparable runs are compared."""

import json
from dataclasses import replace
from itertools import product
from pathlib import Path
from typing import get_args

import pytest
from calls import run, told
from measurements import of_id
from verdicts import filed, run_of, save_scores

from bertsecrets.claims.eligibility import NotApplicable, Skipped
from bertsecrets.claims.reasons import Grounds
from bertsecrets.claims.verdict import Verdict
from bertsecrets.compare.baseline import Baseline
from bertsecrets.compare.changes import STANDINGS_FROM_BEST, Change
from bertsecrets.errors import UserError
from bertsecrets.formats import PASSES, Outcome
from bertsecrets.judging import failed

CASE = of_id("D2-rte")
DEVIATIONS = {
    "below half": Grounds.LESS_THAN_HALF,
    "negligible": Grounds.NEGLIGIBLE,
    "other deviation": Grounds.OTHER_SIDE,
}


def of_standing(name: str) -> Verdict:
    """Return a verdict that a row or column of the documented table is about."""
    if name == "error":
        return failed(CASE, UserError("no rows"))
    if name in DEVIATIONS:
        facts = {"interval": (0.0, 1.0), "side": "below", "limit": 2, "size": 1, "why": "because"}
        return Verdict.because(CASE, "deviates", DEVIATIONS[name](**facts))
    return Verdict(CASE, name, "why")


def documented() -> list[tuple[str, str, str]]:
    """Return the rows of the table in the documentation as (accepted, now, exit code)."""
    page = (Path(__file__).parents[2] / "docs" / "baselines.md").read_text(encoding="utf-8")
    lines = page.split("| accepted |")[1].partition("\n\n")[0].splitlines()
    header, _, *rows = [[cell.strip() for cell in line.strip("|").split("|")] for line in lines]
    return [(row[0], now, code) for row in rows for now, code in zip(header, row[1:], strict=True)]


def exit_code(accepted: Verdict | None, now: Verdict, *, strict: bool) -> int:
    judged = run_of(now)
    judged.baseline = Baseline(Path("accepted.json"), filed([accepted] if accepted else []))
    try:
        return judged.exit_code(strict=strict)
    except UserError:
        return 2


@pytest.mark.parametrize(("accepted", "now", "codes"), documented())
def test_a_run_fails_as_documented(accepted, now, codes):
    usual, _, strict = codes.rstrip(")").partition(" (")
    for old, new in product(accepted.split(" or "), now.split(" or ")):
        before, after = None if old == "nothing" else of_standing(old), of_standing(new)
        assert exit_code(before, after, strict=False) == int(usual)
        assert exit_code(before, after, strict=True) == int(strict or usual)
        if before is not None and {old, new} != {"error"}:
            assert (Change(before.data, after.data).kind == "worse") == (usual != "0")


def test_the_table_has_all_pairs():
    names = ["reproduced or compatible", "not applicable", "inconclusive", *DEVIATIONS, "degenerate", "error"]
    assert [(accepted, now) for accepted, now, _ in documented()] == [
        (accepted, now) for accepted in [*names, "nothing"] for now in names
    ]


def test_every_outcome_has_a_standing():
    assert {*get_args(Outcome)} <= {*STANDINGS_FROM_BEST}


def test_no_pass_is_a_change_from_another():
    assert {Change(of_standing(a).data, of_standing(b).data).kind for a in PASSES for b in PASSES} == {"same"}


def test_a_definition_covers_what_decides_a_verdict_and_no_prose():
    def with_claim(**fields):
        return replace(CASE, claim=CASE.claim.model_copy(update=fields)).definition

    assert with_claim(statement="s", note="n", known=(), over_tasks=None, how="h") == CASE.definition
    figure = CASE.figure.model_copy(update={"published": 12.0})
    changes = {"quantity": "score", "arguments": {"x": 1}, "unit": "u", "tasks": {"rte": figure}, "existence": True}
    assert len({CASE.definition, *(with_claim(**{name: value}) for name, value in changes.items())}) == 6


def test_an_accepted_verdict_takes_precedence_over_a_known_deviation():
    case = of_id("D1-rte-pretrained")
    assert case.known_deviation("minilm")
    judged = run_of(Verdict(case, "deviates", "why"), model="minilm")
    assert judged.exit_code() == 0
    judged.baseline = Baseline(Path("accepted.json"), filed([Verdict(case, "reproduced", "why")], model="minilm"))
    assert judged.exit_code() == 1


# ---------------------------------------------------------------------- the command


@pytest.fixture
def report(capsys, tmp_path, quick):
    """Return a function that judges D2 on saved scores with a baseline, and returns the output.

    Args of the function: the share of correct answers, more options, and the expected exit code.
    """

    def call(right: float, *more, code: int = 0, task: str = "rte", **provenance) -> str:
        words = save(tmp_path / "kept", right, task, **provenance)
        return run(capsys, *words, "--baseline", tmp_path / "accepted.json", *more, code=code)

    return call


def save(folder: Path, right: float, task: str = "rte", **provenance) -> list[object]:
    """Save scores of three seeds, and return the command that judges them."""
    facts = {"data_fingerprint": "a" * 64, "weights": f"{right:064}", **provenance}
    save_scores(folder, right, task, **facts)
    return ["report", "--model", "m", "--claim", "D2", "--measurements", folder]


def accepted(tmp_path) -> dict[str, str]:
    verdicts = json.loads((tmp_path / "accepted.json").read_text())["verdicts"]
    return {verdict["id"]: verdict["verdict"] for verdict in verdicts}


def test_findings_are_accepted_and_regressions_fail(report, tmp_path):
    report(0.35, "--update-baseline")
    assert accepted(tmp_path) == {"D2-rte": "deviates"}
    assert f"accepted in {tmp_path / 'accepted.json'}: D2-rte" in report(0.35)
    report(0.9)
    worse = f"worse than in {tmp_path / 'accepted.json'}: D2-rte (deviates -> degenerate)"
    assert worse in report(0.1, code=1)
    out = report(0.9, "--update-baseline")
    assert "K19 claims: 1 better" in out
    assert "rule or definition" not in out
    report(0.35, code=1)


def test_accepting_a_degenerate_verdict_is_pointed_out(report):
    assert "accepted as degenerate" not in report(0.9, "--update-baseline")
    said = report(0.1, "--update-baseline")
    assert "accepted as degenerate: 1 claim, which later runs can fail only with an error" in said


def test_accepted_failures_are_marked_on_the_page_and_in_the_summary(report, tmp_path):
    pytest.importorskip("altair")
    report(0.35, "--update-baseline")
    page, markdown = tmp_path / "page.html", tmp_path / "summary.md"
    report(0.35, "--html", page, "--markdown", markdown)
    assert "0 reproduced, 1 deviates (1 accepted)" in markdown.read_text()
    assert "| `D2-rte` deviates: opposite (accepted) |" in markdown.read_text()
    assert "<small>accepted</small>" in page.read_text()
    report(0.1, "--html", page, "--markdown", markdown, code=1)  # worse than accepted
    assert "accepted)" not in markdown.read_text()
    assert "<small>accepted</small>" not in page.read_text()


def test_an_accepted_failure_is_no_annotation(report, monkeypatch):
    report(0.35, "--update-baseline")
    monkeypatch.setenv("GITHUB_ACTIONS", "true")
    assert "::error" not in report(0.35)
    assert "::error title=D2-rte degenerate: 3 of 3 seeds failed::On every task" in report(0.1, code=1)


def test_an_update_keeps_accepted_verdicts_on_other_tasks_but_none_by_other_settings(report, tmp_path):
    more = ("--claim", "D2-mrpc", "--task", "mrpc", "--update-baseline")
    report(0.35, "--update-baseline")
    report(0.9, *more, task="mrpc")
    assert accepted(tmp_path) == {"D2-rte": "deviates", "D2-mrpc": "reproduced"}
    report(0.35)
    change(tmp_path, lambda file: file["settings"]["judge"].update(resamples=7))
    out = report(0.9, *more, task="mrpc")
    assert accepted(tmp_path) == {"D2-mrpc": "reproduced"}
    assert "1 gone" in out


def test_changes_by_a_rule_alone_are_listed_apart(report, tmp_path):
    report(0.9, "--update-baseline")
    change(tmp_path, lambda file: file["verdicts"][0].update(verdict="inconclusive"))
    assert "changed only because a rule or definition changed: D2-rte" in report(0.9, "--update-baseline")
    change(tmp_path, lambda file: file["verdicts"][0].update(verdict="inconclusive", weights=["f" * 12]))
    assert "changed only because" not in report(0.9, "--update-baseline")


def change(tmp_path, rewrite) -> None:
    file = json.loads((tmp_path / "accepted.json").read_text())
    rewrite(file)
    (tmp_path / "accepted.json").write_text(json.dumps(file))


OTHERS = {
    "model": (lambda file: file.update(model="other"), "model other -> m"),
    "settings": (lambda file: file["settings"]["judge"].update(resamples=7), "setting judge.resamples 7 -> "),
    "definition": (lambda file: file["verdicts"][0].update(definition="0" * 12), "the definition of D2-rte"),
    "an older version": (lambda file: file["verdicts"][0].pop("definition"), "the definition of D2-rte"),
    "data": (lambda file: file["verdicts"][0].update(data=["b" * 12]), f"data of D2-rte: {'b' * 12} -> {'a' * 12}"),
    "limits": (
        lambda file: file["verdicts"][0].update(limits={"limit": 9}),
        "limits of D2-rte: limit 9 -> all rows",
    ),
}


@pytest.mark.parametrize("name", OTHERS)
def test_the_baseline_of_another_run_is_refused_in_one_line(report, capsys, tmp_path, name):
    rewrite, difference = OTHERS[name]
    report(0.9, "--update-baseline")
    change(tmp_path, rewrite)
    capsys.readouterr()
    words = [*save(tmp_path / "kept", 0.9), "--baseline", tmp_path / "accepted.json"]
    line = told(capsys, *words)
    assert f"accepted.json is the baseline of another run ({difference}" in line
    report(0.9, "--update-baseline")
    report(0.9)


@pytest.mark.parametrize("updating", [False, True])
def test_a_run_that_judges_nothing_is_not_compared_with_a_baseline(updating):
    judged, other = run_of(Verdict(CASE, "reproduced", "why")), Grounds.OTHER_WEIGHTS(wanted="bert", instead="")
    baseline = Baseline(Path("accepted.json"), filed([Verdict(CASE, "reproduced", "why")]), updating)
    judged.answers = {str(CASE): NotApplicable(other)}
    baseline.check_run(judged)
    judged.answers, judged.asked = {**judged.answers, "D2-mrpc": Skipped("no data")}, [CASE, of_id("D2-mrpc")]
    with pytest.raises(UserError, match=r"nothing to compare with accepted\.json: .* \(no data\)"):
        baseline.check_run(judged)


def test_a_baseline_that_is_missing_or_not_named_is_refused(capsys, tmp_path, quick):
    words = save(tmp_path / "kept", 0.9)
    assert "write it with --update-baseline" in told(capsys, *words, "--baseline", tmp_path / "none.json")
    assert "name it with --baseline" in told(capsys, *words, "--update-baseline")
    assert "not a regular file" in told(capsys, *words, "--update-baseline", "--baseline", "/dev/null")
