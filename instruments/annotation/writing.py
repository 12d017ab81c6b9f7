"""Writing of annotated map sets. All files are written atomically."""

import io
import tempfile
from collections import Counter
from collections.abc import Iterable, Sequence
from pathlib import Path

import numpy as np

from bertsecrets.errors import UserError
from bertsecrets.store.files import copy_whole, guarded_writes, write_whole
from instruments.annotation.map_set import ANNOTATIONS, COLUMNS, MAPS, MapSet, PatternMap, shards


def save_set(maps: MapSet, folder: Path) -> None:
    """Write a set to a folder, with all maps in one file, replacing an earlier set.

    Raises:
        UserError: If the folder contains other files, two maps have the same name, or the files cannot be written.
    """
    _check_names(maps)
    with guarded_writes(folder), tempfile.TemporaryDirectory() as room:
        (Path(room) / MAPS).write_bytes(_packed(maps.maps))
        (Path(room) / ANNOTATIONS).write_text(_annotations(maps), encoding="utf-8")
        replaced = [path.name for path in shards(folder)] or [MAPS]
        copy_whole(Path(room), folder, (*replaced, ANNOTATIONS))


def add_draw(folder: Path, drawn: MapSet) -> Path:
    """Add drawn maps to the set in a folder as a new file, and return the file. Existing files of maps are unchanged.

    Raises:
        UserError: If the set does not exist, a map's name is taken, or the files cannot be written.
    """
    known = MapSet.load(folder)
    together = MapSet(known.maps + drawn.maps, known.given + drawn.given)
    _check_names(together)
    shard = folder / f"maps-{len(shards(folder)) + 1:04d}.npz"
    write_whole(shard, _packed(drawn.maps))
    try:
        write_whole(folder / ANNOTATIONS, _annotations(together))
    except BaseException:
        shard.unlink()
        raise
    return shard


def annotation_rows(maps: MapSet) -> Iterable[tuple[str, ...]]:
    """Yield each map's row of `annotations.tsv`."""
    for each, labels in zip(maps, maps.given, strict=True):
        facts = (each.name, each.model, each.task, each.state, each.layer, each.head, each.example)
        named = (label or "" for label in (*labels, None, None, None)[:3])
        further = " ".join(filter(None, labels[3:]))
        yield tuple(map(str, (*facts, each.tokens, each.boundary, *named, further)))


def _annotations(maps: MapSet) -> str:
    return "".join("\t".join(row) + "\n" for row in (COLUMNS, *annotation_rows(maps)))


def _check_names(maps: MapSet) -> None:
    name, times = max(Counter(each.name for each in maps).items(), key=lambda item: item[1], default=("", 0))
    if times > 1:
        raise UserError(f"two maps are called {name!r}: names must be unique")


def _packed(maps: Sequence[PatternMap]) -> bytes:
    """Return the content of a file of maps. Equal maps give identical bytes."""
    flat = [each.values.ravel() for each in maps]
    file = io.BytesIO()
    np.savez_compressed(
        file,
        names=np.array([each.name for each in maps], dtype=np.str_),
        tokens=np.array([each.tokens for each in maps], dtype=np.int32),
        values=np.concatenate(flat) if flat else np.zeros(0, dtype=np.float16),
    )
    return file.getvalue()
