"""Checks that models run the code of the installed packages, without changes by the running process.

Cache keys record the versions of these packages. They cover neither code that was patched in the process nor global
hooks and active modes of torch.
"""

import functools
import sys
import types
from collections.abc import Collection, Iterator, Mapping
from importlib import metadata
from typing import Any

import torch
from packaging.requirements import Requirement
from torch.nn.modules import module as modules
from torch.optim import optimizer
from torch.overrides import _get_current_function_mode_stack
from torch.utils._device import DeviceContext
from torch.utils._python_dispatch import _get_current_dispatch_mode_stack

from bertsecrets.devices import DEVICE_TYPES
from bertsecrets.errors import UserError
from bertsecrets.models.families import own_family
from bertsecrets.models.loans import is_lent
from bertsecrets.models.locations import ModelRef
from bertsecrets.store.code import PACKAGE_NAME

MODEL_LIBRARIES = ("torch", "transformers")
# Modules whose code runs in every measurement or training run, besides the modules of the measured architecture.
ALWAYS_RUN = (
    *("torch", "torch.nn", "torch.nn.functional", "torch.optim", "transformers.activations"),
    *("transformers.modeling_utils", "transformers.tokenization_utils_tokenizers", "transformers.trainer_pt_utils"),
)
ADVICE = "undo this, for example by starting Python again"
_verified: dict[tuple[str, str], dict[str, Any]] = {}  # contents of modules and classes that were found unpatched


def check_code(ref: ModelRef, model: Any = None) -> None:
    """Check that nothing in this process changes what a model computes. If `model` is given, check its modules, too.

    If an object in memory is itself measured (see `loans.lent`), its modules may contain any code.

    Raises:
        UserError: If a global hook or a mode of torch is active, or if code of the model or of a library is patched.
    """
    _refuse_hooks()
    if is_lent(ref.path):
        return
    name = ref.model_type()
    family = own_family(name)
    own = family.modules if family else frozenset()
    used = {kind for module in (model.modules() if model is not None else ()) for kind in type(module).__mro__}
    for kind in used:
        if (origin := _foreign(kind, own)) is not None:
            raise _patched(f"{type(model).__name__} contains a {kind.__qualname__}", origin)
    for cls in (family.config, family.encoder, family.classifier) if family else ():
        used |= {*cls.__mro__}
    names = {*ALWAYS_RUN, *own, *_architecture(name), *(kind.__module__ for kind in used)}
    homes = {getattr(value, "__module__", None) for name in names for value in _functions(name)}
    for home in sorted({*names, *filter(None, homes)} & sys.modules.keys()):
        if home in own or home.partition(".")[0] in MODEL_LIBRARIES:
            _check_module(home, own if home in own else ())
    _check_attention(model, own)


def _refuse_hooks() -> None:
    """Reject torch's global hooks, modes and autocasting, which change what all models compute."""
    for library in (modules, optimizer):
        for name, hooks in vars(library).items():
            if name.startswith("_global_") and name.endswith("_hooks") and hooks:
                raise UserError(
                    f"torch has global hooks ({library.__name__}.{name}), which change all models: {ADVICE}"
                )
    for mode in (*_get_current_function_mode_stack(), *_get_current_dispatch_mode_stack()):
        if not isinstance(mode, DeviceContext):  # set by torch.set_default_device
            raise UserError(f"the mode {type(mode).__name__} of torch is active, which may change all models: {ADVICE}")
    if any(torch.is_autocast_enabled(device) for device in DEVICE_TYPES):
        raise UserError("torch.autocast is active, which changes all models: leave its `with` block")


def _architecture(model_type: str | None) -> Iterator[str]:
    """Yield the names of the loaded modules of an architecture or, if it is unknown, of all architectures."""
    from transformers.models.auto.configuration_auto import model_type_to_module_name

    folder = "transformers.models." + (f"{model_type_to_module_name(model_type)}." if model_type else "")
    yield from (name for name in sys.modules if name.startswith(folder))


def _functions(name: str) -> list[Any]:
    """Return the functions and classes in a module of a library. A module that is not loaded counts as empty."""
    if name.partition(".")[0] not in MODEL_LIBRARIES:
        return []
    return [value for value in _contents(name).values() if issubclass(type(value), types.FunctionType | type)]


