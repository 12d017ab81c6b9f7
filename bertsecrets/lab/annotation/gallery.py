"""Pictures of labelled maps: examples of each class, hard cases, and maps on which readings part."""

from collections import defaultdict
from collections.abc import Mapping, Sequence
from pathlib import Path

import numpy as np

from bertsecrets.errors import UserError
from bertsecrets.lab.annotation.sheets import save_image, sheet
from bertsecrets.patterns.classes import CLASSES
from bertsecrets.patterns.map_set import MapSet

EACH, PREDICTED, HARD = 5, 10, 10  # maps: in a row, in a picture of predictions, in that of hard cases
PANEL = 170  # pixels
PARTED = 20  # maps in a picture of those on which readings part
HARD_CASES, PARTED_NAME = "hard-cases", "readings-part"


def write_gallery(maps: MapSet, folder: Path, seed: int) -> list[Path]:
    """Write one picture for each class with labels, and one of hard cases if any; maps are chosen at random.

    Raises:
        UserError: no map is labelled, or the files cannot be written.
    """
    rng = np.random.default_rng(seed)
    written = []
    for name in CLASSES:
        places = [i for i, label in enumerate(maps.settled().labels) if label == name]
        if places:
            chosen = maps.take(rng.permutation(places)[:EACH].tolist())
            written.append(folder / f"{name}.png")
            save_image(sheet(chosen, [""] * len(chosen), PANEL, EACH), written[-1])
    if not written:
        raise UserError("no map has a label: annotate the set first")
    hard = hard_cases(maps, rng)
    if hard:
        chosen = maps.take(hard)
        captions = [f"{one} / {two}" for one, two in zip(chosen.labels, chosen.second_labels, strict=True)]
        written.append(folder / f"{HARD_CASES}.png")
        save_image(sheet(chosen, captions, PANEL, EACH), written[-1])
    return written


def write_predicted(maps: MapSet, predicted: Mapping[str, str], folder: Path, seed: int) -> list[Path]:
    """Write one picture for each predicted class: ten random maps, each with the annotators' label as its caption.

    Args:
        predicted: the predicted class, by name of the map; other maps are left out.

    Raises:
        UserError: no map has a prediction, or the files cannot be written.
    """
    rng = np.random.default_rng(seed)
    settled = maps.settled()
    written = []
    for name in CLASSES:
        places = [i for i, one in enumerate(maps) if predicted.get(one.name) == name]
        if places:
            chosen = settled.take(rng.permutation(places)[:PREDICTED].tolist())
            written.append(folder / f"{name}.png")
            save_image(sheet(chosen, [label or "" for label in chosen.labels], PANEL, EACH), written[-1])
    if not written:
        raise UserError("no map of this set has a prediction: give the set on which the classifier was judged")
    return written


def write_parted(maps: MapSet, labels: Mapping[str, Sequence[str | None]], folder: Path, seed: int) -> Path:
    """Write a picture of twenty random maps to which readings give different classes, with both as captions.

    Args:
        labels: the class of every map, by reading.

    Raises:
        UserError: the readings part on no map, or the file cannot be written.
    """
    both = list(zip(*labels.values(), strict=True))
    places = [i for i, classes in enumerate(both) if len(set(classes)) > 1]
    if not places:
        raise UserError("the readings part on no map of this set")
    chosen = np.random.default_rng(seed).permutation(places)[:PARTED].tolist()
    captions = [" / ".join(str(label) for label in both[place]) for place in chosen]
    path = folder / f"{PARTED_NAME}.png"
    save_image(sheet(maps.take(chosen), captions, PANEL, EACH), path)
    return path


def hard_cases(maps: MapSet, rng: np.random.Generator) -> list[int]:
    """Return the places of up to ten maps with two different labels.

    Every pair of classes comes once before any comes a second time.
    """
    kinds = defaultdict(list)
    for place in rng.permutation(len(maps)).tolist():
        one, two = maps.labels[place], maps.second_labels[place]
        if one and two and one != two:
            kinds[frozenset((one, two))].append(place)
    turns = sorted((turn, -len(places), places[turn]) for places in kinds.values() for turn in range(len(places)))
    return [place for _, _, place in turns[:HARD]]
