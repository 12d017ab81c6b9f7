"""The workflows are sound and safe: linters find nothing, rights are least, what they call is there."""

import argparse
import re
import shutil
import subprocess
import sys
from pathlib import Path

import pytest
from pages import PROJECT, titled
from steps import WORKFLOWS, run_step, step, workflow
from verdicts import filed

from bertsecrets.cli.main import build_parser
from bertsecrets.options import PARSING
from bertsecrets.store.entries import write_json

REPLICATION = {"MODEL": "bert-base-uncased", "TASKS": "rte", "SEEDS": "5", "BUDGET": "", "PIN": "", "STRICT": "false"}
# What each job may do beyond nothing.
RIGHTS = {
    ("tests.yml", "lint"): {"contents": "read"},
    ("tests.yml", "test"): {"contents": "read"},
    ("tests.yml", "demo"): {"contents": "read"},
    ("replication.yml", "replicate"): {"contents": "read"},
    ("verdict-comment.yml", "compare"): {"actions": "read", "contents": "read"},
    ("verdict-comment.yml", "comment"): {"contents": "read", "pull-requests": "write"},
}
JOBS = [(path.name, name, job) for path in WORKFLOWS for name, job in workflow(path)["jobs"].items()]
STEPS = [(name, one) for name, _, job in JOBS for one in job["steps"]]
LINTERS = {
    "actionlint": ["actionlint", "-config-file", str(PROJECT / ".github" / "actionlint.yaml")],
    "zizmor": ["zizmor", "--offline", "--quiet", "--persona", "pedantic"],
    "check-jsonschema": ["check-jsonschema", "--builtin-schema", "vendor.github-workflows"],
}
UNSOUND = {  # a flaw that the linter must see
    "actionlint": ("${{ matrix.python }}", "${{ matrix.pyton }}"),
    "zizmor": ("run: make test", "run: echo ${{ github.head_ref }}"),
    "check-jsonschema": ("runs-on:", "run-on:"),
}


def linted(linter: str, *paths: Path) -> subprocess.CompletedProcess[str]:
    """What a linter says, found beside this Python or on the PATH; skips the test where it is not installed."""
    command = LINTERS[linter]
    program = shutil.which(command[0], path=Path(sys.executable).parent) or shutil.which(command[0])
    if program is None:
        pytest.skip(f"{command[0]} is not installed")
    return subprocess.run([program, *command[1:], *map(str, paths)], capture_output=True, text=True, check=False)


@pytest.mark.parametrize("linter", LINTERS)
def test_a_linter_finds_nothing_in_the_workflows(linter):
    done = linted(linter, *WORKFLOWS)
    assert done.returncode == 0, done.stdout + done.stderr


@pytest.mark.parametrize("linter", LINTERS)
def test_a_linter_finds_nothing_in_the_documented_workflow(linter, tmp_path):
    documented = tmp_path / ".github" / "workflows" / "verdicts.yml"
    documented.parent.mkdir(parents=True)
    documented.write_text(titled("ci.md", ".github/workflows/verdicts.yml"))
    done = linted(linter, documented)
    assert done.returncode == 0, done.stdout + done.stderr


@pytest.mark.parametrize("linter", LINTERS)
def test_a_linter_would_find_a_flaw(linter, tmp_path):
    flawed = tmp_path / ".github" / "workflows" / "tests.yml"
    flawed.parent.mkdir(parents=True)
    text = (PROJECT / ".github" / "workflows" / "tests.yml").read_text()
    assert UNSOUND[linter][0] in text
    flawed.write_text(text.replace(*UNSOUND[linter]))
    assert linted(linter, flawed).returncode != 0


# ---------------------------------------------------------------------- rights


@pytest.mark.parametrize(("path", "name", "job"), JOBS, ids=lambda value: str(value)[:20])
def test_a_job_has_only_the_rights_that_it_needs(path, name, job):
    whole = workflow(PROJECT / ".github" / "workflows" / path)
    assert whole["permissions"] in ({}, {"contents": "read"})
    assert job.get("permissions", whole["permissions"]) == RIGHTS[path, name]


@pytest.mark.parametrize(("path", "name", "job"), JOBS, ids=lambda value: str(value)[:20])
def test_a_job_ends_some_time(path, name, job):
    assert job["timeout-minutes"] > 0
    assert workflow(PROJECT / ".github" / "workflows" / path)["concurrency"]["group"]


def test_actions_are_github_s_own_and_pinned_to_a_commit_whose_version_is_named():
    used = [(one, line) for path in WORKFLOWS for one, line in re.findall(r"uses: (\S+)(.*)", path.read_text())]
    assert len(used) == sum("uses" in one for _, one in STEPS)
    for action, rest in used:
        assert re.fullmatch(r"actions/[a-z-]+@[0-9a-f]{40}", action), action
        assert re.fullmatch(r"  # v\d+\.\d+\.\d+", rest), action
    assert len({action for action, _ in used}) == len({action.split("@")[0] for action, _ in used})


