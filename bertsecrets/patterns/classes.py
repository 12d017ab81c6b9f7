"""The five classes of attention maps (K19 section 4.1, figure 1), and the brightness scale used to display maps.

Visual features use the same brightness scale as the images shown to annotators. This module does not import torch.
"""

import numpy as np
from jaxtyping import Float

from bertsecrets.errors import UserError, near_matches

CLASSES = ("vertical", "diagonal", "vertical-diagonal", "block", "heterogeneous")
GAMMA = 0.5  # square root, so that a diagonal with 1 % of the mass is visible next to a column with the rest
DISPLAYED_QUANTILE = 0.98  # quantile of the row maxima that is displayed with maximum brightness


def check_class(name: str) -> str:
    """Return the class called `name`."""
    if name not in CLASSES:
        raise UserError(f"unknown class {name!r}: {near_matches(name, CLASSES)}")
    return name


def cell_brightness(values: Float[np.ndarray, "tokens tokens"]) -> Float[np.ndarray, "tokens tokens"]:
    """Return the brightness of each cell from 0 to 1, relative to the strongest cells of the map.

    >>> cell_brightness(np.array([[1.0, 0.0], [0.75, 0.25]])).round(2).tolist()
    [[1.0, 0.0], [0.87, 0.5]]
    """
    weights = values.astype(np.float64)
    top = float(np.quantile(weights.max(axis=1), DISPLAYED_QUANTILE))
    return np.clip(weights / top, 0, 1) ** GAMMA if top > 0 else np.zeros_like(weights)
