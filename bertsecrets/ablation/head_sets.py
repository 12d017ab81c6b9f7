"""Which heads are switched off together: single heads, layers, pairs, nested sets, or a list someone typed.

In code a head is (layer, head), counted from 0; what people read and write is counted from 1.
"""

import itertools
import re
from collections.abc import Iterable, Sequence

from bertsecrets.errors import UserError

Head = tuple[int, int]
HeadSet = frozenset[Head]

BASELINE: HeadSet = frozenset()


def single_heads(layers: int, heads: int) -> list[HeadSet]:
    """Every head on its own, layer by layer (K19 section 4.6, figure 8)."""
    return [frozenset({(layer, head)}) for layer in range(layers) for head in range(heads)]


def whole_layers(layers: int, heads: int) -> list[HeadSet]:
    """All heads of one layer, for every layer (K19 section 4.6, figure 9)."""
    return [frozenset((layer, head) for head in range(heads)) for layer in range(layers)]


def head_pairs(layer: int, heads: int) -> list[HeadSet]:
    """All pairs of heads of one layer, `layer` counted from 0."""
    return [frozenset({(layer, a), (layer, b)}) for a, b in itertools.combinations(range(heads), 2)]


def nested(order: Sequence[Head]) -> list[HeadSet]:
    """The first head of `order`, the first two, and so on: what pruning in that order disables step by step."""
    return [frozenset(order[:count]) for count in range(1, len(order) + 1)]


def parse_sets(text: str, layers: int, heads: int) -> list[HeadSet]:
    """Sets as people write them: `1.2 7.6 1.2+7.6 5` is head 2 of layer 1, head 6 of layer 7, both, and layer 5.

    `pairs:3` is every pair of heads of layer 3; `nested:1.2,7.6,2` is 1.2, then 1.2+7.6, then these and layer 2's heads
    one by one. A set named twice stands once.

    Raises:
        UserError: something else than that, or a head that the model does not have.
    """
    sets = list(dict.fromkeys(each for item in text.split() for each in _parse_item(item, layers, heads)))
    if not sets:
        raise UserError("no heads named: write LAYER.HEAD, or LAYER for a whole layer, counted from 1 (1.2 1.2+7.6 5)")
    return sets


def _parse_item(item: str, layers: int, heads: int) -> list[HeadSet]:
    kind, colon, rest = item.partition(":")
    if not colon:
        return [frozenset(head for part in item.split("+") for head in _parse(part, layers, heads))]
    if kind == "nested":
        return nested(list(dict.fromkeys(head for part in rest.split(",") for head in _parse(part, layers, heads))))
    if kind == "pairs" and rest.isdecimal():
        found = head_pairs(_parse(rest, layers, heads)[0][0], heads)
        if found:
            return found
        raise UserError(f"{item!r} names no pair: a layer of this model has one head")
    raise UserError(f"{item!r} names no heads: write 1.2, 1.2+7.6, 5 for a layer, pairs:5, or nested:1.2,7.6")


def _parse(part: str, layers: int, heads: int) -> list[Head]:
    match = re.fullmatch(r"(\d+)(?:\.(\d+))?", part)
    if match is None:
        raise UserError(f"{part!r} names no head: write LAYER.HEAD, or LAYER for a whole layer, counted from 1")
    layer, head = int(match[1]), int(match[2]) if match[2] else None
    if not 1 <= layer <= layers or (head is not None and not 1 <= head <= heads):
        raise UserError(f"{part!r} is not in this model: it has layers 1 to {layers} and heads 1 to {heads} in each")
    return [(layer - 1, head - 1)] if head is not None else [(layer - 1, h) for h in range(heads)]


def label(heads: HeadSet) -> str:
    """A set as `parse_sets` reads it, counted from 1; `none` for the empty one."""
    return "+".join(f"{layer + 1}.{head + 1}" for layer, head in sorted(heads)) or "none"


def lowest_layer(heads: HeadSet, layers: int) -> int:
    """The first layer a set changes anything in; `layers` for the empty set."""
    return min((layer for layer, _ in heads), default=layers)


def check_sets(sets: Iterable[HeadSet], layers: int, heads: int) -> None:
    """Make sure that a model has all the heads named.

    Raises:
        UserError: it lacks one.
    """
    for layer, head in itertools.chain.from_iterable(sets):
        if not (0 <= layer < layers and 0 <= head < heads):
            raise UserError(f"no head {head + 1} in layer {layer + 1}: the model has {layers} layers of {heads} heads")
