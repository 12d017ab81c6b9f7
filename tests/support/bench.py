"""A folder with a tiny model, a tiny corpus and settings, for injecting faults into commands and comparing results."""

import shutil
from collections.abc import Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import Any

from faults import UNHARMED, Ended, Fault, Running, contents, half, leftovers, start


@dataclass
class Bench:
    """A folder whose contents are restored before each attack, always at the same path, since results contain it.

    `work` is that folder; `settings` is the settings file; `trained` is a store with checkpoints of the model.
    """

    folder: Path
    model: Path
    glue: Path
    settings: Path
    trained: Path
    started: int = 0

    @property
    def work(self) -> Path:
        return self.folder / "work"

    def begin(self, *, trained: bool = True) -> None:
        """Reset `work` to an empty folder, or to one with only the model's checkpoints."""
        shutil.rmtree(self.work, ignore_errors=True)
        self.work.mkdir(parents=True)
        if trained:
            shutil.copytree(self.trained / "checkpoints", self.work / "runs" / "checkpoints")

    @property
    def subject(self) -> list[Any]:
        where = ["--model", self.model, "--glue", self.glue, "--store", self.work / "runs"]
        return [*where, "--task", "rte", "--device", "cpu", "--offline", "--allow-unofficial-data"]

    def start(self, command: Sequence[Any], fault: Fault = UNHARMED) -> Running:
        """Start a command, in which `@name` is a path in `work`, and `@subject` the options of the model."""
        self.started += 1
        environment = {"BERTSECRETS_PARAMS": str(self.settings), "BERTSECRETS_STORE": str(self.work / "runs")}
        return start(self.spelled(command), self.folder / "output" / str(self.started), fault, **environment)

    def run(self, command: Sequence[Any], fault: Fault = UNHARMED) -> Ended:
        return self.start(command, fault).wait()

    def done(self, command: Sequence[Any]) -> Ended:
        ended = self.run(command)
        assert ended.code in (0, 1), f"{command}: {ended}"  # 1: a tiny model often collapses, and its claims with it
        return ended

    def spelled(self, command: Sequence[Any]) -> list[Any]:
        words: list[Any] = []
        for word in command:
            if word == "@subject":
                words += self.subject
            else:
                words.append(self.work / word[1:] if str(word).startswith("@") else word)
        return words

    def keep(self, name: str) -> None:
        shutil.copytree(self.work, self.folder / name, symlinks=True)

    def put_back(self, name: str) -> None:
        shutil.rmtree(self.work, ignore_errors=True)
        shutil.copytree(self.folder / name, self.work, symlinks=True)


@dataclass
class Attack:
    """A command that is attacked repeatedly from the same state, and the results of an undisturbed run."""

    bench: Bench
    name: str
    command: Sequence[Any]
    before: dict[str, Any]
    after: dict[str, Any]
    operations: int
    last_opened: int  # index of the last operation that opens a file for writing

    @classmethod
    def prepare(cls, bench: Bench, name: str, first: Sequence[Sequence[Any]], command: Sequence[Any]) -> "Attack":
        """Run the commands in `first`, save the state, and run the command undisturbed."""
        bench.begin()
        for earlier in first:
            bench.done(earlier)
        bench.keep(name)
        before = contents(bench.work)
        ended = bench.done(command)
        assert leftovers(bench.work) == []
        after = contents(bench.work)
        assert after != before, f"{command} changes nothing"
        opened = [place for place, line in enumerate(ended.operations) if line.startswith("open ")]
        return cls(bench, name, command, before, after, len(ended.operations), opened[-1])

    def problems(self, fault: Fault) -> list[str]:
        """Attack the command once, rerun it undisturbed, and return the problems found after both runs.

        After the attack, no result may be incomplete or lost. The rerun must succeed, leave the results of an
        undisturbed run, and clean up everything else.
        """
        self.bench.put_back(self.name)
        ended = self.bench.run(self.command, fault)
        problems = [] if ended.killed or ended.refused or ended.code in (0, 1) else [str(ended)]
        try:
            problems += half(contents(self.bench.work), self.before, self.after)
        except ValueError as error:
            problems.append(f"half a file: {error}")
        again = self.bench.run(self.command)
        now = contents(self.bench.work)
        if again.code not in (0, 1):
            return [f"{fault}: {problem}" for problem in (*problems, f"run again: {again}")]
        problems += [f"{name} differs" for name in different(now, self.after)]
        if any("/measurements/" in name for name in leftovers(self.bench.work)):
            self.bench.done(["store", "gc", "--yes"])  # left by a companion measurement that no job needed
        problems += [f"{name} is left over" for name in leftovers(self.bench.work)]
        return [f"{fault}: {problem}" for problem in problems]


def different(now: dict[str, Any], right: dict[str, Any]) -> list[str]:
    """Return the names of files that are missing, unexpected, or different from what they should be.

    A companion of another measurement may be missing from the store, since it is computed on request.
    """
    wrong = {name for name in now if name not in right or now[name] != right[name]}
    return sorted(wrong | {name for name in right if name not in now and "/measurements/" not in name})
