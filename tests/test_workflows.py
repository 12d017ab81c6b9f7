"""The scripts in the workflows: they use existing commands and options, and pass on exit codes."""

import argparse
import re
import shlex
import subprocess
import sys
from pathlib import Path

import pytest
import yaml
from pages import PROJECT, run_options, titled
from steps import WORKFLOWS, run_step, step, workflow
from verdicts import filed

from bertsecrets.claims.loading import select_cases
from bertsecrets.cli.main import build_parser, main
from bertsecrets.store.entries import write_json

ACTION = workflow(PROJECT / ".github" / "actions" / "judge" / "action.yml")
JUDGE = {
    **{name.upper().replace("-", "_"): given.get("default", "") for name, given in ACTION["inputs"].items()},
    "MODEL": "bert-base-uncased",
}
STEPS = [
    (path.name, job_step) for path in WORKFLOWS for job in workflow(path)["jobs"].values() for job_step in job["steps"]
]


def test_the_comment_waits_for_the_workflow_that_makes_the_artifact():
    names = {workflow(path)["name"] for path in WORKFLOWS}
    comment = workflow(PROJECT / ".github" / "workflows" / "verdict-comment.yml")
    assert set(comment["on"]["workflow_run"]["workflows"]) <= names
    uploaded = [
        job_step["with"]
        for name, job_step in STEPS
        if name == "tests.yml" and "upload-artifact" in job_step.get("uses", "")
    ]
    assert {"name": "verdicts", "path": "runs/demo/verdicts.json"}.items() <= uploaded[-1].items()


# ---------------------------------------------------------------------- commands


def test_the_demo_judges_every_kind_of_claim_on_the_files_that_it_writes(tmp_path):
    """Patterns, change by layer, table 1 with random weights, frame heads, gains from disabled heads and layers."""
    plan = subprocess.run(
        ["make", "--dry-run", "demo", f"DEMO={tmp_path}"], cwd=PROJECT, capture_output=True, text=True, check=True
    )
    lines = plan.stdout.replace("\\\n", " ").splitlines()
    corpus, run = (shlex.split(line, comments=True)[1:] for line in lines if "/bin/bertsecrets " in line)
    assert main(corpus) == 0
    options = understood(run[: run.index("||")])
    assert (options.model, options.task, Path(options.frames).is_file()) == ("minilm", ["rte"], True)
    judged = {str(case) for case in select_cases(options.claim, options.task)}
    kinds = {"A2-rte", "C1-rte", "D1-rte-random", "D3-rte", "B3-all-gap", "B4-rte-own-by-task", "G1-rte", "G4-rte"}
    assert kinds <= judged


def understood(arguments: list[str]) -> argparse.Namespace:
    """Return the parsed command line of `bertsecrets`; the test fails if it is invalid."""
    return build_parser().parse_args(arguments)


def benchmarks_understand(arguments: list[str]) -> argparse.Namespace:
    parser = run_options()
    parser.add_argument("--junitxml")
    parser.add_argument("--pyargs", action="store_true")
    parser.add_argument("-m")
    parser.add_argument("paths", nargs="+")
    return parser.parse_args(arguments)


