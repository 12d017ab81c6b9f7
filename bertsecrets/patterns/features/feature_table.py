"""The table of all features of attention maps. Features are comparable across maps of different lengths.

Features have names and are computed for batches of padded maps. The rows of an L x L map sum to 1, so the map's total
mass is L. A share of attention is a mass divided by L. Special tokens are [CLS], the [SEP] between the texts, and the
last token of the input. All other tokens are called inside tokens.
"""

import functools

import torch
from jaxtyping import Float

from bertsecrets.patterns.features.diagonal_band import band_features
from bertsecrets.patterns.features.diagonal_path import path_features
from bertsecrets.patterns.features.picture import picture_features
from bertsecrets.patterns.features.reductions import BAND_DIAGONALS, Row, View
from bertsecrets.patterns.features.regions import EPSILON, Column, entropy, mean, quarter_sizes
from bertsecrets.patterns.features.two_texts import block_features, off_diagonal_features
from bertsecrets.patterns.map_stack import MapStack

NEAR_OFFSETS = (-2, -1, 0, 1, 2)  # column minus row: -1 is the previous token
TABLE_BATCH_CELLS = 2**23  # maximum number of cells per batch, including padding


def features(stack: MapStack) -> Float[torch.Tensor, "maps features"]:
    """Return the named features of every map, in the order of `feature_names`."""
    if bool((stack.lengths.diff() < 0).any()):
        order = stack.lengths.argsort(stable=True)
        ordered = MapStack(stack.maps[order], stack.lengths[order], stack.boundary[order])
        return features(ordered)[order.argsort()]
    parts = [torch.stack(list(_all(part).values()), dim=1) for _, part in stack.cut(TABLE_BATCH_CELLS)]
    return torch.cat(parts) if parts else torch.empty(0, len(feature_names()))


def _all(stack: MapStack) -> dict[str, Column]:
    view = View(stack)
    named: dict[str, Column] = {}
    for part in (
        _special,
        _bands,
        _segments,
        _rows,
        _columns,
        picture_features,
        off_diagonal_features,
        band_features,
        path_features,
        block_features,
    ):
        named |= part(view)
    named["log_length"] = stack.lengths.float().log()
    named["two_texts"] = (stack.boundary < stack.lengths).float()
    return named


def _special(view: View) -> dict[str, Column]:
    """Return the shares of attention that special tokens receive, individually and in total.

    `strong` is this total or the share of the most attended token, whichever is larger.
    """
    stack, received = view.stack, view.read.received
    cls, middle, last = received.gather(1, stack.special()).unbind(1)
    two = stack.boundary < stack.lengths
    named = {"cls": cls, "middle_sep": torch.where(two, middle, 0.0), "last_sep": last}
    named["special"] = named["cls"] + named["middle_sep"] + named["last_sep"]
    return named | {"strong": torch.maximum(named["special"], received.amax(1))}


def _bands(view: View) -> dict[str, Column]:
    """Return how much attention is on the main diagonal and the diagonals next to it.

    Some features use all cells, and others use only cells whose row and column are both inside tokens. `best_band_half`
    and `best_band_tenth` are the fractions of rows with a weight above one half or one tenth near the diagonal.
    """
    within, count = view.within, view.lengths.float()
    inner = view.near(within) * within[:, None, :]  # marks cells between two words
    whole, kept = ((view.read.given[:, kind] * within).sum(1).clamp(min=EPSILON) for kind in (0, 1))
    bands = {offset: view.read.bands[:, BAND_DIAGONALS + offset] for offset in NEAR_OFFSETS}
    rows = {offset: band * inner[:, BAND_DIAGONALS + offset] for offset, band in bands.items()}
    near = rows[-1].sum(1) + rows[0].sum(1) + rows[1].sum(1)
    best = torch.stack([*rows.values()]).amax(0)
    return {
        **{f"band{offset:+d}": bands[offset].sum(1) / count for offset in (-1, 0, 1)},
        "near": near / whole,
        "near_of_inside": near / kept,
        "best_band_half": mean((best > 0.5).float(), within),
        "best_band_tenth": mean((best > 0.1).float(), within),
        "previous_of_inside": (rows[-1] * within).sum(1) / kept,
        "self_of_inside": (rows[0] * within).sum(1) / kept,
        "next_of_inside": (rows[1] * within).sum(1) / kept,
    }


