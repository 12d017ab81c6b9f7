"""The pattern class of each head's map on each example, under each reading (K19 section 4.1, figure 2).

The readings are interpretations of K19's class *vertical* (see `patterns.readings`). The names of values and samples
start with the name of a reading, as in `special_raw_block`. Classes are predicted by the shipped classifiers and
numbered as in `patterns.classes.CLASSES`. Maps are not stored. Class shares are reported both raw and corrected for the
classifiers' errors on held-out annotated heads.
"""

from collections.abc import Iterator, Mapping
from typing import Any

import numpy as np
import torch
from jaxtyping import Float

from bertsecrets.measures.base import AttentionMeasure, AttentionRun
from bertsecrets.measures.base.figures import ClassMap, Figure, LayerBars, PaperFigure, RankedHeads, Repeats, Shares
from bertsecrets.measures.base.needs import Requirement, Resources
from bertsecrets.measures.registry import measure
from bertsecrets.models.attention import Maps, Observer
from bertsecrets.models.encoding import Batch
from bertsecrets.models.locations import is_papers_model, recorded_name
from bertsecrets.models.packaged import PUBLISHED_NAMES
from bertsecrets.patterns.classes import CLASSES
from bertsecrets.patterns.classifier import (
    PatternClassifier,
    annotated_models,
    chosen_folder,
    held_out_errors,
    read_report,
    readings_of,
    report_of,
)
from bertsecrets.patterns.features.feature_table import features
from bertsecrets.patterns.map_stack import MapStack, second_text
from bertsecrets.patterns.readings import AUTHORS, READING_TITLES, READINGS
from bertsecrets.patterns.shares import corrected, raw_shares
from bertsecrets.store.files import digest
from bertsecrets.texts.published import FIGURE_2_ORDER
from bertsecrets.types import Measurement


class PatternWeights(Requirement):
    """The trained classifiers of attention patterns, one for each reading (see `patterns.readings`)."""

    def check(self, resources: Resources) -> None:
        folder = chosen_folder()
        report = read_report(folder)
        for reading in readings_of(report):
            PatternClassifier.load(folder, reading)
            held_out_errors(report, reading)

    def settings(self, resources: Resources) -> dict[str, Any]:
        """Return digests of the classifiers and of their held-out results, and the names of the annotated models."""
        report = read_report(chosen_folder())
        parts = {reading: report_of(report, reading) for reading in readings_of(report)}
        return {
            "classifier": {reading: part["weights_sha256"] for reading, part in parts.items()},
            "judged_on": {reading: digest(part["held_out"]) for reading, part in parts.items()},
            "annotated_models": annotated_models(report),
        }


class PatternObserver:
    """Observer of one model. It stores the class of each map under each reading, [example, layer, head].

    `errors` are the mean cross-validation errors (annotated label minus predicted probability) of each annotated head.
    If the token id `separator` is None, every input is treated as a single text.
    """

    pairs = False

    def __init__(
        self,
        examples: int,
        layers: int,
        heads: int,
        *,
        classifiers: Mapping[str, PatternClassifier],
        errors: Mapping[str, Float[np.ndarray, "_ classes"]],
        separator: int | None,
    ):
        self.classifiers, self.errors, self.separator = classifiers, errors, separator
        self.predicted = {name: np.full((examples, layers, heads), -1, dtype=np.int8) for name in classifiers}
        self.expected = {name: np.zeros((examples, len(CLASSES))) for name in classifiers}

    def update(self, batch: Batch, layer: int, maps: Maps, other: Maps | None) -> None:
        rows, heads, tokens, _ = maps.shape
        edge = second_text(batch.input_ids, batch.lengths, self.separator).repeat_interleave(heads)
        flat = MapStack(maps.reshape(rows * heads, tokens, tokens), batch.lengths.repeat_interleave(heads), edge)
        table = features(flat)
        for name, classifier in self.classifiers.items():
            probabilities = classifier.of_features(table).reshape(rows, heads, len(CLASSES))
            predicted = self.predicted[name]
            predicted[batch.indices, layer] = probabilities.argmax(2).to(torch.int8).cpu().numpy()
            self.expected[name][batch.indices] += probabilities.sum(1).cpu().numpy() / predicted[0].size

    def compute(self) -> tuple[dict[str, Any], dict[str, np.ndarray]]:
        values: dict[str, Any] = {}
        samples: dict[str, np.ndarray] = {}
        for name, predicted in self.predicted.items():
            expected, errors = self.expected[name], self.errors[name]
            counts = np.stack([(predicted == i).mean(0) for i in range(len(CLASSES))])
            values |= {f"{name}_share_{key(c)}": count for c, count in zip(CLASSES, counts, strict=True)}
            values |= {f"{name}_majority": counts.argmax(0), f"{name}_agreement": counts.max(0)}
            shares = {"raw": raw_shares(predicted).mean(0), "corrected": corrected(expected.mean(0), errors.mean(0))}
            for kind, numbers in shares.items():
                values |= {f"{name}_{kind}_{key(c)}": float(x) for c, x in zip(CLASSES, numbers, strict=True)}
            samples |= {f"{name}_predicted": predicted, f"{name}_expected": expected, f"{name}_errors": errors}
        return values, samples


