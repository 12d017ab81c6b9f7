"""The quality of the pattern classifiers on held-out heads, as recorded in `report.json` (claim A1).

The record is written when the classifiers are trained, so that no run has to repeat the cross-validation.
"""

from typing import Any

import numpy as np
from jaxtyping import Bool, Float, Int

from bertsecrets.errors import UserError
from bertsecrets.patterns.classes import CLASSES
from bertsecrets.patterns.classifier import REMEDY, REPORT_FILE, report_of
from bertsecrets.patterns.readings import READINGS, labels_agree, majority_label
from bertsecrets.texts.metrics import f1_by_class, macro_f1


def recorded_quality(report: dict[str, Any]) -> tuple[dict[str, Any], dict[str, np.ndarray]]:
    """Return the recorded quality of the classifiers on held-out annotated heads (see `measures.pattern_quality`)."""
    values: dict[str, Any] = {}
    samples: dict[str, np.ndarray] = {}
    for reading in READINGS:
        part = report_of(report, reading)
        try:
            own, confusions = _quality(part)
        except (KeyError, TypeError, ValueError, AttributeError) as error:
            raise UserError(f"{REPORT_FILE} has no valid record of the cross-validation ({error}): {REMEDY}") from error
        values |= {f"{reading}_{name}": value for name, value in own.items()}
        samples |= {f"{reading}_{name}": counts for name, counts in confusions.items()}
        values |= {"maps": len(part["held_out"]), "heads": len(confusions["confusion"])}
    return values, samples


def _quality(part: dict[str, Any]) -> tuple[dict[str, Any], dict[str, Float[np.ndarray, "heads classes classes"]]]:
    rows = part["held_out"]
    groups = np.array([row["kin"] for row in rows])
    labels = np.array([CLASSES.index(majority_label(row["labels"])) for row in rows])
    predicted = np.array([CLASSES.index(row["predicted"]) for row in rows])
    agreed = np.array([labels_agree(row["labels"]) for row in rows])
    confusions = {
        "confusion": confusions_by_head(groups, labels, predicted),
        "agreed_confusion": confusions_by_head(groups, labels, predicted, agreed),
    }
    figures, of_agreed = scores(confusions["confusion"]), scores(confusions["agreed_confusion"])
    values = {name: figures[name] for name in ("macro_f1", "accuracy")}
    values |= {f"f1_{name.replace('-', '_')}": score for name, score in figures["f1"].items()}
    values |= {f"agreed_{name}": of_agreed[name] for name in ("macro_f1", "maps")}
    values |= {name: part["readers"][name] for name in ("single_macro_f1", "readers_macro_f1") if part["readers"]}
    if unseen := part.get("unseen_confusion"):
        of_unseen = scores(np.array(unseen, dtype=np.float64)[None])
        values |= {f"unseen_{name}": of_unseen[name] for name in ("macro_f1", "accuracy", "maps")}
    return values, confusions


def confusions_by_head(
    groups: np.ndarray,
    labels: Int[np.ndarray, " maps"],
    predicted: Int[np.ndarray, " maps"],
    counted: Bool[np.ndarray, " maps"] | None = None,
) -> Float[np.ndarray, "heads classes classes"]:
    """Return the confusion matrix of each head (true by predicted class). Heads are sorted by name.

    `groups` contains the name of each map's head. If `counted` is given, only maps for which it is True are counted.
    """
    names, places = np.unique(groups, return_inverse=True)
    counts = np.zeros((len(names), len(CLASSES), len(CLASSES)))
    chosen = np.ones(len(labels), dtype=bool) if counted is None else counted
    np.add.at(counts, (places[chosen], labels[chosen], predicted[chosen]), 1)
    return counts


def scores(parts: Float[np.ndarray, "heads classes classes"]) -> dict[str, Any]:
    """Return `maps`, `macro_f1`, `accuracy`, and the `f1` of each class, computed from the sum of all matrices."""
    total = parts.sum(0)
    return {
        "maps": int(total.sum()),
        "macro_f1": float(macro_f1(total)),
        "accuracy": float(np.trace(total) / total.sum()),
        "f1": dict(zip(CLASSES, f1_by_class(total).tolist(), strict=True)),
    }
