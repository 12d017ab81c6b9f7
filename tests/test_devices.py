"""The device in cache keys: every setting of torch that changes the last digits is part of it."""

from collections.abc import Callable
from contextlib import AbstractContextManager, contextmanager
from typing import Any

import pytest
import torch
from torch.backends import ContextProp, PropModule, cuda, cudnn, mha, mkldnn
from torch.nn.attention import SDPBackend, sdpa_kernel

from bertsecrets.devices import device_name

CPU = torch.device("cpu")


@contextmanager
def attribute(owner: Any, name: str, value: Any):
    before = getattr(owner, name)
    try:
        setattr(owner, name, value)
        yield
    finally:
        setattr(owner, name, before)


@contextmanager
def switched(switch: Callable[[Any], Any], value: Any, before: Any):
    try:
        switch(value)
        yield
    finally:
        switch(before)


SETTINGS: dict[str, Callable[[], AbstractContextManager[Any]]] = {
    "flush denormals True": lambda: switched(torch.set_flush_denormal, True, False),
    "default dtype torch.float64": lambda: switched(torch.set_default_dtype, torch.float64, torch.float32),
    "deterministic algorithms True": lambda: switched(torch.use_deterministic_algorithms, True, False),
    "oneDNN matmul precision bf16": lambda: attribute(mkldnn.matmul, "fp32_precision", "bf16"),
    "oneDNN conv precision tf32": lambda: attribute(torch.backends, "fp32_precision", "tf32"),
    "CUDA matmul precision tf32": lambda: attribute(cuda.matmul, "fp32_precision", "tf32"),
    "cuDNN conv precision ieee": lambda: attribute(cudnn.conv, "fp32_precision", "ieee"),
    "oneDNN False": lambda: attribute(mkldnn, "enabled", False),
    "oneDNN deterministic True": lambda: attribute(mkldnn, "deterministic", True),
    "cuDNN False": lambda: attribute(cudnn, "enabled", False),
    "cuDNN deterministic True": lambda: attribute(cudnn, "deterministic", True),
    "cuDNN benchmark True": lambda: attribute(cudnn, "benchmark", True),
    "flash attention False": lambda: sdpa_kernel(SDPBackend.MATH),
    "math attention False": lambda: sdpa_kernel(SDPBackend.FLASH_ATTENTION),
    "transformer fast path False": lambda: switched(mha.set_fastpath_enabled, False, True),
    "fp16 accumulation True": lambda: attribute(cuda.matmul, "allow_fp16_accumulation", True),
    "fp16 reduction False": lambda: attribute(cuda.matmul, "allow_fp16_reduced_precision_reduction", False),
    "bf16 reduction False": lambda: attribute(cuda.matmul, "allow_bf16_reduced_precision_reduction", False),
}
# Properties of torch.backends that change no result here: other devices, aliases of the settings above.
OTHERS = {"miopen.immediate", "python_native.all_dsls", "python_native.available_dsls", "cudnn.depthwise_kernel"}
ALIASES = {f"{name}.{alias}" for name in ("mkldnn", "cudnn", "backends") for alias in ("allow_tf32", "fp32_precision")}


@pytest.mark.parametrize("text", SETTINGS)
def test_a_setting_of_torch_is_part_of_the_device(text):
    plain = device_name(CPU)
    with SETTINGS[text]():
        assert text in device_name(CPU).split(", ")
    assert device_name(CPU) == plain


def test_every_property_of_the_backends_is_a_setting_or_known_to_change_nothing():
    modules = {module for module in vars(torch.backends).values() if isinstance(module, PropModule)}
    names = {
        f"{module.__name__.rpartition('.')[2]}.{name}"
        for module in modules
        for kind in type(module).__mro__
        for name, value in vars(kind).items()
        if isinstance(value, ContextProp | property)
    }
    covered = {"mkldnn.enabled", "mkldnn.deterministic", "cudnn.enabled", "cudnn.deterministic", "cudnn.benchmark"}
    assert not names - OTHERS - ALIASES - covered
