"""Two baselines: softmax regression on the named features, and the paper's convolutional classifier.

The CNN follows the code of P20 (Prasanna et al. 2020, the same group) for K19 (Kovaleva et al. 2019, section 4.1). It
has eight convolutions with ReLU on raw weights: 3x3 1-16, 16-16, max-pool 2, 16-32, 32-32, max-pool 2, 32-64, 64-64,
1x1 64-16, global average pool, 1x1 16-classes. Maps are centred on a zero canvas. Training uses Adam with learning rate
1e-3 and batch size 64, and 20% of the training maps are held out to select the best epoch. There are three changes:
held-out maps are split by head, maps larger than the canvas are pooled to the canvas's size, and early stopping makes
training on every fold feasible on a CPU.
"""

import copy
from collections.abc import Collection
from dataclasses import dataclass

import numpy as np
import torch
from jaxtyping import Float
from torch import nn

from bertsecrets.patterns.classes import CLASSES
from instruments.classifiers.crossval import LabelledMaps, Trained, on_features
from instruments.classifiers.fitting import regress
from instruments.classifiers.quality import macro_f1_of_all

PENALTIES = (0.01, 0.1, 1.0)  # candidate inverse strengths of the L2 penalty
RATE, BATCH = 1e-3, 64


def logistic_features(train: LabelledMaps, seed: int) -> Trained:
    """Train a softmax regression on all maps, with the penalty selected on inner folds that are grouped by head.

    Classes missing from training get near-zero probability.
    """
    scores = {c: _inner_score(train, c, seed) for c in PENALTIES}
    return on_features(regress(train.table, train.labels, max(scores, key=scores.__getitem__)).probabilities)


def _inner_score(train: LabelledMaps, penalty: float, seed: int) -> float:
    predicted = np.zeros(len(train), dtype=int)
    for learn, held in train.folds(4, seed):
        part = train.take(learn)
        model = regress(part.table, part.labels, penalty)
        predicted[held] = model.probabilities(torch.from_numpy(train.table[held])).argmax(1).numpy()
    return macro_f1_of_all(train.labels, predicted)


@dataclass(frozen=True)
class PaperCnn:
    """The paper's CNN, trained for at most `epochs` epochs, and stopped after `patience` epochs without improvement.

    The paper's code trains for 200 epochs without early stopping, and its canvas has the size of the largest map.
    """

    epochs: int = 80
    patience: int = 25
    canvas: int = 40

    def fit(self, train: LabelledMaps, seed: int) -> Trained:
        """Train on 80% of the maps and return the network from the epoch with the best macro-F1 on the other 20%."""
        torch.manual_seed(seed)
        model = network().to(memory_format=torch.channels_last)  # type: ignore[call-overload]
        optimizer = torch.optim.Adam(model.parameters(), lr=RATE)
        learn, held = next(train.folds(5, seed))
        images = canvases(train.maps, self.canvas).to(memory_format=torch.channels_last)
        labels = torch.from_numpy(train.labels)
        best, best_score, since = copy.deepcopy(model.state_dict()), -1.0, 0
        for _ in range(self.epochs):
            model.train()
            for places in torch.from_numpy(learn)[torch.randperm(len(learn))].split(BATCH):
                loss = nn.functional.cross_entropy(model(images[places]), labels[places])
                optimizer.zero_grad()
                loss.backward()
                optimizer.step()
            score = macro_f1_of_all(train.labels[held], _run(model, images[held]).argmax(1).numpy())
            since += 1
            if score > best_score:
                best, best_score, since = copy.deepcopy(model.state_dict()), score, 0
            if since >= self.patience:
                break
        model.load_state_dict(best)
        return lambda data: _run(model, canvases(data.maps, self.canvas)).softmax(1).numpy()


def network() -> nn.Sequential:
    """Return the untrained network (73,000 parameters)."""

    def pair(inputs: int, outputs: int) -> list[nn.Module]:
        first, second = nn.Conv2d(inputs, outputs, 3, padding=1), nn.Conv2d(outputs, outputs, 3, padding=1)
        return [first, nn.ReLU(), second, nn.ReLU()]

    return nn.Sequential(
        *pair(1, 16), nn.MaxPool2d(2), *pair(16, 32), nn.MaxPool2d(2), *pair(32, 64),
        nn.Conv2d(64, 16, 1), nn.ReLU(), nn.AdaptiveAvgPool2d(1), nn.Conv2d(16, len(CLASSES), 1), nn.Flatten(),
    )  # fmt: skip


def canvases(maps: Collection[np.ndarray], size: int) -> Float[torch.Tensor, "maps 1 size size"]:
    """Return each map centred on a square zero canvas. Maps that are larger than the canvas are pooled to its size."""
    images = torch.zeros(len(maps), 1, size, size)
    for place, values in zip(images, maps, strict=True):
        image = torch.from_numpy(np.asarray(values, dtype=np.float32))[None]
        if image.shape[-1] > size:
            image = nn.functional.adaptive_avg_pool2d(image, size)
        start = (size - image.shape[-1]) // 2
        place[:, start : start + image.shape[-1], start : start + image.shape[-1]] = image
    return images


def _run(model: nn.Module, images: torch.Tensor) -> torch.Tensor:
    model.eval()
    with torch.no_grad():
        return torch.cat([model(part) for part in images.split(256)])
