"""Maps of different lengths as one padded tensor, the input of all features."""

from collections.abc import Iterator, Sequence
from dataclasses import dataclass

import numpy as np
import torch
from jaxtyping import Bool, Float, Int


@dataclass(frozen=True)
class MapStack:
    """Attention maps, padded with zeros on the right and below.

    `lengths` are the numbers of real tokens; `boundary` is the index of the first token of the second text, or the
    length if there is only one text.
    """

    maps: Float[torch.Tensor, "maps tokens tokens"]
    lengths: Int[torch.Tensor, " maps"]
    boundary: Int[torch.Tensor, " maps"]

    @classmethod
    def of(cls, maps: Sequence[Float[np.ndarray, "_ _"]], boundary: Sequence[int]) -> "MapStack":
        """Return a stack of single L x L maps of any float type.

        Rows are rescaled to sum to 1, which half precision does not preserve.

        Args:
            boundary: for each map, the index of the first token of the second text, or L.
        """
        lengths = torch.tensor([len(values) for values in maps], dtype=torch.long)
        longest = int(lengths.max()) if len(lengths) else 0
        padded = torch.zeros(len(maps), longest, longest)
        for place, values in zip(padded, maps, strict=True):
            rows = torch.from_numpy(np.asarray(values, dtype=np.float32))
            place[: len(values), : len(values)] = rows / rows.sum(-1, keepdim=True).clamp(min=1e-12)
        return cls(padded, lengths, torch.tensor(list(boundary), dtype=torch.long))

    def __len__(self) -> int:
        return len(self.lengths)

    @property
    def real(self) -> Bool[torch.Tensor, "maps tokens"]:
        """A mask that is true on real tokens and false on padding."""
        return torch.arange(self.maps.shape[-1], device=self.maps.device) < self.lengths[:, None]

    def special(self) -> Int[torch.Tensor, "maps 3"]:
        """Return the places of [CLS], of the [SEP] that ends the first text, and of the last token.

        In one-text inputs the last two are the same place. Causal models have other tokens at these places; the class
        of a map depends on its columns, whatever their tokens.
        """
        return torch.stack([torch.zeros_like(self.lengths), self.boundary - 1, self.lengths - 1], dim=1)

    def cut(self, cells: int) -> Iterator[tuple[slice, "MapStack"]]:
        """Yield parts of at most this many cells (one map at least), each with its slice of the stack.

        Parts are padded only to their own longest maps. No map may stand before a shorter one.
        """
        lengths, start = self.lengths.tolist(), 0
        for stop, longest in enumerate(lengths, 1):
            if stop == len(lengths) or (stop + 1 - start) * lengths[stop] ** 2 > cells:
                part = slice(start, stop)
                maps = self.maps[part, :longest, :longest].contiguous()
                yield part, MapStack(maps, self.lengths[part], self.boundary[part])
                start = stop


def second_text(
    ids: Int[torch.Tensor, "rows tokens"], lengths: Int[torch.Tensor, " rows"], separator: int | None
) -> Int[torch.Tensor, " rows"]:
    """Return, for each row of token ids, the index of the second text's first token; the row's length if it has none.

    The second text begins after the first separator, or after several in a row (RoBERTa doubles it).

    Args:
        lengths: number of real tokens of each row.
        separator: the id of [SEP]; None if the model has none, so that every row counts as one text.

    >>> ids = torch.tensor([[2, 9, 3, 8, 3], [2, 9, 3, 0, 0]])
    >>> second_text(ids, torch.tensor([5, 3]), separator=3).tolist()
    [3, 3]
    """
    if separator is None:
        return lengths
    real = torch.arange(ids.shape[1], device=ids.device) < lengths[:, None]
    ends = (ids == separator) & real
    behind = (ends.cumsum(1) > 0) & ~ends & real
    return torch.where(behind.any(1), behind.long().argmax(1), lengths)


def by_length(lengths: Sequence[int], step: int = 64) -> Iterator[np.ndarray]:
    """Yield places of maps of similar length, shortest first, `step` at a time; stacks of them need little padding.

    >>> [places.tolist() for places in by_length([5, 2, 9, 3], step=2)]
    [[1, 3], [0, 2]]
    """
    order = np.argsort(np.asarray(lengths), kind="stable")
    for start in range(0, len(order), step):
        yield order[start : start + step]
