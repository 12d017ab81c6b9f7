"""The score with a growing share of the smallest weights set to 0 (magnitude pruning; claims I1).

Weights are compared across all weight matrices of the layers, as in P20; embeddings, norms, biases, the pooler and the
classifier are not pruned. Nothing is retrained. The checkpoint on disk is only read.
"""

import re
from collections.abc import Iterator, Sequence
from typing import Any, ClassVar

import numpy as np
from torch import nn
from torch.nn.utils import prune

from bertsecrets.errors import NotApplicableError
from bertsecrets.measures.base import Measure, Results, Run
from bertsecrets.measures.base.ablation import collapsed
from bertsecrets.measures.base.figures import Figure, Lines
from bertsecrets.measures.registry import measure
from bertsecrets.models.encoding import encode, predict
from bertsecrets.models.opening import OpenModel
from bertsecrets.progress import progress
from bertsecrets.texts.metrics import decide, score
from bertsecrets.texts.published import p20_pruned_scores
from bertsecrets.texts.tasks import TASKS
from bertsecrets.types import Measurement

SHARES = (0.1, 0.2, 0.3, 0.4, 0.5, 0.6, 0.7)
IN_A_LAYER = re.compile(r"\.\d+\.")


@measure("weight-pruning", title="score with the smallest weights set to 0", source="Gordon et al. 2020; P20")
class WeightPruning(Measure):
    """Values: `baseline` and `score` [share], accuracy or Pearson's correlation as fractions, `share` and `pruned`.

    `share` are the shares of the weights that are set to 0, `pruned` the numbers of these weights.

    Samples: `predicted` [share, example], `baseline_predicted` and `target` [example].
    """

    section = "scores"
    passes: ClassVar[float] = 1 + len(SHARES)

    def check_model(self, classifier: OpenModel) -> None:
        """Check that the model has layers with weight matrices."""
        layer_modules(classifier.model)

    def run(self, run: Run) -> Results:
        """Score the validation rows with a growing share of pruned weights, from none."""
        opened, rows = run.open("sdpa"), self.rows(run)
        encoded = encode(rows, opened.tokenizer, opened.fit(run.resources.settings.scores.max_length))
        modules, device = layer_modules(opened.model), run.resources.device
        predicted, pruned = [], []
        with progress(f"pruning weights of {run.subject}", 1 + len(SHARES), "share") as shown:
            for share in (0.0, *SHARES):
                pruned.append(prune_smallest(modules, share))
                predicted.append(decide(run.task, predict(opened.model, encoded, device)))
                shown.advance()
        target = np.asarray(rows.targets())
        metric = "pearson" if run.task.regression else "accuracy"
        baseline, *scores = (score(metric, answers, target) for answers in predicted)
        kind = np.float32 if run.task.regression else np.int8
        samples = {
            "predicted": np.stack(predicted[1:]).astype(kind),
            "baseline_predicted": predicted[0].astype(kind),
            "target": target,
        }
        values = {
            "baseline": baseline,
            "score": np.array(scores),
            "share": np.array(SHARES),
            "pruned": np.array(pruned[1:]),
        }
        return {self.name: (values, samples)}, len(encoded)

    def degenerate(self, measurement: Measurement) -> str | None:
        """Return that the model gives a constant answer before pruning, or that an answer is not finite."""
        return collapsed(measurement)

    def figures(self, measurement: Measurement) -> Iterator[Figure]:
        """Yield the score over the share of pruned weights, with P20's points if there are any."""
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


def layer_modules(model: Any) -> list[Any]:
    """Return the modules with a weight matrix in a model's layers.

    Raises:
        NotApplicableError: there are none.
    """
    from transformers.pytorch_utils import Conv1D

    found = [
        module
        for name, module in model.base_model.named_modules()
        if isinstance(module, nn.Linear | Conv1D) and IN_A_LAYER.search(f".{name}.")
    ]
    if not found:
        raise NotApplicableError(f"the layers of {type(model).__name__} have no weight matrices that could be pruned")
    return found


def prune_smallest(modules: Sequence[Any], share: float) -> int:
    """Set the given share of all the modules' weights to 0 in place, the smallest first.

    Weights that are already 0 count, so that a share includes every smaller share.

    Returns:
        The number of these weights.
    """
    weights = [(module, "weight") for module in modules]
    count = round(share * sum(module.weight.numel() for module in modules))
    prune.global_unstructured(weights, pruning_method=prune.L1Unstructured, amount=count)
    for module, name in weights:
        prune.remove(module, name)
    return count
