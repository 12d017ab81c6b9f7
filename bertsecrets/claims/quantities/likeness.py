"""Similarity of measured maps to published figures. The values of the figures were extracted from pixels.

Most of the variation in a panel comes from the encoder. A panel therefore correlates even with the panels of other
tasks and with maps in which the heads of each layer are shuffled. These correlations are the reference correlations.
"""

from collections.abc import Callable, Mapping, Sequence
from dataclasses import replace
from itertools import combinations

import numpy as np
from jaxtyping import Float

from bertsecrets.claims.bootstrap import column_means, ratio
from bertsecrets.claims.estimand import Estimand, OfMap, clusters_of
from bertsecrets.texts.metrics import Number
from bertsecrets.texts.published import published_figures
from bertsecrets.texts.tasks import TASKS
from bertsecrets.types import Measurement

PERMUTATIONS, SHUFFLE_SEED = 2000, 2019
SHUFFLE_QUANTILE = 0.95  # quantile of the null distribution that the correlation must exceed
WITHIN_ROWS_CEILING_SHARE = 0.9  # required fraction of the correlation between seeds, if row means are removed


def panels(name: str, features: Sequence[str] = ()) -> dict[str, Float[np.ndarray, "rows heads"]]:
    """Return the panels of a figure, keyed by the name of the task's folder.

    A row is a layer or, in figure 7, a feature; a panel of figure 9 is a single row with all layers.
    """
    return {
        folder: np.array([panel[feature] for feature in features] if features else panel, dtype=np.float64, ndmin=2)
        for folder, panel in published_figures()[name].items()
    }


def correlations(
    means: Float[np.ndarray, "*any k"], figures: Float[np.ndarray, "figures k"], ranks: bool = False
) -> Float[np.ndarray, "*any figures"]:
    """Return each row's correlation with each figure: Pearson's, or Spearman's with `ranks`. Constant rows give NaN."""
    off, centred = _centred(means, ranks), _centred(figures, ranks)
    spread = np.linalg.norm(off, axis=-1)[..., None] * np.linalg.norm(centred, axis=-1)
    return ratio(off @ centred.T, spread)


def correlation(means: Float[np.ndarray, "*any k"], figure: Float[np.ndarray, " k"], ranks: bool = False) -> Number:
    """Return each row's correlation with a figure: Pearson's, or Spearman's with `ranks`. Constant rows give NaN.

    >>> float(correlation(np.array([1.0, 2.0, 4.0]), np.array([10.0, 20.0, 40.0])).round(3))
    1.0
    """
    return correlations(means, figure[None], ranks)[..., 0]


def _centred(means: Float[np.ndarray, "*any k"], ranks: bool = False) -> Float[np.ndarray, "*any k"]:
    if ranks:
        from scipy.stats import rankdata

        means = rankdata(means, axis=-1)
    return means - means.mean(-1, keepdims=True)


def shuffled_correlations(
    means: Float[np.ndarray, "*any k"], figure: Float[np.ndarray, "rows heads"]
) -> tuple[Float[np.ndarray, "*any"], Float[np.ndarray, "*any"]]:
    """Return the mean and standard deviation of the correlation with a figure when heads are shuffled within rows.

    Both values are exact. Shuffling preserves row means. Let A and B be the sums of squares of two lists of n numbers
    with mean 0. If one list is shuffled, the scalar product of the two lists has variance A * B / (n - 1).
    """
    rows, heads = figure.shape
    off, centred = _centred(means), _centred(figure.ravel()).reshape(rows, heads)
    off = off.reshape(*off.shape[:-1], rows, heads)
    of_rows, of_figure = off.mean(-1), centred.mean(-1)
    between = heads * (of_rows * of_figure).sum(-1)
    within = ((off - of_rows[..., None]) ** 2).sum(-1) * ((centred - of_figure[:, None]) ** 2).sum(-1)
    spread = np.sqrt((off**2).sum((-2, -1)) * (centred**2).sum())
    return ratio(between, spread), ratio(np.sqrt(within.sum(-1) / max(heads - 1, 1)), spread)


def reach_of_shuffles(map: Float[np.ndarray, " k"], figure: Float[np.ndarray, "rows heads"]) -> float:
    """Return the 95% quantile of the correlation with heads shuffled within rows, in standard deviations from the mean.

    For a normal distribution, this is 1.645. If there are few heads and some of them stand out, it is larger.
    """
    rng, shape = np.random.default_rng(SHUFFLE_SEED), (PERMUTATIONS, *figure.shape)
    permuted = rng.permuted(np.broadcast_to(map.reshape(figure.shape), shape), axis=-1).reshape(PERMUTATIONS, -1)
    middle, spread = shuffled_correlations(map, figure)
    if not spread > 0:
        return 0.0
    return float((np.quantile(correlation(permuted, figure.ravel()), SHUFFLE_QUANTILE) - middle) / spread)


