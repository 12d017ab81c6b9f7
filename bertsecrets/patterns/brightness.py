"""How bright a cell of a map is on a picture: to the eyes that label it, and to the features that see what eyes see.

Nothing here imports torch.
"""

import numpy as np
from jaxtyping import Float

GAMMA = 0.5  # square root: a diagonal of a hundredth of the mass is seen beside a column that has it all
TOP = 0.98  # this share of the map's strongest cell per row, taken over its rows, has the brightest colour


def cell_brightness(values: Float[np.ndarray, "tokens tokens"]) -> Float[np.ndarray, "tokens tokens"]:
    """Return each cell's brightness from 0 to 1, scaled to the map's own strongest cells.

    >>> cell_brightness(np.array([[1.0, 0.0], [0.75, 0.25]])).round(2).tolist()
    [[1.0, 0.0], [0.87, 0.5]]
    """
    weights = values.astype(np.float64)
    top = float(np.quantile(weights.max(axis=1), TOP))
    return np.clip(weights / top, 0, 1) ** GAMMA if top > 0 else np.zeros_like(weights)
