"""Evaluation of classifiers on held-out heads, training on all maps, and the training report.

There is a classifier for each reading of K19's text, and for each outside reading, which is defined by third-party
labels.
"""

import re
import tempfile
import time
from collections.abc import Callable, Mapping
from dataclasses import asdict
from itertools import combinations
from pathlib import Path
from typing import Any

import numpy as np

from bertsecrets.errors import UserError
from bertsecrets.patterns.classes import CLASSES
from bertsecrets.patterns.classifier import REPORT_FILE, WEIGHTS_SUFFIX, PatternClassifier, weights_path
from bertsecrets.patterns.readings import READINGS
from bertsecrets.patterns.recorded_quality import scores
from bertsecrets.patterns.shares import by_head
from bertsecrets.report.tables import table
from bertsecrets.store.entries import write_json
from bertsecrets.store.files import check_free, copy_whole, file_sha256, guarded_writes
from instruments.annotation.agreement import label_agreement, reader_shares, set_agreement
from instruments.annotation.map_set import HELD_OUT_READERS, UNSEEN, MapSet, PatternMap, shards
from instruments.classifiers.audit import audit_shares
from instruments.classifiers.baselines import PaperCnn, logistic_features
from instruments.classifiers.crossval import FOLDS, HeldOut, LabelledMaps, Method, on_features
from instruments.classifiers.fitting import fit_classifier, trees_and_regression
from instruments.classifiers.held_out import SEED, ReadMaps, annotations_fingerprint, open_read, readers_quality
from instruments.classifiers.quality import compare, confusion

OURS = "bertsecrets"  # the shipped classifier's name in reports
METHODS: dict[str, Method] = {OURS: trees_and_regression, "features-logistic": logistic_features}
OUTSIDE_NAME = re.compile(r"[a-z0-9][a-z0-9-]{0,39}")


def check_outside(name: str) -> str:
    """Return the name of an outside reading if it is valid.

    Raises:
        UserError: If a built-in reading has this name, or it is not a valid file name.
    """
    if name in READINGS or not OUTSIDE_NAME.fullmatch(name):
        raise UserError(
            f"{name[:60]!r} cannot be an outside reading: use letters, digits and '-', and neither of "
            f"{' and '.join(READINGS)}, which are the suite's own"
        )
    return name


def train_patterns(
    data: Path,
    output: Path,
    cnn: PaperCnn | None = None,
    progress: Callable[[str], Any] = lambda line: None,
    *,
    outside: Mapping[str, Path] | None = None,
) -> dict[str, Any]:
    """Cross-validate, train on all maps, and write weights and report to a folder.

    Args:
        data: Set of maps with `plain-words.tsv`. A set of another encoder in the subfolder `unseen` is only used to
            evaluate the final classifiers.
        cnn: The paper's classifier, for comparison with the suite's, or None to skip it.
        outside: Sets of maps with third-party labels for the five classes, by reading.

    Returns:
        The training report, which is deterministic on a given machine, except for `seconds`.

    Raises:
        UserError: If the output folder contains other files, or the maps are not usable.
        MissingError: If scikit-learn is not installed.
    """
    named = {check_outside(name): folder for name, folder in (outside or {}).items()}
    files = (REPORT_FILE, *(f"{reading}{WEIGHTS_SUFFIX}" for reading in (*READINGS, *named)))
    check_free(output, files)
    sets = open_read(data) | {name: open_labelled(folder) for name, folder in named.items()}
    unseen = open_read(data / UNSEEN) if shards(data / UNSEEN) else {}
    with guarded_writes(output), tempfile.TemporaryDirectory() as room:
        made = Path(room)
        report = {
            "readings": {
                name: _train(name, read, unseen.get(name), made, cnn, progress) for name, read in sets.items()
            },
            "cnn": asdict(cnn) if cnn else None,
            "folds": FOLDS,
            "seed": SEED,
            "data": annotations_fingerprint(data),
        }
        write_json(made / REPORT_FILE, report)
        copy_whole(made, output, files)
    return report


