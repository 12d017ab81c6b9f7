"""Features of the brightest path along the main diagonal, which leads from the first word to the last.

Each step of a path moves one row down and about one column to the right. A path can follow curved or clumpy lines,
unlike the straight diagonals in `picture.picture_features`.
"""

import torch
from jaxtyping import Float, Int

from bertsecrets.patterns.features.reductions import MARGIN_COLUMNS, Row, View
from bertsecrets.patterns.features.regions import Column, longest_gap, mean, quantiles

TURN_COLUMNS = 1  # maximum deviation of a step from the diagonal, in columns
TURN_PRICE = 0.05  # penalty per column of deviation, in brightness
FORBIDDEN_BRIGHTNESS, UNREACHABLE_TOTAL = -1e4, -1e9  # brightness of forbidden cells; total of unreachable cells
NEIGHBOUR_OFFSETS = (-4, -3, 3, 4)  # offsets of the columns with which a path is compared
VISIBLE_BRIGHTNESS, FAINT_BRIGHTNESS = 0.5, 0.35  # clearly visible and barely visible brightness


def path_features(view: View) -> dict[str, Column]:
    """Return the brightness, continuity and straightness of the brightest path. Special tokens are left out."""
    count = view.words
    held = view.places < count[:, None]
    path, value = _path(view.read.ribbon, view.widest, count)
    ahead = value - _neighbours(view.read.ribbon, path, count)
    peak = view.read.brightest.gather(1, view.tokens_of_words) * held
    moves = (path[:, 1:] - path[:, :-1]).abs().float()
    size = count.clamp(min=1)
    quarter, half = quantiles(value, held, 0.25, 0.5)
    (ahead_quarter,) = quantiles(ahead, held, 0.25)
    return {
        "seam_light": mean(value, held),
        "seam_quarter": quarter,
        "seam_half": half,
        "seam_over": mean(ahead, held),
        "seam_over_quarter": ahead_quarter,
        "seam_pink": mean((value > VISIBLE_BRIGHTNESS).float(), held),
        "seam_lit": mean((value > FAINT_BRIGHTNESS).float(), held),
        "seam_moves": mean(moves, held[:, 1:]),
        "seam_off": mean(path.abs().float(), held) / size,
        "seam_top": mean(((value >= peak) & (peak > 0)).float(), held),  # an empty row has no peak
        "seam_share": mean(value / peak.clamp(min=0.05), held),
        "seam_gap": longest_gap(value >= FAINT_BRIGHTNESS, held) / size,
    }


def _path(
    ribbon: Float[torch.Tensor, "words maps ribbon"],
    widest: Float[torch.Tensor, " maps"],
    count: Int[torch.Tensor, " maps"],
) -> tuple[Int[torch.Tensor, "maps words"], Row]:
    """Return the brightest path's offset from the diagonal and brightness in each row, using dynamic programming.

    `widest` is the maximum offset from the diagonal in each map, and `count` is the number of words in each map.
    """
    cells = ribbon[:, :, MARGIN_COLUMNS:-MARGIN_COLUMNS]
    rows, maps, offsets = cells.shape
    reach = offsets // 2
    places = torch.arange(-reach, reach + 1, device=ribbon.device)
    penalty = torch.where(places.abs() <= widest[:, None], 0, FORBIDDEN_BRIGHTNESS)
    totals = cells.new_empty(rows, maps, offsets + 2)  # padded by one column on each side
    totals[:, :, 0] = totals[:, :, -1] = UNREACHABLE_TOTAL
    inner = totals[:, :, 1:-1]
    torch.add(cells[0], penalty, out=inner[0])
    shortest = int(count.min())
    for row in range(1, rows):
        before, now = totals[row - 1], inner[row]
        best = torch.maximum(before[:, :-2], before[:, 2:]).sub_(TURN_PRICE)
        torch.add(torch.maximum(best, before[:, 1:-1], out=best), cells[row], out=now)
        now.add_(penalty)
        if row >= shortest:
            torch.where((count > row)[:, None], now, before[:, 1:-1], out=now)
    turns = torch.arange(-TURN_COLUMNS, TURN_COLUMNS + 1, device=ribbon.device)
    price = TURN_PRICE * turns.abs()
    at = inner[-1].argmax(1, keepdim=True)
    taken = [at]
    for row in range(rows - 1, 0, -1):
        turn = (totals[row - 1].gather(1, at + (turns + 1)) - price).argmax(1, keepdim=True).sub_(TURN_COLUMNS)
        if row >= shortest:
            turn.mul_((count > row)[:, None])
        at = at + turn
        taken.append(at)
    place = torch.stack(taken[::-1])
    value = cells.gather(2, place)[:, :, 0].clamp(min=0)
    return place[:, :, 0].T - reach, value.T


def _neighbours(
    ribbon: Float[torch.Tensor, "words maps ribbon"],
    path: Int[torch.Tensor, "maps words"],
    count: Int[torch.Tensor, " maps"],
) -> Row:
    """Return the mean brightness at the offsets `NEIGHBOUR_OFFSETS` from a path, ignoring columns outside the map."""
    words = torch.arange(len(ribbon), device=path.device)
    columns = (words + path).clamp(0, len(ribbon) - 1)[:, :, None]
    near = columns + torch.tensor(NEIGHBOUR_OFFSETS, device=path.device)
    exists = (near >= 0) & (near < count[:, None, None])
    places = (near - words[:, None] + ribbon.shape[2] // 2).transpose(0, 1)
    return (ribbon.gather(2, places).transpose(0, 1) * exists).sum(2) / exists.sum(2).clamp(min=1)
