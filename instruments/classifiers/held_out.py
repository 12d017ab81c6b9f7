"""Maps that readers classified, and evaluation on heads, readers and encoders not used for training."""

from collections.abc import Mapping
from dataclasses import dataclass, field
from pathlib import Path

import numpy as np

from bertsecrets.errors import UserError
from bertsecrets.patterns.classes import CLASSES
from bertsecrets.patterns.readings import READINGS
from bertsecrets.store.files import digest
from bertsecrets.texts.metrics import macro_f1
from instruments.annotation.map_set import Labels, MapSet, fingerprint, read_plain_words, under
from instruments.classifiers.crossval import HeldOut, LabelledMaps
from instruments.classifiers.quality import confusion

SEED = 2019


@dataclass(frozen=True)
class ReadMaps:
    """The maps of a set that were labelled under one reading.

    Args:
        maps: The maps in training format.
        pictures: The maps as a set, with the labels used for training.
        by_reader: Labels of all readers, including held-out readers, by map.
        unsure: Maps that were chosen because classifiers were unsure of them. They are used for training but not for
            evaluation, because they are not a random sample.
    """

    maps: LabelledMaps
    pictures: MapSet
    by_reader: Mapping[str, Labels]
    unsure: MapSet = field(default_factory=lambda: MapSet(()))

    def unsure_maps(self, without: str = "") -> LabelledMaps | None:
        """Return the maps of `unsure` in training format, without those of one model, or None if no maps are left."""
        kept = self.unsure.take(i for i, each in enumerate(self.unsure) if each.model != without)
        return LabelledMaps.of(kept) if len(kept) else None


def open_read(folder: Path) -> dict[str, ReadMaps]:
    """Return, by reading, the maps in a folder that readers classified from the text of the paper or the blog.

    Raises:
        UserError: the folder contains no set, a reading has no labelled maps, or a file is damaged.
    """
    maps, labels = MapSet.load(folder), read_plain_words(folder)
    known = {pattern_map.name for pattern_map in maps}
    for name in labels:
        if name not in known:
            raise UserError(f"{folder}: {name[:99]!r} has labels but no map: remove its rows or restore the map")
    read: dict[str, ReadMaps] = {}
    for reading in READINGS:
        pictures = under(maps, labels, reading)
        by_reader = {each.name: labels[each.name][reading] for each in pictures}
        unsure = under(maps, labels, reading, unsure=True)
        read[reading] = ReadMaps(LabelledMaps.of(pictures), pictures, by_reader, unsure)
    return read


def annotations_fingerprint(folder: Path) -> str:
    """Return a digest of the maps, groups and labels in a folder."""
    maps, labels = MapSet.load(folder), read_plain_words(folder)
    sets = [under(maps, labels, reading, unsure=unsure) for reading in READINGS for unsure in (False, True)]
    return digest([labels, *map(fingerprint, sets)])


def readers_quality(read: ReadMaps, judged: HeldOut) -> dict[str, float]:
    """Compare two readers of the same maps with each other, and the classifier with each reader.

    Returns:
        `readers_macro_f1`, the score of the second labels as predictions of the first labels; and `single_macro_f1`,
        the mean score of the classifier against the first and the second labels. The two are comparable, because both
        are scores against a single reader. The result is empty if maps have only one label.
    """
    pairs = [read.pictures.of_annotator(place) for place in (0, 1)]
    if any(label is None for labels in pairs for label in labels):
        return {}
    first, second = (np.array([CLASSES.index(label or "") for label in labels]) for labels in pairs)
    single = [macro_f1(confusion(labels, judged.predicted)) for labels in (first, second)]
    return {
        "readers_macro_f1": float(macro_f1(confusion(first, second))),
        "single_macro_f1": float(np.mean(single)),
    }