def _contents(name: str) -> dict[str, Any]:
    return dict(vars(sys.modules[name])) if name in sys.modules else {}


def _check_module(name: str, own: Collection[str]) -> None:
    """Check that a module and the classes that it defines contain no code from outside `own` and the libraries."""
    contents = _contents(name)
    _check_namespace(name, "", contents, own)
    for value in contents.values():
        if issubclass(type(value), type) and value.__module__ == name:
            _check_namespace(name, value.__qualname__, vars(value), own)


def _check_namespace(module: str, cls: str, contents: Mapping[str, Any], own: Collection[str]) -> None:
    known = _verified.get((module, cls))
    if known is not None and _unchanged(contents, known):
        return
    for name, value in [*contents.items()]:
        if (origin := _foreign(value, own)) is not None:
            raise _patched(f"{'.'.join(filter(None, (module, cls, name)))} is patched", origin)
    if not own:
        _verified[module, cls] = dict(contents)


def _unchanged(contents: Mapping[str, Any], known: dict[str, Any]) -> bool:
    try:
        return bool(contents == known)  # compares by identity first, which takes microseconds
    except Exception:  # values such as tensors cannot be compared
        return False


def _check_attention(model: Any, own: Collection[str]) -> None:
    """Check transformers' attention functions, which are looked up by name, and the functions that make the masks."""
    from transformers.masking_utils import ALL_MASK_ATTENTION_FUNCTIONS
    from transformers.modeling_utils import ALL_ATTENTION_FUNCTIONS

    for table in (ALL_ATTENTION_FUNCTIONS, ALL_MASK_ATTENTION_FUNCTIONS):
        for name in {"eager", "sdpa", getattr(getattr(model, "config", None), "_attn_implementation", "eager")}:
            if (origin := _foreign(table.get(name), own)) is not None:
                raise _patched(f"the attention function {name!r} of transformers is patched", origin)


def _foreign(value: Any, own: Collection[str]) -> str | None:
    """Return the first module that provides code of `value` and is neither trusted nor in `own`, or None."""
    return next((origin for origin in _origins(value) if origin not in own and not _is_trusted(origin)), None)


@functools.cache
def _is_trusted(module: str) -> bool:
    package = module.partition(".")[0]  # functions of a named tuple have their own global namespace
    known = {PACKAGE_NAME, *MODEL_LIBRARIES, *sys.stdlib_module_names}
    if package in known or package.startswith("namedtuple_") or package in _requirements():
        return True
    distributions = metadata.packages_distributions().get(package, [])  # slow, and needed for packages such as PIL
    return any(name.replace("-", "_").lower() in _requirements() for name in distributions)


@functools.cache
def _requirements() -> set[str]:
    """Return the names of the packages that torch and transformers may import. No other packages are trusted."""
    requirements = (Requirement(text) for library in MODEL_LIBRARIES for text in metadata.requires(library) or ())
    return {each.name.replace("-", "_").lower() for each in requirements}


def _origins(value: Any) -> Iterator[str]:
    """Yield the name of each module whose code runs when a value is used. Functions inside decorators are included."""
    waiting, seen = [value], set()
    while waiting:
        part = waiting.pop()
        kind = type(part)  # isinstance would trigger the warnings of deprecated objects
        if id(part) in seen:
            continue
        seen.add(id(part))
        if issubclass(kind, types.FunctionType):
            yield str(part.__globals__.get("__name__"))
            waiting += [each for each in _closure(part) if issubclass(type(each), types.FunctionType)]
        elif issubclass(kind, classmethod | staticmethod | types.MethodType):
            waiting.append(part.__func__)
        elif issubclass(kind, property):
            waiting += [part.fget, part.fset]
        elif issubclass(kind, functools.partial | functools.partialmethod):
            waiting.append(part.func)
        elif (home := str((part if issubclass(kind, type) else kind).__module__)) in sys.modules:
            yield home  # any other type is from an extension module, which may have any name


def _closure(function: types.FunctionType) -> Iterator[Any]:
    for cell in function.__closure__ or ():
        try:
            yield cell.cell_contents
        except ValueError:  # an empty cell
            continue


def _patched(what: str, origin: str) -> UserError:
    return UserError(
        f"{what} (code from {origin}), so the model would not be measured as its installed package defines it: {ADVICE}"
    )
