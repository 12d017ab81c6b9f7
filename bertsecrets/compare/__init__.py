"""Comparisons: two models, a model and its pin, two runs, and the verdicts on one claim over time."""

from collections.abc import Hashable, Mapping
from typing import TypeVar

Key = TypeVar("Key", bound=Hashable)
Item = TypeVar("Item")


def aligned(before: Mapping[Key, Item], after: Mapping[Key, Item]) -> list[tuple[Item | None, Item | None]]:
    """Pair items by key, with None if one side has no item.

    >>> aligned({"C1": 1, "C2": 2}, {"C2": 3, "C3": 4})
    [(1, None), (2, 3), (None, 4)]
    """
    return [(before.get(key), after.get(key)) for key in dict.fromkeys([*before, *after])]
