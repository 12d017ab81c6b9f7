"""The published format of verdicts, as models and as a JSON Schema: one verdict, and the verdicts of a run.

`report --json`, `--benchmark-json` and the store write it; the schema lies in `docs/schema/`. Within a major version
fields are added, never removed, renamed or given another meaning, and readers ignore those that they do not know. A
field that is added later may be missing from files of an earlier minor version, so it needs a default.
"""

import math
from typing import Annotated, Any, Final, Literal, Self

from pydantic import BaseModel, BeforeValidator, ConfigDict, Field, model_validator

FORMAT: Final = "bertsecrets-verdicts"
VERSION = "2.0"
SCHEMA_ID = f"urn:bertsecrets:verdicts:{VERSION.partition('.')[0]}"

READS = ("1", "2")  # major versions
VERSION_1 = {"negligible": "deviates", "not measured": None}  # outcomes that only version 1 has
Outcome = Literal["reproduced", "deviates", "inconclusive", "degenerate", "not applicable"]
FAILURES: tuple[Outcome, ...] = ("deviates", "degenerate")  # a claim's benchmark fails on these
ERROR = "error"  # shown in place of an outcome if a claim could not be measured


def _finite(value: Any) -> Any:
    """Return None instead of NaN and infinity, which JSON does not have."""
    return None if isinstance(value, float) and not math.isfinite(value) else value


def current_outcome(outcome: Any) -> Any:
    """Return an outcome of any version of the format as the current version has it.

    >>> current_outcome("negligible"), current_outcome("not measured"), current_outcome("reproduced")
    ('deviates', None, 'reproduced')
    """
    return VERSION_1.get(outcome, outcome) if isinstance(outcome, str) else outcome


Number = Annotated[float | None, BeforeValidator(_finite)]
Ends = tuple[Number, Number]
AnyOutcome = Annotated[Outcome, BeforeValidator(current_outcome)]


class ReadingData(BaseModel):
    """A verdict under one reading of the paper's words."""

    verdict: AnyOutcome = Field(description="The outcome under this reading.")
    observed: Number = Field(description="The measured quantity, in the verdict's `unit`.")
    interval: Ends | None = Field(description="Lower and upper end of its confidence interval, in `unit`.")
    band: Ends | None = Field(description="Lower and upper end of where the claim holds, in `unit`.")
    reason: str = Field(description="Why the verdict is what it is, in words.")
    by_seed: list[list[Number]] = Field(description="The quantity on every seed, in `unit`.")


class VerdictData(BaseModel):
    """One verdict: the outcome of a claim on a task."""

    @model_validator(mode="after")
    def _of_version_1(self) -> Self:
        if self.verdict is None and self.error is None:
            self.error = self.reason
        return self

    id: str = Field(description="The claim on its task, such as D1-rte-pretrained: unique within a run.")
    claim: str = Field(description="The claim's id, such as D1.")
    variant: str = Field(description="Which variant of the claim, such as pretrained; empty if it has only one.")
    task: str = Field(description="The GLUE task, such as rte; `all` for claims without a task or across tasks.")
    statement: str = Field(description="What the claim says.")
    source: str = Field(description="Where it says so: K19 is Kovaleva et al. 2019, P20 is Prasanna et al. 2020.")
    unit: str = Field(description="The unit of published, observed, interval, band and by_seed, such as points.")
    published: float | None = Field(description="The published figure, in `unit`; null if only an order is published.")
    published_constant_answer: bool = Field(
        description="Whether the published figure equals the score of giving every example the same answer."
    )
    band: Ends | None = Field(
        description="Lower and upper end of where the claim holds, in `unit`; an end that is open is null."
    )
    observed: Number = Field(description="The measured quantity, in `unit`; null if nothing could be judged.")
    interval: Ends | None = Field(
        description="Lower and upper end of the confidence interval of `observed`, in `unit`: at "
        "settings.judge.confidence, or at the level that `remarks` name where seeds were added one by one."
    )
    verdict: Annotated[Outcome | None, BeforeValidator(current_outcome)] = Field(
        description="reproduced: the claim holds; deviates: the data contradict it, or the effect is too small to "
        "matter; inconclusive: not enough evidence either way; degenerate: the model has collapsed; not applicable: "
        "the claim is not about this model; null: an error, see `error`."
    )
    error: str | None = Field(
        default=None, description="Why the claim could not be measured; null if it was judged. Since 2.0."
    )
    against: str = Field(description="What the result deviates from; empty for other outcomes.")
    reason: str = Field(description="Why the verdict is what it is, in words.")
    power: str = Field(description="What would decide the claim, in words; empty if it is decided.")
    p_against: Number = Field(description="Smallest error rate (0 to 1) at which the claim would still fail, or null.")
    p_for: Number = Field(description="Smallest error rate (0 to 1) at which the claim would still hold, or null.")
    remarks: list[str] = Field(description="What a reader must know besides, such as limits or unofficial data.")
    known_deviation: bool = Field(
        description="Whether it fails as it is known to for this model, so that the exit code stays 0."
    )
    models: list[str] = Field(description="The models that were measured, as the user named them.")
    seeds: list[int] = Field(description="The seeds that were measured.")
    by_seed: list[list[Number]] = Field(
        description="The quantity on every seed, in `unit`: one number, or its parts where it is the least or the most "
        "of several."
    )
    readings: dict[str, ReadingData] = Field(
        default_factory=dict,
        description="What was found under each reading of the paper's words, by name, where the claim hangs on one; "
        "observed, interval, band and by_seed beside it are those of the first, `special`. Since 1.1.",
    )
    extreme: Literal["least", "most"] | None = Field(description="Which part of by_seed it is; null if it has none.")
    limits: dict[str, int] = Field(
        description="`limit` and `train_limit`: the number of rows that were measured and trained on, if not all."
    )
    official_data: bool = Field(description="Whether all data are GLUE's own.")
    data: list[str] = Field(description="Fingerprints (sha256, first 12 digits) of the texts and labels measured.")
    seconds: float = Field(description="How long its measurements took when they were made, in seconds.")
    reused: bool = Field(description="Whether all its measurements were in the store.")


