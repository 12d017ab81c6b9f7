"""Locations of model files: on the hub (at a pinned revision), in a local folder, or in an installed package.

`locate` resolves a name once, and all other code uses the resulting `ModelRef`.
"""

import functools
import json
import os
import re
from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass, replace
from fnmatch import fnmatchcase
from pathlib import Path
from typing import Any

from bertsecrets.errors import RunError, UserError, near_matches
from bertsecrets.hub import Repository
from bertsecrets.models.families import (
    ALIASES,
    MINILM_SHA256,
    MODEL_SHA256,
    MPNET_SHA256,
    PINNED_COMMITS,
    full_name,
    own_family,
)
from bertsecrets.models.packaged import PACKAGED_MODELS, packaged_folder
from bertsecrets.reading import expanded, working_directory
from bertsecrets.store.entries import NO_SOURCE, checked_manifest, read_own_manifest
from bertsecrets.store.files import digest, file_sha256, listed, read_json_object
from bertsecrets.texts.published import PAPERS_MODEL

# Files that determine the encoder, and files that transformers reads for its tokenizers.
ENCODER_FILES = ("config.json", "*.safetensors", "*.safetensors.index.json")
TOKENIZER_FILES = (
    *("tokenizer*.json", "special_tokens_map.json", "added_tokens.json", "*vocab*.txt", "*vocab*.json", "*.vocab"),
    *("merges.txt", "*.model", "*.spm", "*.bpe", "*.codes", "*.tiktoken", "dict*.txt", "tekken.json"),
    *("normalizer.json", "word_shape.json", "word_pronunciation.json", "emoji.json", "byte_maps.json"),
)
HUB_WEIGHTS = ("model.safetensors", "model.safetensors.index.json", "model-*.safetensors")
WEIGHT_FILES = ("model.safetensors", "model.safetensors.index.json")
PUBLISHED_WEIGHTS = {  # names of models, keyed by the digest of their weights
    files[WEIGHT_FILES[0]]: name
    for name, files in {**MODEL_SHA256, "minilm": MINILM_SHA256, "mpnet": MPNET_SHA256}.items()
}
PICKLE_FILES = (
    "pytorch_model.bin",
    "pytorch_model.bin.index.json",
    "model.bin",
    "model.pt",
    "tf_model.h5",
    "flax_model.msgpack",
)
ADAPTER_FILES = (
    "adapter_config.json",
    *(f"*adapter*{suffix}" for suffix in (".safetensors", ".bin", ".pt", ".pth", ".npz")),
)
# Settings that make transformers read files other than those that identify a model or tokenizer.
REDIRECTIONS = {
    "config.json": ("configuration_files", "transformers_weights"),
    "tokenizer_config.json": ("fast_tokenizer_files",),
}
MODEL_ADVICE = (
    "use the model minilm, which does not need the hub, or a folder with config, tokenizer and model.safetensors"
)


