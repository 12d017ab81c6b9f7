"""`bertsecrets train-patterns`: judge classifiers on held-out heads, train on all maps, write weights and report."""

import tempfile
import time
from collections.abc import Callable, Sequence
from pathlib import Path
from typing import Any

import numpy as np
from tabulate import tabulate

from bertsecrets.patterns.annotation.map_set import MAPS, UNSEEN, MapSet, PatternMap
from bertsecrets.patterns.annotation.map_set import SHIPPED as SHIPPED_MAPS
from bertsecrets.patterns.classes import CLASSES
from bertsecrets.patterns.classifier import REPORT, WEIGHTS, PatternClassifier, Training, chosen_folder
from bertsecrets.patterns.shares import audit
from bertsecrets.patterns.training.cnn import PaperCnn
from bertsecrets.patterns.training.confusion import macro_f1
from bertsecrets.patterns.training.crossval import FOLDS, HeldOut, Method, compare, held_out, quality
from bertsecrets.patterns.training.dataset import Annotated, annotated
from bertsecrets.patterns.training.logistic import LogisticFeatures
from bertsecrets.store.entries import write_json
from bertsecrets.store.files import check_free, copy_whole, digest, file_sha256, guarded_writes

SEED = 2019
OURS = (WEIGHTS, REPORT)  # what a trained classifier's folder holds


def open_annotated(folder: Path = SHIPPED_MAPS) -> tuple[Annotated, MapSet]:
    """A folder's labelled maps, ready for training, and as they are; the label of most annotators counts.

    Raises:
        UserError: the folder holds no set, a damaged one, or no label.
    """
    whole = MapSet.load(folder)
    known = whole.take(i for i, given in enumerate(whole.votes) if given)
    found = known.settled()
    return from_set(found, known.agreed), found


def from_set(found: MapSet, agreed: Sequence[bool] | None = None) -> Annotated:
    """Labelled maps, ready for training."""
    return annotated(
        [each.values for each in found],
        [each.boundary for each in found],
        [label or "" for label in found.labels],
        ["/".join(map(str, group)) for group in found.groups],
        agreed,
    )


def held_out_quality() -> tuple[dict[str, Any], dict[str, np.ndarray]]:
    """How well the suite's classifier does on heads of its annotated maps that it has not seen (claim A1).

    Returns:
        values: `macro_f1`, `accuracy`, `f1_<class>`, `maps`, `heads`; `agreed_macro_f1`, `agreed_maps` of those that
        annotators agree on; `unseen_macro_f1`, `unseen_accuracy`, `unseen_maps` of the classifier in use on such maps
        of an encoder that no choice was made on; samples: `confusion` and `agreed_confusion` [head, true, predicted].
    """
    maps, _ = open_annotated()
    found = held_out(Training(), maps, SEED)
    figures = quality(found, SEED)
    values = {name: figures[name] for name in ("macro_f1", "accuracy")}
    values |= {f"f1_{name.replace('-', '_')}": score for name, score in figures["f1"].items()}
    parts = found.confusions()
    values |= {f"agreed_{name}": figures["agreed"][name] for name in ("macro_f1", "maps")}
    fresh = quality(unseen(), SEED)["agreed"]
    values |= {f"unseen_{name}": fresh[name] for name in ("macro_f1", "accuracy", "maps")}
    return {**values, "maps": len(maps), "heads": len(parts)}, {
        "confusion": parts,
        "agreed_confusion": found.confusions(agreed=True),
    }


def unseen() -> HeldOut:
    """What the classifier in use says of maps of an encoder on which neither it nor its features were chosen."""
    maps, _ = open_annotated(UNSEEN)
    said = PatternClassifier.load(chosen_folder()).probabilities(maps)
    return HeldOut(maps.labels, maps.groups, maps.agreed, said)


