"""Plans: every job once, in order, with what the store has, and scripts that do the jobs."""

import itertools
import json
import os
import subprocess
import warnings

import pytest
from calls import run, told

from bertsecrets.claims.plan import missing
from bertsecrets.claims.schema import cases, find_case
from bertsecrets.jobs.estimates import estimate
from bertsecrets.jobs.plan import Job, Step, WithAllData, chains, steps_of
from bertsecrets.jobs.records import Record, seconds_on_record
from bertsecrets.session import Session
from bertsecrets.types import Subject

pytestmark = pytest.mark.usefixtures("quick", "same_threads")
FEW = ("--claim", "D2-rte", "--claim", "E1", "--claim", "C1")


def planned(capsys, shared, *more) -> dict:
    return json.loads(run(capsys, "plan", *shared, "--task", "rte", *more, "--json"))


def steps_of_paper(tiny_bert, tiny_glue, tasks) -> list[Step]:
    """The steps of every case of some tasks, on five seeds."""
    session = Session(model=str(tiny_bert), glue=tiny_glue, store="nowhere", offline=True, device="cpu")
    bench = WithAllData(session)
    asked = [case for case in cases() if case.task in tasks and not case.claim.on_request]
    return steps_of(bench, [case for case in asked if missing(bench, case) is None], session.model, range(1, 6))


@pytest.fixture(scope="module")
def steps(tiny_bert, tiny_glue):
    return steps_of_paper(tiny_bert, tiny_glue, {"rte"})


def assert_each_job_is_planned_once_after_what_it_waits_for(steps):
    jobs = [step.job for step in steps]
    assert len(set(jobs)) == len(jobs)
    for place, step in enumerate(steps):
        assert set(step.waits_for) <= set(jobs[:place])
        if step.needs is not None:
            assert step.needs.subject == step.job.subject


def test_every_job_of_a_task_is_planned_once_and_after_what_it_waits_for(steps):
    assert_each_job_is_planned_once_after_what_it_waits_for(steps)


@pytest.mark.slow
def test_every_job_of_the_paper_is_planned_once_and_after_what_it_waits_for(tiny_bert, tiny_glue):
    steps = steps_of_paper(tiny_bert, tiny_glue, {case.task for case in cases()})
    assert_each_job_is_planned_once_after_what_it_waits_for(steps)
    assert len({step.job.subject for step in steps if step.job.measure is None}) == 7 * 4 * 5


def test_a_measurement_waits_for_the_pass_that_yields_it(steps):
    after = {step.job: step.after for step in steps}
    subject = next(job.subject for job in after if job.measure == "attention-change" and not job.options)
    leader = after[Job(subject, "special-tokens")]
    assert leader is not None
    assert leader.measure in ("attention-change", "patterns")
    assert after[Job(subject, "attention-change", (("padded_to", 200),))] is None
    groups = list(chains(steps))
    measuring = [step.job for step in steps if step.job.measure is not None]
    assert sorted(map(str, (step.job for step in itertools.chain(*groups)))) == sorted(map(str, measuring))
    assert any(Job(subject, "special-tokens") in [s.job for s in g] and leader in [s.job for s in g] for g in groups)


def test_a_job_is_the_same_whichever_default_is_spelled_out():
    subject = Subject("m", "rte")
    assert Job.of("scores", subject, {"cased": False}) == Job.of("scores", subject, {})
    assert Job.of("scores", subject, {"cased": True}) != Job.of("scores", subject, {})
    bare = Subject("m", "all", "untrained", 1)
    assert Job.of("frame-heads", Subject("m", "rte", "pretrained", 3), {}).subject == bare


def test_a_plan_says_what_is_stored_and_what_only_a_training_can_tell(capsys, shared, tmp_path):
    fresh = planned(capsys, shared, "--store", tmp_path / "empty", *FEW)
    states = {job["what"]: job["state"] for job in fresh["jobs"]}
    assert states["train rte pretrained seed 1"] == "to do"
    assert states["measure scores rte pretrained seed 1"] == "not yet"
    plan = {job["what"]: job for job in planned(capsys, shared, *FEW, "--claim", "I6", "--seeds", 3)["jobs"]}
    assert plan["train rte pretrained seed 1"]["state"] == "stored"
    assert plan["train rte pretrained seed 3"]["state"] == "to do"
    assert plan["train rte pretrained seed 3"]["seconds_by"] == "on record"
    assert plan["measure scores rte pretrained seed 2"]["state"] == "stored"
    assert plan["measure head-statistics rte pretrained seed 2"]["state"] == "to do"
    assert plan["measure scores rte pretrained seed 3"]["state"] == "not yet"


def test_a_plan_trains_nothing_and_loads_no_weights(capsys, shared, monkeypatch, tmp_path):
    import transformers

    def refuse(*_, **__):
        raise AssertionError("weights were loaded")

    monkeypatch.setattr(transformers.PreTrainedModel, "from_pretrained", refuse)
    plan = planned(capsys, [*shared, "--store", str(tmp_path / "empty")], *FEW)
    assert plan["totals"]["stored"] == 0
    assert plan["totals"]["seconds"] > 0
    assert all(one["memory_bytes"] > 0 for one in plan["jobs"])
    assert not (tmp_path / "empty").exists()


