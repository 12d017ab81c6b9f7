"""The quantities from which features are computed: token masks, and reductions over all cells of the maps.

Reductions over all cells of the maps take most of the time, so each reduction is computed only once. Batches are small
and contain maps of similar length, so they need little padding and fit into the processor's cache. Linear reductions
are matrix products. Features are computed afterwards, in larger batches, from these reductions.
"""

from dataclasses import dataclass, fields
from functools import cached_property

import torch
from jaxtyping import Bool, Float, Int

from bertsecrets.patterns.classes import DISPLAYED_QUANTILE, GAMMA
from bertsecrets.patterns.features.regions import EPSILON, Column, both_texts, entropy, inside
from bertsecrets.patterns.map_stack import MapStack

BATCH_CELLS = 2**18  # maximum number of cells per batch
BAND_DIAGONALS = 5  # diagonals on each side of the main one
MARGIN_COLUMNS = 4  # additional columns on each side of the ribbon, which contains the cells near the diagonal
RIBBON_SHARE = 0.25  # maximum distance of a path from the diagonal, as a fraction of the number of words
OUTSIDE_BRIGHTNESS = -0.5  # brightness of the ribbon's cells outside the map
LIT_CELL, BRIGHT_CELL = 0.2, 0.5  # brightness thresholds, for cells in squares and for cells in columns
BORDER_TOKENS = 3  # number of tokens on each side of the border
DIAGONAL_BATCH_CELLS = 2**16  # maximum number of cells per batch of diagonals
SMEAR_CELLS = 5  # number of cells averaged along the diagonal
FAINTEST_SQUARE = 1e-15  # the squares of smaller numbers are denormal, which makes computations slow
DIAGONAL_REDUCTIONS = ("sums", "light_sums")  # reductions with one entry per diagonal
LENGTHLESS_REDUCTIONS = ("moved", "lit", "unexplained", "beyond_columns")  # reductions without a token or diagonal axis

Cells = Float[torch.Tensor, "maps tokens tokens"]
Row = Float[torch.Tensor, "maps tokens"]
Places = Int[torch.Tensor, "maps tokens"]


class View:
    """A stack of maps, sorted by length, together with reductions, masks, and counts of tokens and words."""

    def __init__(self, stack: MapStack):
        self.stack, self.maps, self.lengths = stack, stack.maps, stack.lengths
        self.tokens = stack.maps.shape[-1]
        self.places = torch.arange(self.tokens, device=stack.maps.device)
        self.steps = torch.arange(1 - self.tokens, self.tokens, device=stack.maps.device)  # column - row, by diagonal
        self.real, self.within, self.texts = stack.real, inside(stack), both_texts(stack)
        self.words = self.within.sum(1)
        self.sizes = self.texts.sum(2)  # number of words in each text
        self.two = self.texts.any(2).all(1)  # whether both texts have words
        self.widest = (RIBBON_SHARE * self.words).round().clamp(min=2)  # maximum distance of a path from the diagonal

    @cached_property
    def read(self) -> "Reductions":
        """The reductions over all cells."""
        return Reductions.from_view(self)

    @cached_property
    def own_size(self) -> Row:
        """Number of words in the text to which each token belongs.

        Special tokens belong to no text, so all words of the input are counted for them. If the input has only one
        text, all words are counted for every token.
        """
        whole = self.words[:, None]
        own = torch.where(self.texts[:, 0], self.sizes[:, :1], torch.where(self.texts[:, 1], self.sizes[:, 1:], whole))
        return torch.where(self.two[:, None], own, whole).clamp(min=1).float()

    @cached_property
    def after_middle(self) -> Bool[torch.Tensor, "maps tokens"]:
        """Mask of the word positions that come after the special token between two texts."""
        edge = self.stack.boundary[:, None]
        return (edge > 1) & (edge < self.lengths[:, None]) & (self.places >= edge - 2)

    @property
    def tokens_of_words(self) -> Places:
        """The token position of each word. Positions after the last word of a map are filled with arbitrary values."""
        return torch.minimum(self.places + 1 + self.after_middle, self.places[-1])

    @cached_property
    def around_border(self) -> Float[torch.Tensor, "maps 2 tokens"]:
        """Masks of the words just before and just after the border between the two texts."""
        border, places = self.stack.boundary[:, None], self.places
        before = self.within & (places >= border - 1 - BORDER_TOKENS) & (places < border - 1)
        after = self.within & (places >= border) & (places < border + BORDER_TOKENS)
        return torch.stack([before, after], dim=1).float()

    @cached_property
    def diagonal_places(self) -> Float[torch.Tensor, "maps 2 2 offsets"]:
        """Number of cells on each diagonal, for each combination of row text and column text."""
        start = self.texts.int().argmax(2)
        end = start + self.sizes
        low = torch.maximum(start[:, :, None, None] + self.steps, start[:, None, :, None])
        high = torch.minimum(end[:, :, None, None] + self.steps, end[:, None, :, None])
        return (high - low).clamp(min=0).float()

    def near(self, marks: Bool[torch.Tensor, "maps tokens"]) -> Float[torch.Tensor, "maps bands tokens"]:
        """Return, for each row, the values of the mask at offsets from -`BAND_DIAGONALS` to `BAND_DIAGONALS`."""
        return torch.nn.functional.pad(marks.float(), (BAND_DIAGONALS, BAND_DIAGONALS)).unfold(1, self.tokens, 1)


