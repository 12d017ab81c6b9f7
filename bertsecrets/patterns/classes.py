"""The five classes of attention maps (K19 section 4.1, figure 1), and the brightness scale used to display maps.

A cell's brightness is computed in three steps: its weight is divided by the quantile `DISPLAYED_QUANTILE`, capped at 1,
and raised to the power `GAMMA`. Visual features use the same scale as the images that annotators saw. This module does
not import torch.
"""

from typing import Literal, get_args

from bertsecrets.errors import UserError, near_matches

ClassName = Literal["vertical", "diagonal", "vertical-diagonal", "block", "heterogeneous"]
CLASSES: tuple[ClassName, ...] = get_args(ClassName)
GAMMA = 0.5  # square root, so that a diagonal with 1 % of the mass is visible next to a column with the rest
DISPLAYED_QUANTILE = 0.98  # quantile of the row maxima that is displayed with maximum brightness


def check_class(name: str) -> str:
    """Return `name` unchanged, or raise a `UserError` if it is not the name of a class."""
    if name not in CLASSES:
        raise UserError(f"unknown class {name!r}: {near_matches(name, CLASSES)}")
    return name
