"""Features that detect two lit squares along the diagonal with dark corners beside them, as an eye sees them.

Here brightness counts (`readings.stack_brightness`); `off_diagonal` does the same for masses. All are 0 for one text.
"""

import torch

from bertsecrets.patterns.features.regions import Column, mean, quarter_sizes
from bertsecrets.patterns.features.view import View


def block_features(view: View) -> dict[str, Column]:
    """Return the features: how full squares and corners are, how far the squares reach, how sharp the border is."""
    read, texts, sizes = view.read, view.texts, view.sizes
    places = quarter_sizes(texts).clamp(min=1)
    lit = read.lit / places
    square, corner = lit[:, (0, 1), (0, 1)], lit[:, (0, 1), (1, 0)].amax(1)
    larger = square.gather(1, sizes.argmax(1, keepdim=True))[:, 0]
    features = {"square_lit": square.amin(1), "corner_lit": corner, "larger_square_over": larger - corner}
    # The brightness of each column in the rows of either text; the part common to both runs through, outside any
    # square.
    seen = read.light_received[:, 1:] / sizes.clamp(min=1)[:, :, None]
    features["square_rest"] = (read.beyond_columns / places)[:, (0, 1), (0, 1)].amin(1)
    for i in (0, 1):
        features[f"own_columns{i}"] = mean(seen[:, i] - seen[:, 1 - i], texts[:, i])
    features |= _reach(view) | {"border_step": _step(view)}
    return {name: value * view.two for name, value in features.items()}


def _reach(view: View) -> dict[str, Column]:
    """Return the brightness of the squares far from the diagonal, compared with the corners and with what is near."""
    texts, steps = view.texts.float(), view.steps.abs()
    mass, sizes = view.read.light_received[:, 1:] @ texts.transpose(1, 2), quarter_sizes(view.texts)
    dark = mass[:, (0, 1), (1, 0)].sum(1) / sizes[:, (0, 1), (1, 0)].sum(1).clamp(min=1)
    sums = view.read.light_sums[:, (0, 1), (0, 1)]
    cells, size = view.diagonal_places[:, (0, 1), (0, 1)], view.sizes[:, :, None]
    # A token is not its own neighbour.
    parts = [(steps > 0.5 * size).float(), ((steps <= 0.25 * size) & (steps > 0)).float()]
    far, near = ((sums * part).sum((1, 2)) / (cells * part).sum((1, 2)).clamp(min=1) for part in parts)
    return {"far_light": far, "far_over_corner": far - dark, "far_over_near": far / (near + 0.05)}


def _step(view: View) -> Column:
    """Return the change of brightness at the border, in the rows of the text where it changes less."""
    levels = view.read.border / view.beside_border.sum(2).clamp(min=1)[:, :, None]
    fall = levels[:, 0] - levels[:, 1]
    return torch.minimum(mean(fall, view.texts[:, 0]), -mean(fall, view.texts[:, 1]))
