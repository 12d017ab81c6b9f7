"""A set of attention maps with their labels: one file of numbers for each draw, and a text file that people can review.

Each `maps-0001.npz`, `maps-0002.npz`, ... holds the values (float16, concatenated) and names of the maps of one draw; a
further draw adds a file and rewrites none. `annotations.tsv` has one row per map, in the set's order, with its facts
and labels. Rows are matched by name, so the file may be sorted. No input text is kept.

The suite's own set is not part of an installed package: `own_maps` finds it, or says how to get it.
"""

import hashlib
import io
import os
import re
import tempfile
from collections import Counter
from collections.abc import Iterable, Iterator, Mapping, Sequence
from dataclasses import dataclass, replace
from pathlib import Path
from typing import overload

import numpy as np
from jaxtyping import Float, Float16

from bertsecrets.errors import MissingError, UserError, excerpt, near_matches
from bertsecrets.patterns.classes import CLASSES
from bertsecrets.reading import lines_of, read_npy, read_text
from bertsecrets.settings import project_path
from bertsecrets.store.files import copy_whole, digest, guarded_writes, write_whole
from bertsecrets.texts.archives import read_members

MAPS, ANNOTATIONS, ANNOTATORS, LOCK = "maps-0001.npz", "annotations.tsv", "annotators.json", ".lock"
SHARDS = "maps*.npz"  # earlier versions of the suite wrote a single maps.npz
STATES = ("fine-tuned", "pretrained")
LABELS = ("label", "second label", "third label")
FURTHER = "further labels"
COLUMNS = ("name", "model", "task", "state", "layer", "head", "example", "tokens", "boundary", *LABELS, FURTHER)
VARIABLE = "BERTSECRETS_MAPS"  # environment variable that names another folder for the suite's own maps
OWN, UNSEEN = "data/patterns", "unseen"
HOW_TO_GET = (
    f"in a checkout, run `dvc pull data/patterns.dvc`; elsewhere, name their folder by {VARIABLE}=DIR "
    "(or train-patterns --data DIR)"
)
AGREED = 0.8  # share of the labels that must be equal
LARGEST = float(np.finfo(np.float16).max)  # number that a file of maps can hold
SHARD_LIMIT = 512 * 2**20  # bytes of the values in a file of maps: 26 000 maps of 100 tokens
TOKEN_LIMIT = 10_000  # tokens of a map

# Models whose layers were taken from another model: that model, and the original number of each layer.
KIN = {
    "minilm": ("minilm-l12", (1, 3, 5, 7, 9, 11)),
    "aegis-judge": ("minilm-l12", (1, 3, 5, 7, 9, 11)),
    "aegis-microbrain": ("minilm-l12", tuple(range(1, 13))),
    "aegis-router": ("minilm-l12", tuple(range(1, 13))),
    "paraphrase-minilm-l3": ("minilm-l12", (4, 8, 12)),
}


@dataclass(frozen=True)
class PatternMap:
    """One head's attention over one input: row = query, column = key, each row a distribution.

    `layer` and `head` count from 1 (0 if not recorded), `example` from 0 in the validation file. `boundary`
    is the index of the second text's first token; it equals `tokens` for an input of one text.
    """

    name: str
    model: str
    task: str
    state: str
    layer: int
    head: int
    example: int
    boundary: int
    values: Float16[np.ndarray, "tokens tokens"]

    @property
    def tokens(self) -> int:
        """The number of real tokens of the input, including special ones."""
        return len(self.values)

    @property
    def group(self) -> tuple[str, int, int]:
        """The group that cross-validation must not split: model, layer and head, for all checkpoints of the model.

        Related models (`KIN`) share groups too. A map whose head is not recorded is a group of its own.
        """
        if not self.layer:
            return (self.name, 0, 0)
        family, layers = KIN.get(self.model, (self.model, ()))
        return (family, layers[self.layer - 1] if self.layer <= len(layers) else self.layer, self.head)

    @property
    def separators(self) -> tuple[int, ...]:
        """The places of the tokens that end each text ([SEP])."""
        return (self.tokens - 1,) if self.boundary == self.tokens else (self.boundary - 1, self.tokens - 1)

    @property
    def shares(self) -> Float[np.ndarray, " tokens"]:
        """The share of all attention that each column receives."""
        return self.values.astype(np.float64).mean(axis=0)

    @property
    def special_share(self) -> float:
        """The share of all attention that [CLS] and [SEP] receive together."""
        return float(self.shares[sorted({0, *self.separators})].sum())


