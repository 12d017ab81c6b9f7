"""Checks that models run the code of the installed packages, without changes by the running process.

Cache keys record the versions of these packages. They cover neither code that was patched in the process nor global
hooks and active modes of torch.
"""

import functools
import sys
import types
from collections.abc import Collection, Iterator, Mapping
from copy import copy
from importlib import metadata
from pathlib import Path
from typing import Any

import torch
from torch.nn.modules import module as modules
from torch.optim import optimizer
from torch.overrides import _get_current_function_mode_stack
from torch.utils._device import DeviceContext
from torch.utils._python_dispatch import _get_current_dispatch_mode_stack

from bertsecrets.devices import DEVICE_TYPES
from bertsecrets.errors import UserError
from bertsecrets.models.families import own_family
from bertsecrets.models.library_source import (
    CONTAINER_TYPES,
    MODEL_LIBRARIES,
    altered,
    declared,
    doubt,
    doubt_in_a_new_process,
    home_of,
    is_function,
    label_of,
    parts_of,
)
from bertsecrets.models.loans import is_lent
from bertsecrets.models.locations import ModelRef
from bertsecrets.store.code import MAIN_MODULES
from bertsecrets.store.packages import PACKAGE_NAME, requirements

# Modules whose code runs in every measurement or training run, besides the modules of the measured architecture.
ALWAYS_RUN = (
    *("torch", "torch.autograd", "torch.nn", "torch.nn.functional", "torch.nn.utils.clip_grad", "torch.optim"),
    *("torch.utils._foreach_utils", "safetensors.torch", "tokenizers", "tokenizers.models", "tokenizers.normalizers"),
    *("tokenizers.pre_tokenizers", "tokenizers.processors", "transformers.activations", "transformers.initialization"),
    *("transformers.loss.loss_utils", "transformers.modeling_rope_utils", "transformers.modeling_utils"),
    *("transformers.models.auto.auto_factory", "transformers.models.auto.configuration_auto"),
    *("transformers.models.auto.tokenization_auto", "transformers.tokenization_utils_tokenizers"),
    "transformers.trainer_pt_utils",
)
ADVICE = "undo this, for example by starting Python again"
# Tables in which transformers looks up classes and functions by name: where they are, and the dict that defines them.
TABLES = {
    "ACT2FN": ("transformers.activations", "ACT2CLS"),
    "LOSS_MAPPING": ("transformers.loss.loss_utils", "LOSS_MAPPING"),
    "MODEL_MAPPING_NAMES": ("transformers.models.auto.modeling_auto", "MODEL_MAPPING_NAMES"),
    "MODEL_FOR_SEQUENCE_CLASSIFICATION_MAPPING_NAMES": (
        *("transformers.models.auto.modeling_auto", "MODEL_FOR_SEQUENCE_CLASSIFICATION_MAPPING_NAMES"),
    ),
    "ROPE_INIT_FUNCTIONS": ("transformers.modeling_rope_utils", "ROPE_INIT_FUNCTIONS"),
    "SLOW_TO_FAST_CONVERTERS": ("transformers.convert_slow_tokenizer", "SLOW_TO_FAST_CONVERTERS"),
    "TORCH_INIT_FUNCTIONS": ("transformers.initialization", "TORCH_INIT_FUNCTIONS"),
}
COMPILED_PREFIXES = ("__compiled_fn_", "__resume_at_")  # functions that torch.compile adds to modules for its own use
# Contents of modules and classes that were found unpatched, and the code of their functions.
_verified: dict[tuple[str, str], tuple[dict[str, Any], list[Any]]] = {}


def check_code(ref: ModelRef, model: Any = None, tokenizer: Any = None) -> None:
    """Check that nothing in this process changes what a model computes, and check an opened model and its tokenizer.

    If an object in memory is itself measured (see `loans.lent`), its modules may contain any code.

    Raises:
        UserError: If a global hook or a mode of torch is active, or if code of the model or of a library is patched.
    """
    refuse_hooks()
    if not is_lent(ref.path):
        check_libraries(ref.model_type(), model, tokenizer)


