"""Pattern classifiers: predictions by hand, damaged files, and the recorded quality on held-out heads (claim A1)."""

import copy
import shutil
from pathlib import Path

import numpy as np
import pytest
import torch
from calls import started

from bertsecrets.errors import UserError
from bertsecrets.patterns import estimators
from bertsecrets.patterns.classes import CLASSES
from bertsecrets.patterns.classifier import (
    REPORT_FILE,
    SHIPPED_FOLDER,
    PatternClassifier,
    held_out_errors,
    read_report,
    report_of,
    weights_path,
)
from bertsecrets.patterns.recorded_quality import recorded_quality


def test_trees_and_regression_are_multiplied_and_tempered():
    """Computed by hand for a single leaf and a regression with only a bias."""
    tensor = torch.tensor
    shares = tensor([[0.5, 0.2, 0.1, 0.1, 0.1]])
    leaf = estimators.Trees(
        tensor([-1]), tensor([0.0]), tensor([0]), tensor([0]), shares.log(), tensor([0]), torch.zeros(5), 1
    )
    bias = tensor([0.0, 1.0, 0.0, 0.0, 0.0])
    line = estimators.Softmax(*(part.double() for part in (torch.zeros(2), torch.ones(2), torch.zeros(5, 2), bias)))
    said = PatternClassifier(leaf, line, 2.0).of_features(torch.zeros(1, 2))[0]
    expected = (shares[0] * bias.softmax(0) ** 0.5) ** 0.5
    np.testing.assert_allclose(said.numpy(), (expected / expected.sum()).numpy(), atol=1e-6)


def test_every_head_has_the_same_weight_in_the_errors():
    """The first head has three annotated maps, the second head one."""
    block = np.eye(5)[CLASSES.index("block")]
    rows = [("m/1/1", block), ("m/1/1", np.full(5, 0.2)), ("m/1/1", np.full(5, 0.2)), ("m/1/2", block)]
    report = of_rows([{"head": h, "labels": ["block"], "probabilities": p.tolist()} for h, p in rows])
    np.testing.assert_allclose(held_out_errors(report, "special"), [2 / 3 * (block - 0.2), np.zeros(5)], atol=1e-12)


def test_a_map_that_readers_classify_differently_counts_as_the_mean_of_their_labels():
    row = {"head": "m/1/1", "labels": ["block", "diagonal"], "probabilities": [0.2] * 5}
    both = np.eye(5)[[CLASSES.index("block"), CLASSES.index("diagonal")]].mean(0)
    np.testing.assert_allclose(held_out_errors(of_rows([row]), "special"), [both - 0.2])


def test_damaged_weights_are_refused(tmp_path):
    folder = Path(shutil.copytree(SHIPPED_FOLDER, tmp_path / "weights"))
    weights = weights_path(folder, "special")
    data = bytearray(weights.read_bytes())
    data[-5] ^= 1
    weights.write_bytes(data)
    with pytest.raises(UserError, match="does not match the report.json next to it"):
        PatternClassifier.load(folder, "special")
    (folder / REPORT_FILE).write_text("{}", encoding="utf-8")
    with pytest.raises(UserError, match="is not a training report"):
        PatternClassifier.load(folder, "special")


def test_weights_of_other_features_are_refused(monkeypatch):
    monkeypatch.setattr("bertsecrets.patterns.classifier.feature_names", lambda: ("another",))
    with pytest.raises(UserError, match="features or classes of another version"):
        PatternClassifier.load(SHIPPED_FOLDER, "special")


def of_rows(rows):
    return {"readings": {"special": {"held_out": rows}}}


@pytest.mark.parametrize(
    "rows",
    [
        [],
        [{"labels": ["block"], "predicted": "block"}],
        *([{"head": "m/1/1", "labels": ["block"], "probabilities": wrong}] for wrong in ([0.5] * 4, [None] * 5, 1.0)),
    ],
)
def test_a_report_without_head_labels_or_probabilities_is_refused(rows):
    with pytest.raises(UserError, match="whose head, labels or probabilities are missing or invalid"):
        held_out_errors(of_rows(rows), "special")


