"""Trainings that are killed at chosen places, as a program: `killed_training.py KILLS COMMAND...`.

KILLS is JSON: a list of [place, step], one for each run. `step`: before this step; `saving`: while its state is being
written; `cleaning`: before the older states are removed; `end`: never. Each run is a process of its own, forked from
this one once everything is imported, which a SIGKILL ends. The runs' standard error is printed.
"""

import gc
import json
import math
import os
import signal
import sys

import torch

from bertsecrets.cli.main import main
from bertsecrets.models.training import loop, states
from bertsecrets.session import Session

assert Session  # imported once, for all runs


def die(*_args, **_more) -> None:
    os.kill(os.getpid(), signal.SIGKILL)


def run(place: str, step: int, command: list[str]) -> int:
    """Run the command, killed at the place; a state is saved after every step."""
    loop.SAVING_SHARE = math.inf
    take_step, write_manifest, rmtree = (
        loop.Training.take_step, states.write_manifest, states.shutil.rmtree,
    )  # fmt: skip

    def step_or_die(self):
        return die() if (place, step) == ("step", self.step) else take_step(self)

    def write_or_die(folder, facts):
        return die() if (place, step) == ("saving", facts.get("step")) else write_manifest(folder, facts)

    def clean_or_die(folder, **more):
        return die() if place == "cleaning" and "training" in str(folder) else rmtree(folder, **more)

    loop.Training.take_step, states.write_manifest = step_or_die, write_or_die
    states.shutil.rmtree = clean_or_die
    return main(command)


if __name__ == "__main__":
    torch.set_num_threads(1)
    gc.freeze()
    for place, step in json.loads(sys.argv[1]):
        child = os.fork()
        if child == 0:
            code = run(place, step, sys.argv[2:])
            sys.stdout.flush()
            sys.stderr.flush()
            os._exit(code)
        _, status = os.waitpid(child, 0)
        print("ended", os.waitstatus_to_exitcode(status), flush=True)
