"""Consistency of published numbers: K19's figure 8 compared with table 1, P20, chance and other seeds.

Nothing is measured, so nothing is resampled.
"""

import numpy as np
from jaxtyping import Float

from bertsecrets.claims.estimand import Estimand
from bertsecrets.claims.quantity import Need, quantity
from bertsecrets.errors import NotApplicableError
from bertsecrets.texts.metrics import Number
from bertsecrets.texts.published import P20_SEEDS, p20_score
from bertsecrets.texts.tasks import TASKS
from bertsecrets.types import Measurement

PUBLISHED_FIGURES = Need("published-figures")


def _figure_8(figures: Measurement) -> Float[np.ndarray, "1 heads"]:
    """Return the task's scores with one head disabled, in points."""
    place = figures.value("tasks").index(figures.subject.task)
    return 100 * figures.sample("figure_8")[:, place].reshape(1, -1)


@quantity("figure-8-score", "published", unit="points", inherits=False, figures=PUBLISHED_FIGURES)
def median_score(figures: Measurement) -> Estimand:
    """Return the median of figure 8's scores with one head disabled, which estimates the score with all heads."""
    return Estimand.from_block(_figure_8(figures), lambda mean: np.median(mean, axis=-1), sampled=False)


@quantity("figure-8-luck", "published", unit="p", inherits=False, figures=PUBLISHED_FIGURES)
def luck(figures: Measurement) -> Estimand:
    """Return the probability that, by chance, the best of all heads gains at least as much as in figure 8.

    Gains are relative to the median of all heads. By chance, the best gain of n heads is the maximum of n / 2
    half-normal numbers. The scale of these numbers is estimated from the positive gains of the same heads, so this is
    only a screening test.
    """
    scores = _figure_8(figures)
    gains = scores - np.median(scores)
    scale = np.asarray(_scale(gains)).item()
    note = f"the best gain is {gains.max():.2f} points; the root mean square of positive gains is {scale:.2f}"

    def chance(mean: np.ndarray) -> Number:
        from scipy.special import ndtr  # scipy.stats would take five times as long to import

        own = mean - np.median(mean, axis=-1, keepdims=True)
        within = 2 * ndtr(own.max(-1) / _scale(own)) - 1
        return 1 - within ** (own.shape[-1] // 2)

    return Estimand.from_block(scores, chance, note, sampled=False)


@quantity("gain-over-seeds", "published", unit="ratio", inherits=False, within=(0, np.inf), figures=PUBLISHED_FIGURES)
def gain_over_seeds(figures: Measurement) -> Estimand:
    """Return figure 8's best gain, divided by the 95% bound on the difference between two of P20's seeds.

    The gain is relative to the median of all heads. P20 has five seeds, so there are four degrees of freedom.
    """
    from scipy.special import stdtrit  # scipy.stats would take five times as long to import

    task = TASKS[figures.subject.task]
    published = p20_score(task.name, task.metric)
    if published is None:
        raise NotApplicableError(f"P20 has no scores on {task.title}")
    difference = float(np.sqrt(2) * stdtrit(P20_SEEDS - 1, 0.975)) * published[1]
    scores = _figure_8(figures)
    gain = lambda mean: mean.max(-1) - np.median(mean, axis=-1)  # noqa: E731
    note = f"the best gain is {gain(scores[0]):.2f} points; two seeds differ by up to {difference:.2f}"
    return Estimand.from_block(scores, lambda mean: gain(mean) / difference, note, sampled=False)


def _scale(gains: Float[np.ndarray, "... heads"]) -> Number:
    """Return the scale of the half-normal distribution of the gains above 0."""
    above = gains > 0
    return np.sqrt(np.where(above, gains**2, 0).sum(-1) / above.sum(-1).clip(1))
