"""`classify` classifies arbitrary maps under each reading and refuses invalid files in one line."""

import json

import numpy as np
import pytest
import torch
from calls import run, told
from patterned import pattern_set

from bertsecrets.patterns.classes import CLASSES
from bertsecrets.patterns.classifier import SHIPPED_FOLDER, PatternClassifier
from bertsecrets.patterns.readings import READINGS
from instruments.__main__ import main
from instruments.annotation.map_set import UNSEEN, MapSet, own_maps
from instruments.classifiers.crossval import LabelledMaps

CALL = ("instruments", "classify")


def arrays(maps):
    tokens = max(attention_map.tokens for attention_map in maps)
    padded = np.zeros((len(maps), tokens, tokens), dtype=np.float32)
    for place, attention_map in zip(padded, maps, strict=True):
        place[: attention_map.tokens, : attention_map.tokens] = attention_map.values
    return {
        "maps": padded,
        "lengths": np.array([attention_map.tokens for attention_map in maps]),
        "boundary": np.array([attention_map.boundary for attention_map in maps]),
    }


def test_the_class_of_a_map_does_not_depend_on_the_other_maps(tmp_path, capsys):
    """The unseen encoder's maps, padded to one size, are classified as without padding and in the order of the file."""
    maps = MapSet.load(own_maps(UNSEEN)).take(range(40))
    given = arrays(maps)
    np.savez_compressed(tmp_path / "maps.npz", **given | {"maps": given["maps"].astype(np.float16)})
    assert "40 maps" in run(capsys, *CALL, tmp_path / "maps.npz", "--json", tmp_path / "x.json")
    answers = json.loads((tmp_path / "x.json").read_text())
    table = LabelledMaps.of(maps).table
    for reading in READINGS:
        said = PatternClassifier.load(SHIPPED_FOLDER, reading).of_features(torch.from_numpy(table)).numpy()
        assert [answer[reading]["class"] for answer in answers] == [CLASSES[place] for place in said.argmax(1)]
        shares = [[answer[reading]["probabilities"][name] for name in CLASSES] for answer in answers]
        np.testing.assert_allclose(shares, said, atol=1e-5)


def test_causal_maps_are_classified_with_a_remark(tmp_path, capsys):
    lower = np.tril(np.ones((1, 9, 9)))
    np.savez(tmp_path / "m.npz", maps=lower / lower.sum(2, keepdims=True), lengths=[9], boundary=[9])
    assert main(["classify", str(tmp_path / "m.npz"), "--json", str(tmp_path / "x.json")]) == 0
    assert "1 of the maps are causal" in capsys.readouterr().err
    assert set(json.loads((tmp_path / "x.json").read_text())[0]) == set(READINGS)


def changed(name, change):
    def harm(given):
        array = given[name].copy()
        given[name] = array if (new := change(array)) is None else new

    return harm


def cell(value):
    def change(maps):
        maps[1, 2, 3] = value

    return changed("maps", change)


HARMS = {
    "sum": (cell(0.9), "map 1: row 2 sums to 1"),
    "nan": (cell(np.nan), "map 1 has a weight that is not a number in row 2"),
    "negative": (cell(-0.5), "map 1 has a negative weight in row 2"),
    "too long": (changed("lengths", lambda a: a + 99), "map 0 has the length 1"),
    "too short": (changed("lengths", lambda a: a * 0), "map 0 has the length 0: give 2 to"),
    "boundary 0": (changed("boundary", lambda a: a * 0), "map 0 has the boundary 0: give 1 to"),
    "no maps": (lambda given: given.pop("maps"), "has no array 'maps'"),
    "pickled": (changed("lengths", lambda a: a.astype(object)), "lengths cannot be read"),
    "flat": (changed("maps", lambda a: a[0]), "has the shape (13, 13)"),
    "empty": (lambda given: given.update({name: array[:0] for name, array in given.items()}), "is empty"),
    "broken lengths": (changed("lengths", lambda a: a + 0.5), "instead of whole numbers [6]"),
    "behind the end": (changed("lengths", lambda a: a - 1), "map 0: row 0 sums to"),
    "padding": (lambda given: given["maps"].__setitem__((0, 12, 12), 0.5), "map 0 has weights beyond its length, 10"),
}


@pytest.mark.parametrize("harm", HARMS)
def test_a_damaged_file_is_refused_in_one_line(tmp_path, capsys, harm):
    given = arrays(pattern_set(6))
    change, message = HARMS[harm]
    change(given)
    np.savez(tmp_path / "m.npz", **given)
    assert message in told(capsys, *CALL, tmp_path / "m.npz", "--json", tmp_path / "x.json")
    assert not (tmp_path / "x.json").exists()


@pytest.mark.parametrize("content", [b"", b"PK\x03\x04", b"maps", None])
def test_a_file_that_is_not_an_archive_is_refused_in_one_line(tmp_path, capsys, content):
    if content is not None:
        (tmp_path / "m.npz").write_bytes(content)
    assert "give an .npz file with the arrays maps" in told(capsys, *CALL, tmp_path / "m.npz")
