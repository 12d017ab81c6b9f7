"""The training loop: AdamW with batches of texts of similar length, in float32 or with bfloat16 autocast.

In float32 on a CPU, the results are bit-identical to those of transformers' Trainer with the same random numbers. The
same seed gives the same weights, even if a run was killed and then resumed from its last saved state.
"""

import math
import shutil
import time
from pathlib import Path
from typing import Any

import torch
from torch import nn
from transformers.trainer_pt_utils import get_length_grouped_indices, get_parameter_names
from transformers.trainer_utils import align_special_tokens, set_seed

from bertsecrets.devices import best_precision
from bertsecrets.errors import NotApplicableError, UserError
from bertsecrets.models.consistency import Logits, check_logits, explain_failure
from bertsecrets.models.encoding import Encoded, collate
from bertsecrets.models.opening import OpenModel
from bertsecrets.models.training.states import (
    State,
    checkpoint_bytes,
    newest,
    random_state,
    save_state,
    set_random_state,
)
from bertsecrets.models.training.texts import EncodedTexts
from bertsecrets.progress import log, progress
from bertsecrets.settings import FinetuneParams

# Weight decay is not applied to LayerNorms or to weights with a matching name (as in transformers' Trainer).
UNDECAYED_NAMES = (r"bias", r"layernorm", r"rmsnorm", r"(?:^|\.)norm(?:$|\.)", r"_norm(?:$|\.)")
MOMENTS = ("step", "exp_avg", "exp_avg_sq")  # AdamW's state per weight
RECORDED_LOSSES = 50  # number of losses in a manifest
SAVING_SHARE = 0.02  # maximum fraction of the time that is spent on saving states


