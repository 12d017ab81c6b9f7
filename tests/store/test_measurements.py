"""Measurements saved by `measure --save` have one folder per model and checkpoint, and changed bytes are detected."""

import shutil
from dataclasses import replace

import numpy as np
import pytest
from measurements import measured, scored

from bertsecrets.errors import UserError
from bertsecrets.store.measurements import SAMPLES_FILE, VALUES_FILE, Shelf, save, save_to_folder
from bertsecrets.types import Subject


def of_model(model: str, accuracy: float = 1.0):
    scores = measured("scores", {"accuracy": accuracy}, {"predicted": [1] * 9, "target": [1] * 9})
    return replace(scores, subject=Subject(model, "rte"))


def test_models_with_the_same_last_name_are_saved_separately(tmp_path, monkeypatch):
    monkeypatch.chdir(tmp_path)
    for name in ("expA", "expB"):
        (tmp_path / name / "model").mkdir(parents=True)
    places = {save_to_folder(of_model(f"{name}/model"), tmp_path / "kept") for name in ("expA", "expB")}
    places |= {save_to_folder(of_model(f"org{i}/model"), tmp_path / "kept") for i in (1, 2)}
    assert len(places) == len(Shelf.read(tmp_path / "kept").measurements) == 4


def test_measuring_a_model_again_replaces_its_saved_measurement(tmp_path, monkeypatch):
    monkeypatch.chdir(tmp_path)
    (tmp_path / "expA" / "model").mkdir(parents=True)
    for accuracy, name in enumerate(("expA/model", "./expA/model/", str(tmp_path / "expA" / "model"))):
        save_to_folder(of_model(name, accuracy), tmp_path / "kept")
    (saved,) = Shelf.read(tmp_path / "kept").measurements
    assert saved.values["accuracy"] == 2.0


def test_two_checkpoints_of_one_subject_are_saved_separately_and_refused_together(tmp_path):
    places = [save_to_folder(of_model("m"), tmp_path / "kept", tmp_path / name) for name in ("one", "two")]
    with pytest.raises(UserError) as refused:
        Shelf.read(tmp_path / "kept")
    assert all(str(place) in str(refused.value) for place in places)
    assert str(refused.value).endswith("both contain scores of m-rte-pretrained-s1: move one of them to another folder")


def test_part_selects_tasks_initialisations_and_seeds(tmp_path):
    grid = [("rte", "pretrained", 1), ("rte", "pretrained", 2), ("rte", "random", 1), ("mrpc", "pretrained", 1)]
    for task, initialisation, seed in grid:
        save_to_folder(replace(of_model("m"), subject=Subject("m", task, initialisation, seed)), tmp_path)
    shelf = Shelf.read(tmp_path)

    def part(*which):
        return {(m.subject.task, m.subject.initialisation, m.subject.seed) for m in shelf.part(*which).measurements}

    assert part([], None, None) == set(grid)
    assert part(["rte"], ["pretrained"], [1]) == {grid[0]}
    assert part(["rte", "mrpc"], None, [1]) == {grid[0], grid[2], grid[3]}
    assert part([], ["random"], None) == {grid[2]}


def test_a_measurement_without_manifest_is_refused_until_it_is_measured_again(tmp_path):
    place = save_to_folder(of_model("m"), tmp_path / "kept")
    (place / "manifest.json").unlink()
    with pytest.raises(UserError, match=r"cannot read .*manifest\.json.*: recreate it"):
        Shelf.read(tmp_path / "kept")
    save_to_folder(of_model("m"), tmp_path / "kept")
    assert len(Shelf.read(tmp_path / "kept").measurements) == 1


def test_leftovers_of_killed_runs_are_not_read(tmp_path):
    whole = save_to_folder(of_model("m", accuracy=1.0), tmp_path / "kept")
    hidden = tmp_path / "kept" / f".{whole.name}.abcdefgh.tmp"
    hidden.mkdir()
    save(of_model("m", accuracy=0.0), hidden)
    shutil.copytree(hidden, tmp_path / "kept" / ".old" / "fresh")
    (saved,) = Shelf.read(tmp_path / "kept").measurements
    assert saved.values["accuracy"] == 1.0


@pytest.mark.parametrize("file", [VALUES_FILE, SAMPLES_FILE, "manifest.json"])
def test_any_changed_byte_of_a_saved_measurement_is_noticed(tmp_path, file):
    place = save_to_folder(scored(np.arange(50) % 2, np.ones(50, dtype=int)), tmp_path)
    content = (place / file).read_bytes()
    for at in range(0, len(content), 1 + len(content) // 100):
        (place / file).write_bytes(content[:at] + bytes([content[at] ^ 0x11]) + content[at + 1 :])
        with pytest.raises(UserError, match="is incomplete or from another version"):
            Shelf.read(tmp_path)
    (place / file).write_bytes(content)
    Shelf.read(tmp_path)
