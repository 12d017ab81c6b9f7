"""How weights depend on the distance between tokens, and on the border between texts once distance is accounted for.

A smear along the diagonal and two filled squares both keep attention near; they differ in what happens at the border:
at one and the same distance, a smear does not care whether a pair of tokens is in one text, a square does.
"""

from itertools import pairwise

import torch
from jaxtyping import Bool, Float

from bertsecrets.patterns.stack import MapStack
from bertsecrets.patterns.stripes import TINY, Column, both_texts, diagonal_sums, inside, shaded

EDGES = (0.0, 0.04, 0.08, 0.15, 0.3, 0.5, 1.01)  # of distance bins, as shares of the inside tokens
STEPS = (0, 1, 2, 3, 5, 9)  # of distance bins, in tokens
CLOSE = 0.2  # of the inside tokens: how far from the border's corner points attention still tells a square from a smear


def bare(stack: MapStack) -> Float[torch.Tensor, "maps tokens tokens"]:
    """The maps among inside tokens alone, rows made to sum to 1 again."""
    within = inside(stack)
    maps = stack.maps * within[:, None, :] * within[:, :, None]
    return maps / maps.sum(2, keepdim=True).clamp(min=TINY)


def distance(stack: MapStack) -> dict[str, Column]:
    """Profiles over distance, of the bare map and of the picture; the border's part in them; how squares are filled."""
    within = inside(stack)
    tokens = within.shape[1]
    size = within.sum(1).clamp(min=1).float()
    texts = both_texts(stack)
    two = texts.any(2).all(1).float()
    pair = (within[:, :, None] & within[:, None, :]).float()
    squares = [texts[:, i, :, None] & texts[:, i, None, :] for i in (0, 1)]
    same = (squares[0] | squares[1]).float()
    offsets = torch.arange(tokens - 1, -tokens, -1, device=within.device)
    steps = offsets.abs()
    places, own_places = diagonal_sums(pair), diagonal_sums(same)
    other_places = places - own_places
    found: dict[str, Column] = {}
    plain = bare(stack)
    columns = plain.sum(1, keepdim=True) / size[:, None, None] * pair
    expected = diagonal_sums(columns)
    for name, maps, floor in (("", plain, 0.05 / size), ("_light", shaded(stack) * pair, torch.full_like(size, 0.03))):
        weights = diagonal_sums(maps)
        ground = weights.sum(1) / places.sum(1).clamp(min=1) + floor
        relative = steps / size[:, None]
        bins = {f"near{i}": (relative >= a) & (relative < b) for i, (a, b) in enumerate(pairwise(EDGES))}
        bins |= {f"step{s}": (steps == s).expand_as(relative) for s in STEPS}
        for part, here in bins.items():
            density = (weights * here).sum(1) / (places * here).sum(1).clamp(min=1)
            there = ((places * here).sum(1) > 0).float()
            found[f"{part}{name}"] = ((density + floor) / ground).log() * there
        own = diagonal_sums(maps * same)
        other = weights - own
        both = torch.minimum(own_places, other_places) * (steps >= 1)
        inner = own / own_places.clamp(min=1) + floor[:, None]
        outer = other.clamp(min=0) / other_places.clamp(min=1) + floor[:, None]
        gap = (inner.log() - outer.log()) * both
        found[f"border{name}"] = gap.sum(1) / both.sum(1).clamp(min=1) * two
        found |= {f"{part}{name}": each * two for part, each in _corners(maps, texts, inner, own_places, floor).items()}
        for i, side in enumerate(("first", "second")):
            square = squares[i].float()
            reach = texts[:, i].sum(1).clamp(min=1)[:, None]
            within_square, room = diagonal_sums(maps * square), diagonal_sums(square)
            far, near = steps > 0.4 * reach, (steps <= 0.2 * reach)
            dense = [(within_square * part).sum(1) / (room * part).sum(1).clamp(min=1) + floor for part in (far, near)]
            found[f"fill_{side}{name}"] = (dense[0].log() - dense[1].log()) * (reach[:, 0] > 3)
    lower = (diagonal_sums(plain) * (offsets < 0)).sum(1)
    upper = (diagonal_sums(plain) * (offsets > 0)).sum(1)
    found["backward"] = (lower - upper) / size
    for limit in (1, 2, 4):
        mass = (diagonal_sums(plain) * (steps <= limit)).sum(1)
        found[f"lift{limit}"] = ((mass + TINY) / ((expected * (steps <= limit)).sum(1) + TINY)).log()
    received = stack.maps.sum(1) / stack.lengths[:, None]
    for height in (0.05, 0.1, 0.2):
        found[f"bars{height}"] = (received > height).sum(1).float().log1p()
    return found


def _corners(
    maps: Float[torch.Tensor, "maps tokens tokens"],
    texts: Bool[torch.Tensor, "maps 2 tokens"],
    inner: Float[torch.Tensor, "maps offsets"],
    own_places: Float[torch.Tensor, "maps offsets"],
    floor: Column,
) -> dict[str, Column]:
    """Each corner against what it would get if its tokens attended as those of one text do at the same distance.

    Corners are the rows of one text and the columns of the other: far below 0 beside squares, about 0 in a smear. Of
    the whole corner and of what is close to the squares; each corner, and the one that is less dark.

    Args:
        inner: density of each diagonal within texts; `own_places` is how many places it has there.
    """
    tokens = maps.shape[-1]
    steps = torch.arange(tokens - 1, -tokens, -1, device=maps.device).abs()
    close = steps <= CLOSE * texts.sum((1, 2)).clamp(min=1)[:, None]
    found: dict[str, Column] = {}
    for part, here in (("", own_places > 0), ("_close", (own_places > 0) & close)):
        dark = []
        for i in (0, 1):
            corner = (texts[:, i, :, None] & texts[:, 1 - i, None, :]).float()
            room = diagonal_sums(corner) * here
            there = (diagonal_sums(maps * corner) * here + floor[:, None] * room).sum(1)
            dark.append((there + TINY).log() - ((inner * room).sum(1) + TINY).log())
        found |= {f"corner{i}{part}": each for i, each in enumerate(dark)}
        found[f"corners{part}"] = torch.maximum(*dark)
    return found
