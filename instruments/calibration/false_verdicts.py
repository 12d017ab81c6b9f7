"""The rates of false verdicts, by kind of world, and tests of whether a rate significantly exceeds the bound."""

from collections.abc import Iterable, Mapping, Sequence
from dataclasses import dataclass
from typing import Any

import numpy as np

from bertsecrets.claims.expectations import Order
from bertsecrets.claims.loading import find_case
from bertsecrets.claims.schema import Case
from bertsecrets.formats import PASSES
from instruments.calibration.cells import Cell, Rates, find_cells
from instruments.calibration.procedures import PROCEDURES
from instruments.calibration.targets import CLOSE, EXACT, least
from instruments.calibration.worlds import find_world

MOST = 0.06  # maximum rate of false verdicts
SIGNIFICANCE = 0.05  # family-wise, over all worlds (Holm)
# Claims whose false verdicts are counted, by world. If the published value is one more run, it is false that D1
# deviates. If the truth is on the deciding value, it is false that an order passes, and also false that it deviates.
ERRORS: Mapping[str, tuple[str, ...]] = {
    "one-more-run": ("D1-rte-pretrained", "D1-mrpc-pretrained", "D1-mrpc-pretrained-f1", "D1-sst2-pretrained",
                     "D1-stsb-pretrained", "D1-qqp-pretrained"),
    "one-more-run+spread-3": ("D1-rte-pretrained", "D1-mrpc-pretrained", "D1-sst2-pretrained"),
    "one-more-run+spread-third": ("D1-rte-pretrained", "D1-mrpc-pretrained"),
    "one-more-run+own-spread-3": ("D1-rte-pretrained", "D1-mrpc-pretrained"),
    "one-more-run+own-spread-third": ("D1-rte-pretrained", "D1-mrpc-pretrained"),
    "one-more-run+examples-30": ("D1-rte-pretrained", "D1-mrpc-pretrained"),
    "one-more-run+bimodal": ("D1-rte-pretrained", "D1-mrpc-pretrained", "D1-sst2-pretrained"),
    "one-more-run+heavy-seeds": ("D1-rte-pretrained", "D1-mrpc-pretrained", "D1-sst2-pretrained"),
    "one-more-run+mislabelled": ("D1-rte-pretrained", "D1-mrpc-pretrained"),
    "one-more-run+rows-thrice": ("D1-rte-pretrained", "D1-mrpc-pretrained"),
    "one-more-run+collapsed-30": ("D1-mrpc-pretrained",),
    "near-100": ("D1-rte-pretrained", "D1-mrpc-pretrained", "D1-sst2-pretrained"),
    "learned-nothing": ("D1-mrpc-pretrained",),
    "null": ("C1-rte", "C2-rte", "C3-rte", "C4-rte", "D2-rte", "D3-rte", "D3-mrpc", "D3-qqp", "E1-rte", "G4-rte"),
    "least": ("D3-rte", "E1-rte"),
    "null+spread-3": ("C3-rte", "D3-rte"),
    "null+spread-third": ("C3-rte", "D3-rte"),
    "null+tails": ("C3-rte", "E1-rte"),
    "null+tails-down": ("C3-rte", "E1-rte"),
    "null+examples-30": ("C3-rte", "D3-rte", "E1-rte"),
    "null+examples-60": ("C3-rte", "D3-rte"),
    "null+bimodal": ("C3-rte", "D3-mrpc"),
    "null+heavy-seeds": ("C3-rte", "D3-mrpc"),
    "null+collapsed-30": ("C3-rte", "D3-mrpc"),
    "null+nearly-collapsed-30": ("C3-rte", "D3-mrpc"),
    "null+mislabelled": ("D3-mrpc",),
    "null+rows-thrice": ("C3-rte", "D3-mrpc"),
    "null+far-modes": ("C3-rte", "D3-mrpc"),
    "null+rare-bad": ("C3-rte", "D3-mrpc"),
    "null+correlated": ("C3-rte", "D3-mrpc"),
    "one-more-run+far-modes": ("D1-mrpc-pretrained", "D1-sst2-pretrained"),
    "one-more-run+rare-bad": ("D1-mrpc-pretrained", "D1-sst2-pretrained"),
    "worse=3": ("D1-mrpc-pretrained",),
    "worse=1.5": ("D1-sst2-pretrained",),
}  # fmt: skip


