"""Ctrl-C and a signal to end: one line, the signal's exit code, and nothing half made is left behind."""

import os
import signal
import subprocess
import sys
from pathlib import Path

import pytest
from calls import started

ROOT = Path(__file__).parents[2]
LONG = """
import bertsecrets.models.finetune, pathlib, signal, sys, time
from bertsecrets.cli.main import main
signal.signal(signal.SIGINT, signal.default_int_handler)  # in a job in the background it is ignored,
signal.signal(signal.SIGQUIT, signal.SIG_DFL)  # and so is this one
signal.signal(signal.SIGHUP, signal.SIG_DFL)  # under nohup this one too
def begun(classifier, split, folder, *more, **options):
    pathlib.Path(folder, "half").write_text("done")
    print("begun", flush=True)
    time.sleep(60)
bertsecrets.models.finetune.finetune = begun
sys.exit(main(sys.argv[1:]))
"""
AT_ONCE = """
import builtins, sys
from bertsecrets.cli.main import main
original = builtins.__import__
def interrupted(name, *more):
    if name == "bertsecrets.claims.schema":
        raise KeyboardInterrupt
    return original(name, *more)
builtins.__import__ = interrupted
sys.exit(main(["claims"]))
"""
GOES_ON = ": the same command goes on from there"
ENVIRONMENT = {**os.environ, "PYTHONPATH": str(ROOT)}


@pytest.mark.parametrize(
    ("number", "code"), [(signal.SIGINT, 130), (signal.SIGTERM, 143), (signal.SIGHUP, 129), (signal.SIGQUIT, 131)]
)
def test_an_interrupted_training_leaves_nothing_behind(shared, tmp_path, number, code):
    command = [*("finetune", "--task", "rte"), *shared, "--store", str(tmp_path / "runs")]
    with subprocess.Popen(
        [sys.executable, "-c", LONG, *command],
        env=ENVIRONMENT,
        stdout=subprocess.PIPE,
        stderr=subprocess.PIPE,
        text=True,
    ) as process:
        assert process.stdout.readline() == "begun\n"
        assert list((tmp_path / "runs").rglob("half"))
        process.send_signal(number)
        _, told = process.communicate(timeout=60)
    assert process.returncode == code
    assert told == f"bertsecrets: interrupted; what is finished is kept in {tmp_path / 'runs'}{GOES_ON}\n"
    assert [path for path in (tmp_path / "runs" / "checkpoints").iterdir() if path.is_dir()] == []


def test_a_closed_terminal_does_not_end_what_nohup_started():
    code = """
        import os, signal
        from bertsecrets.cli.signals import as_interrupt
        signal.signal(signal.SIGHUP, signal.SIG_IGN)
        with as_interrupt():
            os.kill(os.getpid(), signal.SIGHUP)
            print("goes on")
    """
    assert started(code).communicate(timeout=60) == ("goes on\n", "")


def test_an_interrupt_while_the_commands_are_imported_is_one_line():
    done = subprocess.run([sys.executable, "-c", AT_ONCE], env=ENVIRONMENT, capture_output=True, text=True)
    assert done.returncode == 130
    assert done.stderr == f"bertsecrets: interrupted; what is finished is kept in runs{GOES_ON}\n"
