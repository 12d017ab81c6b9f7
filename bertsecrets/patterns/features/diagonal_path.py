"""The brightest path that an eye can follow from the first word to the last, and how plainly it stands out.

A path moves one row down and about one column to the right with each step, and stays near the main diagonal. So a line
that bends, or joins clumps, is found as one; straight diagonals are in `picture.picture_features`.
"""

import torch
from jaxtyping import Bool, Float, Int

from bertsecrets.patterns.features.regions import Column, inside, longest_gap, mean, quantile
from bertsecrets.patterns.map_stack import MapStack

WIDEST = 0.25  # of the words: how far from the diagonal a path may get
TURN = 1  # columns that a step may be off the diagonal direction
PRICE = 0.05  # of brightness, for each
OUTSIDE = -0.5  # brightness of places beyond the map: a path does not hide there
BESIDE = (-4, -3, 3, 4)  # columns off the path: what it is compared with
PINK, LIT = 0.5, 0.35  # brightness: plainly seen, and just seen


def path_features(stack: MapStack, light: Float[torch.Tensor, "maps tokens tokens"]) -> dict[str, Column]:
    """Return how bright, unbroken and straight the brightest path along the diagonal is, among words."""
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
        "seam_top": mean(((value >= peak) & (peak > 0)).float(), held),  # else there is no peak
        "seam_share": mean(value / peak.clamp(min=0.05), held),
        "seam_gap": longest_gap(value >= LIT, held) / size,
    }


def _words(
    stack: MapStack, light: Float[torch.Tensor, "maps tokens tokens"]
) -> tuple[Float[torch.Tensor, "maps words words"], Bool[torch.Tensor, "maps words"]]:
    """Return the maps without their special tokens, and which of their rows are no padding."""
    within = inside(stack)
    order = (~within).int().argsort(dim=1, stable=True)
    held = torch.arange(within.shape[1], device=light.device) < within.sum(1, keepdim=True)
    rows = light.gather(1, order[:, :, None].expand_as(light))
    words = rows.gather(2, order[:, None, :].expand_as(light))
    return words * held[:, None, :] * held[:, :, None], held


def _path(
    words: Float[torch.Tensor, "maps words words"], count: Int[torch.Tensor, " maps"]
) -> tuple[Int[torch.Tensor, "maps words"], Float[torch.Tensor, "maps words"]]:
    """Return per row, how far the brightest path is off the diagonal (columns), and its brightness there."""
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
    there = (near >= 0) & (near < count[:, None, None])
    value = words.gather(2, near.clamp(0, words.shape[1] - 1)) * there
    return value.sum(2) / there.sum(2).clamp(min=1)
