"""The training precision is set by one option, resolved once, part of the cache key, and reported."""

import pytest
import torch
from sessions import local_session

from bertsecrets import devices
from bertsecrets.devices import SlowPrecisionWarning, best_precision
from bertsecrets.store.entries import read_manifest

pytestmark = pytest.mark.usefixtures("quick")
CPU = torch.device("cpu")


@pytest.fixture
def native(monkeypatch):
    """Return a function that fakes whether the device supports bfloat16 natively."""
    return lambda answer: monkeypatch.setattr(devices, "native_bfloat16", lambda device: answer)


def manifest(store, glue, model, **more):
    session = local_session(store=store, glue=glue, model=model, **more)
    return read_manifest(session.checkpoint(session.subject("rte")))


@pytest.mark.parametrize(("here", "resolved"), [(True, "bfloat16"), (False, "float32")])
def test_auto_is_bfloat16_if_the_device_supports_it_natively(native, here, resolved):
    native(here)
    assert best_precision("auto", CPU) == resolved
    assert best_precision("float32", CPU) == "float32"


def test_bfloat16_without_native_support_warns_that_it_is_slow(native, tmp_path, tiny_glue, tiny_bert):
    native(False)
    message = "^this cpu device has no bfloat16 instructions, so training in bfloat16 is slower .*auto or float32"
    with pytest.warns(SlowPrecisionWarning, match=message) as told_once:
        trained = manifest(tmp_path, tiny_glue, tiny_bert, precision="bfloat16")["training"]
    assert trained["precision"] == "bfloat16"
    assert len(told_once) == 1
    assert "\n" not in str(told_once[0].message)


def test_each_precision_has_its_own_checkpoint_and_auto_shares_one(native, tmp_path, tiny_glue, tiny_bert):
    native(True)
    full = manifest(tmp_path, tiny_glue, tiny_bert)
    half = manifest(tmp_path, tiny_glue, tiny_bert, precision="bfloat16")
    auto = manifest(tmp_path, tiny_glue, tiny_bert, precision="auto")
    assert [entry["key"]["inputs"]["finetune"]["precision"] for entry in (full, half)] == ["float32", "bfloat16"]
    assert [entry["training"]["precision"] for entry in (full, half)] == ["float32", "bfloat16"]
    assert full["files"]["model.safetensors"] != half["files"]["model.safetensors"]
    assert auto == half
