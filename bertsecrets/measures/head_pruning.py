"""Removal of heads step by step, starting with the least important (Michel, Levy and Neubig 2019; claims I4).

A gate scales what each head contributes to the output projection. The importance of a head is the absolute gradient of
an example's loss with respect to the head's gate, summed over examples and divided by the Euclidean norm over the heads
of the layer. Each step closes the gates of a tenth of all heads and recomputes the importance of the remaining heads.
As in P20, importance and score are measured on the same validation rows, whereas Michel et al. estimate importance
once, on training data.
"""

from collections.abc import Callable, Iterator, Mapping, Sequence
from typing import Any, ClassVar

import numpy as np
import torch
from jaxtyping import Bool, Float, Int

from bertsecrets.ablation.engine import Engine
from bertsecrets.ablation.kinds import Ablation, of_one_length
from bertsecrets.ablation.skeleton import Skeleton
from bertsecrets.measures.base import MeasureContext, Results
from bertsecrets.measures.base.ablation_measure import HeadRemovalMeasure, scored
from bertsecrets.measures.base.figures import Figure, HeadMap, Lines
from bertsecrets.measures.base.probe import probe_inputs
from bertsecrets.measures.registry import measure
from bertsecrets.models.encoding import Encoded, Loss, check_finite, collate, encode, loss_of
from bertsecrets.models.opening import OpenModel
from bertsecrets.progress import progress
from bertsecrets.texts.metrics import decide
from bertsecrets.texts.tasks import TASKS, Task
from bertsecrets.types import Measurement

STEP_SHARE = 0.1  # fraction of all heads that each step removes
PRUNING_BATCH_TOKENS = 2048  # per batch; small, because activations are stored for the backward pass


@measure("head-pruning", title="score with the least important heads removed step by step", source="Michel et al. 2019")
class HeadPruning(HeadRemovalMeasure):
    """Values: `baseline` is the score of the unpruned model (accuracy or Pearson's correlation, as a fraction). `score`
    and `left`, with the axis [step], are the score and the number of heads left after each step. `importance` and
    `removed`, with the axes [layer, head], are each head's importance in the unpruned model and the number of the step
    that removes the head, starting with 1. A head has importance 1 if all other heads in its layer have importance 0.

    Samples: `predicted` has the axes [step, example]; `baseline_predicted` and `target` have the axis [example].
    """

    gradients: ClassVar[bool] = True
    axes = ("layer", "head")
    other_axes: ClassVar[Mapping[str, tuple[str, ...]]] = {"score": ("step",), "left": ("step",)}

    def check_model(self, classifier: OpenModel) -> None:
        """Check that the model's heads can be disabled, and that their gates receive gradients."""
        skeleton, encoded = Engine.open(classifier, ablation=Ablation("zero")).skeleton, probe_inputs(classifier)
        gates = np.ones((len(skeleton.layers), skeleton.heads), dtype=bool)
        loss = loss_of(regression=classifier.model.config.num_labels == 1)
        gated(skeleton, encoded, np.zeros(len(encoded)), gates, loss)

    def run(self, context: MeasureContext) -> Results:
        """Remove heads until none are left, and score the model after each step."""
        opened, rows = context.open(self.kernel), self.rows(context)
        encoded = encode(rows, opened.tokenizer, opened.fit(context.resources.settings.scores.max_length))
        engine = Engine.open(opened, context.resources.device, ablation=Ablation("zero"))
        engine.check_longest(encoded)
        opened.model.requires_grad_(False)
        target = np.asarray(rows.targets())
        left = heads_left(opened.layers * opened.heads)
        with progress(f"pruning heads of {context.measured}", len(left) * len(encoded), "example") as shown:
            predicted, importance, removed = prune_heads(engine.skeleton, encoded, context.task, target, shown.advance)
        values, samples = scored(context.task, predicted, target)
        values |= {"left": np.array(left[1:]), "importance": importance, "removed": removed}
        return {self.name: (values, samples)}, len(encoded)

    def figures(self, measurement: Measurement) -> Iterator[Figure]:
        task = TASKS[measurement.subject.task]
        heads = np.asarray(measurement.value("removed")).size
        left = [heads, *measurement.value("left")]
        scores = [measurement.value("baseline"), *measurement.value("score")]
        line = [(100 * (1 - count / heads), 100 * score) for count, score in zip(left, scores, strict=True)]
        yield Lines(
            "The score with the least important heads removed, a tenth at a time: {who}",
            {measurement.subject.model: line},
            unit="points of " + ("Pearson's correlation" if task.regression else "accuracy"),
            x="percent of heads pruned",
            from_zero=False,
        )
        yield HeadMap(
            "Importance of each head, computed from gradients and normalised within each layer: {who}",
            np.asarray(measurement.value("importance")),
            unit="importance",
        )


