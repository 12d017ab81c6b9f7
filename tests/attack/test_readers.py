"""Fuzz tests: every reader of user files reads a randomly corrupted file, or explains in one line why it cannot.

`READERS` lists a good input for each reader and the function that reads it. hypothesis changes and deletes bytes,
truncates files, and inserts tokens that parsers often fail on. The only allowed results are success and a `UserError`
with one short line. The number of inputs depends on the hypothesis profile: `make attack` tries many more.
"""

import copy
import gzip
import json
from collections.abc import Callable
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import numpy as np
import pytest
from hypothesis import HealthCheck, given, settings
from hypothesis import strategies as st
from measurements import scored
from packed import npy, tarred, zipped
from patterned import pattern_set
from safetensors.numpy import save
from tiny import save_bert
from treebank_sample import HEADS, TREES

from bertsecrets.ablation.head_sets import parse_sets
from bertsecrets.claims.schema import load_claims
from bertsecrets.errors import UserError
from bertsecrets.models.configuration import open_tokenizer
from bertsecrets.models.locations import ModelRef
from bertsecrets.models.opening import open_classifier
from bertsecrets.patterns.classes import CLASSES
from bertsecrets.patterns.classifier import REPORT, PatternClassifier, held_out_errors, read_report
from bertsecrets.patterns.features.feature_table import feature_names
from bertsecrets.patterns.readings import READINGS
from bertsecrets.reading import read_npy
from bertsecrets.settings import load_settings, project_path
from bertsecrets.store.files import digest, file_sha256
from bertsecrets.store.measurements import VALUES, load
from bertsecrets.store.measurements import save as save_measurement
from bertsecrets.texts.framenet_xml import open_frames
from bertsecrets.texts.glue import load_folder
from bertsecrets.texts.tasks import task
from instruments.annotation.map_set import MapSet, read_plain_words
from instruments.annotation.p20 import read_p20
from instruments.annotation.writing import save_set
from instruments.classify import GivenMaps
from instruments.treebank import read_treebank

# ---------------------------------------------------------------------- changes

TOKENS = [
    *(b"\0", b"\xff", b"\xef\xbb\xbf", b"\r", b"\n", b"\n\n", b"\t", b" ", b"\xe2\x80\xa8"),
    *(b"\xed\xa0\x80", b"\xd9\xa3", b"\x7f", b"\x80", b"\xff" * 8, b"\0" * 512, b"PK\x03\x04", b"\x93NUMPY"),
    *(b"-1", b"0", b"1e999", b"1_0", b"9" * 30, b"9" * 5000, b"NaN", b".nan", b".inf", b"null", b"true", b"yes"),
    *(b"[", b"]", b"{", b"}", b'"', b"'", b"\\", b"/", b"../", b":", b": ", b"- ", b"&a ", b"*a", b"<<: *a", b"!!int "),
    *(b"<", b">", b"&a;", b"&#0;", b"<!DOCTYPE a>", b"]]>", b"<!--", b"(", b")", b"=", b"|", b"[" * 300, b"(" * 300),
]  # fmt: skip


@st.composite
def changed(draw, good: bytes) -> bytes:
    """Good bytes with one to three changes, or occasionally random bytes."""
    if draw(st.integers(0, 19)) == 0:
        return draw(st.binary(max_size=200))
    data = bytearray(good)
    for _ in range(draw(st.integers(1, 3))):
        place = draw(st.integers(0, max(len(data) - 1, 0)))
        stop = place + draw(st.integers(1, 12))
        match draw(st.sampled_from(("byte", "insert", "replace", "remove", "cut"))):
            case "byte":
                data[place : place + 1] = bytes([draw(st.integers(0, 255))])
            case "insert":
                data[place:place] = draw(st.sampled_from(TOKENS))
            case "replace":
                data[place:stop] = draw(st.sampled_from(TOKENS))
            case "remove":
                del data[place:stop]
            case "cut":
                del data[place:]
    return bytes(data)