@dataclass(frozen=True)
class ModelRef:
    """The location of a model. `path` is a folder or a hub name, and `revision` is a commit of the hub repository.

    `name` is the name that the user gave. If `offline` is True, the network is not used.
    """

    name: str
    path: str
    revision: str | None = None
    offline: bool = False

    @classmethod
    def in_folder(cls, folder: Path) -> "ModelRef":
        """Return a reference to the model in a local folder."""
        return cls(str(folder), str(folder))

    @property
    def local(self) -> bool:
        """Whether the files are in a local folder."""
        return os.path.isdir(self.path)  # Path.is_dir raises an error for names that are too long

    def resolved(self) -> "ModelRef":
        """Return this reference with the model's commit added. The reference to a local model is returned unchanged."""
        return self if self.local else _resolve(self)

    def identity(self) -> str:
        """Return a text that identifies the encoder: a digest of its files, or the hub name and the commit.

        The digest also covers the code of a custom architecture, and the activation function of a cross-encoder.
        """
        contents = self._contents(ENCODER_FILES) or ""
        own = own_family(self.model_type())
        source = own.source if own else None
        more = [source, self.activation()]
        identity = digest([contents, *filter(None, more)]) if any(more) else contents
        return f"{NO_SOURCE} {identity}" if source is not None and source.startswith(NO_SOURCE) else identity

    def activation(self) -> str | None:
        """Return the name of the activation function in config_sentence_transformers.json, or None if it is not set."""
        return read_json_object(Path(self.path) / "config_sentence_transformers.json").get("activation_fn")

    def model_type(self) -> str | None:
        """Return the model type in config.json, or None if the file is missing or unreadable."""
        name = read_json_object(Path(self.path) / "config.json").get("model_type")
        return name if isinstance(name, str) else None

    def tokenizer(self) -> str | None:
        """Return a text that identifies the tokenizer: a digest of its files, or the hub name and the commit.

        For a local folder without a tokenizer, return None.
        """
        return self._contents(TOKENIZER_FILES)

    def _contents(self, patterns: Sequence[str]) -> str | None:
        if not self.local:
            ref = self.resolved()
            return f"{ref.path}@{ref.revision}"
        folder = Path(self.path)
        files = matching(folder, patterns)
        return digest({path.name: file_sha256(path) for path in files}) if files else None

    def folder(self, weights: bool = True) -> Path:
        """Return the folder that contains the files, with or without the weights.

        The files of a hub model are downloaded and verified first.
        """
        if self.local:
            return Path(self.path)
        commit = self.resolved().revision
        assert commit is not None
        patterns = ["config.json", "adapter_config.json", *TOKENIZER_FILES]
        essential: list[tuple[str, ...]] = [("config.json",), ("tokenizer.json", *TOKENIZER_FILES)]
        if weights:
            patterns += HUB_WEIGHTS
            essential.append(HUB_WEIGHTS)
        return _repository(self).folder(commit, patterns, essential)

    def tensors(self) -> dict[str, str]:
        """Return the data type of each tensor in the weight files, by name, as spelled by safetensors (F32, I8)."""
        from safetensors import safe_open

        folder = self.folder()
        single, index = (folder / file for file in WEIGHT_FILES)
        shards = {single.name} if single.is_file() else {*json.loads(index.read_bytes())["weight_map"].values()}
        types: dict[str, str] = {}
        for shard in shards:
            with safe_open(folder / shard, "numpy") as file:
                types |= {name: file.get_slice(name).get_dtype() for name in file.keys()}  # noqa: SIM118
        return types

    def manifest(self) -> dict[str, Any]:
        """Return the manifest of a checkpoint that this suite made. For other models, the manifest is empty."""
        return read_own_manifest(Path(self.path))


def matching(folder: Path, patterns: Sequence[str]) -> list[Path]:
    """Return, in sorted order, the files in a folder whose names match a pattern. A missing folder counts as empty."""
    files = [path for path in listed(folder) if any(fnmatchcase(path.name, pattern) for pattern in patterns)]
    return [path for path in files if path.is_file()]


def published_identities(name: str) -> set[str]:
    """Return both identities of a pinned model's encoder: as a hub model, and as a local copy of the hub model's files.

    The local copy must contain the published `config.json` and `model.safetensors`. Files that were saved again have
    different digests, even if the weights are the same.
    """
    repository = full_name(name)
    files = {file: MODEL_SHA256[repository][file] for file in ("config.json", "model.safetensors")}
    return {f"{repository}@{PINNED_COMMITS[repository]}", digest(files)}


def recorded_name(name: str) -> str:
    """Return the name under which a model's outcomes are recorded. The location of the weights does not affect it.

    A folder with the weights of a pinned or packaged model gets the name of that model. Other models keep their full
    name.
    """
    if name in PACKAGED_MODELS:
        return name
    weights = expanded(name) / WEIGHT_FILES[0]
    return PUBLISHED_WEIGHTS.get(file_sha256(weights), name) if os.path.isfile(weights) else full_name(name)


def is_papers_model(name: str) -> bool:
    """Return whether a model is the paper's model, judging by its weights or by its repository (at any commit).

    >>> is_papers_model("google-bert/bert-base-uncased@86b5e09"), is_papers_model("minilm")
    (True, False)
    """
    return recorded_name(name).partition("@")[0] == full_name(PAPERS_MODEL)


def locator(bases: Mapping[str, str], offline: bool = False) -> Callable[[str], ModelRef]:
    """Return a version of `locate` that caches its results. For a checkpoint in `bases`, it locates the base model.

    Relative paths start at the current working directory, even if the process changes it later.
    """
    start = working_directory()
    return functools.cache(lambda name: locate(bases.get(name, name), offline, start))


