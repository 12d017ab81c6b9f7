"""The truth of a world, which is the value of a claim's quantity, and how to move it to the claim's threshold."""

from functools import cache

import numpy as np

from bertsecrets.claims.expectations import Order
from bertsecrets.claims.loading import find_case
from bertsecrets.claims.schema import Case
from bertsecrets.errors import NotApplicableError
from instruments.calibration.procedures import read_seed
from instruments.calibration.truth import AGAINST
from instruments.calibration.worlds import Setting, SimulatedModel, World, find_world

EXACT = 1e-3  # a truth within this distance of its threshold counts as on it
CLOSE = 0.05  # the same distance, as a fraction of the effect


def true_value(case: Case, setting: Setting) -> float | None:
    """Return the noise-free value of a claim's quantity, or None if it cannot be computed."""
    try:
        value = read_seed(case, SimulatedModel(find_world("as-published"), setting, 0, 0, noise=False)).value
    except NotApplicableError:
        return None
    return value if np.isfinite(value) else None


def holds(case: Case, value: float | None) -> bool | None:
    """Return whether a claim is true for a value. Claims that are not orders count as true."""
    expect = case.claim.expect
    if value is None or not isinstance(expect, Order):
        return None if value is None else True
    return expect.sign * value - expect.threshold(case) > EXACT


def deciding(case: Case) -> float:
    """Return the value that an order must exceed, which is its limit or the smallest effect of interest."""
    assert isinstance(case.claim.expect, Order)
    return case.claim.expect.sign * case.claim.expect.threshold(case)


def least(case: Case) -> float:
    """Return the stricter of the deciding value and half the published value. If it is reached, an order must not
    deviate."""
    expect = case.claim.expect
    assert isinstance(expect, Order)
    return expect.sign * max(expect.threshold(case), expect.half_of_published(case))


@cache
def _strength(name: str, target: float) -> float:
    case = find_case(name)
    against = AGAINST.get(case.claim.quantity, "nothing")

    def off(strength: float) -> float:
        value = true_value(case, Setting(strength, against))
        return np.nan if value is None else value - target

    ends = {strength: off(strength) for strength in (1.0, 0.0)}
    for one, other in ((1.0, 0.0), (1.0, 2.0), (2.0, 3.0), (0.0, -1.0)):
        ends |= {strength: off(strength) for strength in (one, other) if strength not in ends}
        if np.isfinite([ends[one], ends[other]]).all() and ends[one] * ends[other] <= 0 and ends[one] != ends[other]:
            high, low = (one, other) if ends[one] > ends[other] else (other, one)
            for _ in range(20):
                middle = (low + high) / 2
                low, high = (low, middle) if off(middle) > 0 else (middle, high)
            nearest = min((high, low), key=lambda strength: abs(off(strength)))
            # a discontinuous quantity, such as a rank, may never equal the threshold: use the truth without any effect
            return nearest if abs(off(nearest)) <= CLOSE * abs(ends[one] - ends[other]) else 0.0
    return 0.0


def find_setting(case: Case, world: World) -> Setting:
    """Return the setting that gives the quantity the true value named by `world.truth`, such as the threshold."""
    expect = case.claim.expect
    if world.truth not in ("null", "least", "value") or not isinstance(expect, Order):
        return Setting()
    target = {"null": deciding(case), "value": world.value}.get(world.truth, least(case))
    return Setting(_strength(str(case), target), AGAINST.get(case.claim.quantity, "nothing"))
