"""Models given as objects in memory, which may have hooks, replaced modules or a changed `forward`.

Such an object is saved, reopened and compared with itself. If both compute the same numbers, and the object has no
hooks or code of its own, the folder stands for the object. Otherwise the object itself is measured: inside `lent`,
whoever opens the folder gets the object, with copies of its weights. Afterwards, the object is as it was.
"""

from collections.abc import Iterator, MutableMapping, MutableSet
from contextlib import contextmanager
from copy import copy
from pathlib import Path
from typing import Any

import torch

from bertsecrets.errors import UserError, first_line
from bertsecrets.models.families import own_family

REPLACED_WEIGHTS = ("weight_orig", "weight_g", "weight_v")  # left by torch.nn.utils.prune and weight_norm
TRUSTED_PACKAGES = ("torch", "transformers")  # transformers adds hooks that only record outputs

_lent: dict[str, "_Loan"] = {}  # by folder


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


def borrowed(folder: str, *, bare: bool) -> Any | None:
    """Return the object that a folder stands for, ready to be changed; None if the folder stands for itself.

    The object has fresh float32 copies of its weights on the CPU, eager attention, and no hooks but its own.

    Args:
        bare: Whether to return its encoder without the classifier.
    """
    loan = _lent.get(folder)
    return None if loan is None else loan.renew(bare)


@contextmanager
def lent(model: Any, folder: Path) -> Iterator[None]:
    """Let a folder stand for an object inside the block. Afterwards, the object is restored."""
    loan = _lent[str(folder)] = _Loan(model)
    try:
        yield
    finally:
        del _lent[str(folder)]
        loan.restore()


class _Loan:
    """The state of a model's modules and configurations, including hooks, flags and the tensors of its weights."""

    def __init__(self, model: Any):
        self.model = model
        configs = {id(module.config): module.config for module in model.modules() if hasattr(module, "config")}
        self.attributes = [(vars(each), _contents(vars(each))) for each in [*model.modules(), *configs.values()]]
        self.weights = [(each, each.data, each.requires_grad, each.grad) for each in model.parameters()]

    def restore(self) -> None:
        """Give every module, configuration and weight the state that it had."""
        for namespace, contents in self.attributes:
            namespace.clear()
            for name, (value, inside) in contents.items():
                namespace[name] = value
                if inside is not None:  # refilled in place, since handles of hooks refer to the object
                    value.clear()
                    value.update(inside)
        for weight, data, trained, gradient in self.weights:
            weight.data, weight.grad = data, gradient
            weight.requires_grad_(trained)

    def renew(self, bare: bool) -> Any:
        """Restore the model, then replace its tensors by copies, so that whatever is done to them can be undone."""
        with torch.inference_mode(False):
            self.restore()
            for weight, data, *_ in self.weights:
                weight.data = data.detach().to("cpu", torch.float32, copy=True)
            for module in self.model.modules():
                module._compiled_call_impl = None
                for name, buffer in module._buffers.items():
                    if buffer is not None:
                        kind = torch.float32 if buffer.is_floating_point() else buffer.dtype
                        module._buffers[name] = buffer.detach().to("cpu", kind, copy=True)
        try:
            self.model.set_attn_implementation("eager")
        except Exception as error:  # any architecture's code may raise anything
            raise UserError(f"{type(self.model).__name__} has no eager attention: {first_line(error)}") from error
        return self.model.base_model if bare else self.model


def _contents(namespace: dict[str, Any]) -> dict[str, tuple[Any, Any]]:
    """Return each value with a copy of what it contains, if it is a dict or a set."""
    return {
        name: (value, copy(value) if isinstance(value, MutableMapping | MutableSet) else None)
        for name, value in namespace.items()
    }
