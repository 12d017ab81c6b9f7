"""How like measured maps are to the published figures, which were read off their pixels.

Most of a panel is the encoder's: panels of other tasks, and maps with nothing in common but their depth, correlate with
it too. So a correlation is judged against both.
"""

from collections.abc import Callable, Mapping, Sequence
from dataclasses import replace
from itertools import combinations

import numpy as np
from jaxtyping import Float

from bertsecrets.claims.bootstrap import column_means
from bertsecrets.claims.estimand import Clusters, Estimand
from bertsecrets.texts.metrics import Number
from bertsecrets.texts.published import published_figures

PERMUTATIONS, SEED = 2000, 2019
SHUFFLED = 0.95  # of maps with shuffled heads are less like the figure than the measured one must be
WITHIN_ROWS = 0.9  # of the correlation between seeds, if only heads of one row are compared


def panels(name: str, features: Sequence[str] = ()) -> dict[str, Float[np.ndarray, "rows heads"]]:
    """Return the panels of a figure by the folder of their task.

    Rows are layers, or some features (figure 7); figure 9, which has one number per layer, is a single row.
    """
    return {
        folder: np.array([panel[feature] for feature in features] if features else panel, dtype=np.float64, ndmin=2)
        for folder, panel in published_figures()[name].items()
    }


def correlations(
    means: Float[np.ndarray, "*any k"], figures: Float[np.ndarray, "figures k"], ranks: bool = False
) -> Float[np.ndarray, "*any figures"]:
    """Return Pearson's correlation of each row with each figure, or Spearman's (`ranks`); NaN for a constant row."""
    off, centred = _centred(means, ranks), _centred(figures, ranks)
    spread = np.linalg.norm(off, axis=-1)[..., None] * np.linalg.norm(centred, axis=-1)
    return np.divide(off @ centred.T, spread, out=np.full(spread.shape, np.nan), where=spread > 0)


def correlation(means: Float[np.ndarray, "*any k"], figure: Float[np.ndarray, " k"], ranks: bool = False) -> Number:
    """Return Pearson's correlation of each row with a figure, or Spearman's (`ranks`); NaN for a constant row.

    >>> float(correlation(np.array([1.0, 2.0, 4.0]), np.array([10.0, 20.0, 40.0])).round(3))
    1.0
    """
    return correlations(means, figure[None], ranks)[..., 0]


def _centred(means: Float[np.ndarray, "*any k"], ranks: bool) -> Float[np.ndarray, "*any k"]:
    if ranks:
        from scipy.stats import rankdata

        means = rankdata(means, axis=-1)
    return means - means.mean(-1, keepdims=True)


def shuffled(
    means: Float[np.ndarray, "*any k"], figure: Float[np.ndarray, "rows heads"], ranks: bool = False
) -> tuple[Float[np.ndarray, "*any"], Float[np.ndarray, "*any"]]:
    """Return mean and standard deviation of the correlation with a figure if heads are shuffled within its rows.

    Both are exact: shuffling does not change the means of the rows, and the variance of a sum of products of
    shuffled numbers is the product of both sums of squares, divided by their number less one.
    """
    rows, heads = figure.shape
    off, centred = _centred(means, ranks), _centred(figure.ravel(), ranks).reshape(rows, heads)
    off = off.reshape(*off.shape[:-1], rows, heads)
    of_rows, of_figure = off.mean(-1), centred.mean(-1)
    between = heads * (of_rows * of_figure).sum(-1)
    within = ((off - of_rows[..., None]) ** 2).sum(-1) * ((centred - of_figure[:, None]) ** 2).sum(-1)
    spread = np.sqrt((off**2).sum((-2, -1)) * (centred**2).sum())
    deviation = np.sqrt(within.sum(-1) / max(heads - 1, 1))
    mean, std = (
        np.divide(part, spread, out=np.full(spread.shape, np.nan), where=spread > 0) for part in (between, deviation)
    )
    return mean, std


def reach_of_shuffles(
    map: Float[np.ndarray, " k"], figure: Float[np.ndarray, "rows heads"], ranks: bool = False
) -> float:
    """Return the upper quantile of the correlations of shuffled maps, in standard deviations above their mean.

    That is their `SHUFFLED` quantile over random permutations of the heads within rows. With few heads in a row, as in
    figure 7, it is above the 1.645 of a normal distribution.
    """
    rng, shape = np.random.default_rng(SEED), (PERMUTATIONS, *figure.shape)
    permuted = rng.permuted(np.broadcast_to(map.reshape(figure.shape), shape), axis=-1).reshape(PERMUTATIONS, -1)
    middle, spread = shuffled(map, figure, ranks)
    if not spread > 0:
        return 0.0
    return float((np.quantile(correlation(permuted, figure.ravel(), ranks), SHUFFLED) - middle) / spread)


