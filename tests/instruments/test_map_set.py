"""Sets of annotated maps: round trips, errors with line numbers, and the contents of the suite's own set."""

import sys
from dataclasses import replace
from pathlib import Path

import numpy as np
import pytest
from calls import told
from patterned import pattern_map, pattern_set, relabelled, save_read

from bertsecrets.errors import UserError
from bertsecrets.patterns.classifier import SHIPPED_FOLDER, read_report, report_of
from bertsecrets.patterns.readings import READINGS
from instruments.annotation.agreement import label_agreement
from instruments.annotation.map_set import (
    ANNOTATIONS,
    MAPS,
    UNSEEN,
    VARIABLE,
    MapSet,
    fingerprint,
    own_maps,
    read_plain_words,
    shards,
    under,
)
from instruments.annotation.writing import add_draw, save_set
from instruments.classify import predicted_classes


@pytest.fixture
def saved(tmp_path) -> Path:
    save_set(relabelled(pattern_set(), {"tiny_1": "block"}, second=True), tmp_path / "set")
    return tmp_path / "set"


def corrupt(folder: Path, line: int, column: int, text: str) -> None:
    path = folder / ANNOTATIONS
    lines = path.read_text().splitlines()
    fields = lines[line - 1].split("\t")
    fields[column] = text
    lines[line - 1] = "\t".join(fields)
    path.write_text("\n".join(lines) + "\n")


def test_a_set_comes_back_as_it_was_saved(saved):
    made, loaded = pattern_set(), MapSet.load(saved)
    assert loaded.labels == made.labels
    assert loaded.of_annotator(1) == (None, "block", *[None] * 8)
    for one, other in zip(loaded, made, strict=True):
        assert replace(one, values=other.values) == replace(other, values=other.values)
        np.testing.assert_array_equal(one.values, other.values)
        assert one.values.dtype == np.float16
    save_set(loaded, saved.parent / "again")
    for name in (MAPS, ANNOTATIONS):
        assert (saved / name).read_bytes() == (saved.parent / "again" / name).read_bytes()


def test_rows_may_be_sorted_by_hand(saved):
    expected = fingerprint(MapSet.load(saved).take(range(9, -1, -1)))
    header, *rows = (saved / ANNOTATIONS).read_text().splitlines()
    (saved / ANNOTATIONS).write_text("\n".join([header, *reversed(rows)]) + "\n")
    assert fingerprint(MapSet.load(saved)) == expected


def test_heads_group_across_checkpoints_and_unknown_heads_stand_alone():
    one, other = pattern_map(5), replace(pattern_map(5), task="mrpc", state="pretrained")
    assert one.group == other.group == ("tiny", 2, 2)
    assert replace(one, layer=0, head=0).group != replace(one, name="x", layer=0, head=0).group


def test_kin_share_heads():
    """The six-layer models have every other layer of the 12-layer model; the three-layer model has layers 4, 8, 12."""
    small, judge = (replace(pattern_map(5), model=model, layer=4) for model in ("minilm", "aegis-judge"))
    large = replace(pattern_map(5), model="aegis-router", layer=7)
    assert small.group == judge.group == large.group == ("minilm-l12", 7, small.head)
    assert replace(large, model="paraphrase-minilm-l3", layer=2).group == replace(large, layer=8).group


def test_agreed_maps_have_four_equal_labels_of_five():
    votes = [(), ("block",), ("block", "vertical"), ("block",) * 3, ("block", "block", "vertical")]
    votes += [(*("block",) * 4, "vertical"), (*("block",) * 3, "vertical", "diagonal")]
    maps = MapSet(tuple(map(pattern_map, range(7))), tuple(votes))
    assert maps.agreed == [False, True, False, True, False, True, False]


