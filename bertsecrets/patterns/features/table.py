"""The table of all features of attention maps, in numbers that do not depend on a map's length.

Every feature has a name, and is computed for many padded maps at once. The rows of an L x L map sum to 1, so its whole
mass is L, and shares are shares of that. The special places are [CLS], the [SEP] between the texts and the last token;
all other tokens are inside tokens.
"""

import functools

import torch
from jaxtyping import Float

from bertsecrets.patterns.features.diagonal_band import band_features
from bertsecrets.patterns.features.diagonal_blocks import block_features
from bertsecrets.patterns.features.diagonal_path import path_features
from bertsecrets.patterns.features.off_diagonal import off_diagonal_features
from bertsecrets.patterns.features.picture import picture_features, stack_brightness
from bertsecrets.patterns.features.regions import (
    TINY,
    Column,
    band,
    both_texts,
    inside,
    mean,
    quarter_sizes,
    quarters,
)
from bertsecrets.patterns.map_stack import MapStack

BANDS = (-2, -1, 0, 1, 2)  # column minus row: -1 is the previous token


def features(stack: MapStack) -> Float[torch.Tensor, "maps features"]:
    """Return the named features of every map, in the order of `feature_names`."""
    parts = [torch.stack(list(_all(part).values()), dim=1) for _, part in stack.chunks()]
    return torch.cat(parts) if parts else torch.empty(0, len(feature_names()))


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
    for offset in BANDS:
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


@functools.cache
def feature_names() -> tuple[str, ...]:
    """Return the names of the features, in the order of `features`."""
    uniform = MapStack(torch.full((1, 8, 8), 1 / 8), torch.tensor([8]), torch.tensor([4]))
    return tuple(_all(uniform))
