"""Descriptions of model objects: digests of everything that determines what a model computes.

If a model and the model reopened from its saved form have equal descriptions, they compute the same numbers. A model
has changed if its description has changed. Descriptions are only comparable within one process.
"""

import functools
import hashlib
import sys
import types
from collections.abc import Iterator, Mapping, Set
from enum import Enum
from typing import Any

import torch
from torch import nn

Place = tuple[str, str]  # a module, and one of its attributes
Description = dict[Place, str]

TRUSTED_PACKAGES = frozenset({"torch", "transformers"}) | sys.stdlib_module_names
RECORDER = "transformers.utils.output_capturing"  # installs hooks that only record outputs
# Attributes that do not affect the computed numbers, that this suite sets itself, or that are described separately.
IGNORED = {
    *("_parameters", "_buffers", "_modules", "training", "_compiled_call_impl"),  # of modules
    *("_is_hf_initialized", "_output_capturing_hooks_installed", "_weight_conversions", "name_or_path"),  # of models
    *("warnings_issued", "generation_config", "hf_device_map"),
    *(
        "_attn_implementation_internal",
        "_experts_implementation_internal",
        "_name_or_path",
        "_commit_hash",
        "transformers_version",
    ),  # of configurations
    *("model_type", "architectures", "dtype", "return_dict", "_output_attentions", "output_hidden_states"),
    "problem_type",
}
DEPTH = 10  # maximum depth of nested objects
PLAIN = (type(None), bool, int, float, complex, str, bytes, Enum, torch.dtype, torch.device)


def describe(model: nn.Module, *, trains: bool) -> Description:
    """Return a digest of each attribute, parameter, buffer and hook of each module of a model.

    Args:
        trains: Whether to include what only matters in training: shared weights, gradient flags, and dropout.
    """
    reader = _Reader(model)
    return {
        (name, attribute): digest
        for name, module in model.named_modules(remove_duplicate=False)
        for attribute, digest in reader.attributes(module, trains)
    }


def difference(one: Description, other: Description) -> str | None:
    """Return a text that names the first difference between two descriptions, or None if they are equal.

    >>> difference({("pooler", "class"): "1"}, {("pooler", "class"): "2"})
    'class of pooler'
    """
    for module, attribute in [*one, *other]:
        if one.get((module, attribute)) != other.get((module, attribute)):
            return f"{attribute} of {module or 'the model'}"
    return None


def attention_function(config: Any) -> Any:
    """Return the attention function that a configuration selects, or None if it belongs to transformers."""
    from transformers.modeling_utils import ALL_ATTENTION_FUNCTIONS

    for name in (getattr(config, "_attn_implementation", None), "eager"):
        function = ALL_ATTENTION_FUNCTIONS.get(name)
        if function is not None and not _home(function).startswith("transformers."):
            return function
    return None


