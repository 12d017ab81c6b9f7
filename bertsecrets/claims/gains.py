"""What disabling heads or layers gains: the score with a set disabled minus the baseline, in points.

The metric is that of K19's figure 8: F1 for MRPC and QQP, correlation for STS-B, accuracy else. All is paired on the
same examples. A set is a head, a layer, or whatever the ablation disabled together.
"""

from collections.abc import Callable, Sequence

import numpy as np
from jaxtyping import Float

from bertsecrets.bootstrap import central_interval, resampled_means
from bertsecrets.texts.metrics import METRICS, Metric, moments
from bertsecrets.texts.tasks import TASKS
from bertsecrets.types import Measurement

WHOLE = slice(None)  # all examples
RESAMPLES, SEED = 2000, 2019  # of intervals that stand for themselves, in no verdict

Block = Float[np.ndarray, "examples k"]
Gains = Callable[[np.ndarray], np.ndarray]


def metric_of(ablation: Measurement) -> Metric:
    """Return the metric of the task, as a fraction."""
    return METRICS[TASKS[ablation.subject.task].metric]


def gains_of(ablation: Measurement, sets: Sequence[int] | None = None, rows: slice = WHOLE) -> tuple[Block, Gains]:
    """Return the gains of some sets (or of all) on some examples: a block, and from its means ([..., k]) [..., set]."""
    name, metric = TASKS[ablation.subject.task].metric, metric_of(ablation)
    predicted, target = ablation.sample("predicted"), ablation.sample("target")[rows]
    chosen = range(len(predicted)) if sets is None else sets
    baseline = moments(name, ablation.sample("baseline_predicted")[rows], target)
    block = np.hstack([baseline, *(moments(name, predicted[place][rows], target) for place in chosen)])
    k = baseline.shape[1]

    def gains(mean: np.ndarray) -> np.ndarray:
        scores = 100 * np.asarray(metric(mean.reshape(*mean.shape[:-1], -1, k)))
        return scores[..., 1:] - scores[..., :1]

    return block, gains


def all_gains(ablation: Measurement, rows: slice = WHOLE) -> Float[np.ndarray, " sets"]:
    """Return the gain of every set on the examples as they are."""
    block, gains = gains_of(ablation, None, rows)
    return gains(block.mean(0))


def gain_intervals(
    ablation: Measurement, confidence: float = 0.95
) -> tuple[Float[np.ndarray, " sets"], Float[np.ndarray, " sets"]]:
    """Return both ends of the paired bootstrap interval of every set's gain, in points.

    Each set by itself: among 144 intervals at 95 % some seven miss the truth.
    """
    block, gains = gains_of(ablation)
    return central_interval(gains(resampled_means(block, np.random.default_rng(SEED), RESAMPLES)), confidence)
