"""What can be read off a map of attention in words: how much goes where, in numbers that do not depend on its length.

Every feature is named, and computed for many padded maps at once. P is the L x L map, whose rows sum to 1. Shares are
of the whole mass (L). The special places: [CLS], the [SEP] between the texts, the last token; the rest is the inside.
"""

import torch
from jaxtyping import Float

from bertsecrets.patterns.distance import distance
from bertsecrets.patterns.stack import MapStack
from bertsecrets.patterns.stripes import (
    TINY,
    Column,
    band,
    both_texts,
    contrast,
    energy,
    inside,
    mean,
    quarter_sizes,
    quarters,
    reach,
    seen,
)

BANDS = (-3, -2, -1, 0, 1, 2, 3)  # column minus row: -1 is the previous token


def features(stack: MapStack) -> Float[torch.Tensor, "maps features"]:
    """The named features of every map, in the order of `NAMES`."""
    parts = [torch.stack(list(_all(part).values()), dim=1) for _, part in stack.chunks()]
    return torch.cat(parts) if parts else torch.empty(0, len(NAMES))


def _all(stack: MapStack) -> dict[str, Column]:
    found: dict[str, Column] = {}
    for part in (_special, _bands, _segments, _rows, _columns, energy, contrast, seen, distance):
        found |= part(stack)
    found["log_length"] = stack.lengths.float().log()
    found["two_texts"] = (stack.boundary < stack.lengths).float()
    return found


def _special(stack: MapStack) -> dict[str, Column]:
    """Share of the mass on each special place, and on the two [SEP]s together."""
    received = stack.maps.sum(1) / stack.lengths[:, None]
    cls, middle, last = received.gather(1, stack.special()).unbind(1)
    two = stack.boundary < stack.lengths
    found = {"cls": cls, "middle_sep": torch.where(two, middle, 0.0), "last_sep": last}
    return found | {"special": found["cls"] + found["middle_sep"] + found["last_sep"]}


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
    found["best_band_half"] = mean((best > 0.5).float(), within)
    found["best_band_tenth"] = mean((best > 0.1).float(), within)
    sides = {"previous": rows[2], "self": rows[3], "next": rows[4]}
    for name, row in sides.items():
        found[f"{name}_of_inside"] = (row * within).sum(1) / (kept * within).sum(1).clamp(min=TINY)
    return found


def _segments(stack: MapStack) -> dict[str, Column]:
    """How far attention between inside tokens stays in its own text, beyond what a uniform map would give."""
    texts = both_texts(stack)
    two = texts.any(2).all(1).float()
    mass, places = quarters(stack.maps, texts), quarter_sizes(texts)
    near_mass, near_places = torch.zeros_like(mass), torch.zeros_like(mass)
    for offset in (-2, -1, 0, 1, 2):
        line = band(stack, offset)
        lands = torch.roll(texts, -offset, 2) & reach(stack, offset)[:, None, :]
        both = texts[:, :, None, :] & lands[:, None, :, :]
        near_mass = near_mass + (line[:, None, None, :] * both).sum(3)
        near_places = near_places + both.sum(3)
    found: dict[str, Column] = {}
    far = ((mass - near_mass).clamp(min=0), (places - near_places).clamp(min=0))
    for name, (weight, size) in {"": (mass, places), "_far": far}.items():
        own, own_size = weight[:, (0, 1), (0, 1)].sum(1), size[:, (0, 1), (0, 1)].sum(1)
        every, every_size = weight.sum((1, 2)), size.sum((1, 2))
        found[f"own_text{name}"] = (own / every.clamp(min=TINY) - own_size / every_size.clamp(min=1)) * two
        inner = (own + TINY) / own_size.clamp(min=1)
        outer = ((every - own).clamp(min=0) + TINY) / (every_size - own_size).clamp(min=1)
        found[f"own_density{name}"] = (inner.log() - outer.log()) * two
    given = torch.einsum("nij,nkj->nki", stack.maps, texts.float())
    own_row = (given * texts).sum(1) / given.sum(1).clamp(min=TINY)
    found["own_first"], found["own_second"] = mean(own_row, texts[:, 0]) * two, mean(own_row, texts[:, 1]) * two
    return found | {"own_rows": mean((own_row > 0.8).float(), texts.any(1)) * two}


def _entropy(rows: Float[torch.Tensor, "... tokens"]) -> Float[torch.Tensor, "..."]:
    return -torch.special.xlogy(rows, rows).sum(-1)


def _rows(stack: MapStack) -> dict[str, Column]:
    """Entropy of rows and of their mean (as shares of log L), how alike rows are, and how alike once moved by one."""
    real = stack.real
    scale = stack.lengths.float().log().clamp(min=TINY)
    entropy = _entropy(stack.maps) / scale[:, None]
    mean_row = stack.maps.sum(1) / stack.lengths[:, None]
    spread = _entropy(mean_row) / scale
    average = mean(entropy, real)
    found = {
        "row_entropy": average,
        "row_entropy_std": mean((entropy - average[:, None]).square(), real).sqrt(),
        "column_entropy": spread,
        "row_information": spread - average,
    }
    norm = stack.maps.norm(dim=2).clamp(min=TINY)
    to_mean = torch.einsum("nij,nj->ni", stack.maps, mean_row) / norm / mean_row.norm(dim=1).clamp(min=TINY)[:, None]
    found["like_mean_row"] = mean(to_mean, real)
    pairs = real[:, 1:]
    here, after = stack.maps[:, :-1], stack.maps[:, 1:]
    norms = norm[:, :-1] * norm[:, 1:]
    found["like_next_row"] = mean((here * after).sum(2) / norms, pairs)
    within = inside(stack)
    bare = stack.maps * within[:, None, :]
    bare_norm = bare.norm(dim=2).clamp(min=TINY)
    both = within[:, :-1] & within[:, 1:]
    norms = bare_norm[:, :-1] * bare_norm[:, 1:]
    found["like_next_row_inside"] = mean((bare[:, :-1] * bare[:, 1:]).sum(2) / norms, both)
    found["like_next_row_moved"] = mean((bare[:, :-1, :-1] * bare[:, 1:, 1:]).sum(2) / norms, both)
    found["row_max"] = mean(stack.maps.amax(2), real)
    top = stack.maps.topk(min(3, stack.maps.shape[-1]), dim=2).values.sum(2)
    return found | {"row_top3": mean(top, real)}


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
    found["column_std"] = (mean((received * count[:, None] - 1).square(), real)).sqrt().log1p()
    inner_average = mean(inner, within)
    found["inside_column_cv"] = mean((inner - inner_average[:, None]).square(), within).sqrt() / (inner_average + TINY)
    peak = stack.maps.argmax(2)
    places = torch.arange(tokens, device=peak.device)
    offset = peak - places
    special = (peak[:, :, None] == stack.special()[:, None, :]).any(2)
    found["peak_special"] = mean(special.float(), real)
    for step in (-1, 0, 1):
        found[f"peak{step:+d}"] = mean(((offset == step) & ~special).float(), within)
    found["peak_elsewhere"] = mean(((offset.abs() > 1) & ~special).float(), within)
    votes = torch.zeros_like(received).scatter_add(1, peak, real.float())
    found["peak_one_column"] = votes.amax(1) / count
    return found


def _names() -> tuple[str, ...]:
    one = MapStack(torch.full((1, 8, 8), 1 / 8), torch.tensor([8]), torch.tensor([4]))
    return tuple(_all(one))


NAMES = _names()
