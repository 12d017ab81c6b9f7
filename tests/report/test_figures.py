"""Every measure that the paper has a figure of gets that figure in the report, drawn from its own numbers."""

from dataclasses import replace

import numpy as np
import pytest

from bertsecrets.measures.patterns import key
from bertsecrets.patterns.classes import CLASSES
from bertsecrets.patterns.readings import READINGS
from bertsecrets.report.figures import GAIN, LOSS, figures_of, heat_map, scaled, svg
from bertsecrets.settings import JudgeParams
from bertsecrets.types import Measurement, Subject

SETTINGS = JudgeParams(confidence=0.95, resamples=200, seed=7)
GRID = np.array([[0.5, 0.6, 0.55], [0.7, 0.4, 0.55]])


def draw(measurement):
    return figures_of(measurement, SETTINGS)


def found(measure, task="rte", options=None, **values):
    samples = ablated(values["baseline"], values["score"]) if "score" in values else {}
    if "max_weight" in values:
        samples = {"max_weight": np.stack([values["max_weight"] - 0.1, values["max_weight"] + 0.1])}
    return Measurement(measure, Subject("here/tiny", task), 20, values, samples, options=options or {})


def ablated(baseline, score):
    """Predictions on 20 examples of RTE that give these accuracies."""
    target = np.ones(20)

    def right(share):
        return (np.arange(20) < round(20 * share)).astype(int)

    predicted = np.stack([right(share) for share in np.ravel(score)])
    return {"predicted": predicted, "baseline_predicted": right(baseline), "target": target}


@pytest.mark.parametrize(
    ("measurement", "told"),
    [
        (found("layer-ablation", baseline=0.5, score=GRID[:, 0]), ["each layer", "points of accuracy", "figure 9"]),
        (found("attention-change", cosine=GRID), ["cropped", "figure 5"]),
        (found("attention-change", options={"padded_to": 200}, cosine=GRID), ["padded to 200", "figure 5"]),
        (found("special-tokens", cls=GRID, sep=GRID * np.nan, sep_sum=GRID), ["[CLS]", "figure 6"]),
    ],
    ids=lambda each: each.measure if isinstance(each, Measurement) else "",
)
def test_a_measurement_gets_its_figure(measurement, told):
    (chart,) = draw(measurement)
    assert all(part in chart.caption for part in told)
    assert "{" not in chart.caption
    assert chart.header[0] == "layer"
    assert [row[0] for row in chart.rows] == [1, 2]
    assert draw(measurement) == [chart]  # the same numbers give the same figure


def test_heads_are_drawn_as_a_map_and_in_order_of_their_harm():
    by_place, in_order = draw(found("head-ablation", baseline=0.5, score=GRID))
    assert all(part in by_place.caption for part in ("each head", "points of accuracy", "figure 8", "RTE"))
    assert by_place.rows == ((1, 0.0, 10.0, 5.0), (2, 20.0, -10.0, 5.0))
    assert "95 % interval" in in_order.caption
    assert [row[0] for row in in_order.rows] == [
        "2.2",
        "1.1",
        "1.3",
        "2.3",
        "1.2",
        "2.1",
    ]  # the most harmful to lose first
    assert all(low <= value <= high for _, value, low, high in in_order.rows)


def test_frame_heads_are_drawn_as_a_map_and_with_their_intervals():
    by_place, in_order = draw(found("frame-heads", "all", max_weight=GRID))
    assert all(part in by_place.caption for part in ("target", "figure 3", "here/tiny, without a task"))
    assert "95 % interval over sentences" in in_order.caption
    names = [f"{place // GRID.shape[1] + 1}.{place % GRID.shape[1] + 1}" for place in GRID.argsort(None, kind="stable")]
    assert [row[0] for row in in_order.rows] == names  # the smallest first


