"""Training of pattern classifiers: folds are split by head, and components match scikit-learn or the paper."""

from dataclasses import replace

import numpy as np
import pytest
import torch
from patterned import pattern_set, shorten
from sklearn.ensemble import GradientBoostingClassifier
from sklearn.linear_model import LogisticRegression
from sklearn.metrics import f1_score
from sklearn.pipeline import make_pipeline
from sklearn.preprocessing import StandardScaler

from bertsecrets.errors import UserError
from bertsecrets.patterns.classes import CLASSES
from instruments.classifiers import crossval, quality
from instruments.classifiers.baselines import PaperCnn, canvases, logistic_features, network
from instruments.classifiers.crossval import LabelledMaps
from instruments.classifiers.fitting import best_temperature, boost, exported, regress, trees_and_regression


@pytest.fixture(scope="module")
def some():
    made = pattern_set(60)
    heads = [f"head {number % 30}" for number in range(60)]
    return replace(LabelledMaps.of(made), groups=np.array(heads))


@pytest.fixture
def brief(monkeypatch):
    shorten(monkeypatch)


def test_folds_never_part_the_maps_of_a_head(some):
    held = []
    for learn, out in some.folds(5, 3):
        assert not set(some.groups[learn]) & set(some.groups[out])
        held += out.tolist()
    assert sorted(held) == list(range(len(some)))


def test_too_few_heads_are_said(some):
    with pytest.raises(UserError, match="31 folds need at least 31 heads, not 30"):
        next(some.folds(31, 0))


def test_every_choice_is_made_inside_the_training_folds(some):
    """A method receives only the maps of the training folds, and those chosen for doubt of the same heads.

    Only the maps drawn at random are held out, so the scores stay those of a random sample.
    """
    seen = []

    def spy(train, seed):
        def probabilities(data):
            assert not set(train.groups) & set(data.groups)
            return np.full((len(data), len(CLASSES)), 0.2)

        seen.append(len(train))
        return probabilities

    doubted = some.take(np.arange(0, len(some), 3))
    for unsure, maps in ((None, len(some)), (doubted, len(some) + len(doubted))):
        judged = crossval.held_out(spy, some, 0, unsure=unsure)
        assert judged.confusions().sum() == len(some)
        assert (len(seen), sum(seen)) == (crossval.FOLDS, (crossval.FOLDS - 1) * maps)
        seen.clear()


def test_all_three_classifiers_learn_plain_maps_on_the_same_folds(some, brief):
    cnn = PaperCnn(epochs=2, patience=2, canvas=16).fit
    methods = {"bertsecrets": trees_and_regression, "features-logistic": logistic_features, "paper-cnn": cnn}
    figures, answers = quality.compare(methods, some, 1)
    assert figures["classifiers"]["bertsecrets"]["macro_f1"] > 0.9
    assert figures["classifiers"]["features-logistic"]["macro_f1"] > 0.9
    assert set(figures["advantage"]) == {"features-logistic", "paper-cnn"}
    for each in answers.values():
        np.testing.assert_allclose(each.probabilities.sum(1), 1, atol=1e-5)
    low, high = figures["classifiers"]["bertsecrets"]["macro_f1_interval"]
    assert low <= figures["classifiers"]["bertsecrets"]["macro_f1"] <= high


def test_training_chooses_by_scikit_learns_macro_f1():
    """Exactly equal, since any difference could select another epoch or penalty. Absent classes count as 0."""
    rng = np.random.default_rng(3)
    for classes in (5, 3):
        labels, predicted = rng.integers(0, classes, 200), rng.integers(0, classes, 200)
        theirs = f1_score(labels, predicted, labels=range(5), average="macro", zero_division=0.0)
        assert quality.macro_f1_of_all(labels, predicted) == float(theirs)


def test_calibration_by_hand():
    sure = np.array([[0.9, 0.1, 0, 0, 0]] * 4 + [[0.55, 0.45, 0, 0, 0]] * 2)
    held_out = crossval.HeldOut(np.array([0, 0, 0, 1, 0, 1]), np.array(list("abcdef")), np.ones(6, dtype=bool), sure)
    figures = quality.calibration(held_out)
    assert figures["expected_calibration_error"] == pytest.approx((4 * abs(0.9 - 0.75) + 2 * abs(0.55 - 0.5)) / 6)