def test_no_checkout_leaves_its_token_in_the_folder():
    checkouts = [one for _, one in STEPS if one.get("uses", "").startswith("actions/checkout@")]
    assert checkouts
    assert all(one["with"]["persist-credentials"] is False for one in checkouts)


def test_no_value_of_an_event_is_pasted_into_a_script():
    assert [one["run"] for _, one in STEPS if "${{" in one.get("run", "")] == []


def test_only_a_workflow_that_runs_nothing_of_a_pull_request_may_write():
    for path in WORKFLOWS:
        triggers = workflow(path)["on"]
        assert "pull_request_target" not in triggers
        writes = "write" in str(RIGHTS[path.name, "comment"]) if path.name == "verdict-comment.yml" else False
        assert writes == ("workflow_run" in triggers)
    assert "secrets." not in "".join(path.read_text() for path in WORKFLOWS if path.name != "replication.yml")
    checkouts = [one for name, one in STEPS if name == "verdict-comment.yml" and "checkout" in one.get("uses", "")]
    assert [one["with"].keys() & {"ref", "repository"} for one in checkouts] == [set(), set()]  # the default branch


def test_the_comment_waits_for_the_workflow_that_makes_the_artifact():
    names = {workflow(path)["name"] for path in WORKFLOWS}
    comment = workflow(PROJECT / ".github" / "workflows" / "verdict-comment.yml")
    assert set(comment["on"]["workflow_run"]["workflows"]) <= names
    uploaded = [one["with"] for name, one in STEPS if name == "tests.yml" and "upload-artifact" in one.get("uses", "")]
    assert {"name": "verdicts", "path": "runs/demo/verdicts.json"}.items() <= uploaded[-1].items()


# ---------------------------------------------------------------------- commands


def understood(arguments: list[str]) -> argparse.Namespace:
    """The parsed command line of `bertsecrets`; ends the test if it is not understood."""
    return build_parser().parse_args(arguments)


def benchmarks_understand(arguments: list[str]) -> argparse.Namespace:
    """The parsed command line of `pytest benchmarks`."""
    parser = argparse.ArgumentParser()
    for name, parsing in PARSING.items():
        parser.add_argument(f"--{name.replace('_', '-')}", **parsing)
    parser.add_argument("--strict-verdicts", action="store_true")
    parser.add_argument("--against")
    parser.add_argument("--junitxml")
    parser.add_argument("-m")
    parser.add_argument("paths", nargs="+")
    return parser.parse_args(arguments)


@pytest.mark.parametrize(
    "given",
    [
        {},
        {"TASKS": ""},
        {"TASKS": " rte  mrpc ", "SEEDS": "auto", "BUDGET": "2h", "STRICT": "true"},
        {"MODEL": "$(touch stolen) `touch stolen`; touch stolen", "TASKS": "rte"},
    ],
    ids=["usual", "every task", "all options", "a hostile name"],
)
def test_the_replication_calls_the_suite_with_options_that_there_are(given, tmp_path):
    environment = {**REPLICATION, **given}
    done = run_step(step("replication.yml", "Measure and judge")["run"], environment, tmp_path)
    assert done.code == 0, done.output
    report = understood(done.of("bertsecrets")[0])
    benchmarks = benchmarks_understand(done.of("pytest")[0])
    tasks = environment["TASKS"].split()
    assert (report.command, report.models, str(report.seeds)) == (
        "report",
        [environment["MODEL"]],
        environment["SEEDS"],
    )
    assert (report.task or []) == tasks
    assert (benchmarks.m or "") == " or ".join(tasks)
    assert ([benchmarks.model], benchmarks.seeds, benchmarks.budget) == (report.models, report.seeds, report.budget)
    assert benchmarks.paths == ["benchmarks"]
    assert report.strict == benchmarks.strict_verdicts == (environment["STRICT"] == "true")
    assert not (done.folder / "checkout" / "stolen").exists()
    made = {path.name for path in (done.folder / "checkout" / "results").iterdir()}
    assert made == {"verdicts.json", "report.html", "summary.md", "badge.json", "junit.xml"}
    assert done.summary == "made by --markdown"


@pytest.mark.parametrize(("code", "says"), [(1, "a claim deviates"), (2, "bad input"), (70, "a bug"), (143, "143")])
def test_the_replication_ends_with_the_code_of_the_suite(code, says, tmp_path):
    done = run_step(step("replication.yml", "Measure and judge")["run"], REPLICATION, tmp_path, ends_with=code)
    assert done.code == code
    assert re.search(rf"^::error title=replication::.*{says}", done.output, re.M)
    assert done.summary == "made by --markdown"
    assert len(done.of("pytest")) == (code == 1)  # what could not be judged is not tried again


