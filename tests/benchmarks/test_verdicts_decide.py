"""The exit code of pytest follows from the verdicts, whatever pytest and its plugins make of the tests."""

import json
from dataclasses import replace
from itertools import product

import pytest
from measurements import scored

from bertsecrets.store.measurements import save_to_folder
from bertsecrets.types import Subject

RUN = ("--pyargs", "bertsecrets.benchmarks", "--model", "m", "--measurements", "kept", "-k", "D2-rte or G1-rte-luck")
# Other plugins, by name. Hooks of a conftest file above the benchmarks' folder would not be called for them.
PLUGINS = {
    "skips": "pytest_runtest_call(item):\n    pytest.skip('mine')",
    "ignores": "pytest_pyfunc_call(pyfuncitem):\n    return True",
    "skips_d2": "pytest_runtest_setup(item):\n    'D2-rte]' in item.name and pytest.skip('mine')",
    "fails_d2": "pytest_runtest_setup(item):\n    assert 'D2-rte]' not in item.name, 'mine'",
    "ends": "pytest_runtest_logfinish(nodeid):\n    'D2-rte]' in nodeid and pytest.exit('enough', returncode=0)",
    "twice": "pytest_collection_modifyitems(items):\n    items.extend([*items])",
    **{
        name: (
            "pytest_collection_finish():\n    from bertsecrets.errors import UserError\n"
            "    from bertsecrets.judging import JudgedRun\n    from unittest.mock import Mock\n"
            f"    JudgedRun.result = Mock(side_effect={raised})"
        )
        for name, raised in {"without_room": "UserError('the disk is full')", "interrupts": "KeyboardInterrupt"}.items()
    },
    "fixtures": (  # of all tests below the root folder, in a conftest file
        "pytest_configure():\n    pass\n\n@pytest.fixture(autouse=True)\n"
        "def elsewhere(tmp_path, monkeypatch):\n    monkeypatch.chdir(tmp_path)"
    ),
}


@pytest.fixture
def kept(tmp_path):
    """Save measurements that contradict D2: the fine-tuned model is worse than the most frequent class."""
    target = [0, 1, 1, 1] * 20
    for seed, (init, answers) in product((1, 2, 3), {"pretrained": [1, 0, 0, 0] * 20, "untrained": [1] * 80}.items()):
        scores = replace(scored(answers, target), subject=Subject("m", "rte", init, seed))
        save_to_folder(scores, tmp_path / "kept")
    for name, hook in PLUGINS.items():
        (tmp_path / f"{name}.py").write_text(f"import pytest\n\n@pytest.hookimpl(tryfirst=True)\ndef {hook}\n")
    return tmp_path


@pytest.mark.parametrize(
    ("words", "said"),
    [
        ((), "1 failed, 2 skipped"),
        (("--setup-only",), "follows the verdicts: D2-rte"),
        (("-p", "skips"), "3 skipped"),
        (("-p", "ignores"), "2 passed"),
        (("-p", "twice"), "1 failed, 2 skipped"),
    ],
    ids=["plain", "setup only", "skipped by a plugin", "passed by a plugin", "listed twice"],
)
def test_a_deviation_fails_the_run_however_its_test_ends(run, kept, words, said):
    code, output = run(*RUN, *words)
    assert (code, said in output) == (1, True), output


@pytest.mark.parametrize(
    ("plugin", "code", "note"),
    [
        ("skips_d2", 0, "1 of 3 claims were skipped or failed before they were judged"),
        ("fails_d2", 1, "1 of 3 claims were skipped or failed before they were judged"),
        ("ends", 0, "2 of 3 claims were judged before the run ended"),
    ],
)
def test_a_run_without_all_verdicts_says_so_and_updates_no_baseline(run, kept, plugin, code, note):
    words = ("-p", plugin, "--baseline", "a.json", "--update-baseline", "--benchmark-json", "b.json")
    ended, output = run(*RUN[:-1], "D1-rte-pretrained or D2-rte", *words)
    assert (ended, f"a.json is not updated: {note}\nincomplete: {note}" in output) == (code, True), output
    assert json.loads((kept / "b.json").read_text())["bertsecrets"]["incomplete"] == note
    assert not (kept / "a.json").exists()


@pytest.mark.parametrize("conftest", ["", PLUGINS["fixtures"]], ids=["alone", "with other fixtures"])
@pytest.mark.parametrize(
    ("plugin", "code", "said"),
    [("without_room", 2, "Exit: D2-rte: the disk is full"), ("interrupts", 130, "interrupted; finished results are")],
)
def test_the_end_of_a_run_is_one_line(run, kept, plugin, code, said, conftest):
    ended, output = run(*RUN, "-p", plugin, conftest=f"import pytest\n\ndef {conftest}\n" if conftest else "")
    assert (ended, output.count(said), "Traceback" in output) == (code, 1, False), output


def test_paths_are_those_of_the_folder_in_which_pytest_was_started(run, tmp_path, tiny_bert, tiny_glue):
    for name, folder in {"model": tiny_bert, "glue": tiny_glue}.items():
        (tmp_path / name).symlink_to(folder)
    words = ("--model=./model", "--glue=./glue", "--allow-unofficial-data", "--offline", "--device=cpu", "--limit=6")
    conftest = f"import pytest\n\ndef {PLUGINS['fixtures']}\n"
    code, output = run(*RUN[:2], *words, "-k", "D1-rte-untrained", "--seeds=1", "--store=runs", conftest=conftest)
    assert (code, "inconclusive: 1 of" in output, (tmp_path / "runs").is_dir()) == (0, True, True), output


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
