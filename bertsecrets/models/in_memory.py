"""Models that are given as objects in memory, possibly with hooks, replaced modules or a changed `forward`.

A model object is saved, and compared module by module with the model that is reopened from its saved form (see
`description`). If the two are equal, the saved form is measured. Otherwise, the object itself is measured. In this
case, code that opens the folder of the saved form gets the object, with copies of its weights (see `loans.lent`). After
the measurement, the object is restored to its former state.
"""

import copy
import json
import warnings
from collections.abc import Iterator, Sequence
from contextlib import contextmanager
from pathlib import Path
from typing import Any

import torch
from torch import nn

from bertsecrets.errors import UserError, first_line, quoted
from bertsecrets.models.configuration import ModelWarning, complete_tokenizer, load, open_tokenizer
from bertsecrets.models.consistency import LOGIT_TOLERANCE, explain_failure, largest, largest_difference
from bertsecrets.models.description import attention_function, describe, difference
from bertsecrets.models.encoding import collate, identity, tokenize
from bertsecrets.models.families import own_family
from bertsecrets.models.loans import lent
from bertsecrets.models.locations import ModelRef, locate
from bertsecrets.models.opening import (
    OpenModel,
    check_embeddings,
    open_checkpoint,
    open_checkpoint_config,
    open_encoder,
)
from bertsecrets.store.files import read_json, temporary_folder
from bertsecrets.store.locks import one_thread
from bertsecrets.texts.glue import Split

REPLACED_WEIGHTS = ("weight_orig", "weight_g", "weight_v")  # left by torch.nn.utils.prune and weight_norm
TRIED_TOKENS = 128  # maximum length of the text on which a model with custom code is tried
PROBES: Sequence[str] = (
    "A few words.",
    "He was becoming agitated, and she asked him to wait for a while.",
    "They are few; no more?",
)


def check_object(model: Any) -> None:
    """Check that an object is a transformers model (no wrapper or adapter) with plain floating-point tensors."""
    from transformers import PreTrainedModel

    name = type(model).__name__
    if hasattr(model, "merge_and_unload") or getattr(model, "_hf_peft_config_loaded", False):
        raise UserError(f"{name} has an adapter: merge it into the weights first (merge_and_unload)")
    if not isinstance(model, PreTrainedModel):
        for inner in ("module", "_orig_mod"):  # of DataParallel and of torch.compile
            if isinstance(getattr(model, inner, None), PreTrainedModel):
                raise UserError(f"{name} wraps a model: give the model itself, which is in the attribute {inner}")
        wanted = "a model must be given as a name, a folder or a transformers model"
        raise UserError(f"{wanted}, not as {name}: derive your class from a class of transformers")
    check_attention(model)
    for where, module in model.named_modules():
        own = where or name
        if hasattr(module, "parametrizations") or any(each in module._parameters for each in REPLACED_WEIGHTS):
            raise UserError(
                f"{own} computes its weight from other tensors (by parametrisation or pruning): first store the result "
                "with torch.nn.utils.parametrize.remove_parametrizations or torch.nn.utils.prune.remove"
            )
        if hasattr(module, "_orig_mod"):
            raise UserError(f"{own} is compiled, which hides its layers: give the model as it was before torch.compile")
        if type(module).__module__.startswith(("torch.ao.", "bitsandbytes.", "torchao.")):
            raise UserError(f"{own} is quantised ({type(module).__name__}), but only unquantised models are supported")
        for weight in module.parameters(recurse=False):
            if type(weight.data) is not torch.Tensor or not weight.is_floating_point() or weight.is_meta:
                raise UserError(
                    f"a weight of {own} does not hold floating-point numbers in memory ({type(weight.data).__name__}, "
                    f"{weight.dtype}): give a model that is not quantised and is completely loaded into memory"
                )


def check_tokenizer(tokenizer: Any) -> None:
    """Check that an object is a transformers tokenizer or None."""
    from transformers import PreTrainedTokenizerBase

    if tokenizer is not None and not isinstance(tokenizer, PreTrainedTokenizerBase):
        raise UserError(f"tokenizer must be a transformers tokenizer, not {quoted(tokenizer)}")


