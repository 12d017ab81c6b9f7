"""`bertsecrets train-patterns`: judge classifiers on held-out heads, train on all maps, write weights and report."""

import tempfile
import time
from collections.abc import Callable
from pathlib import Path
from typing import Any

import numpy as np
from tabulate import tabulate

from bertsecrets.patterns.annotation.map_set import UNSEEN, MapSet, PatternMap, fingerprint, own_maps
from bertsecrets.patterns.classes import CLASSES
from bertsecrets.patterns.classifier import REPORT, WEIGHTS, PatternClassifier, chosen_folder
from bertsecrets.patterns.training.audit import audit_shares
from bertsecrets.patterns.training.cnn import PaperCnn
from bertsecrets.patterns.training.crossval import (
    FOLDS,
    HeldOut,
    Method,
    OnFeatures,
    compare,
    confusion,
    held_out,
    quality,
)
from bertsecrets.patterns.training.dataset import open_labelled
from bertsecrets.patterns.training.logistic import LogisticFeatures
from bertsecrets.patterns.training.trees_and_regression import TreesAndRegression, fit_classifier
from bertsecrets.store.entries import write_json
from bertsecrets.store.files import check_free, copy_whole, file_sha256, guarded_writes
from bertsecrets.texts.metrics import macro_f1

SEED = 2019
OURS = (WEIGHTS, REPORT)  # what a trained classifier's folder holds


def held_out_quality() -> tuple[dict[str, Any], dict[str, np.ndarray]]:
    """Return how well the suite's classifier does on heads of its annotated maps that it has not seen (claim A1).

    Returns:
        values: `macro_f1`, `accuracy`, `f1_<class>`, `maps`, `heads`; `agreed_macro_f1`, `agreed_maps` of those that
        annotators agree on; `unseen_macro_f1`, `unseen_accuracy`, `unseen_maps` of the classifier in use on such maps
        of an encoder that no choice was made on; samples: `confusion` and `agreed_confusion` [head, true, predicted].

    Raises:
        MissingError: the annotated maps or scikit-learn are not here.
    """
    fresh = quality(unseen(), SEED)["agreed"]
    maps, _ = open_labelled(own_maps())
    judged = held_out(TreesAndRegression(), maps, SEED)
    figures = quality(judged, SEED)
    values = {name: figures[name] for name in ("macro_f1", "accuracy")}
    values |= {f"f1_{name.replace('-', '_')}": score for name, score in figures["f1"].items()}
    parts = judged.confusions()
    values |= {f"agreed_{name}": figures["agreed"][name] for name in ("macro_f1", "maps")}
    values |= {f"unseen_{name}": fresh[name] for name in ("macro_f1", "accuracy", "maps")}
    return {**values, "maps": len(maps), "heads": len(parts)}, {
        "confusion": parts,
        "agreed_confusion": judged.confusions(agreed=True),
    }


def unseen() -> HeldOut:
    """Return what the classifier in use says of maps of an encoder on which neither it nor its features were chosen.

    Raises:
        MissingError: the annotated maps are not here.
    """
    maps, _ = open_labelled(own_maps(UNSEEN))
    classifier = PatternClassifier.load(chosen_folder())
    return HeldOut(maps.labels, maps.groups, maps.agreed, OnFeatures(classifier.of_features).probabilities(maps))


def annotations_fingerprint(folder: Path | None = None) -> str:
    """Return what identifies a folder's maps, their labels, and their groups; of the suite's own, where none is named.

    Raises:
        MissingError: the suite's own are not here.
    """
    return fingerprint(MapSet.load(folder or own_maps()))


