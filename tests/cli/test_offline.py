"""With `--offline`, no command accesses the network, even without the hub's offline variables. Attempts are counted."""

import json
import os
import re
import subprocess
import sys
from pathlib import Path

import pytest

pytestmark = pytest.mark.slow  # imports everything in a subprocess
ROOT = Path(__file__).parents[2]
WATCHED = """
import contextlib, io, json, os, socket, sys, time

attempts = []

def refuse(*where, **_):
    attempts.append(where)
    raise OSError("no network here")

socket.getaddrinfo = socket.create_connection = refuse
socket.socket.connect = lambda self, where: refuse(where)
time.sleep = lambda seconds: None  # between attempts

import bertsecrets.session
from bertsecrets.cli.main import main

for words in json.loads(sys.argv[1]):
    if os.fork() == 0:
        with contextlib.redirect_stdout(io.StringIO()), contextlib.redirect_stderr(io.StringIO()) as errors:
            code = main(words)
        print(json.dumps([code, len(attempts), errors.getvalue()]), flush=True)
        os._exit(0)
    os.wait()
"""


def watched(tmp_path, *calls):
    """Run commands in a subprocess each, with an empty cache and no offline variables.

    Return the exit code, the number of network attempts, and the errors of each.
    """
    environment = {k: v for k, v in os.environ.items() if not k.endswith("_OFFLINE") and not k.startswith("PYTEST_")}
    environment |= {"HF_HOME": str(tmp_path / "cache"), "PYTHONPATH": str(ROOT), "HF_HUB_DISABLE_TELEMETRY": "1"}
    own = ("--task", "rte", "--store", tmp_path / "runs", "--device", "cpu")
    words = json.dumps([[str(word) for word in (*call, *own)] for call in calls])
    command = [sys.executable, "-c", WATCHED, words]
    done = subprocess.run(command, cwd=tmp_path, env=environment, capture_output=True, text=True, timeout=600)
    assert done.returncode == 0, done.stderr
    return [json.loads(line) for line in done.stdout.splitlines()]


def test_no_command_needs_the_network(tmp_path, tiny_bert, tiny_glue, quick_params, monkeypatch):
    monkeypatch.setenv("BERTSECRETS_PARAMS", str(quick_params))
    local = ("--model", tiny_bert, "--glue", tiny_glue, "--allow-unofficial-data", "--json", tmp_path / "c.json")
    no_model, no_data, measured, online = watched(
        tmp_path,
        ("fetch", "--offline"),
        ("fetch", "--model", tiny_bert, "--offline"),
        ("measure", "attention-change", *local, "--offline"),
        ("fetch", "--model", "distilbert/distilbert-base-uncased@main"),  # a control
    )
    for sought, (*ended, errors) in (("model google-bert/bert-base-uncased", no_model), ("GLUE's RTE", no_data)):
        assert ended == [2, 0], errors
        assert re.search(f"{sought}( at revision .*)? is not cached, and offline mode forbids downloads", errors)
    assert measured[:2] == [0, 0], measured
    assert (online[0], online[1] > 0) == (2, True), online
