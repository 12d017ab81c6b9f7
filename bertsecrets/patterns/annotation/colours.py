"""How a map is coloured wherever a person looks at one: on contact sheets, on the annotation page, in the documents."""

import functools

import numpy as np
from jaxtyping import Float, UInt8

PALETTE = "magma"
GAMMA = 0.5  # square root: a diagonal of a hundredth of the mass is seen beside a column that has it all
TOP = 0.98  # this share of the map's strongest cell per row, taken over its rows, has the brightest colour


def shades(values: Float[np.ndarray, "tokens tokens"]) -> UInt8[np.ndarray, "tokens tokens"]:
    """A map's cells as places in the palette (0 dark, 255 bright), scaled to the map's own strongest cells."""
    weights = values.astype(np.float64)
    top = float(np.quantile(weights.max(axis=1), TOP))
    if top <= 0:
        return np.zeros(values.shape, dtype=np.uint8)
    return np.round(255 * np.clip(weights / top, 0, 1) ** GAMMA).astype(np.uint8)


@functools.cache
def palette() -> list[tuple[int, int, int]]:
    """The 256 colours, from dark to bright, as red, green, blue from 0 to 255."""
    from matplotlib import colormaps

    return [(int(r), int(g), int(b)) for r, g, b in np.round(255 * colormaps[PALETTE](np.arange(256))[:, :3])]


def colours(values: Float[np.ndarray, "tokens tokens"]) -> UInt8[np.ndarray, "tokens tokens 3"]:
    """A map as an image: red, green, blue per cell."""
    return np.array(palette(), dtype=np.uint8)[shades(values)]
