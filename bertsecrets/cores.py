"""How many jobs run at once, and how many CPU threads each has: one rule for the command line, pytest and Python.

On a CPU, the number of threads is part of every cache key, so the three find each other's results only if they
have the same default.
"""

import os

import torch

MAX_DEFAULT_JOBS = 4  # each job holds a model and its data in memory
THREADS_AT_START = torch.get_num_threads()  # one per core, or OMP_NUM_THREADS


def share_cores(jobs: int | None, threads: int | None, device: torch.device) -> tuple[int, int]:
    """Return the number of parallel jobs and of CPU threads per job.

    By default, a GPU runs one job, and a CPU runs one job per core, at most 4, which share the cores. If the number of
    threads is set by the caller, OMP_NUM_THREADS or torch, as many jobs run as have enough cores, at most 4.

    Args:
        jobs: The number of jobs, if given.
        threads: The number of threads, if given.
        device: The device that computes.
    """
    if threads is None and (os.environ.get("OMP_NUM_THREADS") or torch.get_num_threads() != THREADS_AT_START):
        threads = torch.get_num_threads()
    cores = _core_count()
    if jobs is None:
        jobs = max(1, min(MAX_DEFAULT_JOBS, cores // (threads or 1))) if device.type == "cpu" else 1
    return jobs, threads or max(1, cores // jobs)


def _core_count() -> int:
    """Return the number of cores that this process may use; without OMP_NUM_THREADS, torch counts them."""
    if not os.environ.get("OMP_NUM_THREADS"):
        return THREADS_AT_START
    return len(os.sched_getaffinity(0)) if hasattr(os, "sched_getaffinity") else os.cpu_count() or 1