JSON_VALUES: st.SearchStrategy[Any] = st.one_of(
    st.none(),
    st.booleans(),
    st.integers(-3, 3),
    st.sampled_from([10**6, 10**12, -(10**9), 1e30, 0.5, -1.5]),
    st.sampled_from(["", "x", "3", "gelu", "bert", "[UNK]"]),
    st.sampled_from([[], {}, [1], ["a"], {"a": 1}, [[1, 2], [3]]]),
)


def places(data: Any, at: tuple = ()) -> list[tuple]:
    """Return the path of every value in JSON data, to a depth of four."""
    inner = data.items() if isinstance(data, dict) else enumerate(data) if isinstance(data, list) else ()
    below = [path for name, value in list(inner)[:60] if len(at) < 4 for path in places(value, (*at, name))]
    return [at, *below] if at else below


@st.composite
def changed_json(draw, good: bytes) -> bytes:
    """Good JSON with one to three values replaced or removed, and occasionally truncated."""
    data = json.loads(good)
    for _ in range(draw(st.integers(1, 3))):
        *way, last = draw(st.sampled_from(places(data) or [("new",)]))
        inside = data
        for step in way:
            inside = inside[step]
        if draw(st.booleans()) or not isinstance(inside, dict):
            inside[last] = copy.deepcopy(draw(JSON_VALUES))
        else:
            del inside[last]
    text = json.dumps(data).encode()
    return text if draw(st.integers(0, 9)) else text[: draw(st.integers(0, len(text)))]


# ---------------------------------------------------------------------- readers


@dataclass(frozen=True)
class Reader:
    """A reader of files, and the files that it reads.

    Attributes:
        place: Path of the corrupted file, relative to the folder that is passed to `read`.
        good: Undamaged content. If empty, it is taken from the file that `others` writes.
        others: Writes the other files.
        pack: Wraps the corrupted content before it is written.
        change: Strategy that corrupts the content.
    """

    place: str
    good: bytes
    read: Callable[[Path], Any]
    others: Callable[[Path], Any] = lambda folder: None
    pack: Callable[[bytes], bytes] = lambda data: data
    change: Callable[[bytes], st.SearchStrategy[bytes]] = changed


def glue(name: str, text: str) -> Reader:
    chosen = task(name)
    place = f"{chosen.folder}/{chosen.dev_file}"
    return Reader(place, text.encode(), lambda folder: load_folder(folder, chosen, "dev").targets())


FRAME = (
    b'<?xml version="1.0" encoding="UTF-8"?>\n<frame name="Humming" ID="7" xmlns="http://framenet.icsi.berkeley.edu">'
    b'<FE name="Hummer" coreType="Core"/><FEcoreSet><memberFE name="Hummer"/></FEcoreSet></frame>'
)
UNIT = (
    b'<?xml version="1.0"?><lexUnit name="hum.v" frame="Humming"><subCorpus><sentence ID="1">'
    b'<text>Ann was softly humming .</text><annotationSet status="MANUAL"><layer rank="1" name="FE">'
    b'<label name="Hummer" start="0" end="2"/></layer><layer rank="1" name="Target">'
    b'<label name="Target" start="15" end="21"/></layer></annotationSet></sentence></subCorpus></lexUnit>'
)
RECORD = b'{"sentence": "Ann was humming a song.", "target": "humming", "core_elements": ["Ann", "a song"]}\n'


def files(*named: tuple[str, bytes]) -> Callable[[Path], None]:
    def write(folder: Path) -> None:
        for name, content in named:
            path = folder / name
            path.parent.mkdir(parents=True, exist_ok=True)
            path.write_bytes(content)

    return write


FRAMENET = (("fn/frame/Humming.xml", FRAME), ("fn/lu/lu1.xml", UNIT))
BANK = (("treebank/a.mrg", TREES.encode()), ("dependency_treebank/a.dp", HEADS.encode()))
SQUARE = npy(np.full((4, 4), 0.25, dtype=np.float32))
P20 = (
    ("d/raw/labels.txt", b"vertical = 1\nblock = rte_4_1\n"),
    ("d/raw/0001.npy", SQUARE),
    ("d/raw/rte_4_1.npy", SQUARE),
)


