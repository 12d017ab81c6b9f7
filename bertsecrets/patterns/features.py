"""What can be read off a map of attention in words: how much goes where, in numbers that do not depend on its length.

Every feature is named, and computed for many padded maps at once. P is the L x L map whose rows sum to 1. Shares are of
the whole mass (L). The special places are [CLS], the [SEP] between the texts and the last token; the rest is the inside.
"""

import torch
from jaxtyping import Bool, Float

from bertsecrets.patterns.stack import MapStack

BANDS = (-3, -2, -1, 0, 1, 2, 3)  # column minus row: -1 is the previous token
TINY = 1e-6
Column = Float[torch.Tensor, " maps"]


def features(stack: MapStack) -> Float[torch.Tensor, "maps features"]:
    """The named features of every map, in the order of `NAMES`."""
    parts = [torch.stack(list(_all(part).values()), dim=1) for _, part in stack.chunks()]
    return torch.cat(parts) if parts else torch.empty(0, len(NAMES))


def _all(stack: MapStack) -> dict[str, Column]:
    found: dict[str, Column] = {}
    for part in (_special, _bands, _segments, _rows, _columns, _energy, _contrast):
        found |= part(stack)
    found["log_length"] = stack.lengths.float().log()
    found["two_texts"] = (stack.boundary < stack.lengths).float()
    return found


def inside(stack: MapStack) -> Bool[torch.Tensor, "maps tokens"]:
    """True on real tokens that are not special."""
    return stack.real.scatter(1, stack.special(), False)


def _mean(values: Float[torch.Tensor, "maps tokens"], over: Bool[torch.Tensor, "maps tokens"]) -> Column:
    """The mean of the values over the places marked; 0 where there are none."""
    return (values * over).sum(1) / over.sum(1).clamp(min=1)


def _special(stack: MapStack) -> dict[str, Column]:
    """Share of the mass on each special place, and on the two [SEP]s together."""
    received = stack.maps.sum(1) / stack.lengths[:, None]
    cls, middle, last = received.gather(1, stack.special()).unbind(1)
    two = stack.boundary < stack.lengths
    found = {"cls": cls, "middle_sep": torch.where(two, middle, 0.0), "last_sep": last}
    return found | {"special": found["cls"] + found["middle_sep"] + found["last_sep"]}


def band(stack: MapStack, offset: int) -> Float[torch.Tensor, "maps rows"]:
    """What each row i gives to token i + offset; 0 where there is none."""
    tokens = stack.maps.shape[-1]
    found = stack.maps.new_zeros(len(stack), tokens)
    if abs(offset) < tokens:
        found[:, max(0, -offset) : tokens - max(0, offset)] = stack.maps.diagonal(offset, 1, 2)
    return found


def _bands(stack: MapStack) -> dict[str, Column]:
    """Share of the mass on each diagonal, of all mass and of what stays inside; how steady the best diagonal is."""
    within = inside(stack)
    kept = (stack.maps * within[:, None, :]).sum(2)  # of each row, what it gives to inside tokens
    count = stack.lengths.float()
    found: dict[str, Column] = {}
    near = torch.zeros_like(count)
    rows_on_band = []
    for offset in BANDS:
        given = band(stack, offset)
        found[f"band{offset:+d}"] = given.sum(1) / count
        lands = torch.roll(within, -offset, 1) & within
        rows_on_band.append(torch.where(lands, given, 0.0))
        if abs(offset) <= 1:
            near = near + (given * lands).sum(1)
    rows = torch.stack(rows_on_band)
    found["near"] = near / (stack.maps.sum(2) * within).sum(1).clamp(min=TINY)
    found["near_of_inside"] = near / (kept * within).sum(1).clamp(min=TINY)
    best = rows[1:-1].amax(0)
    found["best_band_half"] = _mean((best > 0.5).float(), within)
    found["best_band_tenth"] = _mean((best > 0.1).float(), within)
    sides = {"previous": rows[2], "self": rows[3], "next": rows[4]}
    for name, row in sides.items():
        found[f"{name}_of_inside"] = (row * within).sum(1) / (kept * within).sum(1).clamp(min=TINY)
    return found