@pytest.mark.parametrize("classes", [(0, 1, 2, 4), (1, 3)])
def test_the_exported_boosted_trees_are_scikit_learns(classes):
    rng = np.random.default_rng(0)
    table, labels = rng.normal(size=(200, 7)).astype(np.float32), rng.choice(classes, 200)
    grown = GradientBoostingClassifier(n_estimators=8, max_depth=3, init="zero", random_state=1).fit(table, labels)
    fresh = rng.normal(size=(50, 7)).astype(np.float32)
    ours = exported(grown).probabilities(torch.from_numpy(fresh)).numpy()
    np.testing.assert_allclose(ours[:, classes], grown.predict_proba(fresh), atol=1e-6)
    assert np.delete(ours, classes, axis=1).max() < 1e-9  # classes that were never seen


def test_trees_and_regression_trained_on_one_class_predict_it():
    table, labels = np.random.default_rng(0).normal(size=(9, 3)).astype(np.float32), np.full(9, 3)
    for trained in (boost(table, labels, 1), regress(table, labels)):
        assert trained.probabilities(torch.from_numpy(table))[:, 3].min() > 0.999


@pytest.mark.parametrize("classes", [(0, 1, 2, 4), (1, 3)])
def test_the_exported_regression_is_scikit_learns(classes):
    rng = np.random.default_rng(0)
    labels = rng.choice(classes, 200)
    table = (rng.normal(size=(200, 7)) + labels[:, None] * 3 * rng.normal(size=7) + 5).astype(np.float32)
    fresh = table[:50] + rng.normal(size=(50, 7)).astype(np.float32)
    theirs = make_pipeline(StandardScaler(), LogisticRegression(C=0.1, class_weight="balanced", max_iter=150))
    ours = regress(table, labels, 0.1).probabilities(torch.from_numpy(fresh)).numpy()
    np.testing.assert_allclose(ours[:, classes], theirs.fit(table, labels).predict_proba(fresh), atol=1e-3)
    assert ours.sum(1) == pytest.approx(1)
    assert np.delete(ours, classes, axis=1).max() < 1e-6  # classes that were never seen


def test_every_vote_teaches_and_the_class_of_most_is_judged(some):
    """Two of three annotators label every block map as block, and the third labels it as vertical."""
    block, vertical = CLASSES.index("block"), CLASSES.index("vertical")
    votes = 3 * np.eye(len(CLASSES), dtype=int)[some.labels]
    votes[some.labels == block] = 2 * np.eye(len(CLASSES), dtype=int)[block] + np.eye(len(CLASSES), dtype=int)[vertical]
    doubtful = replace(some, votes=votes, agreed=some.labels != block)
    taught = []

    def spy(train, seed):
        taught.extend(train.labels.tolist())
        return lambda data: np.eye(len(CLASSES))[data.labels]

    judged = crossval.held_out(spy, doubtful, 0)
    counts = np.bincount(taught, minlength=len(CLASSES))
    others = (crossval.FOLDS - 1) * votes.sum(0)  # each map is in the training set of all folds but one
    assert counts.tolist() == others.tolist()
    figures = quality.quality(judged, 0)
    assert (figures["maps"], figures["agreed"]["maps"]) == (60, 48)
    assert figures["f1"]["block"] == 1
    assert np.isnan(figures["agreed"]["f1"]["block"])


def test_the_papers_classifier_has_the_papers_layers():
    model = network()
    assert sum(p.numel() for p in model.parameters()) == 72_917
    assert [tuple(p.shape[:2]) for p in model.parameters() if p.dim() == 4] == [
        (16, 1), (16, 16), (32, 16), (32, 32), (64, 32), (64, 64), (16, 64), (5, 16)
    ]  # fmt: skip


def test_canvases_hold_small_maps_whole_and_large_ones_pooled():
    small, large = np.ones((4, 4)), np.ones((16, 16))
    pictures = canvases((small, large), 8)
    assert pictures[0, 0].sum() == 16
    assert pictures[0, 0, 2:6, 2:6].all()
    assert pictures[1, 0].mean() == pytest.approx(1)


def test_the_temperature_corrects_overconfidence():
    rng = np.random.default_rng(0)
    labels = rng.integers(0, 5, 400)
    said = np.where(rng.random(400) < 0.7, labels, rng.integers(0, 5, 400))
    sure = np.full((400, 5), 0.0025) + 0.9875 * np.eye(5)[said]
    temperature = best_temperature(sure, labels)
    assert temperature > 1.5
    calibrated = (torch.from_numpy(sure).log() / temperature).softmax(1).numpy()
    assert calibrated.max(1).mean() == pytest.approx((said == labels).mean(), abs=0.05)
    assert (calibrated.argmax(1) == said).all()
