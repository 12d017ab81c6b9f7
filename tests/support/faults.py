"""Run commands in subprocesses that are killed or cannot write large files, and compare folders afterwards."""

import hashlib
import json
import multiprocessing
import os
import re
import resource
import signal
import sys
from dataclasses import dataclass
from importlib.metadata import entry_points
from multiprocessing.process import BaseProcess
from pathlib import Path
from typing import Any

import numpy as np
import pytest

NIGHTLY = pytest.mark.skipif(os.environ.get("BERTSECRETS_ATTACK") != "long", reason="`make attack` runs it")
PROJECT = Path(__file__).resolve().parents[2]
LIMIT = 600  # seconds until a command counts as hanging, even on a busy machine

# A server with all modules imported forks a process for each command, which saves seconds of import time.
PROCESSES = multiprocessing.get_context("forkserver")
PROCESSES.set_forkserver_preload(
    [
        *("torch", "transformers", "transformers.models.bert.modeling_bert", "altair"),
        *("bertsecrets.cli.main", "bertsecrets.session", "bertsecrets.models.training.finetune"),
        *("bertsecrets.report.html", "pytest", *(plugin.module for plugin in entry_points(group="pytest11"))),
    ]
)

CHANGES = ("os.rename", "os.remove", "os.mkdir", "os.rmdir", "os.link", "os.symlink", "os.chmod", "os.truncate")
WRITING = os.O_WRONLY | os.O_RDWR | os.O_CREAT | os.O_TRUNC | os.O_APPEND

# Fields that differ between runs, including digests of files that contain them; the remark that a result was stored.
TIMES = ("seconds", "training_seconds", "measuring_seconds", "made", "first", "last", "times")
PASSING, STORED = (*TIMES, "reused", "files", "sha256"), "measurements reused"
TIME = re.compile(r"\d{4}-\d\d-\d\dT[\d:.]+Z")


@dataclass(frozen=True)
class Fault:
    """A fault injected into a process: a kill -9, or a limit on file size."""

    operation: int | None = None  # killed just before this file system operation, counted from 0
    cut: int | None = None  # killed when a file grows beyond this many bytes; bytes up to the limit are written
    largest: int | None = None  # writes fail if a file would grow beyond this many bytes


UNHARMED = Fault()


@dataclass(frozen=True)
class Ended:
    """A finished process: its exit code (or negative signal number), output and file system operations."""

    code: int
    out: str
    err: str
    operations: list[str]

    @property
    def killed(self) -> bool:
        return self.code in (-signal.SIGKILL, -signal.SIGXFSZ)

    @property
    def lines(self) -> list[str]:
        """Messages to the user, without progress bars and what a run is about to measure."""
        said = [line for line in self.err.splitlines() if line.startswith("bertsecrets")]
        return [line for line in said if " to judge on " not in line and "training state " not in line]

    @property
    def refused(self) -> bool:
        """Whether it ended as required for bad input: exit code 2 and one line."""
        return self.code == 2 and len(self.lines) == 1 and "Traceback" not in self.err

    def __str__(self) -> str:
        return f"exit code {self.code}: {self.err[-1500:]}"


@dataclass(frozen=True)
class Running:
    """A started process, and the folder of its output."""

    process: BaseProcess
    folder: Path

    def wait(self) -> Ended:
        """Wait for the process to end; one that hangs fails the test."""
        self.process.join(LIMIT)
        if self.process.is_alive():
            self.process.kill()
            self.process.join()
            raise AssertionError(f"still running after {LIMIT} s")
        out, err, trace = ((self.folder / name).read_text(errors="replace") for name in ("out", "err", "trace"))
        code = self.process.exitcode
        assert code is not None
        self.process.close()
        return Ended(code, out, err, trace.splitlines())


def start(
    arguments: list[Any], output: Path, fault: Fault = UNHARMED, cwd: Path | None = None, **environment: str
) -> Running:
    """Start a command of the suite, or `pytest ...`, in a subprocess with the fault.

    The command runs in `cwd` (by default, its output folder), with this process's environment and `environment`.
    """
    output.mkdir(parents=True, exist_ok=True)
    for name in ("out", "err", "trace"):
        (output / name).write_bytes(b"")
    given = [str(argument) for argument in arguments]
    inherited = {name: value for name, value in os.environ.items() if not name.startswith("PYTEST_")}  # of pytest-xdist
    environment = {**inherited, "HF_HUB_OFFLINE": "1", "TQDM_DISABLE": "1", **environment}
    process = PROCESSES.Process(target=_command, args=(given, output, cwd or output, fault, environment))
    process.start()
    return Running(process, output)


def run(
    arguments: list[Any], output: Path, fault: Fault = UNHARMED, cwd: Path | None = None, **environment: str
) -> Ended:
    """Run a command of the suite in a subprocess with the fault."""
    return start(arguments, output, fault, cwd, **environment).wait()


def pytest_benchmarks(*words: Any, output: Path, **environment: str) -> tuple[int, str]:
    """Run `pytest benchmarks` from the checkout as a user would; return the exit code and all output."""
    ended = run(["pytest", "benchmarks", "-p", "no:cacheprovider", *words], output, cwd=PROJECT, **environment)
    return ended.code, ended.out + ended.err


