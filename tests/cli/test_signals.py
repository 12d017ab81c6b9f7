"""Ctrl-C and termination signals give one line and the signal's exit code, and leave no partial results."""

import os
import signal
import sys
import time
from multiprocessing.connection import Connection
from pathlib import Path

import pytest
from calls import started
from faults import LIMIT, PROCESSES

from bertsecrets.cli.console import as_interrupt, interrupted

AT_ONCE = """
import builtins, sys
from bertsecrets.cli.main import main
original = builtins.__import__
def interrupted(name, *more, **named):
    if name == "bertsecrets.claims.loading":
        raise KeyboardInterrupt
    return original(name, *more, **named)
builtins.__import__ = interrupted
sys.exit(main(["claims"]))
"""
GOES_ON = ": run the same command to continue"


def train_until_interrupted(words: list[str], errors: Path, settings: str, begun: Connection) -> None:
    """Run a command whose training never ends, with its errors written to a file. Runs in a subprocess."""
    from bertsecrets.cli.main import main
    from bertsecrets.models.training import finetune

    os.environ["BERTSECRETS_PARAMS"] = settings
    os.dup2(os.open(errors, os.O_WRONLY | os.O_CREAT), 2)
    signal.signal(signal.SIGINT, signal.default_int_handler)  # ignored in background jobs

    def train(classifier, split, folder, *more, **options):
        (Path(folder) / "half").write_text("done")
        begun.send(True)
        while True:
            time.sleep(0.1)

    finetune.finetune = train
    sys.exit(main(words))


@pytest.mark.parametrize(("number", "code"), [(signal.SIGINT, 130), (signal.SIGTERM, 143)])
def test_an_interrupted_training_leaves_nothing_behind(shared, quick_params, tmp_path, number, code):
    store, errors = tmp_path / "runs", tmp_path / "errors"
    begun, theirs = PROCESSES.Pipe(duplex=False)
    words = ["finetune", "--task", "rte", *shared, "--store", str(store)]
    process = PROCESSES.Process(target=train_until_interrupted, args=(words, errors, str(quick_params), theirs))
    process.start()
    theirs.close()
    assert begun.poll(LIMIT)
    assert begun.recv()
    assert list(store.rglob("half"))
    assert process.pid is not None
    os.kill(process.pid, number)
    process.join(LIMIT)
    assert process.exitcode == code
    assert errors.read_text() == f"bertsecrets: interrupted; finished results are saved in {store}{GOES_ON}\n"
    assert [path for path in (store / "checkpoints").iterdir() if path.is_dir()] == []


@pytest.mark.parametrize(("defaults", "store"), [("", "runs"), ('modl = "minilm"', "the store")])
def test_an_interrupt_while_the_commands_are_imported_is_one_line(tmp_path, monkeypatch, defaults, store):
    monkeypatch.chdir(tmp_path)
    (tmp_path / "pyproject.toml").write_text(f"[tool.bertsecrets]\n{defaults}\n")
    process = started(AT_ONCE, BERTSECRETS_JOBS="abc")
    line = f"bertsecrets: interrupted; finished results are saved in {store}{GOES_ON}\n"
    assert (*process.communicate(timeout=LIMIT), process.returncode) == ("", line, 130)


@pytest.mark.parametrize("number", [signal.SIGHUP, signal.SIGQUIT])
@pytest.mark.parametrize("before", [lambda *_: None, signal.SIG_IGN], ids=["handled", "ignored"])
def test_each_signal_is_an_interrupt_unless_it_is_ignored(number, before):
    """Under `nohup`, for example, a closed terminal does not end a run."""
    original, code = signal.signal(number, before), None
    try:
        with as_interrupt():
            signal.raise_signal(number)
    except KeyboardInterrupt as error:
        code = interrupted(error)
    finally:
        signal.signal(number, original)
    assert code == (None if before == signal.SIG_IGN else 128 + number)


@pytest.mark.parametrize(
    ("module", "number"),
    [
        *(("bertsecrets.cli", signal.SIGINT), ("bertsecrets.cli.console", signal.SIGTERM)),
        *(("bertsecrets.options", signal.SIGINT), ("pydantic", signal.SIGTERM)),
    ],
)
def test_a_signal_while_the_program_starts_is_one_line(module, number):
    code = f"""
        import builtins, os, signal, sys
        signal.signal(signal.SIGINT, signal.default_int_handler)  # ignored in background jobs
        original = builtins.__import__
        def signalled(name, *more, **named):
            if name == {module!r}:
                os.kill(os.getpid(), {int(number)})
            return original(name, *more, **named)
        builtins.__import__ = signalled
        sys.argv = ["bertsecrets", "claims"]
        from bertsecrets.__main__ import start
        sys.exit(start())
    """
    process = started(code)
    output, errors = process.communicate(timeout=LIMIT)
    assert (output, process.returncode) == ("", 128 + number)
    assert errors.startswith("bertsecrets: interrupted")
    assert errors.count("\n") == 1
