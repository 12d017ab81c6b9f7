"""The published figures that were read off their pixels, and how like them a measured map is."""

import json
from functools import cache

import numpy as np
from jaxtyping import Float
from scipy import stats

from bertsecrets.claims.estimand import Number, Reading, column_means
from bertsecrets.settings import project_path


@cache
def published_figures() -> dict:
    """By figure and task; arrays are [layer, head], counted from 0."""
    return json.loads((project_path("expected") / "figures.json").read_text(encoding="utf-8"))


def correlation(means: Float[np.ndarray, "... k"], figure: Float[np.ndarray, " k"], ranks: bool = False) -> Number:
    """Pearson's correlation of each row with a figure, or Spearman's (`ranks`)."""
    if ranks:
        means, figure = stats.rankdata(means, axis=-1), stats.rankdata(figure)
    off, centred = means - means.mean(-1, keepdims=True), figure - figure.mean()
    spread = np.linalg.norm(off, axis=-1) * np.linalg.norm(centred)
    return np.divide(off @ centred, spread, out=np.full(np.shape(spread), np.nan), where=spread > 0)


def likeness(block: Float[np.ndarray, "examples k"], figure: Float[np.ndarray, " k"], ranks: bool = False) -> Reading:
    """The correlation of a block's means with a figure; the other kind of correlation stands in the notes."""
    other = float(correlation(column_means(block, np.ones((1, len(block))))[0], figure, not ranks))
    note = f"{'Pearson' if ranks else 'Spearman'} correlation {other:.3f}"
    return Reading.of(block, lambda mean: correlation(mean, figure, ranks), note)