class _Reader:
    """Digests of the values in a model. A module of the model is represented by its name."""

    def __init__(self, model: nn.Module):
        self.names = {id(module): name for name, module in model.named_modules()}
        self.first = {id(weight): name for name, weight in model.named_parameters()}
        self.known: dict[int, tuple[str, Any]] = {}  # digests by id; the objects are kept, so that ids stay unique
        self.depth = 0

    def attributes(self, module: nn.Module, trains: bool) -> Iterator[tuple[str, str]]:
        yield "class", self.digest(type(module))
        for name, value in _own(module).items():
            if name == "config" and hasattr(value, "to_dict"):
                yield name, self.digest([type(value), attention_function(value)])
                for setting, chosen in _own(value).items():
                    yield f"config.{setting}", self.digest(chosen)
            elif name == "p" and isinstance(module, nn.modules.dropout._DropoutNd) and not trains:
                continue
            elif name.startswith("_") and "_hooks" in name and isinstance(value, Mapping):  # keys are running numbers
                yield name, self.digest([hook for hook in value.values() if _home(hook) != RECORDER])
            else:
                yield name, self.digest(value)
        for name, tensor in [*module._parameters.items(), *module._buffers.items()]:
            yield name, self.digest(tensor)
            if trains and tensor is not None and name in module._parameters:
                hooks = [tensor._backward_hooks, getattr(tensor, "_post_accumulate_grad_hooks", None)]
                trained = [tensor.requires_grad, self.first[id(tensor)], hooks]
                yield f"training of {name}", self.digest(trained)

    def digest(self, value: Any) -> str:
        if isinstance(value, PLAIN):
            return repr(value)
        if id(value) not in self.known:
            self.known[id(value)] = "cycle", value
            self.depth += 1
            parts = [*map(str, self.parts(value))] if self.depth < DEPTH else []
            self.depth -= 1
            kind = list if isinstance(value, tuple) else type(value)  # JSON has no tuples
            text = "\n".join([kind.__name__, *parts])
            self.known[id(value)] = hashlib.sha256(text.encode()).hexdigest(), value
        return self.known[id(value)][0]

    def parts(self, value: Any) -> Iterator[Any]:
        """Yield what distinguishes a value from other values of its type."""
        match value:
            case torch.Tensor():
                data = value.detach().cpu().contiguous()
                data = data.float() if data.is_floating_point() else data
                yield from (data.dtype, data.shape)
                yield hashlib.sha256(data.numpy().data).hexdigest()
            case nn.Module() if id(value) in self.names:
                yield self.names[id(value)]
            case nn.Module():
                yield from describe(value, trains=True).items()
            case type():
                yield from (value.__module__, value.__qualname__, id(value))
                if not _is_trusted(value.__module__):
                    inside = [each for each in vars(value).values() if isinstance(each, (types.FunctionType, *PLAIN))]
                    yield from map(self.digest, [*value.__bases__, *inside])
            case types.FunctionType():
                yield from (_home(value), value.__qualname__, self.digest(value.__code__))
                cells = [cell.cell_contents for cell in value.__closure__ or () if cell != types.CellType()]
                yield from map(self.digest, (value.__defaults__, value.__kwdefaults__, cells))
                if not _is_trusted(_home(value)):
                    read = _names(value.__code__)
                    yield self.digest({name: value.__globals__[name] for name in read if name in value.__globals__})
            case types.CodeType():
                yield from (value.co_code, value.co_names, value.co_varnames)
                yield from map(self.digest, value.co_consts)
            case types.MethodType():
                yield from (self.digest(value.__func__), self.digest(value.__self__))
            case functools.partial():
                yield from map(self.digest, (value.func, value.args, value.keywords))
            case types.ModuleType():
                yield value.__name__
            case Mapping():
                yield from sorted((self.digest(key), self.digest(inner)) for key, inner in value.items())
            case Set():
                yield from sorted(map(self.digest, value))
            case list() | tuple():
                yield from map(self.digest, value)
            case _:
                yield self.digest(type(value))
                if hasattr(value, "__dict__") and not type(value).__module__.startswith("torch._"):
                    yield self.digest(_own(value))
                elif " at 0x" in (shown := repr(value)):
                    yield id(value)
                else:
                    yield shown


def _own(value: Any) -> dict[str, Any]:
    """Return an object's attributes, except those in `IGNORED` and those with the value None or False.

    When an object is loaded, it may get additional attributes with these two values.
    """
    return {
        name: inner
        for name, inner in vars(value).items()
        if name not in IGNORED and inner is not None and inner is not False
    }


def _home(function: Any) -> str:
    """Return the name of the Python module whose code a function runs. Decorators may change `__module__`."""
    return str(getattr(function, "__globals__", {}).get("__name__"))


def _is_trusted(module: str) -> bool:
    return module.partition(".")[0] in TRUSTED_PACKAGES


def _names(code: types.CodeType) -> set[str]:
    inner = (constant for constant in code.co_consts if isinstance(constant, types.CodeType))
    return {*code.co_names}.union(*map(_names, inner))
