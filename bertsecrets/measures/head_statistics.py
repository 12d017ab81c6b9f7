"""The entropy of each head's attention, and the divergence between heads (Clark et al. 2019).

Entropy and Jensen-Shannon divergence are computed in bits for each row of a map and averaged over the map's L rows.
Clark et al. sum the divergence over rows instead. The divergence of two rows is the entropy of their mean minus the
mean of their entropies. The divergence is 0 for identical rows, and 1 for rows that attend to disjoint sets of tokens.
"""

import math
from collections.abc import Iterator, Mapping
from typing import ClassVar

import numpy as np
import torch
from jaxtyping import Float

from bertsecrets.measures.base import AttentionMeasure, AttentionRun
from bertsecrets.measures.base.figures import Figure, HeadDistances, HeadMap
from bertsecrets.measures.base.observers import SampleObserver
from bertsecrets.measures.registry import measure
from bertsecrets.models.attention import Maps, Observer
from bertsecrets.models.encoding import Batch
from bertsecrets.types import Measurement

COMPARED_EXAMPLES = 64  # evenly spaced examples on which all pairs of heads are compared


def row_entropy(maps: Float[torch.Tensor, "*any tokens tokens"], length: int) -> Float[torch.Tensor, "*any"]:
    """Return the mean entropy of the L rows of each map, in bits. Padding rows must be 0.

    >>> row_entropy(torch.tensor([[0.5, 0.5], [1.0, 0.0]]), 2).item()
    0.5
    """
    return torch.special.entr(maps).sum((-2, -1)) / (length * math.log(2))


def divergences(maps: Float[torch.Tensor, "heads tokens tokens"]) -> Float[np.ndarray, "heads heads"]:
    """Return the Jensen-Shannon divergence of each pair of heads in bits, averaged over rows."""
    heads, length = maps.shape[:2]
    entropy = row_entropy(maps, length)
    result = torch.zeros(heads, heads, dtype=maps.dtype, device=maps.device)
    for head in range(heads - 1):
        both = row_entropy((maps[head] + maps[head + 1 :]) / 2, length)
        result[head, head + 1 :] = (both - (entropy[head] + entropy[head + 1 :]) / 2).clamp(min=0)
    return (result + result.T).cpu().numpy().astype(np.float64)


class HeadObserver(SampleObserver):
    """Observer of one model. It stores each head's entropy and, for some examples, the divergence between heads."""

    def __init__(self, examples: int, layers: int, heads: int):
        super().__init__(examples, layers, heads, ["entropy"], counts=False)
        self.layers = layers
        self.compared = np.zeros(examples, dtype=bool)
        self.compared[np.linspace(0, examples - 1, min(COMPARED_EXAMPLES, examples)).astype(int)] = True
        self.total = np.zeros((layers * heads, layers * heads))
        layer_of = np.repeat(np.arange(layers), heads)
        same = layer_of[:, None] == layer_of
        self.chosen = {"within": same & ~np.eye(layers * heads, dtype=bool), "between": ~same}
        self.means = {name: np.full(examples, np.nan, dtype=np.float32) for name in self.chosen}
        self.buffered: list[Maps] = []  # maps of the compared rows in the current batch, by layer

    def update(self, batch: Batch, layer: int, maps: Maps, other: Maps | None) -> None:
        lengths = batch.lengths.tolist()
        entropies = [row_entropy(of_row, length) for of_row, length in zip(maps, lengths, strict=True)]
        self.record("entropy", batch, layer, torch.stack(entropies))
        rows = np.flatnonzero(self.compared[batch.indices])
        self.buffered.append(maps[rows])
        if layer < self.layers - 1:
            return
        for place, row in enumerate(rows):
            of_row = torch.cat([kept[place, :, : lengths[row], : lengths[row]] for kept in self.buffered])
            divergence = divergences(of_row)
            self.total += divergence
            for name, chosen in self.chosen.items():
                if chosen.any():
                    self.means[name][batch.indices[row]] = divergence[chosen].mean()
        self.buffered = []

    def compute(self) -> tuple[dict[str, np.ndarray], dict[str, np.ndarray]]:
        values, samples = super().compute()
        divergence = self.total / max(int(self.compared.sum()), 1)
        return values | {"divergence": divergence}, samples | self.means


@measure("head-statistics", title="entropy of each head, divergence of each pair of heads", source="Clark et al. 2019")
class HeadStatistics(AttentionMeasure):
    """Values: `entropy` [layer, head] in bits, and `divergence` [head, head] in bits between the heads of all layers.

    Samples: `entropy` [example, layer, head]; `within` and `between` [example], the mean divergence of heads in the
    same layer and in different layers. Heads are compared on at most 64 evenly spaced examples. For all other examples,
    `within` and `between` are NaN.
    """

    common: ClassVar[bool] = False
    other_axes: ClassVar[Mapping[str, tuple[str, ...]]] = {"divergence": ("head of all", "other head of all")}
    curves = ("entropy",)

    def observer(self, view: AttentionRun) -> Observer:
        return HeadObserver(*view.shape)

    def figures(self, measurement: Measurement) -> Iterator[Figure]:
        """Yield a map of entropies, and heads as points whose distances are the square roots of the divergences."""
        values = np.asarray(measurement.value("entropy"))
        yield HeadMap("Entropy of each head's attention: {who}", values, unit="bits", high=float(np.nanmax(values)))
        distances = np.sqrt(np.asarray(measurement.value("divergence")))
        yield HeadDistances("Heads that attend similarly are close together: {who}", distances, values.shape[1])
