"""The judging loop: results of failed cases, which cases get another seed, and how often each is judged."""

import json
from importlib.metadata import PackageNotFoundError

import pytest
from measurements import of_id
from verdicts import GivenVerdicts

import bertsecrets.judging as judging
import bertsecrets.session as sessions
from bertsecrets.claims.eligibility import Eligible, NotApplicable, Skipped
from bertsecrets.claims.reasons import Grounds
from bertsecrets.claims.verdict import Verdict
from bertsecrets.cli.main import main
from bertsecrets.errors import MissingError, NotApplicableError, RunError, UserError
from bertsecrets.judging import JudgedRun, Runner, attempt
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
        (PackageNotFoundError("torch"), None, "the package torch is not installed: reinstall bertsecrets with"),
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
    assert attempt(CASE, raising(MissingError("no frames"))) == Skipped("no frames")
    for error in (RunError("disk full"), KeyboardInterrupt()):
        with pytest.raises(type(error)):
            attempt(CASE, raising(error))


def still_open(case=CASE):
    return Verdict(case, "inconclusive", "", open=True)


class Clock(Runner):
    """A runner whose jobs take the given seconds, and that has some seeds in the store."""

    def __init__(self, monkeypatch, seconds, stored=()):
        self.now, self.seconds, self.stored = 0.0, iter(seconds), stored
        monkeypatch.setattr(judging.time, "monotonic", lambda: self.now)

    def prepare(self, cases, seeds):
        self.now += next(self.seconds)

    def is_stored(self, cases, seed):
        return seed in self.stored


class FullStore(Runner):
    """A runner that cannot store anything."""

    def split(self, cases, seeds):
        raise RunError("not writable")


def test_no_verdict_is_given_if_the_others_cannot_be_stored(monkeypatch):
    monkeypatch.setattr(
        GivenVerdicts,
        "eligibility",
        lambda *_: NotApplicable(Grounds.OTHER_SHAPE(layers=1, heads=1, has="", instead="")),
    )
    run = JudgedRun(GivenVerdicts([]), [CASE], FullStore())
    run.judge()
    assert (run.verdicts, str(run.ended)) == ([], "not writable")


def test_only_open_cases_get_a_further_seed():
    given = GivenVerdicts(
        [still_open(), Verdict(OTHER, "reproduced", ""), still_open(), Verdict(CASE, "reproduced", "")], analyses=4
    )
    run = JudgedRun(given, [CASE, OTHER])
    run.judge()
    assert given.judged == [("E1-rte", 1), ("C2-rte", 1), ("E1-rte", 2), ("E1-rte", 3)]
    assert [verdict.outcome for verdict in run.verdicts] == ["reproduced", "reproduced"]


def test_the_next_seed_takes_as_long_as_the_last(monkeypatch, capsys):
    given = GivenVerdicts([still_open() for _ in range(4)], analyses=4, budget=20.0)
    JudgedRun(given, [CASE], Clock(monkeypatch, [4.0, 5.0, 6.0, 7.0])).judge()
    assert len(given.judged) == 3  # 5 s are left after three seeds
    said = "not adding seed 4 for E1-rte: the last seed took 6 s, and only 5 s of the budget is left"
    assert said in capsys.readouterr().err


def test_stored_seeds_are_added_whatever_the_budget(monkeypatch):
    given = GivenVerdicts([still_open() for _ in range(4)], analyses=4, budget=0.001)
    JudgedRun(given, [CASE], Clock(monkeypatch, [1.0] * 4, stored=(2, 3))).judge()
    assert [seeds for _, seeds in given.judged] == [1, 2, 3]


def test_the_final_result_of_a_case_is_available_while_others_wait():
    results = [still_open(), Verdict(OTHER, "reproduced", "first"), Verdict(CASE, "reproduced", "decided")]
    run = JudgedRun(GivenVerdicts(results, analyses=3), [CASE, OTHER])
    assert run.result(CASE).reason == "decided"
    assert run.result(OTHER).reason == "first"
    fixed = GivenVerdicts([still_open(), still_open(OTHER)])
    assert JudgedRun(fixed, [CASE, OTHER]).result(CASE).open
    assert fixed.judged == [("E1-rte", 1)]
    fails = JudgedRun(GivenVerdicts([RunError("disk full")]), [CASE, OTHER])
    for case in (CASE, OTHER):
        with pytest.raises(RunError, match="disk full"):
            fails.result(case)


def test_a_case_about_another_architecture_is_not_applicable_and_left_out(monkeypatch):
    gpt2 = NotApplicable(Grounds.OTHER_ARCHITECTURE(wanted="gpt2", architecture="bert"))
    monkeypatch.setattr(GivenVerdicts, "eligibility", lambda _, case: gpt2 if case is CASE else Eligible())
    run = JudgedRun(GivenVerdicts([Verdict(OTHER, "reproduced", "")]), [CASE, OTHER])
    assert (run.result(CASE).outcome, run.result(CASE).reason) == ("not applicable", gpt2.reason)
    run.judge()
    assert [verdict.case for verdict in run.verdicts] == run.asked == [OTHER]


def test_a_run_keeps_verdicts_made_before_it_ended():
    results = [
        Verdict(CASE, "inconclusive", "open", open=True),
        Verdict(OTHER, "reproduced", "first", open=True),
        Verdict(CASE, "reproduced", "decided"),
        RunError("disk full"),
    ]
    run = JudgedRun(GivenVerdicts(results, analyses=2), [CASE, OTHER])
    run.judge()
    assert [verdict.reason for verdict in run.verdicts] == ["decided", "first"]
    assert run.note == "2 of 2 claims were judged before the run ended (disk full)"
    with pytest.raises(RunError):
        run.exit_code()


@pytest.mark.usefixtures("quick", "same_threads")
def test_a_case_is_judged_once_per_interim_analysis(monkeypatch, tmp_path, tiny_bert, runs):
    calls, judge = [], sessions.judge

    def counting(case, by_seed, *more, **options):
        calls.append((str(case), len(by_seed)))
        return judge(case, by_seed, *more, **options)

    monkeypatch.setattr(sessions, "judge", counting)
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
