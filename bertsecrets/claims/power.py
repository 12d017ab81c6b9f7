"""How many seeds, or examples, would decide a claim."""

from collections.abc import Iterable, Sequence

import numpy as np

from bertsecrets.claims.estimate import Estimate

CHANCE = 0.8  # of deciding, with that many seeds or examples
MOST_SEEDS = 1000  # the largest number that a statement considers


def power(observed: Estimate, limits: Sequence[float], confidence: float, least: float = 0.0) -> str:
    """Return, in words, how many seeds decide a claim with a chance of 80 %, if what was observed is the truth.

    More seeds shrink their part of the error; that of the examples stays. Where that alone is too large, so many more
    examples are named instead.

    Args:
        limits: what the interval must not hold; infinite ones do not count.
        least: the smallest effect of interest, if the limit is 0: an interval inside of it decides, too.
    """
    from scipy.special import ndtri, stdtrit  # scipy.stats would take five times as long to import

    finite = [abs(observed.value - limit) for limit in limits if np.isfinite(limit)]
    if not observed.computable or not finite:
        return "the number of seeds needed is unknown: the quantity cannot be computed on every resample"
    distance, share = max(min(finite), least - abs(observed.value)), (1 + confidence) / 2
    if distance <= 0:
        return "no number of seeds decides what lies on the limit itself"
    if observed.spread is None and not observed.seedless:
        return "the number of seeds needed is unknown: measure the seed-to-seed spread with --seeds 2 or more"
    of_examples = float(ndtri(share) + ndtri(CHANCE)) * observed.sampling_error
    of_seeds = np.zeros(1)
    if observed.spread is not None:
        seeds = np.arange(1, MOST_SEEDS + 1)
        beforehand = observed.seeds * max(0.0, observed.spread.degrees - (observed.seeds - 1))  # as in Spread.updated
        degrees = np.maximum(1, beforehand / seeds + seeds - 1)
        of_seeds = (
            (stdtrit(degrees, share) + ndtri(CHANCE)) * observed.spread.std * np.sqrt(1 / seeds + observed.published)
        )
    if of_examples >= distance:
        if observed.seeds == 1 and not observed.seedless:
            return "measure two seeds or more: one does not tell whether seeds or examples are missing"
        now = float(of_seeds[min(observed.seeds, len(of_seeds)) - 1])
        left = distance**2 - now**2 if now < distance else distance**2
        examples = int(np.ceil(observed.examples * of_examples**2 / left))
        also = "" if now < distance else ", and more seeds,"
        return f"about {examples} examples{also} would be needed to decide this, instead of {observed.examples}"
    if observed.seedless:
        return f"these {observed.examples} examples decide this with a chance of {CHANCE:.0%}; seeds make no difference"
    enough = np.flatnonzero(np.hypot(of_seeds, of_examples) <= distance) + 1
    if not len(enough):
        return f"more than {MOST_SEEDS} seeds would be needed to decide this"
    assert observed.spread is not None
    count = "one seed decides this" if enough[0] == 1 else f"{enough[0]} seeds decide this"
    return f"{count} with a chance of {CHANCE:.0%}, by the spread of {observed.spread.source}"


def seeds_may_decide(observed: Estimate, limits: Iterable[float], confidence: float) -> bool:
    """Return whether further seeds could decide what is not decided yet; not where examples are what is missing.

    That is so where the error of the examples alone leaves room, if the estimate moves by one standard error of its
    seeds. Those who stop here may miss a decision, but make none that is false.
    """
    from scipy.special import ndtri  # scipy.stats would take five times as long to import

    if observed.seedless or not observed.computable:
        return False
    if observed.spread is None:
        return True
    distance = min((abs(observed.value - limit) for limit in limits if np.isfinite(limit)), default=0.0)
    moved = distance + observed.spread.std / np.sqrt(observed.seeds)
    return bool(moved > ndtri((1 + confidence) / 2) * observed.sampling_error)