class OverTasksData(BaseModel):
    """The verdict on a claim over its tasks, such as "on every task but QQP"."""

    claim: str = Field(description="The claim's id with its variant.")
    speaks_of: str = Field(description="Of which tasks it speaks, in words.")
    tasks: int = Field(description="Of how many tasks it speaks.")
    judged: int = Field(description="On how many of them it was judged.")
    holds_on_at_least: int = Field(description="Number of tasks on which it holds at least, with the run's confidence.")
    fails_on_at_least: int = Field(description="Number of tasks on which it fails at least, with the run's confidence.")
    verdict: Outcome = Field(description="The outcome over tasks: reproduced, deviates or inconclusive.")
    p_for: float = Field(description="Smallest error rate (0 to 1) at which it would still hold.")
    p_against: float = Field(description="Smallest error rate (0 to 1) at which it would still fail.")


class TogetherData(BaseModel):
    """What the verdicts of a run say together."""

    judged: int = Field(description="Number of claims that were judged, so that they could deviate.")
    false_alarms: float = Field(description="How many claims deviate by chance on average, at most, if all are true.")
    false_discovery_rate: float = Field(description="Share (0 to 1) of false ones among the surviving, at most.")
    surviving: list[str] = Field(description="Ids of the verdicts that fail also among so many claims.")
    not_surviving: list[str] = Field(description="Ids of the verdicts that fail only by themselves.")


class VerdictsFile(BaseModel):
    """The verdicts of a run, and what they rest on."""

    model_config = ConfigDict(protected_namespaces=())

    format: Literal["bertsecrets-verdicts"] = Field(description="The name of this format.")
    format_version: str = Field(
        pattern=r"^[12]\.[0-9]{1,4}$",
        description="Its version: major (this schema) and minor (fields that were added).",
    )
    made: str = Field(description="When it was judged: UTC, ISO 8601 to the second.")
    commit: str | None = Field(description="The git commit of the suite; null if it is not known.")
    modified: bool | None = Field(
        description="Whether the suite's code, claims or settings differ from the commit; null if it is not known."
    )
    software: dict[str, str] = Field(description="Versions of Python, of bertsecrets and of its libraries.")
    model: str = Field(description="The model that was judged, as the user named it.")
    settings: dict[str, Any] = Field(description="The run's settings, with the names that they have in params.yaml.")
    incomplete: str | None = Field(description="What is missing, if the run ended early, in words; otherwise null.")
    over_tasks: dict[str, OverTasksData] = Field(description="Verdicts over tasks, by the claim's id and variant.")
    together: TogetherData = Field(description="What the verdicts say together.")
    verdicts: list[VerdictData] = Field(description="The verdicts, in the order of the claims.")


def json_schema() -> dict[str, Any]:
    """Return the JSON Schema (draft 2020-12) of the verdicts of a run; its `$defs` hold that of one verdict."""
    own = VerdictsFile.model_json_schema(mode="serialization")
    return {
        "$schema": "https://json-schema.org/draft/2020-12/schema",
        "$id": SCHEMA_ID,
        "title": "Verdicts of bertsecrets",
        "version": VERSION,
        **{name: part for name, part in own.items() if name != "title"},
    }
