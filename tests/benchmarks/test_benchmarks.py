"""`pytest benchmarks`, run as a user would run it, on a tiny model and the suite's own corpus."""

import html
import json
import re
import shlex
import shutil
from pathlib import Path
from xml.etree import ElementTree

import pytest
from faults import pytest_benchmarks

from bertsecrets.claims.loading import cases
from bertsecrets.formats import VerdictsFile
from bertsecrets.texts.corpus import write_corpus

CHOSEN = "rte and (C2 or D2 or E1 or D1-rte-untrained) and not (C2p or frozen or crossing)"
# A claim that cannot hold, about models that need no training.
KNOWN = """
- id: D1
  source: test
  statement: The accuracy is above two hundred.
  measure: scores
  quantity: score
  initialisation: untrained
  expect: {{kind: above, value: 99}}
  tasks: {{rte: {{seed_std: 0.1, seed_source: made up}}}}
  known: [{{model: {model}, task: rte, evidence: no untrained classifier is nearly always right}}]
"""


# pytest plugins that disturb or observe a run, for `-p NAME`.
PLUGINS = {}
PLUGINS["crashing"] = """
from bertsecrets.measures.attention_change import AttentionChange
def crash(self, run):
    raise TypeError("out of the blue")
AttentionChange.run = crash
"""
PLUGINS["told_to_end"] = """
def pytest_collection_finish():
    import os, pathlib, signal
    import bertsecrets.models.training.finetune
    def begun(classifier, split, folder, *more, **options):
        pathlib.Path(folder, "half").write_text("done")
        os.kill(os.getpid(), signal.SIGTERM)
        signal.pause()
    bertsecrets.models.training.finetune.finetune = begun
"""
PLUGINS["without_altair"] = "import sys; sys.modules['altair'] = None"
PLUGINS["failing_collection"] = """
import bertsecrets.judging as judging
def crash(*anything):
    raise TypeError("out of the blue")
judging.JudgedRun.prepare = crash
"""


@pytest.fixture(scope="module")
def plugins(tmp_path_factory):
    folder = tmp_path_factory.mktemp("plugins")
    for name, code in PLUGINS.items():
        (folder / f"{name}.py").write_text(code)
    return folder


@pytest.fixture(scope="module")
def bench(plugins, tiny_glue, tiny_bert, quick_params):
    """Return a function that runs `pytest benchmarks` and returns the exit code and output."""
    settings = {"PYTHONPATH": str(plugins), "BERTSECRETS_PARAMS": str(quick_params)}

    def run(runs, *more, glue=tiny_glue, model=tiny_bert, unofficial=True, **environment):
        words = ["--offline", "--model", model, "--glue", glue, "--store", runs, "--device", "cpu"]
        words += [*["--allow-unofficial-data"] * unofficial, *more]
        return pytest_benchmarks(*words, output=runs.with_name(f"{runs.name}-output"), **settings | environment)

    return run


@pytest.fixture(scope="module")
def first(bench, tmp_path_factory):
    room = tmp_path_factory.mktemp("bench")
    files = ["--junitxml", room / "j.xml", "--benchmark-json", room / "b.json", "--report", room / "report"]
    code, output = bench(room / "runs", "-k", CHOSEN, *files, TQDM_DISABLE="")
    return room, code, output


def test_a_run_writes_the_requested_report(first):
    room, _, output = first
    assert not re.search("[\N{BOX DRAWINGS HEAVY HORIZONTAL}\x1b]", output)  # no bar is drawn in a log
    assert f"report: {room / 'report' / 'report.html'}" in output
    page = (room / "report" / "report.html").read_text()
    assert "The verdicts say nothing about the paper" in page  # since the corpus is the suite's own
    assert "tiny-bert on RTE, seed 1" in page  # in the attention viewer
    ids = [verdict["id"] for verdict in json.loads((room / "report" / "verdicts.json").read_text())["verdicts"]]
    assert ids
    assert all(f'id="{name}"' in page or f"<dt>{name}</dt>" in page for name in ids)
    again = re.search(r"<dt>Judge again</dt><dd><code>([^<]+)</code>", page)
    words = shlex.split(html.unescape(again[1]))
    assert words[:2] == ["bertsecrets", "run"]
    assert {"--allow-unofficial-data", "--glue", "--store", "--offline"} <= set(words)
    assert words[-1] in ids


