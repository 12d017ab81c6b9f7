"""Quality of the suite's classifiers on annotated heads that they have not seen (claim A1)."""

from collections.abc import Mapping
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import numpy as np

from bertsecrets.errors import UserError
from bertsecrets.patterns.classes import CLASSES
from bertsecrets.patterns.classifier import PatternClassifier, chosen_folder
from bertsecrets.patterns.crossval import HeldOut, LabelledMaps, OnFeatures, confusion, held_out, scores
from bertsecrets.patterns.fitting import TreesAndRegression
from bertsecrets.patterns.map_set import UNSEEN, MapSet, fingerprint, own_maps, read_attributes, under
from bertsecrets.patterns.readings import FEWS, READINGS
from bertsecrets.texts.metrics import macro_f1

SEED = 2019


@dataclass(frozen=True)
class ReadMaps:
    """The maps of a set as one reading labels them, for training and as a set.

    Args:
        label_by_few: for each number of stripes that may count as a few, the settled label of each map.
    """

    maps: LabelledMaps
    pictures: MapSet
    label_by_few: Mapping[int, tuple[str | None, ...]]


def open_read(folder: Path) -> dict[str, ReadMaps]:
    """Return the maps of a folder that were read for attributes, under each reading; the most frequent class counts.

    Raises:
        UserError: the folder has no set, or the set or what was seen on its maps is damaged.
    """
    whole, seen = MapSet.load(folder), read_attributes(folder)
    known = {each.name for each in whole}
    for name in seen:
        if name not in known:
            raise UserError(f"{folder}: {name[:99]!r} was read but is not in the set: remove its rows, or get its map")
    features: LabelledMaps | None = None
    found: dict[str, ReadMaps] = {}
    for reading in READINGS:
        pictures = under(whole, seen, reading)
        features = LabelledMaps.of(pictures) if features is None else features.relabelled(pictures)
        by_few = {few: under(whole, seen, reading, few).settled().labels for few in FEWS}
        found[reading] = ReadMaps(features, pictures, by_few if len(set(by_few.values())) > 1 else {})
    return found


def held_out_quality() -> tuple[dict[str, Any], dict[str, np.ndarray]]:
    """Return the quality of the suite's classifiers on annotated heads that they have not seen (claim A1).

    Returns:
        values, each for every reading (`special_macro_f1`): `macro_f1`, `accuracy`, `f1_<class>`; `agreed_macro_f1`,
        `agreed_maps` for maps on which readers agree; `single_macro_f1` against single readers instead of most of
        them, `readers_macro_f1` of one reader against another; `unseen_macro_f1`, `unseen_accuracy`, `unseen_maps` of
        the classifier in use for maps of an encoder that played no part in any choice; and `maps`, `heads`; samples:
        `<reading>_confusion` and `<reading>_agreed_confusion` [head, true, predicted].

    Raises:
        MissingError: the annotated maps or scikit-learn are missing.
    """
    values: dict[str, Any] = {}
    samples: dict[str, np.ndarray] = {}
    fresh = unseen()
    for reading, read in open_read(own_maps()).items():
        judged = held_out(TreesAndRegression(), read.maps, SEED)
        parts = {"confusion": judged.confusions(), "agreed_confusion": judged.confusions(agreed=True)}
        figures, agreed = scores(parts["confusion"]), scores(parts["agreed_confusion"])
        of_fresh, readers = scores(fresh[reading].confusions()), readers_quality(read, judged)
        own = {name: figures[name] for name in ("macro_f1", "accuracy")}
        own |= {f"f1_{name.replace('-', '_')}": score for name, score in figures["f1"].items()}
        own |= {f"agreed_{name}": agreed[name] for name in ("macro_f1", "maps")}
        own |= {f"{name}_macro_f1": readers[f"{name}_macro_f1"] for name in ("single", "readers")}
        own |= {f"unseen_{name}": of_fresh[name] for name in ("macro_f1", "accuracy")}
        own["unseen_maps"] = of_fresh["maps"]
        values |= {f"{reading}_{name}": value for name, value in own.items()}
        samples |= {f"{reading}_{name}": part for name, part in parts.items()}
        values |= {"maps": len(read.maps), "heads": len(parts["confusion"])}
    return values, samples


def unseen() -> dict[str, HeldOut]:
    """Return, by reading, what the classifier in use predicts for an encoder that played no part in choosing it.

    Raises:
        MissingError: the annotated maps are missing.
    """
    found = {}
    for reading, read in open_read(own_maps(UNSEEN)).items():
        classifier, maps = PatternClassifier.load(chosen_folder(), reading), read.maps
        probabilities = OnFeatures(classifier.of_features).probabilities(maps)
        found[reading] = HeldOut(maps.labels, maps.groups, maps.agreed, probabilities)
    return found


def annotations_fingerprint(folder: Path | None = None) -> str:
    """Return a digest of a folder's maps, their groups and what was seen on them; by default of the suite's own maps.

    Raises:
        MissingError: the suite's own maps are missing.
    """
    chosen = folder or own_maps()
    return fingerprint(under(MapSet.load(chosen), read_attributes(chosen), "special"))


def readers_quality(read: ReadMaps, judged: HeldOut) -> dict[str, float]:
    """Compare two readers of the same maps with each other, and the classifier with single readers.

    Returns:
        `readers_macro_f1`: the second readings as predictions of the first. `single_macro_f1`: the mean score of the
        classifier against the first and against the second readings, which is comparable because both are scored
        against one reader. Empty if the maps were not read twice.
    """
    pairs = [read.pictures.labels, read.pictures.second_labels]
    if any(label is None for labels in pairs for label in labels):
        return {}
    first, second = (np.array([CLASSES.index(label or "") for label in labels]) for labels in pairs)
    single = [macro_f1(confusion(labels, judged.predicted)) for labels in (first, second)]
    return {
        "readers_macro_f1": float(macro_f1(confusion(first, second))),
        "single_macro_f1": float(np.mean(single)),
    }
