"""Sets of heads to disable together: single heads, whole layers, pairs, nested sets, or sets given as text.

In code, a head is a tuple (layer, head), with both counted from 0. In text, layers and heads are numbered from 1.
"""

import itertools
import re
from collections.abc import Iterable, Sequence

from bertsecrets.errors import UserError
from bertsecrets.progress import counted

Head = tuple[int, int]
HeadSet = frozenset[Head]

BASELINE: HeadSet = frozenset()


def single_heads(layers: int, heads: int) -> list[HeadSet]:
    """Return a set for each head, in order of layers (K19 section 4.6, figure 8)."""
    return [frozenset({(layer, head)}) for layer in range(layers) for head in range(heads)]


def whole_layers(layers: int, heads: int) -> list[HeadSet]:
    """Return a set for each layer, with all heads of the layer (K19 section 4.6, figure 9)."""
    return [frozenset((layer, head) for head in range(heads)) for layer in range(layers)]


def head_pairs(layer: int, heads: int) -> list[HeadSet]:
    """Return a set for each pair of heads in a layer. `layer` is counted from 0."""
    return [frozenset({(layer, a), (layer, b)}) for a, b in itertools.combinations(range(heads), 2)]


def nested(order: Sequence[Head]) -> list[HeadSet]:
    """Return the sets of stepwise pruning: the first head of `order`, the first two heads, and so on.

    >>> [label(heads) for heads in nested([(0, 1), (6, 5)])]
    ['1.2', '1.2+7.6']
    """
    return [frozenset(order[:count]) for count in range(1, len(order) + 1)]


def parse_sets(text: str, layers: int, heads: int) -> list[HeadSet]:
    """Parse sets of heads from text, removing duplicates.

    `1.2 7.6 1.2+7.6 5` selects head 2 of layer 1, head 6 of layer 7, both together, and all heads of layer 5. `pairs:3`
    selects each pair of heads in layer 3. `nested:1.2,7.6,2` selects a series of growing sets: 1.2, then 1.2+7.6, and
    then one more head of layer 2 at a time. `all` selects all heads of the model as one set.

    Args:
        layers, heads: Number of layers, and number of heads per layer.

    >>> [label(heads) for heads in parse_sets("1.2 1.2+2.1 2 all", layers=2, heads=2)]
    ['1.2', '1.2+2.1', '2.1+2.2', '1.1+1.2+2.1+2.2']
    """
    sets = list(dict.fromkeys(head_set for item in text.split() for head_set in _parse_item(item, layers, heads)))
    if not sets:
        raise UserError(
            "no heads given: write LAYER.HEAD for a head or LAYER for a whole layer (counted from 1), join the heads "
            'of a set with +, and separate sets with spaces, as in "1.2 1.2+7.6 5"'
        )
    return sets


def _parse_item(item: str, layers: int, heads: int) -> list[HeadSet]:
    if item == "all":
        return [frozenset(itertools.product(range(layers), range(heads)))]
    kind, colon, rest = item.partition(":")
    if not colon:
        return [frozenset(head for part in item.split("+") for head in _parse(part, layers, heads))]
    if kind == "nested":
        return nested(list(dict.fromkeys(head for part in rest.split(",") for head in _parse(part, layers, heads))))
    if kind == "pairs" and rest.isascii() and rest.isdecimal():
        pairs = head_pairs(_parse(rest, layers, heads)[0][0], heads)
        if pairs:
            return pairs
        raise UserError(f"{item!r} has no pairs: each layer of this model has only one head")
    raise UserError(
        f"{item[:60]!r} is not a set of heads: "
        "write a set as 1.2, 1.2+7.6, 5 (a whole layer), all, pairs:5 or nested:1.2,7.6"
    )


def _parse(part: str, layers: int, heads: int) -> list[Head]:
    match = re.fullmatch(r"([0-9]{1,9})(?:\.([0-9]{1,9}))?", part)
    if match is None:
        raise UserError(
            f"{part[:60]!r} is not a head: write LAYER.HEAD for a head or LAYER for a whole layer, counted from 1"
        )
    layer, head = int(match[1]), int(match[2]) if match[2] else None
    if not 1 <= layer <= layers or (head is not None and not 1 <= head <= heads):
        raise UserError(f"{part!r} does not exist: the model has layers 1 to {layers} with heads 1 to {heads}")
    return [(layer - 1, head - 1)] if head is not None else [(layer - 1, h) for h in range(heads)]


def label(heads: HeadSet) -> str:
    """Return a set in the notation of `parse_sets`, with numbers from 1. The label of the empty set is `none`.

    >>> label(frozenset({(0, 1), (6, 5)}))
    '1.2+7.6'
    """
    return "+".join(f"{layer + 1}.{head + 1}" for layer, head in sorted(heads)) or "none"


def lowest_layer(heads: HeadSet, layers: int) -> int:
    """Return the index of the lowest layer that has a head in the set, or `layers` if the set is empty."""
    return min((layer for layer, _ in heads), default=layers)


def check_sets(sets: Iterable[HeadSet], layers: int, heads: int) -> None:
    """Check that all heads in the sets exist in a model with these numbers of layers and heads."""
    for layer, head in itertools.chain.from_iterable(sets):
        if not (0 <= layer < layers and 0 <= head < heads):
            raise UserError(
                f"no head {head + 1} in layer {layer + 1}: "
                f"the model has {counted(layers, 'layer')} of {counted(heads, 'head')}"
            )
