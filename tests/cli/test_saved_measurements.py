"""`report --measurements`: the selection of saved measurements, and damaged files."""

import json
from dataclasses import replace
from pathlib import Path

import numpy as np
import pytest
from calls import run, told
from measurements import measured, scored

from bertsecrets.store.entries import write_manifest
from bertsecrets.store.measurements import load, save_to_folder
from bertsecrets.types import Subject

pytestmark = pytest.mark.usefixtures("quick")
PAIR = [scored([1] * 80 + [0] * 20, [1] * 100), scored([1] * 20 + [0] * 80, [1] * 100)]


@pytest.fixture
def shelf(tmp_path):
    """Saved scores of model `m`: fine-tuned with seeds 1, 2 and 4, and untrained with seeds 1 and 2."""
    for initialisation, seeds in {"pretrained": (1, 2, 4), "untrained": (1, 2)}.items():
        for seed in seeds:
            scores = measured("scores", {"accuracy": 1.0}, {"predicted": [1] * 9, "target": [1] * 9})
            save_to_folder(replace(scores, subject=Subject("m", "rte", initialisation, seed)), tmp_path / "kept")
    return tmp_path / "kept"


@pytest.mark.parametrize("options", [["--model", "minilm"], ["--model", "m", "--seeds", 3]])
def test_saved_models_and_seeds_are_listed_if_others_are_requested(capsys, shelf, options):
    line = told(capsys, "report", "--measurements", shelf, *options)
    assert f"{shelf}, which has m (seeds 1 2 4): choose one of these models" in line


@pytest.mark.parametrize(("options", "fine_tuned", "gain"), [([], [1, 2, 4], [1, 2]), (["--seeds", 2], [1, 2], [1, 2])])
def test_each_claim_is_judged_on_the_seeds_saved_for_it(capsys, shelf, tmp_path, options, fine_tuned, gain):
    call = ["report", "--model", "m", "--claim", "D1", "--claim", "D2", "--measurements", shelf]
    run(capsys, *call, "--json", tmp_path / "v.json", *options)  # nine examples are too few to decide
    seeds = {verdict["id"]: verdict["seeds"] for verdict in json.loads((tmp_path / "v.json").read_text())["verdicts"]}
    assert (seeds["D1-rte-pretrained"], seeds["D2-rte"]) == (fine_tuned, gain)


@pytest.mark.parametrize("option", [("--device", "cpu"), ("--grid-limit", 0)])
def test_measuring_options_are_refused_for_saved_measurements(capsys, shelf, option):
    line = told(capsys, "report", "--model", "m", "--measurements", shelf, *option)
    assert f"{option[0]} has no effect with --measurements" in line


def test_classes_in_another_order_fail_the_run_with_their_reason(capsys, tmp_path):
    swapped = scored([0] * 80 + [1] * 20 + [1] * 80 + [0] * 20, [1] * 100 + [0] * 100)
    save_to_folder(swapped, tmp_path / "kept")
    call = ["report", "--model", "m", "--claim", "D1-rte-pretrained", "--measurements", tmp_path / "kept"]
    run(capsys, *call, "--json", tmp_path / "v.json", code=1)
    (verdict,) = json.loads((tmp_path / "v.json").read_text())["verdicts"]
    assert verdict["verdict"] == "degenerate"
    assert "but 80.0 % would be right if the classes were swapped" in verdict["reason"]


def unsampled(entry: Path) -> None:
    samples = dict(load(entry).samples)
    del samples["target"]
    np.savez(entry / "samples.npz", **samples)


def changed(change):
    def rewrite(entry: Path) -> None:
        file = entry / "measurement.json"
        data = json.loads(file.read_text())
        change(data)
        file.write_text(json.dumps(data))

    return rewrite


DAMAGES = {
    "no samples": lambda entry: (entry / "samples.npz").write_bytes(b""),
    "a sample missing": unsampled,
    "a list of values": changed(lambda data: data.update(values=[1])),
    "seconds below zero": changed(lambda data: data["provenance"].update(seconds=-1)),
    "an unknown initialisation": changed(lambda data: data["subject"].update(initialisation="x")),
}


@pytest.mark.parametrize(("damage", "signed"), [("a list of values", False), *((name, True) for name in DAMAGES)])
def test_a_damaged_measurement_is_reported(capsys, tmp_path, damage, signed):
    trained, untrained = PAIR
    save_to_folder(trained, tmp_path)
    entry = save_to_folder(replace(untrained, subject=replace(untrained.subject, initialisation="untrained")), tmp_path)
    assert "D2" in run(capsys, "report", "--model", "m", "--claim", "D2", "--measurements", tmp_path)
    DAMAGES[damage](entry)
    if signed:  # with a manifest that matches the damaged files
        write_manifest(entry, {})
    line = told(capsys, "report", "--model", "m", "--claim", "D2", "--measurements", tmp_path)
    assert f"{entry} is incomplete or from another version (" in line
    assert line.endswith("): recreate it")