def check_attention(model: Any) -> None:
    """Check that a model uses an attention function of transformers. Eager attention can replace any of these."""
    for config in (module.config for module in model.modules() if hasattr(module, "config")):
        if (function := attention_function(config)) is not None:
            raise UserError(
                f"{type(model).__name__} uses an attention function that is not part of transformers "
                f"({getattr(function, '__qualname__', function)}), and its maps cannot be read: call "
                "set_attn_implementation('eager') to measure the model without this function"
            )


class Held:
    """A model object and its saved form. The temporary folder of the saved form is deleted with this instance.

    Attributes:
        name: Name of the model in messages and results.
        difference: Why the saved form cannot be measured instead of the object, or None if they are equal.
        storable: Whether results may be stored, because the saved form is measured.
    """

    @one_thread()
    def __init__(self, model: Any, tokenizer: Any, base: ModelRef | None = None, rows: Split | None = None):
        """Save the object with its tokenizer, and compare the object with its saved form.

        Args:
            tokenizer: The model's tokenizer. If it is None, the tokenizer of `base` is used.
            base: The base model from which the classifier was trained.
            rows: A row of the task, on which a classifier is tried, or None if the model is a bare encoder.

        Raises:
            UserError: If the object is not a model, has no tokenizer, cannot be saved or cannot be measured.
        """
        check_tokenizer(tokenizer)
        check_object(model)
        if tokenizer is None:
            if base is None:
                raise UserError("a model in memory needs its tokenizer: give it as the argument tokenizer")
            tokenizer = open_tokenizer(base)
            check_embeddings("the model in memory", model.config, base, tokenizer)
        self.model, self.tokenizer, self.name = model, tokenizer, f"{type(model).__name__}-in-memory"
        self.folder = temporary_folder(self) / self.name
        _save(model, self.folder)
        if not type(model).__module__.startswith("transformers."):
            _leave_out_class(self.folder / "config.json")
        tokenizer.save_pretrained(self.folder)
        self._trains = rows is None
        self._state = describe(model, trains=self._trains)
        self.difference = self._compare(rows)
        self.storable = self.difference is None
        try:
            _check_saved(tokenizer, self.folder)
            self._try(base, rows)
        except UserError as error:
            raise type(error)(str(error).replace(str(self.folder), "the model in memory")) from error

    def _compare(self, rows: Split | None) -> str | None:
        """Return how the object differs from what transformers opens in its folder, or None if they are equal."""
        from transformers import AutoModel, AutoModelForSequenceClassification

        classifies = rows is not None and self.model is not self.model.base_model
        opener: Any = AutoModelForSequenceClassification if classifies else AutoModel
        own = self.model if classifies else self.model.base_model
        own_family(self.model.config.model_type)  # registers the classes of an installed package
        try:
            reopened = load(ModelRef.in_folder(self.folder), opener, use_safetensors=True, dtype=torch.float32)
        except UserError as error:
            return f"its saved form cannot be opened: {str(error).replace(str(self.folder), 'it')}"
        if getattr(own, "pooler", None) is None and getattr(reopened, "pooler", None) is not None:
            reopened.pooler = None  # not every encoder has a pooler, and no measure reads one
        described = self._state if own is self.model else describe(own, trains=self._trains)
        place = difference(described, describe(reopened, trains=self._trains))
        return place and f"its saved form would lose {place}"

    def _try(self, base: ModelRef | None, rows: Split | None) -> None:
        """Open the model that will be measured. If this is the object itself, also try it on a text."""
        if not self.storable and rows is not None and not rows.task.regression:
            names = [*open_checkpoint_config(self.folder, rows.task).id2label.values()]
            if names != [*rows.task.labels]:  # reordering the weights would not reorder the effect of a hook
                raise UserError(
                    f"the object in memory itself is measured, because {self.difference}. Its classes must be in "
                    f"the order of {rows.task.title} ({', '.join(rows.task.labels)}), but their order is "
                    f"{', '.join(names)}"
                )
        with self._lent():
            ref = ModelRef.in_folder(self.folder)
            opened = open_encoder(ref) if rows is None else open_checkpoint(self.folder, rows.task, base)
            if self.storable:
                return
            first, second = (PROBES, None) if rows is None else (rows.sentence1, rows.sentence2)
            encoded = tokenize(opened.tokenizer, first, second, opened.fit(TRIED_TOKENS))[0]
            with explain_failure(opened.model), torch.inference_mode():
                inputs = collate(encoded, [0]).inputs()
                one, other = (opened.model(**inputs)[0] for _ in range(2))
            if rows is not None and one.shape != (1, rows.task.outputs):
                raise UserError(f"the model in memory returns outputs of shape {[*one.shape]} instead of one per class")
            if one.isfinite().all() and not largest_difference(one, other) <= LOGIT_TOLERANCE * largest(one):
                raise UserError(
                    "the model in memory computes different numbers each time, even in evaluation mode: remove code "
                    f"that draws random numbers or counts calls ({self.difference})"
                )

    @contextmanager
    def measured(self) -> Iterator[None]:
        """Until the `with` block ends, make sure that opening `folder` returns the model to be measured.

        If `storable` is True, the saved form is measured. Otherwise, the object is measured.

        Raises:
            UserError: If the object has changed since it was saved.
        """
        with one_thread():
            if place := difference(describe(self.model, trains=self._trains), self._state):
                raise UserError(
                    f"the model in memory has changed since it was given to this session ({place}): open a new session "
                    "to measure the changed model"
                )
            with self._lent():
                yield

    @contextmanager
    def _lent(self) -> Iterator[None]:
        if self.storable:
            yield
            return
        try:
            with lent(self.model, self.folder):
                yield
        finally:  # hooks may have stored data, which must not count as a change
            self._state = describe(self.model, trains=self._trains)


