"""Functions that choose step sizes to fit in memory, and that check whether a computation will have enough memory."""

import ctypes
import gc
import os
import sys
from collections.abc import Iterator
from contextlib import contextmanager
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import torch

from bertsecrets.errors import UserError, ran_out
from bertsecrets.progress import in_bytes

# Tokens per step. A CPU is fastest if the data fit in its caches, and a GPU needs large steps.
CPU_TOKENS, GPU_TOKENS = 2048, 65536
CPU_BYTES = 512 * 2**20  # maximum memory for a step on a CPU, because larger steps are not faster
MORE_MEMORY = "end other programs, or use a machine with more memory"
M_MMAP_THRESHOLD = -3  # option of GNU's mallopt; blocks above this size are requested from the system
LOWERED, DEFAULT = 16 * 2**20, 32 * 2**20  # bytes; lower values cost too many system calls


@dataclass
class Budget:
    """The maximum numbers of tokens that are computed in one step (`tokens`) and stored between layers (`kept`)."""

    tokens: int
    kept: int

    @classmethod
    def of(cls, device: torch.device, width: int) -> "Budget":
        """Return a budget that uses half of the free memory (on a CPU, at most `CPU_BYTES`).

        Args:
            width: Hidden size of the model. Computing one token takes about 24 float32 values per hidden unit.
        """
        gpu = device.type == "cuda"
        free = torch.cuda.mem_get_info(device)[0] // 2 if gpu else min(available_bytes() // 2, CPU_BYTES)
        tokens = max(1, min(GPU_TOKENS if gpu else CPU_TOKENS, free // (2 * 24 * 4 * width)))
        return cls(tokens, max(1, free // (2 * 4 * 3 * width)))

    def halve(self, error: BaseException) -> None:
        """Halve the budget if `error` says that memory ran out. Otherwise, re-raise the error."""
        if not ran_out(error):
            raise error
        if self.tokens == 1 and self.kept == 1:
            raise too_small(error) from error
        self.tokens, self.kept = max(1, self.tokens // 2), max(1, self.kept // 2)
        if torch.cuda.is_available():
            torch.cuda.empty_cache()


def too_small(error: BaseException) -> UserError:
    """Return the error to raise if an example does not fit in memory even by itself."""
    reason = next(iter(str(error).splitlines()), "out of memory")
    return UserError(f"not enough memory for a single example ({reason}): shorten the inputs, or use the device cpu")


@contextmanager
def return_large_blocks() -> Iterator[None]:
    """Until the `with` block ends, return large freed allocations to the system at once (only with the GNU C library).

    Otherwise, the heap grows with every new batch size, and training a small model takes over 3 GB.
    """
    mallopt = getattr(ctypes.CDLL(None), "mallopt", None) if sys.platform == "linux" else None
    if mallopt is None:
        yield
        return
    mallopt(M_MMAP_THRESHOLD, LOWERED)
    try:
        yield
    finally:
        mallopt(M_MMAP_THRESHOLD, DEFAULT)


def release_memory() -> None:
    """Return freed memory to the system and, on a GPU, to other processes. After training, over a gigabyte is freed."""
    gc.collect()
    if torch.cuda.is_initialized():
        torch.cuda.empty_cache()
    trim = getattr(ctypes.CDLL(None), "malloc_trim", None) if sys.platform == "linux" else None
    if trim is not None:
        trim(0)


def training_bytes(
    model: Any, rows: int, tokens: int, precision: str = "float32", device: str = "cpu", examples: int = 0
) -> int:
    """Return an estimate of the memory in bytes that training takes in addition to the model's weights.

    Each trained weight has a gradient and two moments of AdamW. For the backward pass, a layer stores three maps per
    head, and about 23 values per token and hidden unit if the feed-forward size is four times the hidden size. The
    estimate is slightly low, so that runs that just fit are not rejected: training MiniLM takes 5% more.

    Args:
        rows: Examples per batch.
        tokens: Number of tokens in the longest example.
        precision: Training precision, float32 or bfloat16.
        device: Type of the device.
        examples: Number of training examples, whose features are stored if the encoder is frozen.
    """
    width, heads, layers = (
        getattr(model.config, name, None) or 0  # if a size is unknown, only weights count
        for name in ("hidden_size", "num_attention_heads", "num_hidden_layers")
    )
    trained = sum(weight.numel() for weight in model.parameters() if weight.requires_grad)
    if not any(weight.requires_grad for weight in model.base_model.parameters()):
        return 4 * (3 * trained + examples * width)
    layer = 4 * rows * tokens * (23 * width + 3 * heads * tokens)
    needed = 4 * 3 * trained + layers * layer
    return needed // 2 if precision == "bfloat16" and device == "cuda" else needed


def check_memory(what: str, needed: int, device: torch.device, advice: str) -> None:
    """Before an operation begins, raise an error if it needs more memory than is free."""
    free = torch.cuda.mem_get_info(device)[0] if device.type == "cuda" else available_bytes()
    if needed > free:
        raise UserError(f"{what} needs about {in_bytes(needed)} of memory, but only {in_bytes(free)} is free: {advice}")


@contextmanager
def explain_out_of_memory(what: str, needed: int | None) -> Iterator[None]:
    """Turn an out-of-memory error in the `with` block into a one-line error that gives `needed` if it is known."""
    try:
        yield
    except Exception as error:
        if not (ran_out(error) or (error.__cause__ is not None and ran_out(error.__cause__))):
            raise
        about = f" (it needs about {in_bytes(needed)})" if needed else ""
        raise UserError(f"{what} ran out of memory{about}: {MORE_MEMORY}") from error


def available_bytes() -> int:
    """Return how many bytes of memory are free, taking the memory limit of a container into account.

    If the amount of free memory is unknown, it is assumed to be 2 GiB.
    """
    free = 2**31
    try:
        lines = Path("/proc/meminfo").read_text(encoding="ascii").splitlines()
        free = next((int(line.split()[1]) * 1024 for line in lines if line.startswith("MemAvailable")), free)
    except OSError:
        if "SC_AVPHYS_PAGES" in os.sysconf_names:
            free = os.sysconf("SC_AVPHYS_PAGES") * os.sysconf("SC_PAGE_SIZE")
    group = Path("/sys/fs/cgroup")
    try:
        limit, used = ((group / name).read_text(encoding="ascii").strip() for name in ("memory.max", "memory.current"))
        return free if limit == "max" else min(free, max(0, int(limit) - int(used)))
    except (OSError, ValueError):
        return free