def annotations_fingerprint(folder: Path = SHIPPED_MAPS) -> str:
    """What identifies a folder's maps, their labels, and which of them folds keep together."""
    found = MapSet.load(folder)
    return digest([file_sha256(folder / MAPS), [each.name for each in found], found.votes, found.groups])


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
    maps, pictures = open_annotated(data)
    ours = Training()
    methods: list[Method] = [ours, LogisticFeatures(), *([cnn] if cnn else [])]
    figures, found = compare(methods, maps, SEED, progress)
    began = time.monotonic()
    classifier = ours.fit(maps.to_learn(), SEED)
    seconds = time.monotonic() - began
    with guarded_writes(output), tempfile.TemporaryDirectory() as room:
        made = Path(room)
        classifier.save(made / WEIGHTS)
        report = {
            **figures,
            "cnn": {"epochs": cnn.epochs, "patience": cnn.patience, "canvas": cnn.canvas} if cnn else None,
            "classes": {name: int((maps.labels == i).sum()) for i, name in enumerate(CLASSES)},
            "maps": len(maps),
            "models": _by_model(pictures, found[ours.name]),
            "shares": _audit(found[ours.name], pictures),
            "heads": len(set(maps.groups.tolist())),
            "folds": FOLDS,
            "seed": SEED,
            "temperature": classifier.temperature,
            "data": annotations_fingerprint(data),
            "weights_sha256": file_sha256(made / WEIGHTS),
            "held_out": [
                {
                    "map": each.name,
                    "head": _head(each),
                    "kin": group,
                    "label": CLASSES[true],
                    "predicted": CLASSES[said],
                    "agreed": bool(agreed),
                    "probabilities": np.round(p, 4).tolist(),
                }
                for each, group, true, said, agreed, p in zip(
                    pictures,
                    maps.groups.tolist(),
                    maps.labels,
                    found[ours.name].predicted,
                    maps.agreed,
                    found[ours.name].probabilities,
                    strict=True,
                )
            ],
            "seconds": {"train": round(seconds, 1)},
        }
        write_json(made / REPORT, report)
        copy_whole(made, output, OURS)
    return report


def _audit(found: HeldOut, maps: MapSet) -> dict[str, Any]:
    """What shares and their intervals are worth, on models of as many heads as a fold holds out groups."""
    heads = np.array([_head(each) for each in maps])
    size = len(set(found.groups.tolist())) // FOLDS
    return audit(found.labels, found.probabilities, heads, found.groups, size, SEED)


def _head(each: PatternMap) -> str:
    """Model, layer and head of a map; its name, where nobody recorded them."""
    return f"{each.model}/{each.layer}/{each.head}" if each.layer else each.name


def _by_model(maps: MapSet, found: HeldOut) -> dict[str, dict[str, float]]:
    """Per annotated model, how many maps are of it and how well they are told apart by a classifier of other heads."""
    models = np.array([each.model for each in maps])
    rows = {}
    for name in sorted(set(models.tolist())):
        here = models == name
        counts = np.zeros((len(CLASSES), len(CLASSES)))
        np.add.at(counts, (found.labels[here], found.predicted[here]), 1)
        rows[name] = {
            "maps": int(here.sum()),
            "accuracy": float(np.trace(counts) / counts.sum()),
            "macro_f1": float(macro_f1(counts)),
        }
    return rows


def show(report: dict[str, Any]) -> str:
    """The classifiers of a report side by side, as a table."""
    header = ("classifier", "macro-F1", "95 % interval", *CLASSES, "calibration error", "agreed maps", "95 % interval")
    rows = [
        (
            name,
            f"{found['macro_f1']:.3f}",
            "[{:.3f}, {:.3f}]".format(*found["macro_f1_interval"]),
            *(f"{found['f1'][c]:.2f}" for c in CLASSES),
            f"{found['expected_calibration_error']:.3f}",
            f"{found['agreed']['macro_f1']:.3f}",
            "[{:.3f}, {:.3f}]".format(*found["agreed"]["macro_f1_interval"]),
        )
        for name, found in report["classifiers"].items()
    ]
    counts = ", ".join(f"{count} {name}" for name, count in report["classes"].items())
    table = tabulate(rows, header, disable_numparse=True)
    agreed = next(iter(report["classifiers"].values()))["agreed"]["maps"]
    return (
        f"{table}\n\n{report['maps']} maps of {report['heads']} heads ({counts}), {report['folds']} folds by head; "
        f"on {agreed} of the maps four in five annotators or more agree"
    )
