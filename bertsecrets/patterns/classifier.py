"""The pattern classifiers, one for each reading. Each combines boosted trees with softmax regression.

The log-probabilities of the trees and half the log-probabilities of the regression are added. The sum is divided by a
temperature, which calibrates the probabilities.

Classifiers accept maps of any length, padded or unpadded, on any device. The weights of each classifier are stored in a
safetensors file. `report.json`, in the same folder, records the classifiers' performance on held-out heads. `python -m
instruments train-patterns` creates these files in a checkout. The folder may also contain classifiers that were trained
on labels from outside the suite. The readings of these classifiers are called external.
"""

import json
import math
import os
from collections.abc import Mapping
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import numpy as np
import torch
from jaxtyping import Float
from safetensors import SafetensorError, safe_open
from safetensors.torch import save_file

from bertsecrets.errors import UserError, excerpt, near_matches
from bertsecrets.patterns.classes import CLASSES
from bertsecrets.patterns.estimators import LEAF, Softmax, Trees
from bertsecrets.patterns.features.feature_table import feature_names
from bertsecrets.patterns.readings import READINGS
from bertsecrets.patterns.shares import by_head
from bertsecrets.reading import expanded
from bertsecrets.store.files import digest, file_sha256, read_json

WEIGHTS_SUFFIX, REPORT_FILE = ".safetensors", "report.json"
SHIPPED_FOLDER = Path(__file__).parent / "weights"
FOLDER_VARIABLE = "BERTSECRETS_PATTERNS"  # environment variable with an alternative folder for classifiers and report
REMEDY = "recreate the classifiers with python -m instruments train-patterns (in a checkout)"
PROBABILITY_FLOOR = 1e-4  # minimum probability, so that no class is impossible
DEPTH_LIMIT = 1000  # maximum depth of trees
REGRESSION_WEIGHT = 0.5  # weight of the regression's log-probabilities, relative to the trees


@dataclass(frozen=True)
class PatternClassifier:
    """A classifier that assigns each map to one of the five classes, according to one reading.

    A temperature below 1 makes the classifier more confident, and a temperature above 1 makes it less confident.
    """

    trees: Trees
    linear: Softmax
    temperature: float = 1.0

    def of_features(self, rows: Float[torch.Tensor, "maps features"]) -> Float[torch.Tensor, "maps classes"]:
        """Return the class probabilities of maps with these features."""
        trees, line = (
            part.probabilities(rows).clamp(min=PROBABILITY_FLOOR).log() for part in (self.trees, self.linear)
        )
        return ((trees + REGRESSION_WEIGHT * line) / self.temperature).softmax(1)

    def save(self, path: Path) -> None:
        """Write the weights to a file. Equal classifiers produce identical files."""
        tensors = {
            f"{part}.{name}": (value.int() if value.dtype == torch.long else value).contiguous()
            for part, held in (("trees", self.trees), ("linear", self.linear))
            for name, value in vars(held).items()
            if isinstance(value, torch.Tensor)
        }
        facts = {"depth": self.trees.depth, "temperature": self.temperature, "features": digest(feature_names())}
        save_file(tensors, path, {"facts": json.dumps({**facts, "classes": CLASSES}, sort_keys=True)})
        path.chmod(0o644)

    @classmethod
    def load(cls, folder: Path, reading: str, device: torch.device | str = "cpu") -> "PatternClassifier":
        """Load a reading's classifier from a folder, with its tensors on the given device."""
        path = weights_path(folder, reading)
        if file_sha256(path) != report_of(read_report(folder), reading)["weights_sha256"]:
            raise UserError(f"{path} does not match the {REPORT_FILE} next to it: {REMEDY}")
        try:
            with safe_open(path, framework="pt") as file:
                facts = json.loads((file.metadata() or {}).get("facts", "{}"))
                parts = {name: file.get_tensor(name) for name in file.keys()}  # noqa: SIM118
        except (OSError, ValueError, RecursionError, SafetensorError) as error:
            raise UserError(f"{path} is damaged ({excerpt(error)}): {REMEDY}") from error
        facts = facts if isinstance(facts, dict) else {}
        if facts.get("features") != digest(feature_names()) or facts.get("classes") != list(CLASSES):
            raise UserError(f"{path} was trained with the features or classes of another version: {REMEDY}")
        if problem := _problem(parts, facts):
            raise UserError(f"{path} is damaged ({problem}): {REMEDY}")
        fields: dict[str, dict[str, torch.Tensor]] = {"trees": {}, "linear": {}}
        for name, value in parts.items():
            part, _, field = name.partition(".")
            fields[part][field] = value.to(device, torch.long if value.dtype == torch.int else value.dtype)
        return cls(Trees(**fields["trees"], depth=facts["depth"]), Softmax(**fields["linear"]), facts["temperature"])