def train_patterns(
    data: Path, output: Path, cnn: PaperCnn | None = None, progress: Callable[[str], Any] | None = None
) -> dict[str, Any]:
    """Cross-validate, train on all, and write the weights and the report as a folder, whole or not at all.

    Args:
        cnn: how the paper's classifier is trained beside ours; None leaves it out.

    Returns:
        the report. All but `seconds` is the same whenever it is made on one machine.
    """
    check_free(output, OURS)
    maps, pictures = open_labelled(data)
    ours = TreesAndRegression()
    methods: list[Method] = [ours, LogisticFeatures(), *([cnn] if cnn else [])]
    figures, judged = compare(methods, maps, SEED, progress)
    began = time.monotonic()
    classifier = fit_classifier(maps.to_learn(), SEED)
    seconds = time.monotonic() - began
    with guarded_writes(output), tempfile.TemporaryDirectory() as room:
        made = Path(room)
        classifier.save(made / WEIGHTS)
        report = {
            **figures,
            "cnn": {"epochs": cnn.epochs, "patience": cnn.patience, "canvas": cnn.canvas} if cnn else None,
            "classes": {name: int((maps.labels == i).sum()) for i, name in enumerate(CLASSES)},
            "maps": len(maps),
            "models": _by_model(pictures, judged[ours.name]),
            "shares": _audit(judged[ours.name], pictures),
            "heads": len(set(maps.groups.tolist())),
            "folds": FOLDS,
            "seed": SEED,
            "temperature": classifier.temperature,
            "data": annotations_fingerprint(data),
            "weights_sha256": file_sha256(made / WEIGHTS),
            "held_out": _held_out_rows(pictures, judged[ours.name]),
            "seconds": {"train": round(seconds, 1)},
        }
        write_json(made / REPORT, report)
        copy_whole(made, output, OURS)
    return report


def _held_out_rows(maps: MapSet, judged: HeldOut) -> list[dict[str, Any]]:
    """Return, per map, what annotators and the classifier of other heads call it."""
    return [
        {
            "map": one.name,
            "head": _head(one),
            "kin": group,
            "label": CLASSES[true],
            "predicted": CLASSES[predicted],
            "agreed": bool(agreed),
            "probabilities": np.round(probabilities, 4).tolist(),
        }
        for one, group, true, predicted, agreed, probabilities in zip(
            maps,
            judged.groups.tolist(),
            judged.labels,
            judged.predicted,
            judged.agreed,
            judged.probabilities,
            strict=True,
        )
    ]


def _audit(judged: HeldOut, maps: MapSet) -> dict[str, Any]:
    """Return what shares and their intervals are worth, on models of as many heads as a fold holds out groups."""
    heads = np.array([_head(one) for one in maps])
    size = len(set(judged.groups.tolist())) // FOLDS
    return audit_shares(judged.labels, judged.probabilities, heads=heads, groups=judged.groups, size=size, seed=SEED)


def _head(one: PatternMap) -> str:
    """Return model, layer and head of a map; its name, where nobody recorded them."""
    return f"{one.model}/{one.layer}/{one.head}" if one.layer else one.name


def _by_model(maps: MapSet, judged: HeldOut) -> dict[str, dict[str, float]]:
    """Return, per model, how many maps are of it and how well a classifier of other heads tells them apart."""
    models = np.array([one.model for one in maps])
    rows = {}
    for name in sorted(set(models.tolist())):
        here = models == name
        counts = confusion(judged.labels[here], judged.predicted[here])
        rows[name] = {
            "maps": int(here.sum()),
            "accuracy": float(np.trace(counts) / counts.sum()),
            "macro_f1": float(macro_f1(counts)),
        }
    return rows


def show(report: dict[str, Any]) -> str:
    """Return the classifiers of a report side by side, as a table."""
    header = ("classifier", "macro-F1", "95 % interval", *CLASSES, "calibration error", "agreed maps", "95 % interval")
    rows = [
        (
            name,
            f"{figures['macro_f1']:.3f}",
            "[{:.3f}, {:.3f}]".format(*figures["macro_f1_interval"]),
            *(f"{figures['f1'][c]:.2f}" for c in CLASSES),
            f"{figures['expected_calibration_error']:.3f}",
            f"{figures['agreed']['macro_f1']:.3f}",
            "[{:.3f}, {:.3f}]".format(*figures["agreed"]["macro_f1_interval"]),
        )
        for name, figures in report["classifiers"].items()
    ]
    counts = ", ".join(f"{count} {name}" for name, count in report["classes"].items())
    table = tabulate(rows, header, disable_numparse=True)
    agreed = next(iter(report["classifiers"].values()))["agreed"]["maps"]
    return (
        f"{table}\n\n{report['maps']} maps of {report['heads']} heads ({counts}), {report['folds']} folds by head; "
        f"on {agreed} of the maps four in five annotators or more agree"
    )
