"""The two readings of what K19 calls vertical.

K19's section 4.1 says that *vertical* mainly corresponds to attention to the special tokens [CLS] and [SEP] (reading
`special`); the authors' blog, that it is attention to a single token, usually a special one (reading `stripes`). Each
reading is defined by the classes that independent readers give to maps when they know nothing but that text.

Nothing here imports torch.
"""

from typing import Literal

Reading = Literal["special", "stripes"]
READINGS: tuple[Reading, ...] = ("special", "stripes")
TEXTS: dict[str, Reading] = {"paper": "special", "blog": "stripes"}  # which text a reader was given
# Readers whose labels train no classifier: they show how readers differ, and how a classifier agrees with new ones.
HELD_OUT_READERS = ("5", "6", "7")
READERS_OF_A_MAP = 2  # whose labels a classifier is trained on
