"""Plans list every job once, in order and with its state in the store; scripts run the jobs."""

import json
import os
import shlex
import subprocess

import pytest
from calls import run, told

from bertsecrets.claims.prospects import Prospect
from bertsecrets.claims.requirements import missing
from bertsecrets.claims.schema import cases
from bertsecrets.jobs.decided import decided_within
from bertsecrets.jobs.estimates import Record, seconds_on_record
from bertsecrets.jobs.plan import Plan, PlanningSession, plan_for, waits_for
from bertsecrets.jobs.scripts import command
from bertsecrets.measures.registry import request
from bertsecrets.options import RunOptions
from bertsecrets.types import Request, Subject

pytestmark = pytest.mark.usefixtures("quick", "same_threads")
FEW = ("--claim", "D2-rte", "--claim", "E1", "--claim", "C1")


def planned(capsys, shared, *more) -> dict:
    return json.loads(run(capsys, "plan", *shared, "--task", "rte", *more, "--json"))


def plan_of_paper(tiny_bert, tiny_glue, tasks) -> Plan:
    session = PlanningSession(model=str(tiny_bert), glue=tiny_glue, store="nowhere", offline=True, device="cpu")
    asked = [case for case in cases() if case.task in tasks and not case.claim.on_request]
    return plan_for(session, [case for case in asked if missing(session, case) is None], session.model, range(1, 6))


@pytest.fixture(scope="module")
def plan(tiny_bert, tiny_glue) -> Plan:
    return plan_of_paper(tiny_bert, tiny_glue, {"rte"})


def assert_each_request_comes_after_what_it_waits_for(plan):
    requests = list(plan)
    for place, step in enumerate(requests):
        assert set(waits_for(plan, step)) <= set(requests[:place])
        assert step.training is None or step.training in plan


def test_each_request_follows_its_dependencies(plan):
    assert_each_request_comes_after_what_it_waits_for(plan)


@pytest.mark.slow
def test_the_paper_is_planned_in_order(tiny_bert, tiny_glue):
    plan = plan_of_paper(tiny_bert, tiny_glue, {case.task for case in cases()})
    assert_each_request_comes_after_what_it_waits_for(plan)
    assert len({step.subject for step in plan if step.measure is None}) == 7 * 4 * 5


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


def test_a_plan_shows_stored_and_undetermined_jobs(capsys, shared, tmp_path):
    fresh = planned(capsys, shared, "--store", tmp_path / "empty", *FEW)
    states = {job["what"]: job["state"] for job in fresh["jobs"]}
    assert states["train rte pretrained seed 1"] == "to do"
    assert states["measure scores rte pretrained seed 1"] == "not yet"
    plan = {job["what"]: job for job in planned(capsys, shared, *FEW, "--claim", "I6", "--seeds", 3)["jobs"]}
    assert plan["train rte pretrained seed 1"]["state"] == "stored"
    assert plan["train rte pretrained seed 3"]["state"] == "to do"
    assert plan["train rte pretrained seed 3"]["seconds_by"] == "on record"
    assert plan["train rte pretrained seed 3"]["seconds"] is not None
    assert plan["measure scores rte pretrained seed 2"]["state"] == "stored"
    assert plan["measure head-statistics rte pretrained seed 2"]["state"] == "to do"
    assert plan["measure scores rte pretrained seed 3"]["state"] == "not yet"


def test_a_plan_of_an_empty_store_loads_no_weights_and_says_that_times_are_unknown(
    capsys, shared, monkeypatch, tmp_path, runs
):
    import transformers

    def refuse(*_, **__):
        raise AssertionError("weights were loaded")

    monkeypatch.setattr(transformers.PreTrainedModel, "from_pretrained", refuse)
    given = [*shared, "--store", str(tmp_path / "empty")]
    plan = planned(capsys, given, *FEW)
    assert plan["totals"]["stored"] == 0
    assert plan["totals"]["seconds"] is None
    assert all(entry["memory_bytes"] > 0 for entry in plan["jobs"])
    assert {entry["seconds_by"] for entry in plan["jobs"] if entry["measure"] is None} == {"unknown"}
    weights = next(runs.glob("checkpoints/*pretrained-s1*")) / "model.safetensors"
    assert plan["jobs"][0]["disk_bytes"] == pytest.approx(weights.stat().st_size, rel=0.05)
    assert "this store has no record of such a job yet" in run(capsys, "plan", *given, "--task", "rte", *FEW)
    assert not (tmp_path / "empty").exists()


def test_tasks_without_data_are_planned_with_the_official_rows(capsys, shared):
    plan = json.loads(run(capsys, "plan", *shared, "--task", "rte", "--task", "mnli", "--claim", "D1", "--json"))
    assert plan["without_data"] == ["mnli"]
    training = next(
        entry for entry in plan["jobs"] if entry["task"] == "mnli" and entry["initialisation"] == "pretrained"
    )
    assert training["seconds_by"] == "on record for rte"
    again = planned(capsys, shared, "--claim", "D1", "--seeds", 3)["jobs"]
    assert training["seconds"] > 100 * next(entry["seconds"] for entry in again if entry["what"].endswith("seed 3"))


