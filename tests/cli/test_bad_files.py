"""Files that are damaged or not what they should be: one clear line that names them, and exit code 2."""

import io
import json
import tarfile
import zipfile
from dataclasses import replace
from pathlib import Path

import numpy as np
import pytest
from calls import run, told
from measurements import judged, of_id, scored
from patterned import pattern_set, save_read
from treebank_sample import HEADS, TREES

from bertsecrets.patterns.annotation.map_set import MapSet
from bertsecrets.patterns.classes import CLASSES
from bertsecrets.store.entries import write_manifest
from bertsecrets.store.measurements import keep, load
from bertsecrets.store.verdicts import keep_verdict

pytestmark = pytest.mark.usefixtures("quick")


# ---------------------------------------------------------------------- verdicts and measurements that were kept

PAIR = [scored([1] * 80 + [0] * 20, [1] * 100), scored([1] * 20 + [0] * 80, [1] * 100)]  # D2: 60 points of gain


@pytest.mark.parametrize(
    "change",
    [
        lambda data: {name: data[name] for name in ("id", "model")},
        lambda data: {**data, "interval": [1]},
        lambda data: {**data, "observed": "much"},
        lambda data: {**data, "task": "none"},
    ],
)
def test_what_is_no_verdict_is_not_shown(capsys, tmp_path, change):
    path = keep_verdict(tmp_path, judged(of_id("D2-rte"), *PAIR).as_json(), "tiny")
    path.write_text(json.dumps(change(json.loads(path.read_text()))))
    assert "last verdict" not in run(capsys, "explain", "D2", "--store", tmp_path)
    assert "last verdict" not in run(capsys, "claims", "--store", tmp_path)


def unsampled(entry: Path) -> None:
    samples = dict(load(entry).samples)
    del samples["target"]
    np.savez(entry / "samples.npz", **samples)


def rewritten(**changes):
    def rewrite(entry: Path) -> None:
        file = entry / "measurement.json"
        file.write_text(json.dumps({**json.loads(file.read_text()), **changes}))

    return rewrite


@pytest.mark.parametrize(
    "spoil",
    [
        lambda entry: (entry / "samples.npz").write_bytes(b""),
        unsampled,
        rewritten(values=[1]),
        rewritten(provenance=None),
        rewritten(settings="x"),
    ],
)
@pytest.mark.parametrize("signed", [False, True])
def test_a_damaged_measurement_is_named(capsys, tmp_path, spoil, signed):
    trained, untrained = PAIR
    keep(trained, tmp_path)
    entry = keep(replace(untrained, subject=replace(untrained.subject, initialisation="untrained")), tmp_path)
    assert "D2" in run(capsys, "report", "--model", "m", "--claim", "D2", "--measurements", tmp_path)
    spoil(entry)
    if signed:  # with a manifest that fits the damage
        write_manifest(entry, {})
    line = told(capsys, "report", "--model", "m", "--claim", "D2", "--measurements", tmp_path)
    assert f"{entry} is incomplete or from another version (" in line
    assert line.endswith("): make it again")


# ---------------------------------------------------------------------- archives


def zipped(path: Path, name: str) -> bytes:
    with zipfile.ZipFile(path, "w", zipfile.ZIP_DEFLATED) as packed:
        packed.writestr(name, "<frame/>" * 100)
    return path.read_bytes()


def broken_zip(path: Path, name: str) -> None:
    data = bytearray(zipped(path, name))
    start = 30 + len(name)
    data[start : start + 4] = b"\xff" * 4
    path.write_bytes(data)


def encrypted_zip(path: Path, name: str) -> None:
    data = bytearray(zipped(path, name))
    for header, place in ((b"PK\x03\x04", 6), (b"PK\x01\x02", 8)):
        data[data.index(header) + place] |= 1
    path.write_bytes(data)


def tarred(mode: str) -> bytes:
    file = io.BytesIO()
    with tarfile.open(fileobj=file, mode=f"w:{mode}") as packed:
        member = tarfile.TarInfo("data/labels.txt")
        member.size = 200_000
        packed.addfile(member, io.BytesIO(np.random.default_rng(0).bytes(member.size)))
    return file.getvalue()


