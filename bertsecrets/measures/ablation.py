"""What disabling heads and layers does to a task's score (K19 section 4.6, figures 8 and 9).

A disabled head attends to each of the L real tokens with the constant weight 1/L. Predictions are kept for every set
of heads and every example, so that paired tests and intervals come from the same run as the scores.
"""

import hashlib
from collections.abc import Callable, Sequence
from pathlib import Path
from typing import Any

import numpy as np
import torch
from jaxtyping import Shaped
from tqdm.auto import tqdm

from bertsecrets.ablation.engine import Engine, ablate
from bertsecrets.ablation.grid import Grid
from bertsecrets.ablation.head_sets import BASELINE, HeadSet
from bertsecrets.measures.scores import decide, metrics
from bertsecrets.models.encoding import Encoded
from bertsecrets.models.loading import Classifier
from bertsecrets.store.files import digest
from bertsecrets.texts.tasks import Task

Outcome = tuple[dict[str, Any], dict[str, np.ndarray]]


def set_ablation(
    classifier: Classifier,
    encoded: Encoded,
    task: Task,
    targets: Sequence[float] | Sequence[int] | np.ndarray,
    sets: Sequence[HeadSet],
    device: torch.device | str = "cpu",
    folder: Path | None = None,
    title: str | None = None,
) -> Outcome:
    """The score with each of some sets of heads disabled.

    Args:
        folder: where finished portions are kept, so that an interrupted run goes on and several processes share one.
        title: of a progress bar over the sets, with the time left; without a title there is no bar.

    Returns:
        Values: `baseline` and `score` [set], fractions of the task's metric. Samples: `predicted` [set, example],
        `baseline_predicted` and `target` [example]; class numbers as int8, scores as float32.

    Raises:
        UserError: the architecture's heads cannot be disabled, the model has no such head, or memory is too small.
    """
    engine = Engine.open(classifier, device)
    everything = [BASELINE, *sets]

    def compute(some: Sequence[HeadSet], progress: Callable[[float], Any]) -> Shaped[np.ndarray, "sets examples"]:
        logits = ablate(engine, encoded, some, progress=progress)
        return np.stack([decide(task, each) for each in logits]).astype(np.float32 if task.regression else np.int8)

    with tqdm(total=len(everything), desc=title, unit="set", disable=title is None) as bar:
        progress = _whole_steps(bar)
        if folder is None:
            predicted = compute(everything, progress)
        else:
            about = {"weights": weights_digest(classifier), "task": task.name, "inputs": digest(encoded.input_ids)}
            grid = Grid.open(folder, everything, classifier.layers, classifier.heads, about)
            predicted = grid.fill(compute, progress)
    truth = np.asarray(targets)
    score = np.array([_score(task, each, truth) for each in predicted])
    return (
        {"baseline": float(score[0]), "score": score[1:]},
        {"predicted": predicted[1:], "baseline_predicted": predicted[0], "target": truth},
    )


def weights_digest(classifier: Classifier) -> str:
    """A sha256, in hex, over all weights, a fresh classifier's included, and their precision."""
    sha = hashlib.sha256()
    for name, tensor in sorted(classifier.model.state_dict().items()):
        sha.update(f"{name} {tensor.dtype} {tuple(tensor.shape)}".encode())
        sha.update(tensor.detach().cpu().contiguous().flatten().view(torch.uint8).numpy())
    return sha.hexdigest()


def _score(task: Task, predicted: np.ndarray, targets: np.ndarray) -> float:
    return metrics(task, predicted.astype(np.float64) if task.regression else predicted, targets)[task.metric]


def _whole_steps(bar: tqdm) -> Callable[[float], None]:
    """Work reported in fractions of a set, shown as whole sets."""
    done = 0.0

    def progress(more: float) -> None:
        nonlocal done
        done += more
        bar.update(int(done + 1e-6) - bar.n)

    return progress
