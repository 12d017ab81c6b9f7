"""Drift is a difference beyond seed variance, at a controlled false discovery rate."""

from dataclasses import replace

import numpy as np
import pytest
from measurements import SETTINGS, gridded, measured, scored

from bertsecrets.compare.comparison import compare, discoveries, errors_over_examples, mcnemar
from bertsecrets.compare.sides import MeasureOnTask, Side, _part, part_of
from bertsecrets.errors import UserError
from bertsecrets.report.findings import comparison_line, drift_findings, drift_message
from bertsecrets.report.html import comparison_page
from bertsecrets.types import Measurement, Provenance, Subject

LAYERS, HEADS, EXAMPLES = 6, 12, 40
FACTS = Provenance(data_fingerprint="abc")


def side(name: str, *parts: list[Measurement]) -> Side:
    """Return a side with one measure per part, and one measurement per seed in each part."""
    made = []
    for part in parts:
        seeds = [
            replace(
                measurement,
                subject=Subject("m", measurement.subject.task, "pretrained", number),
                provenance=measurement.provenance if measurement.provenance.data_fingerprint else FACTS,
            )
            for number, measurement in enumerate(part, start=1)
        ]
        made.append(part_of(MeasureOnTask(part[0].measure, part[0].subject.task), seeds))
    return Side(name, f"{len(parts[0])} seeds", tuple(made))


def attention(rng: np.random.Generator, seeds: int, *, spread=0.02, moved=None) -> list[Measurement]:
    """Return simulated special-token attention for some seeds.

    Heads differ in mean and seed variance. A seed's deviation has a component shared by all heads and one per head.

    Args:
        spread: Typical seed deviation of a head.
        moved: Shift of all seeds [layer, head].
    """
    examples = np.random.default_rng(1).normal(0, 0.05, (EXAMPLES, LAYERS, HEADS))
    heads = np.linspace(0.1, 0.6, LAYERS * HEADS).reshape(LAYERS, HEADS) + (0 if moved is None else moved)
    own_spread = spread * np.random.default_rng(2).lognormal(0, 0.7, (LAYERS, HEADS))
    measurements = []
    for _ in range(seeds):
        seed = own_spread * (0.7 * rng.normal() + 0.7 * rng.normal(size=(LAYERS, HEADS)))
        sample = heads + seed + examples + rng.normal(0, 0.01, examples.shape)
        measurements.append(gridded("special-tokens", cls=sample, sep=sample[:, ::-1]))
    return measurements


def answers(rng: np.random.Generator, seeds: int, rate: float, rows: int = 300) -> list[Measurement]:
    """Return simulated scores for some seeds, with this expected accuracy."""
    target = np.random.default_rng(3).integers(0, 2, rows)
    return [scored(np.where(rng.random(rows) < rate, target, 1 - target), target) for _ in range(seeds)]


def test_a_side_equals_itself_exactly():
    checkpoint = side("a", attention(np.random.default_rng(0), 3), answers(np.random.default_rng(0), 3, 0.7))
    comparison = compare(checkpoint, checkpoint, SETTINGS)
    assert not comparison.drifted
    assert all(measure.equal and measure.outcome == "same" for measure in comparison.measures)
    assert "exactly equal" in drift_findings(comparison).text()


@pytest.fixture(scope="module")
def moved():
    """A comparison of two sides with five seeds each, which differ in head 4.7."""
    shift = np.zeros((LAYERS, HEADS))
    shift[3, 6] = 0.9
    before, after = attention(np.random.default_rng(0), 5), attention(np.random.default_rng(1), 5, moved=shift)
    return compare(side("a<b>", before), side("b", after), SETTINGS)


def test_a_head_that_moves_beyond_its_seeds_is_named_with_its_deviation(moved):
    (measure,) = moved.measures
    assert measure.outcome == "drift"
    cls = measure.differences[0]
    assert np.argwhere(cls.drifted.reshape(cls.shape)).tolist() == [[3, 6]]
    assert cls.deviations.reshape(cls.shape)[3, 6] > 10
    message = drift_message(measure)
    assert message.startswith("special-tokens on RTE has drifted (5 seeds against 5 seeds, 40 examples; sd: standard")
    assert "attention to [CLS] in 1 of 72 heads (by layer: 0, 0, 0, 1, 0, 0): 4.7: 0." in message
    assert " sd)" in message


def test_a_pinned_checkpoint_is_compared_by_the_errors_of_both_checkpoints():
    rng = np.random.default_rng(0)
    (before,), (after,) = attention(rng, 1), attention(rng, 1)
    (part,) = side("pin", [before]).parts
    stored = {name: values.model_copy(update={"by_seed": ()}) for name, values in part.quantities.items()}
    facts = {"quantities": stored, "errors": errors_over_examples(part, SETTINGS)}
    pinned = Side("pin", "pin", (part.model_copy(update=facts),))
    (measure,) = compare(pinned, side("new", [after]), SETTINGS).measures
    old, new = (measurement.samples["cls"].reshape(EXAMPLES, -1) for measurement in (before, after))
    errors = np.hypot(old.std(0), new.std(0)) / np.sqrt(EXAMPLES)
    cls = measure.differences[0]
    assert cls.deviations == pytest.approx((new.mean(0) - old.mean(0)) / errors, rel=0.2, abs=0.01)
    assert (cls.drifted.sum() > 0, measure.counted) == (True, "examples")
    assert all(each.equal for each in compare(pinned, side("same", [before]), SETTINGS).measures)


