"""How fast this machine trains and reads: a few steps of a model drawn at random, which take seconds."""

import time
from collections.abc import Callable
from dataclasses import dataclass
from typing import Any

import numpy as np
import torch
from transformers import AutoModelForSequenceClassification

from bertsecrets.models import loading
from bertsecrets.models.encoding import Encoded, predict
from bertsecrets.models.loading import OpenModel
from bertsecrets.models.locations import ModelRef
from bertsecrets.models.training.loop import Training
from bertsecrets.settings import FinetuneParams

SHORT, LONG = 8, 40  # tokens of the examples that are timed
PATIENCE = 1.0  # seconds after which no further step is timed
READ = 64  # examples of a timed forward pass


@dataclass(frozen=True)
class Speed:
    """Seconds of a training step, apart from its tokens and for each token, and of a forward pass for each token."""

    step: float
    step_token: float
    pass_token: float


def calibrate(ref: ModelRef, settings: FinetuneParams, device: torch.device) -> Speed:
    """Return the speed of a model of this shape on this device, with weights drawn at random.

    Raises:
        UserError: the model's configuration or tokenizer is not available.
    """
    config, tokenizer = loading.open_config(ref), loading.open_tokenizer(ref)
    config.num_labels = 2
    model = AutoModelForSequenceClassification.from_config(config, attn_implementation="eager")
    opened = OpenModel(model, tokenizer, "")
    short, long = (_seconds_per_step(opened, tokens, settings, device) for tokens in (SHORT, LONG))
    token = max(0.0, long - short) / (settings.batch_size * (LONG - SHORT))
    texts = _texts(model.config.vocab_size, READ, LONG)
    reading = _seconds(lambda: predict(model.to(device).eval(), texts, device), device)
    return Speed(max(0.0, short - token * settings.batch_size * SHORT), token, reading / (READ * LONG))


def _seconds_per_step(opened: OpenModel, tokens: int, settings: FinetuneParams, device: torch.device) -> float:
    rows = settings.batch_size * 16
    texts = _texts(opened.model.config.vocab_size, rows, tokens)
    training = Training(opened, texts, [0] * rows, settings, seed=1, device=device)
    return _seconds(training.take_step, device)


def _texts(words: int, rows: int, tokens: int) -> Encoded:
    ids = np.random.default_rng(1).integers(words // 2, words, size=(rows, tokens))
    return Encoded(ids.tolist(), None, 0)


def _seconds(work: Callable[[], Any], device: torch.device) -> float:
    """Return the least time that some work takes, once it has warmed up."""
    times: list[float] = []
    began = time.monotonic()
    work()
    while not times or (len(times) < 5 and time.monotonic() - began < PATIENCE):
        _wait(device)
        start = time.monotonic()
        work()
        _wait(device)
        times.append(time.monotonic() - start)
    return min(times)


def _wait(device: torch.device) -> None:
    if device.type == "cuda":
        torch.cuda.synchronize(device)
