"""Digests of the code that computes a result, and lists of the libraries that this code imports.

Digests ignore comments, docstrings, formatting, the Python version, and modules that do not affect results.
"""

import ast
import functools
import hashlib
import importlib.util
import os
import sys
import time
from collections.abc import Iterable, Iterator
from contextlib import suppress
from dataclasses import dataclass, field
from operator import attrgetter
from pathlib import Path
from types import FunctionType, ModuleType
from typing import Any

from bertsecrets.errors import UserError
from bertsecrets.store.files import files_below
from bertsecrets.store.packages import PACKAGE_NAME, is_installed, versions

# Modules that affect stored numbers without being imported by the module that computes the numbers.
ALWAYS_DIGESTED = ("bertsecrets.caches", "bertsecrets.devices", "bertsecrets.store.measurements")
# Modules and packages that no digest includes, with the reason why they cannot change a result.
PARTS_WITHOUT_RESULTS = {
    "errors": "messages",
    "progress": "messages",
    "hub": "downloads files, whose digests or commits are part of the cache keys",
    "settings": "reads settings, whose values are part of the cache keys",
    "cores": "sets the number of threads, which is part of the cache keys",
    "option_checks": "raises errors about options, and returns their values unchanged",
    "options": "selects data, weights and settings, which are part of the cache keys",
    "provenance": "makes cache keys",
    "store": "makes cache keys, and stores files whose digests are verified on reading",
    "report": "shows results",
    "cli": "shows results",
}
START_MTIMES = {path: path.stat().st_mtime_ns for path in files_below(Path(__file__).parents[1], "*.py")}
# Names by which code reads what is not in its files, and functions that create containers.
READING_NAMES = {"environ", "getenv", "open", "read_text", "read_bytes", "load", "load_file", "safe_open", "urlopen"}
READING_NAMES |= {"fromfile", "genfromtxt", "loadtxt", "memmap", "read_csv", "read_json"}
MAIN_MODULES = ("__main__", "__mp_main__")  # packages such as datasets add the second name, for the same module
CONTAINER_NAMES = {"dict", "list", "set", "defaultdict", "OrderedDict", "Counter", "deque"}
DOCUMENTED_NODES = (ast.Module, ast.ClassDef, ast.FunctionDef, ast.AsyncFunctionDef)  # nodes that may have a docstring


@dataclass(frozen=True)
class ModuleSource:
    """The digest, the imports, the re-exported names and the values of a module.

    `digest` is the digest of the module's syntax tree. `imports` are written as `module` or `module:name`. `reexports`
    maps each name that a package re-exports to the import that provides the name, in the same form. `values` maps the
    names of a user's module, and its class attributes, to what its file assigns to them (see `_values`). `outside` is a
    name by which a user's module reads or keeps values that are not in its file, or None (see `_outside`).
    """

    digest: str
    imports: tuple[str, ...]
    reexports: dict[str, str]
    values: dict[str, str] = field(default_factory=dict)
    outside: str | None = None


class _ImportTimes:
    """A finder that finds nothing, but records when each module is imported, and by which modules.

    The time shows later edits of the module's file.
    """

    def __init__(self) -> None:
        self.start, self.times = time.time_ns(), dict[str, int]()
        self.digested: set[str] = set()  # modules whose digests are cached
        self.earlier = [*sys.modules]  # in the order of their imports
        self.running = [*sys.modules]
        self.importers: dict[str, list[str]] = {}  # modules whose imports had not ended when a module was imported

    def find_spec(self, name: str, path: Any = None, target: Any = None) -> None:
        """Record the import. If the module has a digest, it is imported again, so forget all digests."""
        if name in self.digested:
            self.digested.clear()
            for cached in (_reached, _source, _path):
                cached.cache_clear()
        self.times[name] = time.time_ns()
        specs = {each: getattr(sys.modules.get(each), "__spec__", None) for each in self.running}
        self.running = [each for each, spec in specs.items() if getattr(spec, "_initializing", False)]
        self.importers[name] = self.running[:]
        self.running.append(name)

    def loaded_by(self, module: str) -> list[str]:
        """Return the modules that the import of a module has loaded. If unknown, return all modules imported later."""
        later = self.earlier[self.earlier.index(module) + 1 :] if module in self.earlier else []
        later += [name for name, importers in self.importers.items() if module in importers]
        return [name for name in later if name in sys.modules and name not in MAIN_MODULES]

    def of(self, name: str) -> int:
        """Return when a module was imported, in nanoseconds. If unknown, return when this object was created."""
        return self.times.get(name, self.start)


