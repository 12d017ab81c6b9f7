"""What a result depends on besides data and weights: software and device."""

import functools
import platform
from importlib.metadata import version

import torch

from bertsecrets.errors import UserError

COMPUTING = ("cpu", "cuda", "mps")  # kinds of device; `meta` and its like can be named, but compute nothing


@functools.cache
def software() -> dict[str, str]:
    """Return the versions of what computes."""
    from bertsecrets import __version__

    names = ("torch", "transformers", "tokenizers", "datasets", "numpy", "scipy")
    return {"python": platform.python_version(), "bertsecrets": __version__, **{n: version(n) for n in names}}


def best_device(wanted: str | None = None) -> torch.device:
    """Return the device named, or the GPU where there is one, else the CPU.

    Raises:
        UserError: the named device is not there, or computes nothing.
    """
    if wanted is None or wanted == "auto":
        return torch.device("cuda" if torch.cuda.is_available() else "cpu")
    try:
        device = torch.device(wanted)
        if device.type not in COMPUTING:
            raise RuntimeError(f"{device.type} is none of {', '.join(COMPUTING)}")
        torch.empty(1, device=device)
    except (RuntimeError, AssertionError) as error:
        raise UserError(f"no device {wanted!r} here: use --device cpu, or cuda where a GPU is present") from error
    return device


def device_name(device: torch.device) -> str:
    """Return a device in words."""
    if device.type == "cuda":
        return torch.cuda.get_device_name(device)
    return f"{device.type} ({torch.get_num_threads()} threads)"