@dataclass(frozen=True)
class MapSet(Sequence[PatternMap]):
    """Maps with their labels. `labels`, and those of a second and third annotator, hold a class for each map, or None.

    `further_labels` are those of all later annotators, who usually saw only maps on which the first ones disagree.
    """

    maps: tuple[PatternMap, ...]
    labels: tuple[str | None, ...] = ()
    second_labels: tuple[str | None, ...] = ()
    third_labels: tuple[str | None, ...] = ()
    further_labels: tuple[tuple[str, ...], ...] = ()

    def __post_init__(self) -> None:
        for column in ("labels", "second_labels", "third_labels"):
            given = getattr(self, column) or (None,) * len(self.maps)
            if len(given) != len(self.maps):
                raise ValueError(f"{len(given)} {column} for {len(self.maps)} maps")
            object.__setattr__(self, column, tuple(given))
        object.__setattr__(self, "further_labels", tuple(self.further_labels) or ((),) * len(self.maps))
        if len(self.further_labels) != len(self.maps):
            raise ValueError(f"{len(self.further_labels)} further labels for {len(self.maps)} maps")

    def __len__(self) -> int:
        return len(self.maps)

    @overload
    def __getitem__(self, place: int) -> PatternMap: ...
    @overload
    def __getitem__(self, place: slice) -> "MapSet": ...
    def __getitem__(self, place: int | slice) -> "PatternMap | MapSet":
        if isinstance(place, slice):
            return self.take(range(len(self))[place])
        return self.maps[place]

    def __iter__(self) -> Iterator[PatternMap]:
        return iter(self.maps)

    @property
    def groups(self) -> list[tuple[str, int, int]]:
        """The group of each map, for cross-validation."""
        return [one.group for one in self.maps]

    def take(self, places: Iterable[int]) -> "MapSet":
        """Return the maps at these places, in this order, with their labels."""
        order = list(places)
        return MapSet(
            tuple(self.maps[i] for i in order),
            tuple(self.labels[i] for i in order),
            tuple(self.second_labels[i] for i in order),
            tuple(self.third_labels[i] for i in order),
            tuple(self.further_labels[i] for i in order),
        )

    @property
    def votes(self) -> list[tuple[str, ...]]:
        """The labels of each map, in the order in which they were given."""
        columns = zip(self.labels, self.second_labels, self.third_labels, self.further_labels, strict=True)
        return [tuple(label for label in (*named, *further) if label is not None) for *named, further in columns]

    @property
    def agreed(self) -> list[bool]:
        """For each map, True if at least four in five of its labels are equal (so also if it has one label)."""
        return [bool(given) and max(map(given.count, given)) >= AGREED * len(given) for given in self.votes]

    def settled(self) -> "MapSet":
        """Return the maps with one label each: the most frequent one and, in a tie, the one given first."""
        return MapSet(self.maps, tuple(max(given, key=given.count) if given else None for given in self.votes))

    def relabelled(self, labels: Mapping[str, str | None], second: bool = False) -> "MapSet":
        """Return the same maps with some labels replaced, given by map name; other maps keep theirs.

        Raises:
            UserError: there is no map with such a name, or a class is unknown.
        """
        names = {one.name for one in self.maps}
        for name, label in labels.items():
            if name not in names:
                raise UserError(f"no map is called {name!r}: {near_matches(name, names)}")
            if label is not None and label not in CLASSES:
                raise UserError(f"map {name}: unknown label {label!r}; expected one of {', '.join(CLASSES)}")
        old = self.second_labels if second else self.labels
        new = tuple(labels.get(one.name, label) for one, label in zip(self.maps, old, strict=True))
        return replace(self, second_labels=new) if second else replace(self, labels=new)

    # ------------------------------------------------------------------ files

    @classmethod
    def load(cls, folder: Path) -> "MapSet":
        """Return the set in a folder.

        Raises:
            UserError: a file is missing or damaged, or a row is wrong; the message names file and line.
        """
        check_set(folder)
        arrays: dict[str, np.ndarray] = {}
        for shard in shards(folder):
            further = _read_maps(shard)
            doubled = arrays.keys() & further.keys()
            if doubled:
                raise UserError(
                    f"{shard} has a map {min(doubled)!r} that is also in another file: names must be unique"
                )
            arrays |= further
        rows = _read_rows(folder / ANNOTATIONS)
        maps = []
        for line, row in rows:
            where = f"{folder / ANNOTATIONS}, line {line}"
            values = arrays.pop(row["name"], None)
            if values is None:
                raise UserError(
                    f"{where}: there is no map {row['name'][:99]!r}, or it has a row already: "
                    "is a row doubled or renamed?"
                )
            maps.append(_row_map(row, values, where))
        if arrays:
            raise UserError(
                f"{folder / ANNOTATIONS}: no row for {next(iter(arrays))!r} ({len(arrays)} maps without one): "
                "put its row back, or draw the set again"
            )
        return cls(
            tuple(maps),
            tuple(row["label"] or None for _, row in rows),
            tuple(row["second label"] or None for _, row in rows),
            tuple(row["third label"] or None for _, row in rows),
            tuple(tuple(row[FURTHER].split()) for _, row in rows),
        )

    def save(self, folder: Path) -> None:
        """Write the set as a folder with one file of maps, completely or not at all; replaces an older set.

        Raises:
            UserError: the folder holds other files, two maps share a name, or the files cannot be written.
        """
        _check_names(self.maps)
        with guarded_writes(folder), tempfile.TemporaryDirectory() as room:
            (Path(room) / MAPS).write_bytes(_packed(self.maps))
            self.save_annotations(Path(room))
            replaced = [path.name for path in shards(folder)] or [MAPS]
            copy_whole(Path(room), folder, (*replaced, ANNOTATIONS), (ANNOTATORS, LOCK))

    def save_annotations(self, folder: Path) -> None:
        """Write only the text file of labels, completely or not at all."""
        lines = ["\t".join(COLUMNS)]
        labels = zip(self.labels, self.second_labels, self.third_labels, self.further_labels, strict=True)
        for one, (*named, further) in zip(self.maps, labels, strict=True):
            facts = (one.name, one.model, one.task, one.state, one.layer, one.head, one.example)
            given = (*(label or "" for label in named), " ".join(further))
            lines.append("\t".join(map(str, (*facts, one.tokens, one.boundary, *given))))
        write_whole(folder / ANNOTATIONS, "\n".join(lines) + "\n")


