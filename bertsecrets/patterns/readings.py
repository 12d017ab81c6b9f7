"""The two readings of what K19 calls vertical.

According to K19's section 4.1, *vertical* mainly corresponds to attention to the special tokens [CLS] and [SEP]
(reading `special`). According to the authors' blog, it is attention to a single token, usually a special one (reading
`stripes`). Each reading is defined by the labels of independent readers who were given only that text.

This module does not import torch.
"""

from typing import Literal

Reading = Literal["special", "stripes"]
READINGS: tuple[Reading, ...] = ("special", "stripes")
TEXTS: dict[str, Reading] = {"paper": "special", "blog": "stripes"}  # reading by the text that readers were given
# Readers whose labels are held out from training, to measure agreement among readers and with new readers.
HELD_OUT_READERS = ("5", "6", "7")
READERS_OF_A_MAP = 2  # number of readers per map whose labels are used for training
