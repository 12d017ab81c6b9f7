"""Open a model as training does, and time a few training steps, before a run that trains it."""

import time
from dataclasses import replace

import torch

from bertsecrets.jobs.estimates import FORWARD, Record
from bertsecrets.models.consistency import explain_failure
from bertsecrets.models.encoding import Encoded, tokenize
from bertsecrets.models.initialisations import get_initialisation
from bertsecrets.models.memory import (
    check_memory,
    explain_out_of_memory,
    release_memory,
    return_large_blocks,
    training_bytes,
)
from bertsecrets.models.opening import open_classifier
from bertsecrets.models.training.loop import Training
from bertsecrets.provenance import device_name
from bertsecrets.session import Session
from bertsecrets.texts.rows import draw_rows
from bertsecrets.texts.tasks import task
from bertsecrets.types import Request, Subject

SAMPLE = 500  # training rows whose lengths are read
EXAMPLES = 32  # that are trained on
CPU_BATCH = 8  # examples per step: on a CPU, larger batches are no faster per example
LONGEST = 2.0  # seconds after which no further step is taken


def try_training(session: Session, subject: Subject, *, timed: bool) -> Record | None:
    """Check that a subject can be opened and fits in memory, and return the time of a few training steps.

    Nothing is saved. Returns None if it is not `timed`, otherwise the time of training the pretrained model. Steps of a
    frozen encoder have no backward pass, so the time of complete steps is estimated from them.

    Raises:
        NotApplicableError: If the model cannot be trained in this way.
        UserError: If the model cannot be opened, or there is not enough memory to train it.
    """
    settings, device = session.settings.finetune, session.resources.device
    kernel = "sdpa" if device.type == "cuda" else "eager"  # as `make_checkpoint`
    train = draw_rows(session.resources.rows.split(subject.task, "train"), SAMPLE)
    opened = open_classifier(
        session.ref(subject.model), task(subject.task), subject.initialisation, subject.seed, attention=kernel
    )
    initialisation = get_initialisation(subject.initialisation)
    initialisation.freeze(opened.model)
    longest = opened.fit(settings.max_length)
    encoded, _ = tokenize(opened.tokenizer, train.sentence1, train.sentence2, longest)
    rows = min(settings.batch_size, len(train))
    needed = training_bytes(opened.model, rows, int(encoded.lengths.max(initial=1)), settings.precision, device.type)
    title = f"fine-tuning {subject}"
    check_memory(title, needed, device, "lower finetune.batch_size in params.yaml")
    if not timed:
        return None
    with explain_out_of_memory(title, needed), return_large_blocks(), explain_failure(opened.model):
        size = rows if device.type == "cuda" else min(rows, CPU_BATCH)
        chosen = encoded.spread(max(EXAMPLES, size))
        targets = train.targets()
        training = Training(
            opened,
            Encoded(
                [encoded.input_ids[row] for row in chosen],
                None if encoded.segments is None else [encoded.segments[row] for row in chosen],
                encoded.padding_id,
            ),
            [targets[row] for row in chosen],
            settings.model_copy(update={"batch_size": size, "epochs": 2}),
            seed=subject.seed,
            device=device,
        )
        seconds = _seconds_per_token(training) * float(encoded.lengths.mean()) * EXAMPLES
    del opened, training
    release_memory()
    if not initialisation.trains_encoder:
        seconds /= FORWARD
    return Record(Request(None, replace(subject, initialisation="pretrained")), seconds, EXAMPLES, device_name(device))


def _seconds_per_token(training: Training) -> float:
    """Return the seconds per token of training steps, including padding; the first step is not counted."""
    training.take_step()
    size, tokens, began = training.settings.batch_size, 0, _now(training)
    while tokens == 0 or (training.step < training.steps and _now(training) - began < LONGEST):
        training.take_step()
        at = (training.step - 1) % training.per_epoch
        lengths = [training.lengths[row] for row in training.order[at * size : (at + 1) * size]]
        tokens += len(lengths) * max(lengths)
    return (_now(training) - began) / tokens


def _now(training: Training) -> float:
    """Return the time after all steps so far are done, which on a GPU run in the background."""
    if training.device.type == "cuda":
        torch.cuda.synchronize(training.device)
    return time.monotonic()