def test_retrainings_raise_no_more_false_alarms_than_the_nominal_rate():
    alarms = 0
    for run in range(200):
        rng = np.random.default_rng(run)
        pinned = side("pin", attention(rng, 5), answers(rng, 5, 0.7))
        alarms += compare(pinned, side("new", attention(rng, 1), answers(rng, 1, 0.7)), SETTINGS).drifted
    assert alarms <= 18  # of 200 at 5 %; more have a probability below 1 %


def test_a_significant_change_below_the_smallest_effect_of_interest_is_the_same():
    before = attention(np.random.default_rng(0), 5, spread=1e-5)
    moved = [replace(of, samples={name: sample + 0.001 for name, sample in of.samples.items()}) for of in before]
    (measure,) = compare(side("a", before), side("b", moved), SETTINGS).measures
    assert measure.outcome == "same"
    assert not measure.equal


def test_too_few_seeds_leave_the_outcome_open():
    one, two = (side(name, attention(np.random.default_rng(seed), 2)) for seed, name in enumerate("ab"))
    comparison = compare(one, two, SETTINGS)
    assert comparison.measures[0].outcome == "open"
    assert "may differ" in drift_findings(comparison).text()


def test_two_checkpoints_are_compared_over_examples_and_by_mcnemar():
    target = np.tile([0, 1], 50)
    worse = target.copy()
    worse[:8] = 1 - worse[:8]
    comparison = compare(side("a", [scored(target, target)]), side("b", [scored(worse, target)]), SETTINGS)
    (score,) = comparison.measures[0].differences
    assert float(score.p_drift[0]) == pytest.approx(2 * 0.5**8)  # eight answers became wrong, none became right
    assert comparison.drifted
    assert "each side is a single checkpoint" in drift_findings(comparison).text()


def test_mcnemar_counts_only_examples_on_which_the_answers_differ():
    one, two = np.array([True] * 90 + [False] * 10), np.array([True] * 90 + [True] * 3 + [False] * 7)
    assert mcnemar(one, two) == pytest.approx(0.25)
    assert mcnemar(one, one) == 1.0


def test_a_single_score_is_not_lost_among_hundreds_of_heads():
    heads, score = np.full(1000, 0.9), np.array([0.01])
    assert discoveries([heads, score], 0.05)[1].tolist() == [True]
    assert discoveries([np.concatenate([heads, score])], 0.05)[0].any() == np.False_


def test_a_collapsed_model_has_drifted_whatever_its_numbers():
    constant = scored(np.ones(300, dtype=int), np.random.default_rng(3).integers(0, 2, 300), constant=True)
    comparison = compare(side("a", answers(np.random.default_rng(0), 3, 0.5)), side("b", [constant]), SETTINGS)
    assert comparison.drifted
    assert "gives every example the same answer" in drift_message(comparison.measures[0])


def test_a_side_whose_maps_cannot_be_read_is_drift_only_if_the_other_can():
    wanted = MeasureOnTask("special-tokens", "rte")
    broken = Side("broken", "1 seed", (_part(wanted, [1], collapsed="the maps do not sum to 1"),))
    good = side("good", attention(np.random.default_rng(0), 2))
    assert compare(good, broken, SETTINGS).drifted
    for after in (good, broken):
        with pytest.raises(UserError, match="cannot be compared: the maps do not sum to 1"):
            compare(broken, after, SETTINGS)


def test_as_many_examples_with_other_texts_are_not_compared():
    before = side("a", answers(np.random.default_rng(0), 2, 0.7))
    after = replace(before, parts=tuple(part.model_copy(update={"data": "other"}) for part in before.parts))
    with pytest.raises(UserError, match="measured on different examples .* examples each, with other texts"):
        compare(before, after, SETTINGS)


def test_measures_that_are_not_compared_are_counted():
    maps, scores = attention(np.random.default_rng(0), 2), answers(np.random.default_rng(0), 2, 0.7)
    comparison = compare(side("pin", maps, scores), side("new", maps), SETTINGS)
    assert comparison_line(comparison) == "no drift: 1 measure exactly equal; not compared: 1 measure"


def test_missing_numbers_are_drift():
    one, two = (attention(np.random.default_rng(seed), 3) for seed in (0, 1))
    for of in two:
        of.samples["sep"][:, 2, 5] = np.nan
    (measure,) = compare(side("a", one), side("b", two), SETTINGS).measures
    assert measure.outcome == "drift"