def _segments(view: View) -> dict[str, Column]:
    """Return how much of the attention between inside tokens stays within a text, compared with uniform attention."""
    two = view.two.float()
    mass, places = view.texts.float() @ view.read.given[:, 2:4].transpose(1, 2), quarter_sizes(view.texts)
    own, own_places = mass[:, (0, 1), (0, 1)].sum(1), places[:, (0, 1), (0, 1)].sum(1)
    whole, whole_places = mass.sum((1, 2)), places.sum((1, 2))
    inner = (own + EPSILON) / own_places.clamp(min=1)
    outer = ((whole - own).clamp(min=0) + EPSILON) / (whole_places - own_places).clamp(min=1)
    return {
        "own_text": (own / whole.clamp(min=EPSILON) - own_places / whole_places.clamp(min=1)) * two,
        "own_density": (inner.log() - outer.log()) * two,
    }


def _rows(view: View) -> dict[str, Column]:
    """Return features that measure how widely rows spread their attention.

    The first three are the mean entropy of the rows, the entropy of the mean row, and their difference, each divided by
    log L. The other two are the mean weight of each row's largest cell, and the mean sum of its three largest cells.
    """
    read, real = view.read, view.real
    scale = view.lengths.float().log().clamp(min=EPSILON)
    average = mean(read.entropy / scale[:, None], real)
    spread = entropy(read.received) / scale
    return {
        "row_entropy": average,
        "column_entropy": spread,
        "row_information": spread - average,
        "row_max": mean(read.first, real),
        "row_top3": mean(read.first + read.second + read.third, real),
    }


def _columns(view: View) -> dict[str, Column]:
    """Return how much attention concentrates on a few columns.

    Some features use the share of attention that each column receives; others use the column of each row's maximum.
    """
    stack, within, real, received = view.stack, view.within, view.real, view.read.received
    tokens = received.shape[1]

    def top(values: Row, k: int) -> Column:
        return values.topk(min(k, tokens), dim=1).values.sum(1)

    inner = received * within
    count = stack.lengths.float()
    named = {f"top{k}": top(received, k) for k in (1, 2, 3)}
    named["inside_top3"] = top(inner, 3)
    named["top5"] = top(received, 5)
    sixth = torch.nn.functional.pad(received, (0, 6)).topk(6, dim=1).values[:, 5]
    named["top1_over_sixth"] = ((named["top1"] + EPSILON) / (sixth + EPSILON)).log()
    named["inside_top1_over_uniform"] = (inner.amax(1) * count + EPSILON).log()
    named["top1_over_uniform"] = (received.amax(1) * count + EPSILON).log()
    named["column_std"] = (mean((received * count[:, None] - 1).square(), real)).sqrt().log1p()
    inner_average = mean(inner, within)
    inner_std = mean((inner - inner_average[:, None]).square(), within).sqrt()
    named["inside_column_cv"] = inner_std / (inner_average + EPSILON)
    peak = view.read.place
    special = (peak[:, :, None] == stack.special()[:, None, :]).any(2)
    named["peak_special"] = mean(special.float(), real)
    votes = torch.zeros_like(received).scatter_add(1, peak, real.float())
    named["peak_one_column"] = votes.amax(1) / count
    return named


@functools.cache
def feature_names() -> tuple[str, ...]:
    """Return the names of the features, in the order in which `features` returns them."""
    uniform = MapStack(torch.full((1, 8, 8), 1 / 8), torch.tensor([8]), torch.tensor([4]))
    return tuple(_all(uniform))
