"""Estimands: independent blocks, missing values, required measurements, and quantities that do not apply."""

import math
from functools import partial

import measurements
import numpy as np
import pytest
from hypothesis import given
from hypothesis import strategies as st
from measurements import estimand, made_up, measured, of_id, read, scored, verdict

from bertsecrets.claims.bootstrap import column_means
from bertsecrets.claims.eligibility import Eligible, ModelFacts, Skipped
from bertsecrets.claims.estimand import Estimand, cross_fitted, halves
from bertsecrets.claims.estimate import estimate
from bertsecrets.claims.judge import power
from bertsecrets.claims.loading import cases
from bertsecrets.claims.quantities import QUANTITIES
from bertsecrets.claims.quantities.likeness import correlation
from bertsecrets.claims.requirements import eligibility, is_measured, measure_case, required_measurements
from bertsecrets.errors import MissingError, NotApplicableError
from bertsecrets.store.measurements import Shelf
from bertsecrets.texts.tasks import TASKS
from bertsecrets.types import Measurement, Subject

SETTINGS = measurements.SETTINGS.model_copy(update={"resamples": 2000})
judged = partial(measurements.judged, settings=SETTINGS)
NAN = math.nan


# ---------------------------------------------------------------------- blocks and missing values


def test_an_input_without_the_feature_is_left_out():
    block = np.array([[1.0, NAN], [3.0, 8.0], [NAN, NAN]])
    assert column_means(block, np.ones((1, 3)))[0].tolist() == [2.0, 8.0]
    # the first draw has three copies of row 1 and one of row 2; the second draw has no value in column 2
    drawn = column_means(block, np.array([[3.0, 1.0, 0.0], [2.0, 0.0, 1.0]]))
    assert drawn[:, 0].tolist() == [1.5, 1.0]
    assert drawn[0, 1] == 8.0
    assert math.isnan(drawn[1, 1])


def test_a_quantity_that_some_resamples_lack_decides_nothing():
    block = np.full((5, 1), NAN)
    block[0] = 1.0  # a third of the resamples miss this value
    observed = estimate([Estimand.from_block(block, lambda mean: mean[..., 0])], SETTINGS)
    assert observed.value == 1.0
    assert np.isnan(observed.replicates).mean() == pytest.approx(0.8**5, abs=0.04)
    assert "is undefined" in power(observed, (0, math.inf), 0.95)


def test_blocks_are_resampled_independently_and_rows_of_a_block_jointly():
    rng = np.random.default_rng(0)
    column = rng.normal(size=(400, 1))
    separate = Estimand((column, column), lambda a, b: (a - b)[..., 0])
    paired = Estimand.from_block(np.hstack([column, column]), lambda mean: mean[..., 0] - mean[..., 1])
    assert separate.value == paired.value == 0
    assert estimate([paired], SETTINGS).replicates.std() == 0
    assert estimate([separate], SETTINGS).replicates.std() == pytest.approx(math.sqrt(2) * column.std() / 20, rel=0.1)
    assert estimate([separate], SETTINGS).examples == 800


def test_seeds_see_the_same_resamples_of_their_examples():
    rng = np.random.default_rng(3)
    base = rng.normal(size=(300, 1))
    estimands = [Estimand.from_block(base + shift, lambda mean: mean[..., 0]) for shift in (0.0, 1.0, 2.0)]
    observed = estimate(estimands, SETTINGS)
    assert observed.sampling_error == pytest.approx(base.std() / math.sqrt(300), rel=0.1)  # not less for three seeds
    assert observed.spread.std == pytest.approx(1)


