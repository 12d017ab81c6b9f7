"""`train-patterns`: reproducible training, a report with the errors of class shares, and verified weights."""

import tarfile
from dataclasses import replace
from itertools import islice

import numpy as np
import pytest
import torch
from calls import run, told
from measurements import judged, measured, of_id
from patterned import pattern_map, pattern_set, save_read, shorten, values

from bertsecrets.measures.patterns import PatternObserver
from bertsecrets.models.encoding import Batch
from bertsecrets.patterns.classes import CLASSES
from bertsecrets.patterns.classifier import (
    SHIPPED_FOLDER,
    PatternClassifier,
    held_out_errors,
    read_report,
    readings_of,
    report_of,
    weights_path,
)
from bertsecrets.patterns.features.feature_table import features
from bertsecrets.patterns.readings import AUTHORS, READINGS
from bertsecrets.patterns.recorded_quality import recorded_quality
from instruments.__main__ import main
from instruments.annotation.map_set import UNSEEN, MapSet, own_maps
from instruments.annotation.writing import save_set
from instruments.classifiers.crossval import HeldOut, LabelledMaps, on_features, training_folds
from instruments.classifiers.fitting import trees_and_regression, uncalibrated
from instruments.classifiers.held_out import SEED, ReadMaps, annotations_fingerprint, open_read, readers_quality
from instruments.classifiers.map_features import stack_maps
from instruments.classifiers.train import left_out_errors, train_patterns, unseen_confusion


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


def test_the_command_shows_the_table_and_writes_the_same_files_again(trained, brief, tmp_path, capsys):
    call = ("instruments", "train-patterns", "--data", trained / "data", "--output", tmp_path / "again", "--cnn-epochs")
    assert "features-logistic" in run(capsys, *call, 0)
    one, other = (read_report(folder) for folder in (trained / "made", tmp_path / "again"))
    assert one["cnn"] is other["cnn"] is None
    for reading in READINGS:
        assert {**report_of(one, reading), "seconds": None} == {**report_of(other, reading), "seconds": None}
        weights = (weights_path(folder, reading).read_bytes() for folder in (trained / "made", tmp_path / "again"))
        assert len({*weights}) == 1
    assert "--cnn-epochs -1" in told(capsys, *call, -1)


@pytest.mark.parametrize("reading", READINGS)
def test_saved_weights_predict_the_same(trained, reading):
    made = pattern_set(20)
    maps = LabelledMaps.of(made)
    classifier = PatternClassifier.load(trained / "made", reading)
    said = on_features(classifier.of_features)(maps)
    assert (said.argmax(1) == maps.labels).mean() > 0.9
    whole = stack_maps(list(maps.maps), [each.boundary for each in made])
    np.testing.assert_allclose(classifier.of_features(features(whole)).numpy(), said, atol=1e-5)


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


def test_the_error_on_an_encoder_is_that_of_a_classifier_trained_on_the_others(brief):
    """The encoder `odd` has only vertical maps, and its readers label every second one heterogeneous."""
    plain, odd = pattern_set(40), [pattern_map(number, model="odd") for number in range(8)]
    maps = MapSet((*plain, *odd), (*plain.given, *[("vertical",), ("heterogeneous",)] * 4))
    by_model = left_out_errors(ReadMaps(LabelledMaps.of(maps), maps, {}))
    assert set(by_model) == {"tiny", "odd"}
    places = np.arange(len(maps))
    trained = trees_and_regression(LabelledMaps.of(maps).to_learn(places[:40]), SEED)
    said = trained(LabelledMaps.of(maps).take(places[40:])).mean(0)  # one map per head
    np.testing.assert_allclose(by_model["odd"], [0.5, 0, 0, 0, 0.5] - said, atol=1e-4)
    assert by_model["odd"][CLASSES.index("heterogeneous")] > 0.3  # the classifier takes these for vertical as well
    assert not left_out_errors(ReadMaps(LabelledMaps.of(plain), plain, {}))  # no other model to train on


