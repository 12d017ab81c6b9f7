"""The settings in `params.yaml`, read, checked and returned as typed objects.

A file named by `BERTSECRETS_PARAMS` takes precedence over the project's own, which a wheel contains too.
"""

import os
from pathlib import Path
from typing import Annotated

import yaml
from pydantic import BaseModel, ConfigDict, Field, PositiveFloat, PositiveInt, ValidationError

from bertsecrets.errors import UserError
from bertsecrets.types import SEEDS, Initialisation

Seed = Annotated[int, Field(ge=0, lt=SEEDS)]


# Far above what fine-tuning uses: beyond them a number is a slip of the pen, and a training diverges or never ends.
MAX_RATE, MAX_DECAY, MAX_BATCH, MAX_EPOCHS, MAX_TOKENS, MAX_RESAMPLES = 0.1, 1.0, 8192, 1000, 65536, 10_000_000
Rate = Annotated[float, Field(gt=0, le=MAX_RATE)]
Tokens = Annotated[int, Field(gt=0, le=MAX_TOKENS)]


class _Section(BaseModel):
    model_config = ConfigDict(extra="forbid", frozen=True, allow_inf_nan=False)


class FinetuneParams(_Section):
    """Settings for training a checkpoint; `params.yaml` has the unit beside each value."""

    batch_size: int = Field(gt=0, le=MAX_BATCH)
    epochs: int = Field(gt=0, le=MAX_EPOCHS)
    learning_rate: Rate
    frozen_learning_rate: Rate
    warmup: float = Field(ge=0, le=1)
    weight_decay: float = Field(ge=0, le=MAX_DECAY)
    max_gradient_norm: PositiveFloat
    max_length: Tokens
    save_every: float = Field(default=2, gt=0, exclude=True)  # changes no result, so it is part of no key


class ScoreParams(_Section):
    """Settings for scoring: the length that inputs are cut to."""

    max_length: Tokens


class AttentionParams(_Section):
    """Settings for reading attention maps: how many inputs, cut to which length."""

    examples: PositiveInt
    max_length: Tokens


class JudgeParams(_Section):
    """Settings for judging a measurement."""

    confidence: float = Field(gt=0.5, lt=1)
    decided: float = Field(gt=0.5, lt=1)
    resamples: int = Field(ge=100, le=MAX_RESAMPLES)
    seed: Seed


class DemoParams(_Section):
    """Settings for the demo, which needs neither the hub nor a GPU."""

    model: str
    tasks: list[str]
    initialisations: list[Initialisation]
    seeds: list[Seed]
    train_rows: PositiveInt
    dev_rows: PositiveInt


class Params(_Section):
    """The whole of `params.yaml`."""

    model: str
    seeds: list[Seed] = Field(min_length=1)
    finetune: FinetuneParams
    scores: ScoreParams
    attention: AttentionParams
    judge: JudgeParams
    demo: DemoParams


def project_path(name: str) -> Path:
    """Return the path of a file or folder of the project, in the checkout or inside an installed wheel."""
    package = Path(__file__).resolve().parent
    checkout = package.parent / name
    return checkout if checkout.exists() else package / "data" / name


def load_settings() -> Params:
    """Return the settings.

    Raises:
        UserError: the file is missing, is not valid YAML, or has an unknown, missing or impossible entry.
    """
    path = Path(os.environ.get("BERTSECRETS_PARAMS") or project_path("params.yaml"))
    try:
        return Params.model_validate(yaml.safe_load(path.read_text(encoding="utf-8")))
    except OSError as error:
        raise UserError(f"cannot read the settings {path}: {error.strerror}") from error
    except ValidationError as error:
        first = error.errors()[0]
        raise UserError(f"{path}: {'.'.join(map(str, first['loc']))}: {first['msg']}") from error
    except (yaml.YAMLError, ValueError) as error:
        raise UserError(f"{path} is not valid YAML: {' '.join(str(error).split())}") from error
