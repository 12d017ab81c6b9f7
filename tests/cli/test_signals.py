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
    signal.signal(signal.SIGQUIT, signal.SIG_DFL)  # ignored in background jobs
    signal.signal(signal.SIGHUP, signal.SIG_DFL)  # ignored under nohup

    def train(classifier, split, folder, *more, **options):
        (Path(folder) / "half").write_text("done")
        begun.send(True)
        while True:
            time.sleep(0.1)

    finetune.finetune = train
    sys.exit(main(words))


@pytest.mark.parametrize(
    ("number", "code"),
    [
        *((signal.SIGINT, 130), (signal.SIGTERM, 143)),
        *(pytest.param(*other, marks=pytest.mark.slow) for other in ((signal.SIGHUP, 129), (signal.SIGQUIT, 131))),
    ],
)
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


def test_a_closed_terminal_does_not_end_a_run_under_nohup():
    code = """
        import os, signal
        from bertsecrets.cli.console import as_interrupt
        signal.signal(signal.SIGHUP, signal.SIG_IGN)
        with as_interrupt():
            os.kill(os.getpid(), signal.SIGHUP)
            print("goes on")
    """
    assert started(code).communicate(timeout=LIMIT) == ("goes on\n", "")


@pytest.mark.parametrize("number", [signal.SIGINT, signal.SIGTERM])
@pytest.mark.parametrize("module", ["bertsecrets.cli", "bertsecrets.cli.console", "bertsecrets.options", "pydantic"])
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


def test_a_signal_waits_until_all_files_are_written(tmp_path):
    code = f"""
        import os, signal
        from pathlib import Path
        from bertsecrets.cli.console import as_interrupt, signals_deferred
        with as_interrupt():
            try:
                with signals_deferred():
                    os.kill(os.getpid(), signal.SIGTERM)
                    Path({str(tmp_path / "page")!r}).touch()
                print("never printed")
            except KeyboardInterrupt as error:
                print(int(error.args[0]))
    """
    assert started(code).communicate(timeout=LIMIT) == ("15\n", "")
    assert (tmp_path / "page").exists()
