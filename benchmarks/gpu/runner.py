"""Run parts within a time limit. A part that does not finish is interrupted and resumed by the next call."""

import ctypes
import json
import os
import shutil
import signal
import subprocess
import sys
import time
from collections.abc import Mapping, Sequence
from contextlib import suppress
from dataclasses import dataclass
from pathlib import Path
from typing import Any

from environment import ROOT
from parts import Part
from results import Record, commit, identity, log_tail, read_record, write_record, write_summary

from bertsecrets.errors import UserError, one_line, shortened
from bertsecrets.store.entries import read_json, write_json
from bertsecrets.store.files import write_whole

DONE, FAILED, LEFT = 0, 1, 75  # exit codes; 75 is EX_TEMPFAIL: try again
GRACE = 15  # seconds for a part to clean up
BERT = "bert"  # in the list of parts: the model given, or random weights of its shape
AT_ONCE = 4  # jobs on the GPU, if its memory allows: one loads or saves while others compute
HERE = Path(__file__).parent


@dataclass(frozen=True)
class Run:
    """The settings of a call.

    `model` is the folder used for `bert`; without one, random weights are used. `machine` is what `described` returns.
    """

    parts: Sequence[Part]
    machine: Mapping[str, Any]
    glue: Path
    model: Path | None
    out: Path
    store: Path
    device: str
    seconds: float
    root: Path = ROOT

    def call(self) -> int:
        """Run as many parts as fit into the time, print a line for each, and return the exit code.

        Raises:
            UserError: Data are missing, or the results cannot be written.
        """
        began = time.monotonic()
        grace = min(GRACE, self.seconds / 10)
        deadline = began + self.seconds - grace
        states: dict[str, Record] = {}
        started = False
        for part in self.parts:
            made_by = identity(part, self.machine, named(part, self.model), self.glue, self.root)
            record = read_record(self.out, part, made_by)
            if record is not None:
                states[part.name] = {"state": "done", **record}
                print(f"{part.name}: done before, {_times(record)}", flush=True)
                continue
            left = deadline - time.monotonic()
            if left < (part.least if started else 0):
                states[part.name] = {"state": "left"}
                print(f"{part.name}: left", flush=True)
                continue
            started = True
            states[part.name] = self.advance(part, made_by, left, grace)
            write_summary(self.out, self.parts, states)
        write_summary(self.out, self.parts, states)
        return _exit_code([state["state"] for state in states.values()])

    def advance(self, part: Part, made_by: Record, seconds: float, grace: float) -> Record:
        """Run a part until it ends or runs out of time; return its state."""
        folder = self.store / part.name
        store, work, log, progress = (folder / name for name in ("store", "work", "log.txt", "progress.json"))
        before = _progress(progress, made_by)
        if not before["calls"]:
            log.unlink(missing_ok=True)
        shutil.rmtree(work, ignore_errors=True)
        for place in (work, store):
            place.mkdir(parents=True, exist_ok=True)
        now = {**before, "calls": before["calls"] + 1, "made_by": made_by}
        write_json(progress, now)
        began = time.monotonic()
        if part.model == BERT and not self.model:
            model = self.store / "random-bert"
            if not model.exists():
                subprocess.run([sys.executable, HERE / "random_bert.py", model], check=True, env=environment())
        else:
            model = named(part, self.model)
        places = {"python": sys.executable, "glue": self.glue, "device": self.device, "model": model}
        places["jobs"] = min(AT_ONCE, os.cpu_count() or 1)
        words = part.words({**places, "store": store, "work": work})
        code, over = run_for(words, log, self.root, seconds - (time.monotonic() - began), grace)
        now["seconds"] = round(before["seconds"] + time.monotonic() - began, 1)
        write_json(progress, now)
        own_log = self.out / f"{part.name}.log"
        facts = {name: now[name] for name in ("calls", "seconds")}
        absent = [word for word in words if Path(word).parent == work and not Path(word).exists()]
        if code in part.codes and not absent:
            record = write_record(
                self.out,
                part,
                made_by,
                work=work,
                store=store,
                log=log,
                commit=commit(self.root),
                exit_code=code,
                **facts,
            )
            own_log.unlink(missing_ok=True)
            progress.unlink()
            print(f"{part.name}: {'resumed, ' if before['calls'] else ''}done in {_times(record)}", flush=True)
            return {"state": "done", **record}
        lines = log_tail(log)
        write_whole(own_log, "\n".join(lines) + "\n")
        state = {"commit": commit(self.root), "made_by": made_by, **facts}
        if over:
            print(f"{part.name}: left after {_times(now)}: resumes at the next call", flush=True)
            return {"state": "left", **state}
        last = shortened(one_line(next((line for line in reversed(lines) if line.strip()), "no output")))
        without = f" without {Path(absent[0]).name}" if code in part.codes else ""
        print(f"{part.name}: failed with exit code {code}{without}: {last} ({own_log})", flush=True)
        return {"state": "failed", "exit_code": code, **state}


