"""Interim analyses: schedule, confidence levels, open claims, and error rates."""

from collections import Counter

import numpy as np
import pytest
from measurements import SETTINGS, as_seeds, gridded, measured, needed, of_id, scored
from scipy.stats import multivariate_normal, norm

from bertsecrets.claims.judge import judge, judge_in_sequence
from bertsecrets.claims.schema import Case
from bertsecrets.claims.sequential import ANALYSES, MOST_REPLACED, interim_confidence

QUICK = SETTINGS.model_copy(update={"resamples": 200})
GROWS = of_id("C3-rte")
SCORES = of_id("D1-rte-pretrained")
LAST = ANALYSES[-1]


def growth(effect: float, seeds: int = LAST, *, ratio: float = 0.5, examples: int = 200, rng=5) -> list:
    """Return attention to [SEP] that grows by `effect`, on seeds with a standard deviation of `ratio`.

    Both are in standard deviations of the examples.
    """
    rng = np.random.default_rng(rng)
    drawn = effect + rng.normal(size=(1, examples)) + ratio * rng.normal(size=(seeds, 1))
    drawn = 0.5 + 0.1 * (drawn + 0.5 * rng.normal(size=(seeds, examples)))
    before = _sep(np.full(examples, 0.5), 1, "untrained")
    return [needed("sep-growth", _sep(of_seed, seed), before) for seed, of_seed in enumerate(drawn, start=1)]


def _sep(paid: np.ndarray, seed: int, initialisation="pretrained"):
    """Return attention to [SEP] in a model of three layers with one head each."""
    grid = np.repeat(paid, 3).reshape(-1, 3, 1)
    return measured("special-tokens", {"sep": grid.mean(0)}, {"sep": grid}, seed=seed, initialisation=initialisation)


def scores(seeds: int, *, level=64.0, std: float, examples=277, rng: np.random.Generator, collapse=0.0) -> list:
    """Return predictions of seeds with an accuracy of `level` percent and a standard deviation of `std` points.

    Args:
        collapse: Probability that a seed gives every example the same answer.
    """
    target = np.arange(examples) % 2
    own, seen = rng.normal(size=(seeds, examples)), rng.normal(size=(1, examples))
    right = norm.cdf((own + seen) / np.sqrt(2)) < (level + std * rng.normal(size=(seeds, 1))) / 100
    answers = [
        np.ones_like(target) if dead else np.where(of_seed, target, 1 - target)
        for of_seed, dead in zip(right, rng.random(seeds) < collapse, strict=True)
    ]
    measurements = [scored(of_seed, target, constant=bool(np.ptp(of_seed) == 0)) for of_seed in answers]
    return [needed("score", of_seed) for of_seed in as_seeds(*measurements)]


def figure(published: float) -> Case:
    """Return the claim about RTE's score with another published figure."""
    own = SCORES.figure.model_copy(update={"published": published})
    return Case(SCORES.claim.model_copy(update={"tasks": {"rte": own}}), "rte")


def seeds_of(verdict) -> int:
    """Return the number of seeds that a verdict is based on."""
    return len({measurement.subject.seed for measurement in verdict.measurements})


# ---------------------------------------------------------------------- confidence level


@pytest.mark.parametrize("confidence", [0.9, 0.95])
def test_all_analyses_of_an_order_together_keep_the_confidence(confidence):
    """Computed independently: the probability that the means after 3, 4 and 5 seeds all stay within their bounds."""
    bound = norm.isf((1 - interim_confidence(confidence)) / 2)
    means = np.sqrt(np.minimum.outer(ANALYSES, ANALYSES) / np.maximum.outer(ANALYSES, ANALYSES))
    ends = np.full(len(ANALYSES), bound)
    within = multivariate_normal(np.zeros(len(ANALYSES)), means, seed=1).cdf(ends, lower_limit=-ends)
    assert within == pytest.approx(confidence, abs=2e-4)


# ---------------------------------------------------------------------- analyses


def test_a_clear_claim_is_decided_by_three_seeds_and_says_at_which_level():
    by_seed = growth(3.0, ratio=0.1)
    verdict = judge_in_sequence(GROWS, by_seed, QUICK)
    assert (verdict.outcome, verdict.open, seeds_of(verdict)) == ("reproduced", False, 3)
    assert verdict.remarks[0] == "after 3 seeds (94.5 % interval)"


def test_a_decision_is_never_taken_back_by_further_seeds():
    by_seed, against = growth(3.0, ratio=0.1), growth(-3.0, ratio=0.1)
    decided = judge_in_sequence(GROWS, [*by_seed[:3], *against[3:]], QUICK)
    alone = judge_in_sequence(GROWS, by_seed[:3], QUICK)
    assert (decided.outcome, decided.interval) == ("reproduced", alone.interval)


