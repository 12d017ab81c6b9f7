"""Contact sheets, which show pictures of maps for labelling, identified only by number.

Ticks outside the map mark [CLS] (blue) and [SEP] (red). The bar below each column shows the fraction of attention that
the column receives, up to 40%. The bar on the right shows the fraction for [CLS] and [SEP] combined. Bars that reach
the line at half height are red. Bars have a linear scale. Colours have a square-root scale, which makes faint cells
visible.
"""

import functools
import io
from collections.abc import Sequence
from pathlib import Path

import numpy as np
from jaxtyping import Float, UInt8

from bertsecrets.errors import UserError, from_extra
from bertsecrets.patterns.classes import DISPLAYED_QUANTILE, GAMMA
from bertsecrets.store.files import write_whole
from instruments.annotation.map_set import MapSet, PatternMap

with from_extra("pillow"):
    from PIL import Image, ImageDraw, ImageFont

PALETTE = "magma"
FULL_BAR = 0.4  # fraction of all attention at which a column's bar has full height
COLUMNS, ROWS = 4, 3  # maps on a contact sheet, few enough to display it at full size
SIZE, MARGIN, CAPTION, BARS = 264, 10, 20, 28  # in pixels: map, margin, caption above, bars below
PANEL = (SIZE + 2 * MARGIN, SIZE + 2 * MARGIN + CAPTION + BARS)
STACK_GAP = 3  # pixels between the columns' bars and the bar of the special tokens
PAPER, INK, FIRST, LAST, LINE, STRONG = "white", "black", "#1f6fd6", "#d62728", "#2a9d5c", "#e4572e"


def cell_brightness(values: Float[np.ndarray, "tokens tokens"]) -> Float[np.ndarray, "tokens tokens"]:
    """Return the brightness of each cell from 0 to 1, relative to the strongest cells of the map.

    >>> cell_brightness(np.array([[1.0, 0.0], [0.75, 0.25]])).round(2).tolist()
    [[1.0, 0.0], [0.87, 0.5]]
    """
    weights = values.astype(np.float64)
    top = float(np.quantile(weights.max(axis=1), DISPLAYED_QUANTILE))
    return np.clip(weights / top, 0, 1) ** GAMMA if top > 0 else np.zeros_like(weights)


def shades(values: Float[np.ndarray, "tokens tokens"]) -> UInt8[np.ndarray, "tokens tokens"]:
    """Return a map's cells as palette indices (0 is dark, 255 is bright), scaled by the map's strongest cells."""
    return np.round(255 * cell_brightness(values)).astype(np.uint8)


@functools.cache
def palette() -> list[tuple[int, int, int]]:
    """Return 256 colours from dark to bright, as (red, green, blue) from 0 to 255."""
    with from_extra("matplotlib"):
        from matplotlib import colormaps

    return [(int(r), int(g), int(b)) for r, g, b in np.round(255 * colormaps[PALETTE](np.arange(256))[:, :3])]


def colours(values: Float[np.ndarray, "tokens tokens"]) -> UInt8[np.ndarray, "tokens tokens 3"]:
    """Return a map as an RGB image."""
    return np.array(palette(), dtype=np.uint8)[shades(values)]


def separators(shown: PatternMap) -> tuple[int, ...]:
    """Return the positions of the [SEP] tokens at the end of each text."""
    last = shown.tokens - 1
    return (last,) if shown.boundary == shown.tokens else (shown.boundary - 1, last)


def column_shares(shown: PatternMap) -> tuple[list[float], float]:
    """Return the fraction of attention that each column receives, and the total for [CLS] and [SEP]."""
    shares = shown.values.astype(np.float64).mean(axis=0)
    return shares.tolist(), float(shares[sorted({0, *separators(shown)})].sum())


def panel(shown: PatternMap, caption: str = "") -> Image.Image:
    """Return an image of a map with a caption above, ticks at special tokens, and bars below the columns."""
    size = SIZE
    image = Image.new("RGB", PANEL, PAPER)
    pen = ImageDraw.Draw(image)
    left, top = MARGIN, MARGIN + CAPTION
    pen.text((left, 0), caption, INK, font=ImageFont.load_default(CAPTION - 3))
    image.paste(Image.fromarray(colours(shown.values)).resize((size, size), Image.Resampling.NEAREST), (left, top))
    edges = np.round(np.arange(shown.tokens + 1) * size / shown.tokens).astype(int).tolist()
    for place, colour in ((0, FIRST), *((place, LAST) for place in separators(shown))):
        start, end = edges[place], max(edges[place] + 1, edges[place + 1] - 1)
        for offset in (-MARGIN + 2, size + 1):  # ticks above and below the columns, and left and right of the rows
            pen.rectangle((left + start, top + offset, left + end, top + offset + 6), colour)
            pen.rectangle((left + offset, top + start, left + offset + 6, top + end), colour)
    floor, end = top + size + MARGIN + BARS, size + MARGIN - 1
    shares, special = column_shares(shown)
    for start, stop, share in (*zip(edges, edges[1:], shares, strict=False), (size + STACK_GAP, end, special)):
        high = round(BARS * min(1.0, share / FULL_BAR))
        if high:
            colour = STRONG if 2 * high >= BARS else INK
            pen.rectangle((left + start, floor - high, left + stop - 1, floor - 1), colour)
    pen.line((left, floor - BARS // 2, left + end, floor - BARS // 2), LINE)
    return image


def sheet(maps: Sequence[PatternMap]) -> Image.Image:
    """Return an image with a grid of maps, numbered from 1."""
    wide, high = PANEL
    image = Image.new("RGB", (COLUMNS * wide, -(-len(maps) // COLUMNS) * high), PAPER)
    for place, shown in enumerate(maps):
        image.paste(panel(shown, str(place + 1)), (place % COLUMNS * wide, place // COLUMNS * high))
    return image


def write_sheets(maps: MapSet, folder: Path, seed: int, count: int | None = None) -> list[Path]:
    """Write contact sheets of all maps or of `count` random maps, in shuffled order, listed in `index.tsv`.

    Raises:
        UserError: If there are fewer than `count` maps, or the files cannot be written.
    """
    if count is not None and not 1 <= count <= len(maps):
        raise UserError(f"--count {count} is out of range: give 1 to {len(maps)}, the number of maps")
    order = np.random.default_rng(seed).permutation(len(maps))[:count].tolist()
    each_sheet = COLUMNS * ROWS
    lines = ["sheet\tpanel\tname"]
    written = []
    for number, start in enumerate(range(0, len(order), each_sheet), start=1):
        shown = [maps.maps[i] for i in order[start : start + each_sheet]]
        written.append(folder / f"sheet-{number:02d}.png")
        file = io.BytesIO()  # a palette of 256 colours keeps the file small
        sheet(shown).quantize(256, dither=Image.Dither.NONE).save(file, "PNG", optimize=True)
        write_whole(written[-1], file.getvalue())
        lines += [f"{number}\t{place}\t{each.name}" for place, each in enumerate(shown, start=1)]
    write_whole(folder / "index.tsv", "\n".join(lines) + "\n")
    return written
