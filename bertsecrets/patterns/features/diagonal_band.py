"""Features that detect a diagonal band: a line, or a smear with a ridge, so that attention moves along with the rows.

Brightness is that of pictures (`picture.stack_brightness`); only inside tokens count. Distances are shares of the row's
own text, as an eye sees them: a smear that is narrow in a long text fills a short one.
"""

import torch
from jaxtyping import Bool, Float

from bertsecrets.patterns.features.regions import TINY, Column, band, both_texts, inside, longest_gap, mean
from bertsecrets.patterns.map_stack import MapStack

SHORT = 5  # words; texts up to this length show no slope
FAINT = 1e-4  # share of a row; a row that gives its text less does not attend to it
LIT = 0.45  # a row with a cell this bright near the diagonal does not interrupt a line


def band_features(stack: MapStack, light: Float[torch.Tensor, "maps tokens tokens"]) -> dict[str, Column]:
    """Return the features: how steadily and how brightly rows attend to their own surroundings."""
    within = inside(stack)
    light = light * within[:, None, :]
    tokens = light.shape[1]
    places = torch.arange(tokens, device=light.device)
    distance = (places[None, :] - places[:, None]).abs().float()
    size = _own_size(stack, within)
    marks = within.float()
    mass = torch.einsum("ni,nij,nj->n", marks, stack.maps, marks)
    moved = torch.einsum("ni,nij,nj->n", marks, stack.maps * distance, marks)
    features = {
        "distance": moved / mass.clamp(min=TINY) / stack.lengths,
        **_slopes(stack, light.square().square(), "light"),
        **_slopes(stack, stack.maps, "mass"),
    }
    brightest, part = light.amax(2), MapStack(light, stack.lengths, stack.boundary)
    off = (light.argmax(2) - places).abs() / size
    off = torch.where(brightest > 0, off, torch.inf)  # a row that gives nothing to words has no peak
    features["peak_near"], features["peak_close"] = (mean((off <= share).float(), within) for share in (0.25, 0.125))
    for width in (1, 3):
        near = torch.stack([band(part, offset) for offset in range(-width, width + 1)]).amax(0)
        features[f"ridge{width}_top"] = mean(((near >= brightest) & (brightest > 0)).float(), within)
        features[f"ridge{width}_lit"] = mean((near > 0.35).float(), within)
    close = (distance <= (size / 8).clamp(min=1.5)[:, :, None]).float()
    near = (light * close).amax(2)
    features["near_lit"] = mean((near > 0.4).float(), within)
    features["gap"] = longest_gap(near > LIT, within) / within.sum(1).clamp(min=1)
    even = _along(light) * within[:, None, :]
    smear, rest = (even * close).amax(2), (even * (1 - close)).amax(2)
    features["smear_light"], features["smear_over"] = mean(smear, within), mean(smear - rest, within)
    features["smear_top"] = mean((smear > rest).float(), within)
    for level in (0.3, 0.4):
        features[f"smear_lit{level:.0%}"] = mean((smear > level).float(), within)
    return features


def _own_size(stack: MapStack, within: Bool[torch.Tensor, "maps tokens"]) -> Float[torch.Tensor, "maps tokens"]:
    """Return the number of words in each token's own text; all words for one text, and for special tokens."""
    texts = both_texts(stack)
    sizes = texts.sum(2)
    whole = within.sum(1, keepdim=True)
    own = torch.where(texts[:, 0], sizes[:, :1], torch.where(texts[:, 1], sizes[:, 1:], whole))
    return torch.where(texts.any(2).all(1)[:, None], own, whole).clamp(min=1).float()


def _along(light: Float[torch.Tensor, "maps tokens tokens"]) -> Float[torch.Tensor, "maps tokens tokens"]:
    """Return the brightness averaged over five cells along the diagonal direction, which evens out chequers."""
    total = light.clone()
    for step in (1, 2):
        total[:, :-step, :-step] += light[:, step:, step:]
        total[:, step:, step:] += light[:, :-step, :-step]
    return total / 5


def _slopes(stack: MapStack, weights: Float[torch.Tensor, "maps tokens tokens"], name: str) -> dict[str, Column]:
    """Return how far the centre of attention moves per row, and how closely the centres follow a straight line.

    Both are 1 on a diagonal, and 0 if all rows of a text attend to the same places. Two texts are computed separately
    and weighted by length; texts of up to five words do not count. Rows that give their text almost nothing have no
    centre.
    """
    texts = both_texts(stack)
    two = texts.any(2).all(1)
    own = torch.cat([texts, inside(stack)[:, None]], dim=1)
    places = torch.arange(weights.shape[1], device=weights.device).float()
    marks = own.to(weights.dtype)
    # For each row: what it gives to each text and to all inside tokens, and the centre of that.
    given = weights @ marks.transpose(1, 2)
    centres = (weights @ (marks * places).transpose(1, 2)) / given.clamp(min=1e-9)
    parts = [_slope(centres[:, :, i], own[:, i] & (given[:, :, i] > FAINT)) for i in range(3)]
    sizes = texts.sum(2).float()
    share = sizes * (sizes > SHORT)
    share = share / share.sum(1, keepdim=True).clamp(min=1)
    features = {}
    for k, kind in enumerate(("slope", "follow")):
        both = parts[0][k] * share[:, 0] + parts[1][k] * share[:, 1]
        features[f"{kind}_{name}"] = torch.where(two, both, parts[2][k])
    return features


def _slope(centre: Float[torch.Tensor, "maps tokens"], own: Bool[torch.Tensor, "maps tokens"]) -> tuple[Column, Column]:
    """Return the slope and correlation of the rows' centres against the rows, among the tokens marked `own`."""
    places = torch.arange(centre.shape[1], device=centre.device).float()
    rows = (places - mean(places.expand_as(centre), own)[:, None]) * own
    moved = (centre - mean(centre, own)[:, None]) * own
    product, spread = (rows * moved).sum(1), rows.square().sum(1)
    follow = product / (spread * moved.square().sum(1)).clamp(min=1e-9).sqrt()
    return product / spread.clamp(min=TINY), follow
