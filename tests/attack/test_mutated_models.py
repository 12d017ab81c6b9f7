"""Mutations of valid files around models: each is read, or refused in one line, whatever was changed."""

import copy
import json
import shutil
from functools import partial
from typing import Any

import pytest
from hypothesis import HealthCheck, given, settings
from hypothesis import strategies as st
from measurements import scored

from bertsecrets.errors import UserError
from bertsecrets.models.loading import open_classifier, open_tokenizer
from bertsecrets.models.locations import ModelRef
from bertsecrets.store.measurements import VALUES, load, save
from bertsecrets.texts.tasks import task

# A test has one folder for all its examples.
SLOW = settings(suppress_health_check=list(HealthCheck))
VALUES_OF_JSON: st.SearchStrategy[Any] = st.one_of(
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


def mutated(draw, data: Any) -> bytes:
    """Return valid JSON data after one to three changes: a value replaced or removed; or the file's bytes cut."""
    data = copy.deepcopy(data)
    for _ in range(draw.draw(st.integers(1, 3))):
        *way, last = draw.draw(st.sampled_from(places(data) or [("new",)]))
        inside = data
        for step in way:
            inside = inside[step]
        if draw.draw(st.booleans()) or not isinstance(inside, dict):
            inside[last] = draw.draw(VALUES_OF_JSON)
        else:
            del inside[last]
    text = json.dumps(data).encode()
    return text if draw.draw(st.integers(0, 9)) else text[: draw.draw(st.integers(0, len(text)))]


def problem(read) -> str:
    """Call a reader, whose only error is one for the user; return what it says, `none` where it reads."""
    try:
        read()
    except UserError as error:
        return str(error)
    return "none"


@pytest.fixture(scope="module")
def model(tiny_bert, tmp_path_factory):
    return shutil.copytree(tiny_bert, tmp_path_factory.mktemp("mutated") / "model")


@pytest.mark.parametrize("name", ["config.json", "tokenizer.json", "tokenizer_config.json"])
@SLOW
@given(draw=st.data())
def test_a_mutated_model_is_opened_or_refused(model, name, draw):
    original = (model / name).read_bytes()
    try:
        (model / name).write_bytes(mutated(draw, json.loads(original)))
        ref = ModelRef.in_folder(model)
        reader = partial(open_classifier, ref, task("rte")) if name == "config.json" else partial(open_tokenizer, ref)
        assert "\n" not in problem(reader)
    finally:
        (model / name).write_bytes(original)


@SLOW
@given(draw=st.data())
def test_a_mutated_manifest_is_read_or_refused(model, draw):
    facts = {"kind": "checkpoints", "name": "x", "settings": {}, "files": {"config.json": "0"}, "sha256": "0",
             "data": {"official": True}, "train_limit": None, "training": {"loss": [1.0]}}  # fmt: skip
    try:
        (model / "manifest.json").write_bytes(mutated(draw, facts))
        ref = ModelRef.in_folder(model)
        assert "\n" not in problem(ref.manifest)
        assert "\n" not in problem(lambda: open_tokenizer(ref))
    finally:
        (model / "manifest.json").unlink()


@SLOW
@given(draw=st.data())
def test_a_mutated_measurement_is_read_or_refused(tmp_path_factory, draw):
    folder = tmp_path_factory.mktemp("measurement")
    save(scored([1] * 9, [1] * 9), folder)
    (folder / VALUES).write_bytes(mutated(draw, json.loads((folder / VALUES).read_text())))
    assert "\n" not in problem(lambda: load(folder))
