"""Features of the brightest path that an eye can follow from the first word to the last.

A path moves one row down and about one column to the right with each step, and stays near the main diagonal. So it also
follows a line that bends or joins clumps; straight diagonals are in `picture.picture_features`.
"""

import torch
from jaxtyping import Bool, Float, Int

from bertsecrets.patterns.features.regions import Column, inside, longest_gap, mean, quantile
from bertsecrets.patterns.map_stack import MapStack

WIDEST = 0.25  # largest distance of a path from the diagonal, as a share of the words
TURN = 1  # largest deviation of a step from the diagonal direction, in columns
PRICE = 0.05  # brightness that each column of deviation costs
OUTSIDE = -0.5  # brightness of cells outside the map, low enough that no path stays there
BESIDE = (-4, -3, 3, 4)  # columns beside the path with which it is compared
PINK, LIT = 0.5, 0.35  # brightness that is plainly visible, and just visible


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
        "seam_pink": mean((value > PINK).float(), held),
        "seam_lit": mean((value > LIT).float(), held),
        "seam_moves": mean(moves, held[:, 1:]),
        "seam_off": mean(path.abs().float(), held) / size,
        "seam_top": mean(((value >= peak) & (peak > 0)).float(), held),  # an empty row has no peak
        "seam_share": mean(value / peak.clamp(min=0.05), held),
        "seam_gap": longest_gap(value >= LIT, held) / size,
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
    reach = max(2, round(WIDEST * tokens))
    offsets = torch.arange(-reach, reach + 1, device=words.device)
    columns = torch.arange(tokens, device=words.device)[:, None] + offsets
    ribbon = words.gather(2, columns.clamp(0, tokens - 1).expand(maps, -1, -1))
    ribbon = ribbon.masked_fill((columns < 0) | (columns >= count[:, None, None]), OUTSIDE)
    allowed = offsets.abs() <= (WIDEST * count).round().clamp(min=2)[:, None]
    ribbon = ribbon.masked_fill(~allowed[:, None, :], -1e4)
    turns = torch.arange(-TURN, TURN + 1, device=words.device)
    price = PRICE * turns.abs()
    total, came = ribbon[:, 0], []
    for row in range(1, tokens):
        before = torch.nn.functional.pad(total, (TURN, TURN), value=-1e9).unfold(1, 2 * TURN + 1, 1)
        best, turn = (before - price).max(2)
        going = (row < count)[:, None]
        total = torch.where(going, best + ribbon[:, row], total)
        came.append(torch.where(going, turn - TURN, 0))
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
    near = columns[:, :, None] + torch.tensor(BESIDE, device=words.device)
    exists = (near >= 0) & (near < count[:, None, None])
    value = words.gather(2, near.clamp(0, words.shape[1] - 1)) * exists
    return value.sum(2) / exists.sum(2).clamp(min=1)
