"""Kinds of ablation. The kind determines what a disabled head passes to the output projection.

A head's vector at a token is the attention-weighted sum of the value vectors. A disabled head has this vector instead:

- `uniform`: the mean of the value vectors at all tokens that the head can attend to, as with weights 1/L (K19 section
  4.6);
- `zero`: 0 (Michel, Levy and Neubig 2019);
- `mean`: the head's mean vector over all tokens (except padding) of all measured rows;
- `resampled`: the head's vector in another measured row, the partner. The partner of a row is the next row in a random
  order, so every row is a partner exactly once. Token positions are scaled linearly to the partner's length and rounded
  down, so that the first tokens of both rows correspond to each other, and so do the last tokens.

Mean vectors and partners' vectors are computed with no heads disabled.
"""

from collections.abc import Callable, Iterator
from dataclasses import dataclass
from functools import partial
from typing import Literal

import numpy as np
import torch
from jaxtyping import Int

from bertsecrets.ablation.skeleton import Skeleton, Vectors
from bertsecrets.errors import UserError
from bertsecrets.models.encoding import Encoded, collate

Kind = Literal["uniform", "zero", "mean", "resampled"]
Instead = Callable[[np.ndarray], list[Vectors] | None]  # maps rows of equal length to replacement vectors


@dataclass(frozen=True)
class Ablation:
    """A kind of ablation. For `resampled`, `draw` is the seed for the random order of partners."""

    kind: Kind = "uniform"
    draw: int = 1

    def instead(self, skeleton: Skeleton, encoded: Encoded, tokens: int) -> Instead:
        """Return a function from rows of `encoded` to their replacement vectors, which are None for `uniform`."""
        if self.kind == "uniform":
            return lambda rows: None
        if self.kind == "resampled":
            return partial(_partners_vectors, skeleton, encoded, tokens, partners(len(encoded), self.draw))
        if self.kind == "mean":
            vectors = mean_vectors(skeleton, encoded, tokens)
        else:
            zeros = torch.zeros(1, skeleton.heads, 1, 1, dtype=skeleton.model.dtype, device=skeleton.model.device)
            vectors = [zeros] * len(skeleton.layers)
        return lambda rows: vectors

    def states(self, layers: int) -> int:
        """Return how many hidden states would take as much memory as the replacement vectors of a row."""
        return layers if self.kind == "resampled" else 0


UNIFORM = Ablation()


def partners(rows: int, draw: int) -> Int[np.ndarray, " rows"]:
    """Return the partner of each row: the next row in a random order. No row is its own partner."""
    if rows == 1:
        raise UserError("kind=resampled takes vectors from other rows: use at least two rows, or choose another kind")
    order = np.random.default_rng(draw).permutation(rows)
    chosen = np.empty(rows, dtype=np.int64)
    chosen[order] = np.roll(order, -1)
    return chosen


def stretched(length: int, partner: int) -> Int[np.ndarray, " length"]:
    """Return, for each token of a row, the position of the corresponding token in the partner.

    >>> stretched(5, 3).tolist(), stretched(3, 9).tolist()
    ([0, 0, 1, 1, 2], [0, 4, 8])
    """
    return np.arange(length) * (partner - 1) // max(length - 1, 1)


def mean_vectors(skeleton: Skeleton, encoded: Encoded, tokens: int) -> list[Vectors]:
    """Return each head's mean vector over all tokens of all rows. Sums use float64 if the device supports it."""
    precise = torch.float32 if skeleton.model.device.type == "mps" else torch.float64
    sums: list[torch.Tensor] = []
    for rows in of_one_length(encoded, np.arange(len(encoded)), tokens):
        batch = collate(encoded, rows).to(skeleton.model.device)
        vectors = [layer.to(precise).sum((0, 2)) for layer in skeleton.vectors(batch.input_ids, batch.segments)]
        sums = vectors if not sums else [total + more for total, more in zip(sums, vectors, strict=True)]
    return [(total / int(encoded.lengths.sum())).to(skeleton.model.dtype)[None, :, None] for total in sums]


def _partners_vectors(skeleton: Skeleton, encoded: Encoded, tokens: int, partner, rows: np.ndarray) -> list[Vectors]:
    """Return the vectors of the partners of rows of equal length."""
    chosen, length = partner[rows], int(encoded.lengths[rows[0]])
    layers: list[Vectors] = []
    for same_length in of_one_length(encoded, np.unique(chosen), tokens):
        batch = collate(encoded, same_length).to(skeleton.model.device)
        place = torch.from_numpy(stretched(length, batch.input_ids.shape[1])).to(batch.input_ids.device)
        takers = np.flatnonzero(np.isin(chosen, same_length))
        from_batch = torch.from_numpy(np.searchsorted(same_length, chosen[takers])).to(place.device)
        for layer, vectors in enumerate(skeleton.vectors(batch.input_ids, batch.segments)):
            if layer == len(layers):
                layers.append(vectors.new_empty(len(rows), vectors.shape[1], length, vectors.shape[3]))
            layers[layer][torch.from_numpy(takers).to(place.device)] = vectors[from_batch][:, :, place]
    return layers


def of_one_length(encoded: Encoded, rows: Int[np.ndarray, " rows"], tokens: int) -> Iterator[Int[np.ndarray, " batch"]]:
    """Yield the rows in batches, the shortest rows first. All rows of a batch have the same length."""
    lengths = encoded.lengths[rows]
    for length in np.unique(lengths):
        members = rows[lengths == length]
        size = max(1, tokens // int(length))
        yield from (members[start : start + size] for start in range(0, len(members), size))