def test_most_annotators_settle_a_label_and_the_first_where_all_differ(tmp_path):
    votes = [
        ("block",), (), ("block", "diagonal", "diagonal"),
        ("block", "diagonal"), ("block", "diagonal", "vertical"), (None, "diagonal", "vertical"),
        ("block", "block", "vertical"), ("block", "block", "vertical", "vertical", "vertical"),
        ("block", "diagonal", "vertical", "vertical"), ("block", "diagonal", "diagonal", "block"),
    ]  # fmt: skip
    maps = MapSet(tuple(map(pattern_map, range(len(votes)))), tuple(votes))
    save_set(maps, tmp_path / "set")
    settled = MapSet.load(tmp_path / "set").settled()
    assert settled.labels == (
        "block", None, "diagonal", "block", "block", "diagonal", "block", "vertical", "vertical", "block",
    )  # fmt: skip
    assert max(map(len, settled.given)) == 1


@pytest.mark.parametrize(
    ("column", "text", "message"),
    [
        (9, "vertcal", "line 3: unknown label 'vertcal'; expected one of vertical"),
        (3, "trained", "line 3: unknown state 'trained'"),
        (4, "-1", "line 3: layer '-1' is not a whole number"),
        (7, "9", "line 3: 9 tokens, but its map has 11"),
        (8, "0", "line 3: boundary 0 is outside 1 to 11"),
        (8, "12", "line 3: boundary 12 is outside 1 to 11"),
        (0, "tiny_0", "line 3: map 'tiny_0' does not exist or already has a row"),
        (11, "y", "line 3: unknown third label 'y'"),
        (12, "block blok", "line 3: unknown further labels 'blok'"),
        (12, "\tx", "line 3: expected 13 fields, found 14"),
    ],
)
def test_a_wrong_field_is_named_with_its_line(saved, column, text, message):
    corrupt(saved, 3, column, text)
    with pytest.raises(UserError, match=message):
        MapSet.load(saved)


def test_a_missing_row_header_or_file_is_named(saved):
    path = saved / ANNOTATIONS
    lines = path.read_text().splitlines()
    path.write_text("\n".join(lines[:-1]) + "\n")
    with pytest.raises(UserError, match="no row for 'tiny_9'"):
        MapSet.load(saved)
    path.write_text("\n".join(lines[1:]) + "\n")
    with pytest.raises(UserError, match="line 1: expected the tab-separated columns name, model"):
        MapSet.load(saved)
    path.write_bytes(b"\xff")
    with pytest.raises(UserError, match="not UTF-8"):
        MapSet.load(saved)
    path.unlink()
    with pytest.raises(UserError, match="cannot read"):
        MapSet.load(saved)
    (saved / MAPS).unlink()
    with pytest.raises(UserError, match="no maps in"):
        MapSet.load(saved)


def test_saving_replaces_a_set_but_no_other_files(saved):
    save_set(pattern_set(3), saved)
    assert len(MapSet.load(saved)) == 3
    (saved / "notes.txt").write_text("mine")
    with pytest.raises(UserError, match="contains other files \\(notes.txt\\)"):
        save_set(pattern_set(4), saved)
    assert len(MapSet.load(saved)) == 3
    (saved / "notes.txt").unlink()
    (saved / MAPS).unlink()
    with pytest.raises(UserError, match="contains other files"):  # labels whose maps are missing are not overwritten
        save_set(pattern_set(4), saved)


# ---------------------------------------------------------------------- the suite's own set


@pytest.mark.xfail(strict=True, reason="macro-F1 .788 against .814 between readers, and .758 against .780")
@pytest.mark.parametrize("reading", READINGS)
def test_classifiers_come_as_near_to_a_reader_as_another_reader_does(reading):
    """The tolerance is .02 of macro-F1."""
    readers = report_of(read_report(SHIPPED_FOLDER), reading)["readers"]
    assert readers["single_macro_f1"] >= readers["readers_macro_f1"] - 0.02


@pytest.mark.slow
@pytest.mark.parametrize("reading", READINGS)
def test_classifiers_agree_with_readers_on_an_encoder_that_they_have_not_seen(reading):
    """The mean kappa with readers may be at most .05 below Cohen's kappa between two readers."""
    read = under(MapSet.load(own_maps(UNSEEN)), read_plain_words(own_maps(UNSEEN)), reading)
    predicted = predicted_classes(MapSet.load(own_maps(UNSEEN)))[reading]
    with_each_other = label_agreement(read.labels, read.of_annotator(1)).kappa
    with_readers = [label_agreement(labels, predicted).kappa for labels in (read.labels, read.of_annotator(1))]
    assert np.mean(with_readers) >= with_each_other - 0.05


