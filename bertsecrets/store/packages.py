"""Installed packages: which modules belong to them, which versions they have, and what they require."""

import functools
import importlib.util
import re
import site
import sys
import sysconfig
from contextlib import suppress
from importlib import metadata
from pathlib import Path

PACKAGE_NAME = __name__.partition(".")[0]
LIBRARIES_IN_KEYS = ("torch", "transformers")  # libraries whose own requirements do not count
INSTALLED_FOLDERS = (
    *(sysconfig.get_path(name) for name in ("stdlib", "platstdlib", "purelib", "platlib")),
    *(*site.getsitepackages(), site.getusersitepackages()),
)

_providers = functools.cache(metadata.packages_distributions)  # one call takes a second


@functools.cache
def versions(imports: tuple[str, ...]) -> list[str]:
    """Return the versions of the installed packages that provide these imports, and of the packages they require."""
    packages = {name.partition(":")[0].partition(".")[0] for name in imports} - {PACKAGE_NAME, *sys.stdlib_module_names}
    providers = _providers() if packages else {}
    waiting, found = [name for package in packages for name in providers.get(package, ())], dict[str, str]()
    while waiting:
        name = waiting.pop().replace("-", "_").lower()
        with suppress(metadata.PackageNotFoundError):
            found[name] = metadata.version(name)
            waiting += requirements(name, optional=False) - found.keys() if name not in LIBRARIES_IN_KEYS else ()
    return [f"{name} {version}" for name, version in sorted(found.items())]


@functools.cache
def requirements(distribution: str, *, optional: bool) -> set[str]:
    """Return the names of the packages that a package requires, with or without those for its optional features."""
    texts = [text for text in metadata.requires(distribution) or () if optional or "extra ==" not in text]
    return {re.split(r"[^\w.-]", text, maxsplit=1)[0].replace("-", "_").lower() for text in texts}


@functools.cache
def is_installed(package: str) -> bool:
    """Return whether a top-level module belongs to Python, to `bertsecrets` or to an installed package."""
    if package == PACKAGE_NAME:
        return True
    try:
        module = sys.modules.get(package)
        spec = (module and module.__spec__) or importlib.util.find_spec(package)
    except (ImportError, ValueError, AttributeError):
        return False
    places = [] if spec is None else [*filter(None, [spec.origin]), *(spec.submodule_search_locations or ())]
    if not places or places[0] in ("built-in", "frozen"):
        return bool(places)
    return any(Path(places[0]).is_relative_to(folder) for folder in INSTALLED_FOLDERS)