@pytest.mark.parametrize("precision", ["float32", "bfloat16"])
def test_a_machine_without_records_is_timed_in_the_precision_of_the_trainings(capsys, shared, tmp_path, precision):
    given = [*shared, "--store", str(tmp_path / "empty"), "--precision", precision]
    with warnings.catch_warnings():
        warnings.simplefilter("ignore")  # where bfloat16 is not native
        jobs = planned(capsys, given, "--claim", "C1")["jobs"]
    trainings = {one["what"]: one for one in jobs if one["measure"] is None}
    assert {one["seconds_by"] for one in trainings.values()} == {"calibrated"}


def test_a_training_that_encodes_each_text_once_takes_less_time(tmp_path, tiny_bert, tiny_glue):
    session = Session(model=str(tiny_bert), glue=tiny_glue, store=tmp_path, offline=True, device="cpu")
    jobs = [Job(Subject(str(tiny_bert), "rte", initialisation)) for initialisation in ("frozen", "pretrained")]
    frozen, whole = estimate(session, [Step(job) for job in jobs])
    assert 0 < frozen.seconds < whole.seconds


def test_tasks_without_data_are_planned_by_the_official_rows(capsys, shared):
    plan = json.loads(run(capsys, "plan", *shared, "--task", "rte", "--task", "mnli", "--claim", "D1", "--json"))
    assert plan["without_data"] == ["mnli"]
    seconds = {one["task"]: one["seconds"] for one in plan["jobs"] if one["measure"] is None}
    assert seconds["mnli"] > 100 * seconds["rte"]


def test_a_model_that_is_not_here_has_a_plan_without_costs(capsys, tiny_glue, tmp_path):
    output = run(
        capsys, "plan", "--model", "nobody/has-this", "--glue", tiny_glue, "--store", tmp_path, "--task", "rte",
        "--claim", "C1", "--offline", "--allow-unofficial-data", "--json",
    )  # fmt: skip
    training = json.loads(output)["jobs"][0]
    assert training["what"] == "train rte pretrained seed 1"
    assert training["seconds"] is training["memory_bytes"] is training["disk_bytes"] is None


def test_the_disk_that_a_training_needs_is_that_of_its_weights(tmp_path, tiny_bert, tiny_glue, runs):
    empty, filled = (
        Session(model=str(tiny_bert), glue=tiny_glue, store=store, device="cpu", allow_unofficial_data=True)
        for store in (tmp_path, runs)
    )
    (training, *_) = steps_of(empty, [find_case("C1", "rte")], empty.model, [1])
    (estimated,) = estimate(empty, [training])
    weights = filled.checkpoint(training.job.subject) / "model.safetensors"
    assert estimated.disk == pytest.approx(weights.stat().st_size, rel=0.05)


def test_seconds_come_from_the_same_task_and_otherwise_from_the_tokens_of_others():
    rte, mrpc = (Job(Subject("m", name)) for name in ("rte", "mrpc"))
    records = [Record(rte, "CPU", 20.0, 10), Record(rte, "another", 1.0, 10)]
    tokens = {rte: 60.0, mrpc: 30.0}.__getitem__
    assert seconds_on_record(records, rte, "CPU", 5, tokens, "bfloat16") is None
    assert seconds_on_record(records, rte, "CPU", 5, tokens) == (10.0, "rte")
    assert seconds_on_record(records, mrpc, "CPU", 5, tokens) == (5.0, "rte")
    assert seconds_on_record(records, Job(Subject("m", "rte", "frozen")), "CPU", 5, tokens) is None
    assert seconds_on_record(records, rte, "TPU", 5, tokens) is None


# ---------------------------------------------------------------------- scripts


@pytest.fixture
def on_path(tmp_path):
    """An environment whose commands only note how they are called, and a Slurm that does its arrays at once."""
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
    """A function that runs a script and returns the words of the commands that it calls."""

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


@pytest.mark.parametrize("form", ["--shell", "--slurm"])
def test_a_script_whose_store_has_moved_does_nothing(capsys, shared, tmp_path, on_path, form):
    store = tmp_path / "runs"
    text = script(capsys, shared, store, form)
    store.rename(tmp_path / "elsewhere")
    ended = done(text, on_path)
    assert ended.returncode == 2
    assert ended.stderr == f"bertsecrets: the store of this plan is not at {store}: make the plan again, with --store\n"
    assert not (tmp_path / "calls").exists()


@pytest.mark.parametrize(
    ("words", "says"),
    [
        (["--task", "rtee"], "unknown task"),
        (["--claim", "Z9"], "unknown claim"),
        (["--jobs", "0"], "--jobs 0 is out of range"),
        (["--threads", "0"], "--threads 0 is out of range"),
        (["--claim", "B1"], "frame-heads needs --frames"),
        (["--claim", "B1", "--task", "rte"], "no implemented claim matches"),
    ],
)
def test_an_impossible_plan_is_refused_in_one_line(capsys, shared, words, says):
    assert says in told(capsys, "plan", *shared, *words)
