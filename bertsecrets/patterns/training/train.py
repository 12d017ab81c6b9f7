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
OURS = (WEIGHTS, REPORT)  # the files of a trained classifier


def held_out_quality() -> tuple[dict[str, Any], dict[str, np.ndarray]]:
    """Return the quality of the suite's classifier on annotated heads that it has not seen (claim A1).

    Returns:
        values: `macro_f1`, `accuracy`, `f1_<class>`, `maps`, `heads`; `agreed_macro_f1`, `agreed_maps` for maps on
        which annotators agree; `unseen_macro_f1`, `unseen_accuracy`, `unseen_maps` of the classifier in use for such
        maps of an encoder that played no part in any choice; samples: `confusion` and `agreed_confusion` [head, true,
        predicted].

    Raises:
        MissingError: the annotated maps or scikit-learn are missing.
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
    """Return the predictions of the classifier in use for maps of an encoder that played no part in choosing it.

    Raises:
        MissingError: the annotated maps are missing.
    """
    maps, _ = open_labelled(own_maps(UNSEEN))
    classifier = PatternClassifier.load(chosen_folder())
    return HeldOut(maps.labels, maps.groups, maps.agreed, OnFeatures(classifier.of_features).probabilities(maps))


def annotations_fingerprint(folder: Path | None = None) -> str:
    """Return a digest of a folder's maps, labels and groups; by default of the suite's own maps.

    Raises:
        MissingError: the suite's own maps are missing.
    """
    return fingerprint(MapSet.load(folder or own_maps()))


def train_patterns(
    data: Path, output: Path, cnn: PaperCnn | None = None, progress: Callable[[str], Any] | None = None
) -> dict[str, Any]:
    """Cross-validate, train on all maps, and write weights and report to a folder, completely or not at all.

    Args:
        cnn: the paper's classifier, to be compared with ours; None leaves it out.

    Returns:
        the report. On one machine it is always the same, except for `seconds`.

    Raises:
        UserError: the output folder is not free, or the maps cannot be used.
        MissingError: scikit-learn is missing.
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
    """Return a row for each map: the annotators' label, and the prediction of a classifier trained on other heads."""
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
    """Return `audit_shares` for models with as many heads as a fold has groups."""
    heads = np.array([_head(one) for one in maps])
    size = len(set(judged.groups.tolist())) // FOLDS
    return audit_shares(judged.labels, judged.probabilities, heads=heads, groups=judged.groups, size=size, seed=SEED)


def _head(one: PatternMap) -> str:
    """Return model, layer and head of a map; its name, if they are not recorded."""
    return f"{one.model}/{one.layer}/{one.head}" if one.layer else one.name


def _by_model(maps: MapSet, judged: HeldOut) -> dict[str, dict[str, float]]:
    """Return, for each model, its number of maps and the scores of classifiers trained on other heads."""
    models = np.array([one.model for one in maps])
    rows = {}
    for name in sorted(set(models.tolist())):
        own = models == name
        counts = confusion(judged.labels[own], judged.predicted[own])
        rows[name] = {
            "maps": int(own.sum()),
            "accuracy": float(np.trace(counts) / counts.sum()),
            "macro_f1": float(macro_f1(counts)),
        }
    return rows


def show(report: dict[str, Any]) -> str:
    """Return a report's classifiers as a table, and a line about the maps."""
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
        f"at least four in five annotators agree on {agreed} of the maps"
    )