@pytest.mark.parametrize(
    "given",
    [
        {},
        {"TASKS": ""},
        {"TASKS": " rte  mrpc ", "SEEDS": "auto", "BUDGET": "2h", "STRICT": "true"},
        {"GLUE": "/data/glue", "FRAMES": "frames.jsonl", "SPACY": "en_core_web_sm"},
        {
            "CLAIMS": "C D2",
            "LIMIT": "48",
            "TRAIN_LIMIT": "96",
            "BASELINE": "my verdicts.json",
            "GRID_LIMIT": "24",
            "ARGUMENTS": "--offline --device cpu",
        },
        {"TASKS": "rte\nmrpc\n", "CLAIMS": "\nC1-rte\nd2", "ARGUMENTS": "\n--offline\n--device cpu", "STRICT": "True"},
        {"CHECKPOINT": "./my-sst2", "TASKS": "sst2", "STORE": "st ore", "EXPECTED": "my claims", "ARTIFACT": "mine"},
        {"MODEL": "$(touch stolen) `touch stolen`; touch stolen", "TASKS": "rte"},
    ],
    ids=["usual", "every task", "all options", "all data", "a quick check", "lines", "a checkpoint", "a hostile name"],
)
def test_the_action_calls_the_suite_with_options_that_exist(given, tmp_path):
    environment = {**JUDGE, **given}
    done = run_step(step("judge", "Judge")["run"], environment, tmp_path)
    assert done.code == 0, done.output
    report = understood(done.of("bertsecrets")[0])
    benchmarks = benchmarks_understand(done.of("pytest")[0])
    tasks = environment["TASKS"].split()
    claims, checkpoint = environment["CLAIMS"].split(), environment["CHECKPOINT"]
    assert (report.command, report.models) == ("report", [environment["MODEL"]])
    assert str(report.seeds) == ("None" if checkpoint else environment["SEEDS"])
    assert (report.task or []) == tasks
    assert (report.claim or []) == claims
    assert benchmarks.m == "C1-rte or D2-rte-frozen"  # what the report has judged
    assert str(report.checkpoint or "") == str(benchmarks.checkpoint or "") == str(Path(checkpoint)) * bool(checkpoint)
    assert benchmarks.task == (tasks[0] if checkpoint else None)
    for name in ("limit", "train_limit", "grid_limit"):
        given_limit = environment[name.upper()]
        assert getattr(report, name) == getattr(benchmarks, name) == (int(given_limit) if given_limit else None)
    assert report.offline == benchmarks.offline == ("--offline" in environment["ARGUMENTS"])
    assert ([benchmarks.model], benchmarks.seeds, benchmarks.budget) == (report.models, report.seeds, report.budget)
    assert benchmarks.paths == ["bertsecrets.benchmarks"]
    assert [str(report.frames or ""), *map(str, report.glue or [])] == [
        environment["FRAMES"],
        *environment["GLUE"].split(),
    ]
    assert str(report.baseline or "") == str(benchmarks.baseline or "") == environment["BASELINE"]
    assert (report.spacy or "") == (benchmarks.spacy or "") == environment["SPACY"]
    assert report.strict == benchmarks.strict_verdicts == (environment["STRICT"].lower() == "true")
    assert not (done.folder / "checkout" / "stolen").exists()
    made = {path.name for path in (done.folder / "checkout" / "results").iterdir()}
    assert made == {"verdicts.json", "report.html", "summary.md", "junit.xml"}
    assert done.summary == "made by --markdown"


def test_each_job_and_selection_has_an_artifact_of_its_own_name(tmp_path):
    names = []
    assert step("judge", "Judge")["env"]["INPUTS"] == "${{ toJSON(inputs) }}"
    for number, given in enumerate([{}, {"INPUTS": '{"torch": "cpu"}'}, {"INPUTS": "{}"}, {"GITHUB_JOB": "b"}, {}]):
        (tmp_path / str(number)).mkdir()
        done = run_step(step("judge", "Judge")["run"], {**JUDGE, **given}, tmp_path / str(number))
        names.append(re.search(r"^artifact=(.*)$", (done.folder / "output").read_text(), re.M)[1])
    assert len({*names[:4]}) == 4
    assert names[4] == names[0]


def test_the_action_deletes_no_file_that_it_does_not_write(tmp_path):
    script = 'mkdir -p "$RESULTS"; touch "$RESULTS/thesis.tex" "$RESULTS/junit.xml"\n' + step("judge", "Judge")["run"]
    done = run_step(script, JUDGE, tmp_path)
    assert (done.folder / "checkout" / "results" / "thesis.tex").exists()


