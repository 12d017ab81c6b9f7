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

    def __len__(self) -> int:
        return len(self.lengths)

    @property
    def real(self) -> Bool[torch.Tensor, "maps tokens"]:
        """True on the tokens that are no padding."""
        return torch.arange(self.maps.shape[-1], device=self.maps.device) < self.lengths[:, None]

    def special(self) -> Int[torch.Tensor, "maps 3"]:
        """Places of [CLS], of the [SEP] that ends the first text, and of the last token.

        In one-text inputs the last two are the same place. A causal model has other tokens there; what a map is
        called depends on its columns, not on what they are named.
        """
        return torch.stack([torch.zeros_like(self.lengths), self.boundary - 1, self.lengths - 1], dim=1)

    def chunks(self) -> Iterator[tuple[slice, "MapStack"]]:
        """The stack in parts of bounded size, with their places."""
        step = max(1, PLACES // max(1, self.maps.shape[-1] ** 2))
        for start in range(0, len(self), step):
            part = slice(start, start + step)
            yield part, MapStack(self.maps[part], self.lengths[part], self.boundary[part])


def stack(maps: Sequence[Float[np.ndarray, "_ _"]], boundary: Sequence[int]) -> MapStack:
    """Single L x L maps (of any float type) as one stack; rows are made to sum to 1 again after a short type.

    Args:
        boundary: per map, the index of the first token of the second text, or L.
    """
    lengths = torch.tensor([len(one) for one in maps], dtype=torch.long)
    longest = int(lengths.max()) if len(lengths) else 0
    padded = torch.zeros(len(maps), longest, longest)
    for place, one in zip(padded, maps, strict=True):
        rows = torch.from_numpy(np.asarray(one, dtype=np.float32))
        place[: len(one), : len(one)] = rows / rows.sum(-1, keepdim=True).clamp(min=1e-12)
    return MapStack(padded, lengths, torch.tensor(list(boundary), dtype=torch.long))


def by_length(lengths: Sequence[int], step: int = 64) -> Iterator[np.ndarray]:
    """Places of maps of similar length, shortest first: stacks of them need little padding."""
    order = np.argsort(np.asarray(lengths), kind="stable")
    for start in range(0, len(order), step):
        yield order[start : start + step]
