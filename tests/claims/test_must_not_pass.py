"""Negative controls: noise, and models that collapsed, learned nothing or did not change, must not reproduce claims."""

from collections import Counter
from dataclasses import replace

import numpy as np
import pytest
from measurements import SETTINGS, as_seeds, gridded, measured, needed, of_id, scored

from bertsecrets.claims.judge import judge
from bertsecrets.claims.quantities.words import LINGUISTIC_FEATURES
from bertsecrets.formats import PASSES
from bertsecrets.texts.published import published_figures

RTE = np.array([1] * 146 + [0] * 131)
MRPC = np.array([1] * 279 + [0] * 129)


def of(measurement, **subject):
    """Return the measurement with these fields of its subject replaced."""
    return replace(measurement, subject=replace(measurement.subject, **subject))


def outcome(case, *by_seed):
    """Return the outcome of the case with this id.

    Each element of `by_seed` is the measurement of one seed, or a tuple of its measurements. A single seed is judged as
    a checkpoint.
    """
    case = of_id(case)
    rows = [of_seed if isinstance(of_seed, tuple) else (of_seed,) for of_seed in by_seed]
    by_need = [needed(case.claim.quantity, *row) for row in rows]
    return judge(case, by_need, SETTINGS, checkpoint=len(rows) == 1).outcome


@pytest.mark.parametrize("count", [1, 5])
def test_a_constant_answer_is_degenerate(count):
    on_rte = scored(np.ones(277, dtype=int), RTE, constant=True)
    on_mrpc = scored(np.ones(408, dtype=int), MRPC, "mrpc", constant=True)
    assert outcome("D1-rte-pretrained", *as_seeds(*[on_rte] * count)) == "degenerate"
    assert outcome("D1-mrpc-pretrained-f1", *as_seeds(*[on_mrpc] * count)) == "degenerate"
    assert outcome("D5-rte", *as_seeds(*[of(on_rte, initialisation="random")] * count)) == "deviates"


@pytest.mark.parametrize(
    ("task", "initialisation"),
    [("rte", "pretrained"), ("mrpc", "pretrained"), ("mrpc", "random"), ("mrpc", "untrained"), ("mrpc", "frozen")],
)
def test_coin_flips_reproduce_no_cell_of_table_1(task, initialisation):
    """On RTE they score like the constant answers of the other columns, which are no better than the majority class."""
    rng, target = np.random.default_rng(1), {"rte": RTE, "mrpc": MRPC}[task]
    for count in (1, 5):
        outcomes = Counter()
        for _ in range(20):
            drawn = [rng.integers(2, size=len(target)) for _ in range(count)]
            flips = as_seeds(*(scored(each, target, task, initialisation=initialisation) for each in drawn))
            outcomes[outcome(f"D1-{task}-{initialisation}", *flips)] += 1
        assert outcomes["compatible"] == 0, outcomes
        if initialisation == "pretrained":
            assert outcomes["degenerate"] > 15, outcomes