def likeness(
    block: Float[np.ndarray, "examples k"],
    figures: Mapping[str, Float[np.ndarray, "rows heads"]],
    own: str,
    *,
    to_map: Callable[[np.ndarray], np.ndarray] = lambda means: means,
    ranks: bool = False,
    within_rows: bool = False,
    clusters: Clusters = None,
) -> Estimand:
    """Return by how much a measured map is more like its own panel of a figure than chance and other tasks explain.

    Parts: the correlation r with the own panel; r minus what 95 % of maps reach whose heads are shuffled within the
    panel's rows; r minus the correlation with each other panel. The claim is about the least.

    Args:
        figures: the panels by task.
        own: the task of the measured map.
        to_map: from means of the block's columns to the map.
        within_rows: take the first part after the mean of each row is removed, so that a head at another head's place
            in its layer counts; most of r comes from differences between layers, which such an error leaves alone.
    """
    order = [own, *(name for name in figures if name != own)]
    flat = np.stack([figures[name].ravel() for name in order])
    rows = len(figures[own])
    own_within = _without_rows(flat[0], rows)

    measured = column_means(block)[0]
    reach = reach_of_shuffles(to_map(measured), figures[own], ranks)

    def references(mean: np.ndarray) -> tuple[np.ndarray, np.ndarray]:
        found = to_map(mean)
        middle, spread = shuffled(found, figures[own], ranks)
        return correlations(found, flat, ranks), np.asarray(middle + reach * spread)

    def parts(mean: np.ndarray) -> np.ndarray:
        alike, chance = references(mean)
        like_own = alike[..., :1]
        first = correlations(_without_rows(to_map(mean), rows), own_within[None], ranks) if within_rows else like_own
        return np.concatenate([first, like_own - chance[..., None], like_own - alike[..., 1:]], axis=-1)

    alike, chance = references(measured)
    other_kind = float(correlation(to_map(measured), flat[0], not ranks))
    notes = [
        f"{'Spearman' if ranks else 'Pearson'} correlation {alike[0]:.3f}",
        f"{'Pearson' if ranks else 'Spearman'} {other_kind:.3f}",
        f"{chance:.3f} by shuffled heads at {SHUFFLED:.0%}",
    ]
    if len(order) > 1 and not np.isnan(alike).any():
        best = 1 + int(alike[1:].argmax())
        notes.append(f"{alike[best]:.3f} with {order[best]}'s panel")
    found = replace(Estimand.of(block, parts, ", ".join(notes), clusters=clusters), extreme="least", published=1)
    if not within_rows:
        return replace(found, map=to_map(measured))
    within = _without_rows(to_map(measured), rows)
    notes.append(f"{float(correlation(within, own_within, ranks)):.3f} within layers")
    return replace(found, map=within, of_ceiling=WITHIN_ROWS, notes=(", ".join(notes),))


def _without_rows(map: Float[np.ndarray, "*any k"], rows: int) -> Float[np.ndarray, "*any k"]:
    """Return a flat map minus the mean of each of its rows."""
    grid = map.reshape(*map.shape[:-1], rows, -1)
    return (grid - grid.mean(-1, keepdims=True)).reshape(map.shape)


def with_ceiling(estimands: Sequence[Estimand]) -> tuple[list[Estimand], list[str]]:
    """Return estimands of likeness that ask for a share of the correlation between seeds' own maps, and a note of it.

    The published panel is one more run, so similar seeds should correlate with it about as much as with each other.
    Other estimands, and that of a single seed, are returned unchanged.
    """
    maps = [estimand.map for estimand in estimands if estimand.map is not None]
    if len(maps) < 2:
        return list(estimands), []
    ceiling = between_seeds(np.stack(maps))

    def lowered(estimand: Estimand) -> Estimand:
        return replace(
            estimand, statistic=lambda *means: _less(estimand.statistic(*means), estimand.of_ceiling * ceiling)
        )

    return [lowered(estimand) for estimand in estimands], [f"correlation between seeds {ceiling:.3f}"]


def _less(parts: Number, share: float) -> Number:
    """Return parts of which the first is lowered."""
    first = np.zeros(np.shape(parts)[-1])
    first[0] = share
    return np.asarray(parts) - first


def between_seeds(maps: Float[np.ndarray, "seeds heads"]) -> float:
    """Return the mean correlation between the maps of two seeds: how like one run is to the next.

    >>> round(between_seeds(np.array([[1.0, 2.0, 4.0], [10.0, 20.0, 40.0]])), 3)
    1.0
    """
    pairs = [correlation(maps[one], maps[other]) for one, other in combinations(range(len(maps)), 2)]
    return float(np.mean(pairs))
