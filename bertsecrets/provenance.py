"""The code, library versions and device behind a result: the second half of its cache key."""

import functools
import json
import os
import platform
import subprocess  # nosec B404
import time
from collections.abc import Mapping
from importlib.metadata import PackageNotFoundError, distribution, version
from pathlib import Path
from typing import TYPE_CHECKING, Any

from bertsecrets.devices import device_name
from bertsecrets.store.code import code_digest, imports

if TYPE_CHECKING:
    import torch

PACKAGE_FOLDER = Path(__file__).resolve().parent
SUITE_PARTS = ("bertsecrets", "expected", "params.yaml")  # the files and folders of a checkout that affect verdicts
TRAINING_MODULE = "bertsecrets.models.training.finetune"  # module that makes checkpoints
# Imported packages, and the distributions whose versions are recorded for them (`transformers` uses `tokenizers`).
LIBRARIES = {
    "torch": ("torch",),
    "transformers": ("transformers", "tokenizers"),
    "tokenizers": ("tokenizers",),
    "numpy": ("numpy",),
    "scipy": ("scipy",),
    "sklearn": ("scikit-learn",),
}


@functools.cache
def software() -> dict[str, str]:
    """Return the versions of Python, of this package and of the libraries that results depend on."""
    from bertsecrets import __version__

    names = ("torch", "transformers", "tokenizers", "datasets", "numpy", "scipy")
    return {"python": platform.python_version(), "bertsecrets": __version__, **{n: version(n) for n in names}}


def run_facts() -> dict[str, Any]:
    """Return the time (`made`), the git state (`commit` and `modified`, see `suite_commit`) and `software` of a run."""
    commit, modified = suite_commit()
    made = time.strftime("%Y-%m-%dT%H:%M:%SZ", time.gmtime())
    return {"made": made, "commit": commit, "modified": modified, "software": software()}


@functools.cache
def suite_commit(checkout: Path = PACKAGE_FOLDER.parent) -> tuple[str | None, bool | None]:
    """Return the git commit of the suite, and whether the suite's code, claims or settings differ from the commit.

    In a checkout, git provides both values. If pip installed the suite from a git URL, pip provides the commit, and the
    second value is None. Otherwise, both values are None.
    """
    if _git(checkout, "ls-files", "--error-unmatch", f"{PACKAGE_FOLDER.name}/__init__.py") is None:
        return _installed_commit(), None
    commit, changed = _git(checkout, "rev-parse", "HEAD"), _git(checkout, "status", "--porcelain", "--", *SUITE_PARTS)
    return commit, None if changed is None else bool(changed)


def _git(folder: Path, *command: str) -> str | None:
    environment = {name: value for name, value in os.environ.items() if not name.startswith("GIT_")}  # set by git hooks
    try:
        done = subprocess.run(  # nosec B603 B607
            ["git", *command],
            cwd=folder,
            env=environment | {"GIT_OPTIONAL_LOCKS": "0"},
            capture_output=True,
            text=True,
            timeout=10,
        )
    except (OSError, subprocess.SubprocessError, UnicodeError):
        return None
    return done.stdout.strip() if done.returncode == 0 else None


def _installed_commit() -> str | None:
    """Return the commit that pip installed the suite from, or None if pip did not install it from git (PEP 610)."""
    try:
        origin = json.loads(distribution("bertsecrets").read_text("direct_url.json") or "{}")
        return origin.get("vcs_info", {}).get("commit_id")
    except (PackageNotFoundError, ValueError, AttributeError, OSError):
        return None


def made_by(module: str, device: "torch.device | None") -> dict[str, Any]:
    """Return what the results of a module depend on: a digest of its code, the library versions and the device.

    `device` is None if the results are the same on every device.
    """
    used = imports(module)
    names = {name for library, names in LIBRARIES.items() if library in used for name in names}
    versions = {name: number for name in sorted(names) if (number := library_version(name))}
    return {"code": code_digest(module), "software": versions, "device": device_name(device) if device else None}


@functools.cache
def library_version(name: str) -> str | None:
    """Return the version of an installed library, or None if it is not installed."""
    try:
        return version(name)
    except PackageNotFoundError:
        return None


def differences(made: Mapping[str, Any], now: Mapping[str, Any]) -> list[str]:
    """Describe how the code, library versions and device of a result differ from the current ones.

    >>> torch = {"code": "a", "software": {"torch": "2.12.0"}}
    >>> differences(torch, {"code": "b", "software": {"torch": "2.13.0"}})
    ['made by other code', 'made with torch 2.12.0, not 2.13.0']
    """
    different = ["made by other code"] if made.get("code") != now.get("code") else []
    before, after = made.get("software") or {}, now.get("software") or {}
    for name in sorted(before.keys() & after.keys()):
        if before[name] != after[name]:
            different.append(f"made with {name} {before[name]}, not {after[name]}")
    if made.get("device") and now.get("device") and made["device"] != now["device"]:
        different.append(f"made on {made['device']}, not on {now['device']}")
    return different
