"""Functions that substitute a model object for the model in a folder.

While an object is lent to a folder, code that opens the folder gets the object, with copies of its weights. When the
loan ends, the object is restored to its former state.
"""

from collections.abc import Iterator, MutableMapping, MutableSet
from contextlib import contextmanager
from copy import copy
from pathlib import Path
from typing import Any

import torch

from bertsecrets.errors import UserError, first_line

_lent: dict[str, "_Loan"] = {}  # by path of the folder


def borrowed(folder: str, *, bare: bool) -> Any | None:
    """Return the model object that is lent to this folder, or None if no object is lent to it.

    Callers may change the object, because its former state is restored later. The object uses eager attention and has
    only its original hooks. Its weights are float32 copies on the CPU. If `bare` is True, only its encoder is returned.
    """
    loan = _lent.get(folder)
    return None if loan is None else loan.renew(bare)


def is_lent(folder: str) -> bool:
    """Return whether code that opens this folder gets a model object instead."""
    return folder in _lent


@contextmanager
def lent(model: Any, folder: Path) -> Iterator[None]:
    """Make `borrowed` return a model object for a folder inside the `with` block. Restore the object at the end."""
    loan = _lent[str(folder)] = _Loan(model)
    try:
        yield
    finally:
        del _lent[str(folder)]
        loan.restore()


class _Loan:
    """The recorded state of a model object: its modules (with hooks and flags), configurations and weights."""

    def __init__(self, model: Any):
        self.model = model
        configs = {id(module.config): module.config for module in model.modules() if hasattr(module, "config")}
        self.attributes = [(vars(each), _contents(vars(each))) for each in [*model.modules(), *configs.values()]]
        self.weights = [(each, each.data, each.requires_grad, each.grad) for each in model.parameters()]

    def restore(self) -> None:
        """Restore every module, configuration and weight to its recorded state."""
        for namespace, contents in self.attributes:
            namespace.clear()
            for name, (value, inside) in contents.items():
                namespace[name] = value
                if inside is not None:  # refilled in place, since hook handles refer to this dict or set
                    value.clear()
                    value.update(inside)
        for weight, data, trained, gradient in self.weights:
            weight.data, weight.grad = data, gradient
            weight.requires_grad_(trained)

    def renew(self, bare: bool) -> Any:
        """Return the model in its recorded state, with copies of its tensors. Callers may change the copies."""
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
        except Exception as error:  # any architecture's code may raise any exception
            raise UserError(f"{type(self.model).__name__} cannot use eager attention: {first_line(error)}") from error
        return self.model.base_model if bare else self.model


def _contents(namespace: dict[str, Any]) -> dict[str, tuple[Any, Any]]:
    """Return, for each name, the value and a copy of it. The copy is None unless the value is a dict or a set."""
    return {
        name: (value, copy(value) if isinstance(value, MutableMapping | MutableSet) else None)
        for name, value in namespace.items()
    }
