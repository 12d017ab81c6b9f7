"""Verdicts, which hold the outcome of a claim on a task and can be converted to serializable data."""

import math
from collections import Counter
from collections.abc import Iterable, Sequence
from dataclasses import dataclass
from typing import Any, Literal

from bertsecrets.claims.band import format_interval, format_number, reach
from bertsecrets.claims.estimand import Extreme
from bertsecrets.claims.expectations import Figure, Order
from bertsecrets.claims.quantities import QUANTITIES
from bertsecrets.claims.quantity import seeds_of
from bertsecrets.claims.reasons import Cause
from bertsecrets.claims.schema import Case
from bertsecrets.formats import ERROR, PASSES, Deviation, Outcome, VerdictData
from bertsecrets.measures.registry import get_measure
from bertsecrets.models.initialisations import get_initialisation
from bertsecrets.models.locations import is_papers_model
from bertsecrets.provenance import TRAINING_MODULE, differences, made_by
from bertsecrets.texts.published import P20_SEEDS, PAPERS_MODEL
from bertsecrets.texts.tasks import ALL_TASKS, GLUE_TASKS
from bertsecrets.types import Measurement, Provenance, as_chart, as_html

PAPER_TEXT = "the paper's text"
SOURCE_TITLES = {  # by the key that a claim's source begins with; other sources are shown unchanged
    "K19": PAPER_TEXT,
    "notebook": PAPER_TEXT,
    "ours": "a hypothesis of this suite",
    "hypothesis": "a hypothesis",
    "blog": "the text of the authors' blog",
    "G": "the report on GPT-2",
}
FIELDS_OF_DATA = (  # attributes that `VerdictData` has under the same name
    *("unit", "observed", "interval", "band", "power", "p_against", "p_for", "extreme", "by_seed", "models", "seeds"),
    *("reason", "reason_code", "brief", "against", "deviation", "known_deviation", "remarks", "reused"),
)


def data_kind(task_name: str, *, official: bool) -> Literal["official", "unofficial", "own"]:
    """Return whether a measurement or verdict is about official, unofficial or the user's own data.

    >>> data_kind("rte", official=False), data_kind("complaints", official=False)
    ('unofficial', 'own')
    """
    if official:
        return "official"
    return "unofficial" if task_name in {ALL_TASKS, *(task.name for task in GLUE_TASKS)} else "own"