def settings_of(folder: Path) -> Any:
    with pytest.MonkeyPatch.context() as patch:
        patch.setenv("BERTSECRETS_PARAMS", str(folder / "params.yaml"))
        return load_settings()


def claims_of(folder: Path) -> Any:
    return load_claims.__wrapped__(folder)


def sets_of(folder: Path) -> Any:
    return parse_sets((folder / "heads").read_bytes().decode("utf-8", "replace"), 12, 12)


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
WEIGHTS = "special.safetensors"


def small_weights() -> bytes:
    classes, row = len(CLASSES), len(feature_names())
    tensors = {
        **{f"trees.{name}": np.array([0, -1, -1], dtype=np.int32) for name in ("feature", "left", "right")},
        "trees.left": np.array([1, 0, 0], dtype=np.int32),
        "trees.right": np.array([2, 0, 0], dtype=np.int32),
        "trees.threshold": np.zeros(3),
        "trees.value": np.zeros((3, classes), dtype=np.float32),
        "trees.roots": np.zeros(1, dtype=np.int32),
        "trees.start": np.zeros(classes, dtype=np.float32),
        "linear.mean": np.zeros(row),
        "linear.scale": np.ones(row),
        "linear.weight": np.zeros((classes, row)),
        "linear.bias": np.zeros(classes),
    }
    facts = {"depth": 1, "temperature": 1.0, "features": digest(feature_names()), "classes": CLASSES}
    return save(tensors, {"facts": json.dumps(facts)})


def named_weights(folder: Path) -> Any:
    """Read weights after updating their digest in the report, so that reading does not stop at the digest."""
    report = json.loads(small_report())
    report["readings"]["special"]["weights_sha256"] = file_sha256(folder / WEIGHTS)
    (folder / REPORT).write_text(json.dumps(report))
    return PatternClassifier.load(folder, "special")


def array_of(folder: Path) -> Any:
    try:
        return read_npy((folder / "a.npy").read_bytes())
    except ValueError as error:
        raise UserError(str(error)) from error


def claims_text() -> bytes:
    text = min(project_path("expected").glob("*.yaml")).read_bytes()
    return b"\n- id".join(text.split(b"\n- id")[:3])


def small_report() -> bytes:
    """Return a minimal valid report with two held-out maps; the shipped one is long."""
    rows = [{"probabilities": [0.2] * 5, "labels": ["block"], "head": head} for head in ("a", "b")]
    own = {"weights_sha256": "0" * 64, "held_out": rows, "models": {"tiny": 2}}
    return json.dumps({"readings": dict.fromkeys(READINGS, own)}).encode()


def errors_of(folder: Path) -> Any:
    return held_out_errors(read_report(folder), "special")


MANIFEST = {
    "kind": "checkpoints",
    "name": "x",
    "settings": {},
    "files": {"config.json": "0"},
    "sha256": "0",
    "data": {"official": True},
    "train_limit": None,
    "training": {"loss": [1.0]},
}


def model_file(name: str, read: Callable[[ModelRef], Any], good: bytes = b"") -> Reader:
    return Reader(name, good, lambda folder: read(ModelRef.in_folder(folder)), save_bert, change=changed_json)


def classifier_of(model: ModelRef) -> Any:
    return open_classifier(model, task("rte"))


def manifest_of(model: ModelRef) -> Any:
    open_tokenizer(model)
    return model.manifest()


