"""The parts of a GPU run, in the order of `make gpu`."""

import shlex
from collections.abc import Mapping
from dataclasses import dataclass


@dataclass(frozen=True)
class Part:
    """A command whose result is stored in its own file.

    Attributes:
        command: its words may hold {python}, {glue}, {device}, {model} (a folder, or minilm), {task}, {store} (kept
            between calls), {jobs} (the number of processes that use the GPU) and {work} (empty at every start). Its
            result is what it leaves in {work}: junit.xml, benchmark.json, verdicts.json. If a file that the command
            names is missing, it has failed.
        model: `minilm`, or `bert` for the folder in MODEL.
        least: seconds that it needs without interruption; with less left in a call, it waits for the next one.
        codes: exit codes of success.
    """

    name: str
    command: str
    model: str | None = None
    task: str | None = None
    least: float = 30
    codes: tuple[int, ...] = (0,)

    def words(self, places: Mapping[str, object]) -> list[str]:
        """Return the words of the command, with the names in braces filled in.

        >>> Part("a", "echo {task} {glue}", task="rte").words({"glue": "my data"})
        ['echo', 'rte', 'my data']
        """
        return [word.format_map({"task": self.task, **places}) for word in shlex.split(self.command)]


PYTEST = "{python} -m pytest -q -m gpu -p no:cacheprovider"
SPEED = "--glue {glue} --store {store} --device {device} --offline --benchmark-json {work}/benchmark.json"
TRAINING = "benchmarks/speed/test_gpu_training_speed.py"
RUN = (
    "{python} -m bertsecrets run --jobs {jobs} --model {model} --task {task} --seeds 5 --glue {glue} --store {store} "
    "--device {device} --precision auto --offline --json {work}/verdicts.json"
)
PARTS = [
    Part("tests", f"{PYTEST} -p no:benchmark tests --junitxml {{work}}/junit.xml", least=120),
    Part("speed", f"{PYTEST} benchmarks/speed --ignore {TRAINING} {SPEED}", task="rte", least=300),
    Part("training-speed", f"{PYTEST} {TRAINING} {SPEED}", task="rte", least=400),
    *(
        Part(f"{model}-{task}", RUN, model, task, codes=(0, 1))  # 1: a claim deviates
        for model in ("minilm", "bert")
        for task in ("rte", "mrpc", "stsb", "sst2")
    ),
]
