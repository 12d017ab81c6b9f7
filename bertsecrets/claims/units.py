"""The smallest effect of interest in each unit: an order deviates if its effect is shown to be smaller."""

SMALLEST = {
    "points": (0.5, "half a point, less than the tables of GLUE are read to"),
    "percent": (1.0, "one map or head in a hundred"),
    "attention": (0.005, "a two-hundredth of what a token has to give"),
    "cosine": (0.01, "a hundredth of the whole range of similarity between non-negative maps"),
    "depth": (0.02, "a quarter of the distance between two of twelve layers"),
    "ratio": (0.02, "a fiftieth of the larger weight"),
    "r": (0.01, "a hundredth of perfect likeness; panels of two tasks may correlate .98"),
    "standard deviations": (0.1, "a tenth of the heads' own spread"),
}
WIDEST = {"points": 50.0, "percent": 50.0}  # half of all values: a wider prediction interval is met by nearly anything


def smallest(unit: str) -> tuple[float, str]:
    """Return the smallest effect of interest in a unit, and why; 0 for a unit that has none."""
    return SMALLEST.get(unit, (0.0, ""))


def too_wide(band: tuple[float, float], unit: str) -> bool:
    """Return whether a band around a figure is so wide that nearly anything lies inside, so that it decides nothing.

    >>> too_wide((32.5, 72.9), "points"), too_wide((-20.0, 82.7), "points")
    (False, True)
    """
    low, high = band
    return min(high, 100.0) - max(low, 0.0) > WIDEST.get(unit, float("inf"))
