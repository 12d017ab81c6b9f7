"""The record of what made a result: the code, the libraries and the device. It is the second half of a result's key."""

import functools
import json
import os
import platform
import subprocess  # nosec B404
import time
import warnings
from collections.abc import Mapping
from importlib.metadata import PackageNotFoundError, distribution, version
from pathlib import Path
from typing import TYPE_CHECKING, Any

from bertsecrets.errors import UserError
from bertsecrets.settings import Params
from bertsecrets.store.code import code_digest, imports
from bertsecrets.types import Precision

if TYPE_CHECKING:
    import torch

PACKAGE = Path(__file__).resolve().parent
OF_SUITE = ("bertsecrets", "expected", "params.yaml")  # what of a checkout decides verdicts
TRAINING = "bertsecrets.models.training.finetune"  # the module that makes checkpoints
COMPUTING = ("cpu", "cuda", "mps")  # kinds of device that compute; torch also knows `meta` and others that do not
# What is imported, and the distributions whose version then counts; `transformers` tokenizes by way of `tokenizers`.
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
    """Return when and with what something is made now, for records that outlive a run.

    That is the time (`made`), the git commit of the suite (None if it is not known), whether the suite's files differ
    from it (`modified`), and the versions of the suite, Python and the libraries (`software`).
    """
    commit, modified = suite_commit()
    made = time.strftime("%Y-%m-%dT%H:%M:%SZ", time.gmtime())
    return {"made": made, "commit": commit, "modified": modified, "software": software()}


@functools.cache
def suite_commit(checkout: Path = PACKAGE.parent) -> tuple[str | None, bool | None]:
    """Return the git commit of the suite, and whether its code, claims or settings differ from that commit.

    In a checkout git is asked; a package that pip installed from a git address knows the commit that it was made of.
    Without git, from a wheel, or where the folder is only inside somebody else's repository, both are None.
    """
    if _git(checkout, "ls-files", "--error-unmatch", f"{PACKAGE.name}/__init__.py") is None:
        return _installed_commit(), None
    commit, changed = _git(checkout, "rev-parse", "HEAD"), _git(checkout, "status", "--porcelain", "--", *OF_SUITE)
    return commit, None if changed is None else bool(changed)


def _git(folder: Path, *command: str) -> str | None:
    """Return what a git command prints; None if there is no git, or it fails."""
    environment = {name: value for name, value in os.environ.items() if not name.startswith("GIT_")}  # as hooks set
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
    """Return the commit that pip installed the suite from; None where that was not a git address (PEP 610)."""
    try:
        origin = json.loads(distribution("bertsecrets").read_text("direct_url.json") or "{}")
        return origin.get("vcs_info", {}).get("commit_id")
    except (PackageNotFoundError, ValueError, AttributeError, OSError):
        return None


def made_by(module: str, device: "torch.device | None") -> dict[str, Any]:
    """Return what computes a result now: a digest of the code, the versions of its libraries, the device.

    Args:
        module: the module that computes it.
        device: None for what is the same on every device.
    """
    used = imports(module)
    names = {name for library, names in LIBRARIES.items() if library in used for name in names}
    versions = {name: number for name in sorted(names) if (number := library_version(name))}
    return {
        "code": code_digest(module),
        "software": versions,
        "device": device_name(device) if device else None,
    }


@functools.cache
def library_version(name: str) -> str | None:
    """Return the version of an installed library; None if it is not installed."""
    try:
        return version(name)
    except PackageNotFoundError:
        return None


def differences(made: Mapping[str, Any], now: Mapping[str, Any]) -> list[str]:
    """Return how what made a result differs from what would make it now, in a few words each.

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


def checkpoint_differences(made: Mapping[str, Any] | None, now: Mapping[str, Any] | None = None) -> list[str]:
    """Return how what made a checkpoint differs from what would make it now; nothing if others than the suite made it.

    Args:
        now: by default what trains now, on whatever device.
    """
    different = differences(made, now or made_by(TRAINING, None)) if made else []
    return [f"checkpoint {difference}" for difference in different]


def best_device(wanted: str | None = None) -> "torch.device":
    """Return the named device; without a name (or with `auto`), the GPU where there is one, else the CPU.

    Raises:
        UserError: the named device is not available, or cannot compute.
    """
    import torch  # takes seconds, and verdicts are shown without it

    if wanted is None or wanted == "auto":
        return torch.device("cuda" if torch.cuda.is_available() else "cpu")
    try:
        device = torch.device(wanted)
        if device.type not in COMPUTING:
            raise RuntimeError(f"{device.type} is not one of {', '.join(COMPUTING)}")
        torch.empty(1, device=device)
    except (RuntimeError, AssertionError) as error:
        raise UserError(
            f"device {wanted!r} is not available: use --device cpu, or --device cuda on a machine with a GPU"
        ) from error
    return device


class SlowPrecisionWarning(UserWarning):
    """The device computes bfloat16 only by way of float32."""


def best_precision(wanted: str, device: "torch.device") -> Precision:
    """Return the precision of training: as wanted, or for `auto` bfloat16 where the device computes it natively."""
    if wanted == "auto":
        return "bfloat16" if native_bfloat16(device) else "float32"
    return "float32" if wanted == "float32" else "bfloat16"


def in_precision(settings: Params, wanted: str | None, device: "torch.device") -> Params:
    """Return settings with the precision of training: as wanted, or else as the settings say."""
    precision = best_precision(wanted or settings.finetune.precision, device)
    warn_of_slow(precision, device)
    return settings.model_copy(update={"finetune": settings.finetune.model_copy(update={"precision": precision})})


def warn_of_slow(precision: Precision, device: "torch.device") -> None:
    """Warn, and say how slow it is, where bfloat16 is wanted of a device that does not compute it natively."""
    if precision == "bfloat16" and not native_bfloat16(device):
        warnings.warn(
            f"this {device.type} has no instructions for bfloat16: its products take {bfloat16_cost(device):.1f} times "
            "as long as those of float32; --precision auto or float32 is faster",
            SlowPrecisionWarning,
            stacklevel=2,
        )


def native_bfloat16(device: "torch.device") -> bool:
    """Return whether a device computes bfloat16 natively: a GPU since Ampere, a CPU with AMX or AVX512-BF16."""
    import torch

    if device.type == "cuda":
        return torch.cuda.is_bf16_supported(including_emulation=False)
    return device.type == "cpu" and (torch.cpu._is_amx_tile_supported() or torch.cpu._is_avx512_bf16_supported())


@functools.cache
def bfloat16_cost(device: "torch.device") -> float:
    """Return how many times as long as in float32 a matrix product takes in bfloat16 (measured, some milliseconds)."""
    import torch

    def seconds(dtype: torch.dtype) -> float:
        matrix = torch.ones(512, 512, dtype=dtype, device=device)
        times = []
        for _ in range(3):
            began = time.perf_counter()
            (matrix @ matrix)[0, 0].item()  # waits for the device
            times.append(time.perf_counter() - began)
        return min(times)

    return seconds(torch.bfloat16) / seconds(torch.float32)


def device_name(device: "torch.device") -> str:
    """Return the name of a device, as a person reads it: with all that changes the last bits of a result.

    On a CPU these are its instruction set and the number of threads, which change the order of sums: always in
    training, and in measures for some shapes of inputs.
    """
    import torch

    if device.type == "cuda":
        return torch.cuda.get_device_name(device)
    name = f"CPU {torch.backends.cpu.get_cpu_capability()}" if device.type == "cpu" else device.type
    number = torch.get_num_threads()
    return f"{name}, {number} thread{'s' if number != 1 else ''}"
