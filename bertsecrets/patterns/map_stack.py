"""Maps of different lengths as one padded tensor, which is what everything that looks at maps computes on."""

from collections.abc import Iterator, Sequence
from dataclasses import dataclass

import numpy as np
import torch
from jaxtyping import Bool, Float, Int

PLACES = 2**21  # of padded maps that are looked at together: bounds memory, whatever the lengths


@dataclass(frozen=True)
class MapStack:
    """Attention maps, padded with zeros on the right and below.

    `lengths` are the real tokens of each; `boundary` is the index of the first token of the second text, or the length
    where there is only one text.
    """

    maps: Float[torch.Tensor, "maps tokens tokens"]
    lengths: Int[torch.Tensor, " maps"]
    boundary: Int[torch.Tensor, " maps"]

    @classmethod
    def of(cls, maps: Sequence[Float[np.ndarray, "_ _"]], boundary: Sequence[int]) -> "MapStack":
        """Return single L x L maps (of any float type) as one stack.

        Rows are made to sum to 1 again, which they no longer do after a short type.

        Args:
            boundary: per map, the index of the first token of the second text, or L.
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
        """True on the tokens that are no padding."""
        return torch.arange(self.maps.shape[-1], device=self.maps.device) < self.lengths[:, None]

    def special(self) -> Int[torch.Tensor, "maps 3"]:
        """Return the places of [CLS], of the [SEP] that ends the first text, and of the last token.

        In one-text inputs the last two are the same place. A causal model has other tokens there; what a map is
        called depends on its columns, not on what they are named.
        """
        return torch.stack([torch.zeros_like(self.lengths), self.boundary - 1, self.lengths - 1], dim=1)

    def chunks(self) -> Iterator[tuple[slice, "MapStack"]]:
        """Yield the stack in parts of bounded size, with their places."""
        step = max(1, PLACES // max(1, self.maps.shape[-1] ** 2))
        for start in range(0, len(self), step):
            part = slice(start, start + step)
            yield part, MapStack(self.maps[part], self.lengths[part], self.boundary[part])


def second_text(
    ids: Int[torch.Tensor, "rows tokens"], lengths: Int[torch.Tensor, " rows"], separator: int | None
) -> Int[torch.Tensor, " rows"]:
    """Return, per row of token ids, the index of the second text's first token; the row's length where there is none.

    The second text begins behind the first separator, or behind several in a row (RoBERTa doubles it).

    Args:
        lengths: real tokens of each row.
        separator: the id of [SEP]; None where the model has none, so that every row counts as one text.

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
    """Yield places of maps of similar length, shortest first: stacks of them need little padding."""
    order = np.argsort(np.asarray(lengths), kind="stable")
    for start in range(0, len(order), step):
        yield order[start : start + step]
