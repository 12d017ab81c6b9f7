"""Two readings of what K19 calls vertical: from what is seen on a map (its attributes) to one of the five classes.

K19's section 4.1 says that *vertical* mainly corresponds to attention to the special tokens; the authors' blog, that it
is attention to a single token, which usually is a special one. The first is the reading `special`, the second
`stripes`. Both take the same attributes, which annotators give without knowing of any class.

Nothing here imports torch.
"""

from dataclasses import dataclass
from typing import Literal

from bertsecrets.errors import UserError

Reading = Literal["special", "stripes"]
READINGS: tuple[Reading, ...] = ("special", "stripes")
FEW = 5  # stripes: "a few"; shares are also reported for `FEWS`
FEWS = (1, 3, FEW, 9)
MANY = 9  # stripes: this number or more
PARTS = {"S": "special", "O": "other", "D": "diagonal", "B": "squares", "H": "haze"}


@dataclass(frozen=True)
class Attributes:
    """What is seen on an attention map.

    Args:
        special: stripes on [CLS] and [SEP]: 0 none, 1 faint or broken, 2 strong.
        other: the number of strong stripes on other tokens; 9 for nine and more.
        faint: faint stripes on other tokens: 0 none, 1 up to five, 2 more.
        diagonal: a line along the main diagonal, or right next to it: 0 none, 1 faint or partial, 2 plain.
        squares: each text attends to itself: 0 no, 1 weakly, 2 plainly.
        haze: attention that lies in no stripe, line or square: 0 little, 1 some, 2 about as much as in these, or
            more.
        carried_by: one or two letters of `PARTS`, the part with most of the attention first.

    Raises:
        UserError: a value is out of its range.
    """

    special: int
    other: int
    faint: int
    diagonal: int
    squares: int
    haze: int
    carried_by: str

    def __post_init__(self) -> None:
        for name, most in (("special", 2), ("other", MANY), ("faint", 2), ("diagonal", 2), ("squares", 2), ("haze", 2)):
            if not 0 <= getattr(self, name) <= most:
                raise UserError(f"{name} is {getattr(self, name)}: give 0 to {most}")
        letters = self.carried_by
        if not 1 <= len(letters) <= 2 or len(set(letters)) < len(letters) or not set(letters) <= set(PARTS):
            raise UserError(f"carried by {letters!r}: give one or two different letters of {', '.join(PARTS)}")


def read_class(attributes: Attributes, reading: Reading, few: int = FEW) -> str:
    """Return the class of a map under a reading.

    Under both, squares that carry the map make it *block*. Under `special`, a line or stripes count where they carry
    the map, alone or with another part, and stripes on special tokens alone: a map is *vertical* where they carry
    most. Under `stripes`, whatever is plainly there counts, and stripes on any token, as long as those on others are
    few.

    Args:
        few: how many strong stripes on other tokens are still a few.

    >>> read_class(Attributes(special=0, other=1, faint=0, diagonal=0, squares=0, haze=1, carried_by="O"), "special")
    'heterogeneous'
    >>> read_class(Attributes(special=0, other=1, faint=0, diagonal=0, squares=0, haze=1, carried_by="O"), "stripes")
    'vertical'
    """
    seen = attributes
    if seen.squares == 2 and seen.carried_by[0] == "B":
        return "block"
    if reading == "special":
        line = seen.diagonal == 2 and "D" in seen.carried_by
        column = seen.special == 2 and ("S" in seen.carried_by if line else seen.carried_by[0] == "S")
    else:
        line = seen.diagonal == 2
        column = (seen.special == 2 or seen.other >= 1) and seen.other <= few
    if line:
        return "vertical-diagonal" if column else "diagonal"
    return "vertical" if column else "heterogeneous"
