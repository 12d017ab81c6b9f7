"""The judging loop: results of failed cases, which cases get another seed, and how often each is judged."""

import json

import pytest
from measurements import of_id

import bertsecrets.judging as judging
from bertsecrets.claims import sequential
from bertsecrets.claims.verdict import Verdict
from bertsecrets.cli.main import main
from bertsecrets.errors import MissingError, NotApplicableError, RunError, UserError
from bertsecrets.judging import Analyses, JudgedRun, SeedBudget, Skipped, attempt
from bertsecrets.session import Session
from bertsecrets.texts.corpus import write_corpus

CASE, OTHER = of_id("E1-rte"), of_id("C2-rte")


def raising(error):
    def judge():
        raise error

    return judge


@pytest.mark.parametrize(
    ("error", "outcome", "reason"),
    [
        (NotApplicableError("no heads"), "not applicable", "no heads"),
        (UserError("damaged\nfile"), None, "damaged file"),
        (MemoryError(), None, "not enough memory (MemoryError): close other programs"),
        (PermissionError(13, "Permission denied", "/data"), None, "cannot use /data: Permission denied"),
        (TypeError("no number"), None, "a bug in bertsecrets or a damaged file (TypeError: no number)"),
    ],
)
def test_an_error_of_one_case_is_its_result(error, outcome, reason):
    verdict = attempt(CASE, raising(error))
    assert (verdict.outcome, verdict.reason.startswith(reason)) == (outcome, True)
    if outcome is None:
        assert isinstance(verdict.error, UserError) == (not isinstance(error, TypeError))
        assert (verdict.status, verdict.as_json()["error"]) == ("error", verdict.reason)


def test_missing_data_skip_a_case_and_an_error_of_the_run_ends_it():
    assert attempt(CASE, raising(MissingError("no frames"))) == Skipped(CASE, "no frames")
    for error in (RunError("disk full"), KeyboardInterrupt()):
        with pytest.raises(type(error)):
            attempt(CASE, raising(error))


@pytest.mark.parametrize(("afforded", "judged"), [(9, [(1, 2), (2, 1), (3, 1)]), (2, [(1, 2), (2, 1)])])
def test_only_open_cases_get_a_further_seed_while_it_can_be_afforded(afforded, judged):
    analyses = Analyses([CASE, OTHER], [[1], [1, 2], [1, 2, 3], [1, 2, 3, 4]], lambda _, seed: seed <= afforded)
    calls = []
    for cases, seeds in analyses:
        calls.append((len(seeds), len(cases)))
        for case in cases:
            analyses.add(Verdict(case, "inconclusive", "", open=case is CASE and len(seeds) < 3))
    assert calls == judged


def test_a_budget_without_estimates_takes_the_next_seed_to_be_as_slow_as_the_last(monkeypatch):
    now = iter([0.0, 4.0, 9.0, 15.0])  # seeds take 4, 5 and 6 seconds
    monkeypatch.setattr(judging.time, "monotonic", lambda: next(now))
    budget = SeedBudget(20.0)
    assert [budget.affords([CASE], seed) for seed in (2, 3, 4)] == [True, True, False]


def test_an_estimate_must_leave_a_margin_in_the_budget(monkeypatch):
    monkeypatch.setattr(judging.time, "monotonic", lambda: 0.0)
    budget = SeedBudget(20.0, lambda cases, seed: 17.0 if seed == 2 else 19.0)
    assert [budget.affords([CASE], seed) for seed in (2, 3)] == [True, False]


def test_a_run_keeps_verdicts_made_before_it_ended():
    def results():
        yield Verdict(OTHER, "reproduced", "first")
        yield Verdict(CASE, "inconclusive", "open")
        yield Verdict(CASE, "reproduced", "decided")
        raise RunError("disk full")

    judged = JudgedRun("m", [CASE, OTHER])
    judged.collect(results())
    assert [verdict.reason for verdict in judged.verdicts] == ["decided", "first"]
    assert judged.note == "2 of 2 claims were judged before the run ended (disk full)"
    with pytest.raises(RunError):
        judged.exit_code()


@pytest.mark.usefixtures("quick", "same_threads")
def test_a_case_is_judged_once_per_interim_analysis(monkeypatch, tmp_path, tiny_bert, runs):
    calls, judge = [], sequential.judge

    def counting(case, by_seed, *more, **options):
        calls.append((str(case), len(by_seed)))
        return judge(case, by_seed, *more, **options)

    monkeypatch.setattr(sequential, "judge", counting)
    glue = write_corpus(tmp_path / "glue", 64, 40)
    given = {"model": str(tiny_bert), "glue": str(glue), "store": str(runs), "device": "cpu", "seeds": "auto"}
    seeds = Session(**given, offline=True, allow_unofficial_data=True).judge("E1", task="rte").seeds
    assert len(seeds) >= 2
    assert calls == [("E1-rte", count) for count in range(1, len(seeds) + 1)]
    calls.clear()
    words = [word for name, value in given.items() for word in (f"--{name}", value)]
    files = ["--json", tmp_path / "v.json", "--html", tmp_path / "r.html", "--markdown", tmp_path / "s.md"]
    words += ["--offline", "--allow-unofficial-data", "-v", *files]
    assert main([str(word) for word in ("report", "--task", "rte", "--claim", "E1", *words)]) in (0, 1)
    assert json.loads((tmp_path / "v.json").read_text())["verdicts"][0]["seeds"] == list(seeds)
    assert calls == [("E1-rte", count) for count in range(1, len(seeds) + 1)]
