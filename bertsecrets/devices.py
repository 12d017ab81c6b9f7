"""The device and the precision of computations, and other settings that affect the last digits of results.

This module is part of every code digest (`bertsecrets.store.code`), and `device_name` is part of every cache key.
"""

import os
import re
import warnings
from typing import TYPE_CHECKING, Any

from bertsecrets.errors import UserError
from bertsecrets.settings import Params
from bertsecrets.types import Precision

if TYPE_CHECKING:
    import torch

DEVICE_TYPES = ("cpu", "cuda", "mps")  # types of devices that can compute, which excludes `meta`
# Environment variables that change the arithmetic of torch, numpy and their libraries. Variables for the number of
# threads are excluded, because this number is part of a device's name. Variables for messages are also excluded.
ARITHMETIC_VARIABLES = re.compile(
    r"(MKL|ONEDNN|DNNL|OPENBLAS|FBGEMM)_\w+|NPY_(DISABLE|ENABLE)_CPU_FEATURES|CUBLAS_WORKSPACE_CONFIG"
    r"|NVIDIA_TF32_OVERRIDE|TORCH_ALLOW_TF32_CUBLAS_OVERRIDE|TORCH_(BLAS|LINALG)_PREFER_\w+|TORCH_CUDNN_\w+"
    r"|PYTORCH_MPS_(FAST_MATH|PREFER_METAL)"
)
HARMLESS_VARIABLES = re.compile(r"\w+_(NUM_THREADS|DYNAMIC|VERBOSE\w*|DEBUG|LOG\w*)")


def best_device(wanted: str | None = None) -> "torch.device":
    """Return the device named `wanted`. None and `auto` select the GPU if there is one, otherwise the CPU.

    On a GPU, PyTorch is restricted to its memory-efficient attention. On Hopper, PyTorch would otherwise choose cuDNN's
    attention, which builds a plan for every new shape, and almost every batch has a new shape. Flash attention is
    excluded because its gradients are not reproducible.
    """
    import torch  # slow to import, and not needed to show verdicts

    if wanted is None or wanted == "auto":
        wanted = "cuda" if torch.cuda.is_available() else "cpu"
    try:
        device = torch.device(wanted)
        if device.type not in DEVICE_TYPES:
            raise RuntimeError(f"{device.type} is not one of {', '.join(DEVICE_TYPES)}")
        torch.empty(1, device=device)
    except (RuntimeError, AssertionError) as error:
        raise UserError(f"device {wanted!r} is not available: use cpu, or cuda on a machine with a GPU") from error
    if device.type == "cuda":
        torch.backends.cuda.enable_cudnn_sdp(False)
        torch.backends.cuda.enable_flash_sdp(False)
    return device


class SlowPrecisionWarning(UserWarning):
    """A warning that the device only emulates bfloat16, which is slow."""


def best_precision(wanted: str, device: "torch.device") -> Precision:
    """Return the training precision; `auto` selects bfloat16 if the device supports it natively, otherwise float32."""
    return "bfloat16" if wanted == "bfloat16" or (wanted == "auto" and native_bfloat16(device)) else "float32"


def in_precision(settings: Params, wanted: str | None, device: "torch.device") -> Params:
    """Return the settings with a concrete training precision instead of `auto`. If given, `wanted` takes precedence.

    Warns if the precision is bfloat16 and the device does not support it natively.
    """
    precision = best_precision(wanted or settings.finetune.precision, device)
    if precision == "bfloat16" and not native_bfloat16(device):
        warnings.warn(
            f"this {device.type} device has no bfloat16 instructions, so training in bfloat16 is slower than in "
            "float32: use precision auto or float32",
            SlowPrecisionWarning,
            stacklevel=2,
        )
    return settings.model_copy(update={"finetune": settings.finetune.model_copy(update={"precision": precision})})


def native_bfloat16(device: "torch.device") -> bool:
    """Return whether a device supports bfloat16 natively, as do GPUs since Ampere and CPUs with AMX or AVX512-BF16."""
    import torch

    if device.type == "cuda":
        return torch.cuda.is_bf16_supported(including_emulation=False)
    return device.type == "cpu" and (torch.cpu._is_amx_tile_supported() or torch.cpu._is_avx512_bf16_supported())


def device_name(device: "torch.device") -> str:
    """Return a text with the device's name and everything else that affects the last digits of a result.

    On a CPU, the text includes the instruction set and the number of threads, which change the order of summation.
    Environment variables and settings of torch that change the arithmetic are also included.
    """
    import torch

    if device.type == "cuda":
        parts = [torch.cuda.get_device_name(device)]
    else:
        number = torch.get_num_threads()
        parts = [f"CPU {torch.backends.cpu.get_cpu_capability()}" if device.type == "cpu" else device.type]
        parts.append(f"{number} thread{'s' if number != 1 else ''}")
    return ", ".join([*parts, *_environment(), *_flags(device)])


def _environment() -> list[str]:
    names = sorted(filter(ARITHMETIC_VARIABLES.fullmatch, os.environ))
    return [f"{name}={os.environ[name]}" for name in names if not HARMLESS_VARIABLES.fullmatch(name)]


def _flags(device: "torch.device") -> list[str]:
    """Return torch's arithmetic settings that differ from their defaults, except those that `best_device` changes."""
    import torch
    from torch.backends import cuda, cudnn, mha, mkldnn

    matmul = cuda.matmul
    values = {
        "deterministic algorithms": (torch.are_deterministic_algorithms_enabled(), False),
        "default dtype": (torch.get_default_dtype(), torch.float32),
        "flush denormals": (not float(torch.tensor(1e-38, device="cpu") * 1e-3), False),
        "transformer fast path": (mha.get_fastpath_enabled(), True),
        "math attention": (cuda.math_sdp_enabled(), True),
        "memory-efficient attention": (cuda.mem_efficient_sdp_enabled(), True),
        "flash attention": (device.type == "cuda" or cuda.flash_sdp_enabled(), True),
        "oneDNN": (mkldnn.enabled, True),
        "oneDNN deterministic": (mkldnn.deterministic, False),
        "cuDNN": (cudnn.enabled, True),
        "cuDNN deterministic": (cudnn.deterministic, False),
        "cuDNN benchmark": (cudnn.benchmark, False),
        "fp16 accumulation": (matmul.allow_fp16_accumulation, False),
        "fp16 reduction": (matmul.allow_fp16_reduced_precision_reduction, True),
        "bf16 reduction": (matmul.allow_bf16_reduced_precision_reduction, True),
        **{f"oneDNN {name} precision": (_exact(getattr(mkldnn, name)), "ieee") for name in ("matmul", "conv", "rnn")},
        "CUDA matmul precision": (_exact(matmul), "ieee"),
        **{f"cuDNN {name} precision": (_exact(getattr(cudnn, name)), "tf32") for name in ("conv", "rnn")},
    }
    return [f"{name} {value}" for name, (value, default) in values.items() if value != default]


def _exact(operation: Any) -> str:
    """Return the precision of float32 products in a backend's operation, such as `tf32`, or `ieee` if none was set."""
    return "ieee" if operation.fp32_precision == "none" else operation.fp32_precision
