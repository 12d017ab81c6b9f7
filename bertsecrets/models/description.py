"""Descriptions of model objects: digests of everything that determines what a model computes.

If a model and the model reopened from its saved form have equal descriptions, they compute the same numbers. A model
has changed if its description has changed. Descriptions are only comparable within one process.
"""

import functools
import hashlib
import re
import types
from collections.abc import Iterator, Mapping, Set
from contextlib import suppress
from typing import Any

import torch
from torch import nn

Place = tuple[str, str]  # a module, and one of its attributes
Description = dict[Place, str]

# Functions of transformers that register hooks that only record outputs or let gradients pass.
HARMLESS_HOOKS = re.compile(r"transformers\.(utils\.output_capturing|modeling_utils:.*\.make_inputs_require_grads$)")
# Attributes that do not decide numbers, that this suite sets itself, or that are described separately.
IGNORED_OF_MODULES = {
    *("_parameters", "_buffers", "_modules", "training", "_compiled_call_impl"),
    *("_is_hf_initialized", "_output_capturing_hooks_installed", "_weight_conversions", "name_or_path"),
    *("warnings_issued", "generation_config", "hf_device_map"),
    *("gradient_checkpointing", "_gradient_checkpointing_func", "_require_grads_hook", "_require_grads_hooks"),
}
IGNORED_OF_CONFIGS = {
    *("_attn_implementation_internal", "_experts_implementation_internal", "_name_or_path", "_commit_hash"),
    *("transformers_version", "model_type", "architectures", "dtype", "return_dict", "_output_attentions"),
    *("output_hidden_states", "problem_type"),
}
PLAIN = (type(None), bool, int, float, complex, str, bytes, torch.dtype, torch.device)


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
    """Digests of the values in a model. A module of the model is represented by its name.

    What cannot be described completely, such as a function, is represented by its identity. It therefore differs from
    everything in another model, unless both models share it, like the classes and functions of a library.
    """

    def __init__(self, model: nn.Module):
        self.names = {id(module): name for name, module in model.named_modules()}
        self.first = {id(weight): name for name, weight in model.named_parameters()}
        self.known: dict[int, tuple[str, Any]] = {}  # digests by id; the objects are kept, so that ids stay unique

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
                yield name, self.digest([hook for hook in value.values() if not HARMLESS_HOOKS.match(_home(hook))])
            elif name == "vocab_size" and value == getattr(getattr(module, "config", None), name, None):
                continue  # set when embeddings are resized
            else:
                yield name, self.digest(value)
        for name, tensor in [*module._parameters.items(), *module._buffers.items()]:
            yield name, self.digest(tensor)
            if trains and tensor is not None and name in module._parameters:
                hooks = [tensor._backward_hooks, getattr(tensor, "_post_accumulate_grad_hooks", None)]
                trained = [tensor.requires_grad, self.first[id(tensor)], hooks]
                yield f"training of {name}", self.digest(trained)

    def digest(self, value: Any) -> str:
        if type(value) in PLAIN:
            return repr(value)
        if id(value) not in self.known:
            self.known[id(value)] = f"object {id(value)}", value
            with suppress(Exception):  # of unusual tensors, deep nesting, and the user's own classes
                kind = list if type(value) is tuple else type(value)  # JSON has no tuples
                text = "\n".join([str(id(kind)), *map(str, self.parts(value))])
                self.known[id(value)] = hashlib.sha256(text.encode()).hexdigest(), value
        return self.known[id(value)][0]

    def parts(self, value: Any) -> Iterator[Any]:
        """Yield what distinguishes a value from others of its type, or raise an exception if this is not known."""
        match value:
            case torch.Tensor():
                data = value.detach().cpu().contiguous()
                data = data.float() if data.is_floating_point() else data
                yield from (data.dtype, data.shape, hashlib.sha256(data.numpy().data).hexdigest())
            case nn.Module():
                yield self.names[id(value)]
            case types.MethodType():
                yield from (self.digest(value.__func__), self.digest(value.__self__))
            case functools.partial():
                yield from map(self.digest, (value.func, value.args, value.keywords))
            case Mapping():
                yield from sorted((self.digest(key), self.digest(inner)) for key, inner in value.items())
            case Set():
                yield from sorted(map(self.digest, value))
            case list() | tuple():
                yield from map(self.digest, value)
            case _ if hasattr(value, "to_dict") and not isinstance(value, type):  # a configuration in another one
                yield self.digest(_own(value))
            case _:
                raise TypeError(type(value))


def _own(value: Any) -> dict[str, Any]:
    """Return the attributes of a module or a configuration.

    Attributes that are None or False by default are left out, because only some ways of loading set them.
    """
    ignored = IGNORED_OF_MODULES if isinstance(value, nn.Module) else IGNORED_OF_CONFIGS
    return {
        name: inner
        for name, inner in vars(value).items()
        if name not in ignored and not ((inner is None or inner is False) and not getattr(type(value), name, None))
    }


def _home(function: Any) -> str:
    """Return where the code of a function is, as `module:name`. Decorators may change `__module__`."""
    return f"{getattr(function, '__globals__', {}).get('__name__')}:{getattr(function, '__qualname__', '')}"
