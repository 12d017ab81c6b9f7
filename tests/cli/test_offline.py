"""With `--offline`, no command accesses the network, even without the hub's offline variables. Attempts are counted."""

import os
import re
import subprocess
import sys
from pathlib import Path

import pytest

pytestmark = pytest.mark.slow  # each test imports everything in a subprocess
ROOT = Path(__file__).parents[2]
WATCHED = """
import socket, sys

attempts = []

def refuse(*where, **_):
    attempts.append(where)
    raise OSError("no network here")

socket.getaddrinfo = socket.create_connection = refuse
socket.socket.connect = lambda self, where: refuse(where)

from bertsecrets.cli.main import main

code = main(sys.argv[1:])
print("attempts", len(attempts))
sys.exit(code)
"""


def watched(tmp_path, *call):
    """Run a command in a subprocess with an empty cache and no offline variables.

    Return the exit code, the number of network attempts, and the errors.
    """
    environment = {k: v for k, v in os.environ.items() if not k.endswith("_OFFLINE") and not k.startswith("PYTEST_")}
    environment |= {"HF_HOME": str(tmp_path / "cache"), "PYTHONPATH": str(ROOT), "HF_HUB_DISABLE_TELEMETRY": "1"}
    command = [sys.executable, "-c", WATCHED, *map(str, call), "--store", str(tmp_path / "runs"), "--device", "cpu"]
    done = subprocess.run(command, cwd=tmp_path, env=environment, capture_output=True, text=True, timeout=300)
    return done.returncode, int(done.stdout.rsplit("attempts", 1)[1]), done.stderr


@pytest.mark.parametrize("sought", ["model google-bert/bert-base-uncased", "GLUE's RTE"])
def test_models_and_data_of_the_hub_are_read_from_the_cache_without_network(tmp_path, tiny_bert, sought):
    model = () if sought.startswith("model") else ("--model", tiny_bert)
    code, attempts, errors = watched(tmp_path, "fetch", *model, "--task", "rte", "--offline")
    assert (code, attempts) == (2, 0)
    assert re.search(f"{sought}( at revision .*)? is not cached, and offline mode forbids downloads", errors)


def test_local_folders_need_no_network(tmp_path, tiny_bert, tiny_glue, quick_params, monkeypatch):
    monkeypatch.setenv("BERTSECRETS_PARAMS", str(quick_params))
    call = ["measure", "attention-change", "--model", tiny_bert, "--task", "rte", "--glue", tiny_glue]
    code, attempts, errors = watched(
        tmp_path, *call, "--allow-unofficial-data", "--offline", "--json", tmp_path / "c.json"
    )
    assert (code, attempts) == (0, 0), errors


def test_without_offline_the_hub_is_contacted(tmp_path):
    """A control: these tests do detect network access."""
    model = ("--model", "distilbert/distilbert-base-uncased@main")
    code, attempts, _ = watched(tmp_path, "fetch", *model, "--task", "rte")
    assert code == 2
    assert attempts > 0
