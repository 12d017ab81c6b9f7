"""Why a verdict has its outcome: grounds with numbers, which only this module turns into text."""

from dataclasses import dataclass
from enum import Enum
from string import Formatter
from typing import Any

from bertsecrets.claims.band import format_interval, format_number

_INSIDE = "{observed} lies inside the prediction interval around the published figure"


class Grounds(Enum):
    """The text of each reason and, for open claims, a note of a few words for tables."""

    BEYOND_LIMIT = "{interval} lies beyond the limit"
    INCLUDES_LIMIT = "{interval} includes the limit", "interval includes the limit"
    INCLUDES_NEGLIGIBLE = (
        "{interval} also includes effects below the smallest of interest, {size} ({why})",
        "interval includes effects too small to matter",
    )
    OTHER_SIDE = (
        "{interval} lies on the other side of the limit",
        "interval lies on the limit's other side",
    )
    NEGLIGIBLE = (
        "{interval} is below the smallest effect of interest, {size} ({why})",
        "interval is below the smallest effect of interest",
    )
    LESS_THAN_HALF = (
        "the order holds, but {interval} is less than half of the published effect",
        "interval is below half of the published effect",
    )
    AT_LIMIT = "nothing to judge: every resample equals the limit exactly", "nothing to judge"
    LIMITED_ROWS = "{now}, but only some of the rows were used", "too small, on limited rows"
    UNMET = "{unmet}", "a condition of the claim is not met"
    REFUTED = (
        "{refuted}, for any examples, so the interval is not used",
        "no examples could support the claim",
    )
    EQUAL = "{interval} lies inside {limits}: {why}"
    UNEQUAL = "{interval} lies outside {limits}: {why}"
    PARTLY_EQUAL = (
        "{interval} lies partly outside {limits}: {why}",
        "interval lies partly outside the band",
    )
    INSIDE = _INSIDE
    OUTSIDE = "{observed} lies outside the prediction interval around the published figure"
    OUTSIDE_SO_FAR = (
        "{observed} lies outside the band, but inside {outer}, which allows for the seeds that may follow",
        "outside the band, but more seeds may follow",
    )
    BAND_TOO_WIDE = f"not decidable: {_INSIDE}, as almost any value would", "not decidable"
    INCLUDES_NOTHING_LEARNED = (
        "{interval} also includes {nothing}, {meaning}",
        "interval includes a model that learned nothing",
    )
    SAME_CONSTANT = "{same} of {seeds} seeds give the published constant answer"
    OTHER_CONSTANT = (
        "every seed gives a constant answer other than the published one, as one more run may do by chance",
        "every seed gives another constant answer",
    )
    INSIDE_WITHOUT_LEARNING = (
        f"{_INSIDE}, that of a constant answer, and the model does no better than the most frequent class"
    )
    LEARNED_SOMETHING = (
        "the published figure is that of a constant answer, but {interval} lies above {nothing}, the score of the most "
        "frequent class",
        "interval lies above the most frequent class",
    )
    CONSTANT_ON_SAMPLE = (
        "constant answers can be compared on the whole validation set only",
        "constant answers need the whole validation set",
    )
    NOT_COMPUTABLE = (
        "the quantity cannot be computed on some of the resamples",
        "the quantity cannot be computed on some resamples",
    )
    ONE_SEED = "one seed is not enough: {needed} are needed", "one seed is not enough"
    FEW_SEEDS = "{seeds} seeds are not enough: {needed} are needed", "{seeds} seeds are not enough"
    FEW_EXAMPLES = "fewer than {needed} examples are not enough"
    UNKNOWN_SPREAD = (
        "the variation between runs is unknown: judge several seeds",
        "variation between seeds is unknown",
    )
    SEED_FAILED = "{problems}"
    SEEDS_FAILED = "{failed} of {seeds} seeds cannot be judged: {problems}", "{failed} of {seeds} seeds learned nothing"
    OTHER_EXAMPLES = "{first} and {second} have {examples} and {others} examples"
    COPIES = "{first} and {second} give the same numbers: the seed has no effect"
    OTHER_MODEL = "{problem}"
    NOT_APPLICABLE = "{message}"

    def __init__(self, text: str, brief: str = "") -> None:
        self.text, self.brief = text, brief or text

    @property
    def code(self) -> str:
        """The code in published verdicts."""
        return self.name.lower().replace("_", "-")

    def __call__(self, **facts: Any) -> "Cause":
        """Return these grounds with the facts that its text names, such as the interval."""
        return Cause(self, facts)


class _Numbers(Formatter):
    """Formats intervals and numbers as all reports do, unless the text gives a format."""

    def format_field(self, value: Any, format_spec: str) -> str:
        if isinstance(value, tuple):
            return format_interval(value)
        return format_number(value) if isinstance(value, float) and not format_spec else format(value, format_spec)


@dataclass(frozen=True)
class Cause:
    """The grounds of a verdict, with the facts that its text names."""

    grounds: Grounds
    facts: dict[str, Any]

    def __str__(self) -> str:
        return _Numbers().vformat(self.grounds.text, (), self.facts)

    @property
    def brief(self) -> str:
        """The reason in a few words."""
        return _Numbers().vformat(self.grounds.brief, (), self.facts)