def check_libraries(name: str | None, model: Any = None, tokenizer: Any = None) -> None:
    """Check that the libraries, the modules of a model and its tokenizer run the code in their files.

    Args:
        name: The model type. If it is None, all loaded architectures are checked.

    Raises:
        UserError: If code is patched.
    """
    family = own_family(name)
    own = family.modules if family else frozenset()
    allowed = own | (family.imported if family else frozenset())
    modules_used = {kind for module in (model.modules() if model is not None else ()) for kind in type(module).__mro__}
    used = modules_used.union(type(tokenizer).__mro__)
    for kind in used:
        if (origin := _foreign(kind, allowed) or _misplaced(kind)) is not None:
            what = f"{type(model).__name__} contains" if kind in modules_used else "the tokenizer is"
            raise _patched(f"{what} a {kind.__qualname__}", origin)
    for cls in (family.config, family.encoder, family.classifier) if family else ():
        used |= {*cls.__mro__}
    names = {*ALWAYS_RUN, *own, *_architecture(name), *(kind.__module__ for kind in used)}
    values = [value for name in names for value in _functions(name)]
    homes = {getattr(value, "__module__", None) for value in values}
    for home in sorted({*names, *filter(None, homes)} & sys.modules.keys()):
        if home in own - {*MAIN_MODULES} or home.partition(".")[0] in MODEL_LIBRARIES:
            _check_module(home, allowed if home in own else ())
    _check_attention(model, own)
    _check_tables(own)
    _check_registered({value.__name__ for value in values} | ({name} if name and not family else set()))
    _check_kernels()


def refuse_hooks() -> None:
    """Reject torch's global hooks, modes, autocasting and unusual default devices, which change all models."""
    for library in (modules, optimizer):
        for name, hooks in vars(library).items():
            if name.startswith("_global_") and name.endswith("_hooks") and hooks:
                raise UserError(
                    f"torch has global hooks ({library.__name__}.{name}), which change all models: {ADVICE}"
                )
    for mode in (*_get_current_function_mode_stack(), *_get_current_dispatch_mode_stack()):
        if not isinstance(mode, DeviceContext):
            raise UserError(f"the mode {type(mode).__name__} of torch is active, which may change all models: {ADVICE}")
        if mode.device.type not in DEVICE_TYPES:
            raise UserError(f"the default device of torch is {mode.device}: call torch.set_default_device(None)")
    if torch._C._autograd._top_saved_tensors_default_hooks(True) is not None:
        raise UserError("saved_tensors_hooks of torch are active, which may change gradients: leave the `with` block")
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
    if known is not None and _unchanged(contents, *known):
        return
    for name, value in [*contents.items()]:
        if not cls and name.startswith(COMPILED_PREFIXES):
            continue
        found = doubt(module, cls, name, value)
        if found is not None and found == doubt_in_a_new_process(module, cls, name):
            found = None  # the library itself puts it there
        found = _untrusted(value, own) or found
        if name in TABLES and value is not _contents(TABLES[name][0]).get(name):
            found = "another table"
        if found is not None:
            raise _patched(f"{'.'.join(filter(None, (module, cls, name)))} is patched", found)
    if not own:
        functions = [part for value in contents.values() for part in parts_of(value) if is_function(part)]
        _verified[module, cls] = _copied(contents), [(function, _state(function)) for function in functions]


def _copied(contents: Mapping[str, Any]) -> dict[str, Any]:
    return {name: copy(value) if type(value) in CONTAINER_TYPES else value for name, value in contents.items()}


def _state(function: Any) -> tuple[Any, ...]:
    return function.__code__, function.__defaults__, copy(function.__kwdefaults__)


def _unchanged(contents: Mapping[str, Any], known: dict[str, Any], functions: list[Any]) -> bool:
    try:  # compares by identity first, which takes microseconds
        return bool(contents == known) and all(_state(function) == state for function, state in functions)
    except Exception:  # values such as tensors cannot be compared
        return False


def _check_attention(model: Any, own: Collection[str]) -> None:
    """Check transformers' attention functions, which are looked up by name, and the functions that make the masks."""
    from transformers.masking_utils import ALL_MASK_ATTENTION_FUNCTIONS
    from transformers.modeling_utils import ALL_ATTENTION_FUNCTIONS

    for table in (ALL_ATTENTION_FUNCTIONS, ALL_MASK_ATTENTION_FUNCTIONS):
        for name in {"eager", "sdpa", getattr(getattr(model, "config", None), "_attn_implementation", "eager")}:
            function, label = table.get(name), label_of(table.get(name))
            other = f"code from {label}" if name in ("eager", "sdpa") and label and name not in label else None
            if (origin := _foreign(function, own) or other) is not None:
                raise _patched(f"the attention function {name!r} of transformers is patched", origin)


