"""How the cost of disabling every head grows with layers, heads, rows and sequence length.

pytest benchmarks/speed/test_ablation_growth.py
"""

from dataclasses import asdict

import pytest
import torch
from growth import GROWTH, at_rest, grow, table


@pytest.fixture
def one_thread():
    threads = torch.get_num_threads()
    torch.set_num_threads(1)
    yield
    torch.set_num_threads(threads)


@pytest.mark.usefixtures("one_thread")
@pytest.mark.parametrize("axis", GROWTH)
def test_growth_with(axis, benchmark, show):
    """Compare processor time and counted multiply-adds along one axis, after checking for equal results."""
    points = benchmark.pedantic(lambda: list(grow(axis)), rounds=1)
    assert [point.value for point in points] == GROWTH[axis]
    benchmark.extra_info["growth"] = {axis: [asdict(point) for point in points]}
    show(f"growing {axis} ({at_rest(axis)})\n{table(axis, points)}")
