"""Disk space: a run announces what it needs before training, and is refused if the space is not available."""

import dataclasses
import json
import shutil
from collections import namedtuple
from pathlib import Path

import pytest
from calls import run, told

from bertsecrets.cli.main import main
from bertsecrets.jobs.disk import Disk

pytestmark = pytest.mark.usefixtures("quick", "same_threads")
GB, MB = 10**9, 10**6
BASE = Disk(trainings=7, checkpoint=440 * MB, measurements=20 * MB, at_once=1, free=40 * GB)
Usage = namedtuple("Usage", "total used free")
FEW = ("--task", "rte", "--claim", "E1", "--claim", "D2-rte")


def test_dropped_weights_take_disk_only_until_everything_is_measured():
    assert [BASE.at_end(keep) for keep in ("full", "none")] == [3100 * MB, 20 * MB]
    assert [BASE.peak(keep) for keep in ("full", "none")] == [3100 * MB, 460 * MB]
    said = "7 checkpoints to train, 3.08 GB and 20 MB of measurements"
    assert BASE.announcement("full") == f"{said}; 40 GB free"
    assert BASE.announcement("none") == f"{said}; at most 460 MB at a time; 40 GB free"


@pytest.mark.parametrize(
    ("keep", "free", "says"),
    [
        ("full", 4 * GB, None),
        ("full", 1 * GB, "7 checkpoints would take 3.1 GB, but only 1 GB is free in runs: use --keep-checkpoints none"),
        ("full", 1 * MB, "use fewer tasks or claims or another --store"),
        ("none", 1 * MB, "use fewer tasks or claims or another --store"),
    ],
)
def test_a_run_that_does_not_fit_is_refused_with_advice(keep, free, says):
    problem = dataclasses.replace(BASE, free=free).problem(keep, Path("runs"))
    assert problem is None if says is None else says in problem


@pytest.fixture
def full_disk(monkeypatch):
    monkeypatch.setattr(shutil, "disk_usage", lambda place: Usage(10**9, 10**9 - 1000, 1000))


@pytest.mark.parametrize("command", [["report"], ["run", "--jobs", 2], ["measure", "scores"]], ids=lambda one: one[0])
def test_nothing_is_trained_where_it_does_not_fit(capsys, shared, tmp_path, full_disk, command):
    words = ["--claim", "C1", "--task", "rte"] if command[0] != "measure" else ["--task", "rte"]
    line = told(capsys, *command, *shared, "--store", tmp_path / "new", *words)
    assert line.startswith("bertsecrets: 1 checkpoint would take ")
    assert f"but only 1 kB is free in {tmp_path / 'new'}: use fewer tasks or claims or another --store" in line
    assert not list(tmp_path.glob("new/checkpoints/*"))


def test_a_measurement_announces_its_checkpoint_unless_it_is_stored(capsys, shared, tmp_path):
    words = ["measure", "scores", "--task", "rte", *shared, "--store", tmp_path, "--json", tmp_path / "x.json"]
    assert main([str(word) for word in words]) == 0
    assert "bertsecrets: 1 checkpoint to train, 1" in capsys.readouterr().err
    assert main([str(word) for word in words]) == 0
    assert "to train" not in capsys.readouterr().err


def test_a_plan_that_does_not_fit_on_the_disk_says_so(capsys, shared, tmp_path, full_disk):
    last = run(capsys, "plan", *shared, "--store", tmp_path, *FEW).splitlines()[-1]
    assert f"1 kB free in {tmp_path}, which is not enough: " in last


def test_a_plan_shows_the_disk_space_for_each_retention_setting(capsys, shared, tmp_path):
    words = ["plan", *shared, "--store", str(tmp_path), *FEW]
    assert " with --keep-checkpoints none; " in run(capsys, *words).splitlines()[-1]
    data = json.loads(run(capsys, *words, "--json"))["disk"]
    kept_bytes = {keep: sizes["kept_bytes"] for keep, sizes in data["by_keep_checkpoints"].items()}
    assert kept_bytes["none"] < kept_bytes["full"]
    assert data["checkpoints"] == 2
    assert data["free_bytes"] > 0


def test_the_commands_of_a_script_drop_nothing(capsys, shared, tmp_path):
    script = run(capsys, "plan", *shared, "--store", tmp_path, *FEW, "--keep-checkpoints", "none", "--shell")
    assert "bertsecrets measure" in script
    assert "--keep-checkpoints" not in script
