"""The settings in `params.yaml`, validated by pydantic.

The environment variable `BERTSECRETS_PARAMS` can name another file. Wheels include the project's `params.yaml`.
"""

import os
import tomllib
from collections.abc import Callable
from pathlib import Path
from typing import Annotated, Any

from pydantic import (
    AfterValidator,
    BaseModel,
    ConfigDict,
    Field,
    PositiveFloat,
    PositiveInt,
    ValidationError,
    WrapValidator,
    model_validator,
)

from bertsecrets.errors import UserError, excerpt, near_matches
from bertsecrets.reading import YAML_LIMIT, YamlError, expanded, read_text, read_yaml, seconds, unique_keys
from bertsecrets.types import AUTO, SEED_LIMIT, InitialisationName, Precision

Seed = Annotated[int, Field(ge=0, lt=SEED_LIMIT)]


# Limits that are far above usual values, to catch typos.
MAX_RATE, MAX_DECAY, MAX_BATCH, MAX_EPOCHS, MAX_TOKENS, MAX_RESAMPLES = 0.1, 1.0, 8192, 1000, 65536, 100_000
EXPECTED_VARIABLE = "BERTSECRETS_EXPECTED"  # a file of claims to add, or a folder of claims to use instead
MIN_TOKENS = 8  # a pair has three special tokens, and tokenizers do not truncate below that
Rate = Annotated[float, Field(gt=0, le=MAX_RATE)]
Tokens = Annotated[int, Field(ge=MIN_TOKENS, le=MAX_TOKENS)]


def _checked_time(text: str) -> str:
    seconds(text)
    return text


def _seeds(value: Any, check: Callable[[Any], list[int]]) -> list[int] | str:
    """Check that seeds are `auto` or a list without duplicates. A union type would give less precise errors."""
    if value == AUTO:
        return AUTO
    if len(set(seeds := check(value))) < len(seeds):
        raise ValueError(f"contains a seed twice ({', '.join(map(str, seeds))}): list each seed only once")
    return seeds


class Section(BaseModel):
    """A section of a YAML file. Unknown keys, infinite numbers and booleans in place of numbers are errors."""

    model_config = ConfigDict(extra="forbid", frozen=True, allow_inf_nan=False)

    @model_validator(mode="before")
    @classmethod
    def _no_truth_values(cls, data: Any) -> Any:
        """Reject booleans (yes, no, true, false), which pydantic would accept as 1 and 0."""
        for name, value in data.items() if isinstance(data, dict) else ():
            is_boolean = name in cls.model_fields and cls.model_fields[name].annotation is bool
            if not is_boolean and any(
                isinstance(part, bool) for part in (value if isinstance(value, list) else [value])
            ):
                raise ValueError(f"{name} must be a number or a string, not true or false")
        return data


class FinetuneParams(Section):
    """Settings for training a checkpoint; `params.yaml` gives the units."""

    batch_size: int = Field(gt=0, le=MAX_BATCH)
    epochs: int = Field(gt=0, le=MAX_EPOCHS)
    learning_rate: Rate
    frozen_learning_rate: Rate
    warmup: float = Field(ge=0, le=1)
    weight_decay: float = Field(ge=0, le=MAX_DECAY)
    max_gradient_norm: PositiveFloat
    max_length: Tokens
    precision: Precision = "auto"
    save_every: float = Field(default=2, gt=0, exclude=True)  # not part of cache keys, as results are unaffected


class ScoreParams(Section):
    """Settings for scoring: the maximum length of inputs, in tokens."""

    max_length: Tokens


class AttentionParams(Section):
    """Settings for reading attention maps: the number of inputs, and their maximum length in tokens."""

    examples: PositiveInt
    max_length: Tokens


class JudgeParams(Section):
    """Settings for judging a measurement."""

    confidence: float = Field(gt=0.5, lt=1)
    resamples: int = Field(ge=100, le=MAX_RESAMPLES)
    seed: Seed