def test_a_plan_for_a_model_that_is_not_here_has_no_costs(capsys, tiny_glue, tmp_path):
    output = run(
        capsys, "plan", "--model", "nobody/has-this", "--glue", tiny_glue, "--store", tmp_path, "--task", "rte",
        "--claim", "C1", "--offline", "--allow-unofficial-data", "--json",
    )  # fmt: skip
    training = json.loads(output)["jobs"][0]
    assert training["what"] == "train rte pretrained seed 1"
    assert training["seconds"] is training["memory_bytes"] is training["disk_bytes"] is None


def test_seconds_are_scaled_by_examples_tokens_and_parameters():
    rte, mrpc = (Request(None, Subject("m", name)) for name in ("rte", "mrpc"))
    records = [Record(rte, 20.0, 10, parameters=100)]
    assert seconds_on_record(records, rte, 5) == (10.0, "on record")
    assert seconds_on_record(records, mrpc, 5) == (pytest.approx(10 * 53 / 67), "on record for rte")
    larger = Request(None, Subject("large", "rte"))
    assert seconds_on_record(records, larger, 5, parameters=300) == (pytest.approx(30), "on record for m")
    assert seconds_on_record(records, larger, 5) == (None, "unknown")
    measured, frozen = Request("scores", rte.subject), Request(None, Subject("m", "rte", "frozen"))
    assert {seconds_on_record(records, other, 5) for other in (measured, frozen)} == {(None, "unknown")}


# ---------------------------------------------------------------------- scripts


@pytest.fixture
def on_path(tmp_path):
    """An environment with a stub `bertsecrets` that logs its calls and a fake Slurm that runs job arrays at once."""
    scripts = {
        "bertsecrets": f"""#!/bin/sh
            {{ printf '%s\\0' "$BERTSECRETS_PARAMS" "$@"; echo; }} >> {tmp_path}/calls
            """,
        "sbatch": f"""#!/bin/bash
            echo "$@" >> {tmp_path}/submitted
            array=$(echo "$@" | sed 's/.*--array=1-\\([0-9]*\\).*/\\1/')
            cat > {tmp_path}/job
            for task in $(seq "$array"); do SLURM_ARRAY_TASK_ID=$task bash {tmp_path}/job >&2 || exit; done
            wc -l < {tmp_path}/submitted
            """,
    }
    folder = tmp_path / "bin"
    folder.mkdir()
    for name, text in scripts.items():
        (folder / name).write_text(text)
        (folder / name).chmod(0o755)
    environment = {name: value for name, value in os.environ.items() if not name.startswith("BERTSECRETS")}
    return environment | {"PATH": f"{folder}{os.pathsep}{os.environ['PATH']}"}


def script(capsys, shared, store, form) -> str:
    return run(capsys, "plan", *shared, "--store", store, "--task", "rte", "--claim", "C1", "--threads", 1, form)


def done(text: str, environment, *words) -> subprocess.CompletedProcess[str]:
    return subprocess.run(
        ["bash", "-s", "--", *words], input=text, env=environment, cwd="/", capture_output=True, text=True, check=False
    )


@pytest.fixture
def commands(on_path, quick, tmp_path):
    """Return a function that runs a script and returns the arguments of each `bertsecrets` call."""

    def called(text: str, *words: str) -> list[list[str]]:
        ended = done(text, on_path, *words)
        assert ended.returncode == 0, ended.stderr
        calls = [line.split("\0")[:-1] for line in (tmp_path / "calls").read_text().splitlines()]
        assert {params for params, *_ in calls} == {str(quick)}
        return [words for _, *words in calls]

    return called


def states(capsys, shared, store) -> set[str]:
    plan = planned(capsys, shared, "--store", store, "--threads", 1, "--claim", "C1")
    return {job["state"] for job in plan["jobs"]}


def test_a_shell_script_does_every_job_and_then_nothing_more(capsys, shared, tmp_path, commands):
    store = tmp_path / "a store; with 'quotes'"
    text = script(capsys, shared, store, "--shell")
    plan = planned(capsys, shared, "--store", store, "--threads", 1, "--claim", "C1")
    assert [job["command"] for job in plan["jobs"]] == [line for line in text.splitlines() if line.startswith("berts")]
    called = commands(text)
    assert [words[0] for words in called] == ["finetune", "measure"]
    for words in called:
        run(capsys, *words)
    assert states(capsys, shared, store) == {"stored"}
    before = sorted(store.rglob("*"))
    run(capsys, *called[-1])
    assert sorted(store.rglob("*")) == before
    assert "bertsecrets " not in script(capsys, shared, store, "--shell").split("exit 2; }")[1]


def test_a_slurm_script_submits_trainings_and_then_measurements(capsys, shared, tmp_path, commands):
    store = tmp_path / "runs"
    called = commands(script(capsys, shared, store, "--slurm"), "--partition=long")
    train, measure = (tmp_path / "submitted").read_text().splitlines()
    assert "--array=1-1 " in train
    assert "--cpus-per-task=1" in train
    assert "--dependency=afterany:1 --partition=long" in measure
    assert [words[0] for words in called] == ["finetune", "measure"]
    for words in called:
        run(capsys, *words)
    assert states(capsys, shared, store) == {"stored"}


