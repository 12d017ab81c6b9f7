"""Delete the weights of stored checkpoints after all measurements (`--keep-checkpoints none`).

The rest of the checkpoint moves to a new entry, `dropped/NAME`. Its manifest records the identity of the weights, so
the checkpoint's measurements can still be found.
"""

import shutil
from collections.abc import Iterable, Sequence
from pathlib import Path

from bertsecrets.errors import UserError
from bertsecrets.models.locations import ModelRef
from bertsecrets.progress import in_bytes, log
from bertsecrets.store.contents import size
from bertsecrets.store.entries import DROPPED, EntryName, damage, has_weights, lock_of, read_manifest, write_manifest
from bertsecrets.store.files import MANIFEST, guarded_writes, remove, remove_unused, whole_folder
from bertsecrets.store.locks import held_now

WEIGHTS = "*.safetensors"


def weights_bytes(checkpoint: Path) -> int:
    """Return the size of a checkpoint's weights."""
    return sum(path.lstat().st_size for path in checkpoint.glob(WEIGHTS))


def drop(checkpoint: Path) -> int | None:
    """Delete the weights of a stored checkpoint, and return the number of bytes freed.

    Returns None if a running process is using the checkpoint. Damaged checkpoints are skipped.

    Raises:
        UserError: If the store cannot be written.
    """
    record = checkpoint.parents[1] / DROPPED / checkpoint.name
    with guarded_writes(checkpoint), held_now(lock_of(checkpoint)) as free:
        if not free:
            return None
        if damage(checkpoint) is not None:
            return 0
        before, manifest = size(checkpoint), read_manifest(checkpoint)
        record.parent.mkdir(exist_ok=True)
        remove(record)  # left by an earlier training run
        with whole_folder(record) as temporary:
            for path in checkpoint.iterdir():
                if path.is_file() and path.name != MANIFEST and not path.match(WEIGHTS):
                    shutil.copy2(path, temporary)
            facts = {name: value for name, value in manifest.items() if name not in ("files", "sha256")}
            identity = ModelRef.in_folder(checkpoint).identity()
            write_manifest(temporary, {**facts, "kind": DROPPED, "identity": identity})
        if not remove_unused(checkpoint):
            remove(record)
            return None
        return before - size(record)


def drop_weights(checkpoints: Iterable[Path]) -> None:
    """Delete the weights of several checkpoints, and log the space freed or the error."""
    freed = 0
    done: list[Path] = []
    in_use: list[Path] = []
    for checkpoint in dict.fromkeys(filter(has_weights, checkpoints)):
        try:
            less = drop(checkpoint)
        except UserError as error:
            log.info(f"cannot delete the weights of {checkpoint.name}: {error}")
            continue
        in_use += [checkpoint] if less is None and checkpoint.is_dir() else []
        done += [checkpoint] if less else []
        freed += less or 0
    if done:
        log.info(f"deleted the weights of {_named(done)}: {in_bytes(freed)} freed")
    if in_use:
        later = "delete them later with bertsecrets store gc --keep-checkpoints none"
        log.info(f"kept the weights of {_named(in_use)}, which are in use: {later}")


def _named(entries: Sequence[Path]) -> str:
    """Return the name of a single checkpoint, otherwise their number."""
    name = EntryName.parse(entries[0])
    return name.readable if name and len(entries) == 1 else f"{len(entries)} checkpoints"
