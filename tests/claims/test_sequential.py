"""Looking after every seed: how many looks, at which level, which claims stay open, and how often that is wrong."""

from collections import Counter
from dataclasses import replace

import numpy as np
import pytest
from measurements import SETTINGS, SURE, gridded, measured, needed, of_id, scored
from scipy.stats import multivariate_normal, norm

from bertsecrets.claims.estimate import Spread, pooled
from bertsecrets.claims.judge import judge
from bertsecrets.claims.schema import Case
from bertsecrets.claims.sequential import (
    ANALYSES,
    interim_confidence,
    judge_in_sequence,
    judge_interim,
    overall_p_value,
)

QUICK = SETTINGS.model_copy(update={"resamples": 200})
GROWS = of_id("C3-rte")
SCORES = of_id("D1-rte-pretrained")


def growth(effect: float, seeds: int = ANALYSES, *, ratio: float = 0.5, examples: int = 200, rng=5) -> list:
    """Attention to [SEP] that grows by an effect, on some seeds that spread by `ratio`; in sds of the examples."""
    rng = np.random.default_rng(rng)
    drawn = effect + rng.normal(size=(1, examples)) + ratio * rng.normal(size=(seeds, 1))
    drawn = 0.5 + 0.1 * (drawn + 0.5 * rng.normal(size=(seeds, examples)))
    before = _sep(np.full(examples, 0.5), 1, "untrained")
    return [needed("sep-growth", _sep(of_seed, seed), before) for seed, of_seed in enumerate(drawn, start=1)]


def _sep(paid: np.ndarray, seed: int, initialisation="pretrained"):
    """Attention to [SEP] of a model of three layers with one head."""
    grid = np.repeat(paid, 3).reshape(-1, 3, 1)
    return measured("special-tokens", {"sep": grid.mean(0)}, {"sep": grid}, seed=seed, initialisation=initialisation)


def scores(seeds: int, *, std: float, examples: int, rng: np.random.Generator) -> list:
    """Predictions of seeds that are right in 64 % of the examples, give or take `std` points."""
    target = np.arange(examples) % 2
    own, seen = rng.normal(size=(seeds, examples)), rng.normal(size=(1, examples))
    right = norm.cdf((own + seen) / np.sqrt(2)) < (64 + std * rng.normal(size=(seeds, 1))) / 100
    answers = [scored(np.where(one, target, 1 - target), target) for one in right]
    return [
        needed("score", replace(one, subject=replace(one.subject, seed=seed)))
        for seed, one in enumerate(answers, start=1)
    ]


def seeds_of(verdict) -> int:
    """How many seeds a verdict rests on."""
    return len({measurement.subject.seed for measurement in verdict.measurements})


# ---------------------------------------------------------------------- the level


@pytest.mark.parametrize("looks", [1, 2, 3])
def test_all_looks_together_keep_the_confidence(looks):
    """By another way: the chance that a normal vector stays within its bounds."""
    bound = norm.isf((1 - interim_confidence(0.9, looks)) / 2)
    steps = np.arange(1, looks + 1)
    walk = np.sqrt(np.minimum.outer(steps, steps) / np.maximum.outer(steps, steps))
    ends = np.full(looks, bound)
    assert multivariate_normal(np.zeros(looks), walk, seed=1).cdf(ends, lower_limit=-ends) == pytest.approx(
        0.9, abs=2e-4
    )


def test_five_looks_are_each_at_the_published_level():
    assert 1 - interim_confidence(0.95) == pytest.approx(0.0158, abs=5e-5)  # Pocock 1977, table 1


# ---------------------------------------------------------------------- looks


def test_a_clear_claim_is_decided_by_the_first_seed_and_says_at_which_level():
    by_seed = growth(3.0)
    verdict = judge_in_sequence(GROWS, by_seed, QUICK, SURE)
    assert (verdict.outcome, seeds_of(verdict)) == ("reproduced", 1)
    assert verdict.remarks[0] == "interim analysis 1 of at most 5 (98.4 % interval)"


@pytest.mark.usefixtures("nothing_on_record")
def test_without_a_known_spread_the_first_look_decides_nothing_and_the_others_go_on():
    by_seed = growth(3.0, ratio=0.1)
    verdict = judge_in_sequence(GROWS, by_seed, QUICK)
    assert verdict.outcome == "reproduced"
    assert 1 < seeds_of(verdict) <= ANALYSES
    assert verdict.remarks[0].startswith(f"interim analysis {seeds_of(verdict)} of at most 5")


def test_a_decision_is_never_taken_back_by_further_seeds():
    by_seed = growth(3.0)
    against = growth(-3.0)
    decided = judge_in_sequence(GROWS, [by_seed[0], *against[1:]], QUICK, SURE)
    assert decided.outcome == judge_in_sequence(GROWS, by_seed[:1], QUICK, SURE).outcome == "reproduced"
    assert decided.interval == judge_in_sequence(GROWS, by_seed[:1], QUICK, SURE).interval


