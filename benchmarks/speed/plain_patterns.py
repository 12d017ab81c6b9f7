"""The features of attention maps, one after the other, each with its own passes over all cells: the plain way.

What `bertsecrets.patterns` computes from readings that are made once is compared with this.
"""

import torch
from jaxtyping import Bool, Float, Int

from bertsecrets.patterns.classes import GAMMA, TOP
from bertsecrets.patterns.estimators import LEAF, Trees
from bertsecrets.patterns.features.regions import (
    TINY,
    Column,
    both_texts,
    inside,
    longest_gap,
    quarter_sizes,
)
from bertsecrets.patterns.map_stack import MapStack

AT_ONCE = 2**21  # cells


def mean(values: Float[torch.Tensor, "maps tokens"], over: Bool[torch.Tensor, "maps tokens"]) -> Column:
    """Return the mean of the values at the marked places; 0 if none is marked."""
    return (values * over).sum(1) / over.sum(1).clamp(min=1)


def quantile(
    values: Float[torch.Tensor, "maps tokens"], over: Bool[torch.Tensor, "maps tokens"], share: float
) -> Column:
    """Return the quantile of the values at the marked places, interpolated linearly; 0 if none is marked."""
    order = values.masked_fill(~over, torch.inf).sort(dim=1).values
    last = (over.sum(1) - 1).clamp(min=0)
    place = share * last
    low = place.long()
    ends = order.gather(1, torch.stack([low, torch.minimum(low + 1, last)], dim=1))
    result = torch.lerp(ends[:, 0], ends[:, 1], place - low)
    return torch.where(over.any(1), result, 0.0)


def band(stack: MapStack, offset: int) -> Float[torch.Tensor, "maps rows"]:
    """Return the weight that each row i gives to token i + offset; 0 if there is no such token."""
    tokens = stack.maps.shape[-1]
    result = stack.maps.new_zeros(len(stack), tokens)
    if abs(offset) < tokens:
        result[:, max(0, -offset) : tokens - max(0, offset)] = stack.maps.diagonal(offset, 1, 2)
    return result


def quarters(
    maps: Float[torch.Tensor, "maps tokens tokens"], texts: Bool[torch.Tensor, "maps 2 tokens"]
) -> Float[torch.Tensor, "maps 2 2"]:
    """Return the sums over the rows of one text and the columns of the other: squares, and corners off the diagonal."""
    marks = texts.to(maps.dtype)
    return marks @ maps @ marks.transpose(1, 2)


def diagonal_sums(maps: Float[torch.Tensor, "maps tokens tokens"]) -> Float[torch.Tensor, "maps offsets"]:
    """Return the sum of every diagonal, from column - row = tokens - 1 down to -(tokens - 1)."""
    count, tokens, _ = maps.shape
    sheared = torch.nn.functional.pad(maps.flip(2), (0, tokens)).flatten(1)[:, :-tokens]
    return sheared.reshape(count, tokens, 2 * tokens - 1).sum(1)


def reach(stack: MapStack, offset: int) -> Bool[torch.Tensor, "maps tokens"]:
    """Return a mask, true on the rows i for which token i + offset exists."""
    places = torch.arange(stack.maps.shape[-1], device=stack.maps.device) + offset
    return (places >= 0) & (places < stack.lengths[:, None])


def stack_brightness(stack: MapStack) -> Float[torch.Tensor, "maps tokens tokens"]:
    """Return every cell's brightness from 0 to 1, as `classes.cell_brightness` does for one map."""
    peaks = stack.maps.amax(2).masked_fill(~stack.real, 2.0).sort(dim=1).values
    place = TOP * (stack.lengths - 1).float()
    low = place.floor().long()
    high = torch.minimum(low + 1, stack.lengths - 1)
    edges = peaks.gather(1, torch.stack([low, high], dim=1))
    top = torch.lerp(edges[:, 0], edges[:, 1], place - low)
    return (stack.maps / top.clamp(min=TINY)[:, None, None]).clamp(max=1) ** GAMMA