@dataclass(frozen=True)
class Weights:
    """Masks, converted to floating-point weights."""

    kinds: Float[torch.Tensor, "maps 7 tokens"]  # masks (real, inside, both texts), and positions in the last three
    close: Row  # maximum distance of cells that count as close to the diagonal, by row
    border: Float[torch.Tensor, "maps 2 tokens"]
    moved: Float[torch.Tensor, "maps 2 tokens"]  # word positions with a token offset of one, and of two

    @classmethod
    def from_view(cls, view: View) -> "Weights":
        """Convert the masks of a stack to weights."""
        kinds = torch.cat([view.real[:, None], view.within[:, None], view.texts], dim=1).float()
        ahead = (
            torch.stack([~view.after_middle, view.after_middle], dim=1) & (view.places < view.words[:, None])[:, None]
        )
        return cls(
            kinds=torch.cat([kinds, kinds[:, 1:] * view.places], dim=1),
            close=(view.own_size / 8).clamp(min=1.5),
            border=view.around_border,
            moved=ahead.float(),
        )

    def part(self, maps: slice, tokens: int) -> "Weights":
        """Return the weights for a slice of the maps, cropped to a number of tokens."""
        return Weights(**{f.name: getattr(self, f.name)[maps, ..., :tokens] for f in fields(self)})


@dataclass(frozen=True)
class Reductions:
    """Sums, maxima and other reductions over all cells of maps, computed from attention weights or from brightness.

    `bands` contains, for each row, the cells that are at most `BAND_DIAGONALS` columns away from the diagonal. `given`
    is the mass from each row to each group of columns (`Weights.kinds`). `sums` contains the sum over each diagonal,
    for each combination of row text and column text. Before attention weights are summed, rows are normalised to sum to
    1 over words.
    """

    first: Row  # the three largest weights in each row
    second: Row
    third: Row
    place: Places  # position of the largest weight
    entropy: Row
    received: Row  # fraction of the total mass received by each token
    given: Float[torch.Tensor, "maps 7 tokens"]
    moved: Column  # weight times distance, summed over cells between words
    bands: Float[torch.Tensor, "maps bands tokens"]
    sums: Float[torch.Tensor, "maps 2 2 offsets"]
    light_bands: Float[torch.Tensor, "maps bands tokens"]
    light_sums: Float[torch.Tensor, "maps 2 2 offsets"]
    light_given: Float[torch.Tensor, "maps 7 tokens"]  # for the fourth power of brightness
    light_received: Float[torch.Tensor, "maps 3 tokens"]  # from all rows, from the first text and from the second text
    brightest: Row  # in each row, the maximum brightness of all words
    brightest_place: Places
    bright_cells: Row  # number of cells above `BRIGHT_CELL` in each column
    lit: Float[torch.Tensor, "maps 2 2"]  # number of cells above `LIT_CELL`, by row text and column text
    unexplained: Column  # squared differences from column means, summed over cells between words
    beyond_columns: Float[torch.Tensor, "maps 2 2"]  # brightness above the column's level in both texts
    brightest_column: Row
    border: Float[torch.Tensor, "maps 2 tokens"]  # brightness of each row at the words before and after the border
    near: Row  # in each row, the maximum brightness of the words that are close to the diagonal
    smear: Row  # like `near`, after averaging along the diagonal; `rest` is the maximum over all other cells
    rest: Row
    ribbon: Float[torch.Tensor, "words maps ribbon"]  # brightness near the diagonal, excluding special tokens

    @classmethod
    def from_view(cls, view: View) -> "Reductions":
        """Compute the reductions for a stack of maps."""
        weights, tokens = Weights.from_view(view), view.tokens
        reach = int(view.widest.max())  # maximum distance of the ribbon
        ribbon = view.maps.new_zeros(tokens, len(view.lengths), 2 * (reach + MARGIN_COLUMNS) + 1)
        parts = []
        for part, stack in view.stack.cut(BATCH_CELLS):
            longest = stack.maps.shape[-1]
            cells = _cells(stack, weights.part(part, longest), ribbon[: max(0, longest - 2), part])
            parts.append({name: _padded(name, value, tokens - longest) for name, value in cells.items()})
        return cls(**{name: torch.cat([read[name] for read in parts]) for name in parts[0]}, ribbon=ribbon)


