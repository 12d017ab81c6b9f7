"""An exported checkpoint is opened only if it matches its manifest; manifests of other tools are ignored."""

import json

import pytest

from bertsecrets.errors import UserError
from bertsecrets.models.locations import ModelRef, locate
from bertsecrets.models.opening import open_checkpoint_config, open_encoder
from bertsecrets.store.entries import Key, checked_manifest, read_own_manifest, write_manifest
from bertsecrets.texts.tasks import task


@pytest.fixture
def exported(own_bert):
    key = Key({"model": "m"}, {"code": "c"}).as_json()
    write_manifest(own_bert, {"kind": "checkpoints", "name": "m", "key": key, "training": {"steps": 3}})
    return own_bert


def test_an_undamaged_export_opens_with_its_manifest(exported):
    assert locate(str(exported)).manifest()["training"] == {"steps": 3}
    assert open_checkpoint_config(exported, task("rte")).num_labels == 2


@pytest.mark.parametrize("file", ["model.safetensors", "config.json", "tokenizer.json", "manifest.json"])
def test_an_export_with_any_changed_byte_is_refused_with_advice(exported, file):
    content = (exported / file).read_bytes()
    for place in range(0, len(content), 1 + len(content) // 40):
        (exported / file).write_bytes(content[:place] + bytes([content[place] ^ 0x11]) + content[place + 1 :])
        for opened in (
            lambda: locate(str(exported)),
            lambda: open_checkpoint_config(exported, task("rte")),
            lambda: open_encoder(ModelRef.in_folder(exported)),
        ):
            with pytest.raises(UserError) as refused:
                opened()
            line = str(refused.value)
            assert line.startswith(f"{exported} was modified (")
            assert line.endswith("): recreate the folder or, if the change was intended, delete its manifest.json")
            assert {"manifest.json": "manifest"}.get(file, f"{file} has changed") in line
            assert "\n" not in line


@pytest.mark.parametrize(
    "manifest",
    [{}, {"data": 3}, {"name": "app", "version": 1}, {"name": "app", "files": ["a"]}, {"data": {"official": [1]}}],
)
def test_manifests_of_other_tools_are_ignored(own_bert, manifest):
    (own_bert / "manifest.json").write_text(json.dumps(manifest))
    assert locate(str(own_bert)).manifest() == {}
    assert ModelRef.in_folder(own_bert).manifest() == {}
    open_checkpoint_config(own_bert, task("rte"))


@pytest.mark.parametrize("content", [b"[]", b"{", b"\xff", b"[" * 100_000])
def test_an_unreadable_manifest_is_refused(own_bert, content):
    (own_bert / "manifest.json").write_bytes(content)
    for read in (checked_manifest, read_own_manifest):
        with pytest.raises(
            UserError,
            match=r"manifest\.json is not .*: recreate the folder or, if the change was intended, delete",
        ):
            read(own_bert)
    (own_bert / "manifest.json").unlink()
    (own_bert / "manifest.json").mkdir()
    with pytest.raises(UserError, match="cannot read .*manifest.json"):
        locate(str(own_bert))


def test_an_export_of_an_earlier_version_is_refused(exported):
    manifest = json.loads((exported / "manifest.json").read_text())
    earlier = {**{name: manifest[name] for name in ("kind", "name", "files", "training")}, "settings": {}}
    (exported / "manifest.json").write_text(json.dumps(earlier))
    with pytest.raises(UserError, match="was modified"):
        checked_manifest(exported)
