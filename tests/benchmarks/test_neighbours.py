"""Other plugins, conftest files and ways to start pytest neither hide the benchmarks nor change what they report."""

import json

import pytest
from faults import PROJECT
from measurements import as_seeds, scored
from verdicts import save_scores

from bertsecrets.cli.main import main
from bertsecrets.store.records import RecordedRun, write_record

BENCHMARKS = "bertsecrets.benchmarks"
PUBLISHED = ("-k", "G1-rte-luck or D7-rte-table-1")  # about published figures, so nothing is measured


# ---------------------------------------------------------------------- ways to name the benchmarks

WAYS = {
    "name of the package": (("--pyargs", "bertsecrets"), ""),
    "a module": (("--pyargs", f"{BENCHMARKS}.test_claims"), ""),
    "addopts": ((), f"addopts = --pyargs {BENCHMARKS}"),
    "testpaths": (("--pyargs",), f"testpaths = {BENCHMARKS}"),
}


@pytest.mark.parametrize("way", WAYS)
def test_the_benchmarks_are_found_however_pytest_is_told_about_them(run, way):
    words, ini = WAYS[way]
    code, output = run("--collect-only", "-q", "-k", "C1-rte", "--model", "minilm", *words, ini=ini)
    assert (code, "test_claim[C1-rte]" in output) == (0, True), output


def test_benchmarks_without_their_plugin_fail_in_one_line(run):
    code, output = run("-p", "no:bertsecrets", "--pyargs", BENCHMARKS)
    assert code not in (0, 5), output
    assert "pytest was started without the benchmarks: use pytest --pyargs bertsecrets.benchmarks" in output


# ---------------------------------------------------------------------- options of others


def test_the_plugin_is_inactive_in_other_test_suites(run, tmp_path):
    (tmp_path / "test_own.py").write_text("def test_own(pytestconfig):\n    assert pytestconfig.option.model == 'x'\n")
    code, output = run("--model", "x", conftest="def pytest_addoption(parser):\n    parser.addoption('--model')\n")
    assert (code, "1 passed" in output, "bertsecrets:" in output) == (0, True, False), output


CLASHES = {
    "name": "parser.addoption('--model', default='theirs')",
    "destination": "parser.addoption('--their-model', dest='model', default='theirs')",
    "group": "parser.getgroup('theirs').addoption('--device', default='theirs')",
}


@pytest.mark.parametrize("clash", CLASHES)
def test_a_clash_of_options_names_both_owners_and_the_variable(run, tmp_path, clash):
    conftest = f"def pytest_addoption(parser):\n    {CLASHES[clash]}\n"
    words = ("--collect-only", "-q", "-k", "C1-rte", "--pyargs", BENCHMARKS)
    code, output = run(*words, conftest=conftest)
    if clash == "destination":  # ours have a prefix
        assert (code, "test_claim[C1-rte]" in output) == (0, True), output
        return
    option = {"name": "model", "group": "device"}[clash]
    line = f"bertsecrets: --{option} is an option of the benchmarks and of {tmp_path / 'conftest.py'}: "
    assert (code, line in output, f"BERTSECRETS_{option.upper()}" in output) == (2, True, True), output
    assert "Traceback" not in output
    code, output = run(*words, **{f"BERTSECRETS_{option.upper()}": ""})
    assert (code, "test_claim[C1-rte]" in output) == (0, True), output


def test_a_variable_gives_an_option_that_somebody_else_has_its_value(run):
    conftest = "def pytest_addoption(parser):\n    parser.addoption('--limit')\n    parser.addoption('--seeds')\n"
    words = ("--limit", "theirs", "-k", "G1-rte-luck", "--pyargs", BENCHMARKS)
    code, output = run(*words, conftest=conftest, BERTSECRETS_LIMIT="48", BERTSECRETS_SEEDS="2")
    assert (code, "limit 48" in output, "seeds 2" in output) == (0, True, True), output
    code, output = run(*words, conftest=conftest, BERTSECRETS_LIMIT="few", BERTSECRETS_SEEDS="2")
    assert (code, "BERTSECRETS_LIMIT in the environment: 'few' is not a whole number" in output) == (2, True), output
    code, output = run(*words, conftest=conftest, BERTSECRETS_LIMIT="0", BERTSECRETS_SEEDS="2")
    assert (code, "BERTSECRETS_LIMIT in the environment: limit must be at least 1, not 0" in output) == (2, True), (
        output
    )