def test_seeds_after_the_last_analysis_are_left_out():
    assert seeds_of(judge_in_sequence(GROWS, growth(0.0, LAST + 2, ratio=2.0), QUICK)) == LAST


def test_a_claim_without_seeds_is_analysed_once_at_the_full_level():
    frames = gridded("frame-heads", "all", max_weight=np.random.default_rng(1).uniform(0.1, 0.9, (60, 2, 3)))
    case = of_id("B3-all-gap")
    verdict = judge_in_sequence(case, [needed(case.claim.quantity, frames)], QUICK)
    assert verdict.interval == judge(case, [needed(case.claim.quantity, frames)], QUICK).interval
    assert not any("% interval" in remark for remark in verdict.remarks)


def test_a_figure_that_was_not_rejected_stays_open_until_the_last_analysis():
    by_seed = scores(LAST, std=1.0, rng=np.random.default_rng(2))
    seen = [judge(figure(64.0), by_seed[:count], QUICK) for count in range(1, LAST + 1)]
    assert [verdict.outcome for verdict in seen] == ["inconclusive"] * 2 + ["compatible"] * 3
    assert [verdict.open for verdict in seen] == [True] * 4 + [False]
    assert seen[-1].remarks[0] == "after 5 seeds (90 % interval)"
    assert judge_in_sequence(figure(64.0), by_seed, QUICK).seeds == (1, 2, 3, 4, 5)


def test_a_figure_may_deviate_before_the_last_analysis():
    by_seed = scores(LAST, std=0.5, rng=np.random.default_rng(3))
    verdict = judge_in_sequence(figure(90.0), by_seed, QUICK)
    assert (verdict.outcome, verdict.open) == ("deviates", False)
    assert 3 <= seeds_of(verdict) < LAST
    assert verdict.p_against <= 0.05
    assert verdict.remarks[0] == f"after {seeds_of(verdict)} seeds (90 % interval)"


# ---------------------------------------------------------------------- seeds that learned nothing


def test_seeds_that_learned_nothing_are_replaced():
    rng = np.random.default_rng(4)
    dead, alive = scores(1, std=1.0, rng=rng, collapse=1.0), scores(LAST + MOST_REPLACED, std=1.0, rng=rng)
    by_seed = [*alive[:1], *dead, *alive[2:]]
    verdict = judge_in_sequence(figure(64.0), by_seed, QUICK)
    assert (verdict.outcome, verdict.seeds, len(verdict.by_seed)) == ("compatible", (1, 3, 4, 5, 6), LAST)


def test_a_training_of_which_three_seeds_learn_nothing_ends():
    dead = scores(4, std=1.0, rng=np.random.default_rng(4), collapse=1.0)
    seen = [judge(figure(64.0), dead[:count], QUICK) for count in (1, 2, 3)]
    assert [of_seed.outcome for of_seed in seen] == ["degenerate"] * 3
    assert [of_seed.open for of_seed in seen] == [True, True, False]


# ---------------------------------------------------------------------- error rates


@pytest.mark.slow
def test_stopping_at_the_first_decision_rarely_decides_an_order_that_is_none():
    """The nominal error rate is 5 %. The test allows 6 % plus two standard errors for this number of worlds."""
    worlds, rng = 150, np.random.default_rng(8)
    outcomes = Counter(
        judge_in_sequence(GROWS, growth(0.0, ratio=1.0, examples=100, rng=rng), QUICK).outcome for _ in range(worlds)
    )
    assert max(outcomes["deviates"], outcomes["reproduced"]) <= at_most(worlds)


@pytest.mark.slow
@pytest.mark.parametrize("collapse", [0.0, 0.3])
def test_stopping_at_the_first_decision_rarely_calls_one_more_run_a_deviation(collapse):
    worlds, rng, outcomes = 150, np.random.default_rng(8), Counter()
    for _ in range(worlds):
        (paper,), runs = (
            scores(n, std=3.0, rng=rng, collapse=p) for n, p in ((1, 0.0), (LAST + MOST_REPLACED, collapse))
        )
        predicted, target = (paper["scores"].sample(name) for name in ("predicted", "target"))
        case = figure(100 * float((predicted == target).mean()))
        outcomes[judge_in_sequence(case, runs, QUICK).outcome] += 1
    assert outcomes["deviates"] <= at_most(worlds)
    assert outcomes["compatible"] >= 0.8 * worlds


def at_most(worlds: int) -> float:
    """Return the largest acceptable number of wrong verdicts: 6 % of the worlds plus two standard errors."""
    return worlds * (0.06 + 2 * np.sqrt(0.06 * 0.94 / worlds))