def test_the_column_with_the_fewest_examples_counts():
    block = np.ones((50, 3))
    block[3:, 1], block[:, 2] = NAN, NAN
    few = Estimand.from_block(block, lambda mean: mean[..., 0])
    assert estimate([few], SETTINGS).fewest == 3  # a column without any value is ignored
    alone = Estimand((block[:, :1], block[:40, :1]), lambda a, b: (a - b)[..., 0])
    assert estimate([alone], SETTINGS).fewest == 40
    pairs = Estimand.from_block(block[:, :1], lambda mean: mean[..., 0], clusters=np.arange(50) // 2)
    assert estimate([pairs], SETTINGS).fewest == 25


def test_a_quantity_without_samples_has_no_sampling_error():
    block = np.random.default_rng(1).normal(size=(50, 1))
    whole = Estimand((block,), lambda mean: mean[..., 0], sampled=False)
    observed = estimate([whole], SETTINGS, seedless=True)
    assert (observed.sampling_error, observed.examples_error, observed.fewest) == (0, 0, math.inf)
    assert observed.interval(0.95) == pytest.approx((block.mean(), block.mean()))


# ---------------------------------------------------------------------- cross-fitting


@given(st.lists(st.integers(0, 12), min_size=1, max_size=60))
def test_halves_share_no_cluster_and_differ_by_no_more_than_one(numbers):
    clusters = np.unique(numbers, return_inverse=True)[1]
    first = halves(len(clusters), clusters)
    assert not set(clusters[first]) & set(clusters[~first])
    assert abs(first.sum() - (~first).sum()) <= np.bincount(clusters).max()
    assert halves(5).tolist() == [True, False, True, False, True]


def test_the_largest_of_noisy_columns_is_no_larger_where_it_was_not_chosen():
    rng = np.random.default_rng(1)
    largest = [cross_fitted(rng.normal(size=(60, 40)), halves(60)).mean() for _ in range(200)]
    assert np.mean(largest) == pytest.approx(0, abs=4 * np.std(largest) / np.sqrt(200))
    real = rng.normal(size=(60, 40)) + 3 * (np.arange(40) == 7)
    assert cross_fitted(real, halves(60)).tolist() == real[:, 7].tolist()


def test_steadiness_is_half_if_two_classes_are_equally_frequent():
    """If selected and tested on the same maps, one of two equally frequent classes would exceed half by chance."""
    rng = np.random.default_rng(1)
    shares = [
        read("class-steadiness", measured("patterns", {}, {"special_predicted": rng.integers(2, size=(40, 3, 4))}))
        for _ in range(50)
    ]
    assert np.mean(shares) == pytest.approx(50, abs=1)


ROWS = 12
SHARED = np.arange(ROWS) // 2
WORDS = ("noun", "verb", "pronoun", "subject", "object", "negation", "cls", "sep")
GRIDS = (
    *WORDS, "cosine", "sep_sum", "brightest", "verb_subject", "noun_pronoun", "max_weight", "entropy", "other",
    "final", "word", "equal", "expected",
)  # fmt: skip
UNCLUSTERED = {"anisotropy", "example-sentence", "frame-heads", "pattern-quality", "published-figures"}
OF_CLASSES = ("class-share", "class-share-change", "figure-2-difference", "figure-2-rank-correlation")
ARGUMENTS = {
    **{name: {"classes": ["block"]} for name in OF_CLASSES},
    "best-feature-growth": {"kinds": ["noun", "object"]},
    "feature-depth": {"kinds": ["noun", "verb"]},
    "figure-6-correlation": {"kind": "sep"},
    "heads-of-class": {"class_name": "block"},
    "pruned-score": {"share": 0.2},
    "pruning-loss": {"share": 0.2},
}


def of_pairs(measure, task_name):
    """Return a measurement of twelve rows, in pairs that share a text, with all that any quantity reads."""
    rng = np.random.default_rng(len(task_name))
    grids = {kind: rng.random((ROWS, 12, 12)) for kind in GRIDS}
    samples = {**grids, "within": rng.random(ROWS), "between": rng.random(ROWS), "cluster": SHARED}
    samples |= {f"cls_row_{kind}": grids[kind][:, -1] for kind in WORDS}
    for reading in ("special", "stripes"):
        samples[f"{reading}_predicted"] = rng.integers(5, size=(ROWS, 12, 12))
    samples |= {"special_expected": rng.dirichlet(np.ones(5), ROWS), "special_errors": np.zeros((3, 5))}
    shape = {"head-ablation": (12, 12), "layer-ablation": (12,), "weight-pruning": (7,), "head-pruning": (9,)}
    sets = shape.get(measure, ())
    samples["predicted"] = rng.integers(2, size=(math.prod(sets), ROWS) if sets else ROWS)
    samples |= {"baseline_predicted": rng.integers(2, size=ROWS), "target": np.arange(ROWS) % 3 % 2}
    values = {**{kind: grid.mean(0) for kind, grid in grids.items()}, "score": np.zeros(sets), "lower_cases": True}
    values |= {"share": np.arange(1, 8) / 10, "removed": np.arange(10), "left": np.arange(9)}
    return measured(measure, values, samples, task_name)


@pytest.mark.parametrize(
    "name",
    [
        name
        for name, quantity in QUANTITIES.items()
        if not {need.measure for need in quantity.needs.values()} <= UNCLUSTERED
    ],
)
def test_rows_that_share_a_text_stay_together_in_every_quantity(name):
    found = []
    for need in QUANTITIES[name].needs.values():
        of_tasks = tuple(of_pairs(need.measure, task) for task in need.tasks or (need.task or "rte",))
        found.append(of_tasks if need.tasks else of_tasks[0])
    of_sample = estimand(name, *found, **ARGUMENTS.get(name, {}))
    if not of_sample.sampled:
        return
    assert len(of_sample.clusters) == len(of_sample.blocks)
    for block, clusters in zip(of_sample.blocks, of_sample.clusters, strict=True):
        if len(block) == ROWS:
            assert clusters.tolist() == SHARED.tolist()
        else:
            assert clusters is None  # annotated heads


def labels(count, wrong=0):
    """Return alternating labels, of which the first `wrong` are replaced by the other label."""
    return [(i + (i < wrong)) % 2 for i in range(count)]


def test_too_few_examples_decide_nothing_however_they_come_out():
    few, enough = ([scored(labels(n), labels(n))] for n in (29, 30))
    above = made_up(kind="above", value=50, figure={"seed_std": 1.0, "seed_source": "five seeds"})
    assert "fewer than 30 examples" in judged(above, *few).reason
    assert [judged(above, *sample).outcome for sample in (few, enough)] == ["inconclusive", "reproduced"]


# ---------------------------------------------------------------------- what a quantity needs


class Bench:
    """A fake bench that returns empty measurements for the available tasks and measures."""

    def __init__(self, tasks=tuple(TASKS), lacks=()):
        self.tasks, self.lacks = tasks, lacks

    def missing(self, measure, task_name):
        return f"no {task_name} for {measure}" if task_name not in self.tasks or measure in self.lacks else None

    def measurement(self, measure, subject, **options):
        return Measurement(measure, subject, 0, {}, {}, {}, options)


def test_a_claim_over_all_tasks_requires_those_with_data():
    case = of_id("A3-all-across-tasks")
    asked = [(w.task, w.initialisation) for w in required_measurements(Bench(("rte", "sst2")), case)]
    assert asked == [("sst2", "pretrained"), ("rte", "pretrained")]
    assert eligibility(Bench(("rte", "sst2")), case, ModelFacts()) == Eligible()
    lacking = Skipped("fewer than 2 tasks have data: no mrpc for patterns")
    assert eligibility(Bench(("rte",)), case, ModelFacts()) == lacking
    with pytest.raises(MissingError):
        measure_case(Bench(("rte",)), case, "m", [1])
    # the published mean covers all seven tasks, so the measured one must too
    mean = eligibility(Bench(("rte", "sst2")), of_id("D2-all-mean"), ModelFacts())
    assert mean == Skipped("no mrpc for scores")


def test_a_shelf_reports_measurements_that_were_not_saved():
    shelf = Shelf((Measurement("scores", Subject("m", "rte"), 0, {}),))
    assert shelf.missing("scores", "rte") is None
    assert shelf.missing("scores", "mrpc") == "measure scores was not saved for mrpc"
    assert not is_measured(shelf, of_id("D2-all-mean"), "m", [1])


# ---------------------------------------------------------------------- scores


def test_the_mean_gap_over_tasks_by_hand():
    target = [1, 1, 1, 0]
    own = scored([1, 1, 0, 0], target, "mrpc"), scored([1, 0], [1, 1], "sst2")  # 75 (F1 80) and 50 %
    other = scored([1, 0, 0, 0], target, "mrpc"), scored([1, 1], [1, 1], "sst2")  # 50 (F1 50) and 100 %
    gap = estimand("mean-score-difference", own, other)
    assert gap.value == pytest.approx((75 - 50 + 50 - 100) / 2)
    assert [len(block) for block in gap.blocks] == [4, 2]
    assert read("mean-score-difference", own, other, with_f1=True) == pytest.approx((80 - 50 + 50 - 100) / 2)


def test_the_mean_gap_can_pass_and_fail():
    def found(wrong):
        own = tuple(scored(labels(1000), labels(1000), name) for name in TASKS)
        return own, tuple(
            scored(labels(1000, 0 if name == "stsb" else wrong), labels(1000), name, initialisation="random")
            for name in TASKS
        )

    case = of_id("D2-all-mean")
    as_published = measurements.judged(case, *found(419))  # equal answers on STS-B
    assert (as_published.outcome, as_published.observed) == ("compatible", pytest.approx(41.9 * 6 / 7))
    assert measurements.judged(case, *found(513)).outcome == "compatible"
    assert measurements.judged(case, *found(550)).outcome == "deviates"


def test_the_loss_from_shuffled_words():
    """With 3 of 4 answers correct in order and 1 of 4 shuffled, the loss is 50 points. A gain is a negative loss."""
    target = [1, 1, 0, 0]
    loss = estimand("shuffling-loss", scored([1, 1, 0, 1], target), scored([0, 1, 1, 1], target))
    assert (loss.value, loss.notes) == (50, ("75.0 in order, 25.0 shuffled",))
    assert read("shuffling-loss", scored([0, 1, 1, 1], target), scored(target, target)) == -75


def test_the_loss_from_cased_tokenization():
    lower, target = [1, 1, 1, 1], [1, 1, 1, 0]
    assert read("cased-loss", scored(lower, target), scored([1, 0, 1, 1], target, lower_cases=True)) == 25
    with pytest.raises(NotApplicableError, match="does not lower-case"):
        read("cased-loss", scored(lower, target), scored(lower, target, lower_cases=False))
    same = labels(300)
    losing = [scored(same, same), scored(labels(300, 60), same, lower_cases=True)]
    assert verdict("D6-rte-loses", *losing).outcome == "reproduced"
    assert verdict("D6-rte-loses", losing[1], scored(same, same, lower_cases=True)).outcome == "deviates"
    assert verdict("D6-sst2-spared", *losing).outcome == "deviates"
    same = labels(872)
    equal = [scored(same, same, "sst2"), scored(same, same, "sst2", lower_cases=True)]
    assert verdict("D6-sst2-spared", *equal).outcome == "reproduced"


def test_marked_figures_equal_the_score_of_a_constant_answer():
    """Every accuracy and F1 in K19's table 1 is compared with the class counts of the validation sets."""
    for case in [each for each in cases() if each.claim.measure == "scores"]:
        task = TASKS.get(case.task)
        if case.claim.id != "D1" or task is None or task.regression:
            continue
        shares = [100 * count / task.dev_rows for count in task.dev_counts.values()]
        if case.claim.variant.endswith("f1"):
            positive = task.dev_counts[task.labels[1]]
            shares = [0.0, 100 * 2 * positive / (positive + task.dev_rows)]
        equal = min(abs(case.figure.published - share) for share in shares) < 0.1
        if str(case) in ("D1-qqp-untrained-f1", "D1-qqp-frozen-f1"):
            assert equal  # but its accuracy is not that of a constant answer, so it is not marked
        else:
            assert case.figure.constant_answer == equal, case


# ---------------------------------------------------------------------- similarity of maps


def test_correlation_with_a_figure_is_numpys():
    rng = np.random.default_rng(5)
    figure, means = rng.normal(size=12), rng.normal(size=(3, 12))
    expected = [np.corrcoef(row, figure)[0, 1] for row in means]
    assert correlation(means, figure).tolist() == pytest.approx(expected)
    assert float(correlation(figure**3, figure, ranks=True)) == pytest.approx(1)
    assert math.isnan(float(correlation(np.ones(12), figure)))
