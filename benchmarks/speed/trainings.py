"""Shared code of the training benchmarks: run some steps of the suite's training and of a plain Trainer.

This module contains no tests, so that other processes can import it.
"""

import time
import warnings
from collections.abc import Callable
from threading import Barrier

import torch
from transformers import Trainer, TrainerCallback, TrainingArguments, default_data_collator

from bertsecrets.devices import best_device
from bertsecrets.models.encoding import encode
from bertsecrets.models.opening import OpenModel
from bertsecrets.models.training.loop import Training
from bertsecrets.settings import load_settings

PATIENCE = 120  # maximum time in seconds that processes wait for each other

_gate: Barrier


def training_of(classifier: OpenModel, split, precision: str, device: torch.device, seed: int = 1) -> Training:
    """Return the suite's training of a classifier on a split, with the suite's settings."""
    settings = load_settings().finetune.model_copy(update={"precision": precision})
    encoded = encode(split, classifier.tokenizer, settings.max_length)
    return Training(classifier, encoded, split.targets(), settings, seed=seed, device=device)


def set_gate(shared: Barrier) -> None:
    """Set the barrier at which the processes of a pool wait for each other."""
    global _gate
    _gate = shared


def piece(make: Callable[..., OpenModel], split, seed: int, device: str) -> tuple[float, int]:
    """Return the seconds per step in bfloat16 while other processes also train, and the peak GPU memory in bytes.

    The time is the mean over an epoch of the rows, after half an epoch that is not timed.
    """
    training = training_of(make(split.task.name, "sdpa"), split, "bfloat16", best_device(device), seed)
    for steps in (training.per_epoch // 2, training.per_epoch):
        _gate.wait(PATIENCE)
        began = time.perf_counter()
        for _ in range(steps):
            training.take_step()
        wait()
        seconds = (time.perf_counter() - began) / steps
    return seconds, torch.cuda.max_memory_allocated() if torch.cuda.is_available() else 0


def wait() -> None:
    """Wait until the GPU, if there is one, has finished all work."""
    if torch.cuda.is_available():
        torch.cuda.synchronize()


class Clock(TrainerCallback):
    """A callback that stores the seconds of every step of a Trainer."""

    def __init__(self):
        self.seconds: list[float] = []

    def on_step_begin(self, *_, **__):
        wait()
        self.began = time.perf_counter()

    def on_step_end(self, *_, **__):
        wait()
        self.seconds.append(time.perf_counter() - self.began)


def run_glue(
    classifier: OpenModel, split, folder, *, steps: int = 3, device: str = "cpu"
) -> Callable[[], tuple[float, float]]:
    """Return a function that takes a few steps like transformers' run_glue: padded to 128, float32, unsorted.

    Batches have 32 rows, as in the suite, and other settings are `TrainingArguments` defaults. The function returns the
    seconds of the fastest step, since all steps cost the same, and the mean loss.
    """
    coded = classifier.tokenizer(
        list(split.sentence1), list(split.sentence2) if split.sentence2 is not None else None, padding="max_length",
        max_length=128, truncation=True,
    )  # fmt: skip
    rows = [
        {**{name: values[i] for name, values in coded.items()}, "labels": label}
        for i, label in enumerate(split.targets())
    ]
    arguments = TrainingArguments(
        output_dir=str(folder), per_device_train_batch_size=32, max_steps=steps, learning_rate=5e-5,
        use_cpu=device == "cpu", save_strategy="no", report_to=[], disable_tqdm=True, seed=1, logging_strategy="no",
        dataloader_pin_memory=device != "cpu",
    )  # fmt: skip

    def taken() -> tuple[float, float]:
        clock = Clock()
        with warnings.catch_warnings():
            warnings.simplefilter("ignore")  # hides the Trainer's warnings
            trainer = Trainer(
                classifier.model, arguments, train_dataset=rows, data_collator=default_data_collator, callbacks=[clock]
            )
            loss = trainer.train().training_loss
        return min(clock.seconds), loss

    return taken
