"""The colours of maps in pictures: on contact sheets, on the annotation page, in the documentation."""

import functools

import numpy as np
from jaxtyping import Float, UInt8

from bertsecrets.extras import from_extra
from bertsecrets.patterns.brightness import cell_brightness

PALETTE = "magma"
FULL_BAR = 0.4  # share of all attention from which on a column's bar, under the map, has its full height


def shades(values: Float[np.ndarray, "tokens tokens"]) -> UInt8[np.ndarray, "tokens tokens"]:
    """Return a map's cells as indices into the palette (0 dark, 255 bright), relative to its strongest cells."""
    return np.round(255 * cell_brightness(values)).astype(np.uint8)


@functools.cache
def palette() -> list[tuple[int, int, int]]:
    """Return the 256 colours, from dark to bright, as (red, green, blue) from 0 to 255."""
    with from_extra("matplotlib"):
        from matplotlib import colormaps

    return [(int(r), int(g), int(b)) for r, g, b in np.round(255 * colormaps[PALETTE](np.arange(256))[:, :3])]


def colours(values: Float[np.ndarray, "tokens tokens"]) -> UInt8[np.ndarray, "tokens tokens 3"]:
    """Return a map as an image: red, green, blue per cell."""
    return np.array(palette(), dtype=np.uint8)[shades(values)]
