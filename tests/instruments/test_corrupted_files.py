"""Fuzz tests: the instruments read a randomly corrupted file, or explain in one line why they cannot."""

import gzip
from pathlib import Path

import numpy as np
import pytest
from fuzz import Reader, check_corrupted, check_good, files
from hypothesis import HealthCheck, given, settings
from hypothesis import strategies as st
from packed import npy, tarred, zipped
from patterned import pattern_set
from treebank_sample import HEADS, TREES

from instruments.annotation.map_set import MapSet, read_plain_words
from instruments.annotation.p20 import read_p20
from instruments.annotation.writing import save_set
from instruments.classify import GivenMaps
from instruments.treebank import read_treebank

SQUARE = npy(np.full((4, 4), 0.25, dtype=np.float32))
BANK = (("treebank/a.mrg", TREES.encode()), ("dependency_treebank/a.dp", HEADS.encode()))
P20 = (
    ("d/raw/labels.txt", b"vertical = 1\nblock = rte_4_1\n"),
    ("d/raw/0001.npy", SQUARE),
    ("d/raw/rte_4_1.npy", SQUARE),
)


def pattern_files(folder: Path) -> None:
    save_set(pattern_set(5), folder)


PLAIN_WORDS = b"name\twords\treader\tclass\na\tpaper\t1\tblock\n"
GIVEN = zipped(
    {
        "maps.npy": npy(np.full((2, 3, 3), 1 / 3, dtype=np.float32)),
        "lengths.npy": npy(np.array([3, 3])),
        "boundary.npy": npy(np.array([2, 3])),
    }
)


READERS = {
    "trees": Reader("treebank/a.mrg", TREES.encode(), read_treebank, files(BANK[1])),
    "heads of words": Reader("dependency_treebank/a.dp", HEADS.encode(), read_treebank, files(BANK[0])),
    "zipped trees": Reader("treebank.zip", zipped(dict(BANK[:1])), read_treebank, files(BANK[1])),
    "P20's labels": Reader("d/raw/labels.txt", P20[0][1], read_p20, files(*P20[1:])),
    "P20's maps": Reader("d/raw/0001.npy", SQUARE, read_p20, files(P20[0], P20[2])),
    "P20's archive": Reader("p", tarred(dict(P20)), lambda folder: read_p20(folder / "p"), pack=gzip.compress),
    "annotations": Reader("annotations.tsv", b"", MapSet.load, pattern_files),
    "maps": Reader("maps-0001.npz", b"", MapSet.load, pattern_files),
    "labels of readers": Reader("plain-words.tsv", PLAIN_WORDS, read_plain_words),
    "maps to classify": Reader("given.npz", GIVEN, lambda folder: GivenMaps.read(folder / "given.npz")),
}


@pytest.fixture(scope="module")
def room(tmp_path_factory) -> Path:
    return tmp_path_factory.mktemp("readers")


@pytest.mark.parametrize("name", READERS)
@given(data=st.data())
@settings(suppress_health_check=[HealthCheck.too_slow, HealthCheck.function_scoped_fixture])
def test_a_reader_reads_or_says_why_in_one_line(name, room, data):
    check_corrupted(READERS[name], room / name, data)


@pytest.mark.parametrize("name", READERS)
def test_the_good_input_is_read(name, tmp_path):
    check_good(READERS[name], tmp_path)
