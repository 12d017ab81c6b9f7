"""The reasons for verdicts, as grounds with facts such as numbers. Only this module turns reasons into text."""

from dataclasses import dataclass
from enum import Enum, unique
from string import Formatter
from typing import Any

from bertsecrets.claims.band import format_interval, format_number
from bertsecrets.formats import DEVIATIONS, Deviation

TOO_SMALL, DIFFERS, OPPOSITE = DEVIATIONS
_DIFFERENCE = "differs by {difference:+} [{low:+}, {high:+}] from the published {published}"


@unique
class Grounds(Enum):
    """The possible grounds of a verdict, each with a full and a short text. A deviation's short text names its kind."""

    BEYOND_LIMIT = "{interval} lies {side} {limit}, as claimed", ""
    INCLUDES_LIMIT = "{interval} includes the limit {limit}", "includes {limit}"
    INCLUDES_NEGLIGIBLE = (
        "{interval} also includes effects below the smallest effect of interest, {size} ({why})",
        "may be too small",
    )
    OTHER_SIDE = "{interval} lies {side} {limit}, opposite to the claim", OPPOSITE
    NEGLIGIBLE = "{interval} lies {side} {limit}, the smallest effect of interest ({why})", TOO_SMALL
    LESS_THAN_HALF = "the order holds, but {interval} is less than half of the published effect", TOO_SMALL
    AT_LIMIT = "nothing to judge: every resample equals the limit exactly", "nothing to judge"
    LIMITED_ROWS = "{now}, but only some of the rows were used", "limited rows"
    EXISTENCE = "{now}, but another head or layer may still have the effect", "another head may"
    UNMET = "{unmet}", "{unmet:clause}"
    REFUTED = "{refuted}, whichever examples are sampled, so the interval is not used", OPPOSITE
    EQUAL = "{interval} lies inside {limits}, the range that counts as equal ({why})", ""
    UNEQUAL = "{interval} lies outside {limits}, the range that counts as equal ({why})", DIFFERS
    PARTLY_EQUAL = "{interval} lies partly outside {limits}, the range that counts as equal ({why})", "partly outside"
    INSIDE = (
        _DIFFERENCE + ": compatible; a difference of {half:.2} would not have been noticed",
        "{difference:+} within ±{half:.2}",
    )
    OUTSIDE_TOLERANCE = (
        _DIFFERENCE + "; the difference does not significantly exceed the tolerance of {tolerance}",
        "outside the tolerance",
    )
    OUTSIDE = _DIFFERENCE, DIFFERS
    OUTSIDE_SO_FAR = (
        "{observed} lies outside the band, but inside the wider band {outer} that applies while more seeds may follow",
        "{seeds} of {planned} seeds",
    )
    BAND_TOO_WIDE = (
        "not decidable: the band around the published value {published} covers most possible values",
        "band too wide",
    )
    INCLUDES_NOTHING_LEARNED = "{interval} also includes {nothing}, {meaning}", "includes {nothing}"
    OTHER_SIDE_OF_NOTHING = (
        "{interval} and the published figure lie on different sides of {nothing}, {meaning}",
        "other side of {nothing}",
    )
    SAME_CONSTANT = "{same} of {seeds} seeds give the published constant answer", "same constant"
    OTHER_CONSTANT = (
        "every seed gives a constant answer, but no seed gives the published one; this may be due to chance",
        "other constant",
    )
    INSIDE_WITHOUT_LEARNING = (
        f"{_DIFFERENCE}, which is the score of a constant answer. The model's score is not significantly more than "
        "{tolerance} above that of the most frequent class: compatible; a difference of {half:.2} would not have been "
        "noticed",
        "{difference:+} within ±{half:.2}",
    )
    LEARNED_SOMETHING = (
        "the published figure is the score of a constant answer, but {interval} lies above {nothing}, the score of the "
        "most frequent class",
        "above a constant answer",
    )
    CONSTANT_ON_SAMPLE = "constant answers can be compared only on the whole validation set", "limited rows"
    NOT_COMPUTABLE = "the quantity cannot be computed on some of the resamples", "not computable"
    FEW_SEEDS = "{seeds} of the {needed} seeds needed to judge the claim", "{seeds} of {needed} seeds"
    FEW_EXAMPLES = (
        "fewer than {needed} examples, too few to judge the claim (rows that share a text count as one)",
        "under {needed} examples",
    )
    UNKNOWN_SPREAD = "the variation between runs is unknown until several seeds are judged", "seed spread unknown"
    SEED_FAILED = "{problems}", "collapsed"
    SEEDS_FAILED = "{failed} of {seeds} seeds failed: {problems}", "{failed} of {seeds} seeds failed"
    COPIES = "{first} and {second} give the same or nearly the same numbers: the seed has no effect", "identical seeds"
    OTHER_ARCHITECTURE = "is about {wanted}; the model is {architecture}", "about {wanted}"
    OTHER_WEIGHTS = (
        "is about the published weights of {wanted}; this model has different weights{instead}",
        "other weights",
    )
    OTHER_SHAPE = "needs {layers} layers x {heads} heads; {has}{instead}", "needs {layers} x {heads} heads"
    NOT_APPLICABLE = "{message}", "{message:clause}"
    NOT_GIVEN = "{needed}", "{needed:clause}"

    def __init__(self, text: str, brief: str) -> None:
        self.text, self.brief = text, brief

    @property
    def code(self) -> str:
        """The code in published verdicts."""
        return self.name.lower().replace("_", "-")

    @property
    def deviation(self) -> Deviation | None:
        """The kind of deviation that these grounds describe, or None if they do not describe a deviation."""
        return next((kind for kind in DEVIATIONS if kind == self.brief), None)

    def __call__(self, **facts: Any) -> "Cause":
        """Return these grounds together with the facts to insert into their text, such as the interval."""
        return Cause(self, facts)


class _Numbers(Formatter):
    """A formatter: `+` adds a sign, `.2` keeps two digits, and `clause` keeps the text before the first colon."""

    def format_field(self, value: Any, format_spec: str) -> str:
        if isinstance(value, tuple):
            return format_interval(value)
        if format_spec == "clause":
            return str(value).partition(": ")[0]
        if not isinstance(value, float):
            return format(value, format_spec)
        if format_spec == ".2":
            return f"{float(f'{value:.2g}'):g}"
        return ("+" if format_spec == "+" and value > 0 else "") + format_number(value)


@dataclass(frozen=True)
class Cause:
    """The grounds of a verdict, with the facts that their text mentions.

    Raises:
        KeyError: If a fact is missing.
        ValueError: If a fact does not have the type that the text needs.
    """

    grounds: Grounds
    facts: dict[str, Any]

    def __post_init__(self) -> None:
        _ = str(self), self.brief

    def __str__(self) -> str:
        return _Numbers().vformat(self.grounds.text, (), self.facts)

    @property
    def brief(self) -> str:
        """The reason in a few words."""
        return _Numbers().vformat(self.grounds.brief, (), self.facts)
