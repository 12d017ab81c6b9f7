"""Models that are given as objects in memory, possibly with hooks, replaced modules or a changed `forward`.

A model object is saved, reopened and compared with its saved form. If both compute the same numbers, and the object has
neither hooks nor code of its own, the saved form is measured. Otherwise, the object itself is measured. In this case,
code that opens the folder of the saved form gets the object, with copies of its weights (see `loans.lent`). After the
measurement, the object is restored to its former state.
"""

import hashlib
import json
from collections.abc import Iterator, Sequence
from contextlib import contextmanager, nullcontext
from pathlib import Path
from typing import Any

import torch
from torch import nn

from bertsecrets.errors import UserError, quoted
from bertsecrets.models.configuration import open_tokenizer
from bertsecrets.models.consistency import CHECKED_EXAMPLES, explain_failure
from bertsecrets.models.encoding import collate, tokenize
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
from bertsecrets.texts.glue import Split

REPLACED_WEIGHTS = ("weight_orig", "weight_g", "weight_v")  # left by torch.nn.utils.prune and weight_norm
TRUSTED_PACKAGES = ("torch", "transformers")  # transformers adds hooks that only record outputs
COMPARED_TOKENS = 128  # total of the rows on which a model in memory is compared with its saved form
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
                raise UserError(f"{name} wraps a model: give the model itself, which is its attribute {inner}")
        raise UserError(f"a model must be given as a name, a folder or a transformers model, not as {name}")
    for where, module in model.named_modules():
        own = where or name
        if hasattr(module, "parametrizations") or any(each in module._parameters for each in REPLACED_WEIGHTS):
            raise UserError(
                f"{own} computes its weight from other tensors (by parametrisation or pruning): first store the result "
                "with torch.nn.utils.parametrize.remove_parametrizations or torch.nn.utils.prune.remove"
            )
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


def has_own_code(model: Any) -> bool:
    """Return whether a model uses custom code: hooks, classes or `forward` functions.

    Code from transformers or torch is not custom, and neither are the classes of a registered `Family`. Custom code may
    affect only some inputs, so a comparison on a few rows can miss its effects.
    """
    family = own_family(type(model.config).model_type)
    of_family = {family.encoder.__module__, family.classifier.__module__} if family else set()
    for module in model.modules():
        code = {*map(_home, _hooks(module))} | {type(module).__module__} - of_family
        if "forward" in vars(module) or not all(map(_is_trusted, code)):
            return True
    return False


def _hooks(module: Any) -> list[Any]:
    return [*module._forward_hooks.values(), *module._forward_pre_hooks.values()]


def _home(hook: Any) -> str:
    """Return the name of the Python module that defines a hook."""
    return str(getattr(hook, "func", hook).__module__)


def _is_trusted(module: str) -> bool:
    return module.partition(".")[0] in TRUSTED_PACKAGES


