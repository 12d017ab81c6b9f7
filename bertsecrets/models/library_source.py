"""The contents of the files of torch and transformers, for comparison with the functions and classes in memory."""

import ast
import dis
import functools
import inspect
import re
import subprocess  # nosec B404
import sys
import types
from collections import defaultdict
from collections.abc import Iterable, Iterator
from contextlib import suppress
from dataclasses import dataclass, field
from enum import Enum
from typing import Any, NamedTuple

from torch import nn

MODEL_LIBRARIES = ("torch", "transformers", "tokenizers", "safetensors")
CONSTANT_TYPES = (type(None), bool, int, float, complex, str, bytes)
CONTAINER_TYPES = (dict, list, tuple, set, frozenset)
# Modules whose functions and classes compute numbers, and are all defined by their files.
COMPUTING = re.compile(
    r"torch(\.(autograd|nn|optim|functional)(\..+)?)?|transformers\.(?!generation|models\.auto).+|tokenizers(\..+)?"
)
# Wrappers that change numbers: their qualified names, and the names by which files mention them.
CHANGING_WRAPPERS = re.compile(r"autocast|custom_[fb]wd|_TorchDynamoContext|partial(method)?$")
MENTIONS_OF_THESE = {"autocast", "custom_fwd", "custom_bwd", "compile", "partial", "partialmethod"}


class Statement(NamedTuple):
    """The names and the constants in a statement that binds a name."""

    names: set[str]
    constants: list[str]


@dataclass(frozen=True)
class LibrarySource:
    """The code of each function in a file, and the statements that bind each name of a module or class.

    Both are keyed by qualified name. `rebound` contains the global names that functions assign to.
    """

    code: dict[str, list[types.CodeType]] = field(default_factory=lambda: defaultdict(list))
    statements: dict[str, list[Statement]] = field(default_factory=lambda: defaultdict(list))
    rebound: set[str] = field(default_factory=set)


@functools.cache
def source_of(module: str) -> LibrarySource | None:
    """Return the contents of a module's file, or None if the module has no source file."""
    spec: Any = getattr(sys.modules.get(module), "__spec__", None)
    whole = None
    with suppress(AttributeError, ImportError, OSError):  # of extension modules and unusual loaders
        whole = spec.loader.get_code(spec.name)
    if whole is None:
        return None
    source, waiting = LibrarySource(), [whole]
    while waiting:
        code = waiting.pop()
        waiting += [each for each in code.co_consts if isinstance(each, types.CodeType)]
        if code.co_flags & inspect.CO_OPTIMIZED:  # of a function, and not of a module or a class
            source.code[code.co_qualname].append(code)
            source.rebound.update(step.argval for step in dis.get_instructions(code) if step.opname == "STORE_GLOBAL")
            continue
        prefix, statement = "" if code is whole else f"{code.co_qualname}.", Statement(set(), [])
        for step in dis.get_instructions(code):
            if step.opname in ("STORE_NAME", "STORE_GLOBAL"):
                source.statements[prefix + step.argval].append(statement)
            elif isinstance(step.argval, types.CodeType) or step.opname.startswith(("BINARY_", "UNPACK_")):
                statement.names.add(getattr(step.argval, "co_name", step.opname))
            elif step.opname in ("LOAD_CONST", "LOAD_SMALL_INT"):
                statement.constants.extend(map(repr, _leaves(step.argval)))
            elif isinstance(step.argval, str):
                statement.names.add(step.argval)
            if step.opname.startswith("STORE_"):
                statement = Statement(set(), [])
    return source


def doubt(module: str, cls: str, name: str, value: Any) -> str | None:
    """Return what a library's module or class contains in place of the code or value in its file, or None."""
    code = altered(value) or intruder(module, cls, name, value)
    return f"code from {code}" if code else other_data(module, cls, name, value)


