"""The published format of verdicts, as pydantic models and as a JSON Schema.

`report --json`, `--benchmark-json` and the store write this format, whose schema is in `docs/schema/`. Within a major
version, fields may be added but never removed, renamed or redefined, and programs must ignore unknown fields. Fields
added later need a default, because files of earlier minor versions lack them. `upgraded` reads files of the previous
major version.
"""

import math
from typing import Annotated, Any, Final, Literal, get_args

from pydantic import BaseModel, BeforeValidator, Field

FORMAT: Final = "bertsecrets-verdicts"
FORMAT_VERSION = "3.1"
MAJOR_VERSION = FORMAT_VERSION.partition(".")[0]
EARLIER_VERSION = "2"  # major version that `upgraded` reads
SCHEMA_ID = f"urn:bertsecrets:verdicts:{MAJOR_VERSION}"

Outcome = Literal["reproduced", "compatible", "deviates", "inconclusive", "degenerate", "not applicable"]
PASSES: tuple[Outcome, ...] = ("reproduced", "compatible")  # a claim's benchmark passes on these
FAILURES: tuple[Outcome, ...] = ("deviates", "degenerate")  # and fails on these
Deviation = Literal["too small", "differs", "opposite"]
DEVIATIONS: tuple[Deviation, ...] = get_args(Deviation)  # how a claim deviates, mildest first
ERROR = "error"  # shown in place of an outcome if a claim could not be measured


def _finite(value: Any) -> Any:
    """Replace NaN and infinity, which JSON does not support, with None."""
    return None if isinstance(value, float) and not math.isfinite(value) else value


Number = Annotated[float | None, BeforeValidator(_finite)]
Ends = tuple[Number, Number]