def locate(name: str, offline: bool = False, start: str = "") -> ModelRef:
    """Return a reference to a model. `name` is `NAME[@REVISION]`, a folder, an alias, `minilm` or `mpnet`.

    Relative paths start at the folder `start` or, if it is empty, at the current working directory.

    >>> locate("bert-base-uncased").path
    'google-bert/bert-base-uncased'
    """
    if name in PACKAGED_MODELS:
        return ModelRef(name, str(packaged_folder(name)), offline=offline)
    name = str(expanded(name)) if name.startswith("~") else name
    folder = os.path.join(start, name) if name else name
    if os.path.isdir(folder):
        check_folder(Path(folder))
        return ModelRef(name, folder, offline=offline)
    if (page := re.match(r"https?://(?:www\.)?(?:huggingface\.co|hf\.co)/([^/?#]+(?:/[^/?#]+)?)", name)) is not None:
        raise UserError(f"{name} is the address of a web page: use the model's name, {page[1]}, instead")
    if name.startswith((".", "/", "~")) or name.count("/") > 1:
        raise UserError(f"no model folder at {name}: {MODEL_ADVICE}")
    repository, _, revision = name.partition("@")
    if not repository:
        raise UserError(f"model {name!r} has no name before the @: {MODEL_ADVICE}")
    repository = ALIASES.get(repository, repository)
    return ModelRef(name, repository, revision or PINNED_COMMITS.get(repository), offline=offline)


def check_folder(folder: Path) -> None:
    """Check that a folder contains a safetensors model for transformers. If this suite made it, check for damage."""
    check_files(folder)
    if not (folder / "config.json").is_file():
        raise RunError(f"{folder} holds no config.json: it is not a transformers model folder")
    if not any((folder / weights).is_file() for weights in WEIGHT_FILES):
        pickled = [p for p in PICKLE_FILES if (folder / p).exists()]
        held = f"only {pickled[0]}, which this suite never opens" if pickled else "no weights"
        raise RunError(f"{folder} holds {held}: save the model as model.safetensors, with save_pretrained")
    _check_shards(folder)
    checked_manifest(folder)


def check_files(folder: Path) -> None:
    """Reject folders whose files do not determine what transformers opens.

    These are folders with an adapter, which transformers uses only if certain packages are installed, and folders with
    settings that make transformers read other files.
    """
    for file, names in REDIRECTIONS.items():
        settings = read_json_object(folder / file)
        if (name := next((name for name in names if settings.get(name) is not None), None)) is not None:
            raise RunError(
                f"{folder / file} names other files to read ({name}), and changes to those would not be noticed: "
                "save the model with save_pretrained in another folder"
            )
    adapter = next((path.name for path in matching(folder, ADAPTER_FILES)), None)
    if adapter is not None:
        raise RunError(
            f"{folder} holds an adapter ({adapter}), which is not a model of its own: merge it into its base model "
            "(merge_and_unload in peft) and save the result in another folder"
        )


def _check_shards(folder: Path) -> None:
    """Check that an index lists only files in its own folder, because a model's identity covers only these files."""
    index = folder / WEIGHT_FILES[1]
    if not index.is_file():
        return
    if (folder / WEIGHT_FILES[0]).is_file():
        raise RunError(f"{folder} holds both {WEIGHT_FILES[0]} and {WEIGHT_FILES[1]}: delete the outdated one")
    try:
        shards = set(json.loads(index.read_bytes())["weight_map"].values())
        foreign = next((shard for shard in shards if not (folder / shard).is_file() or Path(shard).name != shard), None)
    except (ValueError, LookupError, TypeError, AttributeError, RecursionError) as error:
        raise RunError(f"{index} is not an index of weights: download or save the model again") from error
    if foreign is not None:
        raise RunError(f"{index} lists {foreign[:100]!r}, which is not a file in the same folder: save the model again")


@functools.cache
def _resolve(ref: ModelRef) -> ModelRef:
    """Return the reference with a commit added: the cached commit or, if no commit is cached, the current commit."""
    return replace(ref, revision=_repository(ref).commit("config.json"))


def _repository(ref: ModelRef) -> Repository:
    """Return a `Repository` for a model on the hub, with a title, advice and a hint for error messages."""
    hint = near_matches(ref.name, [*PACKAGED_MODELS, *ALIASES, *PINNED_COMMITS])
    pinned = ref.revision is not None and ref.revision == PINNED_COMMITS.get(ref.path)
    return Repository(
        ref.path,
        ref.revision,
        title=f"model {ref.path}" + (f" at revision {ref.revision}" if ref.revision else ""),
        advice=MODEL_ADVICE,
        hint=f" ({hint})" if hint.startswith("did you") and ref.path not in PINNED_COMMITS else "",
        offline=ref.offline,
        pins=MODEL_SHA256[ref.path] if pinned else {},
    )