@pytest.mark.parametrize(
    ("given", "says"),
    [
        ({"RESULTS": ".", "BASELINE": "verdicts.json"}, "verdicts.json is an input and would be replaced"),
        ({"RESULTS": ".", "PIN": "./summary.md"}, "./summary.md is an input and would be replaced"),
        ({"STRICT": "yes"}, "the input strict is yes: give true or false"),
        ({"RESULTS": ""}, "::error title=bertsecrets::cannot make the folder '': give another one as results"),
        ({"RESULTS": "verdicts.json"}, "cannot make the folder 'verdicts.json': give another one as results"),
    ],
)
def test_the_action_refuses_inputs_before_it_deletes_a_file(given, says, tmp_path):
    done = run_step(f"touch verdicts.json summary.md\n{step('judge', 'Judge')['run']}", {**JUDGE, **given}, tmp_path)
    assert (done.code, says in done.output, done.calls) == (2, True, [])
    assert {path.name for path in (done.folder / "checkout").iterdir()} >= {"verdicts.json", "summary.md"}


def test_a_runner_without_a_home_is_told_to_name_a_store(tmp_path):
    done = run_step(step("judge", "Judge")["run"], {**JUDGE, "HOME": ""}, tmp_path)
    assert (done.code, "HOME is not set: give the input store" in done.output) == (2, True)
    assert not done.calls


@pytest.mark.parametrize("version", ["3.10", "3.13"])
def test_the_action_refuses_another_python_before_it_installs(tmp_path, version):
    python = tmp_path / "python"
    fake = f"import sys; sys.version_info = ({version.replace('.', ', ')}, 0); "
    python.write_text(f"#!/bin/sh\nexec {sys.executable} -c '{fake}'\"$2\"\n")
    python.chmod(0o755)
    (tmp_path / "x").mkdir()
    given = {"PYTHON": str(python), "SOURCE": ".", "TORCH": "cpu"}
    done = run_step(step("judge", "Install")["run"], given, tmp_path / "x")
    assert (done.code, "is not Python 3.11 or 3.12: set the variable PYTHON" in done.output) == (2, True)


@pytest.mark.parametrize(("code", "says"), [(1, "a claim deviates"), (2, "bad input"), (70, "a bug"), (143, "143")])
def test_the_action_ends_with_the_exit_code_of_the_suite(code, says, tmp_path):
    done = run_step(step("judge", "Judge")["run"], JUDGE, tmp_path, ends_with=code)
    assert done.code == code
    assert re.search(rf"^::error title=bertsecrets::.*{says}", done.output, re.M)
    assert done.summary == "made by --markdown"
    assert len(done.of("pytest")) == (code == 1)  # what could not be judged is not tried again


@pytest.mark.parametrize("strict", ["false", "true"])
def test_the_action_compares_with_a_pin_if_one_is_given(strict, tmp_path):
    given = {**JUDGE, "PIN": "expected/variants/my bert.yaml", "STRICT": strict}
    done = run_step(step("judge", "Judge")["run"], given, tmp_path)
    assert done.code == 0, done.output
    claims, drift = map(benchmarks_understand, done.of("pytest"))
    assert claims.against is None
    pin = Path("expected/variants/my bert.yaml")
    assert (drift.against, drift.model, drift.seeds) == (pin, "bert-base-uncased", 5)
    assert drift.strict_verdicts == (strict == "true")
    assert (done.folder / "checkout" / "results" / "drift.xml").is_file()


def test_a_checkpoint_is_not_trained_for_its_pin(tmp_path):
    given = {**JUDGE, "PIN": "my.yaml", "CHECKPOINT": "./my-sst2", "TASKS": "sst2"}
    done = run_step(step("judge", "Judge")["run"], given, tmp_path)
    _, drift = map(benchmarks_understand, done.of("pytest"))
    assert (drift.checkpoint, drift.task, drift.seeds) == (Path("my-sst2"), "sst2", None)