def _segments(stack: MapStack) -> dict[str, Column]:
    """How far attention between inside tokens stays in its own text, beyond what a uniform map would give."""
    within = inside(stack)
    tokens = torch.arange(within.shape[1], device=within.device)
    first = within & (tokens < stack.boundary[:, None])
    second = within & ~first
    pair = within[:, :, None] & within[:, None, :]
    same = (first[:, :, None] & first[:, None, :]) | (second[:, :, None] & second[:, None, :])
    mass = (stack.maps * pair).sum((1, 2)).clamp(min=TINY)
    own = (stack.maps * same).sum((1, 2))
    places, own_places = pair.sum((1, 2)).clamp(min=1), same.sum((1, 2))
    far = (tokens[:, None] - tokens[None, :]).abs() > 2
    far_mass = (stack.maps * (pair & far)).sum((1, 2))
    far_own = (stack.maps * (same & far)).sum((1, 2))
    far_places, far_own_places = (pair & far).sum((1, 2)), (same & far).sum((1, 2))
    two = (first.any(1) & second.any(1)).float()

    def density(mass_in: Column, places_in: Column, mass_all: Column, places_all: Column) -> Column:
        """log of the mean weight within a text over the mean weight across texts."""
        inner = (mass_in + TINY) / places_in.clamp(min=1)
        outer = (mass_all - mass_in).clamp(min=0) + TINY
        return (inner.log() - (outer / (places_all - places_in).clamp(min=1)).log()) * two

    rows_first = (stack.maps * first[:, None, :]).sum(2)
    rows_second = (stack.maps * second[:, None, :]).sum(2)
    total = (rows_first + rows_second).clamp(min=TINY)
    own_row = torch.where(first, rows_first, rows_second) / total
    return {
        "own_text": (own / mass - own_places / places) * two,
        "own_text_far": (far_own / far_mass.clamp(min=TINY) - far_own_places / far_places.clamp(min=1)) * two,
        "own_density": density(own, own_places, mass, places),
        "own_density_far": density(far_own, far_own_places, far_mass, far_places),
        "own_first": _mean(own_row, first) * two,
        "own_second": _mean(own_row, second) * two,
        "own_rows": _mean((own_row > 0.8).float(), within) * two,
    }


def _entropy(rows: Float[torch.Tensor, "... tokens"]) -> Float[torch.Tensor, "..."]:
    return -torch.special.xlogy(rows, rows).sum(-1)


def _rows(stack: MapStack) -> dict[str, Column]:
    """Entropy of rows and of their mean (as shares of log L), how alike rows are, and how alike once moved by one."""
    real = stack.real
    scale = stack.lengths.float().log().clamp(min=TINY)
    entropy = _entropy(stack.maps) / scale[:, None]
    mean_row = stack.maps.sum(1) / stack.lengths[:, None]
    spread = _entropy(mean_row) / scale
    average = _mean(entropy, real)
    found = {
        "row_entropy": average,
        "row_entropy_std": _mean((entropy - average[:, None]).square(), real).sqrt(),
        "column_entropy": spread,
        "row_information": spread - average,
    }
    norm = stack.maps.norm(dim=2).clamp(min=TINY)
    to_mean = torch.einsum("nij,nj->ni", stack.maps, mean_row) / norm / mean_row.norm(dim=1).clamp(min=TINY)[:, None]
    found["like_mean_row"] = _mean(to_mean, real)
    pairs = real[:, 1:]
    here, after = stack.maps[:, :-1], stack.maps[:, 1:]
    norms = norm[:, :-1] * norm[:, 1:]
    found["like_next_row"] = _mean((here * after).sum(2) / norms, pairs)
    within = inside(stack)
    bare = stack.maps * within[:, None, :]
    bare_norm = bare.norm(dim=2).clamp(min=TINY)
    both = within[:, :-1] & within[:, 1:]
    norms = bare_norm[:, :-1] * bare_norm[:, 1:]
    found["like_next_row_inside"] = _mean((bare[:, :-1] * bare[:, 1:]).sum(2) / norms, both)
    found["like_next_row_moved"] = _mean((bare[:, :-1, :-1] * bare[:, 1:, 1:]).sum(2) / norms, both)
    found["row_max"] = _mean(stack.maps.amax(2), real)
    top = stack.maps.topk(min(3, stack.maps.shape[-1]), dim=2).values.sum(2)
    return found | {"row_top3": _mean(top, real)}