def test_patterns_are_drawn_by_layer_and_by_head():
    values = {"majority": np.array([[0, 1, 2], [3, 4, 0]]), "agreement": np.full((2, 3), 0.9)}
    values |= {f"share_{key(name)}": np.full((2, 3), 0.2) for name in CLASSES}
    values |= {f"corrected_{key(name)}": 0.2 for name in CLASSES}
    under = {f"{reading}_{name}": value for reading in READINGS for name, value in values.items()}
    samples = {f"{reading}_predicted": np.tile(values["majority"], (9, 1, 1)) for reading in READINGS}
    beside, *drawn = draw(replace(found("patterns", **under), samples=samples))
    assert [row[0] for row in beside.rows] == ["K19, figure 2", *READINGS]
    assert len(drawn) == 4 * len(READINGS)
    assert all("95 % interval" in chart.caption for chart in drawn[2:4])
    for by_layer, by_head, reading in zip(drawn[::4], drawn[1::4], READINGS, strict=True):
        assert "by layer" in by_layer.caption
        assert "each head" in by_head.caption
        assert f"reading {reading}" in by_layer.caption
        assert by_layer.header == ("layer", *CLASSES)
        assert by_head.rows[0] == (1, *CLASSES[:3])


def test_heads_that_attend_alike_are_drawn_close_to_each_other():
    divergence = np.array([[0.0, 0.01, 0.5, 0.5], [0.01, 0.0, 0.5, 0.5], [0.5, 0.5, 0.0, 0.01], [0.5, 0.5, 0.01, 0.0]])
    entropies, points = draw(found("head-statistics", entropy=np.ones((2, 2)), divergence=divergence))
    assert "Entropy" in entropies.caption
    assert [row[:2] for row in points.rows] == [(1, 1), (1, 2), (2, 1), (2, 2)]
    near, far = (abs(points.rows[0][2] - points.rows[other][2]) for other in (1, 3))
    assert far > 10 * near


def test_points_on_a_plane_are_found_again_from_their_distances():
    points = np.random.default_rng(3).normal(size=(7, 2))
    distances = np.linalg.norm(points[:, None] - points, axis=-1)
    places, share = scaled(distances)
    np.testing.assert_allclose(np.linalg.norm(places[:, None] - places, axis=-1), distances, atol=1e-9)
    assert share == pytest.approx(1)
    assert scaled(np.zeros((3, 3)))[1] == 0  # heads that all attend alike


def test_the_only_head_of_a_model_is_drawn_too():
    entropies, points = draw(found("head-statistics", entropy=np.ones((1, 1)), divergence=np.zeros((1, 1))))
    assert "Entropy" in entropies.caption
    assert points.rows == ((1, 1, 0, 0),)


def test_gains_and_losses_differ_in_the_picture():
    (up,) = draw(found("layer-ablation", baseline=0.5, score=np.array([0.6, 0.6])))
    (down,) = draw(found("layer-ablation", baseline=0.5, score=np.array([0.4, 0.4])))
    assert (GAIN in svg(up), LOSS in svg(up)) == (True, False)
    assert (GAIN in svg(down), LOSS in svg(down)) == (False, True)


def test_a_picture_is_the_same_for_the_same_figure_and_takes_the_colour_of_the_text_around_it():
    (chart,) = draw(found("attention-change", cosine=GRID))
    assert svg(chart) == svg(chart)
    assert "currentColor" in svg(chart)


def test_what_has_no_figure_gets_none():
    named = found(
        "head-ablation", options={"heads": "1.1 2"}, baseline=0.5, score=np.array([0.6, 0.4]), sets=["1.1", "2"]
    )
    nothing = found("special-tokens", cls=GRID * np.nan, sep=GRID * np.nan, sep_sum=GRID * np.nan)
    for measurement in (found("scores", accuracy=0.5), named, nothing):
        assert draw(measurement) == []


@pytest.mark.parametrize("text", [r"$\frac$", "datum.x", "</svg><b>"])
def test_a_title_or_unit_is_shown_as_it_is(text):
    chart = heat_map(GRID, text, (0.0, 1.0), title=text, unit=text)
    assert "<b>" not in svg(chart)
    assert text.replace("<", "&lt;").replace(">", "&gt;") in svg(chart)
