"""The training precision is set by one option, resolved once, part of the cache key, and reported."""

import json

import pytest
import torch
from calls import told
from faults import pytest_benchmarks

from bertsecrets import devices
from bertsecrets.cli.main import main
from bertsecrets.devices import SlowPrecisionWarning, best_precision
from bertsecrets.errors import UserError
from bertsecrets.session import Session
from bertsecrets.store.entries import read_manifest

pytestmark = pytest.mark.usefixtures("quick")
CPU = torch.device("cpu")


@pytest.fixture
def native(monkeypatch):
    """Return a function that fakes whether the device supports bfloat16 natively."""
    return lambda answer: monkeypatch.setattr(devices, "native_bfloat16", lambda device: answer)


def session(store, glue, model, **more) -> Session:
    return Session(
        model=str(model), glue=glue, store=store, device="cpu", offline=True, allow_unofficial_data=True, **more
    )


def manifest(open_session: Session):
    return read_manifest(open_session.checkpoint(open_session.subject("rte")))


@pytest.mark.parametrize(("here", "resolved"), [(True, "bfloat16"), (False, "float32")])
def test_auto_is_bfloat16_if_the_device_supports_it_natively(native, here, resolved):
    native(here)
    assert best_precision("auto", CPU) == resolved
    assert best_precision("float32", CPU) == "float32"


def test_bfloat16_without_native_support_warns_that_it_is_slow(native, tmp_path, tiny_glue, tiny_bert):
    native(False)
    message = "^this cpu has no bfloat16 instructions, so training in bfloat16 is slower .*auto or float32"
    with pytest.warns(SlowPrecisionWarning, match=message) as told_once:
        assert (
            manifest(session(tmp_path, tiny_glue, tiny_bert, precision="bfloat16"))["training"]["precision"]
            == "bfloat16"
        )
    assert len(told_once) == 1
    assert "\n" not in str(told_once[0].message)


def test_each_precision_has_its_own_checkpoint_and_auto_shares_one(native, tmp_path, tiny_glue, tiny_bert):
    native(True)
    full = manifest(session(tmp_path, tiny_glue, tiny_bert))
    half = manifest(session(tmp_path, tiny_glue, tiny_bert, precision="bfloat16"))
    auto = manifest(session(tmp_path, tiny_glue, tiny_bert, precision="auto"))
    assert [entry["key"]["inputs"]["finetune"]["precision"] for entry in (full, half)] == ["float32", "bfloat16"]
    assert [entry["training"]["precision"] for entry in (full, half)] == ["float32", "bfloat16"]
    assert full["files"]["model.safetensors"] != half["files"]["model.safetensors"]
    assert auto == half


@pytest.mark.slow
def test_verdicts_and_pages_mention_training_in_bfloat16(native, shared, tmp_path):
    native(True)
    call = ["run", "--task", "rte", "--claim", "C1", *shared, "--json", tmp_path / "v.json"]
    seen = {}
    for precision in ("float32", "bfloat16"):
        page = tmp_path / f"{precision}.html"
        main([str(word) for word in (*call, "--html", page, "--precision", precision)])
        verdicts = json.loads((tmp_path / "v.json").read_text(encoding="utf-8"))["verdicts"]
        seen[precision] = {"trained in bfloat16" in verdict["remarks"] for verdict in verdicts}
        assert f"trained in {precision}" in page.read_text(encoding="utf-8")
    assert seen == {"float32": {False}, "bfloat16": {True}}


def test_an_unknown_precision_is_reported_in_one_line(capsys, shared, tmp_path):
    line = told(capsys, "finetune", "--task", "rte", *shared, "--precision", "float16")
    assert "unknown precision 'float16'" in line
    assert "bfloat16" in line
    with pytest.raises(UserError, match="unknown precision 'half'"):
        Session(precision="half")
    code, said = pytest_benchmarks("--precision", "half", output=tmp_path / "output")
    assert code == 2
    assert "unknown precision 'half'" in said