IMPORTED = _ImportTimes()
sys.meta_path.insert(0, IMPORTED)


def code_digest(module: str) -> str | None:
    """Return a digest of a module, of its imports (see `_reached`), and of `ALWAYS_DIGESTED`.

    Returns None if the module has no source file, as in an interactive session, or if results depend on more than the
    files (see `undescribed`).

    Raises:
        UserError: If one of the files was edited after it was imported.
    """
    return _digest(digested(module)) if _reached(module) and not undescribed([module]) else None


def digest_of_classes(classes: Iterable[type]) -> str | None:
    """Return a digest of the modules of user-defined classes, or None if it would not cover all that they compute."""
    classes = [*classes]
    modules = users_modules(cls.__module__ for cls in classes)
    return _digest(modules) if all(map(has_source, classes)) and not undescribed(modules) else None


def undescribed(modules: Iterable[str]) -> str | None:
    """Return a phrase about one of these modules or their imports that uses values from outside its file, or None."""
    reached = {name: source for module in modules for name, source in _reached(module).items()}
    return next((f"{name} uses {source.outside}" for name, source in reached.items() if source.outside), None)


@functools.cache
def has_source(cls: type) -> bool:
    """Return whether a class comes from the file of its module, and not from `exec`, a notebook or the main script."""
    if cls.__module__ in MAIN_MODULES or not _reached(cls.__module__):
        return False
    methods = (value for name, value in vars(cls).items() if isinstance(value, FunctionType) and name[:2] != "__")
    return all(os.path.isfile(method.__code__.co_filename) for method in methods)


def users_modules(modules: Iterable[str]) -> set[str]:
    """Return these modules and the modules that they import, without those of `bertsecrets` and installed packages."""
    reached = {name for module in modules for name in _reached(module)}
    return {name for name in reached if name.partition(".")[0] != PACKAGE_NAME}


def _digest(modules: Iterable[str]) -> str:
    lines = []
    for name in sorted(modules):
        if (source := _source(name)) is not None:
            lines += [f"{name} {source.digest}", *_changed_values(name, source)]
            if name.partition(".")[0] != PACKAGE_NAME:  # keys contain the versions of what this suite imports
                lines += versions(source.imports)
    return hashlib.sha256("\n".join(lines).encode()).hexdigest()


def _changed_values(name: str, source: ModuleSource) -> Iterator[str]:
    """Yield the values of a module that are not those in its file, because they were changed during or after import."""
    for place, written in source.values.items() if name in sys.modules else ():
        shown = "nothing"
        with suppress(Exception):  # of the user's own classes
            shown = _shown(attrgetter(place)(sys.modules[name]))
        if shown != written:
            yield f"{name}.{place} = {shown}"


def _shown(value: Any) -> str:
    text = repr(sorted(value, key=repr) if isinstance(value, set) else value)
    return type(value).__qualname__ if " at 0x" in text else text


def digested(module: str) -> set[str]:
    """Return the names of all modules that the digest of a module covers."""
    return {*_reached(module), *ALWAYS_DIGESTED}


def imports(module: str) -> frozenset[str]:
    """Return the packages (such as `torch`) and names (such as `torch:nn`) that a module imports.

    Indirect imports through modules of its own package or of `bertsecrets` are included.
    """
    names = {name for source in _reached(module).values() for name in source.imports}
    return frozenset(names | {name.partition(":")[0].partition(".")[0] for name in names})