class Training:
    """A training run, with its model, its optimizer, and the number of steps taken so far.

    Weights that do not require gradients are not changed. If the encoder is frozen, it runs without dropout, and the
    learning rate for frozen encoders is used.
    """

    def __init__(
        self,
        classifier: OpenModel,
        encoded: Encoded,
        targets: list[float] | list[int],
        settings: FinetuneParams,
        *,
        seed: int,
        device: torch.device,
    ):
        """Move the model to the device in place, and seed all random number generators."""
        set_seed(seed)
        self.model, self.settings, self.device = classifier.model.to(device), settings, device
        align_special_tokens(self.model, classifier.tokenizer)
        self.model.config.use_cache = False
        self.lengths: list[int] = encoded.lengths.tolist()
        self.precision = best_precision(settings.precision, device)
        self.per_epoch = -(-len(encoded) // settings.batch_size)
        self.steps = self.per_epoch * settings.epochs

        self.frozen = not any(weight.requires_grad for weight in self.model.base_model.parameters())
        self.rate_setting = "frozen_learning_rate" if self.frozen else "learning_rate"
        self.peak: float = getattr(settings, self.rate_setting)
        self.encoded, self.targets = encoded, torch.tensor(targets)
        self.features: EncodedTexts | None = None
        if self.frozen:
            with explain_failure(self.model):
                half = self.precision == "bfloat16"
                self.features = EncodedTexts.for_classifier(self.model, encoded, device, half=half)

        self.weights = {name: p for name, p in self.model.named_parameters() if p.requires_grad}
        if not self.weights:
            raise NotApplicableError(f"{type(self.model).__name__} has a frozen encoder and no other weights to train")
        decaying = set(get_parameter_names(self.model, [nn.LayerNorm], list(UNDECAYED_NAMES)))
        groups = [
            {"params": [p for name, p in self.weights.items() if (name in decaying) == decays], "weight_decay": decay}
            for decays, decay in ((True, settings.weight_decay), (False, 0.0))
        ]
        self.optimizer = torch.optim.AdamW(groups, lr=self.peak, fused=True)

        self.step = 0
        self.order: list[int] = []  # order of the examples in this epoch
        self.losses: list[float] = []  # mean loss between logged steps
        self.total = torch.zeros((), device=device)  # sum of the losses since the last logged step
        self.unchecked: list[torch.Tensor] = []  # loss, gradient norm and largest logit per step
        self.seconds_before = 0.0  # seconds spent on training before resuming
        self.reserved = checkpoint_bytes(classifier)  # bytes of disk space that must remain free when states are saved

    def run(self, title: str, states: Path | None) -> None:
        """Take all remaining steps. Meanwhile, show progress and save states."""
        began = saved = time.monotonic()
        interval = 60 * self.settings.save_every
        state = newest(states) if states is not None else None
        if state is not None and self.fits(state):
            self.restore(state)
            log.info(f"{title}: resumed at step {self.step} of {self.steps}")
        logged = max(1, self.steps // RECORDED_LOSSES)
        with progress(title, self.steps, "step", done=self.step) as shown:
            while self.step < self.steps:
                self.take_step()
                if self.step % logged == 0:
                    self.record(logged, states)
                loss = f"{self.losses[-1]:.3f}" if self.losses else "-"
                shown.advance(note=f"loss {loss}")
                if states is not None and self.step < self.steps and time.monotonic() - saved >= interval:
                    self.check_finite(states)
                    start = time.monotonic()
                    save_state(states, self.state(self.seconds_before + start - began), self.reserved)
                    saved = time.monotonic()
                    interval = max(interval, (saved - start) / SAVING_SHARE)
        self.check_finite(states)

    def check(self) -> None:
        """Check that training and evaluation compute the same logits if dropout is disabled."""
        precision, self.precision = self.precision, "float32"  # no effect on features, which are encoded already
        rounded = self.features is not None and precision == "bfloat16"
        check_logits(self.model, self.encoded, self._logits, rounded=rounded)
        self.precision = precision

    def _logits(self, rows: list[int]) -> Logits:
        output = self._forward(rows)
        if output.loss is None:
            raise UserError(f"{type(self.model).__name__} returns no loss: compute it in its forward from the labels")
        logits: Logits = output.logits
        return logits

    def take_step(self) -> None:
        """Train on the next batch."""
        at = self.step % self.per_epoch
        if at == 0:
            torch.empty((), dtype=torch.int64).random_()  # like torch's DataLoader, which draws a seed for its workers
            self.order = get_length_grouped_indices(self.lengths, self.settings.batch_size)
        size = self.settings.batch_size
        for group in self.optimizer.param_groups:
            group["lr"] = self.rate(self.step)
        out = self._forward(self.order[at * size : (at + 1) * size])
        loss = out.loss.float()
        loss.backward()
        norm = nn.utils.clip_grad_norm_(self.model.parameters(), self.settings.max_gradient_norm)
        self.optimizer.step()
        self.model.zero_grad()
        self.step += 1
        loss, largest = loss.detach(), out.logits.detach().float().abs().max()
        self.total += loss
        self.unchecked.append(torch.stack([loss, norm.float(), largest]))

    def _forward(self, rows: list[int]) -> Any:
        """Return the output of the model, including the loss, for some examples in training mode."""
        self.model.train()
        if self.frozen:
            self.model.base_model.eval()
        labels = self.targets[rows].to(self.device, non_blocking=True)
        if self.features is not None:
            return self.features.classified(torch.tensor(rows, device=self.device), labels)
        inputs = collate(self.encoded, rows).to(self.device).inputs()
        with torch.autocast(self.device.type, torch.bfloat16, enabled=self.precision == "bfloat16"):
            return self.model(**inputs, labels=labels)

    def rate(self, step: int) -> float:
        """Return the learning rate at a step (counted from 0): linear warmup to the peak, then linear decay to 0."""
        warmup = round(self.settings.warmup * self.steps)
        if step < warmup:
            return self.peak * (step / warmup)
        return self.peak * max(0.0, (self.steps - step) / max(1, self.steps - warmup))

    def record(self, steps: int, states: Path | None) -> None:
        """Record the mean loss since the last logged step."""
        self.check_finite(states)
        self.losses.append(self.total.item() / steps)
        self.total.zero_()

    def check_finite(self, states: Path | None) -> None:
        """Check the newly recorded values. If any of them is not finite, delete the states and raise an error."""
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
        if states is not None:
            shutil.rmtree(states, ignore_errors=True)
        raise UserError(
            f"training diverged at step {step} of {self.steps} ({what}) at learning rate {self.rate(step - 1):.3g}: "
            f"reduce finetune.{self.rate_setting} ({self.peak:g}) in params.yaml"
        )

    def state(self, seconds: float) -> State:
        """Return the state of the run, which determines all further steps. `seconds` is the training time so far."""
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
        """Return whether a saved state belongs to this training run, and log a message if it belongs to another run."""
        shapes = {name: weight.shape for name, weight in self.weights.items()}
        held = {name: weight.shape for name, weight in state.tensors.get("weights", {}).items()}
        fitting = state.facts.get("steps") == self.steps and held == shapes
        if not fitting:
            log.info("ignoring the saved training state of a run with different weights or a different number of steps")
        return fitting

    @torch.no_grad()
    def restore(self, state: State) -> None:
        """Restore a state that was returned by `state`."""
        for name, weight in self.weights.items():
            weight.copy_(state.tensors["weights"][name])
            self.optimizer.state[weight] = {
                moment: state.tensors[moment][name].to(self.device, copy=True) for moment in MOMENTS
            }
        rest = state.tensors["rest"]
        self.step, self.order = state.step, rest["order"].tolist()
        self.total.copy_(rest["total"])
        self.losses, self.seconds_before = list(state.facts["losses"]), state.facts["seconds"]
        set_random_state(rest, state.facts, self.device)
