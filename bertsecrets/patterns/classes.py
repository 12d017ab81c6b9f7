"""The five classes of attention maps (K19 section 4.1, figure 1), their keys, and the guideline to tell them apart.

Nothing here imports torch.
"""

from bertsecrets.errors import UserError, near_matches

CLASSES = ("vertical", "diagonal", "vertical-diagonal", "block", "heterogeneous")
KEYS = {str(number): name for number, name in enumerate(CLASSES, start=1)}

GUIDELINES = {
    "vertical": "A column's bar reaches the line, or one to five plain columns run through; no diagonal line.",
    "diagonal": "A line along the main diagonal over most of its length; no column's bar reaches the line.",
    "vertical-diagonal": "Both: a plain diagonal line, and a column whose bar reaches the line.",
    "block": "Two lit squares, one per text; both other corners are clearly darker.",
    "heterogeneous": "None of these: scattered cells, many or broken columns, even haze.",
}


def check_class(name: str) -> str:
    """Return the class called `name`.

    Raises:
        UserError: there is no such class.
    """
    if name not in CLASSES:
        raise UserError(f"unknown class {name!r}: {near_matches(name, CLASSES)}")
    return name
