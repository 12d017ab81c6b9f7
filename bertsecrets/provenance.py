"""The software and the device that a result depends on, besides data and weights."""

import functools
import platform
from importlib.metadata import version

import torch

from bertsecrets.errors import UserError

COMPUTING = ("cpu", "cuda", "mps")  # kinds of device that compute; torch also knows `meta` and others that do not


@functools.cache
def software() -> dict[str, str]:
    """Return the versions of Python, of this package and of the libraries that results depend on."""
    from bertsecrets import __version__

    names = ("torch", "transformers", "tokenizers", "datasets", "numpy", "scipy")
    return {"python": platform.python_version(), "bertsecrets": __version__, **{n: version(n) for n in names}}


def best_device(wanted: str | None = None) -> torch.device:
    """Return the named device; without a name (or with `auto`), the GPU where there is one, else the CPU.

    Raises:
        UserError: the named device is not available, or cannot compute.
    """
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


def device_name(device: torch.device) -> str:
    """Return the name of a device, as a person reads it."""
    if device.type == "cuda":
        return torch.cuda.get_device_name(device)
    return f"{device.type} ({torch.get_num_threads()} threads)"
