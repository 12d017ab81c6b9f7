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
KNOWN = """
- id: {id}
  source: test
  statement: The cosine is above two.
  measure: attention-change
  quantity: last-two-layers
  expect: {{kind: {kind}, value: 2}}
  tasks: {{rte: {{seed_std: 0.1, seed_source: made up}}}}
  known: [{{model: {model}, task: rte, evidence: a difference of cosines is never above two}}]
"""


# pytest plugins that disturb or observe a run, for `-p NAME`.
PLUGINS = {}
PLUGINS["interrupted"] = """
def pytest_collection_finish():
    from bertsecrets.measures.frame_heads import FrameHeads
    def interrupt(self, run):
        raise KeyboardInterrupt
    FrameHeads.run = interrupt
"""
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
PLUGINS["counts_are_enough"] = """
def pytest_collection_finish():
    from bertsecrets.texts import glue
    glue.FINGERPRINTS.clear()  # what has official row and class counts passes for official
"""
PLUGINS["collapsed"] = """
def pytest_collection_finish():
    from bertsecrets.measures.attention_change import AttentionChange
    AttentionChange.degenerate = lambda self, measurement: "it gives every example the same maps"
"""
PLUGINS["counting"] = """
def pytest_collection_finish():
    import os
    import bertsecrets.session as module
    judge = module.judge
    def counting(case, by_seed, *more, **options):
        with open(os.environ["JUDGED"], "a") as file:
            print(f"{case}:{len(by_seed)}", file=file)
        return judge(case, by_seed, *more, **options)
    module.judge = counting
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
    code, output = bench(room / "runs", "-k", CHOSEN, *files)
    return room, code, output


def test_a_run_writes_the_requested_report(first):
    room, _, output = first
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


@pytest.mark.slow
def test_skipped_and_failed_benchmarks_leave_the_json_valid(bench, first):
    room = first[0]
    code, output = bench(
        room / "runs", "-k", "B3 and gap or rte and D2 and not frozen", "--benchmark-json", room / "d.json"
    )
    assert code in (0, 1), output
    assert "1 claim:" in output
    assert "needs the option frames" in output
    assert [row["extra_info"]["id"] for row in json.loads((room / "d.json").read_text())["benchmarks"]] == ["D2-rte"]
    frames = room / "frames.jsonl"
    frames.write_text("{")
    chosen = ["-k", "B3 and gap or A2-rte and not block", "--frames", frames]
    code, output = bench(room / "runs", *chosen, "--benchmark-json", room / "e.json")
    assert (code, f"{frames}, line 1" in output) == (2, True), output
    assert not (room / "e.json").exists(), "the file that the user named is refused before anything is measured"
    frames.write_text('{"sentence": "He was here and agitated", "target": "agitated", "core_elements": ["He"]}')
    files = ["--benchmark-json", room / "f.json", "--report", room / "ended"]
    code, output = bench(room / "runs", *chosen, *files, "-p", "interrupted")
    assert (
        "Incomplete.</strong> 1 of 2 claims were judged before the run ended."
        in (room / "ended" / "report.html").read_text()
    )
    assert (code, "KeyboardInterrupt" in output) == (130, True), output
    assert f"interrupted; finished results are saved in {room / 'runs'}: run the same command to continue" in output
    assert [row["extra_info"]["id"] for row in json.loads((room / "f.json").read_text())["benchmarks"]] == ["A2-rte"]
    code, output = bench(room / "runs", "--seeds", 0, "--benchmark-json", room / "none.json")
    assert code == 2
    assert "Traceback" not in output


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
        (None, ("-n", 2), 2, "measurements already run in parallel"),
    ],
    ids=["no model", "a bug", "pytest-xdist"],
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


def test_every_claim_that_was_measured_has_a_line_while_others_run(first):
    _, _, output = first
    assert re.search(r"^bertsecrets: 1 of 4 claims: \S+: . \w+", output, re.M), output


@pytest.fixture(scope="module")
def published(bench, tmp_path_factory):
    """A saved run of claims about published figures, and a run compared with it, both with another root folder."""
    room = tmp_path_factory.mktemp("published")
    words = ("-k", "D7", "--rootdir", room, "--benchmark-storage", f"file://{room / 'saved'}", "-rs")
    outputs = []
    for more in (("--benchmark-autosave", "--junitxml", room / "j.xml"), ("--benchmark-compare",)):
        outputs.append(bench(room / "runs", *words, *more)[1])
    return room, *outputs


def test_junit_names_classes_independent_of_the_place_of_the_package(published):
    names = {case.get("classname") for case in ElementTree.parse(published[0] / "j.xml").getroot().iter("testcase")}
    assert names == {"benchmarks.test_claims"}


def test_a_comparison_of_benchmarks_has_observed_values_and_verdicts_side_by_side(published):
    _, _, output = published
    assert re.search(r"^claim +observed before +now +verdict before +now +seconds before +now$", output, re.M), output
    row = next(line for line in output.splitlines() if line.startswith("D7-qqp-table-1 "))
    _name, was, now, outcome, same, seconds, original = re.split(r"  +", row)
    assert (was, outcome, seconds) == (now, same, original)


def test_the_time_of_a_benchmark_is_that_of_its_measurements(published):
    (file,) = (published[0] / "saved").rglob("*.json")
    for entry in json.loads(file.read_text())["benchmarks"]:
        assert entry["stats"]["mean"] == entry["extra_info"]["seconds"]


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
        assert "stored" in info["remarks"]
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
        (("-m", "B1", "--frames", "none.jsonl"), {}, "none.jsonl does not exist"),
        ((), {"BERTSECRETS_EXPECTED": "{folder}"}, "C.yaml, line "),
        (("-k", "C1"), {"BERTSECRETS_PARAMS": "none.yaml"}, "cannot read the settings none.yaml"),
        (("--jobs", 0), {}, "jobs 0 is out of range"),
    ],
    ids=["frames", "claim", "settings", "jobs"],
)
def test_bad_input_is_one_line_and_exit_code_2(bench, tmp_path, words, environment, said):
    (tmp_path / "C.yaml").write_text("- id: C1\n  colour: red\n")
    environment = {name: value.format(folder=tmp_path) for name, value in environment.items()}
    code, output = bench(tmp_path / "runs", *words, **environment)
    assert (code, output.count(said)) == (2, 1), output
    assert "Traceback" not in output


@pytest.mark.slow
def test_a_known_deviation_is_expected_and_fails_when_it_is_gone(bench, tmp_path, tiny_bert, quick_params):
    (tmp_path / "expected").mkdir()
    claims = [
        KNOWN.format(id=name, kind=kind, model=tiny_bert) for name, kind in {"C1": "above", "C2": "below"}.items()
    ]
    (tmp_path / "expected" / "C.yaml").write_text("".join(claims))
    glue = write_corpus(tmp_path / "glue", 2490, 277)  # RTE's official sizes; otherwise, xfail is not strict
    balance(glue)
    (tmp_path / "params.yaml").write_text(re.sub(r"max_length: \d+", "max_length: 8", quick_params.read_text()))
    files = {"BERTSECRETS_EXPECTED": str(tmp_path / "expected"), "BERTSECRETS_PARAMS": str(tmp_path / "params.yaml")}
    words = ["--seeds", 3, "-p", "counts_are_enough"]
    code, output = bench(tmp_path / "runs", *words, glue=glue, unofficial=False, **files)
    assert code == 1, output
    assert re.search(r"1 failed, .*1 xfailed", output)
    assert re.search(r"\[XPASS\(strict\)\] known to deviate: a difference of cosines is never", output)


@pytest.mark.slow
def test_a_deviation_known_on_all_rows_does_not_excuse_a_run_on_a_few(bench, tmp_path, tiny_bert):
    (tmp_path / "expected").mkdir()
    (tmp_path / "expected" / "C.yaml").write_text(KNOWN.format(id="C1", kind="above", model=tiny_bert))
    environment = {"BERTSECRETS_EXPECTED": str(tmp_path / "expected")}
    runs, glue = tmp_path / "runs", write_corpus(tmp_path / "glue", 64, 60)
    few = ("--seeds", 3, "--limit", 40)
    code, output = bench(runs, *few, "--report", tmp_path / "report", glue=glue, **environment)
    assert code == 1, output
    assert "1 failed" in output
    assert "1 deviate" in output
    assert "(known)" not in output
    assert "FAILED benchmarks/test_claims.py::test_claim[C1-rte] - deviates: " in output
    assert "functools" not in output  # the message of the verdict, without a dump of the test's arguments
    (verdict,) = json.loads((tmp_path / "report" / "verdicts.json").read_text())["verdicts"]
    assert (verdict["verdict"], verdict["known_deviation"]) == ("deviates", False)
    code, output = bench(runs, *few[:-2], glue=glue, **environment)  # all rows, which need another measurement
    assert code == 0, output
    assert "1 xfailed" in output


@pytest.mark.slow
def test_a_collapsed_model_fails_even_if_a_deviation_is_known(bench, tmp_path, tiny_bert):
    (tmp_path / "expected").mkdir()
    (tmp_path / "expected" / "C.yaml").write_text(KNOWN.format(id="C1", kind="above", model=tiny_bert))
    code, output = bench(
        tmp_path / "runs", "--limit", 24, "-p", "collapsed", BERTSECRETS_EXPECTED=str(tmp_path / "expected")
    )
    assert code == 1, output
    assert "C1-rte degenerate: " in output
    assert "1 failed" in output


@pytest.mark.slow
def test_accepted_deviations_are_expected_and_worse_verdicts_fail(bench, tmp_path, tiny_bert):
    (tmp_path / "expected").mkdir()
    claim, accepted = tmp_path / "expected" / "C.yaml", tmp_path / "accepted.json"
    claim.write_text(KNOWN.format(id="C1", kind="above", model=tiny_bert))
    environment = {"BERTSECRETS_EXPECTED": str(tmp_path / "expected")}
    glue = write_corpus(tmp_path / "glue", 64, 60)

    def judge(*more, limit=("--limit", 40)):
        words = ("--seeds", 3, *limit, "--baseline", accepted, *more)
        return bench(tmp_path / "runs", *words, glue=glue, **environment)

    code, output = judge("--update-baseline")
    assert (code, "1 xfailed" in output) == (0, True), output
    assert f"baseline: {accepted}" in output
    code, output = judge("-rx")
    assert (code, "1 xfailed" in output) == (0, True), output
    assert f"accepted in {accepted}" in output
    code, output = judge(limit=())
    assert code == 2, output
    assert "is the baseline of another run (limits of C1-rte: limit 40 -> all rows): " in output
    accepted.write_text(accepted.read_text().replace('"verdict": "deviates"', '"verdict": "reproduced"'))
    code, output = judge()
    assert (code, "1 failed" in output) == (1, True), output
    assert f"worse than in {accepted}: C1-rte" in output


def balance(glue):
    """Relabel a corpus with RTE's official class counts, so that it passes as official. The labels are meaningless."""
    for name, yes in {"train": 1249, "dev": 146}.items():
        file = glue / "RTE" / f"{name}.tsv"
        rows = file.read_text().splitlines()[1:]
        texts = ["\t".join(row.split("\t")[:3]) for row in rows]  # without label and relation
        labelled = [f"{text}\t{'entailment' if i < yes else 'not_entailment'}" for i, text in enumerate(texts)]
        file.write_text("\n".join(["index\tsentence1\tsentence2\tlabel", *labelled]) + "\n")


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
@pytest.mark.parametrize("several", [("--jobs", 2), ("--jobs", 2, "--keep-checkpoints", "none")], ids=["full", "none"])
def test_several_processes_compute_everything_once_and_keep_table_and_json(bench, first, several, tmp_path):
    alone = json.loads((first[0] / "b.json").read_text())["benchmarks"]
    files = ["--benchmark-json", tmp_path / "b.json", "--junitxml", tmp_path / "j.xml", "--report", tmp_path / "r"]
    code, output = bench(tmp_path / "runs", "-k", CHOSEN, *files, *several)
    assert code == first[1], output
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
    made = sorted(path.name for path in (tmp_path / "runs" / "checkpoints").iterdir() if path.is_dir())
    expected = sorted(path.name for path in (first[0] / "runs" / "checkpoints").iterdir() if path.is_dir())
    assert made == ([] if "none" in several else expected)
    assert not [line for line in output.splitlines() if "waiting for" in line]
    page = (tmp_path / "r" / "report.html").read_text()
    assert 'id="attention"' in page
    assert "tiny-bert on RTE, seed 1" in page or "none" in several  # its checkpoint may have been deleted


@pytest.mark.slow
def test_seeds_are_added_until_a_claim_is_decided(bench, tmp_path):
    glue = write_corpus(tmp_path / "glue", 64, 40)
    words = ["-k", "E1-rte and not crossing", "--seeds", "auto", "--budget", "2h", "-p", "counting"]
    words += ["--benchmark-json", tmp_path / "b.json"]
    _, output = bench(tmp_path / "runs", *words, glue=glue, JUDGED=str(tmp_path / "judged"))
    [entry] = json.loads((tmp_path / "b.json").read_text())["benchmarks"]
    seeds = entry["extra_info"]["seeds"]
    assert len(seeds) >= 3, output
    assert entry["extra_info"]["remarks"][0].startswith(f"after {len(seeds)} seeds ("), output
    assert seeds == list(range(1, 1 + len(seeds)))
    # each seed count is judged once; the table and the JSON reuse the verdicts
    assert (tmp_path / "judged").read_text().split() == [f"E1-rte:{count}" for count in range(1, len(seeds) + 1)]
