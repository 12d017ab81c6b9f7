"""The readings (interpretations) of what K19 means by *vertical*.

According to K19's section 4.1, *vertical* mainly corresponds to attention to the special tokens [CLS] and [SEP]
(reading `special`). According to the authors' blog, *vertical* is attention to a single token, usually a special token
(reading `stripes`). For each of these two readings, maps were labelled by independent readers who had been given only
the text on which the reading is based. A claim about class shares is judged with the reading from the claim's own
source. P20's repository contains labels by K19's authors. A classifier trained on these labels defines a third reading
(`k19`). If this classifier exists, its reading replaces the other two for the paper's model.

This module does not import torch.
"""

from collections.abc import Sequence
from typing import Literal

Reading = Literal["special", "stripes", "k19"]
READINGS: tuple[Reading, ...] = ("special", "stripes")
AUTHORS: Reading = "k19"
READING_TITLES: dict[str, str] = {
    "special": "section 4.1: vertical is mainly attention to [CLS] and [SEP]",
    "stripes": "blog: vertical is attention to a single token",
    AUTHORS: "the labels of K19's authors",
}
READERS_OF_A_MAP = 2  # number of readers per map whose labels are used for training
AGREED_SHARE = 0.8  # fraction of a map's labels that must be equal


def majority_label(labels: Sequence[str]) -> str:
    """Return the most frequent label of a map. In case of a tie, the label that comes first is returned.

    >>> majority_label(["block", "diagonal", "diagonal"])
    'diagonal'
    """
    return max(labels, key=labels.count)


def labels_agree(labels: Sequence[str]) -> bool:
    """Return whether at least 80% of a map's labels are equal. A single label always counts as agreement.

    >>> labels_agree(["block", "diagonal"])
    False
    """
    return bool(labels) and max(map(labels.count, labels)) >= AGREED_SHARE * len(labels)
