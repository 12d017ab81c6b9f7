"""Features of diagonal bands. A diagonal band is either a sharp line or a broad smear with a ridge.

Brightness is defined by `reductions.stack_brightness`. Only tokens that are not special (inside tokens) count.
Distances are divided by the length of the row's text, because a smear of the same width looks narrow in a long text but
covers a short text entirely.
"""

import torch
from jaxtyping import Bool, Float

from bertsecrets.patterns.features.reductions import BAND_DIAGONALS, Row, View
from bertsecrets.patterns.features.regions import EPSILON, Column, longest_gap, mean

SLOPELESS_WORDS = 5  # words; no slope is computed for texts up to this length
FAINT_SHARE = 1e-4  # fraction of a row's attention; a row that gives a text less than this is ignored
LIT_ROW = 0.45  # brightness; a row with a brighter cell near the diagonal does not interrupt a line


def band_features(view: View) -> dict[str, Column]:
    """Return features of how consistently and how strongly tokens attend to nearby tokens."""
    read, within = view.read, view.within
    mass = (read.given[:, 1] * within).sum(1)
    features = {
        "distance": read.moved / mass.clamp(min=EPSILON) / view.lengths,
        **_slopes(view, read.light_given, "light"),
        **_slopes(view, read.given, "mass"),
    }
    brightest = read.brightest
    off = (read.brightest_place - view.places).abs() / view.own_size
    off = torch.where(brightest > 0, off, torch.inf)  # rows without attention to words have no peak
    features["peak_near"], features["peak_close"] = (mean((off <= share).float(), within) for share in (0.25, 0.125))
    bands = read.light_bands * view.near(within)
    for width in (1, 3):
        near = bands[:, BAND_DIAGONALS - width : BAND_DIAGONALS + width + 1].amax(1)
        features[f"ridge{width}_top"] = mean(((near >= brightest) & (brightest > 0)).float(), within)
        features[f"ridge{width}_lit"] = mean((near > 0.35).float(), within)
    features["near_lit"] = mean((read.near > 0.4).float(), within)
    features["gap"] = longest_gap(read.near > LIT_ROW, within) / view.words.clamp(min=1)
    smear, rest = read.smear, read.rest
    features["smear_light"], features["smear_over"] = mean(smear, within), mean(smear - rest, within)
    features["smear_top"] = mean((smear > rest).float(), within)
    for level in (0.3, 0.4):
        features[f"smear_lit{level:.0%}"] = mean((smear > level).float(), within)
    return features


def _slopes(view: View, given: Float[torch.Tensor, "maps 7 tokens"], name: str) -> dict[str, Column]:
    """Return how closely the rows' centres of attention follow the diagonal.

    The centre of a row is the mean position to which the row attends. The centres are regressed on the row index. The
    two features are the slope and the correlation. Both are 1 on a diagonal, and 0 if all rows of a text attend to the
    same positions. Both are averaged over texts of more than five words, weighted by length. Rows that barely attend to
    their text are ignored.

    Args:
        given: Attention mass from each row to each group of columns (`Weights.kinds`).
    """
    own = torch.cat([view.within[:, None], view.texts], dim=1)
    # Mass from each row to all inside tokens and to each text, and the centre of this mass.
    given, places = given[:, 1:4], given[:, 4:7]
    centres, given = places / given.clamp(min=1e-9), given > FAINT_SHARE
    whole, *parts = [_slope(centres[:, i], own[:, i] & given[:, i]) for i in range(3)]
    sizes = view.sizes.float()
    share = sizes * (sizes > SLOPELESS_WORDS)
    share = share / share.sum(1, keepdim=True).clamp(min=1)
    features = {}
    for k, kind in enumerate(("slope", "follow")):
        both = parts[0][k] * share[:, 0] + parts[1][k] * share[:, 1]
        features[f"{kind}_{name}"] = torch.where(view.two, both, whole[k])
    return features


def _slope(centre: Row, own: Bool[torch.Tensor, "maps tokens"]) -> tuple[Column, Column]:
    """Return the slope of the regression of `centre` on the row index (rows in `own`), and their correlation."""
    places = torch.arange(centre.shape[1], device=centre.device).float()
    rows = (places - mean(places.expand_as(centre), own)[:, None]) * own
    moved = (centre - mean(centre, own)[:, None]) * own
    product, spread = (rows * moved).sum(1), rows.square().sum(1)
    follow = product / (spread * moved.square().sum(1)).clamp(min=1e-9).sqrt()
    return product / spread.clamp(min=EPSILON), follow
