"""`train-patterns`: reproducible training, a report with the errors of class shares, and verified weights."""

import contextlib
import json

import numpy as np
import pytest
from patterned import pattern_map, pattern_set, save_read, shorten

from bertsecrets.cli.main import main
from bertsecrets.errors import UserError
from bertsecrets.lab.annotation.writing import save_set
from bertsecrets.lab.classifiers.train import left_out_errors, train_patterns
from bertsecrets.patterns.classes import CLASSES
from bertsecrets.patterns.classifier import (
    REPORT,
    SHIPPED,
    PatternClassifier,
    held_out_errors,
    read_report,
    readings_of,
    report_of,
    weights_path,
)
from bertsecrets.patterns.crossval import LabelledMaps, OnFeatures
from bertsecrets.patterns.fitting import TreesAndRegression
from bertsecrets.patterns.held_out import SEED, ReadMaps, annotations_fingerprint
from bertsecrets.patterns.map_set import MapSet
from bertsecrets.patterns.map_stack import MapStack
from bertsecrets.patterns.readings import READINGS


@pytest.fixture
def brief(monkeypatch):
    shorten(monkeypatch)


@pytest.fixture(scope="module")
def trained(tmp_path_factory):
    """A folder with data, and with weights and report trained on these plain maps without the paper's classifier."""
    room = tmp_path_factory.mktemp("patterns")
    save_read(pattern_set(40), room / "data")
    with pytest.MonkeyPatch.context() as patch:
        shorten(patch)
        train_patterns(room / "data", room / "made", None)
    return room


def test_another_reading_of_a_map_changes_the_fingerprint(trained, tmp_path):
    """Even if the settled classes stay the same: readings determine on which maps annotators agree."""
    save_read(pattern_set(40), tmp_path / "data", times=3)
    assert annotations_fingerprint(tmp_path / "data") != annotations_fingerprint(trained / "data")


def test_training_twice_gives_the_same_file(trained, brief, tmp_path):
    train_patterns(trained / "data", tmp_path / "again", None)
    folders = trained / "made", tmp_path / "again"
    for reading in READINGS:
        one, other = (weights_path(folder, reading).read_bytes() for folder in folders)
        assert one == other
        one, other = (report_of(read_report(folder), reading) for folder in folders)
        assert {**one, "seconds": None} == {**other, "seconds": None}


@pytest.mark.parametrize("reading", READINGS)
def test_saved_weights_predict_the_same(trained, reading):
    made = pattern_set(20)
    maps = LabelledMaps.of(made)
    classifier = PatternClassifier.load(trained / "made", reading)
    said = OnFeatures(classifier.of_features).probabilities(maps)
    assert (said.argmax(1) == maps.labels).mean() > 0.9
    whole = MapStack.of(list(maps.maps), [each.boundary for each in made])
    np.testing.assert_allclose(classifier.of_maps(whole).numpy(), said, atol=1e-5)


@pytest.mark.parametrize("reading", READINGS)
def test_the_report_counts_every_map(trained, reading):
    report = report_of(read_report(trained / "made"), reading)
    assert np.sum(report["classifiers"]["bertsecrets"]["confusion"]) == report["maps"] == len(report["held_out"]) == 40
    assert sum(report["classes"].values()) == 40
    assert report["models"] == {"tiny": report["models"]["tiny"]}
    assert report["models"]["tiny"]["maps"] == 40
    assert report["models"]["tiny"]["macro_f1"] == report["classifiers"]["bertsecrets"]["macro_f1"]
    assert (report["shares"]["heads"], report["shares"]["models"]) == (8, 40)  # a fifth of 40
    assert all(0 <= share <= 1 for share in report["shares"]["covers"].values())


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


def test_the_error_on_an_encoder_is_that_of_a_classifier_trained_on_the_others(brief):
    """The encoder `odd` has only vertical maps, and its readers label every second one heterogeneous."""
    plain, odd = pattern_set(40), [pattern_map(number, model="odd") for number in range(8)]
    labels = [*plain.labels, *(["vertical", "heterogeneous"] * 4)]
    maps = MapSet((*plain, *odd), tuple(labels))
    by_model = left_out_errors(ReadMaps(LabelledMaps.of(maps), maps, {}))
    assert set(by_model) == {"tiny", "odd"}
    places = np.arange(len(maps))
    trained = TreesAndRegression().fit(LabelledMaps.of(maps).to_learn(places[:40]), SEED)
    said = trained.probabilities(LabelledMaps.of(maps).take(places[40:])).mean(0)  # one map per head
    np.testing.assert_allclose(by_model["odd"], [0.5, 0, 0, 0, 0.5] - said, atol=1e-4)
    assert by_model["odd"][CLASSES.index("heterogeneous")] > 0.3  # the classifier takes these for vertical as well
    assert not left_out_errors(ReadMaps(LabelledMaps.of(plain), plain, {}))  # no other model to train on