def other_data(module: str, cls: str, name: str, value: Any) -> str | None:
    """Return a value, or a function's default values, that do not come from a library's file, or None.

    Values that the file computes, or that its functions change, are accepted.
    """
    source, place = source_of(module), f"{cls}.{name}" if cls else name
    if source is None or not COMPUTING.fullmatch(module):
        return None
    statements = source.statements.get(place, [])
    for part in parts_of(value):
        if is_function(part) and part.__code__ in source.code.get(place, ()):
            for defaults in (part.__defaults__ or (), (part.__kwdefaults__ or {}).values()):
                if not any(_contains(each, defaults, part.__globals__) for each in statements):
                    return f"default values {(*defaults,)}"
    if name.startswith("__") or callable(value) or hasattr(type(value), "__get__") or isinstance(value, Enum):
        return None
    if statements:
        computed = any(each.names or not each.constants for each in statements) or place in source.rebound
        fits = computed or any({*map(repr, _leaves(value))} == {*each.constants} for each in statements)
    else:
        # Metaclasses add private attributes, and some classes are defined in no file.
        fits = f"{cls}.__module__" not in source.statements or name.startswith("_")
    return None if fits else f"value {value!r}"


def _contains(statement: Statement, values: Iterable[Any], namespace: dict[str, Any]) -> bool:
    """Return whether a statement mentions these values, with the constants in the same order."""
    constants = iter(statement.constants)
    named = {id(namespace[name]) for name in statement.names & namespace.keys()}
    for value in _leaves([*values]):
        other = {type(value).__name__, getattr(value, "__name__", ""), str(value).rpartition(".")[2]}
        labels = other if type(value) not in CONSTANT_TYPES else set()
        if id(value) not in named and labels.isdisjoint(statement.names) and repr(value) not in constants:
            return False
    return True


def _leaves(value: Any) -> Iterator[Any]:
    """Yield the values in nested containers, in the order of bytecode."""
    if type(value) in CONTAINER_TYPES:
        for inner in [*value.values(), *value] if type(value) is dict else value:
            yield from _leaves(inner)
    else:
        yield value


def parts_of(value: Any) -> Iterator[Any]:
    """Yield the functions and other objects whose code runs when a value is used, from the outside to the inside.

    Functions inside decorators are included.
    """
    waiting, seen = [value], set()
    while waiting:
        part = waiting.pop(0)
        kind = type(part)  # isinstance would trigger the warnings of deprecated objects
        if id(part) in seen:
            continue
        seen.add(id(part))
        if issubclass(kind, classmethod | staticmethod | types.MethodType):
            waiting.append(part.__func__)
            continue
        if issubclass(kind, property):
            waiting += [part.fget, part.fset]
            continue
        if issubclass(kind, functools.cached_property):
            waiting.append(part.func)
            continue
        if issubclass(kind, functools._lru_cache_wrapper):
            waiting.append(part.__wrapped__)
            continue
        yield part
        if issubclass(kind, types.FunctionType):
            waiting += [each for each in _closure(part) if issubclass(type(each), types.FunctionType)]
        elif issubclass(kind, functools.partial | functools.partialmethod):
            waiting.append(part.func)


def is_function(part: Any) -> bool:
    """Return whether an object is a function that is written in Python."""
    return issubclass(type(part), types.FunctionType)


def home_of(function: types.FunctionType) -> str:
    """Return the name of the module whose code a function runs. Decorators may change `__module__`."""
    return str(function.__globals__.get("__name__"))


def altered(value: Any) -> str | None:
    """Return the file of the first function in `value` that belongs to a library, but runs code from elsewhere.

    Return None if there is no such function. Code that `dataclass` has generated is accepted.
    """
    for part in filter(is_function, parts_of(value)):
        if home_of(part).partition(".")[0] in MODEL_LIBRARIES:
            source, name = source_of(home_of(part)), part.__code__.co_qualname
            if source and part.__code__ not in source.code.get(name, ()) and not name.startswith("__create_fn__."):
                return str(part.__code__.co_filename)
    return None


