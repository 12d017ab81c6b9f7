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
    analyses = Analyses([CASE, OTHER], [[1], [1, 2], [1, 2, 3], [1, 2, 3, 4]], lambda _, seed, took: seed <= afforded)
    calls = []
    for cases, seeds in analyses:
        calls.append((len(seeds), len(cases)))
        for case in cases:
            analyses.add(Verdict(case, "inconclusive", "", open=case is CASE and len(seeds) < 3))
    assert calls == judged


def test_the_next_seed_takes_as_long_as_the_last(monkeypatch, capsys):
    now = [0.0]
    monkeypatch.setattr(judging.time, "monotonic", lambda: now[0])
    analyses = Analyses([CASE], [[1], [1, 2], [1, 2, 3], [1, 2, 3, 4]], SeedBudget(20.0).affords)
    seconds = iter([4.0, 5.0, 6.0])
    for _ in analyses:
        now[0] += next(seconds)
        analyses.add(Verdict(CASE, "inconclusive", "", open=True))
    assert next(seconds, None) is None  # 5 s are left after three seeds
    said = "not adding seed 4 for E1-rte: the last one took 6 s, and only 5 s of the budget is left"
    assert said in capsys.readouterr().err


def test_stored_seeds_are_added_whatever_the_budget(monkeypatch):
    monkeypatch.setattr(judging.time, "monotonic", lambda: 100.0)
    budget = SeedBudget(0.001, is_stored=lambda cases, seed: seed < 3)
    assert [budget.affords([CASE], seed, took=1.0) for seed in (2, 3)] == [True, False]


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
