"""Models given as objects in memory, which may have hooks, replaced modules or a changed `forward`.

Such an object is saved, reopened and compared with itself. If both compute the same numbers, and the object has no
hooks or code of its own, the folder stands for the object. Otherwise the object itself is measured: inside `lent`,
whoever opens the folder gets the object, with copies of its weights. Afterwards, the object is as it was.
"""

import json
import os
from collections.abc import Iterator, Sequence
from contextlib import contextmanager
from pathlib import Path
from tempfile import TemporaryDirectory
from typing import Any

import torch

from bertsecrets.errors import UserError
from bertsecrets.models.configuration import open_tokenizer
from bertsecrets.models.consistency import CHECKED_EXAMPLES, explain_failure
from bertsecrets.models.encoding import collate, tokenize
from bertsecrets.models.families import own_family
from bertsecrets.models.loans import lent
from bertsecrets.models.locations import ModelRef
from bertsecrets.models.opening import check_embeddings, open_checkpoint, open_checkpoint_config, open_encoder
from bertsecrets.reading import expanded
from bertsecrets.store.files import read_json
from bertsecrets.texts.glue import Split

REPLACED_WEIGHTS = ("weight_orig", "weight_g", "weight_v")  # left by torch.nn.utils.prune and weight_norm
TRUSTED_PACKAGES = ("torch", "transformers")  # transformers adds hooks that only record outputs
COMPARED_TOKENS = 128  # of the rows on which a model in memory is compared with its saved form
PROBES: Sequence[str] = (
    "A few words.",
    "He was becoming agitated, and she asked him to wait for a while.",
    "They are few; no more?",
)


def check_object(model: Any) -> None:
    """Check that an object is a model of transformers whose weights can be saved and read as numbers.

    Raises:
        UserError: If it is not: a wrapper, an adapter, a quantised or a parametrised model.
    """
    from transformers import PreTrainedModel

    name = type(model).__name__
    if hasattr(model, "merge_and_unload") or getattr(model, "_hf_peft_config_loaded", False):
        raise UserError(f"{name} has an adapter: merge it into the weights first (merge_and_unload)")
    if not isinstance(model, PreTrainedModel):
        for inner in ("module", "_orig_mod"):  # of DataParallel and of torch.compile
            if isinstance(getattr(model, inner, None), PreTrainedModel):
                raise UserError(f"{name} wraps a model: give the model itself, which is its attribute {inner}")
        raise UserError(f"checkpoint must be a folder or a model of transformers, not {name}")
    for where, module in model.named_modules():
        own = where or name
        if hasattr(module, "parametrizations") or any(each in module._parameters for each in REPLACED_WEIGHTS):
            raise UserError(
                f"{own} computes its weight from other tensors (parametrisation or pruning): make it permanent first "
                "(torch.nn.utils.parametrize.remove_parametrizations, torch.nn.utils.prune.remove)"
            )
        if type(module).__module__.startswith(("torch.ao.", "bitsandbytes.", "torchao.")):
            raise UserError(f"{own} is quantised ({type(module).__name__}): give the model before its quantisation")
        for weight in module.parameters(recurse=False):
            if type(weight.data) is not torch.Tensor or not weight.is_floating_point() or weight.is_meta:
                raise UserError(
                    f"a weight of {own} does not hold floating-point numbers in memory ({type(weight.data).__name__}, "
                    f"{weight.dtype}): give the model before its quantisation, completely loaded"
                )


def has_own_code(model: Any) -> bool:
    """Return whether a model has hooks, or classes or `forward` functions from elsewhere than its libraries.

    They may act on some inputs only, so a comparison of a few rows does not show what they do.
    """
    family = own_family(type(model.config).model_type)
    of_family = {family.encoder.__module__, family.classifier.__module__} if family else set()
    for module in model.modules():
        hooks = [*module._forward_hooks.values(), *module._forward_pre_hooks.values()]
        code = {str(getattr(each, "func", each).__module__) for each in hooks} | {type(module).__module__} - of_family
        if "forward" in vars(module) or any(name.partition(".")[0] not in TRUSTED_PACKAGES for name in code):
            return True
    return False


@contextmanager
def given(checkpoint: Any, ref: ModelRef, rows: Split | None) -> Iterator[tuple[Path | None, bool]]:
    """Yield the folder of a checkpoint (a folder, a model in memory, or None), and whether its results may be stored.

    A model in memory is saved with the tokenizer of `ref` to a temporary folder. If the model has no hooks or code of
    its own, and the folder computes the same numbers on some rows, the folder stands for the model. Otherwise, whoever
    opens the folder inside the block gets the model itself, and results must not be stored, since nothing identifies
    them.

    Args:
        rows: Some rows of the classifier's task, or None for a bare encoder.

    Raises:
        UserError: If the object is not a model, cannot be saved, or cannot be measured as it is.
    """
    if checkpoint is None or isinstance(checkpoint, str | os.PathLike):
        yield expanded(checkpoint) if checkpoint else None, True
        return
    check_object(checkpoint)
    tokenizer = open_tokenizer(ref)
    check_embeddings("the model in memory", checkpoint.config, ref, tokenizer)
    with TemporaryDirectory() as place:
        folder = Path(place) / "in-memory"
        checkpoint.save_pretrained(folder)
        if not type(checkpoint).__module__.startswith("transformers."):
            _leave_out_class(folder / "config.json")
        tokenizer.save_pretrained(folder)
        try:
            reopened = _outputs(folder, ref, rows)
            with lent(checkpoint, folder):
                own = _outputs(folder, ref, rows)
        except UserError as error:
            raise type(error)(str(error).replace(str(folder), "the model in memory")) from error
        if not has_own_code(checkpoint) and len(own) == len(reopened) and all(map(torch.equal, own, reopened)):
            yield folder, True
            return
        if rows is not None and not rows.task.regression:
            names = [*open_checkpoint_config(folder, rows.task).id2label.values()]
            if names != [*rows.task.labels]:  # reordering the weights would not reorder what a hook does
                raise UserError(
                    "the model in memory differs from its saved form, so its classes must have the order "
                    f"of {rows.task.title}, {', '.join(rows.task.labels)}: it has {', '.join(names)}"
                )
        with lent(checkpoint, folder):
            yield folder, False


def _leave_out_class(file: Path) -> None:
    """Remove the name of a model's own class from its configuration, since the object that has it is at hand."""
    config = {name: value for name, value in read_json(file).items() if name not in ("architectures", "auto_map")}
    file.write_text(json.dumps(config), encoding="utf-8")


def _outputs(folder: Path, base: ModelRef, rows: Split | None) -> list[torch.Tensor]:
    """Return everything that the model in a folder computes for some rows: logits, hidden states and maps."""
    opened = open_encoder(ModelRef.in_folder(folder)) if rows is None else open_checkpoint(folder, rows.task, base)
    first, second = (PROBES, None) if rows is None else (rows.sentence1, rows.sentence2)
    encoded = tokenize(opened.tokenizer, first, second, opened.fit(COMPARED_TOKENS))[0]
    shown: list[torch.Tensor] = []
    with explain_failure(opened.model), torch.inference_mode():
        for row in encoded.spread(CHECKED_EXAMPLES):
            inputs = collate(encoded, [row]).inputs()
            outputs = opened.model(**inputs, output_hidden_states=True, output_attentions=True)
            for value in outputs.to_tuple():
                shown += [each for each in (value if isinstance(value, tuple) else (value,)) if torch.is_tensor(each)]
    return shown
