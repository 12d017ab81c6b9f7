"""Contact sheets: twelve maps on a page, to be labelled by eye. A panel tells nothing of a map but its number.

Ticks outside the map mark [CLS] (blue) and [SEP] (red). Bars under it show the share of all attention that each column
receives, 40 % at full height; one more, on the right, that of [CLS] and [SEP] together. Bars that reach the line at
half of the height are red. Colours are on a square-root scale, which makes faint cells visible; bars are linear.
"""

import io
from collections.abc import Sequence
from pathlib import Path

import numpy as np

from bertsecrets.errors import UserError
from bertsecrets.extras import from_extra
from bertsecrets.lab.annotation.colours import FULL_BAR, colours
from bertsecrets.patterns.map_set import MapSet, PatternMap
from bertsecrets.store.files import write_whole

with from_extra("pillow"):
    from PIL import Image, ImageDraw, ImageFont

COLUMNS, ROWS = 4, 3  # small enough for viewers to show a page in full size
SIZE, MARGIN, CAPTION, BARS = 264, 10, 20, 28  # pixels: of a map, around it, of the line above, of the bars below
STACK_GAP = 3  # pixels between the columns' bars and that of the special tokens together
PAPER, INK, FIRST, LAST, LINE, STRONG = "white", "black", "#1f6fd6", "#d62728", "#2a9d5c", "#e4572e"


def panel(one: PatternMap, caption: str = "", size: int = SIZE) -> Image.Image:
    """Return a map as an image: caption above, ticks at special tokens, bars of the columns' shares below."""
    image = Image.new("RGB", (size + 2 * MARGIN, size + 2 * MARGIN + CAPTION + BARS), PAPER)
    pen = ImageDraw.Draw(image)
    left, top = MARGIN, MARGIN + CAPTION
    pen.text((left, 0), caption, INK, font=_font(pen, caption, size))
    image.paste(Image.fromarray(colours(one.values)).resize((size, size), Image.Resampling.NEAREST), (left, top))
    edges = np.round(np.arange(one.tokens + 1) * size / one.tokens).astype(int).tolist()
    for place, colour in ((0, FIRST), *((place, LAST) for place in one.separators)):
        start, end = edges[place], max(edges[place] + 1, edges[place + 1] - 1)
        for offset in (-MARGIN + 2, size + 1):  # above and below the columns, left and right of the rows
            pen.rectangle((left + start, top + offset, left + end, top + offset + 6), colour)
            pen.rectangle((left + offset, top + start, left + offset + 6, top + end), colour)
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
    """Return the largest font, up to the caption's height, in which a text is at most `width` pixels wide."""
    fonts = [ImageFont.load_default(points) for points in range(CAPTION - 3, 7, -1)]
    return next((font for font in fonts if pen.textlength(text, font=font) <= width), fonts[-1])


def sheet(
    maps: Sequence[PatternMap], captions: Sequence[str] | None = None, size: int = SIZE, columns: int = COLUMNS
) -> Image.Image:
    """Return an image of maps in rows, numbered from 1 or with the given captions."""
    wide, high = size + 2 * MARGIN, size + 2 * MARGIN + CAPTION + BARS
    image = Image.new("RGB", (columns * wide, -(-len(maps) // columns) * high), PAPER)
    for place, one in enumerate(maps):
        caption = str(place + 1) if captions is None else captions[place]
        image.paste(panel(one, caption, size), (place % columns * wide, place // columns * high))
    return image


def save_image(image: Image.Image, path: Path) -> None:
    """Write a PNG with 256 colours, which keeps it small, completely or not at all.

    Raises:
        UserError: the file cannot be written.
    """
    data = io.BytesIO()
    image.quantize(256, dither=Image.Dither.NONE).save(data, "PNG", optimize=True)
    write_whole(path, data.getvalue())


def write_sheets(maps: MapSet, folder: Path, seed: int, count: int | None = None) -> list[Path]:
    """Write sheets of all maps, or of `count` random ones, in shuffled order; `index.tsv` lists which map is where.

    Raises:
        UserError: there are fewer maps than asked for, or the files cannot be written.
    """
    if count is not None and not 1 <= count <= len(maps):
        raise UserError(f"--count {count} is out of range: give 1 to {len(maps)}, the number of maps")
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
