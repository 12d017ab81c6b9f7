"""What the claims know of the measures: their names, and which have no seed. The one place that asks `measures`."""

from bertsecrets.measures import MEASURES, seedless

__all__ = ["measure_names", "seedless"]


def measure_names() -> tuple[str, ...]:
    """Return the names of all measures."""
    return tuple(MEASURES)
