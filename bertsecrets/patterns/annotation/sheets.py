"""Contact sheets: twelve maps on a page, to be labelled by looking. A panel shows its number and nothing else.

Ticks outside the map stand at [CLS] (blue) and [SEP] (red). Bars under it show what share of all attention each column
gets, 40 % at full height; one more, right of them, has [CLS] and [SEP] stacked. Those that reach the line at half of
the height are red. Colours are on a square-root scale, which flatters faint cells; bars are not.
"""

import io
from collections.abc import Sequence
from pathlib import Path

import numpy as np

from bertsecrets.errors import UserError
from bertsecrets.extras import from_extra
from bertsecrets.patterns.annotation.colours import FULL_BAR, colours
from bertsecrets.patterns.annotation.map_set import MapSet, PatternMap
from bertsecrets.store.files import write_whole

with from_extra("pillow"):
    from PIL import Image, ImageDraw, ImageFont

COLUMNS, ROWS = 4, 3  # a page that viewers show without scaling it down
SIZE, MARGIN, CAPTION, BARS = 264, 10, 20, 28  # pixels: of a map, around it, of the line above, of the bars below
STACK_GAP = 3  # pixels between the columns' bars and that of the special ones stacked
PAPER, INK, FIRST, LAST, LINE, STRONG = "white", "black", "#1f6fd6", "#d62728", "#2a9d5c", "#e4572e"


def panel(one: PatternMap, caption: str = "", size: int = SIZE) -> Image.Image:
    """Return a map as an image: a caption above, ticks at its special tokens, bars of its columns' shares below."""
    image = Image.new("RGB", (size + 2 * MARGIN, size + 2 * MARGIN + CAPTION + BARS), PAPER)
    pen = ImageDraw.Draw(image)
    left, top = MARGIN, MARGIN + CAPTION
    pen.text((left, 0), caption, INK, font=_font(pen, caption, size))
    image.paste(Image.fromarray(colours(one.values)).resize((size, size), Image.Resampling.NEAREST), (left, top))
    edges = np.round(np.arange(one.tokens + 1) * size / one.tokens).astype(int).tolist()
    for place, colour in ((0, FIRST), *((place, LAST) for place in one.separators)):
        start, end = edges[place], max(edges[place] + 1, edges[place + 1] - 1)
        for near in (-MARGIN + 2, size + 1):  # above and below the columns, left and right of the rows
            pen.rectangle((left + start, top + near, left + end, top + near + 6), colour)
            pen.rectangle((left + near, top + start, left + near + 6, top + end), colour)
    floor, end = top + size + MARGIN + BARS, size + MARGIN - 1
    columns = zip(edges, edges[1:], one.shares.tolist(), strict=False)
    for start, stop, share in (*columns, (size + STACK_GAP, end, one.special_share)):
        high = round(BARS * min(1.0, share / FULL_BAR))
        if high:
            colour = STRONG if 2 * high >= BARS else INK
            pen.rectangle((left + start, floor - high, left + stop - 1, floor - 1), colour)
    pen.line((left, floor - BARS // 2, left + end, floor - BARS // 2), LINE)
    return image


def _font(pen: ImageDraw.ImageDraw, text: str, width: int) -> ImageFont.FreeTypeFont | ImageFont.ImageFont:
    """Return the largest font, up to the caption's height, in which a text is no wider than so many pixels."""
    fonts = [ImageFont.load_default(points) for points in range(CAPTION - 3, 7, -1)]
    return next((font for font in fonts if pen.textlength(text, font=font) <= width), fonts[-1])


def sheet(
    maps: Sequence[PatternMap], captions: Sequence[str] | None = None, size: int = SIZE, columns: int = COLUMNS
) -> Image.Image:
    """Return maps in rows of so many, numbered from 1 or with captions of their own."""
    wide, high = size + 2 * MARGIN, size + 2 * MARGIN + CAPTION + BARS
    image = Image.new("RGB", (columns * wide, -(-len(maps) // columns) * high), PAPER)
    for place, one in enumerate(maps):
        caption = str(place + 1) if captions is None else captions[place]
        image.paste(panel(one, caption, size), (place % columns * wide, place // columns * high))
    return image


def save_image(image: Image.Image, path: Path) -> None:
    """Write a PNG of few colours, which keeps it small, whole or not at all.

    Raises:
        UserError: the disk fails.
    """
    data = io.BytesIO()
    image.quantize(256, dither=Image.Dither.NONE).save(data, "PNG", optimize=True)
    write_whole(path, data.getvalue())


def write_sheets(maps: MapSet, folder: Path, seed: int, count: int | None = None) -> list[Path]:
    """Write sheets of all maps, or of `count` drawn at random, in shuffled order; `index.tsv` says which map is where.

    Raises:
        UserError: more maps asked for than there are, or the disk fails.
    """
    if count is not None and not 1 <= count <= len(maps):
        raise UserError(f"{count} maps of {len(maps)}: ask for 1 to {len(maps)}")
    order = np.random.default_rng(seed).permutation(len(maps))[:count].tolist()
    each_sheet = COLUMNS * ROWS
    lines = ["sheet\tpanel\tname"]
    written = []
    for number, start in enumerate(range(0, len(order), each_sheet), start=1):
        shown = [maps[i] for i in order[start : start + each_sheet]]
        written.append(folder / f"sheet-{number:02d}.png")
        save_image(sheet(shown), written[-1])
        lines += [f"{number}\t{place}\t{one.name}" for place, one in enumerate(shown, start=1)]
    write_whole(folder / "index.tsv", "\n".join(lines) + "\n")
    return written