def recorded(head, label, predicted):
    labels = label.split()
    return {"kin": head, "head": head, "labels": labels, "predicted": predicted, "probabilities": [0.2] * 5}


def test_the_quality_follows_from_the_recorded_predictions_by_hand():
    """Two heads with two maps each. Readers disagree about one map, which counts as the first reader's class."""
    rows = [
        recorded("m/1/2", "block block", "block"),
        recorded("m/1/2", "diagonal block", "block"),
        recorded("m/1/1", "block block", "block"),
        recorded("m/1/1", "diagonal diagonal", "diagonal"),
    ]
    unseen = np.diag([3, 1, 0, 0, 0])
    unseen[0, 1] = 4
    part = {
        "held_out": rows,
        "readers": {"single_macro_f1": 0.7, "readers_macro_f1": 0.8},
        "unseen_confusion": unseen.tolist(),
    }
    values, samples = recorded_quality({"readings": {"special": part, "stripes": {**part, "readers": {}}}})
    block, diagonal = CLASSES.index("block"), CLASSES.index("diagonal")
    first, second = samples["special_confusion"]  # in the order of the heads' names
    assert (first[block, block], first[diagonal, diagonal], first.sum()) == (1, 1, 2)
    assert (second[block, block], second[diagonal, block], second.sum()) == (1, 1, 2)
    assert samples["special_agreed_confusion"].sum((1, 2)).tolist() == [2, 1]
    assert values["special_macro_f1"] == pytest.approx((4 / 5 + 2 / 3) / 2)
    assert (values["special_accuracy"], values["special_agreed_macro_f1"]) == (0.75, 1)
    assert values["special_unseen_macro_f1"] == pytest.approx((6 / 10 + 2 / 6) / 2)
    counts = ("maps", "heads", "special_agreed_maps", "special_unseen_maps")
    assert [values[name] for name in counts] == [4, 2, 3, 8]
    assert (values["special_single_macro_f1"], values["special_readers_macro_f1"]) == (0.7, 0.8)
    assert "stripes_single_macro_f1" not in values


@pytest.mark.parametrize("harm", [{"kin": None}, {"predicted": "square"}, {"labels": []}], ids=str)
def test_a_record_without_head_labels_or_prediction_is_refused(harm):
    report = copy.deepcopy(read_report(SHIPPED_FOLDER))
    for name, value in harm.items():
        row = report["readings"]["special"]["held_out"][5]
        if value is None:
            del row[name]
        else:
            row[name] = value
    with pytest.raises(UserError, match=r"report\.json has no valid record of the cross-validation"):
        recorded_quality(report)


def test_the_classifiers_are_applied_and_judged_without_scikit_learn_and_annotated_maps(tmp_path):
    process = started(
        """
        import os, sys
        sys.modules["sklearn"] = sys.modules["PIL"] = None
        import torch
        from bertsecrets import Session
        from bertsecrets.patterns.classifier import PatternClassifier, chosen_folder
        from bertsecrets.patterns.features.feature_table import features
        from bertsecrets.patterns.map_stack import MapStack
        column = torch.zeros(1, 12, 12)
        column[..., 0] = 1
        table = features(MapStack(column, torch.tensor([12]), torch.tensor([7])))
        print(int(PatternClassifier.load(chosen_folder(), "special").of_features(table).argmax()))
        session = Session(store=os.environ["STORE"], device="cpu", offline=True)
        print(session.missing("pattern-quality", "all"))
        print(round(session.measure("pattern-quality").value("special_macro_f1"), 4))
        """,
        STORE=str(tmp_path / "runs"),
        BERTSECRETS_MAPS=str(tmp_path / "nowhere"),
    )
    output, errors = process.communicate()
    recorded = report_of(read_report(SHIPPED_FOLDER), "special")["classifiers"]["bertsecrets"]["macro_f1"]
    assert output.split() == ["0", "None", str(round(recorded, 4))], errors  # 0: vertical
