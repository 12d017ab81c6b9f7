"""How many seeds, or examples, would decide a claim."""

import numpy as np

from bertsecrets.claims.estimate import Estimate

CHANCE = 0.8  # of deciding, with that many seeds or examples
MOST_SEEDS = 1000  # the largest number that a statement considers


def power(observed: Estimate, limits: tuple[float, float], confidence: float) -> str:
    """Return, in words, how many seeds decide a claim with a chance of 80 %, if what was observed is the truth.

    More seeds shrink their part of the error; that of the examples stays. Where that alone is too large, so many more
    examples are named instead.
    """
    from scipy.special import ndtri, stdtrit  # scipy.stats would take five times as long to import

    finite = [abs(observed.value - limit) for limit in limits if np.isfinite(limit)]
    if not observed.computable or not finite:
        return "the number of seeds needed is unknown: the quantity cannot be computed on every resample"
    distance, share = min(finite), (1 + confidence) / 2
    normal = float(ndtri(share) + ndtri(CHANCE))
    if distance <= 0:
        return "no number of seeds decides what lies on the limit itself"
    if normal * observed.sampling_error >= distance:
        examples = int(np.ceil(observed.examples * (normal * observed.sampling_error / distance) ** 2))
        return f"about {examples} examples would be needed to decide this; more seeds alone would not"
    if observed.seedless:
        return "seeds make no difference: nothing is trained"
    if observed.spread is None:
        return "the number of seeds needed is unknown: measure the seed-to-seed spread with --seeds 2 or more"
    seeds = np.arange(1, MOST_SEEDS + 1)
    degrees = np.maximum(1, observed.spread.degrees + seeds - observed.seeds)
    of_seeds = observed.spread.std * np.sqrt(1 / seeds + observed.published)
    needed = np.hypot((stdtrit(degrees, share) + ndtri(CHANCE)) * of_seeds, normal * observed.sampling_error)
    enough = seeds[needed <= distance]
    if not len(enough):
        return f"more than {MOST_SEEDS} seeds would be needed to decide this"
    count = "one seed decides this" if enough[0] == 1 else f"{enough[0]} seeds decide this"
    return f"{count} with a chance of {CHANCE:.0%}, by the spread of {observed.spread.source}"
