"""Plans list every job once, in order and with its state in the store; scripts run the jobs."""

import json
import os
import shlex
import subprocess
import sys

import pytest
from calls import run

from bertsecrets.claims.loading import cases
from bertsecrets.errors import UserError
from bertsecrets.jobs.plan import Plan, PlanningSession, plan_for, waits_for
from bertsecrets.jobs.scripts import command, shell_script
from bertsecrets.judging import JudgedRun
from bertsecrets.measures.registry import request
from bertsecrets.options import RunOptions
from bertsecrets.texts import glue
from bertsecrets.texts.tasks import TASKS
from bertsecrets.types import Request, Subject

pytestmark = pytest.mark.usefixtures("quick", "same_threads")
FEW = ("--claim", "D2-rte", "--claim", "E1", "--claim", "C1")


def planned(capsys, shared, *more) -> dict:
    return json.loads(run(capsys, "plan", *shared, "--task", "rte", *more, "--json"))


@pytest.fixture(scope="module")
def plan(request, tiny_bert, tiny_glue) -> Plan:
    """The plan of the paper's claims on RTE or, on request, on all tasks."""
    tasks = getattr(request, "param", {"rte"})
    session = PlanningSession(model=str(tiny_bert), glue=tiny_glue, store="nowhere", offline=True, device="cpu")
    asked = [case for case in cases() if case.task in tasks and not case.claim.on_request]
    return plan_for(session, JudgedRun(session, asked).eligible(), session.model, range(1, 6))


@pytest.mark.parametrize(
    ("plan", "trainings"),
    [({"rte"}, (4 + 1) * 5), pytest.param({*TASKS, "all"}, 7 * 4 * 5, marks=pytest.mark.slow)],
    indirect=["plan"],
)
def test_each_request_follows_its_dependencies(plan, trainings):
    requests = list(plan)
    for place, step in enumerate(requests):
        assert set(waits_for(plan, step)) <= set(requests[:place])
        assert step.training is None or step.training in plan
    assert len({step.subject for step in plan if step.measure is None}) == trainings


def test_a_measurement_waits_for_the_pass_that_yields_it(plan):
    subject = next(step.subject for step in plan if step.measure == "attention-change" and not step.options)
    leader = plan[Request("special-tokens", subject)]
    assert leader is not None
    assert leader.measure in ("attention-change", "patterns")
    assert plan[Request("attention-change", subject, (("padded_to", 200),))] is None


def test_default_options_and_needless_subjects_do_not_change_a_request():
    subject = Subject("m", "rte")
    assert request("scores", subject, {"cased": False}) == request("scores", subject, {})
    assert request("scores", subject, {"cased": True}) != request("scores", subject, {})
    bare = Subject("m", "all", "untrained", 1)
    assert request("frame-heads", Subject("m", "rte", "pretrained", 3), {}).subject == bare


def test_a_plan_shows_which_jobs_are_stored(capsys, shared, tmp_path):
    fresh = planned(capsys, shared, "--store", tmp_path / "empty", *FEW)
    states = {job["what"]: job["state"] for job in fresh["jobs"]}
    assert states["train rte pretrained seed 1"] == "to do"
    assert states["measure scores rte pretrained seed 1"] == "to do"
    plan = {job["what"]: job for job in planned(capsys, shared, *FEW, "--claim", "I6", "--seeds", 3)["jobs"]}
    assert plan["train rte pretrained seed 1"]["state"] == "stored"
    assert plan["train rte pretrained seed 3"]["state"] == "to do"
    assert plan["measure scores rte pretrained seed 2"]["state"] == "stored"
    assert plan["measure head-statistics rte pretrained seed 2"]["state"] == "to do"
    assert plan["measure scores rte pretrained seed 3"]["state"] == "to do"


def test_a_plan_loads_no_weights_and_writes_nothing(capsys, shared, monkeypatch, tmp_path):
    import transformers

    def refuse(*_, **__):
        raise AssertionError("weights were loaded")

    monkeypatch.setattr(transformers.PreTrainedModel, "from_pretrained", refuse)
    plan = planned(capsys, [*shared, "--store", str(tmp_path / "empty")], *FEW)
    assert plan["totals"]["stored"] == 0
    assert plan["totals"]["jobs"] == plan["totals"]["to_do"] == len(plan["jobs"])
    assert not (tmp_path / "empty").exists()


def test_a_plan_downloads_no_data(capsys, shared, monkeypatch):
    calls = []

    def load_hub(task, name, offline):
        calls.append((task.name, offline))
        raise UserError("not in the cache")

    monkeypatch.setattr(glue, "load_hub", load_hub)
    online = [word for word in shared if word != "--offline"]
    online[online.index("--glue") + 1] = "hub"
    plan = planned(capsys, online, "--claim", "D2")
    of_rows = [job["state"] for job in plan["jobs"] if job["measure"] or job["initialisation"] != "untrained"]
    assert "stored" not in of_rows
    assert {("rte", True)} <= set(calls) <= {(name, True) for name in TASKS}


def test_tasks_without_data_are_planned(capsys, shared):
    plan = json.loads(run(capsys, "plan", *shared, "--task", "rte", "--task", "mnli", "--claim", "D1", "--json"))
    assert plan["without_data"] == ["mnli"]
    assert {job["state"] for job in plan["jobs"] if job["task"] == "mnli"} == {"to do"}


def test_a_model_that_is_not_here_is_planned(capsys, tiny_glue, tmp_path):
    output = run(
        capsys, "plan", "--model", "nobody/has-this", "--glue", tiny_glue, "--store", tmp_path, "--task", "rte",
        "--claim", "C1", "--offline", "--allow-unofficial-data", "--json",
    )  # fmt: skip
    assert json.loads(output)["jobs"][0]["what"] == "train rte pretrained seed 1"


