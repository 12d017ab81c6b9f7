"""Reading a set of annotated attention maps.

Each file `maps-0001.npz`, `maps-0002.npz`, ... contains the values (float16, concatenated) and names of the maps from
one draw. `annotations.tsv` contains one row per map with metadata and labels. Rows are matched by name, so the order of
rows is arbitrary. `plain-words.tsv` contains the labels of readers who were given only the text of the paper or the
blog. Input texts are not stored.

`own_maps` locates the suite's own set, or raises an error with instructions.
"""

import hashlib
import os
import re
from collections.abc import Iterable, Iterator, Mapping, Sequence
from dataclasses import dataclass
from pathlib import Path

import numpy as np
from jaxtyping import Float16

from bertsecrets.errors import MissingError, UserError, excerpt
from bertsecrets.patterns.classes import CLASSES
from bertsecrets.patterns.readings import Reading, labels_agree, majority_label
from bertsecrets.progress import counted
from bertsecrets.reading import lines_of, read_npy, read_text
from bertsecrets.settings import project_path
from bertsecrets.store.files import digest
from instruments.archives import read_members

MAPS, ANNOTATIONS, PLAIN_WORDS = "maps-0001.npz", "annotations.tsv", "plain-words.tsv"
STATES = ("fine-tuned", "pretrained")
LABELS = ("label", "second label", "third label")
FURTHER = "further labels"
COLUMNS = ("name", "model", "task", "state", "layer", "head", "example", "tokens", "boundary", *LABELS, FURTHER)
PLAIN_WORDS_COLUMNS = ("name", "words", "reader", "class")
VARIABLE = "BERTSECRETS_MAPS"  # environment variable that names a folder to use instead of the suite's own maps
OWN, UNSEEN = "data/patterns", "unseen"
TEXTS: dict[str, Reading] = {"paper": "special", "blog": "stripes"}  # the reading that each text defines
# Readers whose labels are held out from training, to measure how well they agree with each other and with classifiers.
HELD_OUT_READERS = ("5", "6", "7")
# Readers of maps that were chosen because classifiers were unsure of them. Such maps are not a random sample, so their
# labels are used for training but not for evaluation.
READERS_OF_UNSURE_MAPS = ("8", "9")
LARGEST = float(np.finfo(np.float16).max)  # largest value that can be stored
SHARD_LIMIT = 512 * 2**20  # maximum size of a file's values in bytes, enough for 26 000 maps of 100 tokens
TOKEN_LIMIT = 10_000  # maximum number of tokens per map

# For models with layers copied from another model, the name of that model, and the source layer of each layer.
KIN = {
    "minilm": ("minilm-l12", (1, 3, 5, 7, 9, 11)),
    "aegis-judge": ("minilm-l12", (1, 3, 5, 7, 9, 11)),
    "aegis-microbrain": ("minilm-l12", tuple(range(1, 13))),
    "aegis-router": ("minilm-l12", tuple(range(1, 13))),
    "paraphrase-minilm-l3": ("minilm-l12", (4, 8, 12)),
}