class Held:
    """A model object and its saved form. The temporary folder of the saved form is deleted with this instance.

    Attributes:
        name: Name of the model in messages and results.
        storable: Whether results may be stored. Results may be stored if the saved form computes the same numbers as
            the object on some rows, and the object has neither hooks nor code of its own.
    """

    def __init__(self, model: Any, tokenizer: Any, base: ModelRef | None = None, rows: Split | None = None):
        """Save the object with its tokenizer, and compare the object with its saved form.

        Args:
            tokenizer: The model's tokenizer. If it is None, the tokenizer of `base` is used.
            base: The base model from which the classifier was trained.
            rows: Some rows of the task if the model is a classifier, or None if it is a bare encoder.

        Raises:
            UserError: If the object is not a model, has no tokenizer, cannot be saved or cannot be measured.
        """
        check_object(model)
        check_tokenizer(tokenizer)
        if tokenizer is None:
            if base is None:
                raise UserError("a model in memory needs its tokenizer: give it as the argument tokenizer")
            tokenizer = open_tokenizer(base)
            check_embeddings("the model in memory", model.config, base, tokenizer)
        self.model, self.tokenizer, self.name = model, tokenizer, f"{type(model).__name__}-in-memory"
        self.folder = temporary_folder(self) / self.name
        model.save_pretrained(self.folder)
        if not type(model).__module__.startswith("transformers."):
            _leave_out_class(self.folder / "config.json")
        tokenizer.save_pretrained(self.folder)
        self._state = _state(model)
        self.storable = self._is_as_saved(base, rows)

    def _is_as_saved(self, base: ModelRef | None, rows: Split | None) -> bool:
        try:
            reopened = _outputs(self.folder, base, rows)
            with lent(self.model, self.folder):
                own = _outputs(self.folder, base, rows)
        except UserError as error:
            raise type(error)(str(error).replace(str(self.folder), "the model in memory")) from error
        if not has_own_code(self.model) and len(own) == len(reopened) and all(map(torch.equal, own, reopened)):
            return True
        if rows is not None and not rows.task.regression:
            names = [*open_checkpoint_config(self.folder, rows.task).id2label.values()]
            if names != [*rows.task.labels]:  # reordering the weights would not reorder the effect of a hook
                raise UserError(
                    "the model in memory cannot be replaced by its saved form, so its classes must be in the order of "
                    f"{rows.task.title} ({', '.join(rows.task.labels)}), but their order is {', '.join(names)}"
                )
        return False

    @contextmanager
    def measured(self) -> Iterator[None]:
        """Until the `with` block ends, make sure that opening `folder` returns the model to be measured.

        If `storable` is True, the saved form is measured. Otherwise, the object is measured.

        Raises:
            UserError: If the object has changed since it was saved.
        """
        if _state(self.model) != self._state:
            raise UserError(
                "the model in memory has changed since it was given to this session: open a new session to measure the "
                "changed model"
            )
        with nullcontext() if self.storable else lent(self.model, self.folder):
            yield


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


def _state(model: Any) -> str:
    """Return a digest of a model's weights, modules, hooks and `forward` functions, to detect changes by the user."""
    sha = hashlib.sha256()
    for name, module in model.named_modules():
        hooks = [id(hook) for hook in _hooks(module) if not _is_trusted(_home(hook))]
        sha.update(repr((name, id(module), id(type(module)), hooks, id(vars(module).get("forward")))).encode())
    for tensor in model.state_dict().values():
        sha.update(tensor.detach().cpu().contiguous().reshape(-1).view(torch.uint8).numpy().data)
    return sha.hexdigest()


def _leave_out_class(file: Path) -> None:
    """Remove the name of a custom class from its configuration file, because the object provides the class."""
    config = {name: value for name, value in read_json(file).items() if name not in ("architectures", "auto_map")}
    file.write_text(json.dumps(config), encoding="utf-8")


def _outputs(folder: Path, base: ModelRef | None, rows: Split | None) -> list[torch.Tensor]:
    """Return the logits, hidden states and maps that the model in a folder computes for some rows."""
    opened = open_encoder(ModelRef.in_folder(folder)) if rows is None else open_checkpoint(folder, rows.task, base)
    first, second = (PROBES, None) if rows is None else (rows.sentence1, rows.sentence2)
    encoded = tokenize(opened.tokenizer, first, second, opened.fit(COMPARED_TOKENS))[0]
    shown: list[torch.Tensor] = []
    with explain_failure(opened.model), torch.inference_mode():
        for row in encoded.spread(CHECKED_EXAMPLES):
            inputs = collate(encoded, [row]).inputs()
            outputs = opened.model(**inputs, output_hidden_states=True, output_attentions=True)
            for name, value in outputs.items():
                if rows is None and name == "pooler_output":  # not every encoder has a pooler, and no measure reads one
                    continue
                shown += [each for each in (value if isinstance(value, tuple) else (value,)) if torch.is_tensor(each)]
    return shown
