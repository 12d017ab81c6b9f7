"""Evaluation of the suite's classifiers on annotated heads not used for training (claim A1)."""

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
from bertsecrets.patterns.map_set import UNSEEN, Labels, MapSet, fingerprint, own_maps, read_plain_words, under
from bertsecrets.patterns.readings import READINGS
from bertsecrets.store.files import digest
from bertsecrets.texts.metrics import macro_f1

SEED = 2019


@dataclass(frozen=True)
class ReadMaps:
    """The maps of a set that were labelled under one reading.

    Args:
        maps: The maps in training format.
        pictures: The maps as a set, with the labels used for training.
        by_reader: Labels of all readers, including held-out readers, by map.
    """

    maps: LabelledMaps
    pictures: MapSet
    by_reader: Mapping[str, Labels]


def open_read(folder: Path) -> dict[str, ReadMaps]:
    """Return the maps in a folder that readers classified from the text of the paper or the blog, by reading.

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
        by_reader = {name: of_map.get(reading, {}) for name, of_map in labels.items()}
        read[reading] = ReadMaps(LabelledMaps.of(pictures), pictures, by_reader)
    return read


def held_out_quality() -> tuple[dict[str, Any], dict[str, np.ndarray]]:
    """Evaluate the suite's classifiers on annotated heads not used for training (claim A1).

    Returns:
        Values for each reading (such as `special_macro_f1`): `macro_f1`, `accuracy`, `f1_<class>`; `agreed_macro_f1`,
        `agreed_maps` for maps on which readers agree; `single_macro_f1` against individual readers instead of the
        majority, `readers_macro_f1` between two readers; `unseen_macro_f1`, `unseen_accuracy`, `unseen_maps` for the
        current classifier on an encoder not used for training or model selection. Also `maps` and `heads`. Samples:
        `<reading>_confusion` and `<reading>_agreed_confusion` [head, true, predicted].

    Raises:
        MissingError: the annotated maps or scikit-learn are not available.
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
    """Return the current classifiers' predictions on an encoder not used for model selection, by reading.

    Raises:
        MissingError: the annotated maps are missing.
    """
    predictions = {}
    for reading, read in open_read(own_maps(UNSEEN)).items():
        classifier, maps = PatternClassifier.load(chosen_folder(), reading), read.maps
        probabilities = OnFeatures(classifier.of_features).probabilities(maps)
        predictions[reading] = HeldOut(maps.labels, maps.groups, maps.agreed, probabilities)
    return predictions


def annotations_fingerprint(folder: Path | None = None) -> str:
    """Return a digest of the maps, groups and labels in a folder. Defaults to the suite's own maps.

    Raises:
        MissingError: the suite's own maps are missing.
    """
    chosen = folder or own_maps()
    maps, labels = MapSet.load(chosen), read_plain_words(chosen)
    return digest([labels, *(fingerprint(under(maps, labels, reading)) for reading in READINGS)])


def readers_quality(read: ReadMaps, judged: HeldOut) -> dict[str, float]:
    """Compare two readers of the same maps with each other, and the classifier with each reader.

    Returns:
        `readers_macro_f1`, the score of the second labels as predictions of the first; and `single_macro_f1`, the mean
        score of the classifier against the first and the second labels. The two are comparable, because both score
        against a single reader. Empty if maps have only one label.
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
