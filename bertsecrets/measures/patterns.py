"""The pattern class of every head's map on every example (K19 section 4.1, figure 2). No map is kept.

The shipped classifier predicts the classes, numbered in the order of `patterns.classes.CLASSES`. The raw shares of the
classes are accompanied by shares corrected for the classifier's errors on annotated heads that it was not trained on.
"""

from collections.abc import Iterator
from typing import Any

import numpy as np
import torch
from jaxtyping import Float

from bertsecrets.measures.base import AttentionMeasure, AttentionRun
from bertsecrets.measures.base.figures import ClassMap, Figure, StackedShares
from bertsecrets.measures.base.pattern_needs import PatternWeights
from bertsecrets.measures.registry import measure
from bertsecrets.models.attention import Maps, Observer
from bertsecrets.models.encoding import Batch
from bertsecrets.patterns.classes import CLASSES
from bertsecrets.patterns.classifier import PatternClassifier, chosen_folder, held_out_errors, read_report
from bertsecrets.patterns.map_stack import MapStack, second_text
from bertsecrets.patterns.shares import corrected, majority, raw_shares
from bertsecrets.types import Measurement


class PatternObserver:
    """Observer of one model: the predicted class of each map, [example, layer, head]."""

    pairs = False

    def __init__(
        self,
        examples: int,
        layers: int,
        heads: int,
        *,
        classifier: PatternClassifier,
        errors: Float[np.ndarray, "annotated classes"],
        separator: int | None,
    ):
        """
        Args:
            errors: label minus probabilities in the classifier's cross-validation, averaged over each head's maps.
            separator: the token id of [SEP]; None where the model has none (every input then counts as one text).
        """
        self.classifier, self.errors, self.separator = classifier, errors, separator
        self.predicted = np.full((examples, layers, heads), -1, dtype=np.int8)
        self.expected = np.zeros((examples, len(CLASSES)))

    def update(self, batch: Batch, layer: int, maps: Maps, other: Maps | None) -> None:
        """Classify one layer of one batch."""
        rows, heads, tokens, _ = maps.shape
        edge = second_text(batch.input_ids, batch.lengths, self.separator).repeat_interleave(heads)
        flat = MapStack(maps.reshape(rows * heads, tokens, tokens), batch.lengths.repeat_interleave(heads), edge)
        probabilities = self.classifier.to(maps.device).of_maps(flat).reshape(rows, heads, len(CLASSES))
        self.predicted[batch.indices, layer] = probabilities.argmax(2).to(torch.int8).cpu().numpy()
        self.expected[batch.indices] += probabilities.sum(1).cpu().numpy() / self.predicted[0].size

    def compute(self) -> tuple[dict[str, Any], dict[str, np.ndarray]]:
        """Return values and samples.

        Values: `share_<class>`, `majority`, `agreement` [layer, head]; `raw_<class>`, `corrected_<class>`.

        `majority` is a head's most frequent class, `agreement` the share of examples that have it; `raw_...` and
        `corrected_...` are shares of all maps. Samples: `predicted` [example, layer, head]; `expected` [example,
        class], the mean of the maps' probabilities; `errors` [annotated head, class].
        """
        values: dict[str, Any] = {f"share_{key(c)}": (self.predicted == i).mean(0) for i, c in enumerate(CLASSES)}
        values["majority"], values["agreement"] = majority(self.predicted)
        shares = {
            "raw": raw_shares(self.predicted).mean(0),
            "corrected": corrected(self.expected.mean(0), self.errors.mean(0)),
        }
        for kind, numbers in shares.items():
            values |= {f"{kind}_{key(c)}": float(x) for c, x in zip(CLASSES, numbers, strict=True)}
        return values, {"predicted": self.predicted, "expected": self.expected, "errors": self.errors}


def key(name: str) -> str:
    """Return a class's name as the names of values spell it.

    >>> key("vertical-diagonal")
    'vertical_diagonal'
    """
    return name.replace("-", "_")


UNCHECKED = "the pattern classifier has not been checked on maps of this model (only on maps of {})"


@measure("patterns", title="classes of attention maps", source="K19 4.1", version=4)
class Patterns(AttentionMeasure):
    """Values: `share_<class>`, `majority`, `agreement` [layer, head]; `raw_<class>`, `corrected_<class>` of all maps.

    Samples: `predicted` [example, layer, head]; `expected` [example, class]; `errors` [annotated head, class].
    """

    needs = (PatternWeights(),)

    def observer(self, view: AttentionRun) -> Observer:
        """Return the observer that classifies maps with the trained classifier."""
        folder = chosen_folder()
        classifier = PatternClassifier.load(folder).to(view.run.resources.device)
        errors = held_out_errors(read_report(folder))
        separator = view.special_ids["sep"]
        return PatternObserver(*view.shape, classifier=classifier, errors=errors, separator=separator)

    def degenerate(self, measurement: Measurement) -> str | None:
        """Return that some maps could not be classified."""
        expected = measurement.samples.get("expected", np.zeros(0))
        unknown = (measurement.sample("predicted") < 0).any() or not np.isfinite(expected).all()
        return "some maps are not numbers" if unknown else None

    def remarks(self, measurement: Measurement) -> list[str]:
        """Return a remark if the classifier was not trained or checked on maps of this model."""
        annotated = measurement.settings.get("annotated_models")
        if annotated and measurement.subject.model not in annotated:
            return [UNCHECKED.format(", ".join(annotated))]
        return []

    def figures(self, measurement: Measurement) -> Iterator[Figure]:
        """Yield the shares of the classes by layer (figure 2), and every head's most frequent class."""
        shares = {name: np.asarray(measurement.value(f"share_{key(name)}")).mean(1) for name in CLASSES}
        yield StackedShares("Share of each class of attention maps by layer: {who} (figure 2 of the paper)", shares)
        yield ClassMap(
            "Most frequent class of each head's maps; pale where other classes are frequent too: {who}",
            np.asarray(measurement.value("majority"), dtype=int),
            np.asarray(measurement.value("agreement")),
            CLASSES,
        )
