"""The brightness of a map's cells in a picture, as seen by annotators and by the features that imitate their eyes.

Nothing here imports torch.
"""

import numpy as np
from jaxtyping import Float

GAMMA = 0.5  # square root, so that a diagonal with a hundredth of the mass is visible beside a column with the rest
TOP = 0.98  # this quantile of the strongest cells of all rows has the brightest colour


def cell_brightness(values: Float[np.ndarray, "tokens tokens"]) -> Float[np.ndarray, "tokens tokens"]:
    """Return each cell's brightness from 0 to 1, relative to the map's own strongest cells.

    >>> cell_brightness(np.array([[1.0, 0.0], [0.75, 0.25]])).round(2).tolist()
    [[1.0, 0.0], [0.87, 0.5]]
    """
    weights = values.astype(np.float64)
    top = float(np.quantile(weights.max(axis=1), TOP))
    return np.clip(weights / top, 0, 1) ** GAMMA if top > 0 else np.zeros_like(weights)
