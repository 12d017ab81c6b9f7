"""Precomputed features of texts, for training a classifier on a frozen encoder.

Before the first step, the encoder runs once per text, without dropout. Only the features that the classifier reads are
stored: either the pooled output or the hidden state of one token.
"""

from dataclasses import dataclass
from typing import Any, Literal

import torch
from jaxtyping import Float, Int
from transformers.utils import ModelOutput

from bertsecrets.models.encoding import Batch, Encoded, batches, collate
from bertsecrets.models.layers import hooked

PROBED_TEXTS = 8  # texts of all lengths, used to detect what a classifier reads
HIDDEN_OUTPUT, POOLED_OUTPUT = "last_hidden_state", "pooler_output"


@dataclass(frozen=True)
class Reading:
    """The encoder output that a classifier reads. If the output has one vector per token, `place` selects the token."""

    output: str
    kind: type[Any]  # type of the object with all outputs
    place: Literal["first", "last"] = "first"

    def places(self, batch: Batch) -> Int[torch.Tensor, " rows"]:
        """Return, for each row, the position of the token that the classifier reads."""
        return torch.zeros_like(batch.lengths) if self.place == "first" else batch.lengths - 1

    @torch.no_grad()
    def features(self, outputs: Any, batch: Batch) -> Float[torch.Tensor, "rows hidden"]:
        """Return the vector (float32) that the classifier reads for each text in a batch, given encoder outputs."""
        states = outputs[self.output].float()
        return states if self.output == POOLED_OUTPUT else states[torch.arange(len(states)), self.places(batch)]

    def classified(
        self,
        model: Any,
        features: Float[torch.Tensor, "rows hidden"],
        tokens: Int[torch.Tensor, "rows 1"],
        **others: Any,
    ) -> Any:
        """Return a model's output with `features` in place of its encoder's output. Each text has only one token."""
        given = {
            HIDDEN_OUTPUT: features[:, None],
            **({POOLED_OUTPUT: features} if self.output == POOLED_OUTPUT else {}),
        }
        inputs = {"input_ids": tokens, "attention_mask": torch.ones_like(tokens), **others}
        return _with_encoder_output(model, self.kind(**given), **inputs)


class EncodedTexts:
    """Training texts, stored as the features that a frozen encoder computes for its classifier head."""

    def __init__(self, model: Any, encoded: Encoded, reading: Reading, device: torch.device, *, half: bool):
        """Encode all texts, in bfloat16 if `half` is True. The model must be in evaluation mode."""
        self.model, self.reading = model, reading
        self.features = torch.empty(0)
        self.tokens = torch.empty(len(encoded), 1, dtype=torch.long, device=device)
        for batch in batches(encoded):
            here = batch.to(device)
            with torch.no_grad(), torch.autocast(device.type, torch.bfloat16, enabled=half):
                features = reading.features(encoder_output(model, here), here)
            if not self.features.numel():
                self.features = features.new_empty(len(encoded), features.shape[1])
            rows = torch.from_numpy(batch.indices).to(device)
            self.features[rows] = features
            self.tokens[rows] = here.input_ids.gather(1, reading.places(here)[:, None])

    @classmethod
    def for_classifier(cls, model: Any, encoded: Encoded, device: torch.device, *, half: bool) -> "EncodedTexts | None":
        """Encode texts for a model's classifier.

        Return None if `encoded` is empty, or if the classifier reads more than one vector per text.
        """
        if not len(encoded):
            return None
        probed = collate(encoded, encoded.spread(PROBED_TEXTS))  # first and last token differ in long texts
        reading = reading_of(model.eval(), probed.to(device))
        return cls(model, encoded, reading, device, half=half) if reading is not None else None

    def classified(self, rows: Int[torch.Tensor, " rows"], labels: torch.Tensor) -> Any:
        """Return the model's output, including the loss, for the texts in the given rows."""
        return self.reading.classified(self.model, self.features[rows], self.tokens[rows], labels=labels)


def encoder_output(model: Any, batch: Batch) -> Any:
    """Run a classifier, and return the output of its encoder.

    The whole classifier is run, because it may call the encoder with extra arguments. For example, the classifier of
    Longformer gives [CLS] global attention.
    """
    outputs: list[Any] = []
    with hooked([model.base_model], lambda _module, _inputs, output: outputs.append(output)):
        model(**batch.inputs())
    return outputs[-1]


def _with_encoder_output(model: Any, given: Any, **inputs: Any) -> Any:
    encoder = model.base_model
    encoder.forward = lambda *_, **__: given
    try:
        return model(**inputs)
    finally:
        del encoder.forward


def reading_of(model: Any, batch: Batch) -> Reading | None:
    """Return which encoder output a classifier reads, or None if it reads several vectors per text.

    Gradients of the logits show which output the classifier reads. To check that one vector per text is enough, the
    logits are recomputed from this vector.
    """
    encoder = model.base_model
    if encoder is model or getattr(model.config, "is_encoder_decoder", False):
        return None
    with torch.no_grad():
        states = encoder_output(model, batch)
    if not isinstance(states, ModelOutput):
        return None
    outputs = {
        name: states[name].requires_grad_() for name in (HIDDEN_OUTPUT, POOLED_OUTPUT) if states.get(name) is not None
    }
    if HIDDEN_OUTPUT not in outputs:
        return None
    logits = _with_encoder_output(model, type(states)(**{**states, **outputs}), **batch.inputs()).logits
    if not logits.requires_grad:
        return None
    weights = torch.arange(1.0, logits.shape[1] + 1, device=logits.device)
    gradients = torch.autograd.grad((logits.float() * weights).sum(), list(outputs.values()), allow_unused=True)
    read = {name: part for name, part in zip(outputs, gradients, strict=True) if part is not None and part.any()}
    if len(read) != 1:
        return None
    (output,) = read
    tokens: tuple[Literal["first", "last"], ...] = ("first", "last")
    for reading in (Reading(output, type(states), token) for token in tokens):
        with torch.no_grad():
            ids = batch.input_ids.gather(1, reading.places(batch)[:, None])
            short = reading.classified(model, reading.features(outputs, batch), ids).logits
        if torch.allclose(short, logits, rtol=1e-4, atol=1e-5):
            return reading
    return None
