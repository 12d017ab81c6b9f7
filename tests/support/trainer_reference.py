"""Training with transformers' own Trainer, which the suite once used: the suite's loop must match it bit for bit."""

import torch
from transformers import DataCollatorWithPadding, Trainer, TrainerCallback, TrainingArguments
from transformers.trainer_callback import PrinterCallback

from bertsecrets.models.encoding import encode
from bertsecrets.models.initialisations import freeze_encoder


class Losses(TrainerCallback):
    def __init__(self):
        self.losses = []

    def on_log(self, args, state, control, logs=None, **kwargs):
        if logs and "loss" in logs:
            self.losses.append(float(logs["loss"]))


def train_with_trainer(classifier, train, folder, *, settings, initialisation, seed):
    """Train on a CPU, save the model in `folder`, and return the losses and the model."""
    if initialisation == "frozen":
        freeze_encoder(classifier.model)
        encoder = classifier.model.base_model
        encoder.train = lambda mode=True: torch.nn.Module.train(encoder, False)  # no dropout in the frozen part
    encoded = encode(train, classifier.tokenizer, classifier.fit(settings.max_length))
    steps = -(-len(encoded) // settings.batch_size) * settings.epochs
    rows = [{"input_ids": ids, "labels": label} for ids, label in zip(encoded.input_ids, train.targets(), strict=True)]
    if encoded.segments is not None:
        rows = [{**row, "token_type_ids": of_row} for row, of_row in zip(rows, encoded.segments, strict=True)]
    arguments = TrainingArguments(
        output_dir=str(folder),
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
        use_cpu=True,
        logging_steps=max(1, steps // 50),
        save_strategy="no",
        report_to=[],
        disable_tqdm=True,
        dataloader_pin_memory=False,
        remove_unused_columns=False,
    )
    seen = Losses()
    trainer = Trainer(
        model=classifier.model,
        args=arguments,
        train_dataset=rows,
        data_collator=DataCollatorWithPadding(classifier.tokenizer),
        processing_class=classifier.tokenizer,
        callbacks=[seen],
    )
    trainer.remove_callback(PrinterCallback)
    trainer.train()
    classifier.model.eval().save_pretrained(folder)
    return seen.losses, classifier.model