def key(name: str) -> str:
    """Return a class name with underscores instead of hyphens, for use in the names of values.

    >>> key("vertical-diagonal")
    'vertical_diagonal'
    """
    return name.replace("-", "_")


UNCHECKED_REMARK = "the pattern classifier's errors were measured on other models, not on this one"


@measure("patterns", title="classes of attention maps", source="K19 4.1", version=6)
class Patterns(AttentionMeasure):
    """Values, each [layer, head]: `<reading>_share_<class>`, the fraction of the head's maps that are in the class;
    `<reading>_majority`, the head's most frequent class; and `<reading>_agreement`, the fraction of the head's maps
    that are in its most frequent class. Values for the whole model: `<reading>_raw_<class>` and
    `<reading>_corrected_<class>`, the share of the class among all maps, raw and corrected.

    Samples: `<reading>_predicted` [example, layer, head], the class of each map; `<reading>_expected` [example, class],
    the mean class probabilities; and `<reading>_errors` [annotated head, class], the mean cross-validation errors.
    """

    needs = (PatternWeights(),)
    paper = PaperFigure(
        "2", "Classes of attention maps", "Share of maps in each class, corrected for the classifier's measured errors."
    )

    def observer(self, view: AttentionRun) -> Observer:
        folder = chosen_folder()
        report = read_report(folder)
        names, device = readings_of(report), view.context.resources.device
        return PatternObserver(
            *view.shape,
            classifiers={name: PatternClassifier.load(folder, name, device) for name in names},
            errors={name: held_out_errors(report, name) for name in names},
            separator=view.special_ids["sep"],
        )

    def degenerate(self, measurement: Measurement) -> str | None:
        """Return a message if some maps could not be classified, else None."""
        for name in readings_in(measurement):
            expected = measurement.samples.get(f"{name}_expected", np.zeros(0))
            if (measurement.sample(f"{name}_predicted") < 0).any() or not np.isfinite(expected).all():
                return "some attention maps are not finite"
        return None

    def remarks(self, measurement: Measurement) -> list[str]:
        """Return a remark if the classifiers were neither trained nor validated on maps of this model."""
        annotated = measurement.settings.get("annotated_models")
        model = recorded_name(measurement.subject.model)
        by_authors = is_papers_model(model) and AUTHORS in readings_in(measurement)
        checked = by_authors or not annotated or PUBLISHED_NAMES.get(model, model) in annotated
        return [] if checked else [UNCHECKED_REMARK]

    def figures(self, measurement: Measurement) -> Iterator[Figure]:
        for name in readings_in(measurement):
            caption = f"reading {name}{f' ({READING_TITLES[name]})' if name in READING_TITLES else ''}: {{who}}"
            by_class = [100 * np.asarray(measurement.value(f"{name}_share_{key(c)}")).mean(1) for c in CLASSES]
            by_layer = {str(i + 1): shares for i, shares in enumerate(np.stack(by_class, axis=1))}
            yield Shares(f"Share of each class of attention maps, by layer; {caption}", by_layer, CLASSES, row="layer")
            yield ClassMap(
                f"Most frequent class of each head's maps (paler if other classes are also frequent); {caption}",
                np.asarray(measurement.value(f"{name}_majority"), dtype=int),
                np.asarray(measurement.value(f"{name}_agreement")),
                CLASSES,
            )
            haze = 100.0 * (measurement.sample(f"{name}_predicted") == CLASSES.index("heterogeneous"))
            yield LayerBars(
                f"Share of maps classified as heterogeneous, by layer, with 95 % interval over examples; {caption}",
                haze.mean(2),
                lambda mean: mean,
                "percent of maps",
            )
            yield RankedHeads(
                f"Share of maps classified as heterogeneous, by head, with 95 % interval over examples; {caption}",
                haze.reshape(len(haze), -1),
                lambda mean: mean,
                haze.shape[2],
                "percent of maps",
            )

    def beside_paper(self, seeds: Repeats) -> Iterator[Figure]:
        """Yield a chart of class shares, with a bar for the paper and a bar of corrected shares for each reading."""
        shares: dict[str, np.ndarray] = {}
        if (published := seeds.published("fig2")) is not None:
            theirs = dict(zip(FIGURE_2_ORDER, published, strict=True))
            shares = {"K19, figure 2": np.array([theirs[name] for name in CLASSES])}
        for name in readings_in(seeds.first):
            corrected = [100 * float(seeds.mean(f"{name}_corrected_{key(c)}")) for c in CLASSES]
            shares[f"{seeds.first.subject.model}, reading {name}"] = np.array(corrected)
        caption = "K19 above, {who} below" if published is not None else "{who}"
        yield Shares(f"Classes of attention maps: {caption}", shares, CLASSES)


def readings_in(measurement: Measurement) -> list[str]:
    """Return the names of a measurement's readings, starting with those in `READINGS`."""
    suffix = "_predicted"
    names = [name.removesuffix(suffix) for name in measurement.samples if name.endswith(suffix)]
    return sorted(names, key=lambda name: (name not in READINGS, name))
