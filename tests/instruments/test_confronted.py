"""The assumptions of the simulated model agree with what was measured on other models."""

import numpy as np
import pytest

from bertsecrets.texts.published import SEVEN_TASKS, published_gains
from bertsecrets.types import Subject
from instruments.calibration import answers, confronted, truth  # noqa: F401  # answers registers what it simulates
from instruments.calibration.confronted import ASSUMPTIONS, CHECKS, NOT_COMPARABLE, SPREADS, constant_seeds
from instruments.calibration.worlds import MODEL, Setting, SimulatedModel, find_world


def test_every_assumption_is_confronted_or_says_why_it_is_not():
    for assumption in ASSUMPTIONS:
        assert (assumption.check in CHECKS) != bool(assumption.why_none), assumption.text
    assert {assumption.check for assumption in ASSUMPTIONS} - {"none"} == set(CHECKS)


@pytest.mark.parametrize("name", CHECKS)
def test_evidence_on_record_agrees_with(name):
    assert not CHECKS[name]()


def test_most_measured_spreads_are_compared():
    assert sum(len(confronted.spread_ratios(*measures)) for measures in SPREADS.values()) > 150
    assert len(NOT_COMPARABLE) == 2


def test_random_weights_rarely_give_a_constant_answer():
    """On RTE, one seed of BERT-base's shape does; on MRPC, two of MiniLM's."""
    assert constant_seeds()["rte", "random"] == (1, 10)
    assert constant_seeds()["mrpc", "random"] == (2, 10)


@pytest.mark.parametrize(
    ("name", "name_in_truth", "value", "line"),
    [
        ("constant answers", "constant_share", lambda task, initialisation: 1.0, "random on rte: 1 of 10 seeds"),
        ("spreads of scores", "score_spread", lambda task, initialisation: 0.1, "score: "),
        ("spreads of maps", "map_seeds", lambda task: 9.0, "class-share: "),
        ("spreads of gains", "gain_spread", lambda task, measure: (9.0, 9.0), "mean-head-gain: "),
        ("answers that differ", "churn", lambda task: 0.001, "rte: "),
        ("steadiness of classes", "STEADY", (0.3, 0.3), "A3-across-examples: "),
        ("diagonal heads", "DIAGONAL", (0.5, 0.3), "F1: "),
        ("cropped maps", "CROPPED", 1.0, "0.6"),
    ],
)
def test_a_wrong_assumption_is_noticed(monkeypatch, name, name_in_truth, value, line):
    monkeypatch.setattr(truth, name_in_truth, value)
    monkeypatch.setattr(confronted, "SIMULATED_WORLDS", 1)
    confronted.spread_ratios.cache_clear()
    found = CHECKS[name]()
    confronted.spread_ratios.cache_clear()
    assert any(problem.startswith(line) for problem in found), found


def test_the_spread_of_several_parts_is_their_root_mean_square():
    by_seed = np.array([[0.0, 1.0], [2.0, 1.0], [4.0, 7.0]])
    assert confronted._spread(by_seed) == pytest.approx(np.sqrt((4 + 12) / 2))


@pytest.mark.parametrize("task", SEVEN_TASKS)
@pytest.mark.parametrize(("measure", "figure"), [("head-ablation", "fig8_head"), ("layer-ablation", "fig9_layer")])
def test_gains_of_a_simulated_run_spread_about_as_much_as_the_papers(measure, figure, task):
    """Figures 8 and 9 show one run, so a model with gains that spread many times as much is not as published."""
    model = SimulatedModel(find_world("as-published"), Setting(), 1, 0)
    measured = model.measurement(measure, Subject(MODEL, task, "pretrained", 1))
    spread = 100 * np.asarray(measured.values["score"]).std() / published_gains(task, figure).std()
    assert 0.8 < spread < 2
