"""How much is computed at a time: a number of tokens from the available memory, halved whenever that was too much."""

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

from bertsecrets.errors import UserError

# Tokens per step: a CPU is fastest if the data fit into its caches; a GPU needs many at a time.
CPU_TOKENS, GPU_TOKENS = 2048, 65536
M_MMAP_THRESHOLD = -3  # option of GNU's mallopt: blocks from this size on are requested from the system
APART, USUAL = 16 * 2**20, 32 * 2**20  # bytes; each request to the system takes time, so the size is not smaller
OUT_OF_MEMORY = ("can't allocate memory", "cannot allocate memory", "unable to mmap", "std::bad_alloc")
MORE_MEMORY = "end other programs, or use a machine with more memory"
CPU_BYTES = 512 * 2**20  # more memory makes a CPU no faster


@dataclass
class Budget:
    """The number of tokens that one step computes (`tokens`), and that are kept between layers (`kept`)."""

    tokens: int
    kept: int

    @classmethod
    def of(cls, device: torch.device, width: int) -> "Budget":
        """Return the budget that fits into half of the free memory.

        Args:
            width: the model's hidden size; computing a token takes about 24 times as many float32 values.
        """
        gpu = device.type == "cuda"
        free = torch.cuda.mem_get_info(device)[0] // 2 if gpu else min(available_bytes() // 2, CPU_BYTES)
        tokens = max(1, min(GPU_TOKENS if gpu else CPU_TOKENS, free // (2 * 24 * 4 * width)))
        return cls(tokens, max(1, free // (2 * 4 * 3 * width)))

    def halve(self, error: BaseException) -> None:
        """Halve the budget, because memory ran out.

        Raises:
            UserError: not even one example with one set of heads fits.
            BaseException: the given error, if it has another cause.
        """
        if not ran_out(error):
            raise error
        if self.tokens == 1 and self.kept == 1:
            raise too_small(error) from error
        self.tokens, self.kept = max(1, self.tokens // 2), max(1, self.kept // 2)
        if torch.cuda.is_available():
            torch.cuda.empty_cache()


def too_small(error: BaseException) -> UserError:
    """Return the error for a single example that does not fit into memory."""
    reason = next(iter(str(error).splitlines()), "out of memory")
    return UserError(f"not enough memory for a single example ({reason}): cut inputs shorter, or use --device cpu")


def ran_out(error: BaseException) -> bool:
    """Return whether an error says that memory ran out; torch has a class for it on GPUs, on CPUs only a message."""
    said = str(error).lower()
    return isinstance(error, torch.OutOfMemoryError | MemoryError) or any(words in said for words in OUT_OF_MEMORY)


@contextmanager
def large_blocks_apart() -> Iterator[None]:
    """Make freed large blocks of memory return to the system at once within the block, if the C library is GNU's.

    Otherwise its heap grows with every new size of batch, and the training of a small model takes over 3 GB. Only the
    place of numbers in memory changes, never the numbers.
    """
    mallopt = getattr(ctypes.CDLL(None), "mallopt", None) if sys.platform == "linux" else None
    if mallopt is None:
        yield
        return
    mallopt(M_MMAP_THRESHOLD, APART)
    try:
        yield
    finally:
        mallopt(M_MMAP_THRESHOLD, USUAL)


def give_back() -> None:
    """Return freed memory to the system, if the C library can, and to other processes on the GPU.

    After training this process would keep over a gigabyte.
    """
    gc.collect()
    if torch.cuda.is_initialized():
        torch.cuda.empty_cache()
    trim = getattr(ctypes.CDLL(None), "malloc_trim", None) if sys.platform == "linux" else None
    if trim is not None:
        trim(0)


def training_bytes(
    model: Any, rows: int, tokens: int, precision: str = "float32", device: str = "cpu", examples: int = 0
) -> int:
    """Return about how much memory a training takes besides the model's weights, in bytes.

    Each trained weight has a gradient and AdamW's two moments. For the backward pass a layer keeps about 23 numbers per
    token and hidden unit (with a feed-forward network of four times the hidden size), and per head three maps. With
    these numbers MiniLM's training takes 1.05 times the estimate, so what would just fit is not refused.

    Args:
        rows: examples per batch.
        tokens: of the longest example.
        precision: of the training: float32 or bfloat16.
        device: its kind.
        examples: of the training split; a frozen encoder's features of all of them are kept.
    """
    config = model.config
    trained = sum(weight.numel() for weight in model.parameters() if weight.requires_grad)
    if not any(weight.requires_grad for weight in model.base_model.parameters()):
        return 4 * (3 * trained + examples * config.hidden_size)
    layer = 4 * rows * tokens * (23 * config.hidden_size + 3 * config.num_attention_heads * tokens)
    needed = 4 * 3 * trained + config.num_hidden_layers * layer
    return needed // 2 if precision == "bfloat16" and device == "cuda" else needed


def check_memory(what: str, needed: int, device: torch.device, advice: str) -> None:
    """Make sure, before long work, that memory is large enough.

    Raises:
        UserError: it is not.
    """
    free = torch.cuda.mem_get_info(device)[0] if device.type == "cuda" else available_bytes()
    if needed > free:
        raise UserError(f"{what} needs about {_gb(needed)} of memory, {_gb(free)} are free: {advice}")


@contextmanager
def memory_errors_in_words(what: str, needed: int | None) -> Iterator[None]:
    """Turn an error about memory that ran out within the block into one line that says how much is needed.

    Args:
        needed: in bytes; None where it is not known.

    Raises:
        UserError: memory ran out.
    """
    try:
        yield
    except Exception as error:
        if not (ran_out(error) or (error.__cause__ is not None and ran_out(error.__cause__))):
            raise
        about = f"about {_gb(needed)} of memory" if needed else "more memory"
        raise UserError(f"{what} needs {about}; it ran out: {MORE_MEMORY}") from error


def _gb(size: float) -> str:
    return f"{size / 1e9:.1f} GB" if size >= 1e8 else f"{size / 1e6:.1f} MB"


def available_bytes() -> int:
    """Return the memory that this process can still have, in bytes; 2 GiB if unknown.

    It is limited by the machine, the container, and the process's own limit of addresses (`ulimit -v`).
    """
    free = [2**31]
    try:
        lines = Path("/proc/meminfo").read_text(encoding="ascii").splitlines()
        free = [int(line.split()[1]) * 1024 for line in lines if line.startswith("MemAvailable")] or free
    except OSError:
        if "SC_AVPHYS_PAGES" in os.sysconf_names:
            free = [os.sysconf("SC_AVPHYS_PAGES") * os.sysconf("SC_PAGE_SIZE")]
    group = Path("/sys/fs/cgroup")
    try:
        limit = (group / "memory.max").read_text(encoding="ascii").strip()
        if limit != "max":
            free.append(max(0, int(limit) - int((group / "memory.current").read_text(encoding="ascii"))))
    except (OSError, ValueError):
        pass
    limit_of_addresses = _free_addresses()
    return min([*free, limit_of_addresses] if limit_of_addresses is not None else free)


def _free_addresses() -> int | None:
    """Return how much of the process's limit of addresses is left, in bytes; None where there is no limit."""
    try:
        import resource

        limit = resource.getrlimit(resource.RLIMIT_AS)[0]
        if limit == resource.RLIM_INFINITY:
            return None
        used = int(Path("/proc/self/statm").read_text(encoding="ascii").split()[0]) * resource.getpagesize()
    except (ImportError, OSError, ValueError):
        return None
    return max(0, limit - used)