@dataclass(frozen=True)
class PatternMap:
    """One head's attention map for one input. Rows are queries, columns are keys, and rows sum to 1.

    `layer` and `head` are numbered from 1 (0 if unknown). `example` is a zero-based row index in the validation file.
    `boundary` is the index of the second text's first token, or `tokens` for inputs with one text.
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
        """The number of real tokens in the input, including special tokens."""
        return len(self.values)

    @property
    def group(self) -> tuple[str, int, int]:
        """The cross-validation group, which is (model, layer, head) and is shared by all checkpoints of the model.

        Related models (`KIN`) share groups. A map with an unknown head forms a separate group.
        """
        if not self.layer:
            return (self.name, 0, 0)
        family, layers = KIN.get(self.model, (self.model, ()))
        return (family, layers[self.layer - 1] if self.layer <= len(layers) else self.layer, self.head)


@dataclass(frozen=True)
class MapSet:
    """Maps, each with its labels in the order of the annotators. A label is None if the annotator gave none.

    Annotators after the third usually saw only maps on which earlier labels differed.
    """

    maps: tuple[PatternMap, ...]
    given: tuple[tuple[str | None, ...], ...] = ()

    def __post_init__(self) -> None:
        if self.given and len(self.given) != len(self.maps):
            raise ValueError(f"labels are given for {len(self.given)} maps, but the set has {len(self.maps)}")
        object.__setattr__(self, "given", self.given or ((),) * len(self.maps))

    def __len__(self) -> int:
        return len(self.maps)

    def __iter__(self) -> Iterator[PatternMap]:
        return iter(self.maps)

    @property
    def groups(self) -> list[tuple[str, int, int]]:
        """The group of each map, for cross-validation."""
        return [pattern_map.group for pattern_map in self.maps]

    def take(self, places: Iterable[int]) -> "MapSet":
        """Return the maps at these indices, in this order, with their labels."""
        order = list(places)
        return MapSet(tuple(self.maps[i] for i in order), tuple(self.given[i] for i in order))

    def of_annotator(self, place: int) -> tuple[str | None, ...]:
        """Return the label that the annotator at a place, from 0, gave to each map."""
        return tuple(labels[place] if place < len(labels) else None for labels in self.given)

    @property
    def labels(self) -> tuple[str | None, ...]:
        """The first annotator's label of each map."""
        return self.of_annotator(0)

    @property
    def votes(self) -> list[tuple[str, ...]]:
        """The labels of each map, in the order of annotation."""
        return [tuple(filter(None, labels)) for labels in self.given]

    @property
    def agreed(self) -> list[bool]:
        """Whether at least 80% of each map's labels are equal, which is always true for maps with one label."""
        return [labels_agree(given) for given in self.votes]

    def settled(self) -> "MapSet":
        """Return the maps with their majority labels. Ties are resolved in favour of the earliest label."""
        return MapSet(self.maps, tuple((majority_label(given),) if given else () for given in self.votes))

    @classmethod
    def load(cls, folder: Path) -> "MapSet":
        """Load the set in a folder.

        Raises:
            UserError: a file is missing or damaged, or a row is invalid.
        """
        if not shards(folder):
            raise UserError(f"no maps in {folder}: a set of maps is a folder with {MAPS} and {ANNOTATIONS}")
        arrays: dict[str, np.ndarray] = {}
        for shard in shards(folder):
            further = _read_maps(shard)
            doubled = arrays.keys() & further.keys()
            if doubled:
                raise UserError(
                    f"{shard} has a map {min(doubled)!r} that is also in another file: names must be unique"
                )
            arrays |= further
        maps, given = [], []
        for where, row in _read_rows(folder / ANNOTATIONS, COLUMNS):
            values = arrays.pop(row["name"], None)
            if values is None:
                raise UserError(
                    f"{where}: map {row['name'][:99]!r} does not exist or already has a row: "
                    "check for a duplicate or renamed row"
                )
            given.append(_row_labels(row, where))
            maps.append(_row_map(row, values, where))
        if arrays:
            raise UserError(
                f"{folder / ANNOTATIONS}: no row for {next(iter(arrays))!r} ({len(arrays)} maps have no row): "
                "restore it, or draw the set again"
            )
        return cls(tuple(maps), tuple(given))


def shards(folder: Path) -> list[Path]:
    """Return the files of a set's maps, in the order in which they were drawn."""
    return sorted(folder.glob("maps-*.npz"))


def own_maps(part: str = "") -> Path:
    """Return the folder of the suite's own annotated maps.

    Args:
        part: `UNSEEN` for the maps of the encoder that was not used for training or model selection.

    Raises:
        MissingError: the maps are not available. The message explains how to get the maps.
    """
    named = os.environ.get(VARIABLE)
    folder = Path(named or project_path(OWN)) / part
    if not shards(folder):
        where = f"in {folder} (named by {VARIABLE})" if named else "available"
        remedy = f"run `dvc pull data/patterns.dvc`, or set {VARIABLE} to their folder"
        raise MissingError(f"the suite's annotated maps are not {where}: {remedy}")
    return folder


def fingerprint(maps: MapSet) -> str:
    """Return a digest of maps, labels and groups.

    The digest is independent of how maps are distributed over files.
    """
    values = [[each.name, hashlib.sha256(each.values.astype("<f2").tobytes()).hexdigest()] for each in maps]
    return digest([values, maps.votes, maps.groups])


def _read_maps(path: Path) -> dict[str, np.ndarray]:
    members = ("names.npy", "tokens.npy", "values.npy")
    try:
        arrays = {name: read_npy(data) for name, data in read_members(path, members.__contains__, SHARD_LIMIT)}
        if len(arrays) < len(members):
            raise ValueError(f"missing {', '.join(name for name in members if name not in arrays)}")
        names, tokens, values = (arrays[name] for name in members)
        kinds = names.dtype.kind, tokens.dtype.kind, values.dtype.kind
        if kinds not in {("U", "i", "f"), ("U", "u", "f")} or {names.ndim, tokens.ndim, values.ndim} != {1}:
            raise ValueError("names, tokens or values have the wrong type or number of dimensions")
        if tokens.size and not (tokens.min() >= 1 and tokens.max() <= TOKEN_LIMIT):
            raise ValueError(f"a map has fewer than 1 or more than {TOKEN_LIMIT} tokens")
        ends = np.cumsum(tokens.astype(np.int64) ** 2)
        if len(names) != len(tokens) or len(values) != (ends[-1] if len(ends) else 0):
            raise ValueError("the lengths of names, tokens and values do not match")
        if values.size and not (values.min() >= 0 and values.max() <= LARGEST):
            raise ValueError(f"its values are not attention weights, from 0 to at most {LARGEST:.0f}")
        parts = np.split(values.astype(np.float16), ends[:-1]) if len(ends) else []
        maps = {str(name): part.reshape(n, n) for name, n, part in zip(names, tokens, parts, strict=True)}
        if len(maps) < len(names):
            raise ValueError("two maps share a name")
    except (ValueError, OSError) as error:
        raise UserError(f"{path} is damaged ({excerpt(error, 150)}): restore it, or draw the set again") from error
    return maps