def picture_features(stack: MapStack, light: Float[torch.Tensor, "maps tokens tokens"]) -> dict[str, Column]:
    """Return the features: how bright and unbroken columns and diagonals are, and how bright squares are."""
    within, real = inside(stack), stack.real
    marks = within.float()
    haze = torch.einsum("ni,nij,nj->n", marks, light, marks) / within.sum(1).clamp(min=1).square()
    height = (light * real[:, :, None]).sum(1) / stack.lengths[:, None]
    features = {"haze": haze}
    brightest = torch.nn.functional.pad(height, (0, 6)).topk(6, dim=1).values
    for name, upper, lower in (("12", 0, 1), ("16", 0, 5), ("26", 1, 5)):
        features[f"column_gap{name}"] = brightest[:, upper] - brightest[:, lower]
    features["column1_light"], features["column6_light"] = brightest[:, 0], brightest[:, 5]
    features["column_over_haze"] = brightest[:, 0] - haze
    features["column_darker_rows"] = _low(light, height.argmax(1), stack.lengths)
    unbroken = ((light > 0.5).float() * real[:, :, None]).sum(1) / stack.lengths[:, None]
    features["column_unbroken"] = unbroken.amax(1)
    features["columns_half"] = ((unbroken > 0.4).sum(1) / stack.lengths).float()
    features["columns_explain"] = _explained(light, height, within)
    part = MapStack(light, stack.lengths, stack.boundary)
    lines, whole = [], []
    for offset in (-2, -1, 0, 1, 2):
        line = band(part, offset)
        rows = within & reach(stack, offset)
        beside = (band(part, offset - 3) + band(part, offset + 3)) / (
            reach(stack, offset - 3).float() + reach(stack, offset + 3).float()
        ).clamp(min=1)
        lines.append(mean(line, rows))
        whole.append(mean(((line > 0.4) & (line > 1.3 * beside)).float(), rows))
        if not offset:
            features["self_line_over"], features["self_line_unbroken"] = mean(line - beside, rows), whole[-1]
    features["line_light"], features["line_unbroken"] = torch.stack(lines).amax(0), torch.stack(whole).amax(0)
    features["column_minus_line"] = features["column1_light"] - features["line_light"]
    texts = both_texts(stack)
    lights = quarters(light, texts) / quarter_sizes(texts).clamp(min=1)
    squares, corners = lights[:, (0, 1), (0, 1)], lights[:, (0, 1), (1, 0)]
    two = texts.any(2).all(1).float()
    features["square_light"], features["corner_light"] = squares.amin(1) * two, corners.amax(1) * two
    features["square_over_corner"] = (squares.amin(1) - corners.amax(1)) * two
    features["squares_over_corners"] = (squares - corners).sum(1) * two
    return features


def _low(
    light: Float[torch.Tensor, "maps tokens tokens"],
    column: Int[torch.Tensor, " maps"],
    lengths: Int[torch.Tensor, " maps"],
) -> Column:
    """Return a column's brightness in its darker rows: the 20 % quantile over rows."""
    beyond = torch.arange(light.shape[1], device=light.device) >= lengths[:, None]
    rows = light.gather(2, column[:, None, None].expand(-1, light.shape[1], 1))[:, :, 0]
    order = rows.masked_fill(beyond, 2.0).sort(dim=1).values
    return order.gather(1, (0.2 * (lengths - 1)).long()[:, None])[:, 0]


def _explained(
    light: Float[torch.Tensor, "maps tokens tokens"],
    height: Float[torch.Tensor, "maps tokens"],
    within: Bool[torch.Tensor, "maps tokens"],
) -> Column:
    """Return the share of brightness among inside tokens that columns explain: 1 if all rows are equal.

    A column's level is its mean over all rows, including those of special tokens.
    """
    size = within.sum(1).clamp(min=1).float()
    both = (within[:, :, None] & within[:, None, :]).float()
    rest = ((light - height[:, None, :]).square() * both).sum((1, 2)) / size.square()
    level = (height * within).sum(1) / size
    between = mean((height - level[:, None]).square(), within)
    return between / (between + rest + TINY)


