"""The correlation of measured maps with published figures, which were read off their pixels."""

import numpy as np
from jaxtyping import Float

from bertsecrets.bootstrap import column_means
from bertsecrets.claims.estimand import Estimand
from bertsecrets.published import p20_score, published_figures
from bertsecrets.texts.metrics import Number

__all__ = ["correlation", "likeness", "p20_score", "published_figures"]


def correlation(means: Float[np.ndarray, "... k"], figure: Float[np.ndarray, " k"], ranks: bool = False) -> Number:
    """Return Pearson's correlation of each row with a figure, or Spearman's (`ranks`); NaN for a constant row.

    >>> float(correlation(np.array([1.0, 2.0, 4.0]), np.array([10.0, 20.0, 40.0])).round(3))
    1.0
    """
    if ranks:
        from scipy.stats import rankdata

        means, figure = rankdata(means, axis=-1), rankdata(figure)
    off, centred = means - means.mean(-1, keepdims=True), figure - figure.mean()
    spread = np.linalg.norm(off, axis=-1) * np.linalg.norm(centred)
    return np.divide(off @ centred, spread, out=np.full(np.shape(spread), np.nan), where=spread > 0)


def likeness(block: Float[np.ndarray, "examples k"], figure: Float[np.ndarray, " k"], ranks: bool = False) -> Estimand:
    """Return the correlation of a block's means with a figure; the notes give the other kind of correlation."""
    of_other_kind = float(correlation(column_means(block)[0], figure, not ranks))
    note = f"{'Pearson' if ranks else 'Spearman'} correlation {of_other_kind:.3f}"
    return Estimand.of(block, lambda mean: correlation(mean, figure, ranks), note)
