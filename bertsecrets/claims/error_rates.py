"""The number of seeds or examples needed to decide a claim."""

from collections.abc import Sequence

import numpy as np

from bertsecrets.claims.band import format_number
from bertsecrets.claims.estimate import FEWEST_SEEDS, Estimate

TARGET_POWER = 0.8
PRACTICAL_SEEDS = 20
POWER_SEARCH_LIMIT = 1000  # the largest number of seeds considered


def power(observed: Estimate, limits: Sequence[float], confidence: float) -> str:
    """Return, as text, how many seeds would decide a claim with 80% power if the observed value were the true value.

    The variation between seeds must be known, unless seeds make no difference to the claim.

    More seeds reduce the seed variance but not the sampling error of the examples. If the sampling error alone is too
    large to decide the claim, the text gives the number of examples needed, not of seeds.

    Args:
        limits: Values that the interval must exclude; infinite values are ignored.
    """
    from scipy.special import ndtri, stdtrit  # scipy.stats would take five times as long to import

    finite = [abs(observed.value - limit) for limit in limits if np.isfinite(limit)]
    if not observed.computable:
        return "it is unknown how many seeds would decide this: the quantity is undefined on some resamples"
    distance, share = min(finite), (1 + confidence) / 2
    if distance <= 0:
        return "more seeds would not decide this: the observed value lies exactly at the limit"
    of_examples = float(ndtri(share) + ndtri(TARGET_POWER)) * observed.sampling_error
    of_seeds = np.zeros(1)
    if observed.spread is not None:
        seeds = np.arange(1, POWER_SEARCH_LIMIT + 1)
        runs = np.sqrt(1 / seeds + observed.published)
        of_seeds = (stdtrit(np.maximum(1, seeds - 1), share) + ndtri(TARGET_POWER)) * observed.spread.std * runs
    if of_examples >= distance:
        now = float(of_seeds[min(observed.seeds, len(of_seeds)) - 1])
        left = distance**2 - now**2 if now < distance else distance**2
        examples = int(np.ceil(observed.examples * of_examples**2 / left))
        also = "" if now < distance else ", and more seeds,"
        return f"about {examples} examples{also} would be needed to decide this, instead of {observed.examples}"
    if observed.seedless:
        probability = f"{TARGET_POWER:.0%} probability"
        return f"these {observed.examples} examples would decide this with {probability}; seeds make no difference"
    enough = np.flatnonzero(np.hypot(of_seeds, of_examples) <= distance) + 1
    if not len(enough):
        return f"more than {POWER_SEARCH_LIMIT} seeds would be needed to decide this"
    text = f"{max(enough[0], FEWEST_SEEDS)} seeds would decide this with {TARGET_POWER:.0%} probability"
    value = format_number(observed.value)
    if enough[0] > PRACTICAL_SEEDS:
        return f"{text}, which is not practical: {value} is too close to the limit"
    return f"{text} if {value} is the true value"
