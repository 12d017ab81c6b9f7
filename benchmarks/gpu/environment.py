"""Check and install the requirements of a run, using only the standard library."""

import importlib
import os
import subprocess
import sys
import tomllib
from importlib import metadata
from pathlib import Path

from bertsecrets.errors import UserError

ROOT = Path(__file__).parents[2]
EXTRA = "gpu"  # of pyproject.toml: what `make gpu` needs in addition to the dependencies


def provide(wheels: Path | None, site: Path, root: Path = ROOT) -> None:
    """Make all requirements available to this process and its child processes.

    Missing ones are installed from a folder of wheels.

    Args:
        wheels: Folder created by `make gpu-wheels`.
        site: Folder for installed packages, which takes precedence on the path.
        root: Checkout whose pyproject.toml lists the requirements.

    Raises:
        UserError: something is missing.
    """
    before = os.environ.get("PYTHONPATH")
    os.environ["PYTHONPATH"] = os.pathsep.join([str(root), str(site.resolve()), *([before] if before else [])])
    sys.path.insert(1, str(site.resolve()))
    absent = missing(root)
    files = sorted(wheels.glob("*.whl")) if wheels is not None else []
    chosen = [file for file in files if _name(file.name) in absent or _version(_name(file.name)) is None]
    if absent and chosen:
        command = [sys.executable, "-m", "pip", "install", "--quiet", "--no-index", "--no-deps", "--no-compile"]
        done = subprocess.run([*command, "--upgrade", "--target", str(site), *map(str, chosen)], stderr=subprocess.PIPE)
        if done.returncode:
            line = (done.stderr.decode().strip().splitlines() or ["no reason given"])[-1]
            raise UserError(f"cannot install the wheels in {wheels}: {line}")
        importlib.invalidate_caches()
        absent = missing(root)
    if absent:
        others = [text for name, text in absent.items() if name != "torch"]
        torch = ["torch (a build for this GPU's CUDA)"] if "torch" in absent else []
        raise UserError(
            f"missing here: {', '.join(torch + others)}: install them, "
            "or collect wheels elsewhere with `make gpu-wheels WHEELS=DIR` and give WHEELS=DIR"
        )


def missing(root: Path = ROOT) -> dict[str, str]:
    """Return the requirements that are not installed, by name."""
    try:
        from packaging.requirements import Requirement
    except ImportError:
        return {"packaging": "packaging"}
    project = tomllib.loads((root / "pyproject.toml").read_text(encoding="utf-8"))["project"]
    waiting = [Requirement(text) for text in (*project["dependencies"], f"{project['name']}[{EXTRA}]")]
    absent = {}
    for wanted in waiting:  # which grows
        if wanted.name == project["name"]:
            extras = project["optional-dependencies"]
            waiting += [Requirement(text) for extra in wanted.extras for text in extras[extra]]
        elif (held := _version(wanted.name)) is None or not wanted.specifier.contains(held, prereleases=True):
            absent[wanted.name.lower().replace("_", "-")] = str(wanted)
    return absent


def _version(name: str) -> str | None:
    try:
        return metadata.version(name)
    except metadata.PackageNotFoundError:
        return None


def _name(wheel: str) -> str:
    return wheel.partition("-")[0].lower().replace("_", "-")