# ---------------------------------------------------------------------- executions by others

TWICE = """
from _pytest.runner import runtestprotocol
def pytest_runtest_protocol(item, nextitem):
    for _ in range(2):
        for report in runtestprotocol(item, nextitem=None, log=False):
            item.ihook.pytest_runtest_logreport(report=report)
    return True
"""


def test_a_claim_that_is_executed_again_counts_once(run, tmp_path):
    words = (*PUBLISHED, "--pyargs", BENCHMARKS, "--report", "results")
    code, once = run(*words)
    first = json.loads((tmp_path / "results" / "verdicts.json").read_text())
    again, twice = run(*words, conftest=TWICE)
    second = json.loads((tmp_path / "results" / "verdicts.json").read_text())
    assert code == again, twice
    names = [verdict["id"] for verdict in second["verdicts"]]
    assert sorted(names) == sorted({*names}) == sorted(verdict["id"] for verdict in first["verdicts"])
    assert first["together"] == second["together"]
    for output in (once, twice):
        assert "\n2 claims not about a model: " in output, output


@pytest.mark.parametrize("words", [("-n", 2), ("--tx", "popen")])
def test_other_processes_are_refused_before_anything_is_opened(run, words):
    code, output = run(*PUBLISHED, *words, "--pyargs", BENCHMARKS)
    assert (code, "pytest-xdist cannot be used" in output) == (2, True), output


ELSEWHERE = """
import pytest
from _pytest.reports import TestReport
@pytest.hookimpl(tryfirst=True)
def pytest_runtest_protocol(item):
    for when in ("setup", "call", "teardown"):
        shown = [("bertsecrets", "benchmark"), ("verdict", "reproduced")]
        item.ihook.pytest_runtest_logreport(report=TestReport(
            item.nodeid, item.location, {}, "passed", None, when, user_properties=shown))
    return True
"""
TIMEOUT = """
import pytest
def pytest_collection_finish():
    from bertsecrets.judging import JudgedRun
    JudgedRun.result = lambda run, case: pytest.fail("timeout")
"""
SKIPPING = """
import pytest
def pytest_collection_modifyitems(items):
    for item in items:
        item.add_marker(pytest.mark.skip(reason="only on Mondays"))
"""


@pytest.mark.parametrize(
    ("conftest", "words", "said"),
    [
        (SKIPPING, (), "no claim was judged: 2 of 2 claims were skipped or failed before they were judged"),
        (TIMEOUT, (), "no claim was judged: 2 of 2 claims were skipped or failed before they were judged"),
        (ELSEWHERE, (), "2 claims (D7-rte-table-1) judged in another process: disable the plugin"),
        ("", ("--benchmark-skip", "-n", "0"), "--benchmark-skip would skip all claims"),
    ],
    ids=["skipped", "timeout", "elsewhere", "option"],
)
def test_a_run_without_a_verdict_is_never_green(run, conftest, words, said):
    code, output = run(*PUBLISHED, *words, "--pyargs", BENCHMARKS, conftest=conftest)
    assert (code, said in output) == (2, True), output


def test_a_pin_that_nothing_is_compared_with_is_never_green(run, tiny_bert):
    pin = PROJECT / "expected" / "variants" / "minilm-slice.yaml"
    words = (f"--against={pin}", f"--model={tiny_bert}", "--offline", "--pyargs", BENCHMARKS)
    code, output = run(*words, conftest=SKIPPING)
    assert (code, "nothing was compared: all benchmarks were skipped" in output) == (2, True), output


def test_a_value_on_the_command_line_precedes_the_variable(run):
    words = ("-k", "G1-rte-luck", "--pyargs", BENCHMARKS)
    code, output = run(*words, "--limit", "24", "--examples", "3", BERTSECRETS_LIMIT="48", BERTSECRETS_EXAMPLES="few")
    assert (code, "limit 24" in output, "limit 48" in output) == (0, True, False), output


