"""Whether words of different texts attend to each other as much as their distance lets expect.

A smear along the diagonal and two filled squares both keep attention near; they differ in what happens at the border:
at one and the same distance, a smear does not care whether two tokens are of one text, a square does.
"""

import torch
from jaxtyping import Bool, Float

from bertsecrets.patterns.features.regions import TINY, Column, both_texts, diagonal_sums, inside
from bertsecrets.patterns.map_stack import MapStack

CLOSE = 0.2  # of the inside tokens: how far from the border's corner points attention still tells a square from a smear
FLOOR = 0.05  # of the uniform weight: differences between weaker places do not count


def off_diagonal_features(stack: MapStack) -> dict[str, Column]:
    """Return each corner against what it would get if its tokens attended as those of one text do at the same distance.

    Corners are the rows of one text and the columns of the other: far below 0 beside squares, about 0 in a smear. Of
    the whole corner and of what is close to the squares; each corner, and the one that is less dark. 0 for one text.
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
    held = own_places > 0
    features: dict[str, Column] = {}
    for part, here in (("", held), ("_close", held & (steps <= CLOSE * size[:, None]))):
        dark = [
            (((mass + floor * places) * here).sum(1) + TINY).log() - ((expected * places * here).sum(1) + TINY).log()
            for mass, places in across
        ]
        features |= {f"corner{i}{part}": each * two for i, each in enumerate(dark)}
        features[f"corners{part}"] = torch.maximum(*dark) * two
    return features


def _bare(stack: MapStack, within: Bool[torch.Tensor, "maps tokens"]) -> Float[torch.Tensor, "maps tokens tokens"]:
    """Return the maps among inside tokens alone, rows made to sum to 1 again."""
    maps = stack.maps * within[:, None, :] * within[:, :, None]
    return maps / maps.sum(2, keepdim=True).clamp(min=TINY)


def _places(texts: Bool[torch.Tensor, "maps 2 tokens"], rows: int, columns: int) -> Float[torch.Tensor, "maps offsets"]:
    """Return how many places each diagonal has among the rows of one text and the columns of another.

    Diagonals in the order of `diagonal_sums`; counted from where the texts begin and end.
    """
    tokens = texts.shape[2]
    offsets = torch.arange(tokens - 1, -tokens, -1, device=texts.device)
    start = texts.int().argmax(2)
    end = start + texts.sum(2)
    low = torch.maximum(start[:, rows, None] + offsets, start[:, columns, None])
    high = torch.minimum(end[:, rows, None] + offsets, end[:, columns, None])
    return (high - low).clamp(min=0).float()
