"""The exit code of pytest follows from the verdicts, whatever pytest and its plugins make of the tests."""

import json
import re
from xml.etree import ElementTree

import pytest
from verdicts import save_scores

from bertsecrets.store.records import RecordedCause, RecordedRun, write_record

TWO = "D1-rte-pretrained or D2-rte"  # and with D2, its claim about a frozen encoder
RUN = ("--pyargs", "bertsecrets.benchmarks", "--model", "m", "--measurements", "kept", "-k", "D2-rte or G1-rte-luck")
# Other plugins, by name. Hooks of a conftest file above the benchmarks' folder would not be called for them.
PLUGINS = {
    "skips": "pytest_runtest_call(item):\n    pytest.skip('mine')",
    "ignores": "pytest_pyfunc_call(pyfuncitem):\n    return True",
    "skips_d2": "pytest_runtest_setup(item):\n    'D2-rte]' in item.name and pytest.skip('mine')",
    "fails_d2": "pytest_runtest_setup(item):\n    assert 'D2-rte]' not in item.name, 'mine'",
    "ends": "pytest_runtest_logfinish(nodeid):\n    'D2-rte]' in nodeid and pytest.exit('enough', returncode=0)",
    "stops": "pytest_runtest_protocol(item):\n    item.session.shouldstop = 'enough'",  # as --stepwise does
    "twice": "pytest_collection_modifyitems(items):\n    items.extend([*items])",
    **{
        name: (
            "pytest_collection_finish():\n    from bertsecrets.errors import UserError\n"
            "    from bertsecrets.judging import JudgedRun\n    result = JudgedRun.result\n"
            f"    def ended(run, case):\n        if 'D2' in str(case):\n            raise {raised}\n"
            "        return result(run, case)\n    JudgedRun.result = ended"
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
    save_scores(tmp_path / "kept", 0.35, seconds=2.0)
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
    ("right", "facts", "code", "said"),
    [
        (0.9, {}, 0, "1 xfailed"),
        (0.9, {"limit": 48}, 1, "the exit code follows the verdicts: D1-rte-pretrained"),
        (0.65, {}, 1, "[XPASS(strict)] known to deviate: MiniLM is smaller"),
        (0.1, {}, 1, "D1-rte-pretrained degenerate: "),
    ],
    ids=["known", "on few rows", "gone", "collapsed"],
)
def test_a_known_deviation_is_expected_and_fails_when_it_is_gone(run, tmp_path, right, facts, code, said):
    """K19 publishes 64.6, which MiniLM is known not to reach."""
    save_scores(tmp_path / "kept", right, model="minilm", **facts)
    ended, output = run(*RUN[:2], "--model", "minilm", "--measurements", "kept", "-k", "D1-rte-pretrained")
    assert (ended, said in output) == (code, True), output


def test_a_run_without_the_requested_seeds_does_not_pass(run, kept):
    shape = {"layers": 1, "heads": 1, "has": "", "instead": ""}
    causes = {"G1-rte-luck": RecordedCause(grounds="OTHER_SHAPE", facts=shape)}
    write_record(kept / "kept", RecordedRun(model="m", seeds=3, cases=[*causes], not_applicable=causes), [])
    code, output = run(*RUN, "--seeds", "4")
    assert (code, "which has m (seeds 1 2 3): choose" in output) == (2, True), output


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
    ended, output = run(*RUN[:-1], TWO, *words)
    assert (ended, f"a.json is not updated: {note}\nincomplete: {note}" in output) == (code, True), output
    assert json.loads((kept / "b.json").read_text())["bertsecrets"]["incomplete"] == note
    assert not (kept / "a.json").exists()


def test_a_run_that_is_stopped_after_its_last_claim_is_complete(run, kept):
    words = ("-p", "stops", "--baseline", "a.json", "--update-baseline")
    _, output = run(*RUN[:-1], "D2-rte and not frozen", *words)
    assert ("incomplete" in output, f"baseline: {kept / 'a.json'}" in output) == (False, True), output


@pytest.mark.parametrize("word", ["--fixtures", "--fixtures-per-test", "--setup-plan"])
def test_a_list_of_tests_or_fixtures_is_not_a_run(run, kept, word):
    code, output = run(*RUN, word)
    lines = [line for line in output.splitlines() if "claims were judged" in line or "claim was judged" in line]
    assert (code, lines) == (0, []), output


@pytest.mark.parametrize(
    ("plugin", "code", "said"),
    [("without_room", 2, "Exit: D2-rte: the disk is full"), ("interrupts", 130, "interrupted; finished results are")],
)
def test_the_end_of_a_run_is_one_line(run, kept, plugin, code, said):
    files = ("--benchmark-json", "b.json", "--report", "page", "--examples", 0)
    conftest = f"import pytest\n\ndef {PLUGINS['fixtures']}\n"
    ended, output = run(*RUN[:-1], TWO, "-p", plugin, *files, conftest=conftest)
    assert (ended, output.count(said), "Traceback" in output) == (code, 1, False), output
    benchmarks = json.loads((kept / "b.json").read_text())
    assert [entry["extra_info"]["id"] for entry in benchmarks["benchmarks"]] == ["D1-rte-pretrained"]
    note = "1 of 3 claims were judged before the run ended"
    assert benchmarks["bertsecrets"]["incomplete"] == note
    assert json.loads((kept / "page" / "verdicts.json").read_text())["incomplete"] == note
    assert f"Incomplete.</strong> {note}." in (kept / "page" / "report.html").read_text()


def test_paths_are_those_of_the_folder_in_which_pytest_was_started(run, tmp_path, tiny_bert, tiny_glue):
    for name, folder in {"model": tiny_bert, "glue": tiny_glue}.items():
        (tmp_path / name).symlink_to(folder)
    words = ("--model=./model", "--glue=./glue", "--allow-unofficial-data", "--offline", "--device=cpu", "--limit=6")
    conftest = f"import pytest\n\ndef {PLUGINS['fixtures']}\n"
    code, output = run(*RUN[:2], *words, "-k", "D1-rte-untrained", "--seeds=1", "--store=runs", conftest=conftest)
    assert (code, "inconclusive: under 30" in output, (tmp_path / "runs").is_dir()) == (0, True, True), output


def test_accepted_deviations_pass_however_their_tests_end_and_worse_verdicts_fail(run, kept):
    judged, file = (*RUN, "--baseline", "verdicts.json"), kept / "verdicts.json"
    code, output = run(*judged, "--update-baseline")
    assert (code, "1 xfailed" in output, f"baseline: {file}" in output) == (0, True, True), output
    code, output = run(*judged, "-rx")
    assert (code, "accepted in verdicts.json" in output) == (0, True), output
    for words in (("--runxfail",), ("-p", "no:skipping")):
        code, output = run(*judged, *words)
        assert code == 0, output
    before = file.read_text()
    for words in (("--benchmark-json", "verdicts.json"), ("--report", ".")):
        code, output = run(*judged, *words)
        assert (code, "which is an input of this run" in output) == (2, True), output
    assert file.read_text() == before
    for old, new, code, said in (
        ('"verdict": "deviates"', '"verdict": "reproduced"', 1, "worse than in verdicts.json: D2-rte"),
        ('"model": "m"', '"model": "n"', 2, "is the baseline of another run (model n -> m"),
    ):
        file.write_text(before.replace(old, new))
        ended, output = run(*judged)
        assert (ended, said in output) == (code, True), output


def test_verdicts_before_the_most_failures_are_in_both_files(run, kept):
    run(*RUN, "--maxfail=1", "--benchmark-json", "b.json", "--report", "page", "--examples", 0)
    files = [
        json.loads((kept / "b.json").read_text())["bertsecrets"],
        json.loads((kept / "page/verdicts.json").read_text()),
    ]
    assert [file["incomplete"] for file in files] == ["1 of 3 claims were judged before the run ended"] * 2


def test_nothing_is_opened_for_a_misspelt_selection(run, kept):
    code, output = run(*RUN[:-1], "D1-rte (")
    assert (code, "claims to judge" in output) == (4, False), output


def test_benchmarks_are_compared_with_saved_ones_but_not_with_those_of_other_suites(run, kept):
    run(*RUN, "--benchmark-autosave", "--benchmark-storage", "saved", "--junitxml", "j.xml")
    names = {case.get("classname") for case in ElementTree.parse(kept / "j.xml").getroot().iter("testcase")}
    assert names == {"benchmarks.test_claims"}  # wherever the package is
    (file,) = (kept / "saved").rglob("*.json")
    saved = json.loads(file.read_text())
    seconds = {entry["extra_info"]["id"]: entry["stats"]["mean"] for entry in saved["benchmarks"]}
    assert seconds["D2-rte"] == 12  # two for each of its six measurements
    saved["benchmarks"].append({**saved["benchmarks"][0], "fullname": "theirs", "extra_info": {"id": "D2-rte"}})
    file.write_text(json.dumps(saved))
    code, output = run(*RUN, "--benchmark-compare", "--benchmark-storage", "saved")
    assert (code, "KeyError" in output) == (1, False), output
    assert re.search(r"^claim +observed before +now +verdict before +now +seconds before +now$", output, re.M), output
    row = next(line for line in output.splitlines() if line.startswith("D2-rte  "))
    _name, was, now, outcome, same, before, after = re.split(r"  +", row)
    assert (was, outcome, before, after) == (now, same, "12", "12")


def test_a_shown_name_can_be_deselected(run, kept):
    _, output = run(*RUN, "--deselect", "benchmarks/test_claims.py::test_claim[D2-rte]")
    assert ("/ 2 selected" in output, "test_claim[D2-rte]" in output) == (True, False), output
