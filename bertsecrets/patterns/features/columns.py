"""Stripes in maps: columns, diagonals and squares, by mass, and as an eye sees them on a picture.

Each function takes padded maps and gives named numbers that depend neither on the padding nor, much, on the length.
"""

import torch
from jaxtyping import Bool, Float, Int

from bertsecrets.patterns.annotation.colours import GAMMA, TOP
from bertsecrets.patterns.map_stack import MapStack

TINY = 1e-6
Column = Float[torch.Tensor, " maps"]


def inside(stack: MapStack) -> Bool[torch.Tensor, "maps tokens"]:
    """True on real tokens that are not special."""
    return stack.real.scatter(1, stack.special(), False)


def mean(values: Float[torch.Tensor, "maps tokens"], over: Bool[torch.Tensor, "maps tokens"]) -> Column:
    """The mean of the values over the places marked; 0 where there are none."""
    return (values * over).sum(1) / over.sum(1).clamp(min=1)


def quantile(
    values: Float[torch.Tensor, "maps tokens"], over: Bool[torch.Tensor, "maps tokens"], share: float
) -> Column:
    """The quantile of the values at the places marked, between neighbours in proportion; 0 where there are none."""
    order = values.masked_fill(~over, torch.inf).sort(dim=1).values
    last = (over.sum(1) - 1).clamp(min=0)
    place = share * last
    low = place.long()
    ends = order.gather(1, torch.stack([low, torch.minimum(low + 1, last)], dim=1))
    found = torch.lerp(ends[:, 0], ends[:, 1], place - low)
    return torch.where(over.any(1), found, 0.0)


def longest_gap(lit: Bool[torch.Tensor, "maps tokens"], over: Bool[torch.Tensor, "maps tokens"]) -> Column:
    """The longest run, among the places marked, of those that are not lit."""
    count = over.long().cumsum(1)
    last = (count * (lit & over)).cummax(1).values
    return ((count - last) * over).amax(1).float()


def band(stack: MapStack, offset: int) -> Float[torch.Tensor, "maps rows"]:
    """What each row i gives to token i + offset; 0 where there is none."""
    tokens = stack.maps.shape[-1]
    found = stack.maps.new_zeros(len(stack), tokens)
    if abs(offset) < tokens:
        found[:, max(0, -offset) : tokens - max(0, offset)] = stack.maps.diagonal(offset, 1, 2)
    return found


def quarter_sizes(texts: Bool[torch.Tensor, "maps 2 tokens"]) -> Float[torch.Tensor, "maps 2 2"]:
    """How many places each quarter has."""
    sizes = texts.sum(2).float()
    return sizes[:, :, None] * sizes[:, None, :]


def both_texts(stack: MapStack) -> Bool[torch.Tensor, "maps 2 tokens"]:
    """True on the inside tokens of the first text, and on those of the second."""
    within = inside(stack)
    first = within & (torch.arange(within.shape[1], device=within.device) < stack.boundary[:, None])
    return torch.stack([first, within & ~first], dim=1)


def quarters(
    maps: Float[torch.Tensor, "maps tokens tokens"], texts: Bool[torch.Tensor, "maps 2 tokens"]
) -> Float[torch.Tensor, "maps 2 2"]:
    """Sums over the rows of one text and the columns of the other: squares on the diagonal, corners off it."""
    marks = texts.to(maps.dtype)
    return marks @ maps @ marks.transpose(1, 2)


def diagonal_sums(maps: Float[torch.Tensor, "maps tokens tokens"]) -> Float[torch.Tensor, "maps offsets"]:
    """The sum of every diagonal, from column - row = tokens - 1 down to -(tokens - 1)."""
    count, tokens, _ = maps.shape
    sheared = torch.nn.functional.pad(maps.flip(2), (0, tokens)).flatten(1)[:, :-tokens]
    return sheared.reshape(count, tokens, 2 * tokens - 1).sum(1)


def reach(stack: MapStack, offset: int) -> Bool[torch.Tensor, "maps tokens"]:
    """True on the rows i for which token i + offset exists."""
    places = torch.arange(stack.maps.shape[-1], device=stack.maps.device) + offset
    return (places >= 0) & (places < stack.lengths[:, None])