@pytest.mark.parametrize("harm", ["flip", "cut", "gone", "no report", "other report", "json"])
def test_damaged_weights_are_refused_in_one_line(trained, tmp_path, harm):
    folder = tmp_path / "weights"
    folder.mkdir()
    weights = weights_path(folder, "special")
    for name in (weights.name, REPORT):
        (folder / name).write_bytes((trained / "made" / name).read_bytes())
    data = bytearray(weights.read_bytes())
    if harm == "flip":
        data[-5] ^= 1
        weights.write_bytes(data)
    elif harm == "cut":
        weights.write_bytes(data[: len(data) // 2])
    elif harm == "gone":
        weights.unlink()
    elif harm == "no report":
        (folder / REPORT).unlink()
    else:
        (folder / REPORT).write_text("{}" if harm == "other report" else "{", encoding="utf-8")
    with pytest.raises(UserError) as error:
        PatternClassifier.load(folder, "special")
    assert "\n" not in str(error.value)


def test_weights_of_other_features_are_refused(trained, tmp_path, monkeypatch):
    monkeypatch.setattr("bertsecrets.patterns.classifier.feature_names", lambda: ("another",))
    with pytest.raises(UserError, match="features or classes of another version"):
        PatternClassifier.load(trained / "made", "special")


def test_the_shipped_weights_were_trained_on_the_shipped_labels():
    """If the labels have changed, run bertsecrets lab train-patterns --output bertsecrets/patterns/weights."""
    report = read_report(SHIPPED)
    assert report["data"] == annotations_fingerprint()
    for reading in READINGS:
        part, errors = report_of(report, reading), held_out_errors(report, reading)
        assert len({row["kin"] for row in part["held_out"]}) == part["heads"]
        np.testing.assert_allclose(errors.sum(1), 0, atol=1e-3)  # rounding errors
        PatternClassifier.load(SHIPPED, reading)


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
    with pytest.raises(UserError, match="without head, labels or probabilities"):
        held_out_errors(of_rows(rows), "special")


@pytest.mark.slow
def test_third_party_labels_define_an_outside_reading(trained, brief, tmp_path):
    save_set(pattern_set(30), tmp_path / "theirs")
    train_patterns(trained / "data", tmp_path / "made", None, outside={"p20": tmp_path / "theirs"})
    report = read_report(tmp_path / "made")
    assert readings_of(report) == (*READINGS, "p20")
    assert report_of(report, "p20")["maps"] == 30
    assert report_of(report, "p20")["readers"] == {}
    PatternClassifier.load(tmp_path / "made", "p20")


@pytest.mark.parametrize("name", ["special", "../p20", "P 20", ""])
def test_names_that_cannot_be_outside_readings_are_refused(trained, tmp_path, name, capsys):
    argv = ["lab", "train-patterns", "--data", str(trained / "data"), "--outside", f"{name}={trained / 'data'}"]
    with contextlib.suppress(SystemExit):
        assert main([*argv, "--output", str(tmp_path / "made")]) == 2
    assert not (tmp_path / "made").exists()
    assert "outside" in capsys.readouterr().err


def test_the_command_writes_weights_and_shows_the_table(trained, brief, tmp_path, capsys):
    output = tmp_path / "made"
    argv = ["lab", "train-patterns", "--data", str(trained / "data"), "--output", str(output), "--cnn-epochs", "0"]
    assert main(argv) == 0
    shown = capsys.readouterr().out
    assert "macro-F1" in shown
    assert "features-logistic" in shown
    assert json.loads((output / REPORT).read_text())["cnn"] is None
    assert main([*argv[:-1], "-1"]) == 2
    assert "--cnn-epochs -1" in capsys.readouterr().err


def test_a_folder_with_other_files_is_not_overwritten(trained, brief, tmp_path, capsys):
    mine = tmp_path / REPORT
    mine.write_text("mine")
    for output, message in ((tmp_path, "contains other files"), (mine, "a file exists where")):
        argv = ["lab", "train-patterns", "--data", str(trained / "data"), "--output", str(output), "--cnn-epochs", "0"]
        assert main(argv) == 2
        assert message in capsys.readouterr().err
        assert mine.read_text() == "mine"


def test_a_set_without_labels_is_refused(tmp_path, capsys):
    save_set(pattern_set(10, labelled=False), tmp_path / "data")
    argv = ["lab", "train-patterns", "--output", str(tmp_path / "made")]
    assert main([*argv, "--data", str(tmp_path / "data")]) == 2
    assert "no plain-words.tsv" in capsys.readouterr().err
    save_read(pattern_set(40), tmp_path / "read")
    assert main([*argv, "--data", str(tmp_path / "read"), "--outside", f"mine={tmp_path / 'data'}"]) == 2
    assert "no map is labelled" in capsys.readouterr().err
