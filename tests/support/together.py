"""Trainings by several processes that a test has started, each of which notes what it has seen."""

import os
import socket
import subprocess
import sys
from pathlib import Path

import torch

from bertsecrets.models import finetune as finetuning
from bertsecrets.models.loading import open_classifier
from bertsecrets.models.locations import locate
from bertsecrets.models.processes import ALONE, LostError, joined
from bertsecrets.settings import FinetuneParams
from bertsecrets.texts.glue import load_folder
from bertsecrets.texts.tasks import task

ROOT = Path(__file__).parents[2]
SETTINGS = FinetuneParams(
    batch_size=6, epochs=2, learning_rate=1e-3, frozen_learning_rate=1e-2, warmup=0.1, weight_decay=0.01,
    max_gradient_norm=1.0, max_length=64, precision="float32", save_every=0.0001,
)  # fmt: skip
# The corpus has 64 rows: the last batch of 6 has 4 rows, that of 21 has a single one.
CASES = {
    "pretrained": ("pretrained", {}),
    "random": ("random", {}),
    "one row left": ("pretrained", {"batch_size": 21}),
    "bfloat16": ("pretrained", {"precision": "bfloat16"}),
}


class Stopped(Exception):
    """A training that a test has stopped."""


def environments(count: int = 2) -> list[dict[str, str]]:
    """The environment of each of several processes on this machine, as a launcher sets it."""
    with socket.socket() as probe:
        probe.bind(("127.0.0.1", 0))
        port = probe.getsockname()[1]
    common = {"WORLD_SIZE": str(count), "MASTER_ADDR": "127.0.0.1", "MASTER_PORT": str(port), "OMP_NUM_THREADS": "1"}
    common |= {"PYTHONPATH": f"{ROOT}{os.pathsep}{ROOT / 'tests' / 'support'}"}
    return [{**os.environ, **common, "RANK": str(number), "LOCAL_RANK": str(number)} for number in range(count)]


def ended(*words: str, of_second: dict[str, str] | None = None) -> tuple[list[int], list[str], list[str]]:
    """What two processes of one command of Python end with: exit codes, standard outputs, standard errors.

    Args:
        of_second: what is changed in the environment of the second.
    """
    first, second = environments()
    processes = [
        subprocess.Popen(
            [sys.executable, *words], env=environment, stdout=subprocess.PIPE, stderr=subprocess.PIPE, text=True
        )
        for environment in (first, second | (of_second or {}))
    ]
    said = [process.communicate(timeout=300) for process in processes]
    return [process.returncode for process in processes], [out for out, _ in said], [err for _, err in said]


def train(model: str, glue: str, folder: Path | None, case: str, *, dropout: float = 0.0, processes=ALONE, states=None):
    """The facts and the weights of one training."""
    initialisation, changes = CASES[case]
    opened = open_classifier(locate(model), task("rte"), initialisation, 1)
    for module in opened.model.modules():
        if isinstance(module, torch.nn.Dropout):
            module.p = dropout
    if folder is not None:
        folder.mkdir()
    facts = finetuning.finetune(
        opened, load_folder(Path(glue), task("rte"), "train"), folder, settings=SETTINGS.model_copy(update=changes),
        initialisation=initialisation, seed=1, device=torch.device("cpu"), states=states, processes=processes,
    )  # fmt: skip
    return facts, {name: weight.detach() for name, weight in opened.model.named_parameters()}


def main(model: str, glue: str, out: Path) -> None:
    """Train every case; then with dropout, whole and in two parts; then until one process is gone."""
    with joined("cpu") as processes:

        def done(name: str, case: str, **options) -> None:
            folder = out / name if processes.main else None
            facts, weights = train(model, glue, folder, case, processes=processes, **options)
            torch.save({"facts": facts, "weights": weights}, out / f"{name}-{processes.number}.pt")

        for case in CASES:
            done(case, case)
        done("whole", "pretrained", dropout=0.1)
        finetuning.SAVING_SHARE = 1e9
        take_step = finetuning.Training.take_step
        states = out / "states" if processes.main else None

        def stop(self):
            if self.step == 14:
                raise Stopped
            take_step(self)

        finetuning.Training.take_step = stop
        try:
            done("stopped", "pretrained", dropout=0.1, states=states)
        except Stopped:
            finetuning.Training.take_step = take_step
        done("continued", "pretrained", dropout=0.1, states=states)

        def vanish(self):
            if self.step == 3 and not processes.main:
                os._exit(1)
            take_step(self)

        finetuning.Training.take_step = vanish
        processes.called = True
        try:
            done("alone", "pretrained")
        except LostError as error:
            (out / "lost.txt").write_text(str(error), encoding="utf-8")


if __name__ == "__main__":
    main(sys.argv[1], sys.argv[2], Path(sys.argv[3]))
