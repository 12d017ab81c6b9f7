"""Training of one checkpoint with K19's settings, by transformers' Trainer.

Examples of similar length are batched together, so there is hardly any padding; on a CPU the same seed gives the same
weights. The result is written to a folder that any transformers script can open.
"""

import shutil
import time
from pathlib import Path
from typing import Any

import torch
from torch.utils.data import Dataset
from tqdm.auto import tqdm
from transformers import DataCollatorWithPadding, Trainer, TrainerCallback, TrainingArguments
from transformers.trainer_callback import PrinterCallback

from bertsecrets.models.encoding import Encoded, encode
from bertsecrets.models.loading import OpenModel, freeze_encoder
from bertsecrets.models.memory import large_blocks_apart
from bertsecrets.settings import FinetuneParams
from bertsecrets.texts.glue import Split
from bertsecrets.types import Initialisation


class _Examples(Dataset):
    """An encoded split in the form that the Trainer expects: one dictionary per example."""

    def __init__(self, encoded: Encoded, targets: list[float] | list[int]):
        self.encoded, self.targets = encoded, targets

    def __len__(self) -> int:
        return len(self.encoded)

    def __getitem__(self, i: int) -> dict[str, Any]:
        item: dict[str, Any] = {"input_ids": self.encoded.input_ids[i], "labels": self.targets[i]}
        if self.encoded.segments is not None:
            item["token_type_ids"] = self.encoded.segments[i]
        return item


class _Progress(TrainerCallback):
    """A progress bar over the steps of one checkpoint: loss, examples per second, time left."""

    def __init__(self, title: str, batch_size: int):
        self.title, self.batch_size = title, batch_size
        self.bar: tqdm | None = None
        self.losses: list[float] = []

    def on_train_begin(self, args, state, control, **kwargs):
        self.bar = tqdm(total=state.max_steps, desc=self.title, unit="step")
        self.started = time.monotonic()

    def on_step_end(self, args, state, control, **kwargs):
        if self.bar is not None:
            rate = state.global_step * self.batch_size / max(time.monotonic() - self.started, 1e-9)
            loss = f"{self.losses[-1]:.3f}" if self.losses else "-"
            self.bar.set_postfix_str(f"loss {loss}, {rate:.0f} examples/s")
            self.bar.update(state.global_step - self.bar.n)

    def on_log(self, args, state, control, logs=None, **kwargs):
        if logs and "loss" in logs:
            self.losses.append(float(logs["loss"]))

    def on_train_end(self, args, state, control, **kwargs):
        if self.bar is not None:
            self.bar.close()


def finetune(
    classifier: OpenModel,
    train: Split | None,
    folder: Path,
    *,
    settings: FinetuneParams,
    initialisation: Initialisation,
    seed: int,
    device: torch.device,
    title: str = "fine-tuning",
) -> dict[str, Any]:
    """Train a classifier on a split and save it, with its tokenizer, in `folder` (K19 section 3).

    The optimizer is AdamW instead of the original BertAdam, which had no bias correction. Without a split the
    classifier is saved as it is (`untrained`).

    Returns:
        Facts for the manifest: steps, mean training loss between logged steps, seconds, device, precision.
    """
    began = time.monotonic()
    facts: dict[str, Any] = {"steps": 0, "loss": [], "device": str(device), "precision": "float32"}
    if initialisation == "frozen":
        freeze_encoder(classifier.model)
    if train is not None:
        half = device.type == "cuda" and torch.cuda.is_bf16_supported()
        encoded = encode(train, classifier.tokenizer, classifier.fit(settings.max_length))
        steps = -(-len(encoded) // settings.batch_size) * settings.epochs
        arguments = TrainingArguments(
            output_dir=str(folder / ".trainer"),
            per_device_train_batch_size=settings.batch_size,
            num_train_epochs=settings.epochs,
            learning_rate=settings.frozen_learning_rate if initialisation == "frozen" else settings.learning_rate,
            warmup_steps=round(settings.warmup * steps),
            lr_scheduler_type="linear",
            weight_decay=settings.weight_decay,
            max_grad_norm=settings.max_gradient_norm,
            optim="adamw_torch_fused",
            train_sampling_strategy="group_by_length",
            seed=seed,
            data_seed=seed,
            bf16=half,
            use_cpu=device.type == "cpu",
            logging_steps=max(1, steps // 50),
            save_strategy="no",
            report_to=[],
            disable_tqdm=True,
            dataloader_pin_memory=device.type == "cuda",
            remove_unused_columns=False,
        )
        progress = _Progress(title, settings.batch_size)
        trainer = Trainer(
            model=classifier.model,
            args=arguments,
            train_dataset=_Examples(encoded, train.targets()),
            data_collator=DataCollatorWithPadding(classifier.tokenizer),
            processing_class=classifier.tokenizer,
            callbacks=[progress],
        )
        trainer.remove_callback(PrinterCallback)
        with large_blocks_apart():
            trainer.train()
        facts.update(steps=trainer.state.global_step, loss=progress.losses)
        facts["precision"] = "bfloat16" if half else "float32"
    classifier.model.to("cpu").eval()
    classifier.model.save_pretrained(folder)
    classifier.tokenizer.save_pretrained(folder)
    shutil.rmtree(folder / ".trainer", ignore_errors=True)
    facts["seconds"] = round(time.monotonic() - began, 2)
    return facts
