"""Fuzz tests: every reader of user files reads a randomly corrupted file, or explains in one line why it cannot.

`READERS` lists a good input for each reader and the function that reads it; `fuzz` corrupts the input. The number of
inputs depends on the hypothesis profile: `make attack` tries many more.
"""

import json
from collections.abc import Callable
from pathlib import Path
from typing import Any

import numpy as np
import pytest
from fuzz import Reader, changed_json, check_corrupted, check_good, files
from hypothesis import HealthCheck, given, settings
from hypothesis import strategies as st
from measurements import scored
from packed import npy
from safetensors.numpy import save
from tiny import save_bert

from bertsecrets.ablation.head_sets import parse_sets
from bertsecrets.claims.loading import load_claims
from bertsecrets.errors import UserError
from bertsecrets.models.configuration import open_tokenizer
from bertsecrets.models.locations import ModelRef
from bertsecrets.models.opening import open_classifier
from bertsecrets.patterns.classes import CLASSES
from bertsecrets.patterns.classifier import REPORT_FILE, PatternClassifier, held_out_errors, read_report
from bertsecrets.patterns.features.feature_table import feature_names
from bertsecrets.patterns.readings import READINGS
from bertsecrets.reading import read_npy
from bertsecrets.settings import load_settings, project_path
from bertsecrets.store.files import digest, file_sha256
from bertsecrets.store.measurements import VALUES_FILE, load
from bertsecrets.store.measurements import save as save_measurement
from bertsecrets.texts.framenet_xml import open_frames
from bertsecrets.texts.glue import load_folder
from bertsecrets.texts.tasks import task


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


FRAMENET = (("fn/frame/Humming.xml", FRAME), ("fn/lu/lu1.xml", UNIT))


def settings_of(folder: Path) -> Any:
    with pytest.MonkeyPatch.context() as patch:
        patch.setenv("BERTSECRETS_PARAMS", str(folder / "params.yaml"))
        return load_settings()


def sets_of(folder: Path) -> Any:
    return parse_sets((folder / "heads").read_bytes().decode("utf-8", "replace"), 12, 12)


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
    (folder / REPORT_FILE).write_text(json.dumps(report))
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


def manifest_of(model: ModelRef) -> Any:
    open_tokenizer(model)
    return model.manifest()


READERS = {
    "GLUE": glue("rte", "index\tsentence1\tsentence2\tlabel\n0\ta b\tc\tentailment\n1\td\t\"e\tnot_entailment\n"),
    "STS-B": glue("stsb", "index\tsentence1\tsentence2\tscore\n0\ta\tb\t5.000\n1\tc\td\t0.8\n"),
    "frames": Reader("f.jsonl", RECORD * 2, lambda folder: open_frames(folder / "f.jsonl")),
    "FrameNet's frames": Reader("fn/frame/Humming.xml", FRAME, open_frames, files(FRAMENET[1])),
    "FrameNet's units": Reader("fn/lu/lu1.xml", UNIT, open_frames, files(FRAMENET[0])),
    "settings": Reader("params.yaml", project_path("params.yaml").read_bytes(), settings_of),
    "claims": Reader("A.yaml", claims_text(), load_claims),
    "sets of heads": Reader("heads", b"1.2 7.6 1.2+7.6 5 pairs:3 nested:1.2,7.6,2", sets_of),
    "an array": Reader("a.npy", npy(np.eye(4, dtype=np.float32)), array_of),
    "the classifier's report": Reader(
        REPORT_FILE, small_report(), lambda folder: held_out_errors(read_report(folder), "special")
    ),
    "the classifier's weights": Reader(WEIGHTS, small_weights(), named_weights),
    "a model's configuration": model_file("config.json", lambda model: open_classifier(model, task("rte"))),
    "a model's tokenizer": model_file("tokenizer.json", open_tokenizer),
    "a tokenizer's configuration": model_file("tokenizer_config.json", open_tokenizer),
    "a model's manifest": model_file("manifest.json", manifest_of, json.dumps(MANIFEST).encode()),
    "a measurement": Reader(VALUES_FILE, b"", load, lambda folder: save_measurement(scored([1] * 9, [1] * 9), folder),
                            change=changed_json),
}  # fmt: skip


@pytest.fixture(scope="module")
def room(tmp_path_factory) -> Path:
    return tmp_path_factory.mktemp("readers")


@pytest.mark.filterwarnings("ignore::bertsecrets.models.configuration.ModelWarning")
@pytest.mark.parametrize("name", READERS)
@given(data=st.data())
@settings(suppress_health_check=[HealthCheck.too_slow, HealthCheck.function_scoped_fixture])
def test_a_reader_reads_or_says_why_in_one_line(name, room, data):
    check_corrupted(READERS[name], room / name, data)


@pytest.mark.parametrize("name", READERS)
def test_the_good_input_is_read(name, tmp_path):
    check_good(READERS[name], tmp_path)
