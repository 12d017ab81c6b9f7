"""Figures of measurements, next to the paper's figures."""

import numpy as np
import pytest
from reported import GRID, ablated, of, of_figures

from bertsecrets.measures.base.figures import HeadMap
from bertsecrets.patterns.classes import CLASSES
from bertsecrets.patterns.readings import READINGS
from bertsecrets.report import charts
from bertsecrets.report.charts import GAIN_COLOUR, LOSS_COLOUR, scaled, svg
from bertsecrets.report.replicas import figures_of
from bertsecrets.settings import JudgeParams
from bertsecrets.types import Measurement

SETTINGS = JudgeParams(confidence=0.95, resamples=200, seed=7)


def draw(measurement):
    return figures_of([measurement], SETTINGS)


@pytest.mark.parametrize(
    ("measurement", "told"),
    [
        (
            ablated("layer-ablation", GRID[:, 0], seed=1),
            ["figure 9", "score with each layer disabled", "accuracy (points)"],
        ),
        (of("attention-change", {"cosine": GRID}), ["figure 5", "cropped"]),
        (of("attention-change", {"cosine": GRID}, padded_to=200), ["figure 5", "padded to 200"]),
        (of("special-tokens", {"cls": GRID, "sep": GRID * np.nan, "sep_sum": GRID}), ["figure 6", "[CLS]", "by layer"]),
    ],
    ids=lambda each: each.measure if isinstance(each, Measurement) else "",
)
def test_a_measurement_is_drawn_next_to_the_papers_figure(measurement, told):
    charts = draw(measurement)
    assert all(part in chart.caption for part, chart in zip(told, charts, strict=True))
    for chart in charts[1:]:
        assert "m, RTE, seed 1" in chart.caption
        assert chart.header[0] == "layer"
        assert [row[0] for row in chart.rows] == [1, 2]
    assert draw(measurement) == charts  # the same numbers give the same figure


def test_the_papers_figure_is_drawn_once_for_all_seeds():
    seeds = [of("attention-change", {"cosine": GRID + shift}, seed=seed) for seed, shift in ((1, 0.0), (2, 0.2))]
    theirs, ours = figures_of(seeds, SETTINGS)
    assert "figure 5" in theirs.caption
    assert "mean of seeds 1, 2" in ours.caption
    assert ours.rows[0] == (1, 0.6, 0.7, 0.65)


def test_heads_are_drawn_as_a_map_and_in_order_of_their_harm():
    *_, by_place, in_order = draw(ablated("head-ablation", GRID, seed=1))
    assert "Change in accuracy (points)" in by_place.caption
    assert by_place.rows == ((1, 0.0, 10.0, 5.0), (2, 20.0, -10.0, 5.0))
    most_harmful_first = ["2.2", "1.1", "1.3", "2.3", "1.2", "2.1"]
    assert [row[0] for row in in_order.rows] == most_harmful_first
    assert all(low <= value <= high for _, value, low, high in in_order.rows)


def test_frame_heads_are_drawn_as_a_map_and_with_their_intervals():
    theirs, by_place, in_order = draw(of_figures()[1])
    assert (theirs.caption, by_place.caption) == ("K19, figure 3", "m, without a task")
    assert by_place.rows[0] == (1, 0.5, 0.6, 0.55)
    names = [f"{place // GRID.shape[1] + 1}.{place % GRID.shape[1] + 1}" for place in GRID.argsort(None, kind="stable")]
    assert [row[0] for row in in_order.rows] == names  # the smallest first


def test_patterns_are_drawn_by_layer_and_by_head():
    paper, *drawn = draw(of_figures()[0])
    readings = [f"m, reading {reading}" for reading in READINGS]
    assert [row[0] for row in paper.rows] == ["K19, figure 2", *readings]
    assert len(drawn) == 4 * len(READINGS)
    for by_layer, by_head, reading in zip(drawn[::4], drawn[1::4], READINGS, strict=True):
        assert f"by layer; reading {reading}" in by_layer.caption
        assert (by_layer.header, by_layer.rows[0]) == (("layer", *CLASSES), ("1", *[20.0] * 5))
        assert by_head.rows[0] == (1, *CLASSES[:3])


def test_heads_that_attend_similarly_are_drawn_close_to_each_other():
    divergence = np.array([[0.0, 0.01, 0.5, 0.5], [0.01, 0.0, 0.5, 0.5], [0.5, 0.5, 0.0, 0.01], [0.5, 0.5, 0.01, 0.0]])
    entropies, points = draw(of("head-statistics", {"entropy": np.ones((2, 2)), "divergence": divergence}))
    assert "Entropy" in entropies.caption
    assert [row[:2] for row in points.rows] == [(1, 1), (1, 2), (2, 1), (2, 2)]
    near, far = (abs(points.rows[0][2] - points.rows[other][2]) for other in (1, 3))
    assert far > 10 * near


def test_points_on_a_plane_are_recovered_from_their_distances():
    points = np.random.default_rng(3).normal(size=(7, 2))
    distances = np.linalg.norm(points[:, None] - points, axis=-1)
    places, share = scaled(distances)
    np.testing.assert_allclose(np.linalg.norm(places[:, None] - places, axis=-1), distances, atol=1e-9)
    assert share == pytest.approx(1)
    assert scaled(np.zeros((3, 3)))[1] == 0  # heads with equal attention


def test_a_model_with_one_head_is_drawn():
    entropies, points = draw(of("head-statistics", {"entropy": np.ones((1, 1)), "divergence": np.zeros((1, 1))}))
    assert "Entropy" in entropies.caption
    assert points.rows == ((1, 1, 0, 0),)


def test_the_heads_of_a_layer_are_drawn_in_their_order():
    shown = charts.attention_maps(["a", "b"], {head: np.eye(2) for head in range(1, 13)}, "a layer")
    drawn = svg(shown.to_dict())
    assert sorted(range(1, 13), key=lambda head: drawn.index(f">head {head}<")) == list(range(1, 13))


def test_gains_and_losses_have_different_colours():
    up, down = (draw(ablated("layer-ablation", np.full(2, score), seed=1))[-1] for score in (0.6, 0.4))
    assert (GAIN_COLOUR in svg(up.spec), LOSS_COLOUR in svg(up.spec)) == (True, False)
    assert (GAIN_COLOUR in svg(down.spec), LOSS_COLOUR in svg(down.spec)) == (False, True)


def test_measurements_without_figures_have_none():
    named = of("head-ablation", {"baseline": 0.5, "score": np.array([0.6, 0.4]), "sets": ["1.1", "2"]}, heads="1.1 2")
    nothing = of("special-tokens", dict.fromkeys(("cls", "sep", "sep_sum"), GRID * np.nan))
    for measurement in (of("scores", {"accuracy": 0.5}), named, nothing):
        assert draw(measurement) == []


@pytest.mark.parametrize("text", [r"$\frac$", "datum.x", "</svg><b>"])
def test_titles_and_units_are_shown_literally(text):
    drawn = svg(charts.draw(HeadMap(text, GRID, text, title=text), SETTINGS, text).spec)
    assert "<b>" not in drawn
    assert text.replace("<", "&lt;").replace(">", "&gt;") in drawn
