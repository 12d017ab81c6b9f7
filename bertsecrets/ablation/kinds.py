"""Kinds of ablation: what a disabled head hands to the output projection in place of its own vectors.

A head's vector at a token is the sum of the values, weighted by its attention. Where the head is disabled, it is

- `uniform`: the mean of the values of all tokens that it may attend to, which is attention of 1/L (K19 section 4.6);
- `zero`: 0 (Michel, Levy and Neubig 2019);
- `mean`: the mean of the head's vectors over all real tokens of all measured rows, each token counted once;
- `resampled`: the head's vectors in another of the measured rows, its partner. Rows in a random order take the next
  one's, so that every row is a partner once. The partner's vectors are stretched to the row's length: the first token
  takes that of the first, the last that of the last, and those between in proportion, rounded down.

Means and partners are those of the intact model, so neither depends on what else is disabled.
"""

from collections.abc import Callable, Iterator
from dataclasses import dataclass
from typing import Literal

import numpy as np
import torch
from jaxtyping import Int

from bertsecrets.ablation.layers import Skeleton, Vectors
from bertsecrets.errors import UserError
from bertsecrets.models.encoding import Encoded, collate

Kind = Literal["uniform", "zero", "mean", "resampled"]
Instead = Callable[[np.ndarray], list[Vectors] | None]  # from rows of one length to what disabled heads hand on


@dataclass(frozen=True)
class Ablation:
    """A kind of ablation; `draw` seeds the order in which rows are partners (`resampled`)."""

    kind: Kind = "uniform"
    draw: int = 1

    @property
    def replaces(self) -> bool:
        """True if vectors are replaced, which attention alone cannot do."""
        return self.kind != "uniform"

    def instead(self, skeleton: Skeleton, encoded: Encoded, tokens: int) -> Instead:
        """Return the function that gives, for rows of `encoded`, what disabled heads hand on: None for `uniform`.

        Args:
            tokens: about this many tokens are computed at a time.

        Raises:
            UserError: there is only one row to take vectors of another from.
        """
        if self.kind == "uniform":
            return lambda rows: None
        if self.kind == "resampled":
            return _Partners(skeleton, encoded, partners(len(encoded), self.draw), tokens)
        if self.kind == "mean":
            vectors = mean_vectors(skeleton, encoded, tokens)
        else:
            zeros = torch.zeros(1, skeleton.heads, 1, 1, dtype=skeleton.model.dtype, device=skeleton.model.device)
            vectors = [zeros] * len(skeleton.layers)
        return lambda rows: vectors

    def states(self, layers: int) -> int:
        """Return how many hidden states the replaced vectors of a row take up in memory."""
        return layers if self.kind == "resampled" else 0


UNIFORM = Ablation()


def partners(rows: int, draw: int) -> Int[np.ndarray, " rows"]:
    """Return the row whose vectors each row takes: the next one in a random order, never itself.

    Raises:
        UserError: there is no other row.
    """
    if rows == 1:
        raise UserError("one row has no other to take vectors from: measure at least two, or another --option kind=")
    order = np.random.default_rng(draw).permutation(rows)
    chosen = np.empty(rows, dtype=np.int64)
    chosen[order] = np.roll(order, -1)
    return chosen


def stretched(length: int, partner: int) -> Int[np.ndarray, " length"]:
    """Return, for each token of a row, the place of the partner's token that it takes.

    >>> stretched(5, 3).tolist(), stretched(3, 9).tolist()
    ([0, 0, 1, 1, 2], [0, 4, 8])
    """
    return np.arange(length) * (partner - 1) // max(length - 1, 1)


def mean_vectors(skeleton: Skeleton, encoded: Encoded, tokens: int) -> list[Vectors]:
    """Return each head's mean vector over all tokens of all rows, added up in float64 where the device has it."""
    precise = torch.float32 if skeleton.model.device.type == "mps" else torch.float64
    sums: list[torch.Tensor] = []
    for rows in of_one_length(encoded, np.arange(len(encoded)), tokens):
        batch = collate(encoded, rows).to(skeleton.model.device)
        found = [layer.to(precise).sum((0, 2)) for layer in skeleton.vectors(batch.input_ids, batch.segments)]
        sums = found if not sums else [before + more for before, more in zip(sums, found, strict=True)]
    return [(total / int(encoded.lengths.sum())).to(skeleton.model.dtype)[None, :, None] for total in sums]


@dataclass(frozen=True)
class _Partners:
    """The vectors of each row's partner, computed when they are asked for."""

    skeleton: Skeleton
    encoded: Encoded
    partner: Int[np.ndarray, " rows"]
    tokens: int

    def __call__(self, rows: np.ndarray) -> list[Vectors]:
        chosen, length = self.partner[rows], int(self.encoded.lengths[rows[0]])
        layers: list[Vectors] = []
        for alike in of_one_length(self.encoded, np.unique(chosen), self.tokens):
            batch = collate(self.encoded, alike).to(self.skeleton.model.device)
            place = torch.from_numpy(stretched(length, batch.input_ids.shape[1])).to(batch.input_ids.device)
            takers = np.flatnonzero(np.isin(chosen, alike))
            from_batch = torch.from_numpy(np.searchsorted(alike, chosen[takers])).to(place.device)
            for layer, vectors in enumerate(self.skeleton.vectors(batch.input_ids, batch.segments)):
                if layer == len(layers):
                    shape = (len(rows), vectors.shape[1], length, vectors.shape[3])
                    layers.append(vectors.new_empty(shape))
                layers[layer][torch.from_numpy(takers).to(place.device)] = vectors[from_batch][:, :, place]
        return layers


def of_one_length(encoded: Encoded, rows: Int[np.ndarray, " rows"], tokens: int) -> Iterator[Int[np.ndarray, " alike"]]:
    """Yield the rows in batches of one length each, in ascending order."""
    lengths = encoded.lengths[rows]
    for length in np.unique(lengths):
        alike = rows[lengths == length]
        size = max(1, tokens // int(length))
        yield from (alike[start : start + size] for start in range(0, len(alike), size))