@dataclass(frozen=True, repr=False)
class Verdict:
    """The outcome of a claim on a task, with its reason and the measurements behind it.

    Args:
        case: The claim and task that were judged.
        outcome: Outcome. None if the claim could not be measured; in this case, `reason` contains the error message.
        reason: Explanation of the outcome, as text.
        observed: Mean of the quantity across seeds.
        interval: Confidence interval of the quantity.
        band: Limits between which the quantity must lie.
        measurements: Measurements of the usable seeds, on which the verdict is based.
        inputs: All measurements that were read, including those of excluded seeds and those that only show whether a
            seed collapsed.
        power: How many seeds or examples would decide an inconclusive claim, as text.
        by_seed: Parts of the quantity for each seed; most quantities have a single part.
        extreme: Whether the quantity is the smallest or the largest of several parts.
        p_against: P-value against the claim: the smallest significance level at which it deviates. None if the claim
            was not judged.
        p_for: P-value for the claim: the smallest significance level at which it is reproduced. Always None if the
            claim is about a published figure, because a value inside the prediction interval does not rule out other
            values.
        open: Whether more seeds could change the outcome, and the schedule of analyses allows more seeds.
        interim: Text that gives the number of seeds and the confidence level of the analysis (see `sequential`), or
            says that the verdict is only about the measured checkpoints.
        cause: The reason as data; None if the claim was not judged.
        error: The exception, if the claim could not be measured. Any exception that is not a `UserError` is a bug.
    """

    case: Case
    outcome: Outcome | None
    reason: str
    observed: float | None = None
    interval: tuple[float, float] | None = None
    band: tuple[float, float] | None = None
    measurements: tuple[Measurement, ...] = ()
    inputs: tuple[Measurement, ...] = ()
    power: str = ""
    by_seed: tuple[tuple[float, ...], ...] = ()
    extreme: Extreme | None = None
    p_against: float | None = None
    p_for: float | None = None
    open: bool = False
    interim: str = ""
    cause: Cause | None = None
    error: Exception | None = None

    @classmethod
    def because(cls, case: Case, outcome: Outcome, cause: Cause, *notes: str, **more: Any) -> "Verdict":
        """Return a verdict with a reason, followed by notes."""
        return cls(case, outcome, "; ".join([str(cause), *notes]), cause=cause, **more)

    @property
    def status(self) -> str:
        """The outcome, or `error` if the claim could not be measured."""
        return self.outcome or ERROR

    @property
    def reason_code(self) -> str | None:
        """The code of the reason (`reasons.Grounds`); None if the claim was not judged."""
        return self.cause.grounds.code if self.cause else None

    @property
    def brief(self) -> str:
        """The reason in a few words, for tables; empty if the claim is reproduced."""
        if self.cause:
            return self.cause.brief
        return "" if self.outcome in PASSES else self.reason

    @property
    def deviation(self) -> Deviation | None:
        """How the claim deviates; None if it does not deviate."""
        return self.cause.grounds.deviation if self.cause and self.outcome == "deviates" else None

    @property
    def observed_text(self) -> str:
        """The observed value with its interval, as text."""
        shown = format_number(self.observed)
        return f"{shown} {format_interval(self.interval)}" if self.interval else shown

    @property
    def seeds(self) -> tuple[int, ...]:
        """The seeds that were measured, in the order of `by_seed`."""
        return seeds_of(self.measurements)

    @property
    def against(self) -> str:
        """What a deviation contradicts; empty for other outcomes."""
        if self.outcome != "deviates" or self.observed is None or self.band is None:
            return ""
        models = {each.subject.model for each in self.measurements if get_measure(each.measure).reads_model}
        return against(self.case, self.observed, self.band, sorted(models), self.interval)

    @property
    def models(self) -> list[str]:
        """The models of the subjects that were measured."""
        return sorted({measurement.subject.model for measurement in self.measurements})

    @property
    def about_model(self) -> bool:
        """Whether the claim is about a model. Claims such as D7 are only about published figures."""
        needs = QUANTITIES[self.case.claim.quantity].needs.values()
        return any(get_measure(need.measure).reads_model for need in needs)

    @property
    def counted(self) -> bool:
        """Whether the verdict counts as a result for the model. The claim must come from K19 and be about a model."""
        return self.about_model and not self.case.claim.beyond_k19

    @property
    def known_deviation(self) -> bool:
        """Whether the claim deviates, all rows were used, and a deviation is on record for one of the models."""
        known = any(self.case.known_deviation(model) for model in self.models)
        return known and self.outcome == "deviates" and not self.limited

    @property
    def limited(self) -> bool:
        """Whether a measurement used only some of the rows."""
        return any(measurement.provenance.limits for measurement in self.measurements)

    @property
    def reused(self) -> bool:
        """Whether all measurements came from the store."""
        return bool(self.measurements) and all(measurement.reused for measurement in self.measurements)

    @property
    def remarks(self) -> list[str]:
        """Caveats to show with the outcome, such as limited or unofficial data, or the use of stored measurements."""
        remarks = [self.interim] if self.interim else []
        for measurement in self.measurements:
            provenance = measurement.provenance
            if limits := [f"{name} {rows}" for name, rows in provenance.limits.items()]:
                remarks.append(", ".join(limits).replace("_", " "))
            if data_kind(measurement.subject.task, official=provenance.official_data) == "unofficial":
                remarks.append("unofficial data")
            if provenance.precision not in (None, "float32"):
                remarks.append(f"trained in {provenance.precision}")
            remarks += get_measure(measurement.measure).remarks(measurement)
            remarks += _older(measurement)
        remarks += _constant_answers(self.measurements) if self.outcome != "degenerate" else []  # the reason says so
        remarks += _of_two_trainings(self.measurements)
        if self.reused:
            remarks.append("measurements reused")
        return list(dict.fromkeys(remarks))

    def __repr__(self) -> str:
        numbers = "" if self.observed is None else f", {format_number(self.observed)} {format_interval(self.interval)}"
        return f"<Verdict {self.case}: {self.status}{numbers} {self.unit}>".replace(" >", ">")

    def plot(self) -> Any:
        """Return the main chart of the verdict's first measurement, as an Altair object.

        Raises:
            UserError: If the measurement has no chart.
            MissingError: If the extra `report` is not installed.
        """
        return as_chart(self)

    def _repr_html_(self) -> str | None:
        return as_html(self)

    @property
    def unit(self) -> str:
        """The unit of the observed value, its interval and its band."""
        return self.case.unit

    @property
    def data(self) -> VerdictData:
        """The verdict as serializable data, for `--benchmark-json`, reports and other programs."""
        claim, provenances = self.case.claim, [measurement.provenance for measurement in self.measurements]
        return VerdictData(
            id=str(self.case),
            claim=claim.id,
            variant=claim.variant,
            task=self.case.task,
            statement=claim.statement,
            source=claim.source,
            published=self.case.figure.published,
            published_constant_answer=self.case.figure.constant_answer,
            verdict=self.outcome,
            error=None if self.outcome else self.reason,
            official_data=all(provenance.official_data for provenance in provenances),
            weights=sorted({each.weights[:12] for each in provenances if each.weights}),
            **rows_of(provenances),
            definition=self.case.definition,
            claim_version=claim.version,
            seconds=round(sum(provenance.seconds for provenance in provenances), 2),
            **{name: getattr(self, name) for name in FIELDS_OF_DATA},
        )

    def as_json(self) -> dict[str, Any]:
        """Return the verdict as a JSON-compatible dictionary."""
        return self.data.model_dump(mode="json")


