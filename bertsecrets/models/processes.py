"""The processes that train one checkpoint together, as `accelerate launch` or `torchrun` start them.

Each takes its share of every batch, and all add up their gradients, so that after every step all have the same weights.
The main process does everything else: the others wait until it calls them to a training.
"""

import os
from collections.abc import Iterable, Iterator
from contextlib import contextmanager, suppress
from datetime import timedelta
from typing import Any, TypeVar

import numpy as np
import torch
from torch import distributed

from bertsecrets.errors import RunError, UserError, first_line
from bertsecrets.extras import from_extra
from bertsecrets.provenance import best_device

T = TypeVar("T")
PATIENCE = timedelta(days=30)  # the main process may measure for long; one that has ended is noticed at once
FAILED = 2  # exit code of processes whose main one has failed


class LostError(RunError):
    """Another of the processes that train together has ended."""


class Processes:
    """How many processes train together, and which of them this is, counted from 0: the main one.

    A call to a training is over when all have taken every step, or when all have raised the same error. Where one of
    them fails in between, the others can no longer be talked to.
    """

    def __init__(self, count: int = 1, number: int = 0):
        self.count, self.number = count, number
        self.called = False  # to a training that is not over

    @property
    def main(self) -> bool:
        """Whether this is the main process."""
        return self.number == 0

    # ------------------------------------------------------------------ of a training

    def share(self, rows: list[int]) -> tuple[list[int], float]:
        """Return the rows of a batch that this process takes, and what part of the batch they are.

        Where there are fewer rows than processes, one that has none takes the first, which counts for nothing.

        >>> [Processes(2, number).share([7, 8, 9]) for number in range(2)]
        [([7, 9], 0.6666666666666666), ([8], 0.3333333333333333)]
        """
        own = rows[self.number :: self.count]
        return own or rows[:1], len(own) / len(rows)

    def seed(self, seed: int, *more: int) -> int:
        """Return the seed of this process: in the main one that of a training by one process."""
        return seed if self.main else int(np.random.SeedSequence([seed, self.number, *more]).generate_state(1)[0])

    def add_up(self, tensors: Iterable[torch.Tensor]) -> None:
        """Replace each tensor by the sum of all processes', in place."""
        if self.count > 1:
            with _connected():
                for work in [distributed.all_reduce(tensor, async_op=True) for tensor in tensors]:
                    work.wait()

    def from_main(self, value: T) -> T:
        """Return the main process's value."""
        if self.count == 1:
            return value
        from accelerate.utils import broadcast_object_list

        with _connected():
            return broadcast_object_list([value])[0]

    @contextmanager
    def at_one(self) -> Iterator[None]:
        """Do the block in all processes that were called; where it fails in one, all raise what is wrong.

        Raises:
            UserError: it has failed in another process.
        """
        problem = None
        try:
            yield
        except Exception as error:
            problem = error
        self._settle(problem)

    def over(self) -> None:
        """Note that the training is over in all processes, well or not."""
        self.called = False

    # ------------------------------------------------------------------ of a run

    def call(self, to: Any) -> None:
        """Call the other processes to a training, and wait until they are `at_one` about what they need for it.

        Raises:
            UserError: one of them cannot take part.
        """
        if self.count == 1:
            return
        if self.called:
            raise LostError("the processes that train together stopped in the last training: run the command again")
        self.called = True
        self.from_main(to)
        self._settle(None)

    def waited_for(self) -> Any:
        """Return what the main process calls this one to: a training, or an exit code at its end."""
        call = self.from_main(None)
        self.called = not isinstance(call, int)
        return call

    def _settle(self, problem: Exception | None) -> None:
        """Raise this process's problem, or else the first that any has."""
        others: list[str | None] = []
        if self.count > 1:
            from accelerate.utils import gather_object

            with _connected():
                others = gather_object([None if problem is None else first_line(problem)])
        if problem is not None or any(others):
            self.over()
            raise problem or next(
                UserError(f"process {number} of {self.count}: {told}")
                for number, told in enumerate(others, start=1)
                if told
            )


ALONE = Processes()
_current = ALONE


def current() -> Processes:
    """Return the processes that this one was started with, if it has joined them; otherwise this one alone."""
    return _current


@contextmanager
def joined(device: str | None) -> Iterator[Processes]:
    """Join the processes that a launcher has started, inside the block; at its end the main one lets the others go.

    Args:
        device: that `--device` names.

    Raises:
        UserError: they do not reach each other, or there is no device for each.
    """
    global _current
    with from_extra("accelerate"):
        from accelerate import PartialState
    wanted = best_device(device)
    _check_device(wanted)
    backend = "gloo" if wanted.type == "cpu" else "cpu:gloo,cuda:nccl"
    try:
        state = PartialState(cpu=wanted.type == "cpu", backend=backend, timeout=PATIENCE)
    except (RuntimeError, ValueError, OSError) as error:
        where = f"{os.environ.get('MASTER_ADDR')}:{os.environ.get('MASTER_PORT')}"
        raise UserError(f"the processes do not reach each other at {where} ({first_line(error)})") from error
    _current = processes = Processes(state.num_processes, state.process_index)
    code = FAILED
    try:
        yield processes
        code = 0
    finally:
        _current = ALONE
        if not processes.called:
            with suppress(LostError):
                if processes.main:
                    processes.from_main(code)
                state.destroy_process_group()


def _check_device(device: torch.device) -> None:
    if device.type not in ("cpu", "cuda") or device.index is not None:
        raise UserError(f"--device {device} is not for several processes: give cpu, or cuda, so that each has a GPU")
    if device.type == "cuda" and int(os.environ["LOCAL_RANK"]) >= torch.cuda.device_count():
        raise UserError(f"there are more processes on this machine than GPUs ({torch.cuda.device_count()})")


@contextmanager
def _connected() -> Iterator[None]:
    """Turn the failure of a block in which processes talk to each other into one line.

    Raises:
        LostError: another process has ended.
    """
    try:
        yield
    except (RuntimeError, OSError) as error:
        raise LostError(f"another of the processes that train together has ended ({first_line(error)})") from error