def test_a_job_gets_the_options_that_decide_its_result(monkeypatch, tmp_path):
    monkeypatch.setenv("BERTSECRETS_GLUE", str(tmp_path))
    options = RunOptions(model="minilm", glue=("hub",), offline=True, seeds=3, store=tmp_path)
    words = shlex.split(command(Request(None, Subject("minilm", "rte")), options))
    assert words[words.index("--glue") + 1] == "hub"
    assert "--offline" in words
    assert "--seeds" not in words


@pytest.mark.parametrize("form", ["--shell", "--slurm"])
def test_a_script_whose_store_has_moved_does_nothing(capsys, shared, tmp_path, on_path, form):
    store = tmp_path / "runs"
    text = script(capsys, shared, store, form)
    store.rename(tmp_path / "elsewhere")
    ended = done(text, on_path)
    assert ended.returncode == 2
    assert (
        ended.stderr == f"bertsecrets: the store of this plan is not at {store}: create the plan again with --store\n"
    )
    assert not (tmp_path / "calls").exists()


@pytest.mark.parametrize(
    ("words", "says"),
    [
        (["--task", "rtee"], "unknown task"),
        (["--claim", "Z9"], "unknown claim"),
        (["--jobs", "0"], "--jobs 0 is out of range"),
        (["--threads", "0"], "--threads 0 is out of range"),
        (["--claim", "B1"], "frame-heads needs --frames"),
        (["--claim", "G5", "--task", "rte"], "no claim matches"),
    ],
)
def test_an_impossible_plan_is_refused_in_one_line(capsys, shared, words, says):
    assert says in told(capsys, "plan", *shared, *words)


# ---------------------------------------------------------------------- claims decided within a budget


def prospect(*decided_by):
    outcomes = {name: {"reproduced": decided_by[-1]} for name in ("auto", "1", "5")}
    return Prospect(worlds=10, truth=1.0, contradicted=False, outcomes=outcomes, seeds=2.0, decided_by=decided_by)


def job(name, seed):
    return Request(name, Subject("m", "rte", "pretrained", seed))


def decided(budget, at_once=1):
    """Return the claims chosen for a budget.

    All three share a training of 10 s per seed. A needs three seeds and 1 s more per seed, B two seeds and 5 s more.
    C is never decided.
    """
    prospects = {"A": prospect(0, 0, 0.9, 0.9, 0.9), "B": prospect(0.4, 1, 1, 1, 1), "C": prospect(0, 0, 0, 0, 0)}

    def needs(case, seed):
        own = {"A": job("scores", seed), "B": job("features", seed), "C": job("relations", seed)}[case]
        return frozenset({Request(None, own.subject), own})

    costs = {None: 10.0, "scores": 1.0, "features": 5.0, "relations": 0.0}
    seconds = {step: costs[step.measure] for case in prospects for seed in range(1, 6) for step in needs(case, seed)}
    chosen = decided_within(budget, prospects, needs, seconds, at_once)
    return [(choice.case, choice.seeds, choice.chance, choice.seconds) for choice in chosen]


def test_a_budget_pays_shared_trainings_once_and_decides_what_it_can():
    assert decided(14) == []
    assert decided(15) == [("B", 1, 0.4, 15)]
    assert decided(30) == [("B", 2, 1.0, 30)]
    assert decided(43) == [("A", 3, 0.9, 13), ("B", 2, 1.0, 30)]
    assert decided(22, at_once=2) == [("A", 3, 0.9, 13), ("B", 2, 1.0, 30)]
    assert sum(choice[3] for choice in decided(1e6)) == 43


def test_plan_lists_the_claims_that_a_budget_decides(capsys, shared, tmp_path, monkeypatch):
    from bertsecrets.claims import prospects

    prospects_on_record = prospects.Prospects(
        assumptions=(), cases=dict.fromkeys(("C1-rte", "C4-rte"), prospect(1, 1, 1, 1, 1))
    )
    monkeypatch.setattr(prospects, "prospects", lambda: prospects_on_record)
    chosen = ("--claim", "C1", "--claim", "C4", "--task", "rte", "--store", tmp_path)  # C4 needs 12 x 12 heads
    chosen = (*chosen, "--seeds", "auto", "--budget", "1h", "--decides")
    empty = run(capsys, "plan", *shared, *chosen)
    assert "1 of 1 claims are decided on average (bertsecrets explain" in run(capsys, "plan", *shared, *chosen[:-1])
    assert "0.0 of 1 claims are decided within 1 h 0 min on average" in empty
    assert "time unknown for 1 of 1 claims" in empty
    run(capsys, "report", *shared, "--claim", "C1", "--task", "rte", "--store", tmp_path, "--seeds", 1)
    assert "1.0 of 1 claims are decided within 1 h 0 min on average" in run(capsys, "plan", *shared, *chosen)
    monkeypatch.setattr(prospects, "prospects", lambda: None)
    assert "lab calibrate --as-published" in told(capsys, "plan", *shared, *chosen)
