"""Multiple testing: false alarms, deviations that survive correction, and partial conjunctions over tasks."""

import pytest
from hypothesis import given
from hypothesis import strategies as st
from measurements import of_id
from scipy import stats

from bertsecrets.claims.loading import load_claims
from bertsecrets.claims.multiplicity import at_least, multiple_testing, over_tasks
from bertsecrets.claims.verdict import Verdict

TASKS = ("mrpc", "stsb", "sst2", "qqp", "rte", "qnli", "mnli")


def judged(name, against, favour=1.0, outcome=None):
    """Return a verdict with these p-values."""
    own = "deviates" if against <= 0.05 else "reproduced" if favour <= 0.05 else "inconclusive"
    return Verdict(of_id(name), outcome or own, "", p_against=against, p_for=favour)


def test_a_run_says_how_many_claims_deviate_by_chance():
    verdicts = [judged(f"E1-{name}", 0.5) for name in TASKS] + [Verdict(of_id("C2-rte"), "inconclusive", "few")]
    testing = multiple_testing(verdicts, 0.95)
    assert (testing.judged, testing.surviving, testing.not_surviving) == (7, [], [])
    assert testing.false_alarms == pytest.approx(0.35)


def test_deviations_survive_by_benjamini_and_hochberg():
    p_values = dict(zip(TASKS, (0.001, 0.014, 0.04, 0.3, 0.5, 0.7, 0.9), strict=True))
    testing = multiple_testing([judged(f"E1-{name}", p) for name, p in p_values.items()], 0.95)
    assert testing.surviving == ["E1-mrpc", "E1-stsb"]  # .001 < .05 / 7 and .014 < .05 * 2 / 7
    assert testing.not_surviving == ["E1-sst2"]  # .04 > .05 * 3 / 7
    alone = multiple_testing([judged("E1-sst2", 0.04)], 0.95)
    assert alone.surviving == ["E1-sst2"]


def test_a_deviation_counts_and_a_degenerate_model_does_not():
    verdicts = [judged("E1-rte", 0.001, outcome="deviates"), Verdict(of_id("E1-mrpc"), "degenerate", "constant")]
    testing = multiple_testing(verdicts, 0.95)
    assert (testing.judged, testing.surviving) == (1, ["E1-rte"])
    assert multiple_testing(verdicts[1:], 0.95).judged == 0


# ---------------------------------------------------------------------- over tasks


@given(st.lists(st.floats(0, 1), min_size=1, max_size=9))
def test_all_tasks_are_as_sure_as_the_least_sure_one_and_one_is_as_sure_as_simes_says(p_values):
    assert at_least(p_values, len(p_values)) == pytest.approx(max(p_values))
    assert at_least(p_values, 1) == pytest.approx(min(1, stats.false_discovery_control(p_values).min()))
    assert at_least(p_values, len(p_values) + 1) == 1


def over(name, p_against, p_for, tasks=TASKS):
    """Return the verdict over tasks from the p-values of each task."""
    verdicts = [judged(f"{name[0]}-{task}{name[1]}", against, favour)
                for task, against, favour in zip(tasks, p_against, p_for, strict=False)]  # fmt: skip
    return over_tasks(verdicts, 0.95)


EVERY, MOST = ("E1", ""), ("A4", "-half")


@pytest.mark.parametrize(
    ("name", "against", "favour", "verdict", "holds", "fails", "p_for", "p_against"),
    [
        (EVERY, [1] * 7, [0.001] * 6 + [0.04], "reproduced", 7, 0, 0.04, 1),
        (EVERY, [1] * 7, [0.001] * 6 + [0.06], "inconclusive", 6, 0, 0.06, 1),
        (EVERY, [0.03, *[1] * 6], [1, *[0.001] * 6], "inconclusive", 6, 0, 1, 0.21),
        (EVERY, [0.007, *[1] * 6], [1, *[0.001] * 6], "deviates", 6, 1, 1, 0.049),
        (EVERY, [1] * 4, [0.001] * 4, "inconclusive", 4, 0, 1, 1),  # three tasks were not judged
        (MOST, [1] * 7, [0.001] * 4 + [1] * 3, "reproduced", 4, 0, 0.004, 1),
        (MOST, [0.001] * 3 + [1] * 4, [1] * 3 + [0.001] * 3 + [0.2], "inconclusive", 3, 3, 0.8, 1),
        (MOST, [0.001] * 4, [1] * 4, "deviates", 0, 4, 1, 0.001),
    ],
)
def test_claims_over_tasks_by_hand(name, against, favour, verdict, holds, fails, p_for, p_against):
    (found,) = over(name, against, favour)
    assert (found.verdict, found.holds_on_at_least, found.fails_on_at_least) == (verdict, holds, fails)
    assert (found.p_for, found.p_against) == pytest.approx((p_for, p_against))
    assert (found.tasks, found.judged) == (7, len(against))
    assert found.speaks_of == ("every task" if name == EVERY else "most tasks")


def test_the_exception_is_judged_too():
    verdicts = [judged(f"C1-{name}", 1, 0.001) for name in TASKS if name != "qqp"]
    (verdict,) = over_tasks(verdicts, 0.95)
    assert (verdict.verdict, verdict.speaks_of, verdict.judged) == ("inconclusive", "every task but QQP", 6)
    (verdict,) = over_tasks([*verdicts, judged("C1-qqp-not", 1, 0.001)], 0.95)
    assert (verdict.verdict, verdict.holds_on_at_least) == ("reproduced", 7)
    (verdict,) = over_tasks([*verdicts, judged("C1-qqp-not", 0.001)], 0.95)
    assert (verdict.verdict, verdict.holds_on_at_least, verdict.fails_on_at_least) == ("deviates", 6, 1)


def test_one_task_is_no_verdict_over_tasks():
    assert over(("E1", ""), [0.001], [1]) == []
    assert over_tasks([judged("C4-rte", 0.001), judged("C4-mrpc", 0.001)], 0.95) == []  # C4 is not a claim over tasks


def test_claims_over_tasks_are_about_all_seven_or_name_their_own():
    words = {claim.name: claim.over_tasks for claim in load_claims() if claim.over_tasks}
    assert {"C1", "C1p", "C2", "D2", "D3", "D5", "E1", "F1", "F2", "G1", "G3", "A3"} <= set(words)
    assert words["A4-half"] == "most"