def _check_tables(own: Collection[str]) -> None:
    """Check the tables in which transformers looks up classes and functions by name (see `TABLES`)."""
    for name, (module, definition) in TABLES.items():
        namespace = _contents(module)
        table = dict(namespace.get(name, {}).items())
        written = declared(module, definition) if table else {}
        for key, value in (dict.fromkeys(written) | table).items() if written else ():
            cls, *options = value if isinstance(value, tuple) else (value,)
            if key in written:
                fits = value == eval(written[key], namespace)  # nosec B307  # an expression from the library's file
            else:  # a user's activation is found in the models that contain it
                of_user = _foreign(cls, ()) is not None
                fits = isinstance(cls, str) or (of_user and (name == "ACT2FN" or _foreign(cls, own) is None))
            if not fits:
                label = getattr(cls, "__name__", cls)
                place = f"{getattr(cls, '__module__', 'elsewhere')}.{f'({label}, {options[0]})' if options else label}"
                raise _patched(f"{module}.{name}[{key!r}] is patched", f"code from {place}")


def _check_registered(used: Collection[str]) -> None:
    """Check that no class, tokenizer or conversion of weights is registered in place of one of transformers.

    `used` contains the model type and the names of the classes whose conversions matter.
    """
    from transformers import CONFIG_MAPPING, MODEL_FOR_SEQUENCE_CLASSIFICATION_MAPPING, MODEL_MAPPING, TOKENIZER_MAPPING

    replaced = dict(_contents("transformers.monkey_patching").get("_monkey_patch_mapping_cache", {}))
    replaced |= {name: cls for name, cls in CONFIG_MAPPING._extra_content.items() if name in CONFIG_MAPPING._mapping}
    for mapping in (MODEL_MAPPING, MODEL_FOR_SEQUENCE_CLASSIFICATION_MAPPING, TOKENIZER_MAPPING):
        replaced |= {config.__name__: cls for config, cls in mapping._extra_content.items() if not _foreign(config, ())}
    for name, cls in replaced.items():
        raise _patched(
            f"the class that transformers uses for {name} is patched", f"code from {cls.__module__}.{cls.__name__}"
        )
    for name in used & _contents("transformers.conversion_mapping").get("USER_REGISTERED_MAPPINGS", set()):
        raise _patched(f"the conversion of weights of {name} is patched", "register_checkpoint_conversion_mapping")


def _check_kernels() -> None:
    """Reject kernels that Python code outside torch has registered for operators of torch."""
    folder = str(Path(torch.__file__).parent)
    for key in [*getattr(torch.library, "_impls", ())]:
        space, name, dispatch = key.split("/")
        if space != "aten" or dispatch == "Meta":
            continue
        for line in torch._C._dispatch_dump(f"aten::{name}").splitlines():
            if line.startswith(dispatch) and ".cpp:" not in line and folder not in line:
                place = line.partition("registered at ")[2].partition(" :: ")[0]
                raise _patched(f"the operator aten::{name} of torch is patched", f"code from {place}")


def _misplaced(kind: type) -> str | None:
    """Return why a class is not the one that a library's module defines under its name, or None if it is."""
    home = kind.__module__
    if home.partition(".")[0] not in MODEL_LIBRARIES or _contents(home).get(kind.__qualname__) is kind:
        return None
    return f"not the class {home}.{kind.__qualname__}"


def _foreign(value: Any, own: Collection[str]) -> str | None:
    """Return the origin of code of `value` that is neither in `own` nor in a library's file, or None."""
    return _untrusted(value, own) or (f"code from {file}" if (file := altered(value)) else None)


def _untrusted(value: Any, own: Collection[str]) -> str | None:
    """Return the first module that provides code of `value` and is neither trusted nor in `own`, or None."""
    for part in parts_of(value):
        if is_function(part):
            home = home_of(part)
        elif (home := str((part if issubclass(type(part), type) else type(part)).__module__)) not in sys.modules:
            continue  # a type of an extension module, which may have any name
        if home not in own and not _is_trusted(home):
            return f"code from {home}"
    return None


@functools.cache
def _is_trusted(module: str) -> bool:
    """Return whether a module is part of Python, of this suite, of a library, or of a package that libraries use."""
    package = module.partition(".")[0]  # functions of a named tuple have their own global namespace
    known = {PACKAGE_NAME, *MODEL_LIBRARIES, *sys.stdlib_module_names}
    required = {each for library in MODEL_LIBRARIES for each in requirements(library, optional=True)}
    if package in known or package.startswith("namedtuple_") or package in required:
        return True
    distributions = metadata.packages_distributions().get(package, [])  # slow, and needed for packages such as PIL
    return any(name.replace("-", "_").lower() in required for name in distributions)


def _patched(what: str, found: str) -> UserError:
    return UserError(
        f"{what} ({found}), so the model would not be measured as its installed package defines it: {ADVICE}"
    )
