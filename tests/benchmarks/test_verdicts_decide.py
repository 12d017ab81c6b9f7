"""The exit code of pytest follows from the verdicts, whatever pytest and its plugins make of the tests."""

import json
from dataclasses import replace
from itertools import product

import pytest
from measurements import scored

from bertsecrets.store.measurements import save_to_folder
from bertsecrets.types import Subject

RUN = ("--pyargs", "bertsecrets.benchmarks", "--model", "m", "--measurements", "kept", "-k", "D2-rte or G1-rte-luck")
SKIPS = "import pytest\n\n@pytest.hookimpl(tryfirst=True)\ndef pytest_runtest_call(item):\n    pytest.skip('mine')\n"
IGNORES = "import pytest\n\n@pytest.hookimpl(tryfirst=True)\ndef pytest_pyfunc_call(pyfuncitem):\n    return True\n"


@pytest.fixture
def kept(tmp_path):
    """Save measurements that contradict D2: the fine-tuned model is worse than the most frequent class."""
    target = [0, 1, 1, 1] * 20
    for seed, (init, answers) in product((1, 2, 3), {"pretrained": [1, 0, 0, 0] * 20, "untrained": [1] * 80}.items()):
        scores = replace(scored(answers, target), subject=Subject("m", "rte", init, seed))
        save_to_folder(scores, tmp_path / "kept")
    return tmp_path


@pytest.mark.parametrize(
    ("words", "conftest"),
    [((), ""), (("--setup-only",), ""), ((), SKIPS), ((), IGNORES)],
    ids=["plain", "setup only", "skipped by a plugin", "passed by a plugin"],
)
def test_a_deviation_fails_the_run_however_its_test_ends(run, kept, words, conftest):
    code, output = run(*RUN, *words, conftest=conftest)
    assert code == 1, output


@pytest.mark.parametrize(
    "words", [(), ("--runxfail",), ("-p", "no:skipping")], ids=["plain", "runxfail", "no skipping"]
)
def test_an_accepted_deviation_passes_the_run_however_its_test_ends(run, kept, words):
    assert run(*RUN, "--baseline", "accepted.json", "--update-baseline")[0] == 0
    code, output = run(*RUN, "--baseline", "accepted.json", *words)
    assert code == 0, output


def test_both_files_say_that_a_run_ended_early(run, kept):
    run(*RUN, "--maxfail=1", "--benchmark-json", "b.json", "--report", "page", "--examples", 0)
    files = [
        json.loads((kept / "b.json").read_text())["bertsecrets"],
        json.loads((kept / "page/verdicts.json").read_text()),
    ]
    assert [file["incomplete"] for file in files] == ["1 of 3 claims were judged before the run ended"] * 2


def test_nothing_is_opened_for_a_misspelt_selection(run, kept):
    code, output = run(*RUN[:-1], "D1-rte (")
    assert (code, "claims to judge" in output) == (4, False), output


@pytest.mark.parametrize("words", [("--benchmark-json", "a.json"), ("--report", ".")], ids=["json", "report"])
def test_an_output_never_replaces_the_baseline(run, kept, words):
    name = "a.json" if "a.json" in words else "verdicts.json"
    assert run(*RUN, "--baseline", name, "--update-baseline")[0] == 0
    before = (kept / name).read_bytes()
    code, output = run(*RUN, "--baseline", name, *words)
    assert (code, "which is an input of this run" in output) == (2, True), output
    assert (kept / name).read_bytes() == before


def test_saved_benchmarks_of_other_suites_are_left_out_of_the_comparison(run, kept):
    run(*RUN, "--benchmark-autosave", "--benchmark-storage", "saved")
    (file,) = (kept / "saved").rglob("*.json")
    saved = json.loads(file.read_text())
    saved["benchmarks"].append({**saved["benchmarks"][0], "name": "theirs", "extra_info": {"id": "D2-rte"}})
    file.write_text(json.dumps(saved))
    code, output = run(*RUN, "--benchmark-compare", "--benchmark-storage", "saved")
    assert (code, "KeyError" in output) == (1, False), output


def test_a_shown_name_can_be_deselected(run, kept):
    _, output = run(*RUN, "--deselect", "benchmarks/test_claims.py::test_claim[D2-rte]")
    assert ("/ 2 selected" in output, "test_claim[D2-rte]" in output) == (True, False), output