def find_error_cells(given: Mapping[str, Any]) -> list[Cell]:
    """Return the cells of the claims and worlds whose false verdicts are counted."""
    cells = [find_cells(claims, (), (world,), given) for world, claims in ERRORS.items()]
    return [cell for of_world in cells for cell in of_world]


@dataclass(frozen=True)
class FalseVerdicts:
    """How often the verdict is false in a cell.

    Args:
        outcome: The false outcome, as text.
        number: Number of worlds with this outcome.
        exceeds: Whether the rate is significantly above the bound, with Holm's correction over all worlds.
    """

    cell: Cell
    procedure: str
    outcome: str
    number: int
    exceeds: bool

    @classmethod
    def from_json(cls, data: Mapping[str, Any]) -> "FalseVerdicts":
        """Return the false verdicts in a line of the file of error rates."""
        return cls(**{**data, "cell": Cell(**data["cell"])})

    @property
    def rate(self) -> float:
        """The fraction of worlds with this outcome."""
        return self.number / self.cell.worlds

    def __str__(self) -> str:
        return f"{self.cell.case} in {self.cell.world}, --seeds {self.procedure}: {self.rate:.1%} {self.outcome}"


def false_verdicts(counted: Iterable[Rates]) -> list[FalseVerdicts]:
    """Return the false verdicts under each procedure, for all cells in which verdicts can be false."""
    rows = [
        (rates.cell, name, outcomes, rates.number(outcomes, name))
        for rates in counted
        for outcomes in false_outcomes(rates)
        for name in PROCEDURES
    ]
    bounded = [not find_world(cell.world).exempt for cell, *_ in rows]
    p_values = [p_above_bound(number, cell.worlds) for cell, _, _, number in rows]
    tested = iter(rejected([p for p, counts in zip(p_values, bounded, strict=True) if counts]))
    return [
        FalseVerdicts(cell, name, outcomes[0], number, counts and next(tested))
        for (cell, name, outcomes, number), counts in zip(rows, bounded, strict=True)
    ]


def p_above_bound(number: int, worlds: int) -> float:
    """Return the probability of at least `number` false verdicts if their rate is the bound.

    >>> round(p_above_bound(60, 1000), 2), p_above_bound(90, 1000) < 0.001
    (0.52, True)
    """
    from scipy.special import bdtrc

    return float(bdtrc(number - 1, worlds, MOST)) if number else 1.0


def rejected(p_values: Sequence[float]) -> list[bool]:
    """Return which hypotheses are rejected at the family-wise error rate `SIGNIFICANCE` (Holm 1979).

    >>> rejected([0.01, 0.04, 0.03])
    [True, False, False]
    """
    order = np.argsort(p_values, kind="stable")
    limits = SIGNIFICANCE / np.arange(len(order), 0, -1)
    passed = np.cumprod(np.asarray(p_values)[order] <= limits).astype(bool)
    return [bool(passed[place]) for place in np.argsort(order)]


def wrong(counted: Iterable[Rates]) -> list[str]:
    """Return the rates of false verdicts that significantly exceed the bound."""
    return [str(verdicts) for verdicts in false_verdicts(counted) if verdicts.exceeds]


def false_outcomes(rates: Rates) -> list[tuple[str, ...]]:
    """Return the outcomes that are false in a cell's worlds. Outcomes with the same meaning share a tuple."""
    world, case = find_world(rates.cell.world), find_case(rates.cell.case)
    order = isinstance(case.claim.expect, Order)
    if world.worse or world.collapsed == 1:
        nothing = np.isinf(world.worse) or world.collapsed == 1
        return [PASSES] if nothing and not order else []
    if world.truth in ("null", "least", "value") and order and rates.truth is not None:
        return _of_order(case, rates.truth)
    return [] if rates.holds is None else [("deviates",)] if rates.holds else [PASSES]


def _of_order(case: Case, truth: float) -> list[tuple[str, ...]]:
    """Return the false outcomes of an order. On the deciding value, passing and deviating are both false."""
    expect = case.claim.expect
    assert isinstance(expect, Order)
    size, slack = expect.sign * truth, CLOSE * abs(expect.threshold(case)) + EXACT
    may_deviate, may_pass = size < expect.sign * least(case) - slack, size > expect.threshold(case) + slack
    return [*([] if may_deviate else [("deviates",)]), *([] if may_pass else [PASSES])]