OFF_DIAGONAL_CLOSE = (
    0.2  # share of the inside tokens; up to this distance, attention distinguishes a square from a smear
)
OFF_DIAGONAL_FLOOR = 0.05  # share of the uniform weight; differences between weaker cells do not count


def off_diagonal_features(stack: MapStack) -> dict[str, Column]:
    """Return the log ratio of each corner to its expected mass: that of tokens of one text at the same distances.

    A corner is the rows of one text and the columns of the other. The ratio is far below 0 beside squares, and about 0
    in a smear. It is computed for whole corners and for their parts close to the squares; for each corner, and for the
    less dark of the two. All are 0 for one text.
    """
    within, texts = inside(stack), both_texts(stack)
    marks = texts.to(stack.maps.dtype)
    two = texts.any(2).all(1).float()
    size = within.sum(1).clamp(min=1).float()
    floor = OFF_DIAGONAL_FLOOR / size[:, None]
    maps = _bare(stack, within)
    own_places = _places(texts, 0, 0) + _places(texts, 1, 1)
    own = diagonal_sums(maps * (marks.transpose(1, 2) @ marks))
    expected = own / own_places.clamp(min=1) + floor
    corner = [diagonal_sums(maps * marks[:, i, :, None] * marks[:, 1 - i, None, :]) for i in (0, 1)]
    across = [(corner[i], _places(texts, i, 1 - i)) for i in (0, 1)]
    tokens = within.shape[1]
    steps = torch.arange(tokens - 1, -tokens, -1, device=within.device).abs()
    has_own = own_places > 0
    features: dict[str, Column] = {}
    for part, counted in (("", has_own), ("_close", has_own & (steps <= OFF_DIAGONAL_CLOSE * size[:, None]))):
        dark = [
            (((mass + floor * places) * counted).sum(1) + TINY).log()
            - ((expected * places * counted).sum(1) + TINY).log()
            for mass, places in across
        ]
        features |= {f"corner{i}{part}": ratio * two for i, ratio in enumerate(dark)}
        features[f"corners{part}"] = torch.maximum(*dark) * two
    return features


def _bare(stack: MapStack, within: Bool[torch.Tensor, "maps tokens"]) -> Float[torch.Tensor, "maps tokens tokens"]:
    """Return the maps restricted to inside tokens, with rows rescaled to sum to 1."""
    maps = stack.maps * within[:, None, :] * within[:, :, None]
    return maps / maps.sum(2, keepdim=True).clamp(min=TINY)


def _places(texts: Bool[torch.Tensor, "maps 2 tokens"], rows: int, columns: int) -> Float[torch.Tensor, "maps offsets"]:
    """Return the number of cells that each diagonal has in the rows of one text and the columns of another.

    Diagonals are in the order of `diagonal_sums`.
    """
    tokens = texts.shape[2]
    offsets = torch.arange(tokens - 1, -tokens, -1, device=texts.device)
    start = texts.int().argmax(2)
    end = start + texts.sum(2)
    low = torch.maximum(start[:, rows, None] + offsets, start[:, columns, None])
    high = torch.minimum(end[:, rows, None] + offsets, end[:, columns, None])
    return (high - low).clamp(min=0).float()


BAND_SHORT = 5  # words; texts up to this length show no slope
BAND_FAINT = 1e-4  # share of a row; a row that gives its text less does not attend to it
BAND_LIT = 0.45  # a row with a cell this bright near the diagonal does not interrupt a line