class VerdictData(BaseModel):
    """One verdict: the outcome of a claim on a task."""

    id: str = Field(description="Name of the claim on its task, such as D1-rte-pretrained; unique within a run.")
    claim: str = Field(description="The claim's id, such as D1.")
    variant: str = Field(description="The variant of the claim, such as pretrained; empty if there is only one.")
    task: str = Field(description="The task, such as rte; `all` if the claim is not about a single task.")
    statement: str = Field(description="The claim, as a sentence.")
    source: str = Field(description="Source of the claim: K19 is Kovaleva et al. 2019, P20 is Prasanna et al. 2020.")
    unit: str = Field(description="Unit of published, observed, interval, band and by_seed, such as points.")
    published: float | None = Field(description="The published figure, in `unit`; null if only an order is published.")
    published_constant_answer: bool = Field(
        description="Whether the published figure is the score of a model that gives the same answer to every example."
    )
    band: Ends | None = Field(description="Range in which the claim holds, in `unit`; an open end is null.")
    observed: Number = Field(description="The measured quantity, in `unit`; null if nothing was measured.")
    interval: Ends | None = Field(
        description="Confidence interval of `observed`, in `unit`. If `remarks` do not state its level, the error rate "
        "at each end is 1 - settings.judge.confidence."
    )
    verdict: Outcome | None = Field(
        description="reproduced: the data show the claimed order or equality; compatible: the data do not contradict "
        "the published figure, which is not evidence of equality; deviates: the data contradict the claim, or the "
        "effect is too small to matter; inconclusive: the evidence is not sufficient either way; degenerate: the "
        "model has collapsed; not applicable: the model or the task does not have what the claim is about; null: the "
        "claim could not be measured (see `error`). Before 3.0, the verdict on a published figure was reproduced "
        "instead of compatible."
    )
    error: str | None = Field(
        default=None, description="Why the claim could not be measured; null if it was judged. Since 2.0."
    )
    against: str = Field(description="What a deviation contradicts; empty for other outcomes.")
    reason: str = Field(description="The reason for the verdict, as text.")
    reason_code: str | None = Field(
        default=None,
        description="A code for the reason, such as includes-limit, that does not depend on the text; null if the "
        "claim was not judged. Since 2.1.",
    )
    brief: str = Field(
        default="",
        description="The reason in a few words, as shown in tables; empty if the claim is reproduced. Since 3.0.",
    )
    deviation: Deviation | None = Field(
        default=None,
        description="How the claim deviates. opposite: the quantity is on the other side of the limit; too small: the "
        "effect is negligible, or less than half of the published effect; differs: the quantity differs from the "
        "published figure, or the claimed equality does not hold. Null for other outcomes. Since 3.0.",
    )
    power: str = Field(
        description="The number of seeds or examples that would decide the claim, as text; empty if it is decided."
    )
    p_against: Number = Field(
        description="P-value against the claim: the smallest significance level (0 to 1) at which it fails; null if it "
        "was not computed."
    )
    p_for: Number = Field(
        description="P-value for the claim: the smallest significance level (0 to 1) at which it is reproduced; null "
        "if it was not computed. For published figures, it is always null."
    )
    remarks: list[str] = Field(description="Caveats, for example that only some rows or unofficial data were used.")
    known_deviation: bool = Field(
        description="Whether the claim deviates in a way that is already on record for the model. Without a baseline, "
        "such a deviation does not change the exit code."
    )
    models: list[str] = Field(description="The models that were measured, as the user named them.")
    seeds: list[int] = Field(description="The seeds that were measured.")
    by_seed: list[list[Number]] = Field(
        description="For each seed, a list that contains the quantity, in `unit`. If `extreme` is set, the list "
        "contains all values from which the smallest or the largest was taken."
    )
    extreme: Literal["least", "most"] | None = Field(
        description="`least` if the quantity is the smallest of several values, `most` if it is the largest of them; "
        "otherwise null."
    )
    limits: dict[str, int] = Field(
        description="`limit` is the number of rows that were measured, and `train_limit` the number of rows for "
        "training. Each is absent if all rows were used."
    )
    official_data: bool = Field(description="Whether all data are official GLUE data.")
    data: list[str] = Field(description="Fingerprints (sha256, first 12 digits) of the measured texts and labels.")
    weights: list[str] | None = Field(
        default=None, description="Digests of the measured weights (first 12 digits); null if unknown. Since 2.2."
    )
    definition: str | None = Field(
        default=None,
        description="Digest (first 12 digits) of everything in the claim that affects its verdict, such as the "
        "published figure; null if unknown. Since 2.2.",
    )
    claim_version: int | None = Field(
        default=None,
        description="Version of the claim's definition. Null means that it is unknown and counts as 1. Since 3.0.",
    )
    seconds: float = Field(description="Time spent on the claim's measurements when they were made, in seconds.")
    reused: bool = Field(description="Whether all of the claim's measurements came from the store.")


class OverTasksData(BaseModel):
    """The verdict on a claim about several tasks together, such as "on every task but QQP"."""

    claim: str = Field(description="The claim's id and variant.")
    speaks_of: str = Field(description="The tasks that the claim is about, as text.")
    tasks: int = Field(description="Number of tasks that the claim is about.")
    judged: int = Field(description="Number of the claim's tasks that were judged.")
    holds_on_at_least: int = Field(
        description="Lower bound on the number of tasks on which the claim holds, at the run's confidence level."
    )
    fails_on_at_least: int = Field(
        description="Lower bound on the number of tasks on which the claim fails, at the run's confidence level."
    )
    verdict: Outcome = Field(description="The outcome for all tasks together: reproduced, deviates or inconclusive.")
    p_for: float = Field(
        description="P-value for the claim: the smallest significance level (0 to 1) at which it holds."
    )
    p_against: float = Field(
        description="P-value against the claim: the smallest significance level (0 to 1) at which it fails."
    )