def test_a_spread_of_zero_over_seeds_is_not_taken_for_certainty():
    target = np.tile([0, 1], 100)
    similar = [scored(np.where(np.arange(200) < 60, 1 - target, target), target) for _ in range(2)]
    other = scored(np.where(np.arange(200) < 62, 1 - target, target), target)  # a difference of one point
    assert not compare(side("a", similar), side("b", [other]), SETTINGS).drifted


def test_different_examples_heads_or_settings_are_not_compared():
    measurements = attention(np.random.default_rng(0), 2)
    other_rows = [replace(of, provenance=Provenance(data_fingerprint="xyz")) for of in measurements]
    with pytest.raises(UserError, match="measured on different examples"):
        compare(side("a", measurements), side("b", other_rows), SETTINGS)
    fewer = [
        gridded("special-tokens", cls=of.samples["cls"][:, :3], sep=of.samples["sep"][:, :3]) for of in measurements
    ]
    with pytest.raises(UserError, match="different numbers of layers or heads: 6 x 12 and 3 x 12"):
        compare(side("a", measurements), side("b", fewer), SETTINGS)
    with pytest.raises(UserError, match=r"different settings \(max_length\)"):
        compare(
            side("a", [replace(of, settings={"max_length": 128}) for of in measurements]),
            side("b", [replace(of, settings={"max_length": 64}) for of in measurements]),
            SETTINGS,
        )


def test_gains_and_shares_are_compared_in_points_and_percent():
    rng, target = np.random.default_rng(0), np.tile([0, 1], 20)
    grids = [
        measured(
            "head-ablation",
            {"score": np.zeros((2, 3))},
            {
                "predicted": np.stack([np.where(rng.random(40) < 0.8, target, 1 - target) for _ in range(6)]),
                "baseline_predicted": target,
                "target": target,
            },
        )
        for _ in range(2)
    ]
    maps = [measured("patterns", {}, {"special_predicted": rng.integers(0, 5, (40, 2, 3))}) for _ in range(2)]
    measured_side = side("a", grids, maps)
    gains, shares = measured_side.parts[0].quantities["gain"], measured_side.parts[1].quantities
    expected = np.mean(
        [[100 * ((row == target).mean() - 1) for row in of.samples["predicted"]] for of in grids], axis=0
    )
    assert gains.mean.ravel() == pytest.approx(expected)
    assert sum(values.mean for values in shares.values()) == pytest.approx(np.full((2, 3), 100.0))


def test_attention_to_words_is_averaged_over_examples_that_have_them():
    rng = np.random.default_rng(0)
    verbs = rng.random((EXAMPLES, 2, 3))
    verbs[::2] = np.nan
    of = gridded("features", verb=verbs, cls=rng.random((EXAMPLES, 2, 3)))
    of.samples["cls_row_verb"] = rng.random((EXAMPLES, 3))  # for a single layer
    values = side("a", [of]).parts[0].quantities
    assert list(values) == ["verb"]
    assert values["verb"].mean == pytest.approx(verbs[1::2].mean(0))


def test_of_heads_that_deviate_as_much_the_one_that_changed_most_is_named_first():
    before = np.full((EXAMPLES, 2, 3), 0.5)
    after = before + np.array([[0.125, 0.0, -0.375], [0.25, 0.0, 0.0]])  # no spread: all of these deviate infinitely
    sides = [side(name, [gridded("special-tokens", cls=of, sep=before)]) for name, of in (("a", before), ("b", after))]
    comparison = compare(*sides, SETTINGS)
    cls = comparison.measures[0].differences[0]
    assert cls.largest == [2, 3, 0]
    assert cls.drifted_by_layer == [2, 1]
    assert "1.3: 0.5 -> 0.125 (no spread over examples)" in drift_findings(comparison).tables[0].rows[0]


def test_heads_are_items_of_a_list_marked_on_a_map_and_data(moved):
    findings = drift_findings(moved)
    assert "`from a<b> (5 seeds) to b" in findings.markdown()
    items = findings.markdown().splitlines()
    place = next(place for place, item in enumerate(items) if "has drifted" in item)
    assert items[place].startswith("- special-tokens on RTE")
    assert items[place + 1].startswith("  - attention to ")
    (figure,) = (figure for figure in findings.figures if "change of attention to [CLS]" in figure.caption)
    assert np.argwhere(figure.marked).tolist() == [[3, 6]]
    assert figure.values[3, 6] == pytest.approx(0.9, abs=0.1)
    page = comparison_page(findings)
    assert page.count("<svg ") == len(findings.figures)
    assert all(part in page for part in ("a&lt;b&gt;", "color-scheme: light dark", '<div class="scroll"'))
    (quantity, _) = moved.data["measures"][0]["quantities"]
    assert np.shape(quantity["deviations"]) == (LAYERS, HEADS)
    assert quantity["drifted"][3][6] is True
