"""What the features are computed from: masks of tokens, and what is read from all cells of the maps, row by row.

Passing over all cells is what takes time. So each reading is made once, a few maps at a time, which stay in the
processor's cache, and readings that are linear in the cells are made together, as matrix products. The features are
computed from the readings of many maps at once.
"""

from collections.abc import Callable
from dataclasses import dataclass, fields
from functools import cached_property

import torch
from jaxtyping import Bool, Float, Int

from bertsecrets.patterns.brightness import GAMMA, TOP
from bertsecrets.patterns.features.regions import TINY, Column, both_texts, inside
from bertsecrets.patterns.map_stack import MapStack

CELLS = 2**18  # cells that are read together
BANDS = 5  # bands on each side of the main diagonal that are kept
BESIDE = 4  # columns beside the ribbon that are kept
WIDEST = 0.25  # largest distance of the ribbon from the diagonal, as a share of the words
OUTSIDE = -0.5  # brightness of the ribbon's cells outside the map
LIT, BRIGHT = 0.2, 0.5  # brightness from which a cell of a square, of a column counts as lit
STEP = 3  # tokens on each side of the border

Cells = Float[torch.Tensor, "maps tokens tokens"]
Row = Float[torch.Tensor, "maps tokens"]
Places = Int[torch.Tensor, "maps tokens"]


class Marks:
    """Which tokens of a stack of maps are real, which are words, and of which text; and how many."""

    def __init__(self, stack: MapStack):
        self.stack, self.maps, self.lengths = stack, stack.maps, stack.lengths
        self.tokens = stack.maps.shape[-1]
        self.places = torch.arange(self.tokens, device=stack.maps.device)
        self.steps = torch.arange(1 - self.tokens, self.tokens, device=stack.maps.device)  # column - row, by diagonal
        self.real, self.within, self.texts = stack.real, inside(stack), both_texts(stack)
        self.words = self.within.sum(1)
        self.sizes = self.texts.sum(2)  # words of each text
        self.two = self.texts.any(2).all(1)  # both texts have words
        self.widest = (WIDEST * self.words).round().clamp(min=2)  # largest distance of a path from the diagonal

    @property
    def kinds(self) -> Float[torch.Tensor, "maps tokens 7"]:
        """Kinds of columns: all real ones, inside, of either text; and the places of the last three."""
        kinds = torch.cat([self.real[:, None], self.within[:, None], self.texts], dim=1).float()
        return torch.cat([kinds, kinds[:, 1:] * self.places], dim=1).transpose(1, 2)

    @property
    def own_size(self) -> Row:
        """The number of words in each token's own text; all words for one text, and for special tokens."""
        whole = self.words[:, None]
        own = torch.where(self.texts[:, 0], self.sizes[:, :1], torch.where(self.texts[:, 1], self.sizes[:, 1:], whole))
        return torch.where(self.two[:, None], own, whole).clamp(min=1).float()

    @property
    def close(self) -> Row:
        """The distance up to which a cell counts as close to the diagonal."""
        return (self.own_size / 8).clamp(min=1.5)

    @property
    def tokens_of_words(self) -> Places:
        """Each word's place among the tokens; words after a map's last have the place of some token."""
        edge = self.stack.boundary[:, None]
        between = (edge > 1) & (edge < self.lengths[:, None])  # a special token stands between two texts
        return torch.minimum(self.places + 1 + (between & (self.places >= edge - 2)), self.places[-1])

    @cached_property
    def beside_border(self) -> Float[torch.Tensor, "maps tokens 2"]:
        """The last words before the border between the texts, and the first after it."""
        border, places = self.stack.boundary[:, None], self.places
        before = self.within & (places >= border - 1 - STEP) & (places < border - 1)
        after = self.within & (places >= border) & (places < border + STEP)
        return torch.stack([before, after], dim=2).float()

    @cached_property
    def diagonal_places(self) -> Float[torch.Tensor, "maps 2 2 offsets"]:
        """The number of cells that each diagonal has in the rows of one text and the columns of another."""
        start = self.texts.int().argmax(2)
        end = start + self.sizes
        low = torch.maximum(start[:, :, None, None] + self.steps, start[:, None, :, None])
        high = torch.minimum(end[:, :, None, None] + self.steps, end[:, None, :, None])
        return (high - low).clamp(min=0).float()

    def near(self, marks: Bool[torch.Tensor, "maps tokens"]) -> Float[torch.Tensor, "maps tokens bands"]:
        """Return, for each row, the marks of the tokens from `BANDS` before it to `BANDS` after it."""
        return torch.nn.functional.pad(marks.float(), (BANDS, BANDS)).unfold(1, 2 * BANDS + 1, 1)


