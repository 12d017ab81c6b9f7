"""Features that detect two lit squares along the diagonal with dark corners beside them, as an eye sees them.

Here brightness counts (`picture.stack_brightness`); `off_diagonal` does the same for masses. All are 0 for one text.
"""

import torch
from jaxtyping import Float

from bertsecrets.patterns.features.regions import Column, both_texts, inside, mean, quarter_sizes, quarters
from bertsecrets.patterns.map_stack import MapStack

LIT = 0.2  # brightness from which a cell of a square counts as lit
STEP = 3  # tokens on each side of the border


def block_features(stack: MapStack, light: Float[torch.Tensor, "maps tokens tokens"]) -> dict[str, Column]:
    """Return the features: how full squares and corners are, how far the squares reach, how sharp the border is."""
    texts = both_texts(stack)
    two = texts.any(2).all(1).float()
    marks, sizes = texts.float(), texts.sum(2)
    places = quarter_sizes(texts).clamp(min=1)
    lit = quarters((light > LIT).float(), texts) / places
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
    before = within & (places >= border - 1 - STEP) & (places < border - 1)
    after = within & (places >= border) & (places < border + STEP)
    change = [
        mean((light * before[:, None, :]).sum(2) / before.sum(1).clamp(min=1)[:, None], rows)
        - mean((light * after[:, None, :]).sum(2) / after.sum(1).clamp(min=1)[:, None], rows)
        for rows in texts.unbind(1)
    ]
    return torch.minimum(change[0], -change[1])