def band_features(stack: MapStack, light: Float[torch.Tensor, "maps tokens tokens"]) -> dict[str, Column]:
    """Return the features: how steadily and how brightly rows attend to their own surroundings."""
    within = inside(stack)
    light = light * within[:, None, :]
    tokens = light.shape[1]
    places = torch.arange(tokens, device=light.device)
    distance = (places[None, :] - places[:, None]).abs().float()
    size = _own_size(stack, within)
    marks = within.float()
    mass = torch.einsum("ni,nij,nj->n", marks, stack.maps, marks)
    moved = torch.einsum("ni,nij,nj->n", marks, stack.maps * distance, marks)
    features = {
        "distance": moved / mass.clamp(min=TINY) / stack.lengths,
        **_slopes(stack, light.square().square(), "light"),
        **_slopes(stack, stack.maps, "mass"),
    }
    brightest, part = light.amax(2), MapStack(light, stack.lengths, stack.boundary)
    off = (light.argmax(2) - places).abs() / size
    off = torch.where(brightest > 0, off, torch.inf)  # a row that gives nothing to words has no peak
    features["peak_near"], features["peak_close"] = (mean((off <= share).float(), within) for share in (0.25, 0.125))
    for width in (1, 3):
        near = torch.stack([band(part, offset) for offset in range(-width, width + 1)]).amax(0)
        features[f"ridge{width}_top"] = mean(((near >= brightest) & (brightest > 0)).float(), within)
        features[f"ridge{width}_lit"] = mean((near > 0.35).float(), within)
    close = (distance <= (size / 8).clamp(min=1.5)[:, :, None]).float()
    near = (light * close).amax(2)
    features["near_lit"] = mean((near > 0.4).float(), within)
    features["gap"] = longest_gap(near > BAND_LIT, within) / within.sum(1).clamp(min=1)
    even = _along(light) * within[:, None, :]
    smear, rest = (even * close).amax(2), (even * (1 - close)).amax(2)
    features["smear_light"], features["smear_over"] = mean(smear, within), mean(smear - rest, within)
    features["smear_top"] = mean((smear > rest).float(), within)
    for level in (0.3, 0.4):
        features[f"smear_lit{level:.0%}"] = mean((smear > level).float(), within)
    return features


def _own_size(stack: MapStack, within: Bool[torch.Tensor, "maps tokens"]) -> Float[torch.Tensor, "maps tokens"]:
    """Return the number of words in each token's own text; all words for one text, and for special tokens."""
    texts = both_texts(stack)
    sizes = texts.sum(2)
    whole = within.sum(1, keepdim=True)
    own = torch.where(texts[:, 0], sizes[:, :1], torch.where(texts[:, 1], sizes[:, 1:], whole))
    return torch.where(texts.any(2).all(1)[:, None], own, whole).clamp(min=1).float()


def _along(light: Float[torch.Tensor, "maps tokens tokens"]) -> Float[torch.Tensor, "maps tokens tokens"]:
    """Return the brightness averaged over five cells along the diagonal direction, which evens out chequers."""
    total = light.clone()
    for step in (1, 2):
        total[:, :-step, :-step] += light[:, step:, step:]
        total[:, step:, step:] += light[:, :-step, :-step]
    return total / 5


def _slopes(stack: MapStack, weights: Float[torch.Tensor, "maps tokens tokens"], name: str) -> dict[str, Column]:
    """Return how far the centre of attention moves per row, and how closely the centres follow a straight line.

    Both are 1 on a diagonal, and 0 if all rows of a text attend to the same places. Two texts are computed separately
    and weighted by length; texts of up to five words do not count. Rows that give their text almost nothing have no
    centre.
    """
    texts = both_texts(stack)
    two = texts.any(2).all(1)
    own = torch.cat([texts, inside(stack)[:, None]], dim=1)
    places = torch.arange(weights.shape[1], device=weights.device).float()
    marks = own.to(weights.dtype)
    # For each row: what it gives to each text and to all inside tokens, and the centre of that.
    given = weights @ marks.transpose(1, 2)
    centres = (weights @ (marks * places).transpose(1, 2)) / given.clamp(min=1e-9)
    parts = [_slope(centres[:, :, i], own[:, i] & (given[:, :, i] > BAND_FAINT)) for i in range(3)]
    sizes = texts.sum(2).float()
    share = sizes * (sizes > BAND_SHORT)
    share = share / share.sum(1, keepdim=True).clamp(min=1)
    features = {}
    for k, kind in enumerate(("slope", "follow")):
        both = parts[0][k] * share[:, 0] + parts[1][k] * share[:, 1]
        features[f"{kind}_{name}"] = torch.where(two, both, parts[2][k])
    return features