@dataclass(frozen=True)
class Readings:
    """What is read from all cells; a `light_...` is of their brightness, anything else of their weights.

    Bands are the cells of each row from `BANDS` before the diagonal to `BANDS` after it. `..._given` is what each row
    gives to each of `Marks.kinds`. `..._sums` are sums over diagonals, by the text of their rows and of their columns;
    those of weights are of rows that are rescaled to sum to 1 among words.
    """

    first: Row  # each row's three largest weights
    second: Row
    third: Row
    place: Places  # of the largest
    entropy: Row
    received: Row  # by each token from all rows, in shares of the whole
    given: Float[torch.Tensor, "maps tokens 7"]
    moved: Column  # weight times distance, over all cells between words
    bands: Float[torch.Tensor, "maps tokens bands"]
    sums: Float[torch.Tensor, "maps 2 2 offsets"]
    light_bands: Float[torch.Tensor, "maps tokens bands"]
    light_sums: Float[torch.Tensor, "maps 2 2 offsets"]
    light_given: Float[torch.Tensor, "maps tokens 7"]  # of the fourth power
    light_received: Float[torch.Tensor, "maps 3 tokens"]  # from all rows, and from those of either text
    brightest: Row  # the largest brightness that each row gives to a word
    brightest_place: Places
    bright_cells: Row  # cells of each column above `BRIGHT`
    lit: Float[torch.Tensor, "maps 2 2"]  # cells above `LIT` in the rows of one text and the columns of another
    unexplained: Column  # squared differences from the columns' means, over all cells between words
    beyond_columns: Float[torch.Tensor, "maps 2 2"]  # brightness above what a column has in the rows of both texts
    brightest_column: Row
    border: Float[torch.Tensor, "maps tokens 2"]  # what each row gives to the words before and after the border
    near: Row  # the largest brightness of each row close to the diagonal, among words
    smear: Row  # the same evened out along the diagonal, and the largest that is not close
    rest: Row
    ribbon: Float[torch.Tensor, "words maps ribbon"]  # brightness near the diagonal, special tokens left out

    @classmethod
    def of(cls, stack: MapStack, reach: int) -> "Readings":
        """Return the readings of a stack.

        Args:
            reach: the largest distance of the ribbon from the diagonal.
        """
        parts = [cls(**_cells(Marks(part), reach)) for _, part in stack.chunks(CELLS)]
        if len(parts) == 1:
            return parts[0]
        joined = {f.name: [getattr(part, f.name) for part in parts] for f in fields(cls)}
        return cls(**{name: torch.cat(values, dim=int(name == "ribbon")) for name, values in joined.items()})


def _cells(marks: Marks, reach: int) -> dict[str, torch.Tensor]:
    maps, texts, within = marks.maps, marks.texts.float(), marks.within.float()
    first, place = maps.max(2)
    light = stack_brightness(marks.stack, first)
    read = {"first": first, "place": place, "received": maps.sum(1) / marks.lengths[:, None], "light": light}
    rest = maps.scatter(2, place[:, :, None], 0)
    read["second"], place = rest.max(2)
    read["third"] = rest.scatter_(2, place[:, :, None], 0).amax(2)
    read["entropy"] = entropy(maps, rest)
    kinds = marks.kinds
    read["given"] = given = maps @ kinds
    distance = (marks.places[None, :] - marks.places[:, None]).abs().float()
    read["moved"] = ((torch.mul(maps, distance, out=rest) @ within[:, :, None])[:, :, 0] * within).sum(1)

    room = Sheared(len(maps), marks.tokens, maps.device)
    read["bands"] = room.bands(maps)
    read["sums"] = room.sums(maps, texts / given[:, :, 1].clamp(min=TINY)[:, None, :], texts)
    read["light_bands"] = room.bands(light)
    read["light_sums"] = room.sums(light, texts, texts)

    rows = torch.cat([marks.real[:, None].float(), texts], dim=1)
    read["light_received"] = received = rows @ light
    read["bright_cells"] = _compared(torch.gt, light, BRIGHT, rest).sum(1)
    read["lit"] = texts @ _compared(torch.gt, light, LIT, rest) @ texts.transpose(1, 2)
    height = received[:, 0] / marks.lengths[:, None]
    off = torch.sub(light, height[:, None, :], out=rest).square_()
    read["unexplained"] = ((within[:, None, :] @ off)[:, 0] * within).sum(1)
    both = (received[:, 1:] / marks.sizes.clamp(min=1)[:, :, None]).amin(1)
    beyond = torch.sub(light, both[:, None, :], out=rest).clamp_(min=0)
    read["beyond_columns"] = texts @ beyond @ texts.transpose(1, 2)
    column = height.argmax(1)[:, None, None].expand(-1, marks.tokens, 1)
    read["brightest_column"] = light.gather(2, column)[:, :, 0]
    read["border"] = light @ marks.beside_border
    read["ribbon"] = _ribbon(light, marks, reach)
    read["light_given"] = torch.mul(light, light, out=rest).square_() @ kinds

    light = read.pop("light").mul_(within[:, None, :])
    read["brightest"], read["brightest_place"] = light.max(2)
    close = _compared(torch.le, distance, marks.close[:, :, None], rest)
    even = along(light).mul_(within[:, None, :])
    read["near"] = light.mul_(close).amax(2)
    smear = close.mul_(even)
    read["smear"], read["rest"] = smear.amax(2), even.sub_(smear).amax(2)
    return read