def open_labelled(folder: Path) -> ReadMaps:
    """Return the labelled maps of a folder.

    Raises:
        UserError: If the folder has no set, the set is damaged, or no map is labelled.
    """
    whole = MapSet.load(folder)
    maps = whole.take(i for i, votes in enumerate(whole.votes) if votes)
    return ReadMaps(LabelledMaps.of(maps), maps, {})


def _train(
    reading: str,
    read: ReadMaps,
    unseen: ReadMaps | None,
    made: Path,
    cnn: PaperCnn | None,
    progress: Callable[[str], Any],
) -> dict[str, Any]:
    """Evaluate and train the classifier for a reading, and return this reading's part of the report."""
    maps, unsure = read.maps, read.unsure_maps()
    methods = METHODS | ({"paper-cnn": cnn.fit} if cnn else {})
    figures, by_method = compare(
        methods, maps, SEED, lambda method, line: progress(f"{reading}, {method}: {line}"), unsure=unsure
    )
    judged = by_method[OURS]
    began = time.monotonic()
    train = maps if unsure is None else maps.joined(unsure)
    classifier = fit_classifier(train.to_learn(), SEED)
    seconds = time.monotonic() - began
    path = weights_path(made, reading)
    classifier.save(path)
    return {
        **figures,
        "readers": _readers(read, judged),
        "classes": {name: int((maps.labels == i).sum()) for i, name in enumerate(CLASSES)},
        "maps": len(maps),
        "unsure_maps": len(read.unsure),
        "models": _by_model(read, judged),
        "shares": _audit(judged, read.pictures),
        "heads": len(set(maps.groups.tolist())),
        "temperature": classifier.temperature,
        "weights_sha256": file_sha256(path),
        "held_out": _held_out_rows(read, judged),
        **({"unseen_confusion": unseen_confusion(classifier, unseen)} if unseen else {}),
        "seconds": {"train": round(seconds, 1)},
    }


def _readers(read: ReadMaps, judged: HeldOut) -> dict[str, Any]:
    """Return the agreement of readers with each other and with the classifier, or nothing if maps were not read twice.

    Returns:
        `readers_quality`; the observed agreement (`share`) and Cohen's `kappa` of the two readers of each map; and the
        class `shares` by reader (`reader_shares`). On maps labelled by held-out readers, also the mean kappa of the
        classifier with each such reader (`unseen_kappa`), and of all pairs of such readers (`unseen_readers_kappa`).
    """
    scores = readers_quality(read, judged)
    agreed = set_agreement(read.pictures) if scores else None
    if agreed is None:
        return {}
    figures = {**scores, "share": agreed.share, "kappa": agreed.kappa, "shares": reader_shares(read.by_reader.values())}
    predicted = {each.name: CLASSES[place] for each, place in zip(read.pictures, judged.predicted, strict=True)}
    unseen = [
        {name: labels[reader] for name, labels in read.by_reader.items() if reader in labels}
        for reader in HELD_OUT_READERS
    ]
    unseen = [labels for labels in unseen if labels]
    if len(unseen) > 1:
        figures["unseen_kappa"] = float(np.mean([_kappa(labels, predicted) for labels in unseen]))
        figures["unseen_readers_kappa"] = float(np.mean([_kappa(*pair) for pair in combinations(unseen, 2)]))
    return figures


def _kappa(first: Mapping[str, str], second: Mapping[str, str]) -> float:
    common = [name for name in first if name in second]
    return label_agreement([first[name] for name in common], [second[name] for name in common]).kappa


def _held_out_rows(read: ReadMaps, judged: HeldOut) -> list[dict[str, Any]]:
    """Return a row for each map with its readers' labels and the prediction of a classifier trained on other heads."""
    return [
        {
            "map": each.name,
            "head": _head(each),
            "kin": str(judged.groups[place]),
            "labels": list(labels),
            "predicted": CLASSES[judged.predicted[place]],
            "probabilities": np.round(judged.probabilities[place], 4).tolist(),
        }
        for place, (each, labels) in enumerate(zip(read.pictures, read.pictures.votes, strict=True))
    ]


