"""Pictures by class hold maps of that class; hard cases are those on which two annotators differ."""

import numpy as np
import pytest
from patterned import pattern_set, save_read
from PIL import Image

from bertsecrets.cli.main import main
from bertsecrets.errors import UserError
from bertsecrets.lab.annotation.gallery import EACH, HARD, hard_cases, write_gallery, write_predicted
from bertsecrets.patterns.classes import CLASSES
from bertsecrets.patterns.map_set import MapSet, own_maps
from bertsecrets.patterns.readings import READINGS


def twice_labelled(count: int = 40) -> MapSet:
    """Maps whose second labels differ on every fourth map."""
    made = pattern_set(count)
    others = {each.name: made.labels[i] if i % 4 else made.labels[(i + 1) % count] for i, each in enumerate(made)}
    return made.relabelled(others, second=True)


def test_hard_cases_are_of_every_kind_before_any_comes_again():
    maps = twice_labelled()
    found = hard_cases(maps, np.random.default_rng(1))
    assert len(found) == len(set(found)) == HARD
    kinds = [frozenset((maps.labels[i], maps.second_labels[i])) for i in found]
    assert all(len(kind) == 2 for kind in kinds)
    assert len(set(kinds[:5])) == 5  # there are five kinds, of two maps each
    assert hard_cases(pattern_set(10), np.random.default_rng(1)) == []


def test_one_picture_per_class_and_one_of_hard_cases(tmp_path, capsys):
    twice_labelled().save(tmp_path / "set")
    assert main(["lab", "sheets", str(tmp_path / "set"), str(tmp_path / "out"), "--by-class"]) == 0
    names = {"vertical", "diagonal", "vertical-diagonal", "block", "heterogeneous", "hard-cases"}
    assert {path.stem for path in (tmp_path / "out").iterdir()} == names
    printed = capsys.readouterr().out
    assert "40 maps: 8 vertical, 8 diagonal, 8 vertical-diagonal, 8 block, 8 heterogeneous" in printed
    assert "same label on 75% of 40 maps" in printed
    with Image.open(tmp_path / "out" / "block.png") as one, Image.open(tmp_path / "out" / "hard-cases.png") as hard:
        assert one.height * HARD / EACH == hard.height
    first = (tmp_path / "out" / "block.png").read_bytes()
    write_gallery(twice_labelled(), tmp_path / "out", seed=1)
    assert (tmp_path / "out" / "block.png").read_bytes() == first


def test_only_what_is_labelled_is_shown(tmp_path):
    few = pattern_set(labelled=False).relabelled({"tiny_0": "block"})
    assert [path.name for path in write_gallery(few, tmp_path, 1)] == ["block.png"]
    with pytest.raises(UserError, match="no map has a label"):
        write_gallery(pattern_set(labelled=False), tmp_path, 1)
    few.save(tmp_path / "set")
    assert main(["lab", "sheets", str(tmp_path / "set"), str(tmp_path), "--by-class", "--count", "3"]) == 2


def test_ten_maps_of_each_predicted_class(tmp_path):
    maps = pattern_set(40)
    said = {each.name: "block" for each in maps[:25]} | {each.name: "vertical" for each in maps[25:28]}
    written = write_predicted(maps, said, tmp_path, 1)
    assert [path.name for path in written] == ["vertical.png", "block.png"]
    with Image.open(written[0]) as few, Image.open(written[1]) as many:
        assert many.height == 2 * few.height  # ten in two rows, three in one
    with pytest.raises(UserError, match="give the set on which the classifier was judged"):
        write_predicted(maps, {"elsewhere": "block"}, tmp_path, 1)


@pytest.mark.slow
def test_the_shipped_predictions_are_of_the_shipped_maps(tmp_path, capsys):
    for reading in READINGS:
        assert main(["lab", "sheets", str(own_maps()), str(tmp_path / reading), "--predicted", reading]) == 0
        assert {path.stem for path in (tmp_path / reading).iterdir()} == set(CLASSES)


@pytest.mark.slow
def test_twenty_maps_on_which_the_readings_part(tmp_path, capsys):
    assert main(["lab", "sheets", str(own_maps()), str(tmp_path / "out"), "--parted"]) == 0
    with Image.open(tmp_path / "out" / "readings-part.png") as picture:
        assert picture.width > picture.height / 2
    alike = pattern_set(10)
    save_read(alike, tmp_path / "alike")
    assert main(["lab", "sheets", str(tmp_path / "alike"), str(tmp_path / "none"), "--parted"]) == 2
    assert "part on no map" in capsys.readouterr().err
    assert not (tmp_path / "none").exists()
