"""Features that compare attention between the two texts with attention at the same distance within a text.

Both a smear along the diagonal and two filled squares keep attention near. They differ at the border: at equal
distance, a smear treats tokens of one text and of two texts the same, a square does not.
"""

import torch

from bertsecrets.patterns.features.regions import TINY, Column
from bertsecrets.patterns.features.view import View

CLOSE = 0.2  # share of the inside tokens; up to this distance, attention distinguishes a square from a smear
FLOOR = 0.05  # share of the uniform weight; differences between weaker cells do not count


def off_diagonal_features(view: View) -> dict[str, Column]:
    """Return the log ratio of each corner to its expected mass: that of tokens of one text at the same distances.

    A corner is the rows of one text and the columns of the other. The ratio is far below 0 beside squares, and about 0
    in a smear. It is computed for whole corners and for their parts close to the squares; for each corner, and for the
    less dark of the two. All are 0 for one text.
    """
    size = view.words.clamp(min=1).float()
    floor = FLOOR / size[:, None]
    places, two = view.diagonal_places, view.two.float()
    sums = view.read.sums
    own, own_places = sums[:, 0, 0] + sums[:, 1, 1], places[:, 0, 0] + places[:, 1, 1]
    expected = own / own_places.clamp(min=1) + floor
    across = [(sums[:, i, 1 - i], places[:, i, 1 - i]) for i in (0, 1)]
    has_own = own_places > 0
    features: dict[str, Column] = {}
    for part, counted in (("", has_own), ("_close", has_own & (view.steps.abs() <= CLOSE * size[:, None]))):
        dark = [
            (((mass + floor * cells) * counted).sum(1) + TINY).log()
            - ((expected * cells * counted).sum(1) + TINY).log()
            for mass, cells in across
        ]
        features |= {f"corner{i}{part}": ratio * two for i, ratio in enumerate(dark)}
        features[f"corners{part}"] = torch.maximum(*dark) * two
    return features
