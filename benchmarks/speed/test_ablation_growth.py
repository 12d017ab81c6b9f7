"""The growth of the cost of disabling every head with layers, heads, rows and sequence length; `growth.py` draws it.

pytest benchmarks/speed/test_ablation_growth.py
"""

import pytest
from growth import GROWTH, at_rest, grow, table


@pytest.mark.parametrize("axis", GROWTH)
def test_growth_with(axis, benchmark, show):
    """Processor time and counted multiply-adds along one axis; results equal plain passes at every point."""
    points = benchmark.pedantic(lambda: list(grow(axis)), rounds=1)
    assert [point.value for point in points] == GROWTH[axis]
    show(f"growing {axis} ({at_rest(axis)})\n{table(axis, points)}")