def rows_of(provenances: Sequence[Provenance]) -> dict[str, Any]:
    """Return the row limits and the fingerprints of the data behind a verdict, in the fields of `VerdictData`."""
    limits = {
        name: min(given)
        for name in ("limit", "train_limit")
        if (given := [provenance.limits[name] for provenance in provenances if name in provenance.limits])
    }
    data = sorted({each.data_fingerprint[:12] for each in provenances if each.data_fingerprint})
    return {"limits": limits, "data": data}


def _constant_answers(measurements: Iterable[Measurement]) -> list[str]:
    """Return a remark for each initialisation of which a seed gives the same answer to every example."""
    scores: dict[str, list[bool]] = {}
    for each in measurements:
        if "constant" in each.values:
            scores.setdefault(get_initialisation(each.subject.initialisation).label, []).append(each.values["constant"])
    return [
        f"constant answer ({label})"
        if all(seeds)
        else f"constant answer on {sum(seeds)} of {len(seeds)} seeds ({label})"
        for label, seeds in scores.items()
        if any(seeds)
    ]


def _of_two_trainings(measurements: Iterable[Measurement]) -> list[str]:
    """Return remarks on subjects that were measured on different weights, from separate training runs."""
    trained = dict.fromkeys((each.subject, each.provenance.weights) for each in measurements if each.provenance.weights)
    trainings = Counter(subject for subject, _ in trained)
    return [f"{subject} was measured on weights from two training runs" for subject, of in trainings.items() if of > 1]


def _older(measurement: Measurement) -> list[str]:
    """Return how the current versions of code and libraries differ from those that made the measurement."""
    made, trained = measurement.provenance.made_by, measurement.provenance.checkpoint_made_by
    own = differences(made, get_measure(measurement.measure).made_by(None)) if made else []
    of_checkpoint = differences(trained, made_by(TRAINING_MODULE, None)) if trained else []
    return [*own, *(f"checkpoint {difference}" for difference in of_checkpoint)]


def against(
    case: Case,
    observed: float,
    band: tuple[float, float],
    models: Iterable[str],
    interval: tuple[float, float] | None = None,
) -> str:
    """Return a phrase that says what a deviating value contradicts, such as the paper's text or one of its figures.

    The phrase also says whether the paper's own figures contradict its claim, whether a second source agrees with the
    observed value (within the uncertainty of both), and which of the measured models were not used in the paper.
    """
    published, second, expect = case.figure.published, case.figure.second_value, case.claim.expect
    whose = SOURCE_TITLES.get(case.claim.first_source.split()[0], case.claim.first_source)
    parts = [whose]
    if isinstance(expect, Figure) and whose == PAPER_TEXT:
        parts = ["the paper's figure"]
    elif isinstance(expect, Order) and published is not None and expect.contradicts(published):
        parts = [f"{whose}, which the published figure ({format_number(published)}) also contradicts"]
    elif published is not None and band[0] < observed < band[1]:
        parts = ["the size of the published effect"]
    if isinstance(expect, Figure) and published is not None and second is not None:
        own = max(abs(end - observed) for end in interval or (observed,))
        of_second = reach([(case.figure.second_error, P20_SEEDS - 1)], confidence=0.95)
        agrees = abs(observed - second) <= math.hypot(own, of_second)
        parts.append(f"{'but agrees with' if agrees else 'and'} {case.figure.second}")
    others = [name for name in models if not is_papers_model(name)]
    where = f" (on {', '.join(others)} instead of the paper's {PAPERS_MODEL})" if others else ""
    return ", ".join(parts) + where
