"""`train-patterns`: training that repeats itself, a report of what shares are worth, files that prove themselves."""

import json

import numpy as np
import pytest
from patterned import pattern_set, shorten

from bertsecrets.cli.main import main
from bertsecrets.errors import UserError
from bertsecrets.patterns.annotation.map_set import MapSet, own_maps
from bertsecrets.patterns.classes import CLASSES
from bertsecrets.patterns.classifier import REPORT, SHIPPED, WEIGHTS, PatternClassifier, held_out_errors, read_report
from bertsecrets.patterns.map_stack import MapStack
from bertsecrets.patterns.training.crossval import OnFeatures
from bertsecrets.patterns.training.dataset import LabelledMaps
from bertsecrets.patterns.training.train import annotations_fingerprint, train_patterns


@pytest.fixture
def brief(monkeypatch):
    """Short training, for one test."""
    shorten(monkeypatch)


@pytest.fixture(scope="module")
def trained(tmp_path_factory):
    """A folder of weights and report, trained on plain maps without the paper's classifier, and the data's folder."""
    room = tmp_path_factory.mktemp("patterns")
    pattern_set(40).save(room / "data")
    with pytest.MonkeyPatch.context() as patch:
        shorten(patch)
        train_patterns(room / "data", room / "made", None)
    return room


def test_whoever_changes_any_label_changes_the_fingerprint(trained, tmp_path):
    """Also a second label that leaves the settled ones as they are: it decides what is agreed on."""
    first = annotations_fingerprint(trained / "data")
    maps = MapSet.load(trained / "data")
    maps.relabelled({maps[0].name: maps.labels[0]}, second=True).save(tmp_path / "data")
    again = MapSet.load(tmp_path / "data")
    assert again.settled().labels == maps.settled().labels
    assert annotations_fingerprint(tmp_path / "data") != first


def test_training_twice_gives_the_same_file(trained, brief, tmp_path):
    train_patterns(trained / "data", tmp_path / "again", None)
    assert (tmp_path / "again" / WEIGHTS).read_bytes() == (trained / "made" / WEIGHTS).read_bytes()
    one, other = (read_report(folder) for folder in (trained / "made", tmp_path / "again"))
    assert {**one, "seconds": None} == {**other, "seconds": None}


def test_saved_weights_say_the_same(trained):
    maps = LabelledMaps.of_set(pattern_set(20))
    classifier = PatternClassifier.load(trained / "made")
    said = OnFeatures(classifier.of_features).probabilities(maps)
    assert (said.argmax(1) == maps.labels).mean() > 0.9
    whole = MapStack.of(list(maps.maps), maps.boundary.tolist())
    np.testing.assert_allclose(classifier.of_maps(whole).numpy(), said, atol=1e-5)


def test_the_report_has_the_confusions(trained):
    report = read_report(trained / "made")
    assert np.sum(report["classifiers"]["bertsecrets"]["confusion"]) == report["maps"] == len(report["held_out"]) == 40
    assert sum(report["classes"].values()) == 40
    assert report["models"] == {"tiny": report["models"]["tiny"]}
    assert report["models"]["tiny"]["maps"] == 40
    assert report["models"]["tiny"]["macro_f1"] == report["classifiers"]["bertsecrets"]["macro_f1"]


def test_the_report_says_what_shares_are_worth(trained):
    shares = read_report(trained / "made")["shares"]
    assert (shares["heads"], shares["models"]) == (8, 400)  # a fifth of 40
    assert all(0 <= share <= 1 for share in shares["covers"].values())


def test_every_head_weighs_alike_in_the_errors():
    """However many of its maps were annotated: three of the first head, one of the second."""
    block = np.eye(5)[CLASSES.index("block")]
    rows = [("m/1/1", block), ("m/1/1", np.full(5, 0.2)), ("m/1/1", np.full(5, 0.2)), ("m/1/2", block)]
    report = {"held_out": [{"head": h, "label": "block", "probabilities": p.tolist()} for h, p in rows]}
    np.testing.assert_allclose(held_out_errors(report), [2 / 3 * (block - 0.2), np.zeros(5)], atol=1e-12)