def _padded(name: str, value: torch.Tensor, more: int) -> torch.Tensor:
    """Pad a reduction to maps with `more` more tokens. The main diagonal stays in the middle of all diagonals."""
    if name in LENGTHLESS_REDUCTIONS:
        return value
    return torch.nn.functional.pad(value, (more if name in DIAGONAL_REDUCTIONS else 0, more))


def _cells(stack: MapStack, by: Weights, ribbon: Float[torch.Tensor, "words maps ribbon"]) -> dict[str, torch.Tensor]:
    """Return the reductions for a small batch of maps, and write the cells near the diagonal to `ribbon`."""
    maps, kinds, rows, lengths = stack.maps, by.kinds, by.kinds[:, (0, 2, 3)], stack.lengths[:, None]
    tokens, within, texts = maps.shape[-1], by.kinds[:, 1], by.kinds[:, 2:4]
    first, place = maps.max(2)
    light = stack_brightness(stack, first)
    read = {"first": first, "place": place, "received": maps.sum(1) / lengths}
    rest = maps.scatter(2, place[:, :, None], 0)
    read["second"], place = rest.max(2)
    read["third"] = rest.scatter_(2, place[:, :, None], 0).amax(2)
    read["entropy"] = entropy(maps, rest)
    read["given"] = given = kinds @ maps.transpose(1, 2)

    room = Sheared(len(maps), tokens, maps.device)
    read["bands"] = bands(maps)
    shares = texts / given[:, 1:2].clamp(min=EPSILON)
    sums = room.sums(maps, torch.cat([shares, within[:, None]], dim=1), texts)
    steps = torch.arange(1.0 - tokens, tokens, device=maps.device).abs_()
    read["sums"], read["moved"] = sums[:, :2], sums[:, 2].sum(1) @ steps
    read["light_bands"] = bands(light)
    read["light_sums"] = room.sums(light, texts, texts)

    read["light_received"] = received = rows @ light
    # Comparisons are written to `rest` as 0.0 and 1.0, which is twice as fast as converting a mask.
    read["bright_cells"] = torch.gt(light, BRIGHT_CELL, out=rest).sum(1)
    read["lit"] = texts @ torch.gt(light, LIT_CELL, out=rest) @ texts.transpose(1, 2)
    height = received[:, 0] / lengths
    off = torch.sub(light, height[:, None, :], out=rest).square_()
    read["unexplained"] = ((within[:, None, :] @ off)[:, 0] * within).sum(1)
    both = (received[:, 1:] / texts.sum(2, keepdim=True).clamp(min=1)).amin(1)
    beyond = torch.sub(light, both[:, None, :], out=rest).clamp_(min=0)
    read["beyond_columns"] = texts @ beyond @ texts.transpose(1, 2)
    column = height.argmax(1)[:, None, None].expand(-1, tokens, 1)
    read["brightest_column"] = light.gather(2, column)[:, :, 0]
    read["border"] = by.border @ light.transpose(1, 2)
    read["light_given"] = kinds @ torch.mul(light, light, out=rest).clamp_(min=FAINTEST_SQUARE).square_().transpose(
        1, 2
    )
    _write_ribbon(light, by.moved, stack.lengths, ribbon)

    light.mul_(within[:, None, :])
    read["brightest"], read["brightest_place"] = light.max(2)
    distance = steps.unfold(0, tokens, 1).flip(0)
    close = torch.le(distance, by.close[:, :, None], out=rest)
    even = along(light).mul_(within[:, None, :])
    read["near"] = light.mul_(close).amax(2)
    smear = close.mul_(even)
    read["smear"], read["rest"] = (most.div_(SMEAR_CELLS) for most in (smear.amax(2), even.sub_(smear).amax(2)))
    return read