@pytest.mark.parametrize(
    ("plugin", "said"),
    [
        (("-p", "without_altair"), 'needs altair, which is not installed: pip install "bertsecrets['),
        ((), "is a file: choose another location"),
    ],
    ids=["no extra", "no place"],
)
def test_a_report_that_cannot_be_written_is_refused_before_anything_is_measured(bench, tmp_path, plugin, said):
    (tmp_path / "file").write_text("")
    place = tmp_path / ("report" if plugin else "file")
    code, output = bench(tmp_path / "runs", *plugin, "--report", place)
    assert (code, len(output.strip().splitlines()), said in output) == (2, 1, True), output
    assert not (tmp_path / "runs").exists()


@pytest.mark.parametrize(
    ("more", "code"),
    [((), 70), pytest.param(("{own}",), 1, marks=pytest.mark.slow)],
    ids=["alone", "with other tests"],
)
def test_a_crash_is_not_a_deviation_and_does_not_affect_other_claims(bench, first, tmp_path, more, code):
    own, store = tmp_path / "test_own.py", tmp_path / "runs"
    own.write_text("def test_rte_own_C2_fails():\n    assert False\n")
    shutil.copytree(first[0] / "runs" / "checkpoints", store / "checkpoints")
    ended, output = bench(
        store, "-k", f"{CHOSEN} and not E1", *(word.format(own=own) for word in more), "-p", "crashing"
    )
    assert ended == code, output
    assert "BugError: a bug in bertsecrets or a damaged file (TypeError: out of the blue)" in output
    assert "TypeError: out of the blue\n" in output  # with pytest's own traceback
    assert re.search(r"3 claims: .*, 1 error", " ".join(output.split()))


@pytest.mark.parametrize(
    ("model", "more", "code", "said"),
    [
        ("./none", (), 2, "no model folder at"),
        (None, ("-p", "failing_collection"), 70, "TypeError: out of the blue"),
    ],
    ids=["no model", "a bug"],
)
def test_an_error_before_the_first_claim_ends_the_run(bench, tmp_path, tiny_bert, model, more, code, said):
    ended, output = bench(tmp_path / "runs", "-k", "rte and E1", *more, model=model or tiny_bert)
    assert ended == code, output
    assert said in output


def test_a_signal_leaves_no_unfinished_entry(bench, tmp_path):
    code, output = bench(tmp_path / "runs", "-k", "rte and C2 and not C2p", "-p", "told_to_end")
    assert (code, "KeyboardInterrupt" in output) == (143, True), output
    assert (tmp_path / "runs" / "checkpoints").is_dir()
    assert [entry for entry in (tmp_path / "runs" / "checkpoints").iterdir() if entry.is_dir()] == []


def test_a_run_ends_with_the_verdicts(first, tiny_bert):
    _, code, output = first
    assert code in (0, 1), output
    assert re.search(r"^bertsecrets: 1 of 4 claims: \S+: . \w+", output, re.M), output  # while others run
    assert re.search(r"^[-=]+ verdicts [-=]+$", output, re.M)
    header = next(line for line in output.splitlines() if line.startswith("id "))
    assert header.split() == ["id", "task", "published", "observed", "verdict"]
    unfolded = " ".join(output.split())
    assert re.search(r"4 claims: \d+ reproduced, (\d+ compatible, )?\d+ deviates?\b.*", unfolded)
    failing = re.search(r"4 claims: [^.]*?[1-9]\d* (deviates?|degenerate)", unfolded)
    assert (code == 1) == (failing is not None)
    assert f"model {tiny_bert}" in output
    assert "allow_unofficial_data True" in output


def test_each_benchmark_has_its_verdict_in_the_json(first):
    data = json.loads((first[0] / "b.json").read_text())
    by_id = {b["extra_info"]["id"]: b["extra_info"] for b in data["benchmarks"]}
    run = VerdictsFile.model_validate_json(json.dumps(data["bertsecrets"]), strict=True)
    assert run.together.judged <= 3
    assert {verdict.id for verdict in run.verdicts} == set(by_id) == {"C2-rte", "D1-rte-untrained", "D2-rte", "E1-rte"}
    for info in by_id.values():
        assert set(info) >= {"published", "band", "observed", "verdict", "remarks", "seconds", "reused"}
        assert not info["reused"] or info["id"] in ("D2-rte", "E1-rte")  # already measured for earlier claims
        assert "unofficial data" in info["remarks"]
    assert by_id["D2-rte"]["published"] == 11.9


def junit(file: Path) -> dict[str, tuple[dict[str, str], list[str]]]:
    """Return the properties and the outcome of each benchmark in a JUnit file, by case id."""
    return {
        case.get("name")[len("test_claim[") : -1]: (
            {element.get("name"): element.get("value") for element in case.iter("property")},
            [inner.tag for inner in case if inner.tag != "properties"],
        )
        for case in ElementTree.parse(file).getroot().iter("testcase")
    }


