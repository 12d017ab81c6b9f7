"""Against whom a claim deviates: the paper's figure or its text, what its authors wrote elsewhere, or ourselves."""

import re
from collections.abc import Iterable

from bertsecrets.claims.band import format_number
from bertsecrets.claims.paper import MODEL, is_papers_model
from bertsecrets.claims.schema import Case

PAPERS = "the paper's text"
WHOSE = {  # by the first word of a claim's source; others are named as they are
    "K19": PAPERS,
    "notebook": PAPERS,
    "ours": "what this suite expects",
    "hypothesis": "a hypothesis",
    "blog": "the text of the authors' blog",
    "G": "the report on GPT-2",
}


def against(case: Case, observed: float, band: tuple[float, float], models: Iterable[str]) -> str:
    """Return from what an observed quantity deviates, in words.

    What the paper's own figures contradict is told apart from what they show, and a second source is named with
    whether this agrees with it. So is a model that the paper did not have.

    Args:
        band: of the claim. Its width is also that of the agreement with a second source.
        models: that were measured.
    """
    figure, expect = case.figure, case.claim.expect
    assert expect is not None
    first = re.split("[;,]", case.claim.source)[0]
    whose = WHOSE.get(first.split()[0], first)
    parts = []
    if expect.kind == "around" and whose == PAPERS:
        parts.append("the paper's figure")
    elif figure.published is not None and contradicted(case):
        parts.append(f"{whose}, which the published figure contradicts too ({format_number(figure.published)})")
    elif figure.published is not None and band[0] < observed < band[1]:
        parts.append("the size of the published effect")
    else:
        parts.append(whose)
    if figure.second_value is not None and figure.published is not None and expect.kind == "around":
        half = max(figure.published - band[0], band[1] - figure.published)  # one end may be cut off
        agrees = abs(observed - figure.second_value) <= half
        parts.append(f"{'but it agrees with' if agrees else 'and from'} {figure.second}")
    others = [name for name in models if not is_papers_model(name)]
    where = f" (on {', '.join(others)}; the paper's model is {MODEL})" if others else ""
    return ", ".join(parts) + where


def contradicted(case: Case) -> bool:
    """Return whether an order's own published figure contradicts it, as table 1 contradicts "well on all tasks"."""
    published, expect = case.figure.published, case.claim.expect
    if published is None or expect is None or expect.kind not in ("above", "below"):
        return False
    return published <= expect.value if expect.kind == "above" else published >= expect.value