def shaded(stack: MapStack) -> Float[torch.Tensor, "maps tokens tokens"]:
    """The maps' brightness from 0 to 1 as pictures show it (`shades.shades`): a square root, up to the strong cells."""
    peaks = stack.maps.amax(2).masked_fill(~stack.real, 2.0).sort(dim=1).values
    place = TOP * (stack.lengths - 1).float()
    low = place.floor().long()
    high = torch.minimum(low + 1, stack.lengths - 1)
    edges = peaks.gather(1, torch.stack([low, high], dim=1))
    top = torch.lerp(edges[:, 0], edges[:, 1], place - low)
    return (stack.maps / top.clamp(min=TINY)[:, None, None]).clamp(max=1) ** GAMMA


def seen(stack: MapStack, light: Float[torch.Tensor, "maps tokens tokens"]) -> dict[str, Column]:
    """What a picture shows: how bright and how unbroken the columns and diagonals are, and the squares and the rest."""
    within, real = inside(stack), stack.real
    marks = within.float()
    haze = torch.einsum("ni,nij,nj->n", marks, light, marks) / within.sum(1).clamp(min=1).square()
    height = (light * real[:, :, None]).sum(1) / stack.lengths[:, None]
    found = {"haze": haze}
    brightest = torch.nn.functional.pad(height, (0, 6)).topk(6, dim=1).values
    for name, one, other in (("12", 0, 1), ("16", 0, 5), ("26", 1, 5)):
        found[f"column_gap{name}"] = brightest[:, one] - brightest[:, other]
    found["column1_light"], found["column6_light"] = brightest[:, 0], brightest[:, 5]
    found["column_over_haze"] = brightest[:, 0] - haze
    found["column_darker_rows"] = _low(light, height.argmax(1), stack.lengths)
    unbroken = ((light > 0.5).float() * real[:, :, None]).sum(1) / stack.lengths[:, None]
    found["column_unbroken"] = unbroken.amax(1)
    found["columns_half"] = ((unbroken > 0.4).sum(1) / stack.lengths).float()
    found["columns_explain"] = _explained(light, height, within)
    part = MapStack(light, stack.lengths, stack.boundary)
    lines, whole = [], []
    for offset in (-2, -1, 0, 1, 2):
        line = band(part, offset)
        rows = within & reach(stack, offset)
        beside = (band(part, offset - 3) + band(part, offset + 3)) / (
            reach(stack, offset - 3).float() + reach(stack, offset + 3).float()
        ).clamp(min=1)
        lines.append(mean(line, rows))
        whole.append(mean(((line > 0.4) & (line > 1.3 * beside)).float(), rows))
        if not offset:
            found["self_line_over"], found["self_line_unbroken"] = mean(line - beside, rows), whole[-1]
    found["line_light"], found["line_unbroken"] = torch.stack(lines).amax(0), torch.stack(whole).amax(0)
    found["column_minus_line"] = found["column1_light"] - found["line_light"]
    texts = both_texts(stack)
    lights = quarters(light, texts) / quarter_sizes(texts).clamp(min=1)
    squares, corners = lights[:, (0, 1), (0, 1)], lights[:, (0, 1), (1, 0)]
    two = texts.any(2).all(1).float()
    found["square_light"], found["corner_light"] = squares.amin(1) * two, corners.amax(1) * two
    found["square_over_corner"] = (squares.amin(1) - corners.amax(1)) * two
    found["squares_over_corners"] = (squares - corners).sum(1) * two
    return found


def _low(
    light: Float[torch.Tensor, "maps tokens tokens"],
    column: Int[torch.Tensor, " maps"],
    lengths: Int[torch.Tensor, " maps"],
) -> Column:
    """How bright a column is in the darker of its rows: a fifth of them is darker."""
    beyond = torch.arange(light.shape[1], device=light.device) >= lengths[:, None]
    rows = light.gather(2, column[:, None, None].expand(-1, light.shape[1], 1))[:, :, 0]
    order = rows.masked_fill(beyond, 2.0).sort(dim=1).values
    return order.gather(1, (0.2 * (lengths - 1)).long()[:, None])[:, 0]


def _explained(
    light: Float[torch.Tensor, "maps tokens tokens"],
    height: Float[torch.Tensor, "maps tokens"],
    within: Bool[torch.Tensor, "maps tokens"],
) -> Column:
    """How far columns explain brightness among inside tokens: 1 where all rows are alike.

    A column's level is its mean over all rows, the special tokens' too.
    """
    size = within.sum(1).clamp(min=1).float()
    both = (within[:, :, None] & within[:, None, :]).float()
    rest = ((light - height[:, None, :]).square() * both).sum((1, 2)) / size.square()
    level = (height * within).sum(1) / size
    between = mean((height - level[:, None]).square(), within)
    return between / (between + rest + TINY)