def broken_tar(mode: str):
    def write(path: Path, _name: str) -> None:
        data = bytearray(tarred(mode))
        data[50_000:150_000] = b"\xff" * 100_000
        path.write_bytes(data)

    return write


def plain_text(path: Path, _name: str) -> None:
    path.write_text("no archive")


ARCHIVES = {
    "broken.zip": broken_zip, "encrypted.zip": encrypted_zip, "broken.tar.gz": broken_tar("gz"),
    "broken.tar.xz": broken_tar("xz"), "plain.txt": plain_text,
}  # fmt: skip


@pytest.mark.parametrize("name", ARCHIVES)
def test_a_bad_framenet_archive_is_named(capsys, tiny_bert, tmp_path, name):
    ARCHIVES[name](tmp_path / name, "fn/frame/Motion.xml")
    line = told(
        capsys, "measure", "frame-heads", "--model", tiny_bert, "--frames", tmp_path / name, "--store", tmp_path / "s"
    )
    assert f"{tmp_path / name} cannot be read (" in line


@pytest.mark.parametrize("name", ["broken.tar.gz", "broken.tar.xz", "plain.txt"])
def test_a_bad_archive_of_maps_is_named(capsys, tmp_path, name):
    ARCHIVES[name](tmp_path / name, "")
    assert f"{tmp_path / name} cannot be read (" in told(capsys, "import-patterns", tmp_path / name, tmp_path / "set")
    assert not (tmp_path / "set").exists()


@pytest.mark.parametrize("name", ["broken.zip", "encrypted.zip"])
def test_a_bad_archive_of_trees_is_named(capsys, tmp_path, name):
    pytest.importorskip("spacy")
    ARCHIVES[name](tmp_path / "treebank.zip", "treebank/combined/a.mrg")
    line = told(capsys, "train-parser", tmp_path, tmp_path / "pipeline")
    assert f"{tmp_path / 'treebank.zip'} cannot be read (" in line


# ---------------------------------------------------------------------- treebank, maps, claims


@pytest.mark.parametrize(
    ("trees", "heads", "message"),
    [
        (TREES, HEADS.replace("him\tPRP\t9", "him\tPRP"), "a is damaged (a row without a tag or a head"),
        (TREES, HEADS.replace("him\tPRP\t9", "him\tPRP\tx"), "a is damaged (a row without a tag or a head"),
        (TREES, HEADS.replace("him\tPRP\t9", "him\tPRP\t99"), "a is damaged (a row without a tag or a head"),
        (TREES, HEADS.replace("him\tPRP\t9", "him\tPRP\t-9"), "a is damaged (a row without a tag or a head"),
        (TREES, HEADS.replace("him\tPRP\t9", "him\tPRP\t10"), "heads in a circle"),
        (TREES + ")", HEADS, "a is damaged (brackets that do not match)"),
        (TREES + "(", HEADS, "a is damaged (brackets that do not match)"),
        ("x" + TREES, HEADS, "a is damaged (brackets that do not match)"),
        (TREES[: TREES.index("( (S (NP-SBJ (PRP He")], HEADS.partition("\n\n")[0], "holds a single sentence"),
    ],
)
def test_a_bad_treebank_is_named(capsys, tmp_path, trees, heads, message):
    pytest.importorskip("spacy")
    for name, file, text in (("treebank", "a.mrg", trees), ("dependency_treebank", "a.dp", heads)):
        (tmp_path / name).mkdir()
        (tmp_path / name / file).write_text(text)
    line = told(capsys, "train-parser", tmp_path, tmp_path / "pipeline")
    assert str(tmp_path) in line
    assert message in line
    assert not (tmp_path / "pipeline").exists()


@pytest.mark.parametrize("classes", [1, 5])
def test_too_few_maps_of_each_class_are_said(capsys, tmp_path, classes):
    maps = pattern_set(20)
    save_read(MapSet(maps.maps, tuple(CLASSES[number % classes] for number in range(20))), tmp_path / "maps")
    line = told(capsys, "train-patterns", "--data", tmp_path / "maps", "--output", tmp_path / "out")
    assert "5 folds need at least 5 maps in each of two classes" in line