class CorpusParams(Section):
    """Settings for the demo corpus: the numbers of sentence pairs for training and for validation."""

    train_rows: int = Field(ge=1, le=1_000_000)
    dev_rows: int = Field(ge=1, le=1_000_000)


class GridParams(Section):
    """The subjects of the pipeline: every combination of these tasks, initialisations and seeds."""

    task: list[str] = Field(min_length=1)
    init: list[InitialisationName] = Field(min_length=1)
    seed: list[Seed] = Field(min_length=1)


class StageOptions(Section):
    """Additional options of pipeline stages, such as `{limit: 48}`; `data` applies to every stage that reads data."""

    data: dict[str, bool | int | str]
    finetune: dict[str, bool | int | str]
    measure: dict[str, bool | int | str]


class PipelineParams(Section):
    """Settings for the DVC pipeline, such as its model, its data, spaCy pipelines and sentences with frames."""

    model: str
    model_files: str
    glue: str
    glue_files: str
    grid: GridParams
    frames: dict[str, str] = Field(default_factory=dict)
    spacy: list[str] = Field(default_factory=list)
    options: StageOptions


class Params(Section):
    """All settings in `params.yaml`."""

    model: str = Field(min_length=1)
    seeds: Annotated[list[Seed], Field(min_length=1), WrapValidator(_seeds)]  # or the text `auto`
    budget: Annotated[str, AfterValidator(_checked_time)] | None = None
    finetune: FinetuneParams
    scores: ScoreParams
    attention: AttentionParams
    judge: JudgeParams
    corpus: CorpusParams
    pipeline: PipelineParams
    sets: dict[str, PipelineParams] = {}


def project_path(name: str) -> Path:
    """Return the path of a project file or folder, in a checkout or an installed wheel."""
    package = Path(__file__).resolve().parent
    checkout = package.parent / name
    return checkout if checkout.exists() else package / "data" / name


def project_options() -> dict[str, Any]:
    """Return `[tool.bertsecrets]` of the working directory's `pyproject.toml`, or an empty table."""
    file = Path("pyproject.toml")
    if not file.is_file():
        return {}
    try:
        tool = tomllib.loads(read_text(file, YAML_LIMIT)).get("tool", {})
    except tomllib.TOMLDecodeError as error:
        raise UserError(f"{file}: {error}") from error
    options = tool.get("bertsecrets", {}) if isinstance(tool, dict) else None
    if not isinstance(options, dict):
        raise UserError(f"{file}: tool.bertsecrets must be a table")
    try:
        return unique_keys([(name.replace("-", "_"), value) for name, value in options.items()])
    except ValueError as error:  # the same option with a hyphen and with an underscore
        raise UserError(f"{file}, [tool.bertsecrets]: {error}") from error


def load_settings() -> Params:
    """Return the settings."""
    path = expanded(os.environ.get("BERTSECRETS_PARAMS") or project_path("params.yaml"))
    try:
        _, data = read_yaml(read_text(path, YAML_LIMIT, "cannot read the settings"))
        return Params.model_validate(data)
    except ValidationError as error:
        raise UserError(f"{path}: {first_problem(error)}") from error
    except YamlError as error:
        raise UserError(f"{path}, line {error.line}: {error}") from error


def first_problem(error: ValidationError, model: type[BaseModel] | None = None) -> str:
    """Describe the first problem in one line: the invalid entry and, if known from `model`, what was expected."""
    first = error.errors(include_url=False)[0]
    place = ".".join(map(str, first["loc"]))
    if model is not None and first["type"] == "extra_forbidden" and len(first["loc"]) == 1:
        return f"unknown field {excerpt(place)!r}: {near_matches(place, model.model_fields)}"
    if model is not None and first["type"] == "string_pattern_mismatch" and place in model.model_fields:
        return f"{place}: expected {model.model_fields[place].description}"
    return excerpt(f"{place}: {first['msg']}" if place else first["msg"]).replace("Value error, ", "", 1)