def _command(arguments: list[str], output: Path, cwd: Path, fault: Fault, environment: dict[str, str]) -> None:
    """Run the command in the subprocess."""
    os.environ.clear()  # the server's environment dates from its start
    os.environ.update(environment)
    sys.path[:0] = [folder for folder in environment.get("PYTHONPATH", "").split(os.pathsep) if folder]
    sys.dont_write_bytecode = True
    for number, name in ((1, "out"), (2, "err")):
        os.dup2(os.open(output / name, os.O_WRONLY), number)
    sys.stdout.reconfigure(encoding=environment.get("PYTHONIOENCODING"))  # type: ignore[union-attr]
    trace = os.open(output / "trace", os.O_WRONLY | os.O_APPEND)
    import torch

    torch.set_num_threads(1)
    from calls import command

    if fault.largest is not None or fault.cut is not None:
        signal.signal(signal.SIGXFSZ, signal.SIG_IGN if fault.cut is None else signal.SIG_DFL)
        resource.setrlimit(resource.RLIMIT_FSIZE, (fault.cut or fault.largest or 0, resource.RLIM_INFINITY))
    else:
        _count(trace, fault.operation)
    os.chdir(cwd)
    if arguments[0] == "pytest":
        import pytest

        imported = ("-W", "ignore::pytest.PytestAssertRewriteWarning")  # the suite is already imported, not rewritten
        sys.exit(pytest.main([*arguments[1:], *imported]))
    sys.exit(command(arguments))


def _count(trace: int, last: int | None) -> None:
    """Log every file system operation from now on, and kill the process just before operation number `last`."""
    done = 0

    def note(event: str, arguments: tuple) -> None:
        nonlocal done
        if event in CHANGES or (event == "open" and isinstance(arguments[2], int) and arguments[2] & WRITING):
            if done == last:
                os.kill(os.getpid(), signal.SIGKILL)
            done += 1
            os.write(trace, f"{event} {arguments[:2]}\n".encode(errors="replace"))

    sync = os.fsync

    def noted(handle: int) -> None:
        sys.audit("os.chmod", f"sync {handle}", None)
        sync(handle)

    os.fsync = noted  # type: ignore[assignment]  # the only operation without an audit event
    sys.addaudithook(note)


# ---------------------------------------------------------------------- contents of a folder


def contents(folder: Path) -> dict[str, Any]:
    """Return the contents of all visible files below a folder by relative name, without what differs between runs.

    A folder that was set aside to be replaced is listed under its original name until the new folder exists.
    """
    files: dict[str, Any] = {}
    for aside in folder.rglob(".*.replaced"):
        place = aside.with_name(aside.name[1 : -len(".replaced")])
        if not place.exists():
            files |= {f"{place.relative_to(folder)}/{name}": content(aside / name) for name in visible(aside)}
    return files | {name: content(folder / name) for name in sorted(visible(folder))}


def visible(folder: Path) -> list[str]:
    """Return the relative names of the files below a folder that are neither hidden nor in a hidden folder."""
    names = (path.relative_to(folder) for path in folder.rglob("*") if path.is_file())
    return [str(name) for name in names if not any(part.startswith(".") for part in name.parts)]


def leftovers(folder: Path) -> list[str]:
    """Return all hidden files and folders below a folder except locks: possible leftovers of a killed process."""
    hidden = (path.relative_to(folder) for path in folder.rglob(".*"))
    return sorted(str(name) for name in hidden if not name.name.endswith(".lock"))


def content(path: Path) -> Any:
    """Return a file's content in a form that is equal for equal results."""
    data = path.read_bytes()
    if path.suffix == ".json":
        return lasting(json.loads(data))
    if path.suffix == ".npz":
        with np.load(path) as arrays:
            return {name: (str(a.dtype), a.shape, hashlib.sha256(a).hexdigest()) for name, a in arrays.items()}
    if path.suffix == ".html":
        seconds_and_date = rb"[\d.]+( s</small>|</td></tr>)|(; )?measurements reused|<time.*?</time>"
        data = re.sub(seconds_and_date, rb"\1", data)
    return hashlib.sha256(data).hexdigest()


def lasting(data: Any) -> Any:
    """Return JSON data without what differs between runs."""
    if isinstance(data, dict):
        return {key: lasting(value) for key, value in data.items() if key not in PASSING}
    if isinstance(data, list):
        return [lasting(value) for value in data if value != STORED]
    return "a time" if isinstance(data, str) and TIME.fullmatch(data) else data


def half(now: dict[str, Any], before: dict[str, Any], after: dict[str, Any]) -> list[str]:
    """Return the results that match neither the state before a command nor the state after it, and those that are lost.

    A result is a folder with all its files if it is written atomically, otherwise a single file.
    """
    states = [_results(state) for state in (now, before, after)]
    present, old, new = states
    wrong = [name for name, result in present.items() if result not in (old.get(name), new.get(name))]
    return wrong + [f"{name} is lost" for name in old if name in new and name not in present]


def _results(state: dict[str, Any]) -> dict[str, dict[str, Any]]:
    whole = {str(Path(name).parent) for name in state if Path(name).name in ("manifest.json", "measurement.json")}
    results: dict[str, dict[str, Any]] = {}
    for name, held in state.items():
        if "/training/" in name:  # the state of an unfinished training run
            continue
        folder = str(Path(name).parent)
        results.setdefault(folder if folder in whole else name, {})[name] = held
    return results
