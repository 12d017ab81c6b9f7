"""Functions that open a model, train it with K19's settings, and save it as a checkpoint.

The result is a folder that transformers can open without this suite.
"""

import time
from pathlib import Path
from typing import Any

import torch

from bertsecrets.devices import best_precision
from bertsecrets.models.encoding import encode, predict
from bertsecrets.models.initialisations import get_initialisation
from bertsecrets.models.locations import ModelRef
from bertsecrets.models.memory import (
    check_memory,
    explain_out_of_memory,
    release_memory,
    return_large_blocks,
    training_bytes,
)
from bertsecrets.models.opening import OpenModel, open_classifier
from bertsecrets.models.training.loop import Training
from bertsecrets.models.training.states import checkpoint_bytes, state_bytes
from bertsecrets.settings import FinetuneParams
from bertsecrets.store.files import check_space, listed
from bertsecrets.texts.glue import Split
from bertsecrets.texts.tasks import task
from bertsecrets.types import InitialisationName, Subject


def make_checkpoint(
    ref: ModelRef,
    subject: Subject,
    train: Split | None,
    folder: Path,
    *,
    settings: FinetuneParams,
    device: torch.device,
    states: Path | None = None,
) -> dict[str, Any]:
    """Train the model that a subject describes, save it, and return facts for the manifest."""
    kernel = "sdpa" if device.type == "cuda" else "eager"  # on a CPU, SDPA is slower because of dropout
    opened = open_classifier(ref, task(subject.task), subject.initialisation, subject.seed, attention=kernel)
    release_memory()  # the memory of earlier measurements
    facts = finetune(
        opened,
        train,
        folder,
        settings=settings,
        initialisation=subject.initialisation,
        seed=subject.seed,
        device=device,
        title=f"fine-tuning {subject}",
        states=states,
    )
    if device.type == "cuda":
        release_memory()  # so that other processes can use the memory for training
    return facts


def finetune(
    classifier: OpenModel,
    train: Split | None,
    folder: Path,
    *,
    settings: FinetuneParams,
    initialisation: InitialisationName,
    seed: int,
    device: torch.device,
    title: str = "fine-tuning",
    states: Path | None = None,
) -> dict[str, Any]:
    """Train a classifier on a split, and save it with its tokenizer to `folder` (K19 section 3).

    The optimizer is AdamW instead of the original BertAdam, which had no bias correction. If no split is given, the
    classifier is saved without training (`untrained`).

    Args:
        states: Folder for saved states of this training run. The run resumes from the newest of these states.

    Returns:
        Facts for the manifest: the numbers of steps and parameters, the mean losses between logged steps, the training
        time in seconds, the device, the precision, the attention kernel, and the other settings.
    """
    began = time.monotonic()
    model: Any = classifier.model
    facts: dict[str, Any] = {
        "steps": 0, "loss": [], "device": str(device), "precision": "float32",
        "attention": getattr(model.config, "_attn_implementation", None),
    }  # fmt: skip
    get_initialisation(initialisation).freeze(model)
    if train is not None:
        encoded = encode(train, classifier.tokenizer, classifier.fit(settings.max_length))
        needed = training_bytes(
            model,
            rows=min(settings.batch_size, len(encoded)),
            tokens=int(encoded.lengths.max(initial=1)),
            precision=best_precision(settings.precision, device),
            device=device.type,
            examples=len(encoded),
        )
        check_memory(title, needed, device, "reduce finetune.batch_size or finetune.max_length in params.yaml")
        what, size = "checkpoint", checkpoint_bytes(classifier)
        if states is not None and not listed(states, "step-*"):  # otherwise, a saved state already takes up this space
            what, size = "checkpoint and saved state", size + state_bytes(model)
        check_space(f"{title} ({what})", size, folder.parent)
        with return_large_blocks(), explain_out_of_memory(title, needed):
            training = Training(classifier, encoded, train.targets(), settings, seed=seed, device=device)
            training.check()
            training.run(title, states)
            predict(model.eval(), encoded.head(32), device)  # rejects non-finite logits
        facts |= {"steps": training.step, "loss": training.losses, "precision": training.precision}
        facts["settings"] = settings.model_dump(exclude={"precision"})
        began -= training.seconds_before
    model.to("cpu").eval()
    model.save_pretrained(folder)
    classifier.tokenizer.backend_tokenizer.no_truncation()  # so that the length of the last texts is not saved
    classifier.tokenizer.backend_tokenizer.no_padding()
    classifier.tokenizer.save_pretrained(folder)
    facts["parameters"] = model.num_parameters()
    facts["seconds"] = round(time.monotonic() - began, 2)
    return facts