def _audit(judged: HeldOut, maps: MapSet) -> dict[str, Any]:
    """Return `audit_shares` for models that have as many heads as a fold has groups."""
    heads = np.array([_head(each) for each in maps])
    size = len(set(judged.groups.tolist())) // FOLDS
    return audit_shares(judged.labels, judged.probabilities, heads=heads, groups=judged.groups, size=size, seed=SEED)


def unseen_confusion(classifier: PatternClassifier, unseen: ReadMaps) -> list[list[int]]:
    """Return the confusion matrix [true, predicted] of a classifier on an encoder not used for training."""
    predicted = on_features(classifier.of_features)(unseen.maps).argmax(1)
    return confusion(unseen.maps.labels, predicted).astype(int).tolist()


def _head(pattern_map: PatternMap) -> str:
    """Return the model, layer and head of a map as text, or the map's name if these are not recorded."""
    known = (pattern_map.model, pattern_map.layer, pattern_map.head)
    return "/".join(map(str, known)) if pattern_map.layer else pattern_map.name


def _by_model(read: ReadMaps, judged: HeldOut) -> dict[str, dict[str, Any]]:
    """Return each model's number of maps, scores of classifiers trained on other heads, and `left_out_errors`."""
    models = np.array([each.model for each in read.pictures])
    errors = left_out_errors(read)
    rows: dict[str, dict[str, Any]] = {}
    for name in sorted(set(models.tolist())):
        own = models == name
        figures = scores(confusion(judged.labels[own], judged.predicted[own])[None])
        rows[name] = {figure: figures[figure] for figure in ("maps", "accuracy", "macro_f1")}
        rows[name] |= {"left_out_error": errors[name]} if errors else {}
    return rows


def left_out_errors(read: ReadMaps) -> dict[str, list[float]]:
    """Return each model's mean error by class (label minus probability) with a classifier trained on other models.

    Heads are weighted equally. The result is empty if all maps are of one model.
    """
    models = np.array([each.model for each in read.pictures])
    names = sorted(set(models.tolist()))
    if len(names) < 2:
        return {}
    labels = read.maps.votes / read.maps.votes.sum(1, keepdims=True)
    heads = np.array([_head(each) for each in read.pictures])
    errors = {}
    for name in names:
        own = np.flatnonzero(models == name)
        train, unsure = read.maps.take(np.flatnonzero(models != name)), read.unsure_maps(without=name)
        classifier = trees_and_regression((train.joined(unsure) if unsure else train).to_learn(), SEED)
        off = labels[own] - classifier(read.maps.take(own))
        errors[name] = np.round(by_head(off, heads[own]).mean(0), 4).tolist()
    return errors


def show(report: dict[str, Any]) -> str:
    """Return a training report as text, with a table of classifiers and lines about maps for each reading."""
    return "\n\n".join(f"{name}\n{_show(part, report['folds'])}" for name, part in report["readings"].items())


def _show(report: dict[str, Any], folds: int) -> str:
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
    agreed = next(iter(report["classifiers"].values()))["agreed"]["maps"]
    lines = [
        table(header, rows),
        f"{report['maps']} maps of {report['heads']} heads ({counts}), {folds} folds by head; "
        f"at least four in five annotators agree on {agreed} of the maps",
    ]
    if report["readers"]:
        readers = report["readers"]
        lines.append(
            f"one reader against another: macro-F1 {readers['readers_macro_f1']:.3f}, kappa {readers['kappa']:.2f}; "
            f"the first classifier against single readers: {readers['single_macro_f1']:.3f}"
        )
        if "unseen_kappa" in readers:
            lines.append(
                f"held-out readers: kappa {readers['unseen_kappa']:.2f} with the first classifier, "
                f"{readers['unseen_readers_kappa']:.2f} with each other"
            )
    return "\n".join(lines)
