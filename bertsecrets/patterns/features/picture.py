"""Features of a map as an eye sees it in a picture: how bright and unbroken its columns, lines and squares are."""

import torch
from jaxtyping import Bool, Float, Int

from bertsecrets.patterns.brightness import GAMMA, TOP
from bertsecrets.patterns.features.regions import (
    TINY,
    Column,
    band,
    both_texts,
    inside,
    mean,
    quarter_sizes,
    quarters,
    reach,
)
from bertsecrets.patterns.map_stack import MapStack


def stack_brightness(stack: MapStack) -> Float[torch.Tensor, "maps tokens tokens"]:
    """Return every cell's brightness from 0 to 1, as `brightness.cell_brightness` does for one map."""
    peaks = stack.maps.amax(2).masked_fill(~stack.real, 2.0).sort(dim=1).values
    place = TOP * (stack.lengths - 1).float()
    low = place.floor().long()
    high = torch.minimum(low + 1, stack.lengths - 1)
    edges = peaks.gather(1, torch.stack([low, high], dim=1))
    top = torch.lerp(edges[:, 0], edges[:, 1], place - low)
    return (stack.maps / top.clamp(min=TINY)[:, None, None]).clamp(max=1) ** GAMMA


def picture_features(stack: MapStack, light: Float[torch.Tensor, "maps tokens tokens"]) -> dict[str, Column]:
    """Return the features: how bright and unbroken columns and diagonals are, and how bright squares are."""
    within, real = inside(stack), stack.real
    marks = within.float()
    haze = torch.einsum("ni,nij,nj->n", marks, light, marks) / within.sum(1).clamp(min=1).square()
    height = (light * real[:, :, None]).sum(1) / stack.lengths[:, None]
    features = {"haze": haze}
    brightest = torch.nn.functional.pad(height, (0, 6)).topk(6, dim=1).values
    for name, upper, lower in (("12", 0, 1), ("16", 0, 5), ("26", 1, 5)):
        features[f"column_gap{name}"] = brightest[:, upper] - brightest[:, lower]
    features["column1_light"], features["column6_light"] = brightest[:, 0], brightest[:, 5]
    features["column_over_haze"] = brightest[:, 0] - haze
    features["column_darker_rows"] = _low(light, height.argmax(1), stack.lengths)
    unbroken = ((light > 0.5).float() * real[:, :, None]).sum(1) / stack.lengths[:, None]
    features["column_unbroken"] = unbroken.amax(1)
    features["columns_half"] = ((unbroken > 0.4).sum(1) / stack.lengths).float()
    features["columns_explain"] = _explained(light, height, within)
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
            features["self_line_over"], features["self_line_unbroken"] = mean(line - beside, rows), whole[-1]
    features["line_light"], features["line_unbroken"] = torch.stack(lines).amax(0), torch.stack(whole).amax(0)
    features["column_minus_line"] = features["column1_light"] - features["line_light"]
    texts = both_texts(stack)
    lights = quarters(light, texts) / quarter_sizes(texts).clamp(min=1)
    squares, corners = lights[:, (0, 1), (0, 1)], lights[:, (0, 1), (1, 0)]
    two = texts.any(2).all(1).float()
    features["square_light"], features["corner_light"] = squares.amin(1) * two, corners.amax(1) * two
    features["square_over_corner"] = (squares.amin(1) - corners.amax(1)) * two
    features["squares_over_corners"] = (squares - corners).sum(1) * two
    return features


def _low(
    light: Float[torch.Tensor, "maps tokens tokens"],
    column: Int[torch.Tensor, " maps"],
    lengths: Int[torch.Tensor, " maps"],
) -> Column:
    """Return a column's brightness in its darker rows: the 20 % quantile over rows."""
    beyond = torch.arange(light.shape[1], device=light.device) >= lengths[:, None]
    rows = light.gather(2, column[:, None, None].expand(-1, light.shape[1], 1))[:, :, 0]
    order = rows.masked_fill(beyond, 2.0).sort(dim=1).values
    return order.gather(1, (0.2 * (lengths - 1)).long()[:, None])[:, 0]


def _explained(
    light: Float[torch.Tensor, "maps tokens tokens"],
    height: Float[torch.Tensor, "maps tokens"],
    within: Bool[torch.Tensor, "maps tokens"],
) -> Column:
    """Return the share of brightness among inside tokens that columns explain: 1 if all rows are equal.

    A column's level is its mean over all rows, including those of special tokens.
    """
    size = within.sum(1).clamp(min=1).float()
    both = (within[:, :, None] & within[:, None, :]).float()
    rest = ((light - height[:, None, :]).square() * both).sum((1, 2)) / size.square()
    level = (height * within).sum(1) / size
    between = mean((height - level[:, None]).square(), within)
    return between / (between + rest + TINY)
