"""Making of one checkpoint with K19's settings: the model is opened, trained and saved.

Examples of similar length are batched together, so there is hardly any padding; on a CPU the same seed gives the same
weights, also where a training was killed and went on from its last saved state. Step by step it is what transformers'
Trainer does, with the same random numbers. The result is a folder that any transformers script can open.
"""

import math
import operator
import shutil
import time
from contextlib import AbstractContextManager, nullcontext
from pathlib import Path
from typing import Any

import numpy as np
import torch
from torch import nn
from transformers import DataCollatorWithPadding
from transformers.trainer_pt_utils import get_length_grouped_indices, get_parameter_names
from transformers.trainer_utils import align_special_tokens, set_seed

from bertsecrets.errors import UserError
from bertsecrets.models.encoding import Encoded, encode, predict
from bertsecrets.models.frozen import EncodedTexts
from bertsecrets.models.gpu_training import GpuSteps, Graphs, Recorder, TextsOnDevice, layers_of, moved
from bertsecrets.models.half_training import HalfTraining
from bertsecrets.models.loading import OpenModel, freeze_but_last_layers, freeze_encoder, open_classifier
from bertsecrets.models.locations import ModelRef
from bertsecrets.models.memory import (
    check_memory,
    give_back,
    large_blocks_apart,
    memory_errors_in_words,
    training_bytes,
)
from bertsecrets.models.processes import ALONE, Processes
from bertsecrets.models.training_state import State, keep, newest, random_state, set_random_state, tell
from bertsecrets.progress import progress
from bertsecrets.provenance import best_precision
from bertsecrets.settings import FinetuneParams
from bertsecrets.texts.glue import Split
from bertsecrets.texts.tasks import task
from bertsecrets.types import Initialisation, Subject

# Weights without decay: those of LayerNorms, and all whose name matches (as in transformers' Trainer).
WITHOUT_DECAY = (r"bias", r"layernorm", r"rmsnorm", r"(?:^|\.)norm(?:$|\.)", r"_norm(?:$|\.)")
FREEZING = {"frozen": freeze_encoder, "last-two-trained": freeze_but_last_layers}
MOMENTS = ("step", "exp_avg", "exp_avg_sq")  # what AdamW remembers of each weight
SHAPE = 32  # tokens; batches for a GPU in bfloat16 are padded to a multiple
RECORDED = 50  # losses that a manifest lists
SAVING_SHARE = 0.02  # of the time is spent on saving states, at most


def make_checkpoint(
    ref: ModelRef,
    subject: Subject,
    train: Split | None,
    folder: Path | None,
    *,
    settings: FinetuneParams,
    device: torch.device,
    states: Path | None = None,
    processes: Processes = ALONE,
) -> dict[str, Any]:
    """Open a subject's model, train it on a split unless that is None, and save it in `folder` (K19 section 3).

    Args:
        folder: None in processes that only help the main one.
        states: the folder of this training's saved states; without one, none are saved.
        processes: that train it together.

    Returns:
        The facts that `finetune` returns.

    Raises:
        UserError: the model cannot be opened, the training diverges, or memory is too small.
    """
    half = best_precision(settings.precision, device) == "bfloat16"
    fused = "sdpa" if device.type == "cuda" or half else "eager"  # on a CPU, dropout makes SDPA slower in float32
    with processes.at_one():
        opened = open_classifier(ref, task(subject.task), subject.initialisation, subject.seed, attention=fused)
    give_back()  # memory left over from earlier measurements
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
        processes=processes,
    )
    if device.type == "cuda":
        give_back()  # other processes train on it
    return facts


