"""`pytest benchmarks --against PIN`, run as a user would run it: drift is a test failure with exit code 1."""

import re
import shutil
from pathlib import Path

import pytest
from calls import run
from damages import save_peaked, study
from faults import pytest_benchmarks

from bertsecrets.cli.main import main

pytestmark = [pytest.mark.slow, pytest.mark.usefixtures("quick")]


@pytest.fixture(scope="module")
def model(tmp_path_factory):
    return save_peaked(tmp_path_factory.mktemp("model") / "tiny")


@pytest.fixture(scope="module")
def rest(tiny_glue, tmp_path_factory):
    store = tmp_path_factory.mktemp("store") / "runs"
    words = ("--glue", tiny_glue, "--store", store, "--device", "cpu", "--offline", "--allow-unofficial-data")
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


@pytest.fixture
def judged(tmp_path, quick):
    """Return a function that runs `pytest benchmarks` and returns the exit code and output."""

    def run(*words):
        return pytest_benchmarks(*words, output=tmp_path / "output", BERTSECRETS_PARAMS=str(quick))

    return run


def test_a_model_that_has_not_drifted_passes_and_no_claim_is_judged(judged, model, pin, rest):
    code, output = judged("-v", "--model", model, "--against", pin, "--seeds", 3, "-k", "special-tokens-rte", *rest)
    assert code == 0, output
    assert "test_drift[special-tokens-rte] PASSED" in output
    assert "1 passed, 1 deselected" in output
    assert "no drift: 1 measure exactly equal" in output


def test_a_checkpoint_is_tested_against_its_pin(judged, pin, rest, tmp_path, capsys):
    for seed, name in enumerate(("one", "other")):
        save_peaked(tmp_path / name, seed=seed, as_model=False)
    place, of_task = tmp_path / "one.yaml", ("--task", "rte", *rest)
    words = ("--checkpoint", tmp_path / "one", "--output", place, "--reason", "first", "--measure", "special-tokens")
    run(capsys, "pin", *words, *of_task)
    code, output = judged("--checkpoint", tmp_path / "one", "--against", pin, *of_task)
    assert code == 2, output
    assert "attention-change on RTE needs the pretrained model: name it with the option `model`" in output
    code, output = judged("--checkpoint", tmp_path / "other", "--against", place, *of_task)
    assert (code, "special-tokens on RTE has drifted (24 examples, one seed each" in output) == (1, True), output


def test_several_processes_share_the_seeds_and_the_summary_is_shown_once(judged, model, pin, rest, tmp_path):
    store = ["--store", tmp_path / "store"]  # empty, so that the processes train the seeds
    code, output = judged("--jobs", 2, "--model", model, "--against", pin, "--seeds", 2, "-k", "special", *rest, *store)
    assert code == 0, output
    assert "1 passed" in output
    assert output.count("from " + str(pin)) == 1
    assert " drift ===" in output
    assert len(list((tmp_path / "store" / "checkpoints").glob("[!.]*pretrained*"))) == 2


def test_a_damaged_model_fails_with_its_heads_and_exit_code_1(judged, model, pin, rest, tmp_path):
    damaged = Path(shutil.copytree(model, tmp_path / "damaged"))
    study.attention_of_a_layer_uniform(damaged)
    code, output = judged(
        "--model", damaged, "--against", pin, "--seeds", 2, "--junitxml", tmp_path / "junit.xml", *rest
    )
    assert code == 1, output
    assert "special-tokens on RTE has drifted (3 seeds against 2 seeds, 24 examples; sd: standard" in output
    assert " of 12 heads (by layer: 0, " in output
    assert re.search(r"^FAILED benchmarks/test_drift.py::test_drift\[special-tokens-rte\] - \d+ of 24 ", output, re.M)
    assert "Part(" not in output  # no dump of the pin
    assert 'name="verdict" value="drift"' in (tmp_path / "junit.xml").read_text()


def test_bad_input_ends_with_one_line_and_exit_code_2(judged, model, pin, rest, tmp_path):
    code, output = judged("--model", model, "--against", tmp_path / "gone.yaml", *rest)
    assert (code, "cannot read the pin" in output) == (2, True), output
    code, output = judged("--model", model, "--against", pin, "--limit", 12, "--seeds", 2, *rest)
    assert (code, "measured on different examples (24 and 12; all rows and limit 12)" in output) == (2, True), output