@pytest.mark.parametrize("strict", ["false", "true"])
def test_the_replication_judges_drift_from_a_pin_where_one_is_named(strict, tmp_path):
    given = {**REPLICATION, "PIN": "expected/variants/my bert.yaml", "STRICT": strict}
    done = run_step(step("replication.yml", "Measure and judge")["run"], given, tmp_path)
    assert done.code == 0, done.output
    claims, drift = map(benchmarks_understand, done.of("pytest"))
    assert claims.against is None
    assert (drift.against, drift.model, drift.seeds) == ("expected/variants/my bert.yaml", "bert-base-uncased", 5)
    assert drift.strict_verdicts == (strict == "true")
    assert (done.folder / "checkout" / "results" / "drift.xml").is_file()


def test_the_comparison_calls_the_suite_with_options_that_there_are():
    (words,) = re.findall(r"/bertsecrets\" (.*)", step("verdict-comment.yml", "Compare")["run"])
    options = understood(words.split())
    files = [str(path) for path in (options.old, options.new, options.markdown)]
    assert (options.command, files) == ("changes", ["old.json", "new.json", "comment.md"])
    got = step("verdict-comment.yml", "Get the verdicts of the default branch and of the pull request")["run"]
    assert got.split()[-2:] == files[:2]


def test_the_comparison_needs_no_torch_which_its_job_does_not_install(tmp_path):
    installs = re.findall(r"install .*-r (\S+)", step("verdict-comment.yml", "Compare")["run"])
    assert installs == ["container/requirements.txt"]
    assert not re.search(r"^torch==", (PROJECT / installs[0]).read_text(), re.M)
    for name in ("old.json", "new.json"):
        write_json(tmp_path / name, filed().model_dump(mode="json"))
    call = (
        "import sys; sys.modules['torch'] = None; from bertsecrets.cli.main import main; sys.exit(main(sys.argv[1:]))"
    )
    words = [sys.executable, "-c", call, "changes", "old.json", "new.json", "--markdown", "comment.md"]
    done = subprocess.run(words, cwd=tmp_path, capture_output=True, text=True, check=False)
    assert (done.returncode, done.stderr) == (0, "")
    assert "nothing changed" in (tmp_path / "comment.md").read_text()


def test_the_documented_workflow_calls_the_benchmarks_with_options_that_there_are():
    text = titled("ci.md", ".github/workflows/verdicts.yml")
    words = re.search(r"/pytest --pyargs (.*)", text)[1].replace("-k ", "-m ").split()
    options = benchmarks_understand(words)
    assert (options.paths, options.m, options.seeds) == (["bertsecrets.benchmarks"], "rte", 5)
    used = set(re.findall(r"uses: (\S+)", text))
    assert used <= {one["uses"] for _, one in STEPS if "uses" in one}


def test_the_page_names_the_inputs_and_variables_of_the_replication():
    page = (PROJECT / "docs" / "ci.md").read_text()
    text = (PROJECT / ".github" / "workflows" / "replication.yml").read_text()
    inputs = workflow(PROJECT / ".github" / "workflows" / "replication.yml")["on"]["workflow_dispatch"]["inputs"]
    assert [name for name in inputs if f"| `{name}`" not in page] == []
    variables = set(re.findall(r"vars\.(\w+)", text))
    assert [name for name in variables if f"`{name}`" not in page] == []
    assert set(re.findall(r"`(BERTSECRETS_[A-Z]+)`", page)) - variables == {"BERTSECRETS_STORE", "BERTSECRETS_GLUE"}


def test_targets_of_make_that_are_called_are_in_the_makefile():
    makefile = (PROJECT / "Makefile").read_text()
    targets = re.findall(r"^([a-z-]+):", makefile, re.M)
    called = [line.split()[1:] for _, one in STEPS for line in re.findall(r"^make .*", one.get("run", ""), re.M)]
    assert [word for words in called for word in words if "=" not in word] == ["lint", "audit", "docs", "test", "demo"]
    assert {word for words in called for word in words if "=" not in word} <= set(targets)
    command = ["make", "--dry-run", "demo", "DEMO=runs/demo", "SEEDS=1"]
    recipe = subprocess.run(command, cwd=PROJECT, capture_output=True, text=True, check=True).stdout
    (report,) = (line for line in recipe.replace("\\\n", " ").splitlines() if "bertsecrets report" in line)
    words = report.split("#")[0].split("||")[0]
    demo = understood(words.split()[1:])
    assert [str(path) for path in (demo.json, demo.html, demo.markdown)] == [
        *("runs/demo/verdicts.json", "runs/demo/report.html", "runs/demo/summary.md")
    ]
    text = (PROJECT / ".github" / "workflows" / "tests.yml").read_text()
    assert {str(demo.json), str(demo.html), str(demo.markdown)} <= set(re.findall(r"runs/demo/[a-z.]+", text))