def likeness(
    measurement: Measurement,
    block: Float[np.ndarray, "examples k"],
    figures: Mapping[str, Float[np.ndarray, "rows heads"]],
    *,
    to_map: Callable[[np.ndarray], np.ndarray] = lambda means: means,
    within_rows: bool = False,
    average: bool = False,
) -> Estimand:
    """Return the correlation of a map with its task's panel, minus the highest reference correlation.

    Let r be the correlation with the task's panel. The claim is judged by the smallest of these parts:

    - r,
    - r minus the 95% quantile of this correlation if the map's heads are shuffled within rows,
    - for each of the other panels, r minus the map's correlation with that panel.

    Args:
        block: Per-example values of the measurement; one row per example.
        figures: Panels, keyed by the name of the task's folder (`panels`).
        to_map: Function that turns the column means of the block into the map.
        within_rows: Whether to subtract the row means of the map and of the panel for the first part. This removes the
            differences between layers, the main source of the correlation.
        average: Whether to average maps across seeds before they are correlated with the panels. If so, the panels are
            treated as exact. If not, they count as the results of one more run, whose seed variance is added.
    """
    own = TASKS[measurement.subject.task].folder
    order = [own, *(name for name in figures if name != own)]
    flat = np.stack([figures[name].ravel() for name in order])
    rows = len(figures[own])
    own_within = _without_rows(flat[0], rows)
    measured = to_map(column_means(block)[0])

    def parts_for(measured: np.ndarray) -> Callable[[np.ndarray], np.ndarray]:
        reach = reach_of_shuffles(measured, figures[own])

        def parts(map: np.ndarray) -> np.ndarray:
            by_panel, (middle, spread) = correlations(map, flat), shuffled_correlations(map, figures[own])
            own_panel, chance = by_panel[..., :1], middle + reach * spread
            first = correlations(_without_rows(map, rows), own_within[None]) if within_rows else own_panel
            return np.concatenate([first, own_panel - chance[..., None], own_panel - by_panel[..., 1:]], axis=-1)

        return parts

    parts = parts_for(measured)
    by_panel = correlations(measured, flat)
    chance = by_panel[0] - parts(measured)[1]
    spearman = float(correlation(measured, flat[0], ranks=True))
    notes = [f"Pearson correlation {by_panel[0]:.3f}, Spearman {spearman:.3f}"]
    notes.append(f"{SHUFFLE_QUANTILE:.0%} quantile with shuffled heads {chance:.3f}")
    if len(order) > 1 and not np.isnan(by_panel).any():
        best = 1 + int(by_panel[1:].argmax())
        notes.append(f"{by_panel[best]:.3f} with {order[best]}'s panel")
    if within_rows:
        measured = _without_rows(measured, rows)
        notes.append(f"{float(correlation(measured, own_within)):.3f} within layers")
    return Estimand.from_block(
        block,
        lambda mean: parts(to_map(mean)),
        ", ".join(notes),
        clusters=clusters_of(measurement),
        extreme="least",
        published=0 if average else 1,
        map=measured,
        of_ceiling=WITHIN_ROWS_CEILING_SHARE if within_rows else Estimand.of_ceiling,
        average=OfMap(to_map, parts_for) if average else None,
    )


def _without_rows(map: Float[np.ndarray, "*any k"], rows: int) -> Float[np.ndarray, "*any k"]:
    """Subtract row means from a flat map."""
    grid = map.reshape(*map.shape[:-1], rows, -1)
    return (grid - grid.mean(-1, keepdims=True)).reshape(map.shape)


def with_ceiling(estimands: Sequence[Estimand]) -> tuple[list[Estimand], list[str]]:
    """Lower each estimand's first part by a fraction of the correlation between seeds. Also return notes on it.

    If the published run is like ours, a seed's map should correlate with the panel about as strongly as with another
    seed's map. Estimands without a map, and the estimand of a single seed, are returned unchanged.
    """
    maps = [estimand.map for estimand in estimands if estimand.map is not None]
    if len(maps) < 2:
        return list(estimands), []
    ceiling = between_seeds(np.stack(maps))
    notes = [f"correlation between seeds {ceiling:.3f}"]
    if all(estimand.average for estimand in estimands):
        estimands = averaged(estimands, np.stack(maps))
        notes.append(f"mean map's correlation with the panel {np.mean([each.parts[0] for each in estimands]):.3f}")

    def lowered(estimand: Estimand) -> Estimand:
        less = np.array([estimand.of_ceiling * ceiling, *np.zeros(len(estimand.parts) - 1)])
        return replace(estimand, statistic=lambda *means: np.asarray(estimand.statistic(*means)) - less)

    return [lowered(estimand) for estimand in estimands], notes


def averaged(estimands: Sequence[Estimand], maps: Float[np.ndarray, "seeds k"]) -> list[Estimand]:
    """Return one estimand per seed, whose value is a jackknife pseudo-value. The spread of these values is that of the
    seeds.

    The pseudo-values are shifted so that their mean is the value for the average map. This undoes the jackknife's bias
    correction.
    """
    count, total = len(maps), maps.sum(0)
    of_average = estimands[0].average
    assert of_average is not None
    parts = of_average.parts(total / count)
    without = np.stack([parts((total - own) / (count - 1)) for own in maps])
    shift = (count - 1) * (parts(total / count) - without.mean(0))

    def pseudo_value(estimand: Estimand, own: np.ndarray, less: np.ndarray) -> Estimand:
        assert estimand.average is not None
        to_map = estimand.average.to_map

        def statistic(mean: np.ndarray) -> np.ndarray:
            return count * parts((total - own + to_map(mean)) / count) - (count - 1) * less - shift

        return replace(estimand, statistic=statistic)

    return [pseudo_value(*each) for each in zip(estimands, maps, without, strict=True)]


def between_seeds(maps: Float[np.ndarray, "seeds heads"]) -> float:
    """Return the correlation between the maps of two seeds, averaged over all pairs of seeds.

    >>> round(between_seeds(np.array([[1.0, 2.0, 4.0], [10.0, 20.0, 40.0]])), 3)
    1.0
    """
    pairs = [correlation(maps[first], maps[second]) for first, second in combinations(range(len(maps)), 2)]
    return float(np.mean(pairs))
