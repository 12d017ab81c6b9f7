"""Features that compare attention between the two texts with attention at the same distance within a text.

Both a smear along the diagonal and two filled squares keep attention near. They differ at the border: at equal
distance, a smear treats tokens of one text and of two texts the same, a square does not.
"""

import torch
from jaxtyping import Bool, Float

from bertsecrets.patterns.features.regions import TINY, Column, both_texts, diagonal_sums, inside
from bertsecrets.patterns.map_stack import MapStack

CLOSE = 0.2  # share of the inside tokens; up to this distance, attention distinguishes a square from a smear
FLOOR = 0.05  # share of the uniform weight; differences between weaker cells do not count


def off_diagonal_features(stack: MapStack) -> dict[str, Column]:
    """Return the log ratio of each corner to its expected mass: that of tokens of one text at the same distances.

    A corner is the rows of one text and the columns of the other. The ratio is far below 0 beside squares, and about 0
    in a smear. It is computed for whole corners and for their parts close to the squares; for each corner, and for the
    less dark of the two. All are 0 for one text.
    """
    within, texts = inside(stack), both_texts(stack)
    marks = texts.to(stack.maps.dtype)
    two = texts.any(2).all(1).float()
    size = within.sum(1).clamp(min=1).float()
    floor = FLOOR / size[:, None]
    maps = _bare(stack, within)
    own_places = _places(texts, 0, 0) + _places(texts, 1, 1)
    own = diagonal_sums(maps * (marks.transpose(1, 2) @ marks))
    expected = own / own_places.clamp(min=1) + floor
    corner = [diagonal_sums(maps * marks[:, i, :, None] * marks[:, 1 - i, None, :]) for i in (0, 1)]
    across = [(corner[i], _places(texts, i, 1 - i)) for i in (0, 1)]
    tokens = within.shape[1]
    steps = torch.arange(tokens - 1, -tokens, -1, device=within.device).abs()
    has_own = own_places > 0
    features: dict[str, Column] = {}
    for part, counted in (("", has_own), ("_close", has_own & (steps <= CLOSE * size[:, None]))):
        dark = [
            (((mass + floor * places) * counted).sum(1) + TINY).log()
            - ((expected * places * counted).sum(1) + TINY).log()
            for mass, places in across
        ]
        features |= {f"corner{i}{part}": ratio * two for i, ratio in enumerate(dark)}
        features[f"corners{part}"] = torch.maximum(*dark) * two
    return features


def _bare(stack: MapStack, within: Bool[torch.Tensor, "maps tokens"]) -> Float[torch.Tensor, "maps tokens tokens"]:
    """Return the maps restricted to inside tokens, with rows rescaled to sum to 1."""
    maps = stack.maps * within[:, None, :] * within[:, :, None]
    return maps / maps.sum(2, keepdim=True).clamp(min=TINY)


def _places(texts: Bool[torch.Tensor, "maps 2 tokens"], rows: int, columns: int) -> Float[torch.Tensor, "maps offsets"]:
    """Return the number of cells that each diagonal has in the rows of one text and the columns of another.

    Diagonals are in the order of `diagonal_sums`.
    """
    tokens = texts.shape[2]
    offsets = torch.arange(tokens - 1, -tokens, -1, device=texts.device)
    start = texts.int().argmax(2)
    end = start + texts.sum(2)
    low = torch.maximum(start[:, rows, None] + offsets, start[:, columns, None])
    high = torch.minimum(end[:, rows, None] + offsets, end[:, columns, None])
    return (high - low).clamp(min=0).float()
