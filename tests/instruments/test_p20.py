"""P20's annotated maps are read from a folder or archive in P20's format; errors name file and line."""

import tarfile
from pathlib import Path
from unittest.mock import Mock
from urllib.error import URLError

import numpy as np
import pytest
from calls import run, told
from patterned import values

from bertsecrets.errors import UserError
from instruments.annotation.map_set import MapSet
from instruments.annotation.p20 import ARCHIVE, read_p20

LABELS = """\
single_vertical = 1, 12
double_vertical = 0003
multiple_vertical = rte_4_1

diagonal = 5
mix = 6
block = 7
other = 8, 9
"""
NAMES = ["0001", "0012", "0003", "rte_4_1", "0005", "0006", "0007", "0008", "0009"]


@pytest.fixture
def source(tmp_path) -> Path:
    """A folder in P20's format, including its second folder with the same file names and other values."""
    folder = tmp_path / "head_classification_data"
    for number, name in enumerate(NAMES):
        for part, scale in (("raw/for_training", 1), ("normed/data", 0)):
            (folder / part).mkdir(parents=True, exist_ok=True)
            np.save(folder / part / f"{name}.npy", scale * values("block", 20 + number).astype(np.float32))
    (folder / "raw" / "labels.txt").write_text(LABELS)
    return folder


def archive(source: Path) -> Path:
    path = source.parent / "data.tar.gz"
    with tarfile.open(path, "w:gz") as file:
        file.add(source, source.name)
    return path


@pytest.mark.parametrize("form", [lambda source: source, lambda source: source / "raw", archive])
def test_folder_and_archive_give_the_same_set(source, form):
    maps = read_p20(form(source))
    assert [each.name for each in maps] == NAMES
    assert maps.labels == (*["vertical"] * 4, "diagonal", "vertical-diagonal", "block", *["heterogeneous"] * 2)
    for number, each in enumerate(maps):
        np.testing.assert_array_equal(each.values, values("block", 20 + number))
        assert each.boundary == each.tokens == 20 + number
    assert len(set(maps.groups)) == len(NAMES)


@pytest.mark.parametrize(
    ("old", "new", "message"),
    [
        ("mix =", "swirl =", "labels.txt, line 6: unknown label 'swirl'; expected one of vertical, diagonal"),
        ("block = 7", "block = 7, 77", "labels.txt, line 7: 0077.npy is missing"),
        ("block = 7", "block = 7, 5", "labels.txt, line 7: '0005' is named twice"),
        ("block = 7", "block 7", "labels.txt, line 7: no '=' in 'block 7'"),
        (LABELS, "\n", "names no maps"),
        ("block = 7", "block = " + "x" * 5000, "is not a valid map name"),
        ("block = 7", "block = a\tb", "is not a valid map name"),
        ("block = 7", "block = ../0001", ".npy is missing"),
    ],
    ids=lambda text: text[:20],
)
def test_invalid_labels_are_reported_with_their_line(source, old, new, message):
    (source / "raw" / "labels.txt").write_text(LABELS.replace(old, new))
    with pytest.raises(UserError, match=message):
        read_p20(source)


@pytest.mark.parametrize(
    ("array", "message"),
    [
        (np.ones((4, 5)), r"line 7: 0007.npy has the shape \(4, 5\)"),
        (np.full((4, 4), np.nan), "0007.npy does not contain attention weights"),
        (-np.ones((4, 4)), "0007.npy does not contain attention weights"),
        (np.array([[{}]], dtype=object), "0007.npy is not an array"),
    ],
)
def test_invalid_maps_are_reported(source, array, message):
    np.save(source / "raw/for_training/0007.npy", array)
    with pytest.raises(UserError, match=message):
        read_p20(source)


def test_invalid_sources_are_refused(source, tmp_path):
    with pytest.raises(UserError, match="does not exist"):
        read_p20(tmp_path / "absent")
    with pytest.raises(UserError, match="no labels.txt in"):
        read_p20(source / "normed")
    with pytest.raises(UserError, match="no labels.txt in"):
        read_p20(archive(source / "normed"))
    path = archive(source)
    path.write_bytes(path.read_bytes()[:900])
    with pytest.raises(UserError, match="cannot be read"):
        read_p20(path)


def test_the_command_fetches_an_archive_and_writes_a_set(source, tmp_path, monkeypatch, capsys):
    asked = []

    def opened(address, timeout):
        asked.append(address)
        return archive(source).open("rb")

    monkeypatch.setattr("instruments.annotation.p20.urlopen", opened)
    assert "9 maps: 4 vertical, 1 diagonal" in run(capsys, "instruments", "import-patterns", ARCHIVE, tmp_path / "set")
    assert asked == [ARCHIVE]
    assert MapSet.load(tmp_path / "set").labels == read_p20(source).labels


@pytest.mark.parametrize(
    ("address", "message"),
    [(ARCHIVE, "cannot be downloaded (<urlopen error no such host>)"), ("http://x", "not an https")],
)
def test_an_address_that_cannot_be_read_is_one_line(address, message, tmp_path, monkeypatch, capsys):
    monkeypatch.setattr("instruments.annotation.p20.urlopen", Mock(side_effect=URLError("no such host")))
    assert message in told(capsys, "instruments", "import-patterns", address, tmp_path / "set")