def test_the_shipped_weights_were_trained_on_the_shipped_labels():
    """If the labels change, run python -m instruments train-patterns --output bertsecrets/patterns/weights."""
    report = read_report(SHIPPED_FOLDER)
    assert report["data"] == annotations_fingerprint(own_maps())
    for reading in READINGS:
        part, errors = report_of(report, reading), held_out_errors(report, reading)
        assert len({row["kin"] for row in part["held_out"]}) == part["heads"]
        np.testing.assert_allclose(errors.sum(1), 0, atol=1e-3)  # rounding errors
        PatternClassifier.load(SHIPPED_FOLDER, reading)


def test_the_recorded_quality_is_that_of_a_fresh_cross_validation():
    """Claim A1 is judged from the record in the shipped report.

    For each reading, one fold is trained again and predicts the recorded classes. All other figures are computed again
    from the recorded classes, which are those of all folds.
    """
    report = read_report(SHIPPED_FOLDER)
    recorded, samples = recorded_quality(report)
    unseen = open_read(own_maps(UNSEEN))
    for place, (reading, read) in enumerate(open_read(own_maps()).items()):
        part = report_of(report, reading)
        rows = part["held_out"]
        classes = np.array([CLASSES.index(row["predicted"]) for row in rows])
        np.testing.assert_array_equal(np.argmax([row["probabilities"] for row in rows], axis=1), classes)
        train, held = next(islice(training_folds(read.maps, SEED, read.unsure_maps()), place, None))
        fresh = on_features(uncalibrated(train, SEED).of_features)(read.maps.take(held))
        np.testing.assert_array_equal(fresh.argmax(1), classes[held])
        every = HeldOut(read.maps.labels, read.maps.groups, read.maps.agreed, np.eye(len(CLASSES))[classes])
        np.testing.assert_array_equal(samples[f"{reading}_confusion"], every.confusions())
        np.testing.assert_array_equal(samples[f"{reading}_agreed_confusion"], every.confusions(agreed=True))
        assert part["classifiers"]["bertsecrets"]["confusion"] == every.confusions().sum(0).tolist()
        for name, score in readers_quality(read, every).items():
            assert recorded[f"{reading}_{name}"] == score
        classifier = PatternClassifier.load(SHIPPED_FOLDER, reading)
        assert part["unseen_confusion"] == unseen_confusion(classifier, unseen[reading])


def test_maps_chosen_for_doubt_train_the_classifier_and_evaluate_nothing(trained, brief, tmp_path):
    save_read(pattern_set(60), tmp_path / "data", unsure=20)
    train_patterns(tmp_path / "data", tmp_path / "made", None)
    for reading in READINGS:
        part, plain = (report_of(read_report(folder / "made"), reading) for folder in (tmp_path, trained))
        assert (part["maps"], part["unsure_maps"], plain["unsure_maps"]) == (40, 20, 0)
        assert [row["map"] for row in part["held_out"]] == [row["map"] for row in plain["held_out"]]
        assert part["readers"]["shares"] == plain["readers"]["shares"]
        assert part["weights_sha256"] != plain["weights_sha256"]


def test_an_encoder_that_is_not_learnt_from_is_recorded_if_there_is_one(trained, brief, tmp_path):
    assert "unseen_confusion" not in report_of(read_report(trained / "made"), "special")
    save_read(pattern_set(40), tmp_path / "data")
    save_read(pattern_set(15), tmp_path / "data" / UNSEEN)
    train_patterns(tmp_path / "data", tmp_path / "made", None)
    for reading in READINGS:
        recorded = np.array(report_of(read_report(tmp_path / "made"), reading)["unseen_confusion"])
        assert recorded.sum(1).tolist() == [3] * len(CLASSES)
        assert (
            weights_path(tmp_path / "made", reading).read_bytes()
            == weights_path(trained / "made", reading).read_bytes()
        )