def stack_brightness(stack: MapStack, peaks: Row | None = None) -> Cells:
    """Return the brightness of all cells, 0 to 1 (see `patterns.classes`). `peaks` are the rows' largest weights."""
    peaks = stack.maps.amax(2) if peaks is None else peaks
    last = stack.lengths - 1
    place = DISPLAYED_QUANTILE * last.float()
    low = place.floor().long()
    above = torch.stack([last - low, (last - low - 1).clamp(min=0)], dim=1)  # number of peaks above the quantile
    edges = peaks.topk(1 + int(above.max()), dim=1).values.gather(1, above)  # peaks of padding rows are 0
    top = torch.lerp(edges[:, 0], edges[:, 1], place - low)
    return (stack.maps / top.clamp(min=EPSILON)[:, None, None]).clamp_(max=1).pow_(GAMMA)


def bands(maps: Cells) -> Float[torch.Tensor, "maps bands tokens"]:
    """Return the cells of each row that are near the diagonal. Cells outside the map are 0."""
    tokens = maps.shape[-1]
    result = maps.new_zeros(len(maps), 2 * BAND_DIAGONALS + 1, tokens)
    for band, step in zip(result.unbind(1), range(-BAND_DIAGONALS, BAND_DIAGONALS + 1), strict=True):
        if abs(step) < tokens:
            band[:, max(0, -step) : tokens - max(0, step)] = maps.diagonal(step, 1, 2)
    return result


def along(light: Cells) -> Cells:
    """Return the brightness summed over `SMEAR_CELLS` cells along the diagonal, which smooths checkerboard patterns."""
    total = light.clone()
    for step in range(1, SMEAR_CELLS // 2 + 1):
        total[:, :-step, :-step] += light[:, step:, step:]
        total[:, step:, step:] += light[:, :-step, :-step]
    return total


def _write_ribbon(
    light: Cells,
    moved: Float[torch.Tensor, "maps 2 tokens"],
    lengths: Int[torch.Tensor, " maps"],
    ribbon: Float[torch.Tensor, "words maps ribbon"],
) -> None:
    """Write the cells near the diagonal to `ribbon`, excluding special tokens.

    A word's token position is its index among all words plus the number of special tokens before the word: one in the
    first text, and two in the second text.
    """
    words, maps, size = ribbon.shape
    margin = size // 2
    wide = words + 2 * margin
    room = light.new_empty(maps, words + 2, wide)
    room[:, :, :margin] = room[:, :, margin + words :] = OUTSIDE_BRIGHTNESS
    columns = room[:, :, margin : margin + words]
    one, two = moved[:, :, None, :words].unbind(1)
    torch.addcmul(OUTSIDE_BRIGHTNESS * (1 - one - two), light[:, :, 1 : words + 1], one, out=columns)
    columns.addcmul_(light[:, :, 2 : words + 2], two)
    # A step down and to the right advances by one row of `room` plus one element.
    near = [room.as_strided(ribbon.shape, (wide + 1, room.stride(0), 1), row * wide) for row in (1, 2)]
    one, two = moved[:, :, :words].permute(1, 2, 0)[..., None].unbind(0)
    torch.mul(near[0], one, out=ribbon).addcmul_(near[1], two)


class Sheared:
    """A buffer that stores maps so that their diagonals can be read as columns.

    In the buffer, each row of an L x L map is followed by L - 1 zeros, so the row stride is 2 L - 1. In a view with row
    stride 2 L, the columns are the diagonals of the map, and elements outside the map are 0.
    """

    def __init__(self, maps: int, tokens: int, device: torch.device):
        wide, margin = 2 * tokens - 1, tokens - 1
        self.step = max(1, min(maps, DIAGONAL_BATCH_CELLS // tokens**2))
        room = torch.empty(self.step, margin + tokens * wide, device=device).zero_()
        self.cells = room[:, margin:].unflatten(1, (tokens, wide))[:, :, :tokens]
        self.diagonals = room.as_strided((self.step, tokens, wide), (room.stride(0), wide + 1, 1))

    def sums(
        self, maps: Cells, rows: Float[torch.Tensor, "maps kinds tokens"], columns: Float[torch.Tensor, "maps 2 tokens"]
    ) -> Float[torch.Tensor, "maps kinds 2 offsets"]:
        """Return the weighted sum over each diagonal. A cell's weight is its row's weight times its column's weight.

        Diagonals are in the same order as in `View.steps`.
        """
        sums = maps.new_empty(*rows.shape[:2], 2, self.diagonals.shape[2])
        for part, some, by, kinds in zip(*(x.split(self.step) for x in (sums, maps, rows, columns)), strict=True):
            for kind in range(2):
                torch.mul(some, kinds[:, kind, None], out=self.cells[: len(some)])
                part[:, :, kind] = by @ self.diagonals[: len(some)]
        return sums
