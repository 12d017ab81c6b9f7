"""Claims about published numbers only: figure 8 compared with table 1, P20 and chance. They need no model or data."""

import numpy as np
import pytest
from measurements import measured
from scipy import stats

from bertsecrets.claims import requirements
from bertsecrets.claims.judge import judge
from bertsecrets.claims.loading import cases, find_case
from bertsecrets.claims.schema import ANY_MODEL, Case
from bertsecrets.claims.verdict import Verdict
from bertsecrets.cli.main import main
from bertsecrets.options import RunOptions
from bertsecrets.session import Session
from bertsecrets.settings import load_settings
from bertsecrets.texts.published import published_figures
from bertsecrets.texts.tasks import TASKS

FIGURE_8 = np.array([[published_figures()["fig8_head"][task.folder] for task in TASKS.values()]])
# Determined by hand, in points: median of figure 8, score in table 1, score in P20 (F1 on MRPC and QQP).
KNOWN = {
    "mrpc": (88.38, 87.9, 88.68), "stsb": (88.98, 82.7, 88.65), "sst2": (91.97, 92.0, 92.57),
    "qqp": (88.08, 65.2, 87.83), "rte": (58.87, 64.6, 63.25), "qnli": (91.36, 84.4, 91.53),
    "mnli": (83.78, 78.6, 84.48),
}  # fmt: skip
BY_LUCK = {"mrpc": 0.007, "stsb": 0.26, "sst2": 0.998, "qqp": 0.49, "rte": 0.9996, "qnli": 0.52, "mnli": 0.37}
OURS = [case for case in cases() if case.claim.measure == "published-figures"]


def verdict(case: Case, scores=FIGURE_8) -> Verdict:
    """Return the verdict on a case with `scores` in place of figure 8's."""
    values, samples = {"tasks": list(TASKS)}, {"figure_8": scores}
    figures = measured("published-figures", values, samples, case.task)
    return judge(case, [{"figures": figures}], load_settings().judge)


@pytest.mark.parametrize("case", OURS, ids=str)
def test_published_numbers_are_as_on_record(case):
    judgement = verdict(case)
    known = case.known_deviation("whatever model")
    assert judgement.outcome == (case.claim.expect.passes if known is None else "deviates")
    assert known is None or known.model == ANY_MODEL
    assert judgement.interval == (judgement.observed, judgement.observed)  # nothing was sampled


def test_figure_8_is_p20s_model_and_not_table_1s():
    for task, (median, table_1, p20) in KNOWN.items():
        by_p20, by_table_1 = find_case("D7", task), find_case("D7-table-1", task)
        assert verdict(by_p20).observed == verdict(by_table_1).observed == pytest.approx(median, abs=0.006)
        assert by_p20.figure.published == pytest.approx(p20, abs=0.006)
        assert by_table_1.figure.published == table_1
    contradicting = [task for task in KNOWN if find_case("D7-table-1", task).known_deviation("m")]
    assert contradicting == [task for task, (median, table_1, _) in KNOWN.items() if median - table_1 > 5]


def test_the_band_is_that_of_one_more_run():
    low, high = verdict(find_case("D7", "rte")).band
    half = stats.t(4).ppf(0.975) * 2.772 * np.sqrt(1 + 1 / 5) + 0.05
    assert (low, high) == pytest.approx((63.249 - half, 63.249 + half))
    low, high = verdict(find_case("D7-table-1", "rte")).band
    half = stats.t(4).ppf(0.975) * 2.772 * np.sqrt(2) + 0.05 + 0.05  # rounding of figure 8 and of table 1
    assert (low, high) == pytest.approx((64.6 - half, 64.6 + half))


def test_these_claims_can_fail():
    """Lowering figure 8 by 7 points, to the level of table 1, reverses both D7 verdicts on QNLI."""
    shifted = FIGURE_8 - 0.07
    assert verdict(find_case("D7", "qnli"), shifted).outcome == "deviates"
    assert verdict(find_case("D7-table-1", "qnli"), shifted).outcome == "compatible"
    one_good_head = FIGURE_8.copy()
    one_good_head[0, list(TASKS).index("qnli"), 0, 0] += 0.02
    assert verdict(find_case("G1-luck", "qnli"), one_good_head).outcome == "reproduced"
    assert verdict(find_case("I3", "qnli"), one_good_head).outcome == "deviates"


def test_another_seed_may_change_the_score_by_more_than_the_best_head_does():
    """On RTE, figure 8's best gain is 0.72 points, and P20's seeds have a standard deviation of 2.77 points."""
    gap = stats.t(4).ppf(0.975) * 2.772 * np.sqrt(2)
    assert verdict(find_case("I3", "rte")).observed == pytest.approx(0.72 / gap, abs=0.001)


@pytest.mark.parametrize(("task", "p"), BY_LUCK.items())
def test_luck_gives_figure_8s_best_gain_on_six_of_seven_tasks(task, p):
    assert verdict(find_case("G1-luck", task)).observed == pytest.approx(p, abs=0.005)


def test_they_need_no_model_and_no_rows():
    assert OURS
    for case in cases():
        needs_none = case.claim.measure in ("published-figures", "pattern-quality")
        assert requirements.reads_model(case) == (not needs_none)
    assert not any(requirements.reads_rows(case) for case in OURS)
    assert requirements.reads_rows(find_case("C1", "rte"))


def test_they_are_judged_without_model_and_data(tmp_path, monkeypatch, capsys):
    monkeypatch.chdir(tmp_path)
    options = ["--model", str(tmp_path / "none"), "--store", str(tmp_path / "runs"), "--offline"]
    code = main(["report", "--claim", "D7", "--claim", "G1-luck", "--claim", "I3", *options])
    out = capsys.readouterr().out
    assert code == 0
    assert f"{len(OURS)} claims not about a model: 8 reproduced, 9 compatible, 11 deviate" in out
    assert main(["report", "--claim", "D7-table-1", "--task", "qqp", *options]) == 0
    assert "1 claim not about a model: 1 deviates" in capsys.readouterr().out


def test_the_measure_is_made_once_for_all_tasks(tmp_path):
    session = Session(RunOptions(model=str(tmp_path / "none"), store=tmp_path / "runs", offline=True))
    first, second = (
        requirements.measure_case(session, find_case("D7", task), session.model, [1])[0]["figures"]
        for task in ("qqp", "rte")
    )
    assert (first.reused, second.reused) == (False, True)
    assert (first.subject.task, second.subject.task) == ("qqp", "rte")
    assert len(list((tmp_path / "runs" / "measurements").glob("published*"))) == 1