@pytest.mark.parametrize("rows", [48, 90])
def test_guesses_on_a_few_rows_are_compatible_with_no_score(rows):
    """With fewer than 100 rows, no seed is excluded, and a wide band can include a score below the majority class's."""
    rng, outcomes = np.random.default_rng(1), Counter()
    target = np.repeat([0, 1], [2 * rows // 5, rows - 2 * rows // 5])
    for _ in range(60):
        guesses = as_seeds(*(scored(rng.integers(2, size=rows), target) for _ in range(5)))
        outcomes[outcome("D1-rte-pretrained", *guesses)] += 1
    assert outcomes["compatible"] <= 1, outcomes


@pytest.mark.parametrize(("task", "target"), [("mrpc", MRPC), ("rte", 1 - RTE)])
def test_the_other_constant_answer_on_every_seed_reproduces_no_cell(task, target):
    """68.4 on every seed is not the 31.6 of table 1, nor 47.3 its 52.7."""
    scores = scored(np.ones(len(target), dtype=int), target, task, initialisation="untrained", constant=True)
    for count in (3, 5):
        assert outcome(f"D1-{task}-untrained", *as_seeds(*[scores] * count)) == "inconclusive"


def dead_grid(heads=(2, 3)):
    """Return the ablations of a model that always answers 1, even with a head disabled."""
    answers = np.ones(277, dtype=int)
    samples = {
        "predicted": np.ones((heads[0] * heads[1], 277), dtype=int),
        "baseline_predicted": answers,
        "target": RTE,
    }
    return measured("head-ablation", {"score": np.full(heads, 146 / 277), "baseline": 146 / 277}, samples)


def test_a_model_that_nothing_can_harm_is_degenerate():
    frames = gridded("frame-heads", "all", max_weight=np.random.default_rng(1).random((40, 2, 3)))
    assert outcome("B4-rte-own-by-task", (dead_grid(), frames)) == "degenerate"
    for case in ("G1-rte", "G2-rte", "G3-rte"):
        assert outcome(case, dead_grid()) == "degenerate"
    constant = scored(np.ones(872, dtype=int), np.arange(872) % 2, "sst2", constant=True, lower_cases=True)
    assert outcome("D6-sst2-spared", (constant, constant)) == "degenerate"


def test_dust_on_uniform_attention_is_no_growth():
    sep = np.full((277, 6, 12), 0.05)
    after, before = gridded("special-tokens", sep=sep + 2e-9), gridded("special-tokens", sep=sep)
    assert outcome("C3-rte", (after, of(before, initialisation="untrained"))) == "deviates"


def test_a_regressor_that_fails_on_a_few_rows_is_degenerate():
    rng = np.random.default_rng(1)
    target = rng.uniform(0, 5, size=1500)
    predicted = target + rng.normal(size=1500)
    predicted[[3, 500, 999]] = np.nan
    scores = measured("scores", {"pearson": 0.8}, {"predicted": predicted, "target": target}, "stsb")
    assert outcome("D1-stsb-pretrained", scores) == "degenerate"


def grown(rng, spread, seeds=3, shape=(277, 6, 12)):
    """Yield attention to each kind of word after and before fine-tuning, for each seed.

    The changes are random for each head and kind.
    """
    before = {kind: rng.uniform(0, 0.2, size=shape) for kind in LINGUISTIC_FEATURES}
    plain = of(gridded("features", **before), initialisation="untrained")
    for seed in range(1, seeds + 1):
        after = {
            kind: values + rng.normal(0, spread, size=shape[1:]) + rng.normal(0, 0.01, size=shape)
            for kind, values in before.items()
        }
        yield of(gridded("features", **after), seed=seed), plain


@pytest.mark.parametrize("spread", [0.0, 0.002, 0.004, 0.006, 0.01])
def test_heads_that_moved_by_chance_grew_for_no_kind_of_word(spread):
    rng = np.random.default_rng(1)
    outcomes = Counter(outcome("E3-rte", *grown(rng, spread)) for _ in range(10))
    assert outcomes["reproduced"] <= (0 if spread < 0.01 else 1), outcomes


@pytest.mark.parametrize("case", ["C2-rte", "C2p-rte"])
@pytest.mark.parametrize("step", [2e-7, 1e-4, 1e-2])
def test_fine_tuning_with_a_tiny_learning_rate_is_no_small_change(case, step):
    cosine = 1 - step * np.random.default_rng(1).random(size=(277, 6, 12))
    assert outcome(case, gridded("attention-change", cosine=cosine)) == "inconclusive"


@pytest.mark.parametrize("case", ["D2-mrpc", "D2-mrpc-frozen"])
def test_a_win_over_the_worse_constant_answer_is_no_learning(case):
    answers = np.ones(408, dtype=int)
    answers[np.random.default_rng(1).choice(408, 40, replace=False)] = 0
    tuned = scored(answers, MRPC, "mrpc")
    initialisation = "frozen" if case.endswith("frozen") else "untrained"
    minority = of(scored(np.zeros(408, dtype=int), MRPC, "mrpc", constant=True), initialisation=initialisation)
    assert outcome(case, (tuned, minority)) not in PASSES
    right = np.where(np.arange(408) % 6, MRPC, 1 - MRPC)
    assert outcome(case, (scored(right, MRPC, "mrpc"), minority)) == "reproduced"


def special_maps(task="RTE", shift=0):
    """Return attention to [CLS] and [SEP] as in figure 6, with the layers shifted by `shift`."""
    maps = {kind: np.array(published_figures()[f"fig6_{kind.upper()}"][task]) for kind in ("cls", "sep")}
    noise = np.random.default_rng(1).normal(0, 0.01, size=(60, 12, 12))
    return gridded("special-tokens", **{kind: np.roll(grid, shift, axis=0) + noise for kind, grid in maps.items()})


def test_layers_that_are_read_one_off_do_not_cross_where_the_paper_says():
    assert outcome("E1-rte-crossing", special_maps()) == "reproduced"
    for shift in (-1, 1):
        assert outcome("E1-rte-crossing", special_maps(shift=shift)) == "deviates"


def collapsed(kind, rng, target):
    """Return the answers of a model that has learned nothing: constant except for three, or coin flips."""
    answers = np.ones(len(target), dtype=int)
    if kind == "constant except for three":
        answers[rng.choice(len(target), 3, replace=False)] = 0
        return answers
    return rng.integers(2, size=len(target))


def unharmed(measure, kind, task_name, rows, sets):
    """Yield five seeds whose answers no ablation changes, on a task with balanced classes."""
    target = np.arange(rows) % 2
    for seed in range(1, 6):
        answers = collapsed(kind, np.random.default_rng(seed), target)
        samples = {
            "predicted": np.tile(answers, (int(np.prod(sets)), 1)),
            "baseline_predicted": answers,
            "target": target,
        }
        score = float((answers == target).mean())
        ablation = measured(measure, {"score": np.full(sets, score), "baseline": score}, samples, task_name)
        yield of(ablation, seed=seed)


KINDS = ["constant except for three", "coin flips"]


@pytest.mark.parametrize("kind", KINDS)
@pytest.mark.parametrize(
    "case", ["B4-rte-by-task", "G1-rte", "G2-rte", "G3-rte", "G11-rte", "G5-qnli", "G4-rte", "G5b-rte"]
)
def test_disabled_heads_and_layers_do_not_spare_a_model_that_learned_nothing(case, kind):
    measure, task_name = of_id(case).claim.measure, of_id(case).task
    sets = (12,) if measure == "layer-ablation" else (12, 12)
    assert outcome(case, *unharmed(measure, kind, task_name, 277, sets)) not in PASSES


@pytest.mark.parametrize("kind", KINDS)
@pytest.mark.parametrize("case", ["B4-all", "B7-all", "G1-all-over-tasks", "G2-all-over-tasks"])
def test_pooling_over_tasks_does_not_revive_a_model_that_learned_nothing(case, kind):
    by_task = [list(unharmed("head-ablation", kind, name, 277, (12, 12))) for name in ("rte", "qnli")]
    assert outcome(case, *((seeds,) for seeds in zip(*by_task, strict=True))) not in PASSES


@pytest.mark.parametrize("kind", KINDS)
def test_case_makes_no_difference_to_a_model_that_learned_nothing(kind):
    target, pairs = np.arange(872) % 2, []
    for seed in range(1, 6):
        answers = collapsed(kind, np.random.default_rng(seed), target)
        plain = of(scored(answers, target, "sst2", lower_cases=True), seed=seed)
        pairs.append((plain, replace(plain, options={"cased": True})))
    assert outcome("D6-sst2-spared", *pairs) not in PASSES