def _columns(stack: MapStack) -> dict[str, Column]:
    """How far few columns take all: masses of the top columns, anywhere and inside; where the rows' maxima lie."""
    within, real = inside(stack), stack.real
    received = stack.maps.sum(1) / stack.lengths[:, None]
    tokens = received.shape[1]

    def top(values: Float[torch.Tensor, "maps tokens"], k: int) -> Column:
        return values.topk(min(k, tokens), dim=1).values.sum(1)

    inner = received * within
    count = stack.lengths.float()
    found = {f"top{k}": top(received, k) for k in (1, 2, 3)}
    found |= {f"inside_top{k}": top(inner, k) for k in (1, 3)}
    found["inside_top1_over_uniform"] = (inner.amax(1) * count + TINY).log()
    found["top1_over_uniform"] = (received.amax(1) * count + TINY).log()
    found["column_std"] = (_mean((received * count[:, None] - 1).square(), real)).sqrt().log1p()
    inner_mean = _mean(inner, within)
    found["inside_column_cv"] = _mean((inner - inner_mean[:, None]).square(), within).sqrt() / (inner_mean + TINY)
    peak = stack.maps.argmax(2)
    places = torch.arange(tokens, device=peak.device)
    offset = peak - places
    special = (peak[:, :, None] == stack.special()[:, None, :]).any(2)
    found["peak_special"] = _mean(special.float(), real)
    for step in (-1, 0, 1):
        found[f"peak{step:+d}"] = _mean(((offset == step) & ~special).float(), within)
    found["peak_elsewhere"] = _mean(((offset.abs() > 1) & ~special).float(), within)
    votes = torch.zeros_like(received).scatter_add(1, peak, real.float())
    found["peak_one_column"] = votes.amax(1) / count
    return found


def diagonal_sums(maps: Float[torch.Tensor, "maps tokens tokens"]) -> Float[torch.Tensor, "maps offsets"]:
    """The sum of every diagonal, from column - row = tokens - 1 down to -(tokens - 1)."""
    count, tokens, _ = maps.shape
    sheared = torch.nn.functional.pad(maps.flip(2), (0, tokens)).flatten(1)[:, :-tokens]
    return sheared.reshape(count, tokens, 2 * tokens - 1).sum(1)


def _energy(stack: MapStack) -> dict[str, Column]:
    """The share of a map's squares that stripes explain: same columns, same diagonals, constant quarters.

    Each is the squared norm of the map's projection on what such stripes can draw, for the map and for its square root,
    whose weak parts are seen as an eye sees them.
    """
    found: dict[str, Column] = {}
    within, real = inside(stack), stack.real
    tokens = real.shape[1]
    steps = torch.arange(tokens - 1, -tokens, -1, device=real.device).abs()
    size = (stack.lengths[:, None] - steps).clamp(min=1)
    first = (within & (torch.arange(tokens, device=real.device) < stack.boundary[:, None])).float()
    second = within.float() - first
    for name, maps in (("", stack.maps), ("_root", stack.maps.sqrt())):
        total = maps.square().sum((1, 2)).clamp(min=TINY)
        columns = maps.sum(1).square() / stack.lengths[:, None]
        found[f"vertical{name}"] = columns.sum(1) / total
        found[f"vertical_inside{name}"] = (columns * within).sum(1) / total
        diagonals = diagonal_sums(maps).square() / size
        found[f"diagonal{name}"] = (diagonals * (steps <= 3)).sum(1) / total
        bare = maps * within[:, None, :] * within[:, :, None]
        left = bare.square().sum((1, 2)).clamp(min=TINY)
        near = (diagonal_sums(bare).square() / (size - 3).clamp(min=1) * (steps <= 3)).sum(1)
        found[f"diagonal_inside{name}"] = near / left
        found[f"vertical_bare{name}"] = (bare.sum(1).square() / within.sum(1).clamp(min=1)[:, None]).sum(1) / left
        quarters = torch.zeros_like(total)
        for rows in (first, second):
            for cols in (first, second):
                mass = torch.einsum("nij,ni,nj->n", bare, rows, cols)
                quarters = quarters + mass.square() / (rows.sum(1) * cols.sum(1)).clamp(min=1)
        even = bare.sum((1, 2)).square() / within.sum(1).clamp(min=1).square()
        found[f"quarters{name}"] = (quarters - even).clamp(min=0) / left
    return found


