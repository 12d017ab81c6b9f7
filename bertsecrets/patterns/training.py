"""`bertsecrets train-patterns`: judge classifiers on held-out heads, train on all maps, write weights and report."""

import tempfile
import time
from collections.abc import Callable
from pathlib import Path
from typing import Any

import numpy as np
from tabulate import tabulate

from bertsecrets.core import digest
from bertsecrets.files import check_free, copy_whole, file_sha256, guarded_writes
from bertsecrets.patterns.annotated import Annotated, annotated
from bertsecrets.patterns.baseline import LogisticFeatures
from bertsecrets.patterns.classes import CLASSES
from bertsecrets.patterns.classifier import REPORT, WEIGHTS, Training
from bertsecrets.patterns.cnn import PaperCnn
from bertsecrets.patterns.crossval import FOLDS, Method, compare, held_out, quality
from bertsecrets.patterns.mapset import MAPS, MapSet
from bertsecrets.patterns.mapset import SHIPPED as SHIPPED_MAPS
from bertsecrets.store import write_json

SEED = 2019
OURS = (WEIGHTS, REPORT)  # what a trained classifier's folder holds


def open_annotated(folder: Path = SHIPPED_MAPS) -> tuple[Annotated, tuple[str, ...]]:
    """A folder's labelled maps, ready for training, and their names; the label of most annotators counts.

    Raises:
        UserError: the folder holds no set, a damaged one, or no label.
    """
    found = MapSet.load(folder).settled().labelled()
    return from_set(found), tuple(each.name for each in found)


def from_set(found: MapSet) -> Annotated:
    """Labelled maps, ready for training."""
    return annotated(
        [each.values for each in found],
        [each.boundary for each in found],
        [label or "" for label in found.labels],
        ["/".join(map(str, group)) for group in found.groups],
    )


def held_out_quality() -> tuple[dict[str, Any], dict[str, np.ndarray]]:
    """How well the suite's classifier does on heads of its annotated maps that it has not seen (claim A1).

    Returns:
        values: `macro_f1`, `accuracy`, `f1_<class>`, `maps`, `heads`; samples: `confusion` [head, true, predicted].
    """
    maps, _ = open_annotated()
    found = held_out(Training(), maps, SEED)
    figures = quality(found, SEED)
    values = {name: figures[name] for name in ("macro_f1", "accuracy")}
    values |= {f"f1_{name.replace('-', '_')}": score for name, score in figures["f1"].items()}
    parts = found.confusions()
    return {**values, "maps": len(maps), "heads": len(parts)}, {"confusion": parts}


def annotations_fingerprint(folder: Path = SHIPPED_MAPS) -> str:
    """What identifies a folder's maps and the labels they are settled on."""
    found = MapSet.load(folder).settled()
    return digest([file_sha256(folder / MAPS), [each.name for each in found], found.labels])


def train_patterns(
    data: Path, output: Path, cnn: PaperCnn | None, progress: Callable[[str], Any] | None = None
) -> dict[str, Any]:
    """Cross-validate, train on all, and write the weights and the report as a folder, whole or not at all.

    Args:
        cnn: how the paper's classifier is trained beside ours; None leaves it out.

    Returns:
        the report. All but `seconds` is the same whenever it is made on one machine.
    """
    check_free(output, OURS)
    maps, names = open_annotated(data)
    ours = Training()
    methods: list[Method] = [ours, LogisticFeatures(), *([cnn] if cnn else [])]
    figures, found = compare(methods, maps, SEED, progress)
    began = time.monotonic()
    classifier = ours.fit(maps, SEED)
    seconds = time.monotonic() - began
    with guarded_writes(output), tempfile.TemporaryDirectory() as room:
        made = Path(room)
        classifier.save(made / WEIGHTS)
        report = {
            **figures,
            "cnn": {"epochs": cnn.epochs, "patience": cnn.patience, "canvas": cnn.canvas} if cnn else None,
            "classes": {name: int((maps.labels == i).sum()) for i, name in enumerate(CLASSES)},
            "maps": len(maps),
            "heads": len(set(maps.groups.tolist())),
            "folds": FOLDS,
            "seed": SEED,
            "temperature": classifier.temperature,
            "data": annotations_fingerprint(data),
            "weights_sha256": file_sha256(made / WEIGHTS),
            "held_out": [
                {
                    "map": name,
                    "head": group,
                    "label": CLASSES[true],
                    "predicted": CLASSES[said],
                    "probability": round(p, 4),
                }
                for name, group, true, said, p in zip(
                    names,
                    maps.groups.tolist(),
                    maps.labels,
                    found[ours.name].predicted,
                    found[ours.name].probabilities.max(1).tolist(),
                    strict=True,
                )
            ],
            "seconds": {"train": round(seconds, 1)},
        }
        write_json(made / REPORT, report)
        copy_whole(made, output, OURS)
    return report


def show(report: dict[str, Any]) -> str:
    """The classifiers of a report side by side, as a table."""
    header = ("classifier", "macro-F1", "95 % interval", *CLASSES, "calibration error")
    rows = [
        (
            name,
            f"{found['macro_f1']:.3f}",
            "[{:.3f}, {:.3f}]".format(*found["macro_f1_interval"]),
            *(f"{found['f1'][c]:.2f}" for c in CLASSES),
            f"{found['expected_calibration_error']:.3f}",
        )
        for name, found in report["classifiers"].items()
    ]
    counts = ", ".join(f"{count} {name}" for name, count in report["classes"].items())
    table = tabulate(rows, header, disable_numparse=True)
    return f"{table}\n\n{report['maps']} maps of {report['heads']} heads ({counts}), {report['folds']} folds by head"