def stack_brightness(stack: MapStack, peaks: Row | None = None) -> Cells:
    """Return every cell's brightness from 0 to 1, as `brightness.cell_brightness` does for one map.

    Args:
        peaks: each row's largest weight, if it is known.
    """
    peaks = stack.maps.amax(2) if peaks is None else peaks
    order = peaks.masked_fill(~stack.real, 2.0).sort(dim=1).values
    place = TOP * (stack.lengths - 1).float()
    low = place.floor().long()
    high = torch.minimum(low + 1, stack.lengths - 1)
    edges = order.gather(1, torch.stack([low, high], dim=1))
    top = torch.lerp(edges[:, 0], edges[:, 1], place - low)
    return (stack.maps / top.clamp(min=TINY)[:, None, None]).clamp_(max=1).pow_(GAMMA)


def entropy(
    rows: Float[torch.Tensor, "*rows tokens"], room: Float[torch.Tensor, "*rows tokens"] | None = None
) -> Float[torch.Tensor, "*rows"]:
    """Return the entropy of rows in nats; `room` is overwritten."""
    logs = torch.clamp(rows, min=torch.finfo(rows.dtype).tiny, out=room).log_()
    return -logs.mul_(rows).sum(-1)


def along(light: Cells) -> Cells:
    """Return the brightness averaged over five cells along the diagonal direction, which evens out chequers."""
    total = light.clone()
    for step in (1, 2):
        total[:, :-step, :-step] += light[:, step:, step:]
        total[:, step:, step:] += light[:, :-step, :-step]
    return total.div_(5)


def _compared(compare: Callable[..., torch.Tensor], cells: torch.Tensor, other: object, out: Cells) -> Cells:
    """Return a comparison as 1 and 0, at half the price of a mask and its conversion."""
    return compare(cells, other, out=out)


def _ribbon(light: Cells, marks: Marks, reach: int) -> Float[torch.Tensor, "words maps ribbon"]:
    maps, width, tokens = len(light), marks.tokens, marks.tokens_of_words
    starts = torch.arange(maps, device=light.device)[:, None] * width
    rows = light.flatten(0, 1).index_select(0, (starts + tokens).flatten()).unflatten(0, (maps, width))
    margin = reach + BESIDE
    wide = width + 2 * margin
    room = rows.new_empty(maps, width, wide)
    room[:, :, :margin], room[:, :, margin + width - 2 :] = OUTSIDE, OUTSIDE
    # Columns are moved to the places of their words: by one token or, after a special token between two texts, by two.
    words = room[:, :, margin : margin + width - 2]
    torch.where((tokens - marks.places > 1)[:, None, :-2], rows[:, :, 2:], rows[:, :, 1:-1], out=words)
    words.masked_fill_((marks.places[:-2] >= marks.words[:, None])[:, None, :], OUTSIDE)
    # One row down and one column to the right is one row of `room` and one number further.
    return room.as_strided((width, maps, 2 * margin + 1), (wide + 1, width * wide, 1)).contiguous()


class Sheared:
    """Room for maps whose diagonals can be read as columns.

    Behind each row stand as many zeros as the map has columns, less one. So one row down and one column on is a step of
    as many numbers as a row has, plus one; what lies outside a map is 0.
    """

    def __init__(self, maps: int, tokens: int, device: torch.device):
        wide = 2 * tokens - 1
        margin = max(tokens - 1, BANDS)
        room = torch.zeros(maps, margin + tokens * wide + BANDS, device=device)
        self.cells = room[:, margin : margin + tokens * wide].unflatten(1, (tokens, wide))[:, :, :tokens]
        self._diagonals = room.as_strided((maps, tokens, wide), (room.stride(0), wide + 1, 1), margin - tokens + 1)
        self._bands = room.as_strided((maps, tokens, 2 * BANDS + 1), (room.stride(0), wide + 1, 1), margin - BANDS)
        self._beyond = tokens <= BANDS  # bands of so few tokens leave their row's zeros

    def bands(self, maps: Cells) -> Float[torch.Tensor, "maps tokens bands"]:
        """Return the cells of each row near the diagonal; 0 outside the map."""
        self.cells.copy_(maps)
        bands = self._bands.clone(memory_format=torch.contiguous_format)  # the room is used again
        if self._beyond:
            tokens = maps.shape[-1]
            columns = torch.arange(tokens)[:, None] + torch.arange(-BANDS, BANDS + 1)
            bands *= ((columns >= 0) & (columns < tokens)).to(bands.device)
        return bands

    def sums(
        self, maps: Cells, rows: Float[torch.Tensor, "maps kinds tokens"], columns: Float[torch.Tensor, "maps 2 tokens"]
    ) -> Float[torch.Tensor, "maps kinds 2 offsets"]:
        """Return the sums of the diagonals over rows with some weights and columns with others.

        Diagonals are in the order of `Marks.steps`.
        """
        found = []
        for weights in columns.unbind(1):
            torch.mul(maps, weights[:, None, :], out=self.cells)
            found.append(rows @ self._diagonals)
        return torch.stack(found, dim=2)