def _contrast(stack: MapStack) -> dict[str, Column]:
    """How a stripe stands out from what is beside it, as an eye sees it: in the logarithm of the weights."""
    within, real = inside(stack), stack.real
    uniform = 1 / stack.lengths.float()[:, None, None]
    logs = ((stack.maps + 0.01 * uniform) / uniform).log()  # 0 where a weight is 1/L; weaker than 1 % of it is black
    pair = real[:, :, None] & real[:, None, :]
    logs = logs.masked_fill(~pair, 0.0)
    part = MapStack(logs, stack.lengths, stack.boundary)
    lines = {offset: band(part, offset) for offset in (-6, -5, -4, *BANDS, 4, 5, 6)}
    beside = [4, 5, 6, -4, -5, -6]
    ground = sum((lines[o] for o in beside), torch.zeros_like(lines[0]))
    valid = sum((torch.roll(real, -o, 1) & real & _reach(stack, o) for o in beside), torch.zeros_like(lines[0]))
    ground = ground / torch.as_tensor(valid).clamp(min=1)
    found = {}
    for offset in (-2, -1, 0, 1, 2):
        over = within & _reach(stack, offset)
        found[f"ridge{offset:+d}"] = _mean(lines[offset] - ground, over)
    height = logs.sum(1) / stack.lengths[:, None]
    middle = _mean(height, within)
    special = height.gather(1, stack.special()) - middle[:, None]
    found |= {f"wall_{name}": special[:, i] for i, name in enumerate(("cls", "middle_sep", "last_sep"))}
    found["wall_special"] = special.amax(1)
    inner = torch.where(within, height - middle[:, None], torch.full_like(height, -20.0))
    found["wall_inside"] = inner.amax(1).clamp(min=-1)
    found["dark"] = (((logs < -2) & pair).sum((1, 2)) / stack.lengths.square()).float()
    found["bright"] = (((logs > 1) & pair).sum((1, 2)) / stack.lengths.square()).float()
    deviation = (logs - height[:, None, :]).masked_fill(~(within[:, :, None] & within[:, None, :]), 0.0)
    found["unexplained"] = (deviation.square().sum((1, 2)) / within.sum(1).clamp(min=1).square()).sqrt()
    edge = stack.boundary.clamp(max=real.shape[1] - 1)
    jump = (logs[:, 1:] - logs[:, :-1]).abs().sum(2) / stack.lengths[:, None]
    usual = _mean(jump, within[:, 1:] & within[:, :-1])
    at = jump.gather(1, (edge - 1).clamp(min=0, max=max(0, jump.shape[1] - 1))[:, None])[:, 0] if jump.shape[1] else usual
    found["jump"] = torch.where(stack.boundary < stack.lengths, at - usual, torch.zeros_like(usual))
    return found


def _reach(stack: MapStack, offset: int) -> Bool[torch.Tensor, "maps tokens"]:
    """True on the rows i for which token i + offset exists."""
    places = torch.arange(stack.maps.shape[-1], device=stack.maps.device) + offset
    return (places >= 0) & (places < stack.lengths[:, None])


def _names() -> tuple[str, ...]:
    one = MapStack(torch.full((1, 8, 8), 1 / 8), torch.tensor([8]), torch.tensor([4]))
    return tuple(_all(one))


NAMES = _names()