@pytest.mark.slow
def test_the_authors_labels_of_an_archive_in_p20s_format_judge_bert_base(trained, brief, tmp_path, monkeypatch, capsys):
    """A generated archive goes through import and training to the classes by which BERT-base is judged."""
    raw = tmp_path / "head_classification_data" / "raw"
    raw.mkdir(parents=True)
    theirs = {"single_vertical": "vertical", "mix": "vertical-diagonal", "other": "heterogeneous"}
    theirs |= {"diagonal": "diagonal", "block": "block"}
    lines = []
    for place, (label, kind) in enumerate(theirs.items()):
        names = [f"{6 * place + number:04}" for number in range(6)]
        lines.append(f"{label} = {', '.join(names)}")
        for number, name in enumerate(names):
            np.save(raw / f"{name}.npy", values(kind, 10 + number, seed=number).astype(np.float32))
    (raw / "labels.txt").write_text("\n".join(lines))
    with tarfile.open(tmp_path / "data.tar.gz", "w:gz") as archive:
        archive.add(raw.parent, raw.parent.name)
    assert main(["import-patterns", str(tmp_path / "data.tar.gz"), str(tmp_path / "p20")]) == 0
    assert f"--outside k19={tmp_path / 'p20'}" in capsys.readouterr().out
    train_patterns(trained / "data", tmp_path / "made", None, outside={AUTHORS: tmp_path / "p20"})
    report = read_report(tmp_path / "made")
    assert readings_of(report) == (*READINGS, AUTHORS)
    assert (report_of(report, AUTHORS)["maps"], report_of(report, AUTHORS)["readers"]) == (30, {})
    classifier, errors = PatternClassifier.load(tmp_path / "made", AUTHORS), held_out_errors(report, AUTHORS)
    observer = PatternObserver(40, 1, 5, classifiers={AUTHORS: classifier}, errors={AUTHORS: errors}, separator=None)
    for row in range(40):  # each head of this model has one class
        maps = torch.tensor(np.stack([values(kind, 12, seed=row) for kind in CLASSES]), dtype=torch.float32)[None]
        ids, mask = torch.zeros(1, 12, dtype=torch.long), torch.ones(1, 12, dtype=torch.bool)
        batch = Batch(np.array([row]), ids, None, mask)
        observer.update(batch, 0, maps, None)
    found, samples = observer.compute()
    measurement = measured("patterns", found, samples)
    subject = replace(measurement.subject, model="bert-base-uncased")
    verdict = judged(of_id("A2-rte"), replace(measurement, subject=subject))
    assert verdict.case.claim.arguments["reading"] == AUTHORS
    assert verdict.observed == pytest.approx(20, abs=15)


@pytest.mark.parametrize("name", ["special", "../p20", ""])
def test_names_that_cannot_be_outside_readings_are_refused(trained, tmp_path, name, capsys):
    call = ("instruments", "train-patterns", "--data", trained / "data", "--output", tmp_path / "made")
    assert "outside" in told(capsys, *call, "--outside", f"{name}={trained / 'data'}")
    assert not (tmp_path / "made").exists()


def test_a_set_without_labels_is_refused(tmp_path, capsys):
    save_set(pattern_set(10, labelled=False), tmp_path / "data")
    call = ("instruments", "train-patterns", "--output", tmp_path / "made", "--data")
    assert "no plain-words.tsv" in told(capsys, *call, tmp_path / "data")
    save_read(pattern_set(40), tmp_path / "read")
    assert "no map is labelled" in told(capsys, *call, tmp_path / "read", "--outside", f"mine={tmp_path / 'data'}")


@pytest.mark.parametrize("classes", [1, 5])
def test_a_classifier_needs_enough_maps_of_two_classes(capsys, tmp_path, classes):
    maps = pattern_set(20)
    save_read(MapSet(maps.maps, tuple((CLASSES[number % classes],) for number in range(20))), tmp_path / "maps")
    line = told(capsys, "instruments", "train-patterns", "--data", tmp_path / "maps", "--output", tmp_path / "out")
    assert "5 folds need at least 5 maps in each of two classes" in line
