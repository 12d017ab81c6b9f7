"""Every measure that the paper has a figure of gets that figure in the report, drawn from its own numbers."""

from dataclasses import replace

import numpy as np
import pytest

from bertsecrets.measures.patterns import key
from bertsecrets.patterns.classes import CLASSES
from bertsecrets.patterns.readings import READINGS
from bertsecrets.report.figures import figures_of, heat_map, layer_curves
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
    ((caption, svg),) = draw(measurement)
    assert all(part in caption for part in told)
    assert svg.startswith("<svg")
    assert "{" not in caption
    assert draw(measurement) == [(caption, svg)]  # the same numbers give the same file


def test_heads_are_drawn_as_a_map_and_in_order_of_their_harm():
    (by_place, one), (in_order, other) = draw(found("head-ablation", baseline=0.5, score=GRID))
    assert all(part in by_place for part in ("each head", "points of accuracy", "figure 8", "RTE"))
    assert "95 % interval" in in_order
    names = [name for name in ("2.2", "1.1", "1.3", "2.3", "1.2", "2.1") if f"<!-- {name} -->" in other]
    places = [other.index(f"<!-- {name} -->") for name in names]
    assert len(names) == 6
    assert places == sorted(places)  # by gain, the most harmful to lose first
    assert one != other


def test_frame_heads_are_drawn_as_a_map_and_with_their_intervals():
    (by_place, one), (in_order, other) = draw(found("frame-heads", "all", max_weight=GRID))
    assert all(part in by_place for part in ("target", "figure 3", "here/tiny, without a task"))
    assert "95 % interval over sentences" in in_order
    assert one.startswith("<svg")
    names = [f"{place // GRID.shape[1] + 1}.{place % GRID.shape[1] + 1}" for place in GRID.argsort(None, kind="stable")]
    places = [other.index(f"<!-- {name} -->") for name in names]
    assert places == sorted(places)  # the smallest first


def test_patterns_are_drawn_by_layer_and_by_head():
    values = {"majority": np.array([[0, 1, 2], [3, 4, 0]]), "agreement": np.full((2, 3), 0.9)}
    values |= {f"share_{key(name)}": np.full((2, 3), 0.2) for name in CLASSES}
    values |= {f"corrected_{key(name)}": 0.2 for name in CLASSES}
    under = {f"{reading}_{name}": value for reading in READINGS for name, value in values.items()}
    samples = {f"{reading}_predicted": np.tile(values["majority"], (9, 1, 1)) for reading in READINGS}
    (_, beside), *drawn = draw(replace(found("patterns", **under), samples=samples))
    assert all(f"<!-- {source} -->" in beside for source in ("K19, figure 2", *READINGS))
    assert len(drawn) == 4 * len(READINGS)
    assert all("95 % interval" in caption for caption, _ in drawn[2:4])
    for (by_layer, one), (by_head, other), reading in zip(drawn[::4], drawn[1::4], READINGS, strict=True):
        assert "by layer" in by_layer
        assert "each head" in by_head
        assert f"reading {reading}" in by_layer
        for name in CLASSES:
            assert all(f"<!-- {name} -->" in svg for svg in (beside, one, other))


def test_gains_and_losses_differ_in_the_picture():
    ((_, up),) = draw(found("layer-ablation", baseline=0.5, score=np.array([0.6, 0.6])))
    ((_, down),) = draw(found("layer-ablation", baseline=0.5, score=np.array([0.4, 0.4])))
    assert ("#2166ac" in up, "#b2182b" in up) == (True, False)
    assert ("#2166ac" in down, "#b2182b" in down) == (False, True)


def test_what_has_no_figure_gets_none():
    named = found(
        "head-ablation", options={"heads": "1.1 2"}, baseline=0.5, score=np.array([0.6, 0.4]), sets=["1.1", "2"]
    )
    nothing = found("special-tokens", cls=GRID * np.nan, sep=GRID * np.nan, sep_sum=GRID * np.nan)
    for measurement in (found("scores", accuracy=0.5), named, nothing):
        assert draw(measurement) == []


@pytest.mark.parametrize("text", [r"$\frac$", "$x", "a_{b}^c$$"])
def test_a_dollar_sign_in_a_title_or_unit_is_no_formula(text):
    assert heat_map(GRID, text, 0.0, 1.0, unit=text).startswith("<svg")
    assert layer_curves({text: GRID[0]}, text).startswith("<svg")