@functools.cache
def _reached(module: str) -> dict[str, ModuleSource]:
    """Return the sources of a module and of its direct and indirect imports, sorted by name.

    Imports from installed packages are left out, except from the module's own package and from `bertsecrets`. For a
    user's module, this includes its parent packages and all other modules that were loaded by its import.
    """
    roots = {PACKAGE_NAME, module.partition(".")[0]}
    reached: dict[str, ModuleSource] = {}
    waiting = [module]
    while waiting:
        name = waiting.pop()
        if name in reached or not _computes(name):
            continue
        source = _source(name)
        if source is None:
            continue
        reached[name] = source
        imported, users = [*source.imports], name.partition(".")[0] != PACKAGE_NAME
        if users:
            objects = [*vars(sys.modules[name]).values()] if name in sys.modules else []
            loaded = [each.__name__ for each in objects if isinstance(each, ModuleType)] + IMPORTED.loaded_by(name)
            imported += [each for each in loaded if each.partition(".")[0] != PACKAGE_NAME]
            imported += [name.rpartition(".")[0]] if "." in name else []
        for each in imported:
            package = each.partition(":")[0].partition(".")[0]
            if package in roots or (users and not is_installed(package)):
                waiting.append(_home(each))
    return dict(sorted(reached.items())) if module in reached else {}


def _computes(name: str) -> bool:
    parts = name.split(".")
    return parts[0] != PACKAGE_NAME or (len(parts) > 1 and parts[1] not in PARTS_WITHOUT_RESULTS)


def _home(imported: str) -> str:
    """Return the module that defines an imported name, following re-exports."""
    module, _, name = imported.partition(":")
    if name and _path(f"{module}.{name}") is not None:
        return f"{module}.{name}"
    source = _source(module)
    if name and source is not None and name in source.reexports:
        return _home(source.reexports[name])
    return module


@functools.cache
def _source(name: str) -> ModuleSource | None:
    """Return a module's source, or None if it has no source file."""
    path = _path(name)
    if path is None:
        return None
    if _was_edited(name, path):
        raise UserError(f"{path} was edited while this process was running: start the process again")
    if name.partition(".")[0] != PACKAGE_NAME:
        IMPORTED.digested.add(name)
    tree = ast.parse(path.read_bytes())
    package = name if path.name == "__init__.py" else name.rpartition(".")[0]
    reexports = dict(pair for node in tree.body for pair in _from(node, package)) if package == name else {}
    imports = tuple(dict.fromkeys(_imports(tree, package)))
    values: dict[str, str] = {}
    outside = None
    if name.partition(".")[0] != PACKAGE_NAME:
        values, outside = dict(_values(tree)), next(_outside(tree), None)
        # A package with `__getattr__` may import any of its modules.
        if "__getattr__.__code__.co_qualname" in values and path.name == "__init__.py":
            files = (file.relative_to(path.parent).with_suffix("").parts for file in files_below(path.parent, "*.py"))
            imports += tuple(".".join([name, *parts]) for parts in files if parts[-1] != "__init__")
    return ModuleSource(
        hashlib.sha256("".join(_syntax(tree)).encode()).hexdigest(), imports, reexports, values, outside
    )


def _was_edited(name: str, path: Path) -> bool:
    """Return whether a file has changed since it was imported or, for files of this suite, since the process began."""
    status = path.stat()
    if name.partition(".")[0] == PACKAGE_NAME:
        return START_MTIMES.get(path, status.st_mtime_ns) != status.st_mtime_ns
    # A change of ctime reveals that an older file was moved here. For installed packages, the ctime is ignored, because
    # it also changes if an installer links the file into another environment.
    by_content = os.name == "nt" or is_installed(name.partition(".")[0])
    changed = status.st_mtime_ns if by_content else max(status.st_mtime_ns, status.st_ctime_ns)
    return name in sys.modules and changed > IMPORTED.of(name)