def test_the_table_has_one_row_for_all_seeds_of_a_job(capsys, shared):
    *_, header, _, train, measure, scores, totals = run(
        capsys, "plan", *shared, "--task", "rte", "--claim", "C1", "--seeds", 3
    ).splitlines()
    assert header.split() == ["job", "task", "initialisation", "options", "seeds", "stored", "to", "do"]
    assert train.split() == ["train", "rte", "pretrained", "1-3", "2", "1"]
    assert measure.split() == ["attention-change", "rte", "pretrained", "1-3", "2", "1"]
    assert scores.split() == ["scores", "rte", "pretrained", "1-3", "2", "1"]  # they show whether a seed collapsed
    assert totals.startswith("9 jobs, 3 of them trainings, on ")
    assert totals.endswith(": 6 stored, 3 to do")


# ---------------------------------------------------------------------- scripts


@pytest.fixture
def stub(tmp_path, monkeypatch):
    """Let scripts call a stub of this Python, which logs the calls of `bertsecrets`. Returns their environment."""
    python = tmp_path / "a python"
    python.write_text(f"""#!/bin/sh
        shift 2  # -m bertsecrets
        {{ printf '%s\\0' "$BERTSECRETS_PARAMS" "$@"; echo; }} >> {tmp_path}/calls
        exit ${{EXIT_CODE:-0}}
        """)
    python.chmod(0o755)
    monkeypatch.setattr(sys, "executable", str(python))
    hidden = ("BERTSECRETS", "PATH")
    return {name: value for name, value in os.environ.items() if not name.startswith(hidden)} | {
        "PATH": "/bin:/usr/bin"
    }


def script(capsys, shared, store) -> str:
    return run(capsys, "plan", *shared, "--store", store, "--task", "rte", "--claim", "C1", "--threads", 1, "--shell")


def done(text: str, environment) -> subprocess.CompletedProcess[str]:
    return subprocess.run(
        ["bash", "-s"], input=text, env=environment, cwd="/", capture_output=True, text=True, check=False
    )


@pytest.fixture
def commands(stub, quick, tmp_path):
    """Return a function that runs a script and returns the arguments of each `bertsecrets` call."""

    def called(text: str) -> list[list[str]]:
        ended = done(text, stub)
        assert ended.returncode == 0, ended.stderr
        calls = [line.split("\0")[:-1] for line in (tmp_path / "calls").read_text().splitlines()]
        assert {params for params, *_ in calls} == {str(quick)}
        return [arguments for _, *arguments in calls]

    return called


def states(capsys, shared, store) -> set[str]:
    plan = planned(capsys, shared, "--store", store, "--threads", 1, "--claim", "C1")
    return {job["state"] for job in plan["jobs"]}


def test_a_shell_script_does_every_job_and_then_nothing_more(capsys, shared, tmp_path, commands):
    store = tmp_path / "a store; with 'quotes'"
    text = script(capsys, shared, store)
    plan = planned(capsys, shared, "--store", store, "--threads", 1, "--claim", "C1")
    lines = [line.removesuffix(" || failed=$?") for line in text.splitlines() if " -m bertsecrets " in line]
    assert [job["command"] for job in plan["jobs"]] == lines
    called = commands(text)
    assert [arguments[0] for arguments in called] == ["finetune", "measure", "measure"]
    for arguments in called:
        run(capsys, *arguments)
    assert states(capsys, shared, store) == {"stored"}
    before = sorted(store.rglob("*"))
    run(capsys, *called[-1])
    assert sorted(store.rglob("*")) == before
    assert "bertsecrets " not in script(capsys, shared, store).split("exit 2; }")[1]


def test_a_script_ends_with_the_exit_code_of_a_failed_job_after_all_others(capsys, shared, tmp_path, stub):
    text = script(capsys, shared, tmp_path / "store")
    ended = done(text, stub | {"EXIT_CODE": "2"})
    assert ended.returncode == 2
    assert len((tmp_path / "calls").read_text().splitlines()) == text.count(" -m bertsecrets ")
    assert done(text, stub).returncode == 0


@pytest.mark.parametrize("character", ["\n", "\r", "\x1b"])
def test_a_path_that_would_end_its_line_is_refused(tmp_path, character):
    options = RunOptions(model="minilm", store=tmp_path / f"a{character}touch b")
    with pytest.raises(UserError, match="contains a line break or another control character"):
        shell_script([Request(None, Subject("minilm", "rte"))], options)


def test_a_job_gets_the_options_that_decide_its_result(monkeypatch, tmp_path):
    monkeypatch.setenv("BERTSECRETS_GLUE", str(tmp_path))
    options = RunOptions(model="minilm", glue=("hub",), offline=True, seeds=3, store=tmp_path)
    arguments = shlex.split(command(Request(None, Subject("minilm", "rte")), options))
    assert arguments[arguments.index("--glue") + 1] == "hub"
    assert "--offline" in arguments
    assert "--seeds" not in arguments


def test_a_script_whose_store_has_moved_does_nothing(capsys, shared, tmp_path, stub):
    store = tmp_path / "runs"
    text = script(capsys, shared, store)
    store.rename(tmp_path / "elsewhere")
    ended = done(text, stub)
    assert ended.returncode == 2
    line = f"the store of this plan was not found at {store}: create the plan again with --store"
    assert ended.stderr == f"bertsecrets: {line}\n"
    assert not (tmp_path / "calls").exists()