def _problem(parts: Mapping[str, torch.Tensor], facts: Mapping[str, Any]) -> str | None:
    """Return what is wrong with the tensors and metadata of a classifier, or None if they are valid."""
    depth, temperature = facts.get("depth"), facts.get("temperature")
    if not isinstance(depth, int) or isinstance(depth, bool) or not 1 <= depth <= DEPTH_LIMIT:
        return f"its trees have a depth of {excerpt(depth, 40)}"
    if not isinstance(temperature, float) or not 0 < temperature < math.inf:
        return f"its temperature is {excerpt(temperature, 40)}"
    nodes, trees = (parts[name].numel() if name in parts else 0 for name in ("trees.value", "trees.roots"))
    nodes //= len(CLASSES)
    row, each, classes = (len(feature_names()),), (nodes,), (len(CLASSES),)
    shapes = {
        **dict.fromkeys(("trees.feature", "trees.threshold", "trees.left", "trees.right"), each),
        "trees.value": each + classes,
        "trees.roots": (trees,),
        "trees.start": classes,
        "linear.mean": row,
        "linear.scale": row,
        "linear.weight": classes + row,
        "linear.bias": classes,
    }
    if not nodes or not trees or {name: tuple(value.shape) for name, value in parts.items()} != shapes:
        return "its tensors have unexpected names or shapes"
    highest = {"trees.feature": row[0], "trees.left": nodes, "trees.right": nodes, "trees.roots": nodes}
    for name, value in parts.items():
        if value.is_floating_point() == (name in highest):
            return f"{name} has the type {value.dtype}"
        if name in highest:
            lowest = LEAF if name == "trees.feature" else 0
            if not (lowest <= int(value.min()) and int(value.max()) < highest[name]):
                return f"{name} has an index out of range"
        elif bool((value.isnan() if name == "trees.threshold" else ~value.isfinite()).any()):
            return f"{name} is not finite"
    return None


def chosen_folder() -> Path:
    """Return the folder of the classifiers: `BERTSECRETS_PATTERNS` if it is set, otherwise the shipped folder."""
    return expanded(os.environ.get(FOLDER_VARIABLE) or SHIPPED_FOLDER)


def weights_path(folder: Path, reading: str) -> Path:
    """Return the path of the file that contains the weights of a reading's classifier."""
    return folder / f"{reading}{WEIGHTS_SUFFIX}"


def read_report(folder: Path) -> dict[str, Any]:
    """Return the training report for the classifiers in a folder."""
    report = read_json(folder / REPORT_FILE)
    of = report.get("readings") if isinstance(report, dict) else None
    if not isinstance(of, dict) or not {*READINGS} <= of.keys() or not all(map(_complete, of.values())):
        raise UserError(f"{folder / REPORT_FILE} is not a training report of pattern classifiers: {REMEDY}")
    return report


def _complete(report: Any) -> bool:
    known = isinstance(report, dict) and {"weights_sha256", "held_out", "models"} <= report.keys()
    return known and isinstance(report["models"], dict)


def readings_of(report: dict[str, Any]) -> tuple[str, ...]:
    """Return the readings in a training report: first the suite's own, then external ones in alphabetical order."""
    return (*READINGS, *sorted(report["readings"].keys() - set(READINGS)))


def report_of(report: dict[str, Any], reading: str) -> dict[str, Any]:
    """Return the section of a training report that describes a reading's classifier."""
    if reading not in report["readings"]:
        raise UserError(f"no classifier for the reading {reading!r}: {near_matches(reading, readings_of(report))}")
    return dict(report["readings"][reading])


def annotated_models(report: dict[str, Any]) -> list[str]:
    """Return the models whose maps were used to train and evaluate the suite's classifiers."""
    return sorted({model for reading in READINGS for model in report["readings"][reading]["models"]})


def held_out_errors(report: dict[str, Any], reading: str) -> Float[np.ndarray, "annotated classes"]:
    """Return the mean error of each annotated head.

    Errors are labels minus probabilities. A map's probabilities come from a classifier that was trained on other heads.
    If readers disagree about a map, the mean of their labels is used. As in the class shares of a model, all heads have
    equal weight, regardless of their number of annotated maps. Heads of related models are counted separately, although
    related heads are always in the same fold.
    """
    rows = report_of(report, reading)["held_out"]
    try:
        predicted = np.array([row["probabilities"] for row in rows], dtype=np.float64)
        if predicted.shape != (len(rows), len(CLASSES)) or not len(rows) or not np.isfinite(predicted).all():
            raise ValueError(f"expected {len(CLASSES)} probabilities for each map")
        classes = np.eye(len(CLASSES))
        true = np.array([classes[[CLASSES.index(label) for label in row["labels"]]].mean(0) for row in rows])
        return by_head(true - predicted, np.array([row["head"] for row in rows]))
    except (KeyError, TypeError, ValueError, AttributeError) as error:
        raise UserError(
            f"{REPORT_FILE} has a held-out map whose head, labels or probabilities are missing or invalid ({error}): "
            f"{REMEDY}"
        ) from error