READERS = {
    "GLUE": glue("rte", "index\tsentence1\tsentence2\tlabel\n0\ta b\tc\tentailment\n1\td\t\"e\tnot_entailment\n"),
    "GLUE of one text": glue("sst2", "sentence\tlabel\na b \t1\nc\t0\n"),
    "STS-B": glue("stsb", "index\tsentence1\tsentence2\tscore\n0\ta\tb\t5.000\n1\tc\td\t0.8\n"),
    "frames": Reader("f.jsonl", RECORD * 2, lambda folder: open_frames(folder / "f.jsonl")),
    "FrameNet's frames": Reader("fn/frame/Humming.xml", FRAME, open_frames, files(FRAMENET[1])),
    "FrameNet's units": Reader("fn/lu/lu1.xml", UNIT, open_frames, files(FRAMENET[0])),
    "trees": Reader("treebank/a.mrg", TREES.encode(), read_treebank, files(BANK[1])),
    "heads of words": Reader("dependency_treebank/a.dp", HEADS.encode(), read_treebank, files(BANK[0])),
    "zipped trees": Reader("treebank.zip", zipped(dict(BANK[:1])), read_treebank, files(BANK[1])),
    "settings": Reader("params.yaml", project_path("params.yaml").read_bytes(), settings_of),
    "claims": Reader("A.yaml", claims_text(), claims_of),
    "sets of heads": Reader("heads", b"1.2 7.6 1.2+7.6 5 pairs:3 nested:1.2,7.6,2", sets_of),
    "an array": Reader("a.npy", SQUARE, array_of),
    "P20's labels": Reader("d/raw/labels.txt", P20[0][1], read_p20, files(*P20[1:])),
    "P20's maps": Reader("d/raw/0001.npy", SQUARE, read_p20, files(P20[0], P20[2])),
    "P20's archive": Reader("p", tarred(dict(P20)), lambda folder: read_p20(folder / "p"), pack=gzip.compress),
    "annotations": Reader("annotations.tsv", b"", MapSet.load, pattern_files),
    "maps": Reader("maps-0001.npz", b"", MapSet.load, pattern_files),
    "labels of readers": Reader("plain-words.tsv", PLAIN_WORDS, read_plain_words),
    "maps to classify": Reader("given.npz", GIVEN, lambda folder: GivenMaps.read(folder / "given.npz")),
    "the classifier's report": Reader(REPORT, small_report(), errors_of),
    "the classifier's weights": Reader(WEIGHTS, small_weights(), named_weights),
    "a model's configuration": model_file("config.json", classifier_of),
    "a model's tokenizer": model_file("tokenizer.json", open_tokenizer),
    "a tokenizer's configuration": model_file("tokenizer_config.json", open_tokenizer),
    "a model's manifest": model_file("manifest.json", manifest_of, json.dumps(MANIFEST).encode()),
    "a measurement": Reader(VALUES, b"", load, lambda folder: save_measurement(scored([1] * 9, [1] * 9), folder),
                            change=changed_json),
}  # fmt: skip


@pytest.fixture(scope="module")
def room(tmp_path_factory) -> Path:
    return tmp_path_factory.mktemp("readers")


@pytest.mark.parametrize("name", READERS)
@given(data=st.data())
@settings(suppress_health_check=[HealthCheck.too_slow, HealthCheck.function_scoped_fixture])
def test_a_reader_reads_or_says_why_in_one_line(name, room, data):
    reader, folder = READERS[name], room / name
    if not folder.exists():
        folder.mkdir()
        reader.others(folder)
    path = folder / reader.place
    good = reader.good or (original(folder, path))
    path.parent.mkdir(parents=True, exist_ok=True)
    path.write_bytes(reader.pack(data.draw(reader.change(good))))
    said = refusal(reader, folder)
    assert said is None or (len(said.splitlines()) == 1 and len(said) < 1500)


def refusal(reader: Reader, folder: Path) -> str | None:
    try:
        reader.read(folder)
    except UserError as error:
        return str(error)
    return None


def original(folder: Path, path: Path) -> bytes:
    backup = folder.parent / f"{folder.name} {path.name}"
    if not backup.exists():
        backup.write_bytes(path.read_bytes())
    return backup.read_bytes()


@pytest.mark.parametrize("name", READERS)
def test_the_good_input_is_read(name, tmp_path):
    reader = READERS[name]
    reader.others(tmp_path)
    path = tmp_path / reader.place
    path.parent.mkdir(parents=True, exist_ok=True)
    if reader.good:
        path.write_bytes(reader.pack(reader.good))
    assert reader.read(tmp_path) is not None
