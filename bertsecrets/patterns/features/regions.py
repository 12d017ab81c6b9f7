"""Functions that select regions of padded maps, such as inside tokens, and compute statistics over a region.

All features are computed with these functions, so padding does not affect any feature.
"""

import torch
from jaxtyping import Bool, Float

from bertsecrets.patterns.map_stack import MapStack

EPSILON = 1e-6
Column = Float[torch.Tensor, " maps"]


def inside(stack: MapStack) -> Bool[torch.Tensor, "maps tokens"]:
    """Return the mask of inside tokens, which are neither special tokens nor padding."""
    return stack.real.scatter(1, stack.special(), False)


def mean(values: Float[torch.Tensor, "maps tokens"], over: Bool[torch.Tensor, "maps tokens"]) -> Column:
    """Return the mean of the values where the mask is set, or 0 if the mask is empty."""
    marks = over.to(values.dtype)  # numbers are much faster to sum than a mask
    return (values * marks).sum(1) / marks.sum(1).clamp(min=1)


def quantiles(
    values: Float[torch.Tensor, "maps tokens"], over: Bool[torch.Tensor, "maps tokens"], *shares: float
) -> list[Column]:
    """Return linearly interpolated quantiles of the values where the mask is set, or 0 if the mask is empty."""
    at = torch.tensor(shares, dtype=values.dtype, device=values.device)
    return [*values.masked_fill(~over, torch.nan).nanquantile(at, dim=1).nan_to_num(nan=0.0)]


def longest_gap(lit: Bool[torch.Tensor, "maps tokens"], over: Bool[torch.Tensor, "maps tokens"]) -> Column:
    """Return the length of the longest run of positions that are not `lit`. Only positions in the mask `over` count."""
    count = over.long().cumsum(1)
    last = (count * (lit & over)).cummax(1).values
    return ((count - last) * over).amax(1).float()


def entropy(
    rows: Float[torch.Tensor, "*rows tokens"], room: Float[torch.Tensor, "*rows tokens"] | None = None
) -> Float[torch.Tensor, "*rows"]:
    """Return the entropy of each row in nats. If `room` is given, it is used as a buffer."""
    logs = torch.clamp(rows, min=torch.finfo(rows.dtype).tiny, out=room).log_()
    return -logs.mul_(rows).sum(-1)


def quarter_sizes(texts: Bool[torch.Tensor, "maps 2 tokens"]) -> Float[torch.Tensor, "maps 2 2"]:
    """Return the number of cells in each quarter of a map (attention within and between the first and second texts)."""
    sizes = texts.sum(2).float()
    return sizes[:, :, None] * sizes[:, None, :]


def both_texts(stack: MapStack) -> Bool[torch.Tensor, "maps 2 tokens"]:
    """Return masks of the inside tokens of the first and the second text."""
    within = inside(stack)
    first = within & (torch.arange(within.shape[1], device=within.device) < stack.boundary[:, None])
    return torch.stack([first, within & ~first], dim=1)