class TogetherData(BaseModel):
    """The results of the correction for multiple testing, over all verdicts of a run."""

    judged: int = Field(description="Number of claims that were judged.")
    false_alarms: float = Field(
        description="Sum of the error rates of the judged claims. The expected number of claims that deviate by chance "
        "is at most this number, even if every claim only just holds."
    )
    false_discovery_rate: float = Field(
        description="Upper bound (0 to 1) on the expected share of false alarms among the verdicts in `surviving`."
    )
    surviving: list[str] = Field(
        description="Ids of the failing verdicts that survive the correction for multiple testing."
    )
    not_surviving: list[str] = Field(
        description="Ids of the failing verdicts that do not survive the correction for multiple testing."
    )


class MeasuredData(BaseModel):
    """Facts about how the measurements of a run were made."""

    first: str = Field(description="Time of the first measurement: UTC, ISO 8601, to the second.")
    last: str = Field(description="Time of the last measurement.")
    devices: list[str] = Field(description="Devices that trained or measured.")
    software: dict[str, list[str]] = Field(description="Versions of Python, bertsecrets and its libraries.")
    training_seconds: float = Field(description="Time spent on training the measured checkpoints, in seconds.")
    measuring_seconds: float = Field(description="Time spent on the measurements, in seconds.")
    commits: list[str] = Field(
        description="Git commits of the suite at the time the measurements were first judged; empty if unknown."
    )


class VerdictsFile(BaseModel):
    """The verdicts of a run, with its settings and software."""

    format: Literal["bertsecrets-verdicts"] = Field(description="The name of this format.")
    format_version: str = Field(
        pattern=r"^3\.[0-9]{1,4}$", description="Version of the format: major (this schema) and minor (added fields)."
    )
    made: str = Field(description="Time of judging: UTC, ISO 8601, to the second.")
    commit: str | None = Field(description="Git commit of the suite; null if unknown.")
    modified: bool | None = Field(
        description="Whether the suite's code, claims or settings differ from the commit; null if unknown."
    )
    software: dict[str, str] = Field(description="Versions of Python, bertsecrets and its libraries.")
    model: str = Field(description="The model that was judged, as the user named it.")
    settings: dict[str, Any] = Field(description="Settings of the run, named as in params.yaml.")
    incomplete: str | None = Field(description="What is missing if the run is incomplete, as text; otherwise null.")
    measured: MeasuredData | None = Field(
        default=None, description="How the measurements were made; null if there are none. Since 3.1."
    )
    over_tasks: dict[str, OverTasksData] = Field(
        description="Verdicts on claims about several tasks together, by the claim's id and variant."
    )
    together: TogetherData = Field(description="Results of the correction for multiple testing, over all verdicts.")
    verdicts: list[VerdictData] = Field(description="The verdicts, in the order of the claims.")


def json_schema() -> dict[str, Any]:
    """Return the JSON Schema (draft 2020-12) of the verdicts of a run, with the schema of a verdict in its `$defs`."""
    own = VerdictsFile.model_json_schema(mode="serialization")
    return {
        "$schema": "https://json-schema.org/draft/2020-12/schema",
        "$id": SCHEMA_ID,
        "title": "Verdicts of bertsecrets",
        "version": FORMAT_VERSION,
        **{name: part for name, part in own.items() if name != "title"},
    }


def upgraded(run: dict[str, Any]) -> dict[str, Any]:
    """Convert the data of a run from format version 2 to the current version, and return other data unchanged.

    In version 2, the verdict on a published figure was `reproduced` instead of `compatible`. Such a verdict is
    recognised because it has `p_against` but no `p_for`.
    """
    version, verdicts = run.get("format_version"), run.get("verdicts")
    if not isinstance(version, str) or version.partition(".")[0] != EARLIER_VERSION or not isinstance(verdicts, list):
        return run
    return {**run, "format_version": f"{MAJOR_VERSION}.0", "verdicts": [_upgraded(verdict) for verdict in verdicts]}


def _upgraded(verdict: Any) -> Any:
    on_figure = isinstance(verdict, dict) and verdict.get("p_against") is not None and verdict.get("p_for") is None
    return {**verdict, "verdict": "compatible"} if on_figure and verdict.get("verdict") == "reproduced" else verdict
