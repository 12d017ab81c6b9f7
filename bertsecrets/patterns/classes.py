"""The five classes of attention maps (K19 section 4.1, figure 1), and the brightness in which annotators see a map.

The features that imitate their eyes use the same brightness. Nothing here imports torch.
"""

import numpy as np
from jaxtyping import Float

from bertsecrets.errors import UserError, near_matches

CLASSES = ("vertical", "diagonal", "vertical-diagonal", "block", "heterogeneous")
GAMMA = 0.5  # square root, so that a diagonal with a hundredth of the mass is visible next to a column with the rest
TOP = 0.98  # this quantile of the strongest cells of all rows has the brightest colour


def check_class(name: str) -> str:
    """Return the class called `name`.

    Raises:
        UserError: the class does not exist.
    """
    if name not in CLASSES:
        raise UserError(f"unknown class {name!r}: {near_matches(name, CLASSES)}")
    return name


def cell_brightness(values: Float[np.ndarray, "tokens tokens"]) -> Float[np.ndarray, "tokens tokens"]:
    """Return each cell's brightness from 0 to 1, relative to the map's own strongest cells.

    >>> cell_brightness(np.array([[1.0, 0.0], [0.75, 0.25]])).round(2).tolist()
    [[1.0, 0.0], [0.87, 0.5]]
    """
    weights = values.astype(np.float64)
    top = float(np.quantile(weights.max(axis=1), TOP))
    return np.clip(weights / top, 0, 1) ** GAMMA if top > 0 else np.zeros_like(weights)
