"""The pattern class of every head's map on every example (K19 section 4.1, figure 2). No map is kept.

Classes come from the shipped classifier, in the order of `patterns.classes.CLASSES`. Beside the plain shares there are
shares corrected for the classifier's errors on annotated heads that it was not trained on.
"""

from typing import Any

import numpy as np
import torch
from jaxtyping import Float

from bertsecrets.models.attention import Maps
from bertsecrets.models.encoding import Batch
from bertsecrets.patterns.classes import CLASSES
from bertsecrets.patterns.classifier import PatternClassifier
from bertsecrets.patterns.map_stack import MapStack, second_text
from bertsecrets.patterns.shares import corrected, majority, raw_shares


class Patterns:
    """Observer of one model: the predicted class of each map, [example, layer, head]."""

    pairs = False

    def __init__(
        self,
        examples: int,
        layers: int,
        heads: int,
        classifier: PatternClassifier,
        errors: Float[np.ndarray, "annotated classes"],
        separator: int | None,
    ):
        """
        Args:
            errors: label minus probabilities in the classifier's cross-validation, mean of each annotated head.
            separator: the token id of [SEP]; None where the model has none (every input then counts as one text).
        """
        self.classifier, self.errors, self.separator = classifier, errors, separator
        self.predicted = np.full((examples, layers, heads), -1, dtype=np.int8)
        self.expected = np.zeros((examples, len(CLASSES)))

    def observe(self, batch: Batch, layer: int, maps: Maps, other: Maps | None) -> None:
        """Classify one layer of one batch."""
        rows, heads, tokens, _ = maps.shape
        edge = second_text(batch.input_ids, batch.lengths, self.separator).repeat_interleave(heads)
        flat = MapStack(maps.reshape(rows * heads, tokens, tokens), batch.lengths.repeat_interleave(heads), edge)
        said = self.classifier.to(maps.device).of_maps(flat).reshape(rows, heads, len(CLASSES))
        self.predicted[batch.indices, layer] = said.argmax(2).to(torch.int8).cpu().numpy()
        self.expected[batch.indices] += said.sum(1).cpu().numpy() / self.predicted[0].size

    def result(self) -> tuple[dict[str, Any], dict[str, np.ndarray]]:
        """Return values and samples.

        Values: `share_<class>`, `majority`, `agreement` [layer, head]; `raw_<class>`, `corrected_<class>`.

        `majority` is a head's most frequent class, `agreement` the share of examples that have it. The last two are
        shares of all maps. Samples: `predicted` [example, layer, head]; `expected` [example, class], the mean of the
        maps' probabilities; `errors` [annotated head, class].
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
    """Return a class's name as values spell it."""
    return name.replace("-", "_")