def test_a_verdict_does_not_depend_on_how_many_seeds_were_there_when_it_was_looked_for():
    by_seed = growth(0.6, ratio=1.0)
    known = Spread(0.1, 8, "a test")
    one_by_one = [judge_interim(GROWS, by_seed[:count], QUICK, known) for count in range(1, ANALYSES + 1)]
    ended = next((one for one in one_by_one if not one.open), one_by_one[-1])
    at_once = judge_in_sequence(GROWS, by_seed, QUICK, known)
    assert (at_once.outcome, at_once.interval, seeds_of(at_once)) == (ended.outcome, ended.interval, seeds_of(ended))


def test_p_values_are_those_overall_p_value_together():
    known, outcomes = Spread(0.02, 8, "a test"), set()
    for effect in (-1.0, -0.7, 0.0, 0.3, 0.7, 1.0):
        verdict = judge_in_sequence(GROWS, growth(effect, ratio=0.2), QUICK, known)
        outcomes.add(verdict.outcome)
        assert (verdict.p_against <= 0.05) == (verdict.outcome == "deviates")
        assert (verdict.p_for <= 0.05) == (verdict.outcome == "reproduced")
    assert outcomes >= {"deviates", "reproduced"}
    assert overall_p_value(0.01, 0.95) == pytest.approx(0.0327, abs=1e-4)  # five looks, each at 1 %
    assert overall_p_value(None, 0.95) is None


def test_seeds_after_the_last_look_are_left_out():
    by_seed = growth(0.0, ANALYSES + 2, ratio=2.0)
    assert seeds_of(judge_in_sequence(GROWS, by_seed, QUICK, Spread(0.2, 8, "a test"))) == ANALYSES


def test_a_claim_without_seeds_is_looked_at_once_at_the_full_level():
    frames = gridded("frame-heads", "all", max_weight=np.random.default_rng(1).uniform(0.1, 0.9, (60, 2, 3)))
    case = of_id("B3-all-gap")
    verdict = judge_in_sequence(case, [needed(case.claim.quantity, frames)], QUICK)
    assert verdict.interval == judge(case, [needed(case.claim.quantity, frames)], QUICK).interval
    assert not any(remark.startswith("interim") for remark in verdict.remarks)


# ---------------------------------------------------------------------- what stays open


def test_what_only_more_examples_could_decide_is_not_open():
    by_seed = growth(0.0, 2, ratio=0.0)
    verdict = judge(GROWS, by_seed, QUICK, SURE)
    assert (verdict.outcome, verdict.open) == ("inconclusive", False)
    assert "examples would be needed" in verdict.power


@pytest.mark.usefixtures("nothing_on_record")
def test_what_the_seeds_keep_in_doubt_is_open():
    by_seed = growth(0.5, 1, ratio=1.0)
    assert judge(GROWS, by_seed, QUICK, Spread(0.1, 8, "a test")).open
    assert judge(GROWS, by_seed, QUICK).open  # of this checkpoint alone


def test_what_is_decided_is_not_open():
    by_seed = growth(3.0, 1)
    assert not judge(GROWS, by_seed, QUICK, SURE).open


def test_too_few_examples_are_not_open():
    by_seed = growth(0.5, 1, ratio=1.0, examples=20)
    verdict = judge(GROWS, by_seed, QUICK, Spread(0.1, 8, "a test"))
    assert (verdict.outcome, verdict.open) == ("inconclusive", False)


# ---------------------------------------------------------------------- errors


def on_record(std: float, rng: np.random.Generator) -> Spread:
    """The spread over seeds as five runs of three other tasks give it."""
    spread = pooled([(float((std * rng.normal(size=5)).std(ddof=1)), 4) for _ in range(3)], "runs on record")
    assert spread is not None
    return spread


@pytest.mark.slow
def test_stopping_at_the_first_decision_rarely_decides_an_order_that_is_none():
    """By the level in at most 5 %; chance alone explains two standard errors over 6 % of these worlds."""
    worlds, rng = 150, np.random.default_rng(8)
    outcomes = Counter(
        judge_in_sequence(GROWS, growth(0.0, ratio=1.0, examples=100, rng=rng), QUICK, on_record(0.1, rng)).outcome
        for _ in range(worlds)
    )
    assert max(outcomes["deviates"], outcomes["reproduced"]) <= at_most(worlds)


@pytest.mark.slow
def test_stopping_at_the_first_decision_rarely_calls_one_more_run_a_deviation():
    worlds, rng, outcomes = 150, np.random.default_rng(8), Counter()
    for _ in range(worlds):
        paper, *runs = scores(ANALYSES + 1, std=3.0, examples=277, rng=rng)
        predicted, target = (paper["scores"].sample(name) for name in ("predicted", "target"))
        figure = {"published": 100 * float((predicted == target).mean())}
        claim = SCORES.claim.model_copy(update={"tasks": {"rte": SCORES.figure.model_copy(update=figure)}})
        outcomes[judge_in_sequence(Case(claim, "rte"), runs, QUICK, on_record(3.0, rng)).outcome] += 1
    assert outcomes["deviates"] <= at_most(worlds)


def at_most(worlds: int) -> float:
    """So many of some worlds may be judged wrongly: 6 %, and two standard errors."""
    return worlds * (0.06 + 2 * np.sqrt(0.06 * 0.94 / worlds))
