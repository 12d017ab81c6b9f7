"""Scores on the validation set, with a majority-class baseline (K19 section 3, table 1).

The baseline and the entropy of the predicted classes reveal whether a classifier always predicts the same class.
"""

from collections.abc import Sequence
from typing import Any, ClassVar

import numpy as np
import torch
from jaxtyping import Float, Int
from pydantic import Field

from bertsecrets.measures.base import Measure, MeasureContext, MeasureOptions, Results
from bertsecrets.measures.base.measure import Result
from bertsecrets.measures.registry import measure
from bertsecrets.models.consistency import CHECKED_EXAMPLES, check_alone
from bertsecrets.models.encoding import cased, encode, lower_cases, predict
from bertsecrets.texts.metrics import decide, has_collapsed, is_constant, order_problem
from bertsecrets.texts.metrics import scores as all_scores
from bertsecrets.texts.rows import shuffled
from bertsecrets.texts.tasks import Task, task
from bertsecrets.types import Measurement


@measure("scores", title="scores, majority-class baseline, entropy of predicted classes", source="K19 3, table 1")
class Scores(Measure):
    """Values: all metrics of the task, as fractions, and `constant`, which says whether all predictions are the same.
    For classification tasks, there are also `majority`, the accuracy of always predicting the most frequent class, and
    `entropy`, the entropy of the predicted classes in bits.

    Samples: `predicted` and `target` [example].
    """

    class Options(MeasureOptions):
        """`cased` disables lower-casing in the tokenizer (claim D6).

        `shuffle` is the seed for shuffling the words of each text (claims J6). If `shuffle` is 0, the words keep their
        order.
        """

        cased: bool = False
        shuffle: int = Field(default=0, ge=0)

    section = "scores"
    common: ClassVar[bool] = True

    def run(self, context: MeasureContext) -> Results:
        opened, rows = context.open(self.kernel), self.rows(context)
        if context.options.shuffle:
            rows = shuffled(rows, context.options.shuffle)
        tokenizer = cased(opened.tokenizer) if context.options.cased else opened.tokenizer
        encoded = encode(rows, tokenizer, opened.fit(context.resources.settings.scores.max_length))
        logits = predict(opened.model, encoded, context.resources.device)
        checked = encoded.spread(CHECKED_EXAMPLES) if len(encoded) else []
        check_alone(opened.model, encoded, checked, torch.from_numpy(logits[checked]))
        values, samples = scores(context.task, logits, rows.targets())
        if context.options.cased:
            values["lower_cases"] = lower_cases(opened.tokenizer)
        return {self.name: (values, samples)}, len(encoded)

    def degenerate(self, measurement: Measurement) -> str | None:
        """Return a message if predictions are not finite or, after fine-tuning, constant or worse than chance.

        For frozen, untrained and random encoders, constant predictions and chance-level scores are valid results.
        """
        predicted = measurement.sample("predicted")
        if predicted.dtype.kind == "f" and not np.isfinite(predicted).all():
            return "some predictions are not finite"
        if measurement.subject.initialisation != "pretrained":
            return None
        of_task, target = task(measurement.subject.task), measurement.sample("target")
        if has_collapsed(of_task, predicted, target):
            return "gives every example the same answer"
        if measurement.options.get("cased") or measurement.options.get("shuffle"):
            return None
        return order_problem(of_task, predicted, target)


def scores(task: Task, logits: Float[np.ndarray, "examples outputs"], targets: Sequence[float]) -> Result:
    """Return the values and samples of `Scores`, computed from logits and targets (class indices, or scores)."""
    predicted, target = decide(task, logits), np.asarray(targets)
    values: dict[str, Any] = {**all_scores(task, predicted, target), "constant": is_constant(task, predicted)}
    if not task.regression:
        values["majority"] = majority_share(targets)
        values["entropy"] = class_entropy(task, predicted)
    return values, {"predicted": predicted, "target": target}


def class_entropy(task: Task, predicted: Int[np.ndarray, " examples"]) -> float:
    """Return the entropy of the predicted classes in bits, which is 0 for constant predictions."""
    from scipy.stats import entropy  # takes most of a second to import

    share = np.bincount(predicted, minlength=task.outputs) / max(len(predicted), 1)
    return float(entropy(share, base=2))


def majority_share(targets: Sequence[float] | np.ndarray) -> float:
    """Return the accuracy of always predicting the most frequent class.

    >>> majority_share([0, 1, 1, 1])
    0.75
    """
    return float(np.bincount(np.asarray(targets, dtype=np.int64)).max() / len(targets))
