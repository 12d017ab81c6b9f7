"""How much is computed at once: token places from the memory there is, halved whenever it was too much."""

import ctypes
import gc
import os
import sys
from collections.abc import Iterator
from contextlib import contextmanager
from dataclasses import dataclass
from pathlib import Path

import torch

from bertsecrets.errors import UserError

# A CPU works fastest on what stays near its caches; a GPU wants to be full.
CPU_TOKENS, GPU_TOKENS = 2048, 65536
M_MMAP_THRESHOLD = -3  # GNU's name for the size from which a block is the system's
APART, USUAL = 16 * 2**20, 32 * 2**20  # bytes; to get a block from the system costs time, smaller ones too often
CPU_BYTES = 512 * 2**20  # more brings nothing on a CPU


@dataclass
class Budget:
    """How many token places one step computes (`tokens`), and how many are kept between layers (`kept`)."""

    tokens: int
    kept: int

    @classmethod
    def of(cls, device: torch.device, width: int) -> "Budget":
        """What fits into half of the free memory.

        Args:
            width: the model's hidden size; a token place in work takes about 24 times as many float32 values.
        """
        gpu = device.type == "cuda"
        free = torch.cuda.mem_get_info(device)[0] // 2 if gpu else min(available_bytes() // 2, CPU_BYTES)
        tokens = max(1, min(GPU_TOKENS if gpu else CPU_TOKENS, free // (2 * 24 * 4 * width)))
        return cls(tokens, max(1, free // (2 * 4 * 3 * width)))

    def halve(self, error: BaseException) -> None:
        """Take half as much from now on, because memory ran out.

        Raises:
            UserError: not even one example with one set of heads fits.
            BaseException: the error itself, where it is another one.
        """
        if not ran_out(error):
            raise error
        if self.tokens == 1 and self.kept == 1:
            raise too_small(error) from error
        self.tokens, self.kept = max(1, self.tokens // 2), max(1, self.kept // 2)
        if torch.cuda.is_available():
            torch.cuda.empty_cache()


def too_small(error: BaseException) -> UserError:
    """What to say where not even one example fits."""
    said = next(iter(str(error).splitlines()), "out of memory")
    return UserError(f"not enough memory for a single example ({said}): cut inputs shorter, or use --device cpu")


def ran_out(error: BaseException) -> bool:
    """Whether an error says that memory ran out: torch has a class for it on a GPU, and only words on a CPU."""
    return isinstance(error, torch.OutOfMemoryError | MemoryError) or "can't allocate memory" in str(error)


@contextmanager
def large_blocks_apart() -> Iterator[None]:
    """Within it, large blocks come from the system and go back when freed, where the C library is GNU's.

    Else its heap grows with every size of batch that training meets, and a small model takes over 3 GB. It changes
    where numbers lie, never the numbers.
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
    """Hand freed memory back to the system, where the C library can: after training it keeps over a gigabyte."""
    gc.collect()
    trim = getattr(ctypes.CDLL(None), "malloc_trim", None) if sys.platform == "linux" else None
    if trim is not None:
        trim(0)


def available_bytes() -> int:
    """Memory that may still be used on this machine, or in this container; 2 GiB where nobody says."""
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
    return min(free)
