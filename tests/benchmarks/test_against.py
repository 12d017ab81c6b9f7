"""`pytest benchmarks --against PIN`, run as a user runs it: drift from a pin, as failures with exit code 1."""

import os
import shutil
import subprocess
import sys
from pathlib import Path

import pytest
from damages import save_peaked, study

from bertsecrets.cli.main import main

ROOT = Path(__file__).parents[2]
ENVIRONMENT = {name: value for name, value in os.environ.items() if not name.startswith("PYTEST_")}
pytestmark = pytest.mark.usefixtures("quick")


@pytest.fixture(scope="module")
def model(tmp_path_factory):
    return save_peaked(tmp_path_factory.mktemp("model") / "tiny")


@pytest.fixture(scope="module")
def rest(tiny_glue, runs):
    words = ("--glue", tiny_glue, "--store", runs, "--device", "cpu", "--offline", "--allow-unofficial-data")
    return list(map(str, words))


@pytest.fixture(scope="module")
def pin(model, rest, tmp_path_factory, quick_params):
    place = tmp_path_factory.mktemp("pins") / "tiny.yaml"
    with pytest.MonkeyPatch.context() as patch:
        patch.setenv("BERTSECRETS_PARAMS", str(quick_params))
        words = ["--model", model, "--seeds", 3, "--reason", "The first.", "--output", place]
        words += ["--measure", "special-tokens", "--measure", "attention-change"]
        assert main(list(map(str, ["pin", *words, *rest]))) == 0
    return place


def judged(*arguments):
    command = [sys.executable, "-m", "pytest", "benchmarks", "-p", "no:cacheprovider", *map(str, arguments)]
    environment = ENVIRONMENT | {"BERTSECRETS_PARAMS": os.environ["BERTSECRETS_PARAMS"]}
    return subprocess.run(command, cwd=ROOT, env=environment, capture_output=True, text=True, check=False)


def test_a_model_that_has_not_drifted_passes_and_no_claim_is_judged(model, pin, rest):
    done = judged("-v", "--model", model, "--against", pin, "--seeds", 3, "-k", "special-tokens-rte", *rest)
    assert done.returncode == 0, done.stdout + done.stderr
    assert "test_drift[special-tokens-rte] PASSED" in done.stdout
    assert "1 passed, 1 deselected" in done.stdout
    assert "no drift: nothing differs at all, in 1 measure" in done.stdout


def test_several_processes_share_the_seeds_and_the_summary_is_shown_once(model, pin, rest, tmp_path):
    store = ["--store", tmp_path / "store"]  # an empty one: each process trains its own seeds
    done = judged("-n", 2, "--model", model, "--against", pin, "--seeds", 2, "-k", "special", *rest, *store)
    assert done.returncode == 0, done.stdout + done.stderr
    assert "1 passed" in done.stdout
    assert done.stdout.count("from " + str(pin)) == 1
    assert " drift ===" in done.stdout
    assert len(list((tmp_path / "store" / "checkpoints").glob("*pretrained*"))) == 2


def test_a_damaged_model_fails_with_its_heads_and_exit_code_1(model, pin, rest, tmp_path):
    damaged = Path(shutil.copytree(model, tmp_path / "damaged"))
    study.attention_of_a_layer_uniform(damaged)
    done = judged("--model", damaged, "--against", pin, "--seeds", 2, "--junitxml", tmp_path / "junit.xml", *rest)
    assert done.returncode == 1, done.stdout + done.stderr
    assert "special-tokens on RTE has drifted (3 seeds against 2 seeds, 24 examples; sd: standard" in done.stdout
    assert " of 12 heads: 2." in done.stdout
    assert 'name="verdict" value="drift"' in (tmp_path / "junit.xml").read_text()


def test_bad_input_ends_with_one_line_and_exit_code_2(model, pin, rest, tmp_path):
    gone = judged("--model", model, "--against", tmp_path / "gone.yaml", *rest)
    assert gone.returncode == 2
    assert "cannot read the pin" in gone.stdout + gone.stderr
    other_rows = judged("--model", model, "--against", pin, "--limit", 12, "--seeds", 2, *rest)
    assert other_rows.returncode == 2
    assert "not the same examples (24 and 12; all rows and limit 12)" in other_rows.stdout