def _slope(centre: Float[torch.Tensor, "maps tokens"], own: Bool[torch.Tensor, "maps tokens"]) -> tuple[Column, Column]:
    """Return the slope and correlation of the rows' centres against the rows, among the tokens marked `own`."""
    places = torch.arange(centre.shape[1], device=centre.device).float()
    rows = (places - mean(places.expand_as(centre), own)[:, None]) * own
    moved = (centre - mean(centre, own)[:, None]) * own
    product, spread = (rows * moved).sum(1), rows.square().sum(1)
    follow = product / (spread * moved.square().sum(1)).clamp(min=1e-9).sqrt()
    return product / spread.clamp(min=TINY), follow


PATH_WIDEST = 0.25  # largest distance of a path from the diagonal, as a share of the words
PATH_TURN = 1  # largest deviation of a step from the diagonal direction, in columns
PATH_PRICE = 0.05  # brightness that each column of deviation costs
PATH_OUTSIDE = -0.5  # brightness of cells outside the map, low enough that no path stays there
PATH_BESIDE = (-4, -3, 3, 4)  # columns beside the path with which it is compared
PATH_PINK, PATH_LIT = 0.5, 0.35  # brightness that is plainly visible, and just visible


def path_features(stack: MapStack, light: Float[torch.Tensor, "maps tokens tokens"]) -> dict[str, Column]:
    """Return the features: how bright, unbroken and straight the brightest path along the diagonal is, among words."""
    words, held = _words(stack, light)
    count = held.sum(1)
    path, value = _path(words, count)
    columns = (torch.arange(words.shape[1], device=words.device) + path).clamp(0, words.shape[1] - 1)
    ahead = value - _beside(words, columns, count)
    peak = words.amax(2)
    moves = (path[:, 1:] - path[:, :-1]).abs().float()
    size = count.clamp(min=1)
    return {
        "seam_light": mean(value, held),
        "seam_quarter": quantile(value, held, 0.25),
        "seam_half": quantile(value, held, 0.5),
        "seam_over": mean(ahead, held),
        "seam_over_quarter": quantile(ahead, held, 0.25),
        "seam_pink": mean((value > PATH_PINK).float(), held),
        "seam_lit": mean((value > PATH_LIT).float(), held),
        "seam_moves": mean(moves, held[:, 1:]),
        "seam_off": mean(path.abs().float(), held) / size,
        "seam_top": mean(((value >= peak) & (peak > 0)).float(), held),  # an empty row has no peak
        "seam_share": mean(value / peak.clamp(min=0.05), held),
        "seam_gap": longest_gap(value >= PATH_LIT, held) / size,
    }


def _words(
    stack: MapStack, light: Float[torch.Tensor, "maps tokens tokens"]
) -> tuple[Float[torch.Tensor, "maps words words"], Bool[torch.Tensor, "maps words"]]:
    """Return the maps without their special tokens, and a mask that is false on padding rows."""
    within = inside(stack)
    order = (~within).int().argsort(dim=1, stable=True)
    held = torch.arange(within.shape[1], device=light.device) < within.sum(1, keepdim=True)
    rows = light.gather(1, order[:, :, None].expand_as(light))
    words = rows.gather(2, order[:, None, :].expand_as(light))
    return words * held[:, None, :] * held[:, :, None], held


def _path(
    words: Float[torch.Tensor, "maps words words"], count: Int[torch.Tensor, " maps"]
) -> tuple[Int[torch.Tensor, "maps words"], Float[torch.Tensor, "maps words"]]:
    """Return, for each row, the distance of the brightest path from the diagonal in columns, and its brightness."""
    maps, tokens, _ = words.shape
    reach = max(2, round(PATH_WIDEST * tokens))
    offsets = torch.arange(-reach, reach + 1, device=words.device)
    columns = torch.arange(tokens, device=words.device)[:, None] + offsets
    ribbon = words.gather(2, columns.clamp(0, tokens - 1).expand(maps, -1, -1))
    ribbon = ribbon.masked_fill((columns < 0) | (columns >= count[:, None, None]), PATH_OUTSIDE)
    allowed = offsets.abs() <= (PATH_WIDEST * count).round().clamp(min=2)[:, None]
    ribbon = ribbon.masked_fill(~allowed[:, None, :], -1e4)
    turns = torch.arange(-PATH_TURN, PATH_TURN + 1, device=words.device)
    price = PATH_PRICE * turns.abs()
    total, came = ribbon[:, 0], []
    for row in range(1, tokens):
        before = torch.nn.functional.pad(total, (PATH_TURN, PATH_TURN), value=-1e9).unfold(1, 2 * PATH_TURN + 1, 1)
        best, turn = (before - price).max(2)
        going = (row < count)[:, None]
        total = torch.where(going, best + ribbon[:, row], total)
        came.append(torch.where(going, turn - PATH_TURN, 0))
    at = total.argmax(1, keepdim=True)
    taken = [at]
    for turn in reversed(came):
        at = at + turn.gather(1, at)
        taken.append(at)
    place = torch.cat(taken[::-1], dim=1)
    return place - reach, ribbon.gather(2, place[:, :, None])[:, :, 0].clamp(min=0)


