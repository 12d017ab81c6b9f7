"""The number of parallel jobs and of CPU threads per job, for the command line, pytest and Python.

On a CPU, the number of threads is part of every cache key. The default must therefore be the same everywhere, or
results stored by the command line would not be found by pytest or Python.
"""

import os

import torch

MAX_DEFAULT_JOBS = 4  # each job holds a model and its data in memory
THREADS_AT_START = torch.get_num_threads()  # one per core, or OMP_NUM_THREADS
_LAST_USED: list[int] = []  # the last number that `use_threads` set, if any


def share_cores(jobs: int | None, threads: int | None, device: torch.device) -> tuple[int, int]:
    """Return the number of parallel jobs and of CPU threads per job.

    By default, a GPU runs one job, and a CPU runs one job per core, up to 4 jobs. The jobs share the CPU cores equally.
    If the number of threads per job is already set, a CPU runs up to 4 jobs, but only as many as fit on its cores. The
    number of threads can be set by the caller, in OMP_NUM_THREADS or in torch.
    """
    own = (THREADS_AT_START, *_LAST_USED)
    if threads is None and (os.environ.get("OMP_NUM_THREADS") or torch.get_num_threads() not in own):
        threads = torch.get_num_threads()
    cores = _core_count()
    if jobs is None:
        jobs = max(1, min(MAX_DEFAULT_JOBS, cores // (threads or 1))) if device.type == "cpu" else 1
    return jobs, threads or max(1, cores // jobs)


def use_threads(threads: int) -> None:
    """Set torch's number of CPU threads. `share_cores` does not mistake a number set here for a user's choice."""
    torch.set_num_threads(threads)
    _LAST_USED[:] = [threads]


def _core_count() -> int:
    """Return the number of cores that this process may use. Unless OMP_NUM_THREADS is set, torch counts the cores."""
    if not os.environ.get("OMP_NUM_THREADS"):
        return THREADS_AT_START
    return len(os.sched_getaffinity(0)) if hasattr(os, "sched_getaffinity") else os.cpu_count() or 1