def test_each_claim_is_annotated_once_and_compared_with_the_baseline(tmp_path):
    script = step("judge", "Judge")["run"]
    for program in ("bertsecrets", "pytest"):  # stubs that say whether they would annotate
        script = (
            f'{program}() {{ [ "$GITHUB_ACTIONS" != true ] || echo "{program} annotates"; '
            f'command {program} "$@"; }}\n{script}'
        )
    script = f"touch accepted.json\n{script}"
    done = run_step(script, {**JUDGE, "GITHUB_ACTIONS": "true", "BASELINE": "accepted.json"}, tmp_path)
    assert done.code == 0, done.output
    assert "pytest annotates" not in done.output
    compare = understood(done.of("bertsecrets")[1])
    assert (compare.before, compare.after) == ("accepted.json", "results/verdicts.json")
    assert (done.folder / "checkout" / "results" / "comment.md").is_file()


@pytest.mark.parametrize("glue", ["", "/data/my glue"])
def test_the_gpu_runner_tests_the_suite_if_it_has_data(glue, tmp_path):
    script = 'make() { echo "make $*"; }\n' + step("replication.yml", "Test")["run"]
    done = run_step(script, {"BERTSECRETS_GLUE": glue} if glue else {}, tmp_path)
    assert done.code == 0, done.output
    assert ("make install\nmake gpu GLUE=/data/my glue" in done.output) is bool(glue)
    assert ("set BERTSECRETS_GLUE" in done.output) is not bool(glue)


def test_the_comparison_needs_no_torch_which_its_job_does_not_install(tmp_path):
    installs = re.findall(r"install .*-r (\S+)", step("verdict-comment.yml", "Compare")["run"])
    assert installs == ["requirements/base.txt"]
    assert not re.search(r"^torch==", (PROJECT / installs[0]).read_text(), re.M)
    for name in ("old.json", "new.json"):
        write_json(tmp_path / name, filed().model_dump(mode="json"))
    call = (
        "import sys; sys.modules['torch'] = None; from bertsecrets.cli.main import main; sys.exit(main(sys.argv[1:]))"
    )
    words = [sys.executable, "-c", call, "compare", "old.json", "new.json", "--markdown", "comment.md"]
    done = subprocess.run(words, cwd=tmp_path, capture_output=True, text=True, check=False)
    assert (done.returncode, done.stderr) == (0, "")
    assert "no change in" in (tmp_path / "comment.md").read_text()


@pytest.mark.parametrize("name", ["pull-request", "verdicts"])
def test_the_documented_workflows_give_the_action_inputs_that_it_has(name):
    documented = yaml.safe_load(titled("ci.md", f".github/workflows/{name}.yml"))
    (judge,) = (
        job_step for job_step in documented["jobs"]["judge"]["steps"] if "actions/judge@" in job_step.get("uses", "")
    )
    assert judge["with"].keys() <= ACTION["inputs"].keys()


def test_the_documented_gitlab_job_calls_the_suite_with_options_that_exist():
    job = yaml.safe_load(titled("ci.md", ".gitlab-ci.yml"))["judge"]
    install, judge = map(shlex.split, job["script"])
    files = {Path(word).name for word in install if word.endswith(".txt")}
    assert files - {path.name for path in (PROJECT / "requirements").iterdir()} == {"bertsecrets.txt"}
    given = benchmarks_understand(judge[1:])
    assert (given.model, given.m, given.report) == ("./my-bert", "rte", Path("results"))
    assert job["artifacts"]["reports"]["junit"] == given.junitxml


def test_the_page_lists_all_inputs_and_variables():
    page = (PROJECT / "docs" / "ci.md").read_text()
    text = (PROJECT / ".github" / "workflows" / "replication.yml").read_text()
    assert [name for name in ACTION["inputs"] if f"| `{name}`" not in page] == []
    dispatch = workflow(PROJECT / ".github" / "workflows" / "replication.yml")["on"]["workflow_dispatch"]
    assert dispatch["inputs"].keys() <= ACTION["inputs"].keys()
    variables = set(re.findall(r"vars\.(\w+)", text))
    assert [name for name in variables if f"`{name}`" not in page] == []
    named = set(re.findall(r"`(BERTSECRETS_[A-Z]+)`", page)) - variables
    assert named == {"BERTSECRETS_STORE", "BERTSECRETS_GLUE", "BERTSECRETS_JOBS"}