def add_draw(folder: Path, drawn: MapSet) -> Path:
    """Add a draw to the set in a folder: a new file of maps, and rows at the end; no file of maps is rewritten.

    Returns:
        the path of the new file.

    Raises:
        UserError: there is no set, a map's name is taken, or the files cannot be written.
    """
    known = MapSet.load(folder)
    columns = ("maps", "labels", "second_labels", "third_labels", "further_labels")
    together = MapSet(*(getattr(known, column) + getattr(drawn, column) for column in columns))
    _check_names(together.maps)
    shard = folder / f"maps-{len(shards(folder)) + 1:04d}.npz"
    write_whole(shard, _packed(drawn.maps))
    try:
        together.save_annotations(folder)
    except BaseException:
        shard.unlink()
        raise
    return shard


def shards(folder: Path) -> list[Path]:
    """Return a set's files of maps, in the order of the draws."""
    return sorted(folder.glob(SHARDS))


def check_set(folder: Path) -> None:
    """Make sure that a folder has files of maps.

    Raises:
        UserError: it has none.
    """
    if not shards(folder):
        raise UserError(f"no maps in {folder}: a set of maps is a folder with {MAPS} and {ANNOTATIONS}")


def own_maps(part: str = "") -> Path:
    """Return the folder of the suite's own annotated maps.

    Args:
        part: `UNSEEN` for the maps of the encoder on which no classifier was trained or chosen.

    Raises:
        MissingError: they are not available; the message says how to get them.
    """
    named = os.environ.get(VARIABLE)
    folder = Path(named or project_path(OWN)) / part
    if not shards(folder):
        where = f"in {folder} (named by {VARIABLE})" if named else "available"
        raise MissingError(f"the suite's annotated maps are not {where}: {HOW_TO_GET}")
    return folder


def fingerprint(maps: MapSet) -> str:
    """Return a digest of maps, their labels and their groups.

    It does not depend on how the maps are divided into files.
    """
    values = [[one.name, hashlib.sha256(one.values.astype("<f2").tobytes()).hexdigest()] for one in maps]
    return digest([values, maps.votes, maps.groups])


def _check_names(maps: Sequence[PatternMap]) -> None:
    names = [one.name for one in maps]
    if len(set(names)) < len(names):
        doubled = min(name for name, times in Counter(names).items() if times > 1)
        raise UserError(f"two maps are called {doubled!r}: names must be unique")