def test_junit_has_each_verdict_as_properties(first, tiny_bert):
    room, _, _ = first
    extra = {b["extra_info"]["id"]: b["extra_info"] for b in json.loads((room / "b.json").read_text())["benchmarks"]}
    by_id = junit(room / "j.xml")
    assert set(by_id) == set(extra)
    for name, (properties, became) in by_id.items():
        info = extra[name]
        assert properties["verdict"] == info["verdict"]
        assert properties["reason"] == info["reason"]
        assert (properties["model"], properties["seeds"]) == (str(tiny_bert), "1")
        assert properties.get("unit", "") == info["unit"]
        for numbers in ("observed", "published"):
            assert properties.get(numbers) == (None if info[numbers] is None else str(info[numbers]))
        if info["interval"]:
            assert [float(end) for end in properties["interval"].split()] == info["interval"]
        if info["band"]:
            ends = [float(end) for end in properties["band"].split()]
            assert [None if abs(end) == float("inf") else end for end in ends] == info["band"]
        assert became == {"reproduced": [], "compatible": [], "inconclusive": ["skipped"]}.get(
            info["verdict"], ["failure"]
        )
    assert any({"observed", "interval", "band", "published"} <= set(properties) for properties, _ in by_id.values())


def test_undecided_claims_fail_with_strict_verdicts(bench, first):
    room, _, _ = first
    code, output = bench(room / "runs", "-k", "D1-rte-untrained", "--strict-verdicts")
    assert code == 1, output
    assert "1 inconclusive" in output
    assert re.search(r"FAILED .*D1-rte-untrained\] - inconclusive", output)


def test_a_second_run_reuses_all_stored_results_and_says_so(bench, first):
    room, code, _output = first
    again, second = bench(room / "runs", "-k", CHOSEN, "--benchmark-json", room / "c.json")
    assert again == code, second
    one, two = (
        {b["extra_info"]["id"]: b["extra_info"] for b in json.loads((room / name).read_text())["benchmarks"]}
        for name in ("b.json", "c.json")
    )
    for name, info in two.items():
        assert info["reused"]
        assert "measurements reused" in info["remarks"]
        assert info["seconds"] == one[name]["seconds"]  # those of the first run
        assert info["observed"] == one[name]["observed"]


def test_claims_without_frames_or_pipeline_are_skipped_with_a_reason(bench, first):
    room, _, _ = first
    code, output = bench(room / "runs", "-m", "(B and all) or (E4 and rte)", "-rs", "--junitxml", room / "skipped.xml")
    assert code == 0, output
    assert "frame-heads needs the option frames" in output
    assert "en_core_web_sm" in output
    line = r"^SKIPPED \[1\] .*test_claims.py:\d+: B5-all-l7h6: not applicable: is about the published weights"
    assert re.search(line, output, re.M), output
    skipped = junit(room / "skipped.xml")
    assert {became[0] for _, became in skipped.values()} == {"skipped"}
    verdicts = {name: properties["verdict"] for name, (properties, _) in skipped.items()}
    assert set(verdicts.values()) == {"missing input", "not applicable"}
    assert verdicts["E4-rte"] == "missing input"
    assert "en_core_web_sm" in skipped["E4-rte"][0]["reason"]


@pytest.mark.parametrize(
    ("words", "environment", "said"),
    [
        ((), {"BERTSECRETS_EXPECTED": "{folder}"}, "C.yaml, line "),
        (("-k", "C1"), {"BERTSECRETS_PARAMS": "none.yaml"}, "cannot read the settings none.yaml"),
        (("--jobs", 0), {}, "jobs 0 is out of range"),
    ],
    ids=["claim", "settings", "jobs"],
)
def test_bad_input_is_one_line_and_exit_code_2(bench, tmp_path, words, environment, said):
    (tmp_path / "C.yaml").write_text("- id: C1\n  colour: red\n")
    environment = {name: value.format(folder=tmp_path) for name, value in environment.items()}
    code, output = bench(tmp_path / "runs", *words, **environment)
    assert (code, output.count(said)) == (2, 1), output
    assert "Traceback" not in output


def test_a_deviation_known_on_all_rows_does_not_excuse_a_run_on_a_few(bench, tmp_path, tiny_bert):
    (tmp_path / "D.yaml").write_text(KNOWN.format(model=tiny_bert))
    given = {"glue": write_corpus(tmp_path / "glue", 8, 60), "BERTSECRETS_EXPECTED": str(tmp_path)}
    code, output = bench(tmp_path / "runs", "--seeds", 3, "--limit", 40, **given)
    assert (code, "1 failed" in output, "1 deviate" in output, "(known)" in output) == (1, True, True, False), output
    assert "FAILED benchmarks/test_claims.py::test_claim[D1-rte] - deviates: " in output
    assert "functools" not in output  # the message of the verdict, without a dump of the test's arguments
    code, output = bench(tmp_path / "runs", "--seeds", 3, **given)
    assert (code, "1 xfailed" in output) == (0, True), output