@pytest.mark.parametrize("harm", ["flip", "cut", "gone", "no report", "other report", "json"])
def test_weights_that_were_tampered_with_are_one_line(trained, tmp_path, harm):
    folder = tmp_path / "weights"
    folder.mkdir()
    for name in (WEIGHTS, REPORT):
        (folder / name).write_bytes((trained / "made" / name).read_bytes())
    data = bytearray((folder / WEIGHTS).read_bytes())
    if harm == "flip":
        data[-5] ^= 1
        (folder / WEIGHTS).write_bytes(data)
    elif harm == "cut":
        (folder / WEIGHTS).write_bytes(data[: len(data) // 2])
    elif harm == "gone":
        (folder / WEIGHTS).unlink()
    elif harm == "no report":
        (folder / REPORT).unlink()
    else:
        (folder / REPORT).write_text("{}" if harm == "other report" else "{", encoding="utf-8")
    with pytest.raises(UserError) as error:
        PatternClassifier.load(folder)
    assert "\n" not in str(error.value)


def test_weights_of_other_features_are_refused(trained, tmp_path, monkeypatch):
    monkeypatch.setattr("bertsecrets.patterns.classifier.feature_names", lambda: ("another",))
    with pytest.raises(UserError, match="other features"):
        PatternClassifier.load(trained / "made")


def test_the_shipped_weights_were_trained_on_the_shipped_labels():
    """Whoever changes labels trains again: bertsecrets train-patterns --output bertsecrets/patterns/weights."""
    report = read_report(SHIPPED)
    assert report["data"] == annotations_fingerprint()
    errors = held_out_errors(report)
    assert len(errors) == len({(each.model, each.layer, each.head) for each in MapSet.load(own_maps())})
    assert len({row["kin"] for row in report["held_out"]}) == report["heads"]
    np.testing.assert_allclose(errors.sum(1), 0, atol=1e-3)  # of rounding
    PatternClassifier.load(SHIPPED)


@pytest.mark.parametrize("said", [[0.5] * 4, [None] * 5, 1.0])
def test_a_report_whose_probabilities_are_none_is_refused(said):
    with pytest.raises(UserError, match="without head, class or probabilities"):
        held_out_errors({"held_out": [{"head": "m/1/1", "label": "block", "probabilities": said}]})
    with pytest.raises(UserError, match="without head, class or probabilities"):
        held_out_errors({"held_out": []})


def test_a_report_without_heads_is_refused():
    with pytest.raises(UserError, match="without head, class or probabilities"):
        held_out_errors({"held_out": [{"label": "block", "predicted": "block"}]})


def test_the_command_writes_weights_and_shows_the_table(trained, brief, tmp_path, capsys):
    output = tmp_path / "made"
    argv = ["train-patterns", "--data", str(trained / "data"), "--output", str(output), "--cnn-epochs", "0"]
    assert main(argv) == 0
    shown = capsys.readouterr().out
    assert "macro-F1" in shown
    assert "features-logistic" in shown
    assert json.loads((output / REPORT).read_text())["cnn"] is None


def test_a_folder_with_other_files_is_not_overwritten(trained, brief, tmp_path, capsys):
    mine = tmp_path / REPORT
    mine.write_text("mine")
    for output, message in ((tmp_path, "holds other files"), (mine, "a file stands where")):
        argv = ["train-patterns", "--data", str(trained / "data"), "--output", str(output), "--cnn-epochs", "0"]
        assert main(argv) == 2
        assert message in capsys.readouterr().err
        assert mine.read_text() == "mine"


def test_nothing_labelled_is_said(tmp_path, capsys):
    pattern_set(10, labelled=False).save(tmp_path / "data")
    assert main(["train-patterns", "--data", str(tmp_path / "data"), "--output", str(tmp_path / "made")]) == 2
    assert "no map is labelled" in capsys.readouterr().err


def test_an_impossible_number_of_epochs_is_said(capsys):
    assert main(["train-patterns", "--cnn-epochs", "-1"]) == 2
    assert "--cnn-epochs -1" in capsys.readouterr().err