def _read_rows(path: Path, columns: Sequence[str]) -> list[tuple[str, dict[str, str]]]:
    """Return the location (file and line) and fields of each row in a tab-separated file."""
    header, *lines = lines_of(read_text(path))
    if header.split("\t") != list(columns):
        raise UserError(f"{path}, line 1: expected the tab-separated columns {', '.join(columns)}")
    rows = []
    for number, line in enumerate(lines, start=2):
        fields, where = line.split("\t"), f"{path}, line {number}"
        if line.strip() and len(fields) != len(columns):
            raise UserError(f"{where}: expected {counted(len(columns), 'field')}, found {len(fields)}")
        if line.strip():
            rows.append((where, dict(zip(columns, fields, strict=True))))
    return rows


def _row_labels(row: dict[str, str], where: str) -> tuple[str | None, ...]:
    """Return the labels in a row, after validating them."""
    given = [*((column, row[column]) for column in LABELS), *((FURTHER, label) for label in row[FURTHER].split())]
    for column, label in given:
        if label and label not in CLASSES:
            raise UserError(f"{where}: unknown {column} {label[:60]!r}; expected one of {', '.join(CLASSES)}, or none")
    return tuple(label or None for _, label in given)


def _row_map(row: dict[str, str], values: np.ndarray, where: str) -> PatternMap:
    """Return the map described by a row, after validating its fields."""
    if row["state"] not in STATES:
        raise UserError(f"{where}: unknown state {row['state'][:60]!r}; expected {' or '.join(STATES)}")
    numbers = {}
    for column in ("layer", "head", "example", "tokens", "boundary"):
        if not re.fullmatch("[0-9]{1,9}", row[column]):
            raise UserError(f"{where}: {column} {row[column][:60]!r} is not a whole number of at most 9 digits")
        numbers[column] = int(row[column])
    tokens = numbers.pop("tokens")
    if tokens != len(values):
        raise UserError(f"{where}: {counted(tokens, 'token')}, but its map has {len(values)}")
    if not 1 <= numbers["boundary"] <= tokens:
        raise UserError(f"{where}: boundary {numbers['boundary']} is outside 1 to {tokens}")
    return PatternMap(row["name"], row["model"], row["task"], row["state"], values=values, **numbers)


Labels = dict[str, str]  # classes assigned to a map, keyed by reader


def read_plain_words(folder: Path) -> dict[str, dict[Reading, Labels]]:
    """Load, by map and reading, the labels of readers who were given only the text of the paper or the blog.

    Raises:
        UserError: the file is missing, or a row is invalid.
    """
    path = folder / PLAIN_WORDS
    if not path.exists():
        raise UserError(f"no {PLAIN_WORDS} in {folder}: it lists the classes that readers gave to the maps")
    by_map: dict[str, dict[Reading, Labels]] = {}
    for where, row in _read_rows(path, PLAIN_WORDS_COLUMNS):
        name, words, reader, label = row.values()
        if words not in TEXTS:
            raise UserError(f"{where}: unknown text {words[:60]!r}; expected {' or '.join(TEXTS)}")
        if label not in CLASSES:
            raise UserError(f"{where}: unknown class {label[:60]!r}; expected one of {', '.join(CLASSES)}")
        labels = by_map.setdefault(name, {}).setdefault(TEXTS[words], {})
        if reader in labels:
            raise UserError(f"{where}: reader {reader[:20]!r} has already classified {name[:99]!r}")
        labels[reader] = label
    return by_map


def under(
    maps: MapSet, by_map: Mapping[str, Mapping[Reading, Labels]], reading: Reading, *, unsure: bool = False
) -> MapSet:
    """Return the maps labelled under a reading, with their labels in file order, except those of held-out readers.

    Args:
        unsure: Whether to return the maps that were chosen because classifiers were unsure of them. By default, the
            randomly drawn maps are returned.
    """
    chosen = {
        name: [
            label
            for reader, label in by_reading.get(reading, {}).items()
            if reader not in HELD_OUT_READERS and (reader in READERS_OF_UNSURE_MAPS) == unsure
        ]
        for name, by_reading in by_map.items()
    }
    read = maps.take(i for i, each in enumerate(maps) if chosen.get(each.name))
    return MapSet(read.maps, tuple(tuple(chosen[each.name]) for each in read))
