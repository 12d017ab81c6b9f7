"""Commands that a launcher starts in several processes: one result, one line of what is wrong."""

import json
import os
import subprocess
import sys

import pytest
import torch
import yaml
from together import ROOT, ended

from bertsecrets import session as sessions
from bertsecrets.models.processes import Processes
from bertsecrets.session import Session
from bertsecrets.store.entries import entries, read_manifest

pytestmark = pytest.mark.slow
COMMAND = ("-m", "bertsecrets", "finetune", "--task", "rte")


def lines(said: list[str]) -> list[str]:
    """What all processes say, without progress bars."""
    every = "".join(said).replace("\r", "\n").splitlines()
    return [line for line in every if line.startswith("bertsecrets") or "Error" in line or "rror:" in line]


def test_one_checkpoint_is_made_and_measured_by_all(shared, quick, tmp_path):
    launcher = ("-m", "torch.distributed.run", "--standalone", "--nproc-per-node", "2")
    wanted = ("-m", "bertsecrets", "measure", "scores", "--task", "rte", *shared, "--store", str(tmp_path / "runs"))
    done = subprocess.run(
        [sys.executable, *launcher, *wanted],
        env={**os.environ, "PYTHONPATH": str(ROOT), "OMP_NUM_THREADS": "1"},
        capture_output=True, text=True, timeout=300,
    )  # fmt: skip
    assert done.returncode == 0, done.stderr
    assert json.loads(done.stdout)["measure"] == "scores"
    kept = {read_manifest(folder)["kind"]: read_manifest(folder) for folder in entries(tmp_path / "runs")}
    assert set(kept) == {"checkpoints", "measurements"}
    assert len(list(entries(tmp_path / "runs"))) == 2
    device = kept["checkpoints"]["key"]["made_by"]["device"]
    assert device.endswith("1 thread, 2 processes")
    assert kept["measurements"]["key"]["made_by"]["device"] == device.removesuffix(", 2 processes")


def test_a_process_with_other_settings_ends_all_with_one_line(shared, quick, tmp_path):
    data = yaml.safe_load(quick.read_text(encoding="utf-8"))
    data["finetune"]["batch_size"] = 7
    other = tmp_path / "other.yaml"
    other.write_text(yaml.safe_dump(data), encoding="utf-8")
    words = (*COMMAND, *shared, "--store", str(tmp_path / "runs"))
    codes, printed, said = ended(*words, of_second={"BERTSECRETS_PARAMS": str(other)})
    assert codes == [2, 2]
    assert printed == ["", ""]
    assert lines(said) == [
        "bertsecrets: process 2 of 2: finetune not the same as in process 1: give all processes the same"
    ]
    assert not list(entries(tmp_path / "runs"))


@pytest.mark.parametrize(
    ("words", "line"),
    [
        (("--seed", "-1"), "bertsecrets: --seed -1 is out of range: give 0 to 4294967295"),
        (("--init", "no"), "bertsecrets finetune: argument --init: invalid choice: 'no'"),
    ],
)
def test_what_is_wrong_in_all_processes_is_said_once(shared, words, line):
    codes, _, said = ended(*COMMAND, *shared, *words)
    assert codes == [2, 2]
    assert len(lines(said)) == 1
    assert lines(said)[0].startswith(line)


def test_the_number_of_processes_is_in_the_keys_of_what_they_train_together(
    tiny_bert, tiny_glue, tmp_path, monkeypatch
):
    options = {"model": str(tiny_bert), "glue": tiny_glue, "store": tmp_path, "allow_unofficial_data": True}

    def keys() -> dict[str, dict]:
        session = Session(**options, device="cpu", offline=True)
        subjects = [session.subject("rte", init) for init in ("pretrained", "random", "frozen", "untrained")]
        return {subject.initialisation: session._checkpoint_key(subject).as_json() for subject in subjects}

    alone = keys()
    monkeypatch.setattr(sessions, "current", lambda: Processes(2, 0))
    together = keys()
    number = torch.get_num_threads()
    assert alone["pretrained"]["made_by"]["device"].endswith(f"{number} thread" + "s" * (number != 1))
    assert {name for name in alone if alone[name] != together[name]} == {"pretrained", "random"}
    assert together["random"]["made_by"]["device"] == alone["random"]["made_by"]["device"] + ", 2 processes"