def _beside(
    words: Float[torch.Tensor, "maps words words"],
    columns: Int[torch.Tensor, "maps words"],
    count: Int[torch.Tensor, " maps"],
) -> Float[torch.Tensor, "maps words"]:
    """Return the mean brightness a few columns off a path."""
    near = columns[:, :, None] + torch.tensor(PATH_BESIDE, device=words.device)
    exists = (near >= 0) & (near < count[:, None, None])
    value = words.gather(2, near.clamp(0, words.shape[1] - 1)) * exists
    return value.sum(2) / exists.sum(2).clamp(min=1)


BLOCKS_LIT = 0.2  # brightness from which a cell of a square counts as lit
BLOCKS_STEP = 3  # tokens on each side of the border


def block_features(stack: MapStack, light: Float[torch.Tensor, "maps tokens tokens"]) -> dict[str, Column]:
    """Return the features: how full squares and corners are, how far the squares reach, how sharp the border is."""
    texts = both_texts(stack)
    two = texts.any(2).all(1).float()
    marks, sizes = texts.float(), texts.sum(2)
    places = quarter_sizes(texts).clamp(min=1)
    lit = quarters((light > BLOCKS_LIT).float(), texts) / places
    square, corner = lit[:, (0, 1), (0, 1)], lit[:, (0, 1), (1, 0)].amax(1)
    larger = square.gather(1, sizes.argmax(1, keepdim=True))[:, 0]
    features = {"square_lit": square.amin(1), "corner_lit": corner, "larger_square_over": larger - corner}
    # The brightness of each column in the rows of either text; the part common to both runs through, outside any
    # square.
    seen = torch.einsum("nti,nij->ntj", marks, light) / sizes.clamp(min=1)[:, :, None]
    rest = (light - seen.amin(1)[:, None, :]).clamp(min=0)
    features["square_rest"] = (quarters(rest, texts) / places)[:, (0, 1), (0, 1)].amin(1)
    for i in (0, 1):
        features[f"own_columns{i}"] = mean(seen[:, i] - seen[:, 1 - i], texts[:, i])
    features |= _reach(stack, light) | {"border_step": _step(stack, light)}
    return {name: value * two for name, value in features.items()}


def _reach(stack: MapStack, light: Float[torch.Tensor, "maps tokens tokens"]) -> dict[str, Column]:
    """Return the brightness of the squares far from the diagonal, compared with the corners and with what is near."""
    texts = both_texts(stack)
    mass, sizes = quarters(light, texts), quarter_sizes(texts)
    dark = mass[:, (0, 1), (1, 0)].sum(1) / sizes[:, (0, 1), (1, 0)].sum(1).clamp(min=1)
    places = torch.arange(light.shape[1], device=light.device).float()
    distance = (places[None, :] - places[:, None]).abs()
    apart = distance.clone().fill_diagonal_(torch.inf)  # a token is not its own neighbour
    parts = []
    for words in texts.float().unbind(1):
        size = words.sum(1)[:, None, None]
        for part in ((distance > 0.5 * size).float(), (apart <= 0.25 * size).float()):
            parts += [torch.einsum("ni,nij,nj->n", words, cells, words) for cells in (light * part, part)]
    far, near = ((parts[k] + parts[k + 4]) / (parts[k + 1] + parts[k + 5]).clamp(min=1) for k in (0, 2))
    return {"far_light": far, "far_over_corner": far - dark, "far_over_near": far / (near + 0.05)}