def intruder(module: str, cls: str, name: str, value: Any) -> str | None:
    """Return what has taken the place of a library's function or class, or None if the file puts `value` there.

    A function must be in its place, possibly inside decorators. Anything else whose name differs from its place, such
    as an alias, must be named by the statement that binds it.
    """
    of_tensor, place = (module, cls) == ("torch", "Tensor"), f"{cls}.{name}" if cls else name
    source = source_of("torch._tensor" if of_tensor else module)
    if source is None or not COMPUTING.fullmatch(module) or (module == "torch" and cls and not of_tensor):
        return None
    parts = [*parts_of(value)]
    mentioned = {name for statement in source.statements.get(place, ()) for name in statement.names}
    if place in source.code:
        if not any(is_function(part) and part.__code__ in source.code[place] for part in parts):
            return label_of(parts[0]) or None
        labels = map(label_of, parts if MENTIONS_OF_THESE.isdisjoint(mentioned) else ())
        return next(filter(CHANGING_WRAPPERS.match, labels), None)
    label = label_of(parts[0]) if parts and not (cls and name.startswith("__")) else ""
    fits = (
        name.strip("_") in label or "<" in label or label.startswith("__") or not _names(parts[0]).isdisjoint(mentioned)
    )
    return None if not label or fits else label


@functools.cache
def doubt_in_a_new_process(module: str, cls: str, name: str) -> str:
    """Return the result of `doubt` in a new process, in which nothing has been replaced, or "" for None."""
    code = (
        f"import sys, importlib; from {__name__} import doubt; sys.stdout = sys.stderr\n"
        f"here = importlib.import_module({module!r})\n"
        f"value = vars(getattr(here, {cls!r}) if {cls!r} else here)[{name!r}]\n"
        f"print(doubt({module!r}, {cls!r}, {name!r}, value) or '', file=sys.__stdout__)"
    )
    done = subprocess.run(  # nosec B603  # Python with names of library modules
        [sys.executable, "-c", code], capture_output=True, text=True, check=False
    )
    return done.stdout.strip()


def label_of(part: Any) -> str:
    """Return the name under which a function or a module class was defined, or "" for all other objects."""
    kind = type(part)
    if is_function(part):
        return str(part.__code__.co_qualname)
    if issubclass(kind, functools.partial | functools.partialmethod):
        return kind.__name__
    named = issubclass(kind, types.BuiltinFunctionType | types.MethodDescriptorType)
    return str(part.__name__) if named or (issubclass(kind, type) and issubclass(part, nn.Module)) else ""


def _names(part: Any) -> set[str]:
    return {label_of(part).partition(".")[0], label_of(part).rpartition(".")[2]}


@functools.cache
def declared(module: str, name: str) -> dict[str, types.CodeType]:
    """Return the contents of a dict as a library's file writes them: the code of the expression for each value, by key.

    A dict may be written as a display or as a call with a list of pairs.
    """
    pairs: Iterable[tuple[ast.expr | None, ast.expr]] = ()
    with suppress(OSError, TypeError):
        for node in ast.parse(inspect.getsource(sys.modules[module])).body:
            target = node.targets[0] if isinstance(node, ast.Assign) else getattr(node, "target", None)
            if getattr(target, "id", None) != name:
                continue
            match getattr(node, "value", None):
                case ast.Dict(keys, values):
                    pairs = zip(keys, values, strict=True)
                case ast.Call(args=[ast.List(items)]):
                    pairs = [(item.elts[0], item.elts[1]) for item in items if isinstance(item, ast.Tuple)]
    named = {str(key.value): value for key, value in pairs if isinstance(key, ast.Constant)}
    return {key: compile(ast.Expression(value), module, "eval") for key, value in named.items()}


def _closure(function: types.FunctionType) -> Iterator[Any]:
    for cell in function.__closure__ or ():
        try:
            yield cell.cell_contents
        except ValueError:  # an empty cell
            continue
