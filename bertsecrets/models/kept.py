"""Checkpoints of a store that are kept in 16 bits, or without their weights (`--keep-checkpoints`).

Matrices become float16, which rounds eight times less than bfloat16; trained weights are far below the largest number
that it holds, and a matrix in which one is not stays as it is. Biases and LayerNorms stay in float32: they are a
thousandth of all weights. The manifest keeps the digests of the full weights, so that what was measured from them is
found as before.
"""

import json
import shutil
from collections.abc import Iterable, Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import numpy as np

from bertsecrets.errors import UserError
from bertsecrets.models.locations import ModelRef
from bertsecrets.progress import in_bytes, tell
from bertsecrets.store.contents import size
from bertsecrets.store.entries import MARKS, damage, lock_of, read_manifest, write_manifest
from bertsecrets.store.files import MANIFEST, guarded_writes, whole_folder
from bertsecrets.store.keep import KEEPS, Keep
from bertsecrets.store.locks import held_now, unused

WEIGHTS = "*.safetensors"
MATRIX = 2  # dimensions from which on weights are rounded


@dataclass(frozen=True)
class Kept:
    """What is kept of a checkpoint's weights; `identity` is that of the full ones, as keys of measurements hold it."""

    keep: Keep
    identity: str


def kept(folder: Path) -> Kept:
    """Return what is kept of a checkpoint's weights; of one that the suite has not rewritten that is all.

    Raises:
        UserError: its manifest is damaged.
    """
    manifest = ModelRef.in_folder(folder).manifest()
    if "kept" not in manifest:
        return Kept("full", ModelRef.in_folder(folder).identity())
    return Kept(manifest["kept"], manifest["full"]["identity"])


def rewrite(folder: Path, keep: Keep) -> int | None:
    """Keep less of the weights of a store's checkpoint; return the bytes that this frees.

    Completely or not at all; None if a running process makes, reads or rewrites it. What is damaged, or has no more
    than that already, stays as it is.

    Raises:
        UserError: it cannot be written.
    """
    with guarded_writes(folder), held_now(lock_of(folder)) as free, unused(folder) as unread:
        if not (free and unread):
            return None
        if damage(folder) is not None:
            return 0
        before, manifest = kept(folder), read_manifest(folder)
        if KEEPS.index(keep) >= KEEPS.index(before.keep):
            return 0
        bytes_before = size(folder)
        with whole_folder(folder, replace=True) as temporary:
            for path in folder.iterdir():
                if path.match(WEIGHTS):
                    if keep == "half":
                        _in_16_bits(path, temporary / path.name)
                elif path.is_file() and path.name != MANIFEST:
                    shutil.copy2(path, temporary)
            facts = {name: value for name, value in manifest.items() if name not in ("files", "sha256")}
            weights = {name: digest for name, digest in manifest["files"].items() if Path(name).match(WEIGHTS)}
            full = manifest.get("full", {"identity": before.identity, "bytes": bytes_before, "files": weights})
            write_manifest(temporary, {**facts, "kept": keep, "full": full})
        return bytes_before - size(folder)


def size_kept(folder: Path, keep: Keep) -> int:
    """Return the bytes that a checkpoint will take when less of its weights is kept; at most those that it takes."""
    of_weights = {path: path.lstat().st_size for path in folder.glob(WEIGHTS)}
    rest = size(folder) - sum(of_weights.values())
    if keep == "full" or KEEPS.index(keep) >= KEEPS.index(kept(folder).keep):
        return rest + sum(of_weights.values())
    return rest + (sum(map(_bytes_in_16_bits, of_weights)) if keep == "half" else 0)


def keep_as(folders: Iterable[Path], keep: Keep) -> None:
    """Keep less of the weights of several checkpoints, and say in a line what that frees or why it cannot be done."""
    freed = 0
    done: list[Path] = []
    in_use: list[Path] = []
    for folder in dict.fromkeys(folders) if keep != "full" else ():
        try:
            less = rewrite(folder, keep)
        except UserError as error:
            tell(f"{folder.name} is kept as it is: {error}")
            continue
        in_use += [folder] if less is None and folder.is_dir() else []
        done += [folder] if less else []
        freed += less or 0
    what = "kept in 16 bits" if keep == "half" else "dropped"
    if done:
        tell(f"weights of {_named(done)} {what}: {in_bytes(freed)} freed")
    if in_use:
        later = f"bertsecrets store gc --keep-checkpoints {keep} lists them later"
        tell(f"weights of {_named(in_use)} are in use, so they are kept: {later}")


def _named(folders: Sequence[Path]) -> str:
    """Return the name of a single checkpoint, otherwise how many they are."""
    return MARKS.sub("", folders[0].name).rstrip("-") if len(folders) == 1 else checkpoints(len(folders))


def checkpoints(number: int) -> str:
    """Return a number of checkpoints in words."""
    return f"{number} checkpoint{'s' if number != 1 else ''}"


def _in_16_bits(source: Path, target: Path) -> None:
    """Write a safetensors file with its matrices in float16."""
    from safetensors import safe_open
    from safetensors.numpy import save_file

    with safe_open(source, framework="numpy") as tensors:
        less = {name: _rounded(tensors.get_tensor(name)) for name in tensors.keys()}  # noqa: SIM118  # no mapping
        metadata = tensors.metadata()
    save_file(less, target, metadata=metadata)


def _rounded(weights: np.ndarray) -> np.ndarray:
    """Return a matrix of float32 in float16 where it fits, and anything else unchanged."""
    if weights.dtype != np.float32 or weights.ndim < MATRIX:
        return weights
    with np.errstate(over="ignore"):
        less = weights.astype(np.float16)
    return less if np.isfinite(less).all() else weights


def _bytes_in_16_bits(path: Path) -> int:
    """Return about how many bytes a safetensors file will take in 16 bits, by its header."""
    total = 0
    with path.open("rb") as file:
        length = int.from_bytes(file.read(8), "little")
        header: dict[str, Any] = json.loads(file.read(length))
    for name, about in header.items():
        if name != "__metadata__":
            begin, end = about["data_offsets"]
            halved = about["dtype"] == "F32" and len(about["shape"]) >= MATRIX
            total += (end - begin) // (2 if halved else 1)
    return 8 + length + total
