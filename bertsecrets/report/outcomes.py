"""The symbols, colours, plurals and meanings of outcomes, for all reports."""

from collections.abc import Collection, Sequence
from dataclasses import dataclass

from bertsecrets.formats import ERROR


@dataclass(frozen=True)
class Look:
    """The presentation of an outcome. `tint` and `ink` are colours of the page in light and dark mode."""

    sign: str  # a single character that is understandable without colours
    style: str  # text style in rich's notation
    tint: tuple[str, str]  # background
    ink: tuple[str, str]  # text
    meaning: str  # for the legend
    plural: str = ""  # if different from the outcome


OUTCOMES: dict[str, Look] = {  # in report order; the last is for claims that could not be measured
    "reproduced": Look(
        "✓",
        "green",
        ("#d9eeea", "#123f39"),
        ("#0a574d", "#93ddcf"),
        "The data show the claimed order or equality for this model and training procedure, not just for one run.",
    ),
    "compatible": Look(
        "≈",
        "green",
        ("#dfeaf8", "#17304d"),
        ("#17497d", "#a4ccf5"),
        "The data do not contradict the published figure. This is not evidence that the two values are equal; the "
        "reason says how large a difference would have been noticed.",
    ),
    "deviates": Look(
        "✗",
        "red",
        ("#fbe1d1", "#55280f"),
        ("#8a3005", "#ffb48c"),
        "The data contradict the claim: the opposite holds, the effect is too small (negligible, or less than half of "
        "the published one), or the value differs from the published or expected one.",
        plural="deviate",
    ),
    "inconclusive": Look(
        "?",
        "cyan",
        ("#eceef1", "#292e35"),
        ("#4b535d", "#bac1ca"),
        "Not enough evidence either way, for example because of too few examples or seeds. The claim neither passes "
        "nor fails.",
    ),
    "degenerate": Look(
        "⊘",
        "bold red",
        ("#ece1f5", "#3a2650"),
        ("#5b2a8a", "#d8b7f2"),
        "The model has collapsed, so its results are not evidence for or against any claim.",
    ),
    "not applicable": Look(
        "–",
        "dim",
        ("transparent", "transparent"),
        ("#59616c", "#a3abb6"),
        "The claim needs something that the model or the task does not have, such as layer 7 of a 6-layer model.",
    ),
    ERROR: Look(
        "!",
        "magenta",
        ("#fadee7", "#4f1c2e"),
        ("#881641", "#f6a8c2"),
        "The claim could not be measured; the card says why.",
        plural="errors",
    ),
}


def outcome_label(outcome: str) -> str:
    """Return an outcome with its symbol.

    >>> outcome_label("deviates")
    '✗ deviates'
    """
    return f"{OUTCOMES[outcome].sign} {outcome}"


ALWAYS_COUNTED = ("reproduced", "deviates")  # outcomes whose number is given even if it is 0


def tally(outcomes: Sequence[str], always: Collection[str] = ()) -> dict[str, int]:
    """Count the claims per outcome, in the order of `OUTCOMES`. Zeros are included only for outcomes in `always`."""
    counts = {outcome: outcomes.count(outcome) for outcome in OUTCOMES}
    return {outcome: count for outcome, count in counts.items() if count or outcome in always}


def outcome_counts(outcomes: Sequence[str], marks: Sequence[str] = (), always: Collection[str] = ALWAYS_COUNTED) -> str:
    """Return the number of claims per outcome as text, with the marks of deviations (see `text.outcome_mark`).

    Outcomes in `always` are listed even if no claim has them.

    >>> outcome_counts(["reproduced", "inconclusive", "compatible", "reproduced"])
    '2 reproduced, 1 compatible, 0 deviate, 1 inconclusive'
    >>> outcome_counts(["deviates", "reproduced", "deviates", "deviates"], ["accepted", "expected", "known"])
    '1 reproduced, 3 deviate (1 known, 1 expected, 1 accepted)'
    """
    counts = tally(outcomes, always)
    of_marks = (f"{marks.count(name)} {name}" for name in ("known", "expected", "accepted") if name in marks)
    notes = {"deviates": f" ({', '.join(of_marks)})"} if any(marks) else {}
    return ", ".join(
        f"{count} {outcome if count == 1 else OUTCOMES[outcome].plural or outcome}{notes.get(outcome, '')}"
        for outcome, count in counts.items()
    )
