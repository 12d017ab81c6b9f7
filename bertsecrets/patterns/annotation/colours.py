"""How a map is coloured wherever a person looks at one: on contact sheets, on the annotation page, in the documents."""

import functools

import numpy as np
from jaxtyping import Float, UInt8

from bertsecrets.patterns.brightness import cell_brightness

PALETTE = "magma"
FULL_BAR = 0.4  # of all attention: the share of a column whose bar, under the map, has its full height


def shades(values: Float[np.ndarray, "tokens tokens"]) -> UInt8[np.ndarray, "tokens tokens"]:
    """Return a map's cells as places in the palette (0 dark, 255 bright), scaled to the map's own strongest cells."""
    return np.round(255 * cell_brightness(values)).astype(np.uint8)


@functools.cache
def palette() -> list[tuple[int, int, int]]:
    """Return the 256 colours, from dark to bright, as red, green, blue from 0 to 255."""
    from matplotlib import colormaps

    return [(int(r), int(g), int(b)) for r, g, b in np.round(255 * colormaps[PALETTE](np.arange(256))[:, :3])]


def colours(values: Float[np.ndarray, "tokens tokens"]) -> UInt8[np.ndarray, "tokens tokens 3"]:
    """Return a map as an image: red, green, blue per cell."""
    return np.array(palette(), dtype=np.uint8)[shades(values)]
