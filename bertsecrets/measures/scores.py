"""Scores on the validation set, and the score of a constant answer on it (K19 section 3, table 1).

Every score comes with its majority-class baseline and the entropy of the predicted classes, which reveal a constant
classifier.
"""

from collections.abc import Sequence
from typing import Any, ClassVar

import numpy as np
import torch
from jaxtyping import Float, Int
from pydantic import Field

from bertsecrets.errors import MisreadError
from bertsecrets.measures.base import Measure, MeasureOptions, Results, Run
from bertsecrets.measures.base.measure import Result
from bertsecrets.measures.base.probe import probe_inputs
from bertsecrets.measures.registry import measure
from bertsecrets.models.encoding import Encoded, batches, cased, collate, encode, lower_cases, predict
from bertsecrets.models.opening import OpenModel
from bertsecrets.texts.metrics import decide, is_constant
from bertsecrets.texts.metrics import scores as all_scores
from bertsecrets.texts.rows import shuffled
from bertsecrets.texts.tasks import Task
from bertsecrets.types import Measurement

ALONE = 8  # examples that are scored alone as well: those with the most padding in their batch
# How far a logit may move then, relative to the largest one. Rounding in float32, in which scores are computed on every
# device, moves it by less than 1e-6; a lost mask by 1e-2 and more (MiniLM, with and without fine-tuning).
MOVED = 1e-3
SMALLEST = 0.1  # logits below are compared with this one, since rounding does not become smaller with them


@measure("scores", title="scores, majority-class baseline, entropy of predicted classes", source="K19 3, table 1")
class Scores(Measure):
    """Values: all metrics of the task (fractions), `constant`, and for classes `majority` and `entropy` (bits).

    Samples: `predicted` and `target` [example].
    """

    class Options(MeasureOptions):
        """`cased` switches off the tokenizer's lower-casing (claim D6).

        `shuffle` puts the words of each text in a random order drawn with this seed (claims J6); 0 leaves them alone.
        """

        cased: bool = False
        shuffle: int = Field(default=0, ge=0)

    section = "scores"
    common: ClassVar[bool] = True

    def check_model(self, classifier: OpenModel) -> None:
        """Check that padding changes no logit."""
        encoded = probe_inputs(classifier)
        check_alone(classifier.model, encoded, predict(classifier.model, encoded))

    def run(self, run: Run) -> Results:
        """Score the validation rows.

        Raises:
            MisreadError: an example's logits depend on the batch it is in.
            UserError: a logit is not finite.
        """
        opened, rows = run.open("sdpa"), self.rows(run)
        if run.options.shuffle:
            rows = shuffled(rows, run.options.shuffle)
        tokenizer = cased(opened.tokenizer) if run.options.cased else opened.tokenizer
        encoded = encode(rows, tokenizer, opened.fit(run.resources.settings.scores.max_length))
        logits = predict(opened.model, encoded, run.resources.device)
        check_alone(opened.model, encoded, logits, run.resources.device)
        values, samples = scores(run.task, logits, rows.targets())
        if run.options.cased:
            values["lower_cases"] = lower_cases(opened.tokenizer)
        return {self.name: (values, samples)}, len(encoded)

    def degenerate(self, measurement: Measurement) -> str | None:
        """Return that a fine-tuned model gives a constant answer, or that an answer is not finite.

        For frozen, untrained and random encoders a constant answer is a valid result.
        """
        predicted = measurement.sample("predicted")
        if predicted.dtype.kind == "f" and not np.isfinite(predicted).all():
            return "some answers are not finite"
        collapsed = measurement.subject.initialisation == "pretrained" and measurement.values.get("constant")
        return "gives every example the same answer" if collapsed else None


def scores(task: Task, logits: Float[np.ndarray, "examples outputs"], targets: Sequence[float]) -> Result:
    """Return the values and samples of `Scores` from a classifier's logits.

    Args:
        targets: class numbers, or scores for a regression task.
    """
    predicted, target = decide(task, logits), np.asarray(targets)
    values: dict[str, Any] = {**all_scores(task, predicted, target), "constant": is_constant(task, predicted)}
    if not task.regression:
        values["majority"] = majority_share(targets)
        values["entropy"] = class_entropy(task, predicted)
    return values, {"predicted": predicted, "target": target}


def check_alone(
    model: Any, encoded: Encoded, logits: Float[np.ndarray, "examples outputs"], device: torch.device | str = "cpu"
) -> None:
    """Check that padding is masked: examples have the same logits alone as in their batch.

    Args:
        logits: of all examples, from `predict`.

    Raises:
        MisreadError: they do not.
    """
    padding = np.zeros(len(encoded), dtype=np.int64)
    for batch in batches(encoded):
        padding[batch.indices] = batch.input_ids.shape[1] - encoded.lengths[batch.indices]
    slack = MOVED * max(SMALLEST, float(np.abs(logits).max(initial=0)))
    for i in np.argsort(-padding, kind="stable")[:ALONE]:
        with torch.inference_mode():
            alone = model(**collate(encoded, np.array([i])).to(device).inputs()).logits[0].float().cpu().numpy()
        moved = float(np.abs(alone - logits[i]).max())
        if not moved <= slack:
            raise MisreadError(
                f"a logit moves by {moved:.2g} when its example is scored alone: the mask of {padding[i]} padding "
                "tokens was lost, so scores would depend on the batch; correct the model's code or configuration"
            )


def class_entropy(task: Task, predicted: Int[np.ndarray, " examples"]) -> float:
    """Return the entropy of the predicted classes in bits; 0 if all predictions are the same."""
    from scipy.stats import entropy  # takes most of a second to import

    share = np.bincount(predicted, minlength=task.outputs) / max(len(predicted), 1)
    return float(entropy(share, base=2))


def majority_share(targets: Sequence[float] | np.ndarray) -> float:
    """Return the accuracy of always predicting the most frequent class.

    >>> majority_share([0, 1, 1, 1])
    0.75
    """
    return float(np.bincount(np.asarray(targets, dtype=np.int64)).max() / len(targets))