def described(parts: Sequence[Part], model: Path | None, device: str) -> dict[str, Any]:
    """Return the software and device of this machine, and the identities of the models that the parts name.

    Raises:
        UserError: A GPU or a model is missing.
    """
    needed = {name for part in parts if (name := named(part, model))}
    if model is None and any(part.model == BERT for part in parts):
        needed.add("minilm")  # whose tokenizer the random weights have
    command = [sys.executable, str(HERE / "identity.py"), device, *sorted(needed)]
    done = subprocess.run(command, capture_output=True, text=True, env=environment())
    if done.returncode:
        raise UserError((done.stderr.strip().splitlines() or [f"{command[1]} ended with {done.returncode}"])[-1])
    return json.loads(done.stdout.splitlines()[-1])


def named(part: Part, model: Path | None) -> str | None:
    """Return the model of a part: a folder or a name; None for random weights, or if it has none."""
    if part.model != BERT:
        return part.model
    return str(model) if model else None


def run_for(words: Sequence[str], log: Path, root: Path, seconds: float, grace: float) -> tuple[int, bool]:
    """Run a command with a time limit, and return its exit code and whether it was interrupted.

    At the limit, the command receives SIGTERM, and after `grace` seconds it is killed with all its child processes. On
    Linux, it also ends with this process.
    """
    libc = ctypes.CDLL(None) if sys.platform.startswith("linux") else None

    def end_with_parent() -> None:
        if libc is not None:
            libc.prctl(1, signal.SIGTERM)  # PR_SET_PDEATHSIG

    with log.open("ab") as output:
        child = subprocess.Popen(
            words, cwd=root, env=environment(), stdin=subprocess.DEVNULL, stdout=output, stderr=subprocess.STDOUT,
            process_group=0, preexec_fn=end_with_parent,
        )  # fmt: skip
        try:
            return child.wait(max(seconds, 0)), False
        except subprocess.TimeoutExpired:
            return _end(child, grace), True
        except BaseException:
            _end(child, grace)
            raise


def _end(child: subprocess.Popen, grace: float) -> int:
    child.terminate()
    try:
        code = child.wait(grace)
    except subprocess.TimeoutExpired:
        code = None
    with suppress(ProcessLookupError):
        os.killpg(child.pid, signal.SIGKILL)
    return child.wait() if code is None else code


def environment() -> dict[str, str]:
    """Return the environment of a part: this checkout's code and settings, and no network."""
    kept = {name: value for name, value in os.environ.items() if not name.startswith(("BERTSECRETS_", "PYTEST_"))}
    return {**kept, "HF_HUB_OFFLINE": "1", "TQDM_DISABLE": "1", "PYTHONUNBUFFERED": "1"}


def _progress(file: Path, made_by: Record) -> Record:
    """Return the number of runs and the total time of an unfinished part."""
    try:
        before = read_json(file)
    except UserError:
        before = {}
    return before if before.get("made_by") == made_by else {"calls": 0, "seconds": 0.0}


def _times(record: Record) -> str:
    calls = f" in {record['calls']} calls" if record["calls"] > 1 else ""
    return f"{record['seconds']} s{calls}"


def _exit_code(states: Sequence[str]) -> int:
    done, failed = states.count("done"), states.count("failed")
    left = len(states) - done - failed
    more = [f"{failed} failed"] * bool(failed) + [f"{left} left: run the command again"] * bool(left)
    print(", ".join([f"{done} of {len(states)} parts done", *more]), flush=True)
    return LEFT if left else FAILED if failed else DONE