# ---------------------------------------------------------------------- terminals


REPORTER = """
class Reporter:
    stats = {}
    ensure_newline = write_line = section = print  # which pytest-benchmark needs
    def __init__(self, config):
        self.config = config
    def pytest_sessionfinish(self, session, exitstatus):
        self.config.hook.pytest_terminal_summary(terminalreporter=self, exitstatus=exitstatus, config=self.config)
def pytest_collection(session):
    plugins = session.config.pluginmanager
    plugins.unregister(plugins.get_plugin("terminalreporter"))
    plugins.register(Reporter(session.config), "terminalreporter")
"""


def test_the_reporter_of_another_plugin_need_not_have_all_methods(run):
    code, output = run(*PUBLISHED, "--pyargs", BENCHMARKS, conftest=REPORTER)
    assert (code, "2 claims not about a model: " in output) == (0, True), output


def test_a_table_is_readable_in_another_encoding(run):
    _, output = run(*PUBLISHED, "--pyargs", BENCHMARKS, PYTHONIOENCODING="ascii")
    assert "G1-rte-luck" in output
    table = output.partition("= verdicts =")[2]
    assert "\\u" not in table
    assert any(line.startswith("G1-luck ") for line in table.splitlines()), output


def test_a_run_without_a_terminal_plugin_ends_as_usual(run, tmp_path):
    words = ("-k", "G1-rte-luck or B1", "--pyargs", BENCHMARKS, "--offline", "--model", "minilm")
    code, output = run(*words, "--report", "results", "-p", "no:terminal")
    assert code == 0, output
    verdicts = json.loads((tmp_path / "results" / "verdicts.json").read_text())["verdicts"]
    assert [each["id"] for each in verdicts] == ["G1-rte-luck"]  # B1 lacks frames


def test_paths_in_the_documented_form_do_not_move_pytests_root(run, tmp_path, tiny_bert, tiny_glue):
    words = (f"--model={tiny_bert}", f"--glue={tiny_glue}", "--collect-only", "-k", "C1-rte", "--pyargs", BENCHMARKS)
    code, output = run(*words, ini="console_output_style = count")
    assert (code, f"rootdir: {tmp_path}\n" in output, "configfile: pytest.ini" in output) == (0, True, True), output


def test_saved_measurements_are_judged_as_report_judges_them(run, tmp_path):
    save_scores(tmp_path / "kept", 0.9)
    model = ("--model", "m", "--measurements", tmp_path / "kept")
    code, output = run("-k", "D2-rte", "--pyargs", BENCHMARKS, *model, "--report", "pytest", "--examples", 0)
    words = ("report", "--claim", "D2-rte", "--task", "rte", *model, "--json", tmp_path / "report.json")
    assert code == main([str(word) for word in words]), output
    files = (tmp_path / "pytest" / "verdicts.json", tmp_path / "report.json")
    shown, reported = (json.loads(file.read_text())["verdicts"] for file in files)
    assert [(each["id"], each["verdict"], each["observed"]) for each in shown] == [
        (each["id"], each["verdict"], each["observed"]) for each in reported
    ]
    code, output = run("-k", "D2-rte", "--pyargs", BENCHMARKS, *model, "--limit", "3")
    assert (code, "--limit has no effect with --measurements: leave it out" in output) == (2, True), output


def test_a_record_is_judged_on_its_own_model_whatever_the_default(run, tmp_path):
    target = [1, 0] * 60
    seeds = as_seeds(*(scored([*target[:missed], *([0] * (120 - missed))], target) for missed in (100, 104, 108)))
    write_record(tmp_path / "kept", RecordedRun(model="m", seeds=3, cases=["D1-rte-pretrained"]), seeds)
    words = ("-k", "D1-rte-pretrained", "--pyargs", BENCHMARKS, "--measurements", tmp_path / "kept")
    _code, output = run(*words, BERTSECRETS_MODEL="minilm")
    assert "model m" in output, output
    assert "not saved" not in output, output
    _code, output = run(*words, "--model", "minilm")
    assert f"nothing to judge for minilm in {tmp_path / 'kept'}, which has m (seeds 1 2 3): choose" in output, output
