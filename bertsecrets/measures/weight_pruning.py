"""A model's score after magnitude pruning of increasing fractions of its weights (claims I1).

As in P20, weights are ranked jointly across the weight matrices of all layers. Embeddings, layer norms, biases, the
pooler and the classifier are not pruned. The model is not retrained. Gordon et al. instead prune each matrix of the
pretrained model separately, including embeddings, and then continue training. The checkpoint on disk is never modified.
"""

import re
from collections.abc import Iterator, Sequence
from typing import Any

import numpy as np
import torch
from torch import nn

from bertsecrets.errors import NotApplicableError
from bertsecrets.measures.base import MeasureContext, Results
from bertsecrets.measures.base.ablation_measure import RemovalMeasure, scored
from bertsecrets.measures.base.figures import Figure, Lines
from bertsecrets.measures.registry import measure
from bertsecrets.models.encoding import encode, predict
from bertsecrets.models.layers import layer_of
from bertsecrets.models.opening import OpenModel
from bertsecrets.progress import progress
from bertsecrets.texts.metrics import decide
from bertsecrets.texts.published import p20_pruned_scores
from bertsecrets.texts.tasks import TASKS
from bertsecrets.types import Measurement

PRUNED_SHARES = (0.1, 0.2, 0.3, 0.4, 0.5, 0.6, 0.7)
UNPRUNED_NAMES = re.compile("bias|embed")  # parts of the names of unpruned tensors with two or more dimensions


@measure("weight-pruning", title="score with the smallest weights set to 0", source="Gordon et al. 2020; P20")
class WeightPruning(RemovalMeasure):
    """Values: `baseline` and `score` [step], the scores of the unpruned model and of the model after each step
    (accuracy or Pearson's correlation, as fractions); `share` [step], the fraction of weights set to 0; and `pruned`
    [step], the number of weights set to 0.

    Samples: `predicted` [step, example], `baseline_predicted` and `target` [example].
    """

    axes = ("step",)

    def check_model(self, classifier: OpenModel) -> None:
        """Check that the model has layers with weight matrices."""
        layer_weights(classifier.model)

    def run(self, context: MeasureContext) -> Results:
        """Score the model on the validation rows at increasing levels of sparsity, starting with the unpruned model."""
        opened, rows = context.open(self.kernel), self.rows(context)
        encoded = encode(rows, opened.tokenizer, opened.fit(context.resources.settings.scores.max_length))
        weights, device = layer_weights(opened.model), context.resources.device
        predicted, pruned = [], []
        with progress(f"pruning weights of {context.measured}", 1 + len(PRUNED_SHARES), "share") as shown:
            for share in (0.0, *PRUNED_SHARES):
                pruned.append(prune_smallest(weights, share))
                predicted.append(decide(context.task, predict(opened.model, encoded, device)))
                shown.advance()
        values, samples = scored(context.task, predicted, rows.targets())
        values |= {"share": np.array(PRUNED_SHARES), "pruned": np.array(pruned[1:])}
        return {self.name: (values, samples)}, len(encoded)

    def figures(self, measurement: Measurement) -> Iterator[Figure]:
        """Yield the chart of the score by sparsity. If P20 published scores for the task, the chart includes them."""
        task = TASKS[measurement.subject.task]
        scores = [measurement.value("baseline"), *measurement.value("score")]
        shares = [0.0, *measurement.value("share")]
        curves = {measurement.subject.model: [(100 * x, 100 * y) for x, y in zip(shares, scores, strict=True)]}
        if (published := p20_pruned_scores(task.name)) is not None:
            curves["P20, BERT-base"] = [(100 * x, y) for x, y in published.items()]
        yield Lines(
            "The score with the smallest weights set to 0: {who}",
            curves,
            unit="points of " + ("Pearson's correlation" if task.regression else "accuracy"),
            x="percent of weights pruned",
            from_zero=False,
        )


def layer_weights(model: Any) -> list[nn.Parameter]:
    """Return the weight matrices in a model's layers, without embeddings. Those of a mixture of experts are stacked."""
    embeddings = {id(module.weight) for module in model.modules() if isinstance(module, nn.Embedding)}
    weights = [
        weight
        for name, weight in model.base_model.named_parameters()
        if layer_of(name) and weight.dim() > 1 and not UNPRUNED_NAMES.search(name) and id(weight) not in embeddings
    ]
    if not weights:
        raise NotApplicableError(f"the layers of {type(model).__name__} have no weight matrices to prune")
    return weights


@torch.no_grad()
def prune_smallest(weights: Sequence[torch.Tensor], share: float) -> int:
    """Set the weights of smallest magnitude to 0 in place, and return the number of these weights.

    Weights that are already 0 count towards `share`, so pruning in steps gives the same result as pruning at once.
    """
    flat = torch.cat([weight.detach().flatten() for weight in weights])
    count = round(share * len(flat))
    flat[flat.abs().topk(count, largest=False).indices] = 0
    for weight, pruned in zip(weights, flat.split([weight.numel() for weight in weights]), strict=True):
        weight.copy_(pruned.view_as(weight))
    return count