def test_the_maps_are_those_and_in_that_order_on_which_the_classifier_was_trained():
    """Fingerprints cover names, values, labels and groups.

    The order is that of the single file that contained all maps before each draw had its own file.
    """
    expected = {
        "": "f28233636ef31ea42a0e3a0c1ec0366aefbb690a2eda14ac525e7dc9432f61a0",
        UNSEEN: "c9dde36a2931fe240602be5505e010c2f5f3ba87793209942d415f80d73467a2",
    }
    assert {part: fingerprint(MapSet.load(own_maps(part))) for part in expected} == expected


def test_a_further_draw_rewrites_no_map(tmp_path):
    whole = pattern_set(10)
    save_set(whole.take(range(6)), tmp_path)
    first = (tmp_path / MAPS).read_bytes()
    assert add_draw(tmp_path, whole.take(range(6, 10))).name == "maps-0002.npz"
    assert (tmp_path / MAPS).read_bytes() == first
    assert [path.name for path in shards(tmp_path)] == ["maps-0001.npz", "maps-0002.npz"]
    loaded = MapSet.load(tmp_path)
    assert [head_map.name for head_map in loaded] == [head_map.name for head_map in whole]
    assert loaded.labels == whole.labels


def test_a_fingerprint_does_not_depend_on_how_maps_are_cut_into_files(tmp_path):
    whole = pattern_set(10)
    save_set(whole, tmp_path / "one")
    save_set(whole.take(range(3)), tmp_path / "three")
    add_draw(tmp_path / "three", whole.take([3]))
    add_draw(tmp_path / "three", whole.take(range(4, 10)))
    digests = {fingerprint(MapSet.load(tmp_path / name)) for name in ("one", "three")}
    assert digests == {fingerprint(whole)}
    assert fingerprint(whole.take(range(9))) not in digests
    assert fingerprint(whole.take([1, 0, *range(2, 10)])) not in digests
    assert fingerprint(relabelled(whole, {"tiny_0": "block"})) not in digests


def test_a_name_that_is_taken_is_refused_and_nothing_is_written(tmp_path):
    save_set(pattern_set(4), tmp_path)
    for maps in (MapSet((pattern_map(3), pattern_map(9))), MapSet((pattern_map(3), pattern_map(3)))):
        with pytest.raises(UserError, match="two maps are called 'tiny_3'"):
            add_draw(tmp_path, maps)
    assert len(shards(tmp_path)) == 1
    (tmp_path / "maps-0002.npz").write_bytes((tmp_path / MAPS).read_bytes())
    with pytest.raises(UserError, match="maps-0002.npz has a map 'tiny_0' that is also in another file"):
        MapSet.load(tmp_path)


def test_missing_maps_are_one_line_that_says_how_to_get_them(tmp_path, monkeypatch, capsys):
    monkeypatch.setenv(VARIABLE, str(tmp_path / "nowhere"))
    monkeypatch.chdir(tmp_path)
    line = told(capsys, "instruments", "train-patterns")
    assert f"annotated maps are not in {tmp_path / 'nowhere'}" in line
    assert "dvc pull data/patterns.dvc" in line
    assert "set BERTSECRETS_MAPS to their folder" in line


@pytest.mark.parametrize(
    ("module", "name", "command"),
    [
        ("sklearn.model_selection", "scikit-learn", "train-patterns --cnn-epochs 0 --data set --output out"),
        ("PIL", "pillow", "sheets set out"),
    ],
)
def test_features_of_an_extra_name_it_in_one_line(module, name, command, tmp_path, monkeypatch, capsys):
    save_read(pattern_set(60), tmp_path / "set")
    monkeypatch.chdir(tmp_path)
    monkeypatch.setitem(sys.modules, module, None)
    monkeypatch.delitem(sys.modules, "instruments.annotation.pictures", raising=False)
    line = told(capsys, "instruments", *command.split())
    assert f'needs {name}, which is not installed: pip install "bertsecrets[dev]"' in line
