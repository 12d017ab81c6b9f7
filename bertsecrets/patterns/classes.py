"""The five classes of attention maps (K19 section 4.1, figure 1), the keys that stand for them, and how to tell them.

Nothing here imports torch.
"""

from bertsecrets.core import UserError, near_matches

CLASSES = ("vertical", "diagonal", "vertical-diagonal", "block", "heterogeneous")
KEYS = {str(number): name for number, name in enumerate(CLASSES, start=1)}

GUIDELINES = {
    "vertical": "One or a few whole columns, mostly [CLS] and [SEP], carry most of the mass in nearly all rows.",
    "diagonal": "Lines parallel to the main diagonal (previous, same or next token) carry most of the mass.",
    "vertical-diagonal": "Both at once: full-height columns and a diagonal line, each plain to see.",
    "block": "Attention stays within each sentence: two squares along the diagonal, and no column dominates.",
    "heterogeneous": "Anything else: scattered cells and short strokes that depend on the words.",
}


def check_class(name: str) -> str:
    """The class called `name`.

    Raises:
        UserError: no such class.
    """
    if name not in CLASSES:
        raise UserError(f"unknown class {name!r}: {near_matches(name, CLASSES)}")
    return name
