"""Bad inputs of the instruments: sets of attention maps, treebanks and output folders."""

import io
import zipfile
from collections.abc import Iterator

import numpy as np
import pytest
from bad_input import COMMON, BadInput, Room, told
from patterned import pattern_set
from treebank_sample import HEADS, TREES

from instruments.annotation.writing import save_set

SHEETS = ("instruments", "sheets", "{room}/set", "{room}/out")
TRAIN_PARSER = ("instruments", "train-parser", "{room}/bank", "{room}/out")
SPECIFICATIONS = ("instruments", "specifications", "--task", "rte", "--claim", "E1", *COMMON)


def maps(name, change) -> BadInput:
    """Return a row with a set of maps after `change` has modified its arrays in place."""

    def make(room: Room) -> None:
        save_set(pattern_set(10), room.folder / "set")
        path = room.folder / "set" / "maps-0001.npz"
        with np.load(path) as file:
            arrays = dict(file)
        change(arrays)
        content = io.BytesIO()
        np.savez(content, **arrays)
        path.write_bytes(content.getvalue())

    return BadInput(f"maps: {name}", SHEETS, "{room}/set/maps-0001.npz is damaged (", make)


def bomb(room: Room) -> None:
    """Save a set whose values unpack to 513 MiB of zeros."""
    save_set(pattern_set(10), room.folder / "set")
    with zipfile.ZipFile(room.folder / "set" / "maps-0001.npz", "w", zipfile.ZIP_DEFLATED) as archive:
        with archive.open("values.npy", "w", force_zip64=True) as member:
            for _ in range(513):
                member.write(bytes(2**20))


def treebank(name, says, trees=TREES, heads=HEADS, tree="treebank/wsj_1.mrg") -> BadInput:
    """Return a row with a treebank of one file of trees and one of heads, either of which may be None."""

    def make(room: Room) -> None:
        (room.folder / "bank").mkdir()
        for place, content in ((tree, trees), ("dependency_treebank/wsj_1.dp", heads)):
            if content is not None:
                room.file(f"bank/{place}", content)

    return BadInput(f"treebank: {name}", TRAIN_PARSER, ("{room}/bank", says), make)


def occupied(command, *words) -> Iterator[BadInput]:
    """Yield a row for a command that would overwrite a file, and one for a folder with files."""
    for place, says in (("mine", "{room}/mine contains other files"), ("mine/report.json", "a file exists where")):
        row = ("instruments", command, *words, f"{{room}}/{place}")
        yield BadInput(f"{command}: {place}", row, says, lambda room: room.file("mine/report.json", "mine"))


ROWS = [
    *occupied("sheets", "{room}/set"),
    *occupied("import-patterns", "{room}/p20"),
    *occupied("train-patterns", "--data", "{room}/set", "--output"),
    maps("no values", lambda arrays: arrays.__delitem__("values")),
    maps("names that are numbers", lambda arrays: arrays.update(names=np.arange(10))),
    maps("tokens below zero", lambda arrays: arrays.update(tokens=-arrays["tokens"])),
    maps("tokens of billions", lambda arrays: arrays.update(tokens=arrays["tokens"] + 2**30)),
    maps("a table of names", lambda arrays: arrays.update(names=arrays["names"][None])),
    maps("values too few", lambda arrays: arrays.update(values=arrays["values"][:-1])),
    maps("values below zero", lambda arrays: arrays.update(values=-arrays["values"])),
    maps("values that are not numbers", lambda arrays: arrays.update(values=arrays["values"] * np.nan)),
    maps("one name twice", lambda arrays: arrays.update(names=arrays["names"][[0, 0, *range(2, 10)]])),
    BadInput("maps: a bomb", SHEETS, "values.npy unpacks to more than 512 MiB", bomb),
    treebank("nothing", "no treebank.zip in", None, None),
    treebank("no common file", "no file is in both", tree="treebank/wsj_2.mrg"),
    treebank("a bracket too many", "brackets that do not match", TREES + ")"),
    treebank("a tree too many", "4 trees for 2 sentences", TREES * 2),
    treebank("a single sentence", "has only one sentence", TREES.partition("\n( (S (NP-SBJ (PRP He")[0],
             HEADS.partition("\n\n")[0]),
    treebank("another word", "tree and dependencies differ", TREES.replace("cat", "dog", 1)),
    treebank("a head outside", "a row without a tag or a head", heads=HEADS.replace("cat\tNN\t3", "cat\tNN\t99")),
    treebank("heads in a circle", "heads form a cycle", heads=HEADS.replace("cat\tNN\t3", "cat\tNN\t1")),
    treebank("a sentence of 2000 words", "a sentence of more than 1000 words", f"(S {'(NN a) ' * 2000})",
             "a\tNN\t0\n" * 2000),
    BadInput("figures below a file", (*SPECIFICATIONS, "--figures", "{room}/x"), "cannot write {room}/x",
             lambda room: room.file("x", "mine")),
]  # fmt: skip


@pytest.mark.slow
@pytest.mark.usefixtures("quick")
@pytest.mark.parametrize("bad", ROWS, ids=str)
def test_a_bad_input_is_one_line(bad, tmp_path, tiny_bert, tiny_glue, monkeypatch):
    told(bad, Room(tmp_path, tiny_bert, tiny_glue, tmp_path / "runs"), monkeypatch)