def finetune(
    classifier: OpenModel,
    train: Split | None,
    folder: Path | None,
    *,
    settings: FinetuneParams,
    initialisation: Initialisation,
    seed: int,
    device: torch.device,
    title: str = "fine-tuning",
    states: Path | None = None,
    processes: Processes = ALONE,
) -> dict[str, Any]:
    """Train a classifier on a split and save it, with its tokenizer, in `folder` (K19 section 3).

    The optimizer is AdamW instead of the original BertAdam, which had no bias correction. Without a split the
    classifier is saved as it is (`untrained`).

    Args:
        folder: None in processes that only help the main one.
        states: the folder of this training's saved states. It goes on from the newest, if there is one.
        processes: that train it together.

    Returns:
        Facts for the manifest: steps, mean training loss between logged steps, seconds, device, precision, kernel.

    Raises:
        UserError: the training diverges, or memory is too small.
    """
    began = time.monotonic()
    model: Any = classifier.model
    kernel = getattr(model.config, "_attn_implementation", None)
    facts: dict[str, Any] = {
        "steps": 0, "loss": [], "device": str(device), "precision": "float32", "attention": kernel,
    }  # fmt: skip
    if initialisation in FREEZING:
        FREEZING[initialisation](model)
    if train is not None:
        with processes.at_one():
            encoded = encode(train, classifier.tokenizer, classifier.fit(settings.max_length))
            longest = int(encoded.lengths.max(initial=1))
            rows = -(-min(settings.batch_size, len(encoded)) // processes.count)
            precision = best_precision(settings.precision, device)
            needed = training_bytes(model, rows, longest, precision=precision, device=device.type)
            if device.type == "cuda" and precision == "bfloat16":
                needed += TextsOnDevice.bytes(encoded, SHAPE)
            if initialisation == "frozen":
                needed += 4 * model.config.hidden_size * len(encoded)  # what the classifier reads of each text
            check_memory(title, needed, device, "lower finetune.batch_size or finetune.max_length in params.yaml")
        with large_blocks_apart(), memory_errors_in_words(title, needed):
            with processes.at_one():
                training = Training(
                    classifier, encoded, train.targets(), settings, frozen=initialisation == "frozen", seed=seed,
                    device=device, processes=processes,
                )  # fmt: skip
            training.run(title, states)
            training.end()
            _check_logits(model, encoded, device)
        facts |= {"steps": training.step, "loss": training.losses, "precision": training.precision}
        if training.half is not None:
            facts["attention"] = "half layers"
        if training.on_gpu is not None:
            facts["computed"] = training.on_gpu.described
        began -= training.seconds_before
    if folder is None:
        return facts
    model.to("cpu").eval()
    model.save_pretrained(folder)
    classifier.tokenizer.backend_tokenizer.no_truncation()  # whatever length it last cut texts to is none of its own
    classifier.tokenizer.backend_tokenizer.no_padding()
    classifier.tokenizer.save_pretrained(folder)
    facts["seconds"] = round(time.monotonic() - began, 2)
    return facts


class Training:
    """A training: model, optimizer, and how many steps have been taken."""

    def __init__(
        self,
        classifier: OpenModel,
        encoded: Encoded,
        targets: list[float] | list[int],
        settings: FinetuneParams,
        *,
        frozen: bool,
        seed: int,
        device: torch.device,
        processes: Processes = ALONE,
    ):
        """Move the model to the device, in place, and seed all random numbers."""
        set_seed(seed)
        self.seed, self.processes = seed, processes
        self.model, self.settings, self.device = classifier.model.to(device), settings, device
        align_special_tokens(self.model, classifier.tokenizer)
        self.model.config.use_cache = False
        self.encoded, self.targets = encoded, targets
        self.precision = best_precision(settings.precision, device)
        multiple = length_multiple(device, self.precision, classifier.fit(settings.max_length))
        self.collate = DataCollatorWithPadding(classifier.tokenizer, pad_to_multiple_of=multiple)
        self.rate_setting = "frozen_learning_rate" if frozen else "learning_rate"
        self.peak: float = getattr(settings, self.rate_setting)
        self.per_epoch = -(-len(encoded) // settings.batch_size)
        self.steps = self.per_epoch * settings.epochs
        whole = self.model.get_input_embeddings().weight.requires_grad
        self.half: HalfTraining | None = None
        if self.precision == "bfloat16" and device.type == "cpu" and whole:
            self.half = HalfTraining.of(self.model, encoded, processes.seed(seed))
        self.frozen = frozen
        self.texts: EncodedTexts | None = None
        if frozen:
            self.texts = EncodedTexts.of(self.model, encoded, device, half=self.precision == "bfloat16")

        self.weights = {name: p for name, p in self.model.named_parameters() if p.requires_grad}
        decaying = set(get_parameter_names(self.model, [nn.LayerNorm], list(WITHOUT_DECAY)))
        groups = [
            {"params": [p for name, p in self.weights.items() if (name in decaying) == decays], "weight_decay": decay}
            for decays, decay in ((True, settings.weight_decay), (False, 0.0))
        ]
        self.optimizer = torch.optim.AdamW(groups, lr=self.peak, fused=True)

        self.on_gpu: GpuSteps | None = None
        alone = device.type == "cuda" and processes.count == 1 and (whole or frozen)
        if alone and multiple is not None and classifier.tokenizer.padding_side == "right":
            self.use_programs(Graphs(device), multiple, classifier.tokenizer.pad_token_type_id)

        self.step = 0
        self.order: list[int] = []  # of the examples in this epoch
        self.losses: list[float] = []  # mean loss between logged steps
        self.total = torch.zeros((), device=device)  # of the losses since the last logged step
        self.unchecked: list[torch.Tensor] = []  # loss, gradient norm and largest logit of each step since
        self.seconds_before = 0.0  # spent by the runs that this one continues

    def run(self, title: str, states: Path | None) -> None:
        """Take all steps that are left, showing progress, and save states on the way.

        Raises:
            UserError: the training diverges.
        """
        began = saved = time.monotonic()
        interval = 60 * self.settings.save_every
        state = newest(states) if states is not None else None
        state = self.processes.from_main(state if state is not None and self.fits(state) else None)
        if state is not None:
            self.restore(state)
            if self.processes.main:
                tell(f"{title}: continued at step {self.step} of {self.steps}")
        logged = max(1, self.steps // RECORDED)
        with progress(title, self.steps, "step", done=self.step) as shown:
            while self.step < self.steps:
                self.take_step()
                if self.step % logged == 0:
                    self.record(logged, states)
                loss = f"{self.losses[-1]:.3f}" if self.losses else "-"
                shown.advance(note=f"loss {loss}")
                due = self.step < self.steps and time.monotonic() - saved >= interval
                if states is not None and due and (self.processes.count == 1 or not self.unchecked):
                    self.check(states)
                    start = time.monotonic()
                    keep(states, self.state(self.seconds_before + start - began))
                    saved = time.monotonic()
                    interval = max(interval, (saved - start) / SAVING_SHARE)
        self.check(states)
        self.processes.over()

    def take_step(self) -> None:
        """Train on the next batch."""
        at = self.step % self.per_epoch
        if at == 0:
            torch.empty((), dtype=torch.int64).random_()  # torch's DataLoader draws a seed for workers it has none of
            order = get_length_grouped_indices(self.encoded.lengths.tolist(), self.settings.batch_size)
            self.order = self.processes.from_main(order)
        if not self.processes.main:
            set_seed(self.processes.seed(self.seed, self.step))  # so that dropout is another one
        size = self.settings.batch_size
        rows, part = self.processes.share(self.order[at * size : (at + 1) * size])
        if self.on_gpu is not None:
            found = self.on_gpu.take(rows, self.rate(self.step))
        else:
            for group in self.optimizer.param_groups:
                group["lr"] = self.rate(self.step)
            self._set_mode()
            found = self._learn(self._forward(rows), part)
        self.step += 1
        self.total += found[0]
        self.unchecked.append(found)

    def _set_mode(self) -> None:
        self.model.train()
        if self.frozen:
            self.model.base_model.eval()  # no dropout in what is not trained

    def _learn(self, out: Any, part: float = 1.0) -> torch.Tensor:
        """Change the weights by what the model has answered; returns loss, gradient norm and largest logit.

        Args:
            part: of the batch that these answers are; the rest is other processes'.
        """
        loss = out.loss.float() * part
        loss.backward()
        figures = torch.stack([loss.detach(), out.logits.detach().float().abs().max()])
        if self.processes.count > 1:
            self.processes.add_up([figures, *self._gradients()])
        if self.half is not None:
            norm = self.half.update(self.optimizer, self.settings.max_gradient_norm)
        else:
            norm = nn.utils.clip_grad_norm_(self.model.parameters(), self.settings.max_gradient_norm)
            self.optimizer.step()
            self.model.zero_grad()
        return torch.stack([figures[0], norm.float(), figures[1]])

    def use_programs(self, recorder: Recorder, multiple: int, segment_padding: int = 0, **options: Any) -> None:
        """Take all steps as programs of a GPU (`GpuSteps`), on texts that lie there."""
        placed = TextsOnDevice(
            self.encoded, self.targets, self.device, multiple=multiple, segment_padding=segment_padding
        )

        def compute(rows: torch.Tensor, width: int) -> torch.Tensor:
            if self.texts is not None:
                return self._learn(self.texts.classified(rows, placed.targets[rows]))
            batch = placed.batch(rows, width)
            with self._arithmetic(batch):
                out = self.model(**batch)
            return self._learn(out)

        widths = placed.widths if self.texts is None else np.ones_like(placed.widths)
        self._set_mode()
        self.on_gpu = GpuSteps(
            self.model, compute, widths, self.optimizer, size=self.settings.batch_size, epochs=self.settings.epochs,
            layers=layers_of(self.model) if self.texts is None else (), recorder=recorder, **options,
        )  # fmt: skip

    def _gradients(self) -> list[torch.Tensor]:
        of_weight = self.half.gradient if self.half is not None else operator.attrgetter("grad")
        return [grad for grad in map(of_weight, self.weights.values()) if grad is not None]

    def _forward(self, rows: list[int]) -> Any:
        """Return the model's output for some examples, with its loss."""
        if self.texts is not None:
            return self.texts.classified(rows, moved(torch.tensor([self.targets[i] for i in rows]), self.device))
        batch = dict(self.collate([self._example(i) for i in rows]))
        with self._arithmetic(batch):
            return self.model(**{name: moved(tensor, self.device) for name, tensor in batch.items()})

    def _arithmetic(self, batch: dict[str, torch.Tensor]) -> AbstractContextManager[None]:
        """Return the block in which the model computes a batch, which half-precision layers may change in place."""
        if self.half is not None:
            return self.half.computing(batch, self.step)
        return torch.autocast(self.device.type, torch.bfloat16) if self.precision == "bfloat16" else nullcontext()

    def end(self) -> None:
        """Leave the model as transformers knows it."""
        if self.on_gpu is not None:
            self.on_gpu.end()
        if self.half is not None:
            self.half.end([self.rate(step) for step in range(self.steps)], self.settings.weight_decay)

    def _example(self, i: int) -> dict[str, Any]:
        item: dict[str, Any] = {"input_ids": self.encoded.input_ids[i], "labels": self.targets[i]}
        if self.encoded.segments is not None:
            item["token_type_ids"] = self.encoded.segments[i]
        return item

    def rate(self, step: int) -> float:
        """Return the learning rate of a step (from 0): it rises to its peak, then falls to 0 at the end."""
        warmup = round(self.settings.warmup * self.steps)
        if step < warmup:
            return self.peak * (step / warmup)
        return self.peak * max(0.0, (self.steps - step) / max(1, self.steps - warmup))

    def record(self, steps: int, states: Path | None) -> None:
        """Note the mean loss of the last steps.

        Raises:
            UserError: the training has diverged.
        """
        self.check(states)
        self.losses.append(self.total.item() / steps)
        self.total.zero_()

    def check(self, states: Path | None) -> None:
        """Make sure that the steps since the last check were finite; a training that was not has no states to keep.

        Raises:
            UserError: a loss, gradient or logit was not, or a weight is not.
        """
        if not self.unchecked:
            return
        table = torch.stack(self.unchecked).cpu()
        self.unchecked = []
        names = ("loss", "gradient", "largest logit")
        for step, row in enumerate(table.tolist(), self.step - len(table) + 1):
            for name, value in zip(names, row, strict=True):
                if not math.isfinite(value):
                    self._diverged(step, f"{name} {value}", states)
        if self.step == self.steps:
            for name, weight in self.weights.items():
                if not torch.isfinite(weight).all():
                    self._diverged(self.step, f"{name} is not finite", states)

    def _diverged(self, step: int, what: str, states: Path | None) -> None:
        self.processes.over()
        if states is not None:
            shutil.rmtree(states, ignore_errors=True)
        raise UserError(
            f"training diverged at step {step} of {self.steps} ({what}) at learning rate {self.rate(step - 1):.3g}: "
            f"lower finetune.{self.rate_setting} ({self.peak:g}) in params.yaml"
        )

    def state(self, seconds: float) -> State:
        """Return everything that the following steps depend on.

        Args:
            seconds: spent on the training until now.
        """
        weights = {name: weight.detach() for name, weight in self.weights.items()}
        tensors = {"weights": weights} | {
            moment: {name: self.optimizer.state[weight][moment] for name, weight in self.weights.items()}
            for moment in MOMENTS
        }
        random, facts = random_state(self.device)
        tensors["rest"] = {"order": torch.tensor(self.order), "total": self.total, **random}
        facts |= {"losses": self.losses, "steps": self.steps, "seconds": seconds}
        return State(self.step, tensors, facts)

    def fits(self, state: State) -> bool:
        """Return whether a state is one of this training; says so in a line where it is not."""
        shapes = {name: weight.shape for name, weight in self.weights.items()}
        held = {name: weight.shape for name, weight in state.tensors.get("weights", {}).items()}
        fitting = state.facts.get("steps") == self.steps and held == shapes
        if not fitting:
            tell("the saved state of training is that of another model or length: it is passed over")
        return fitting

    @torch.no_grad()
    def restore(self, state: State) -> None:
        """Continue from a state that `state` has returned."""
        for name, weight in self.weights.items():
            weight.copy_(state.tensors["weights"][name])
            self.optimizer.state[weight] = {
                moment: state.tensors[moment][name].to(self.device, copy=True) for moment in MOMENTS
            }
        if self.half is not None:
            self.half.refresh()
        rest = state.tensors["rest"]
        self.step, self.order = state.step, rest["order"].tolist()
        self.total.copy_(rest["total"])
        self.losses, self.seconds_before = list(state.facts["losses"]), state.facts["seconds"]
        set_random_state(rest, state.facts, self.device)


def length_multiple(device: torch.device, precision: str, limit: int) -> int | None:
    """Return the multiple that batches are padded to, so that a GPU in bfloat16 sees few shapes; None for no such.

    Args:
        limit: the most tokens that an example can have.
    """
    few = device.type == "cuda" and precision == "bfloat16"
    return SHAPE if few and limit % SHAPE == 0 else None


def _check_logits(model: Any, encoded: Encoded, device: torch.device) -> None:
    """Make sure that a trained model answers with numbers, on its first training examples.

    Raises:
        UserError: it does not.
    """
    segments = encoded.segments[:32] if encoded.segments is not None else None
    predict(model.eval(), Encoded(encoded.input_ids[:32], segments, encoded.padding_id), device)
