"""The input from which all features are computed: maps of different lengths, padded and stacked in one tensor."""

from collections.abc import Iterator
from dataclasses import dataclass

import torch
from jaxtyping import Bool, Float, Int


@dataclass(frozen=True)
class MapStack:
    """Attention maps, zero-padded on the right and bottom.

    `lengths` are the numbers of tokens without padding. `boundary` is the index of the second text's first token. For
    inputs with one text, `boundary` is the length.
    """

    maps: Float[torch.Tensor, "maps tokens tokens"]
    lengths: Int[torch.Tensor, " maps"]
    boundary: Int[torch.Tensor, " maps"]

    def __len__(self) -> int:
        return len(self.lengths)

    @property
    def real(self) -> Bool[torch.Tensor, "maps tokens"]:
        """Mask of the tokens that are not padding."""
        return torch.arange(self.maps.shape[-1], device=self.maps.device) < self.lengths[:, None]

    def special(self) -> Int[torch.Tensor, "maps 3"]:
        """Return the positions of [CLS], of the [SEP] after the first text, and of the last token.

        For inputs with one text, the last two positions are the same. Causal models may have ordinary tokens at
        these positions. This is acceptable, because a map's class depends only on its columns.
        """
        return torch.stack([torch.zeros_like(self.lengths), self.boundary - 1, self.lengths - 1], dim=1)

    def cut(self, cells: int) -> Iterator[tuple[slice, "MapStack"]]:
        """Split the stack into smaller stacks of at most `cells` cells (or a single map), and yield (slice, stack).

        Each smaller stack is padded to its longest map. Maps must be sorted by length.
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
    """Return the index of the second text's first token in each row, or the row's length if it has one text.

    The second text starts after the first separator or run of separators (RoBERTa uses two).

    Args:
        lengths: Number of tokens in each row, without padding.
        separator: Id of [SEP]. If None, each row is treated as a single text.

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