ON_REQUEST = next(case.claim.id for case in cases() if case.claim.on_request)


def test_k_selects_by_task_claim_and_family(tmp_path):
    selected = []
    for chosen in ("rte", "C1 or sst2 and D", ON_REQUEST.lower()):
        _, listed = pytest_benchmarks("--collect-only", "-q", "-k", chosen, output=tmp_path)
        selected.append({*re.findall(r"\[([^\]]+)\]$", listed, re.M)})
    of_rte, mixed, on_request = selected
    names = {str(case): case.claim.by_default for case in cases()}
    of_encoder = {str(case) for case in cases() if case.claim.by_default and not case.on_tasks}
    assert {"A1-all", "B1-all", "B5-all-l7h6", "B6-all"} <= of_encoder
    own = {name for name, by_default in names.items() if "-rte" in name and by_default}
    assert of_rte == own | of_encoder
    assert on_request == {name for name in names if name.split("-")[0] == ON_REQUEST} != set()
    assert {name.split("-")[0] for name in mixed if name[0] == "C"} == {"C1", "C1p"}
    # C1 selects all seven tasks, so D's claims over all tasks are selected, too
    assert {name.split("-")[1] for name in mixed if name[0] == "D"} == {"sst2", "all"}
    with_d = {"E6-sst2-pretrained", "G11-sst2-unchanged"}  # claims of other families with a d in their names
    assert {name[0] for name in mixed - with_d} == {"C", "D"}


def test_claims_over_several_tasks_need_all_of_them_selected_or_their_own_name(tmp_path):
    def listed(*words):
        _, output = pytest_benchmarks("--collect-only", *words, output=tmp_path)
        return {*re.findall(r"test_claim\[([^\]]+)\]", output)}, output

    of_rte, output = listed("-m", "rte and G")
    assert "G6-all" not in of_rte
    (line,) = [line for line in output.splitlines() if line.endswith("select all of their tasks")]
    assert re.match(r"\d+ claims left out \(.*G6-all, ", line)
    both, output = listed("-m", "(rte or stsb) and G")
    assert {"G6-all", "G6-all-pair"} <= both
    assert "G1-all-over-tasks" not in both  # it covers all seven tasks
    assert {"D2-rte", "D2-all-mean"} <= listed("-k", "rte and D2 or D2-mean")[0]
    assert {"G6-all", "G6-all-pair"} <= listed("-m", "G6")[0]
    assert listed("-m", "C1-rte or D2-all-mean")[0] == {"C1-rte", "D2-all-mean"}


@pytest.mark.slow
def test_several_processes_give_the_same_table_and_json_even_without_checkpoints(bench, first, tmp_path):
    alone = json.loads((first[0] / "b.json").read_text())["benchmarks"]
    files = ["--benchmark-json", tmp_path / "b.json", "--junitxml", tmp_path / "j.xml", "--report", tmp_path / "r"]
    code, output = bench(tmp_path / "runs", "-k", CHOSEN, *files, "--jobs", 2, "--keep-checkpoints", "none")
    assert (code, ", 2 at a time, each with --threads 1" in output) == (first[1], True), output
    assert junit(tmp_path / "j.xml") == junit(first[0] / "j.xml")
    by_name = {
        benchmark["name"]: benchmark for benchmark in json.loads((tmp_path / "b.json").read_text())["benchmarks"]
    }
    assert sorted(by_name) == sorted(benchmark["name"] for benchmark in alone)
    for benchmark in alone:
        again = by_name[benchmark["name"]]
        assert again["extra_info"]["observed"] == benchmark["extra_info"]["observed"]
        assert again["stats"]["rounds"] == 1
    table = output.split("= verdicts =")[1]
    for benchmark in alone:
        assert benchmark["extra_info"]["claim"] in table
    left, trained = (
        [path for path in (room / "runs" / "checkpoints").iterdir() if path.is_dir()] for room in (tmp_path, first[0])
    )
    assert (left, output.count("deleted the checkpoint ")) == ([], len(trained))  # none while a job needs it
    assert not [line for line in output.splitlines() if "waiting for" in line]
    assert 'id="attention"' in (tmp_path / "r" / "report.html").read_text()
