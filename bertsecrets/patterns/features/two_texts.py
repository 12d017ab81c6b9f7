"""Features that describe the squares and corners of a map, for inputs with two texts.

A square contains the attention within one of the texts, and lies on the diagonal. The two corners contain the attention
between the texts. If each text attends mainly to itself, the squares are bright and the corners are dark.

Squares and smears along the diagonal both concentrate attention near the diagonal, but differ at the border between the
texts. Smears depend only on the distance between two tokens. Squares depend on whether two tokens belong to the same
text. `block_features` compares brightness (`reductions.stack_brightness`), and `off_diagonal_features` compares mass.
All features are 0 for inputs with one text.
"""

import torch

from bertsecrets.patterns.features.reductions import View
from bertsecrets.patterns.features.regions import EPSILON, Column, mean, quarter_sizes

CLOSE_SHARE = 0.2  # maximum distance for telling squares from smears, as a fraction of the number of inside tokens
DIFFERENCE_FLOOR = 0.05  # fraction of the uniform weight; smaller differences are ignored


def off_diagonal_features(view: View) -> dict[str, Column]:
    """Return features that compare the mass of each corner with the mass within the texts.

    A corner consists of the rows of one text and the columns of the other. Its mass is divided by the mass expected
    from the cells within the texts that are at the same distance from the diagonal. The features are the logarithms of
    this ratio for both corners, and the larger logarithm. They are strongly negative for squares, and near 0 for
    smears. Each feature is computed twice: for the whole corner, and for its cells close to the diagonal.
    """
    size = view.words.clamp(min=1).float()
    floor = DIFFERENCE_FLOOR / size[:, None]
    places, two = view.diagonal_places, view.two.float()
    sums = view.read.sums
    own, own_places = sums[:, 0, 0] + sums[:, 1, 1], places[:, 0, 0] + places[:, 1, 1]
    expected = own / own_places.clamp(min=1) + floor
    across = [(sums[:, i, 1 - i], places[:, i, 1 - i]) for i in (0, 1)]
    has_own = own_places > 0
    features: dict[str, Column] = {}
    for part, counted in (("", has_own), ("_close", has_own & (view.steps.abs() <= CLOSE_SHARE * size[:, None]))):
        dark = [
            (((mass + floor * cells) * counted).sum(1) + EPSILON).log()
            - ((expected * cells * counted).sum(1) + EPSILON).log()
            for mass, cells in across
        ]
        features |= {f"corner{i}{part}": ratio * two for i, ratio in enumerate(dark)}
        features[f"corners{part}"] = torch.maximum(*dark) * two
    return features


def block_features(view: View) -> dict[str, Column]:
    """Return the brightness of squares and corners, the extent of the squares, and the sharpness of the border."""
    read, texts, sizes = view.read, view.texts, view.sizes
    places = quarter_sizes(texts).clamp(min=1)
    lit = read.lit / places
    square, corner = lit[:, (0, 1), (0, 1)], lit[:, (0, 1), (1, 0)].amax(1)
    larger = square.gather(1, sizes.argmax(1, keepdim=True))[:, 0]
    features = {"square_lit": square.amin(1), "corner_lit": corner, "larger_square_over": larger - corner}
    # Brightness of each column in the rows of each text. Brightness in both texts belongs to a column, not to a square.
    seen = read.light_received[:, 1:] / sizes.clamp(min=1)[:, :, None]
    features["square_rest"] = (read.beyond_columns / places)[:, (0, 1), (0, 1)].amin(1)
    for i in (0, 1):
        features[f"own_columns{i}"] = mean(seen[:, i] - seen[:, 1 - i], texts[:, i])
    features |= _reach(view) | {"border_step": _step(view)}
    return {name: value * view.two for name, value in features.items()}


def _reach(view: View) -> dict[str, Column]:
    """Return features that describe how bright the cells of the squares are far from the diagonal.

    The features are this brightness, its difference from the brightness of the corners, and its ratio to the brightness
    of cells near the diagonal.
    """
    texts, steps = view.texts.float(), view.steps.abs()
    mass, sizes = view.read.light_received[:, 1:] @ texts.transpose(1, 2), quarter_sizes(view.texts)
    dark = mass[:, (0, 1), (1, 0)].sum(1) / sizes[:, (0, 1), (1, 0)].sum(1).clamp(min=1)
    sums = view.read.light_sums[:, (0, 1), (0, 1)]
    cells, size = view.diagonal_places[:, (0, 1), (0, 1)], view.sizes[:, :, None]
    # The main diagonal does not count as near.
    parts = [(steps > 0.5 * size).float(), ((steps <= 0.25 * size) & (steps > 0)).float()]
    far, near = ((sums * part).sum((1, 2)) / (cells * part).sum((1, 2)).clamp(min=1) for part in parts)
    return {"far_light": far, "far_over_corner": far - dark, "far_over_near": far / (near + 0.05)}


def _step(view: View) -> Column:
    """Return how much a row's brightness drops at the border between its own text and the other text.

    The drop is averaged over the rows of each text, and the smaller of the two averages is returned.
    """
    levels = view.read.border / view.around_border.sum(2).clamp(min=1)[:, :, None]
    fall = levels[:, 0] - levels[:, 1]
    return torch.minimum(mean(fall, view.texts[:, 0]), -mean(fall, view.texts[:, 1]))
