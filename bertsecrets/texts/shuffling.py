"""Texts with their words in a random order."""

from collections.abc import Sequence
from dataclasses import replace

import numpy as np

from bertsecrets.texts.glue import Split


def shuffled(split: Split, draw: int) -> Split:
    """Return a split whose texts have their words in a random order; the texts of a pair stay apart.

    Words are what white space divides, so punctuation that is written onto a word moves with it. The order of each text
    depends on `draw`, on the row's number and on nothing else.
    """
    second = None if split.sentence2 is None else _shuffled(split.sentence2, draw, 2)
    return replace(split, sentence1=_shuffled(split.sentence1, draw, 1), sentence2=second, official=False)


def _shuffled(texts: Sequence[str], draw: int, of_pair: int) -> list[str]:
    orders = (np.random.default_rng([draw, of_pair, row]) for row in range(len(texts)))
    return [" ".join(order.permutation(text.split())) for text, order in zip(texts, orders, strict=True)]