def heads_left(heads: int) -> list[int]:
    """Return the number of heads left before the first step and after each step.

    >>> heads_left(12)
    [12, 11, 10, 9, 8, 7, 6, 5, 4, 3, 2, 1, 0]
    >>> heads_left(144)
    [144, 130, 116, 102, 88, 74, 60, 46, 32, 18, 4, 0]
    """
    return [*range(heads, 0, -max(1, int(STEP_SHARE * heads))), 0]


def prune_heads(
    skeleton: Skeleton,
    encoded: Encoded,
    task: Task,
    target: Sequence[float] | np.ndarray,
    advance: Callable[[float], Any] = lambda more: None,
) -> tuple[list[np.ndarray], Float[np.ndarray, "layers heads"], Int[np.ndarray, "layers heads"]]:
    """Remove heads step by step, starting with the least important, until none are left.

    Return the predictions before the first step and after each step, the importance of each head before the first step,
    and the number of the step that removes each head.
    """
    remaining = np.ones((len(skeleton.layers), skeleton.heads), dtype=bool)
    removed = np.zeros(remaining.shape, dtype=np.int64)
    counts = heads_left(remaining.size)
    predicted, importances = [], []
    for step, (before, after) in enumerate(zip(counts, [*counts[1:], 0], strict=True), 1):
        logits, importance = gated(skeleton, encoded, target, remaining, loss_of(task.regression), advance)
        predicted.append(decide(task, logits))
        importances.append(importance)
        least = np.argsort(np.where(remaining, importance, np.inf), axis=None, kind="stable")[: before - after]
        remaining.flat[least] = False
        removed.flat[least] = step
    return predicted, importances[0], removed


def gated(
    skeleton: Skeleton,
    encoded: Encoded,
    target: Sequence[float] | np.ndarray,
    remaining: Bool[np.ndarray, "layers heads"],
    loss: Loss,
    advance: Callable[[float], Any] = lambda more: None,
) -> tuple[Float[np.ndarray, "examples outputs"], Float[np.ndarray, "layers heads"]]:
    """Return the logits with some heads removed, and the importance of each remaining head."""
    model = skeleton.model
    truth = torch.as_tensor(np.asarray(target), device=model.device)
    answers = np.empty((len(encoded), model.config.num_labels), dtype=np.float32)
    total = torch.zeros(remaining.shape, dtype=torch.float32, device=model.device)
    for rows in of_one_length(encoded, np.arange(len(encoded)), PRUNING_BATCH_TOKENS):
        batch = collate(encoded, rows).to(model.device)
        gates = torch.from_numpy(remaining).to(model.device, model.dtype).repeat(len(rows), 1, 1).requires_grad_()
        logits = skeleton.gated(batch.input_ids, batch.segments, gates).float()
        check_finite(logits.detach())
        (slope,) = torch.autograd.grad(loss(logits, truth[torch.from_numpy(rows).to(model.device)]), gates)
        total += slope.float().abs().sum(0)
        answers[rows] = logits.detach().cpu().numpy()
        advance(len(rows))
    norms = total.norm(dim=1, keepdim=True).clamp(min=1e-20)
    return answers, (total / norms).cpu().numpy().astype(np.float64)