def _packed(maps: Sequence[PatternMap]) -> bytes:
    """Return the bytes of a file of maps; equal maps give identical bytes."""
    flat = [one.values.ravel() for one in maps]
    file = io.BytesIO()
    np.savez_compressed(
        file,
        names=np.array([one.name for one in maps], dtype=np.str_),
        tokens=np.array([one.tokens for one in maps], dtype=np.int32),
        values=np.concatenate(flat) if flat else np.zeros(0, dtype=np.float16),
    )
    return file.getvalue()


def _read_maps(path: Path) -> dict[str, np.ndarray]:
    wanted = ("names.npy", "tokens.npy", "values.npy")
    try:
        arrays = {name: read_npy(data) for name, data in read_members(path, wanted.__contains__, SHARD_LIMIT)}
        if len(arrays) < len(wanted):
            raise ValueError(f"it lacks {', '.join(name for name in wanted if name not in arrays)}")
        names, tokens, values = (arrays[name] for name in wanted)
        kinds = names.dtype.kind, tokens.dtype.kind, values.dtype.kind
        if kinds not in {("U", "i", "f"), ("U", "u", "f")} or {names.ndim, tokens.ndim, values.ndim} != {1}:
            raise ValueError("names, sizes and values are not lists of texts, whole numbers and numbers")
        if tokens.size and not (tokens.min() >= 1 and tokens.max() <= TOKEN_LIMIT):
            raise ValueError(f"a map has less than 1 or more than {TOKEN_LIMIT} tokens")
        ends = np.cumsum(tokens.astype(np.int64) ** 2)
        if len(names) != len(tokens) or len(values) != (ends[-1] if len(ends) else 0):
            raise ValueError("names, sizes and values do not agree")
        if values.size and not (values.min() >= 0 and values.max() <= LARGEST):
            raise ValueError(f"its values are not attention weights, from 0 to at most {LARGEST:.0f}")
        parts = np.split(values.astype(np.float16), ends[:-1]) if len(ends) else []
        maps = {str(name): part.reshape(n, n) for name, n, part in zip(names, tokens, parts, strict=True)}
        if len(maps) < len(names):
            raise ValueError("two of its maps have one name")
    except (ValueError, OSError) as error:
        raise UserError(f"{path} is damaged ({excerpt(error, 150)}): get it again, or draw the set again") from error
    return maps


def _read_rows(path: Path) -> list[tuple[int, dict[str, str]]]:
    lines = lines_of(read_text(path))
    if tuple(lines[0].split("\t")) != COLUMNS:
        raise UserError(f"{path}, line 1: expected the tab-separated columns {', '.join(COLUMNS)}")
    rows = []
    for number, line in enumerate(lines[1:], start=2):
        if not line.strip():
            continue
        fields = line.split("\t")
        if len(fields) != len(COLUMNS):
            raise UserError(f"{path}, line {number}: {len(fields)} fields where {len(COLUMNS)} were expected")
        rows.append((number, dict(zip(COLUMNS, fields, strict=True))))
    return rows


def _row_map(row: dict[str, str], values: np.ndarray, where: str) -> PatternMap:
    """Return the map of a row, after checking every field."""
    further = [(FURTHER, label) for label in row[FURTHER].split()]
    for column, label in (*((column, row[column]) for column in LABELS), *further):
        if label and label not in CLASSES:
            raise UserError(f"{where}: unknown {column} {label[:60]!r}; expected one of {', '.join(CLASSES)}, or none")
    if row["state"] not in STATES:
        raise UserError(f"{where}: unknown state {row['state'][:60]!r}; expected {' or '.join(STATES)}")
    numbers = {}
    for column in ("layer", "head", "example", "tokens", "boundary"):
        if not re.fullmatch("[0-9]{1,9}", row[column]):
            raise UserError(f"{where}: {column} {row[column][:60]!r} is not a whole number of at most 9 digits")
        numbers[column] = int(row[column])
    tokens = numbers.pop("tokens")
    if tokens != len(values):
        raise UserError(f"{where}: {tokens} tokens, but its map has {len(values)}")
    if not 1 <= numbers["boundary"] <= tokens:
        raise UserError(f"{where}: boundary {numbers['boundary']} is outside 1 to {tokens}")
    return PatternMap(row["name"], row["model"], row["task"], row["state"], values=values, **numbers)