def _step(stack: MapStack, light: Float[torch.Tensor, "maps tokens tokens"]) -> Column:
    """Return the change of brightness at the border, in the rows of the text where it changes less."""
    places = torch.arange(light.shape[1], device=light.device)
    border, within, texts = stack.boundary[:, None], inside(stack), both_texts(stack)
    before = within & (places >= border - 1 - BLOCKS_STEP) & (places < border - 1)
    after = within & (places >= border) & (places < border + BLOCKS_STEP)
    change = [
        mean((light * before[:, None, :]).sum(2) / before.sum(1).clamp(min=1)[:, None], rows)
        - mean((light * after[:, None, :]).sum(2) / after.sum(1).clamp(min=1)[:, None], rows)
        for rows in texts.unbind(1)
    ]
    return torch.minimum(change[0], -change[1])


TABLE_BANDS = (-2, -1, 0, 1, 2)  # column minus row: -1 is the previous token


def features(stack: MapStack) -> Float[torch.Tensor, "maps features"]:
    """Return the features of every map, in the order of `feature_names`."""
    step = max(1, AT_ONCE // stack.maps.shape[-1] ** 2)
    places = [slice(start, start + step) for start in range(0, len(stack), step)]
    parts = [MapStack(stack.maps[part], stack.lengths[part], stack.boundary[part]) for part in places]
    return torch.cat([torch.stack(list(_all(part).values()), dim=1) for part in parts])


def _all(stack: MapStack) -> dict[str, Column]:
    named: dict[str, Column] = {}
    for part in (_special, _bands, _segments, _rows, _columns):
        named |= part(stack)
    light = stack_brightness(stack)
    named |= picture_features(stack, light) | off_diagonal_features(stack) | band_features(stack, light)
    named |= path_features(stack, light) | block_features(stack, light)
    named["log_length"] = stack.lengths.float().log()
    named["two_texts"] = (stack.boundary < stack.lengths).float()
    return named


def _special(stack: MapStack) -> dict[str, Column]:
    """Return the share of each special place, of all of them, and of the strongest column if that is larger."""
    received = stack.maps.sum(1) / stack.lengths[:, None]
    cls, middle, last = received.gather(1, stack.special()).unbind(1)
    two = stack.boundary < stack.lengths
    named = {"cls": cls, "middle_sep": torch.where(two, middle, 0.0), "last_sep": last}
    named["special"] = named["cls"] + named["middle_sep"] + named["last_sep"]
    return named | {"strong": torch.maximum(named["special"], received.amax(1))}


def _bands(stack: MapStack) -> dict[str, Column]:
    """Return the share of each diagonal, in all mass and in what stays inside, and how steady the best one is."""
    within = inside(stack)
    kept = (stack.maps * within[:, None, :]).sum(2)  # for each row, what it gives to inside tokens
    count = stack.lengths.float()
    named: dict[str, Column] = {}
    near = torch.zeros_like(count)
    rows_on_band = []
    for offset in TABLE_BANDS:
        given = band(stack, offset)
        if abs(offset) <= 1:
            named[f"band{offset:+d}"] = given.sum(1) / count
        lands = torch.roll(within, -offset, 1) & within
        rows_on_band.append(torch.where(lands, given, 0.0))
        if abs(offset) <= 1:
            near = near + (given * lands).sum(1)
    rows = torch.stack(rows_on_band)
    named["near"] = near / (stack.maps.sum(2) * within).sum(1).clamp(min=TINY)
    named["near_of_inside"] = near / (kept * within).sum(1).clamp(min=TINY)
    best = rows.amax(0)
    named["best_band_half"] = mean((best > 0.5).float(), within)
    named["best_band_tenth"] = mean((best > 0.1).float(), within)
    sides = {"previous": rows[1], "self": rows[2], "next": rows[3]}
    for name, row in sides.items():
        named[f"{name}_of_inside"] = (row * within).sum(1) / (kept * within).sum(1).clamp(min=TINY)
    return named


def _segments(stack: MapStack) -> dict[str, Column]:
    """Return how far attention between inside tokens stays in its own text, compared with a uniform map."""
    texts = both_texts(stack)
    two = texts.any(2).all(1).float()
    mass, places = quarters(stack.maps, texts), quarter_sizes(texts)
    own, own_places = mass[:, (0, 1), (0, 1)].sum(1), places[:, (0, 1), (0, 1)].sum(1)
    whole, whole_places = mass.sum((1, 2)), places.sum((1, 2))
    inner = (own + TINY) / own_places.clamp(min=1)
    outer = ((whole - own).clamp(min=0) + TINY) / (whole_places - own_places).clamp(min=1)
    return {
        "own_text": (own / whole.clamp(min=TINY) - own_places / whole_places.clamp(min=1)) * two,
        "own_density": (inner.log() - outer.log()) * two,
    }


def _entropy(rows: Float[torch.Tensor, "... tokens"]) -> Float[torch.Tensor, "..."]:
    return -torch.special.xlogy(rows, rows).sum(-1)


def _rows(stack: MapStack) -> dict[str, Column]:
    """Return the entropy of rows and of their mean, as shares of log L, and the mass of a row's strongest cells."""
    real = stack.real
    scale = stack.lengths.float().log().clamp(min=TINY)
    average = mean(_entropy(stack.maps) / scale[:, None], real)
    spread = _entropy(stack.maps.sum(1) / stack.lengths[:, None]) / scale
    top = stack.maps.topk(min(3, stack.maps.shape[-1]), dim=2).values
    return {
        "row_entropy": average,
        "column_entropy": spread,
        "row_information": spread - average,
        "row_max": mean(top[:, :, 0], real),
        "row_top3": mean(top.sum(2), real),
    }


def _columns(stack: MapStack) -> dict[str, Column]:
    """Return how concentrated attention is on few columns: masses of the top columns, and places of rows' maxima."""
    within, real = inside(stack), stack.real
    received = stack.maps.sum(1) / stack.lengths[:, None]
    tokens = received.shape[1]

    def top(values: Float[torch.Tensor, "maps tokens"], k: int) -> Column:
        return values.topk(min(k, tokens), dim=1).values.sum(1)

    inner = received * within
    count = stack.lengths.float()
    named = {f"top{k}": top(received, k) for k in (1, 2, 3)}
    named["inside_top3"] = top(inner, 3)
    named["top5"] = top(received, 5)
    sixth = torch.nn.functional.pad(received, (0, 6)).topk(6, dim=1).values[:, 5]
    named["top1_over_sixth"] = ((named["top1"] + TINY) / (sixth + TINY)).log()
    named["inside_top1_over_uniform"] = (inner.amax(1) * count + TINY).log()
    named["top1_over_uniform"] = (received.amax(1) * count + TINY).log()
    named["column_std"] = (mean((received * count[:, None] - 1).square(), real)).sqrt().log1p()
    inner_average = mean(inner, within)
    named["inside_column_cv"] = mean((inner - inner_average[:, None]).square(), within).sqrt() / (inner_average + TINY)
    peak = stack.maps.argmax(2)
    special = (peak[:, :, None] == stack.special()[:, None, :]).any(2)
    named["peak_special"] = mean(special.float(), real)
    votes = torch.zeros_like(received).scatter_add(1, peak, real.float())
    named["peak_one_column"] = votes.amax(1) / count
    return named


def tree_probabilities(
    trees: Trees, table: Float[torch.Tensor, "maps features"]
) -> Float[torch.Tensor, "maps classes"]:
    """Return the class probabilities that boosted trees give maps, node by node in double precision."""
    node, wide = trees.roots.expand(len(table), -1), table.double()
    for _ in range(trees.depth):
        feature = trees.feature[node]
        left = wide.gather(1, feature.clamp(min=0)) <= trees.threshold[node]
        node = torch.where(feature == LEAF, node, torch.where(left, trees.left[node], trees.right[node]))
    return (trees.start + trees.value[node].sum(1)).softmax(1)