@functools.cache
def _path(name: str) -> Path | None:
    if name.partition(".")[0] == PACKAGE_NAME:  # found without importing anything
        place = Path(__file__).parents[1].joinpath(*name.split(".")[1:])
        files = (place.with_suffix(".py"), place / "__init__.py")
        return next((file for file in files if file.is_file()), None)
    try:
        loaded = sys.modules.get(name)
        spec = None if loaded else importlib.util.find_spec(name)
    except (ImportError, ValueError, AttributeError):
        return None
    file = getattr(loaded, "__file__", None) or (spec.origin if spec else None)
    return Path(file) if file and file.endswith(".py") else None


def _imports(tree: ast.AST, package: str) -> Iterator[str]:
    for node in ast.walk(tree):
        if isinstance(node, ast.Import):
            yield from (alias.name for alias in node.names)
        else:
            yield from (imported for _, imported in _from(node, package))


def _from(node: ast.AST, package: str) -> Iterator[tuple[str, str]]:
    """Yield each name that a `from ... import` binds, with the object that the name refers to."""
    if isinstance(node, ast.ImportFrom):
        above = package.split(".")[: len(package.split(".")) - node.level + 1] if node.level else []
        module = ".".join([*above, *([node.module] if node.module else [])])
        for alias in node.names:
            yield alias.asname or alias.name, f"{module}:{alias.name}"


def _values(tree: ast.Module) -> Iterator[tuple[str, str]]:
    """Yield each name of a module, and each class attribute, to which the file assigns a function or a plain value.

    A function is described by its name and its default values.
    """
    bodies = [("", tree.body), *((f"{node.name}.", node.body) for node in tree.body if isinstance(node, ast.ClassDef))]
    for prefix, node in ((prefix, node) for prefix, body in bodies for node in body):
        if isinstance(node, ast.FunctionDef):
            function, keywords = prefix + node.name, zip(node.args.kwonlyargs, node.args.kw_defaults, strict=True)
            yield f"{function}.__code__.co_qualname", repr(function)
            with suppress(ValueError):  # not a plain value
                defaults = tuple(map(ast.literal_eval, node.args.defaults))
                yield f"{function}.__defaults__", _shown(defaults or None)
                by_name = {each.arg: ast.literal_eval(default) for each, default in keywords if default is not None}
                yield f"{function}.__kwdefaults__", _shown(by_name or None)
        elif isinstance(node, ast.Assign | ast.AnnAssign) and node.value is not None:
            targets = node.targets if isinstance(node, ast.Assign) else [node.target]
            with suppress(ValueError, TypeError):  # not a plain value
                value = _shown(ast.literal_eval(node.value))
                yield from ((prefix + target.id, value) for target in targets if isinstance(target, ast.Name))


def _outside(tree: ast.Module) -> Iterator[str]:
    """Yield each name by which a module reads, or keeps in global variables, values that are not in its file."""
    for node in ast.walk(tree):
        if isinstance(node, ast.Global):
            yield f"global {node.names[0]}"
        elif isinstance(node, ast.Name | ast.Attribute | ast.alias):
            names = {getattr(node, field) for field in ("id", "attr", "name") if hasattr(node, field)}
            yield from names & READING_NAMES
    for value in (node.value for node in tree.body if isinstance(node, ast.Assign | ast.AnnAssign) and node.value):
        created = ast.unparse(value.func).rpartition(".")[2] if isinstance(value, ast.Call) else ""
        if ast.unparse(value) in ("[]", "{}") or created in CONTAINER_NAMES:
            yield "a container that is filled later"


def _syntax(node: object) -> Iterator[str]:
    """Yield a syntax tree as pieces of text. Docstrings and empty fields are left out."""
    if isinstance(node, ast.AST):
        yield f"({type(node).__name__}"
        for field in node._fields:
            value = getattr(node, field, None)
            if (
                field == "body"
                and isinstance(node, DOCUMENTED_NODES)
                and ast.get_docstring(node, clean=False) is not None
            ):
                value = node.body[1:]
            if value is not None and value != []:
                yield f" {field}="
                yield from _syntax(value)
        yield ")"
    elif isinstance(node, list):
        yield "["
        for item in node:
            yield from _syntax(item)
        yield "]"
    else:
        yield repr(node)