@contextmanager
def opened(model: Any, tokenizer: Any = None, *, offline: bool = False) -> Iterator[OpenModel]:
    """Open an encoder and yield it. The encoder is given as a name, as a folder or as an object in memory.

    Raises:
        UserError: If the model is not available, or if it is an object that has no tokenizer or cannot be measured.
    """
    check_tokenizer(tokenizer)
    if not isinstance(model, nn.Module):
        yield open_encoder(locate(str(model), offline))
        return
    held = Held(model, tokenizer)
    with held.measured():
        yield open_encoder(ModelRef.in_folder(held.folder))


def _save(model: Any, folder: Path) -> None:
    try:
        try:
            model.save_pretrained(folder)
        except RuntimeError:  # raised if modules or weights are shared
            weights = {name: tensor.detach().clone() for name, tensor in model.state_dict().items()}
            model.save_pretrained(folder, state_dict=weights)
    except Exception as error:  # any architecture's code may raise any exception
        raise UserError(f"{type(model).__name__} cannot be saved by save_pretrained: {first_line(error)}") from error


def _check_saved(tokenizer: Any, folder: Path) -> None:
    """Check that a tokenizer encodes texts like its saved form, which is used instead."""
    own = complete_tokenizer(copy.deepcopy(tokenizer))
    with warnings.catch_warnings():
        warnings.simplefilter("ignore", ModelWarning)  # shown when the model is opened
        reopened = open_tokenizer(ModelRef.in_folder(folder))
    patched = any(callable(value) for value in vars(tokenizer).values())
    changed = tokenizer.is_fast and identity(own) != identity(reopened)
    if patched or changed or not type(tokenizer).__module__.startswith("transformers."):
        raise UserError(
            f"the tokenizer in memory ({type(tokenizer).__name__}) would encode texts differently once it is saved and "
            "opened again: give PreTrainedTokenizerFast(tokenizer_object=tokenizer.backend_tokenizer, ...) with its "
            "special tokens instead"
        )


def _leave_out_class(file: Path) -> None:
    """Remove the name of a custom class from its configuration file, because the object provides the class."""
    config = {name: value for name, value in read_json(file).items() if name not in ("architectures", "auto_map")}
    file.write_text(json.dumps(config), encoding="utf-8")
