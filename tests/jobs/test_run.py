"""Jobs in several processes give the verdicts of a serial run; failed jobs and killed workers do not affect others."""

import json
import multiprocessing
import os
import shutil
import signal
import subprocess
import sys
import threading
import time
from collections.abc import Callable
from contextlib import nullcontext
from pathlib import Path

import pytest
import torch
from calls import run
from faults import LIMIT, PROCESSES, lasting
from sessions import local_session
from steps import PROJECT

from bertsecrets import cores
from bertsecrets.claims.loading import find_case
from bertsecrets.claims.requirements import measure_case
from bertsecrets.claims.verdict import Verdict
from bertsecrets.cli.main import main
from bertsecrets.cores import share_cores
from bertsecrets.errors import RunError, UserError
from bertsecrets.jobs import pool, prepare
from bertsecrets.jobs.plan import JobResult, plan_for
from bertsecrets.jobs.pool import run_local
from bertsecrets.jobs.prepare import PlannedRunner
from bertsecrets.jobs.worker import serve
from bertsecrets.options import RunOptions
from bertsecrets.types import Request, Subject

pytestmark = pytest.mark.usefixtures("quick", "same_threads")
FEW = ("--task", "rte", "--claim", "D2-rte", "--claim", "E1", "--claim", "C1")


@pytest.fixture
def forked(monkeypatch):
    """Fork workers from a server that has imported everything, which saves seconds per worker."""
    monkeypatch.setattr(pool, "SPAWN_CONTEXT", PROCESSES)


def judged(capsys, command, shared, store, *more):
    file = store.parent / f"{command}.json"
    code = main([str(word) for word in (command, *shared, "--store", store, *FEW, "--json", file, *more)])
    return code, capsys.readouterr(), lasting(json.loads(file.read_text())["verdicts"])


@pytest.mark.slow
def test_parallel_jobs_reach_the_verdicts_of_a_serial_run(capsys, shared, runs, tmp_path):
    options = ("--seeds", 2, "--threads", 1)
    code, _, expected = judged(capsys, "run", shared, runs, *options)
    page = tmp_path / "summary.md"
    parallel = judged(capsys, "run", shared, tmp_path / "runs", *options, "--jobs", 2, "--markdown", page)
    assert (parallel[0], parallel[2]) == (code, expected)
    assert page.exists()
    said = parallel[1].err
    assert "2 at a time, each with --threads 1" in said
    jobs = int(said.split(" jobs to do")[0].split()[-1])
    assert said.count(f" of {jobs}: ") == jobs
    again = judged(capsys, "run", shared, tmp_path / "runs", *options, "--jobs", 2)
    assert again[2] == expected
    assert again[1].err == ""  # everything is stored: no process is started


def test_run_without_jobs_reuses_results_of_sessions(capsys, shared):
    run(capsys, "measure", "attention-change", "--task", "rte", *shared, "--seed", 2)
    main([str(word) for word in ("run", *shared, *FEW, "--seeds", 2)])
    assert "jobs to do" not in capsys.readouterr().err


def test_jobs_that_wait_for_each_other_need_no_worker(capsys, shared, tmp_path, monkeypatch):
    monkeypatch.setattr(pool, "serve", lambda *_: pytest.fail("a worker was started"))
    arguments = ("run", "--task", "rte", "--claim", "D1-pretrained", *shared, "--store", tmp_path / "runs", "--jobs", 2)
    main([str(argument) for argument in arguments])
    said = capsys.readouterr().err
    assert "2 jobs to run, including 1 training in float32" in said
    assert "2 of 2: measure scores " in said


def test_fewer_jobs_with_as_many_threads_run_by_default_if_memory_is_small(capsys, shared, tmp_path, monkeypatch):
    monkeypatch.delenv("BERTSECRETS_JOBS")
    monkeypatch.setattr(cores, "_core_count", lambda: 2)
    monkeypatch.setattr(prepare, "available_bytes", lambda: 10**9)
    monkeypatch.setattr(pool, "serve", lambda *_: pytest.fail("a worker was started"))
    arguments = ("--task", "rte", "--claim", "D1-untrained", *shared, "--store", tmp_path / "runs", "--seeds", 2)
    main([str(argument) for argument in ("run", *arguments)])
    said = capsys.readouterr().err
    assert "4 jobs to run" in said
    assert " of 4: " in said
    run(capsys, "report", *arguments, "--json", tmp_path / "verdicts.json")
    assert all(verdict["reused"] for verdict in json.loads((tmp_path / "verdicts.json").read_text())["verdicts"])


@pytest.mark.slow
def test_workers_do_not_execute_the_script_that_starts_them(shared, tmp_path):
    script = tmp_path / "script.py"
    lines = ["import sys", "from bertsecrets.cli.main import main", "print('started')", "sys.exit(main(sys.argv[1:]))"]
    script.write_text("\n".join(lines))
    arguments = ("run", "--task", "rte", "--claim", "D1-untrained", *shared, "--store", tmp_path / "runs", "--seeds", 2)
    command = [sys.executable, script, *map(str, arguments), "--jobs", "2"]
    done = subprocess.run(command, capture_output=True, text=True, env={**os.environ, "PYTHONPATH": str(PROJECT)})
    assert done.returncode in (0, 1), done.stderr
    assert "2 at a time" in done.stderr
    assert done.stdout.count("started") == 1


# ---------------------------------------------------------------------- jobs and threads


@pytest.mark.parametrize(
    ("machine", "given", "expected"),
    [
        (1, {}, (1, 1)),
        (2, {}, (2, 1)),
        (3, {}, (3, 1)),
        (16, {}, (4, 4)),
        (16, {"threads": 2}, (4, 2)),
        (16, {"threads": 8}, (2, 8)),
        (2, {"threads": 3}, (1, 3)),
        (16, {"jobs": 1}, (1, 16)),
        (16, {"jobs": 3}, (3, 5)),
        (2, {"jobs": 9}, (9, 1)),
        (2, {"jobs": 9, "threads": 2}, (9, 2)),
        (16, {"device": "cuda"}, (1, 16)),
        (16, {"device": "cuda", "jobs": 8}, (8, 2)),
    ],
)
def test_jobs_share_the_cores_of_the_machine(machine, given, expected, monkeypatch):
    monkeypatch.delenv("OMP_NUM_THREADS", raising=False)
    monkeypatch.setattr(cores, "THREADS_AT_START", machine)
    torch.set_num_threads(machine)
    device = torch.device(given.get("device", "cpu"))
    assert share_cores(given.get("jobs"), given.get("threads"), device) == expected


@pytest.mark.parametrize("variable", ["4", "4,2"], ids=["one level", "nested loops"])
def test_as_many_jobs_run_as_fit_with_the_threads_in_the_environment(variable, monkeypatch):
    monkeypatch.setenv("OMP_NUM_THREADS", variable)
    monkeypatch.setattr(cores, "_core_count", lambda: 16)
    torch.set_num_threads(4)  # as torch does when it starts
    assert share_cores(None, None, torch.device("cpu")) == (4, 4)
    assert share_cores(2, None, torch.device("cpu")) == (2, 4)
    assert share_cores(None, 8, torch.device("cpu")) == (2, 8)


def test_every_session_has_the_same_number_of_threads_unless_told_otherwise(monkeypatch):
    monkeypatch.delenv("OMP_NUM_THREADS", raising=False)
    monkeypatch.delenv("BERTSECRETS_JOBS")
    monkeypatch.setattr(cores, "THREADS_AT_START", 16)
    torch.set_num_threads(16)
    for _ in range(2):
        session = local_session()
        assert (session.jobs, session.options.threads, torch.get_num_threads()) == (4, 4, 4)
    assert (local_session(jobs=1).options.threads, local_session(jobs=2).options.threads) == (16, 8)
    assert (local_session().jobs, torch.get_num_threads()) == (4, 4)
    torch.set_num_threads(3)  # by other code
    assert (local_session().jobs, torch.get_num_threads()) == (4, 3)
    monkeypatch.setenv("BERTSECRETS_JOBS", "2")
    assert (local_session(threads=5).jobs, local_session(jobs=1).jobs) == (2, 1)
    monkeypatch.setenv("BERTSECRETS_JOBS", "two")
    with pytest.raises(UserError, match="BERTSECRETS_JOBS in the environment: 'two' is not a whole number"):
        local_session()


# ---------------------------------------------------------------------- plans


def test_the_plan_of_a_case_contains_its_measurements(tiny_bert, tiny_glue, runs):
    session = local_session(model=tiny_bert, glue=tiny_glue, store=runs)
    case = find_case("D2", "rte")
    plan = plan_for(session, [case], session.model, [1])
    (measured,) = measure_case(session, case, session.model, [1])
    made = {(m.measure, m.subject) for m in measured.values()}
    assert made == {(request.measure, request.subject) for request in plan if request.measure}


def test_long_jobs_and_those_that_others_wait_for_run_first(tiny_bert, tiny_glue, tmp_path):
    session, planned = local_session(model=tiny_bert, glue=tiny_glue, store=tmp_path), []
    cases = [find_case(name, "rte") for name in ("C1", "D2-frozen", "D3", "G1")]
    PlannedRunner(session, work=nullcontext(planned.extend)).prepare(cases, [1])
    order = [str(job).replace(" rte", "").removesuffix(" seed 1") for job in planned]
    assert order[:3] == ["train pretrained", "train random", "measure head-ablation pretrained"]
    assert order[3] == "train frozen"
    assert {"measure scores pretrained", "measure attention-change pretrained"} <= set(order[4:])


def test_the_time_left_counts_jobs_and_not_claims(tiny_bert, tiny_glue, tmp_path, monkeypatch, caplog):
    """The first claim needs a training run and the scores, so only one of three jobs is left for the second claim."""
    session = local_session(model=tiny_bert, glue=tiny_glue, store=tmp_path)
    cases, clock = [find_case(name, "rte") for name in ("D1-pretrained", "E1")], iter([0.0, 0.0, 60.0])
    monkeypatch.setattr(prepare.time, "monotonic", lambda: next(clock))
    runner = PlannedRunner(session)
    runner.split(cases, [1])
    runner.prepare(cases, [1])
    runner.tell(Verdict(cases[0], "reproduced", "why"))
    assert len(runner.left) == 1
    assert caplog.messages[-1].endswith("; about 30 s left at this rate")


# ---------------------------------------------------------------------- failing jobs and processes


def serve_by_seed(connection, options):
    """A stub worker: the seed of a job determines its outcome."""
    errors = {13: UserError("training diverged"), 14: RunError("the disk is full")}
    log = Path(options.store) / "calls"
    while True:
        try:
            job = connection.recv()
        except EOFError:
            return
        with log.open("a") as file:
            file.write(f"{job}\n")
        first = log.read_text().splitlines().count(str(job)) == 1
        if job.subject.seed == 66 or (job.subject.seed == 67 and first):
            os.kill(os.getpid(), signal.SIGKILL)
        connection.send(JobResult(job, True, errors.get(job.subject.seed), 1.0))


@pytest.fixture
def done(tmp_path, forked, monkeypatch):
    """Return a function that trains and measures each seed on stub workers and returns errors and calls."""
    monkeypatch.setattr(pool, "serve", serve_by_seed)

    def do(*seeds, jobs=2):
        subjects = [Subject("m", "rte", seed=seed) for seed in seeds]
        plan = dict.fromkeys(Request(measure, subject) for measure in (None, "scores") for subject in subjects)
        errors = {str(done.request): done.error for done in run_local(plan, RunOptions(store=tmp_path), jobs=jobs)}
        return errors, (tmp_path / "calls").read_text().splitlines()

    return do


def test_a_failed_training_fails_its_measurements_and_no_others(done):
    errors, calls = done(1, 13, 2)
    assert str(errors["train rte pretrained seed 13"]) == "training diverged"
    assert str(errors["measure scores rte pretrained seed 13"]) == "training diverged"
    assert "measure scores rte pretrained seed 13" not in calls
    assert {name for name, error in errors.items() if error is None} == {
        *("train rte pretrained seed 1", "train rte pretrained seed 2"),
        *("measure scores rte pretrained seed 1", "measure scores rte pretrained seed 2"),
    }


def test_a_job_whose_process_is_killed_is_tried_once_more(done):
    errors, calls = done(1, 66, 67)
    assert [calls.count(f"train rte pretrained seed {seed}") for seed in (1, 66, 67)] == [1, 2, 2]
    assert "its worker was killed 2 times, by signal 9" in str(errors["train rte pretrained seed 66"])
    assert {seed for seed in (1, 66, 67) if errors[f"measure scores rte pretrained seed {seed}"] is None} == {1, 67}


def test_an_error_that_concerns_every_job_ends_the_run(done):
    errors, calls = done(14, 1, 2, jobs=1)
    assert calls == ["train rte pretrained seed 14"]
    assert {str(error) for error in errors.values()} == {"the disk is full"}


def serve_failures(connection, options):
    connection.send(JobResult(connection.recv(), error=UserError("training diverged")))


def test_a_failed_measurement_is_not_measured_and_the_others_are_judged(
    capsys, shared, runs, tmp_path, forked, monkeypatch
):
    monkeypatch.setattr(pool, "serve", serve_failures)
    store = Path(shutil.copytree(runs, tmp_path / "runs"))
    for facts in [*(store / "measurements").glob("*/measurement.json")]:
        measured = json.loads(facts.read_text())
        subject = measured["subject"]
        if (measured["measure"], subject["seed"]) == ("scores", 1) and subject["initialisation"] != "pretrained":
            shutil.rmtree(facts.parent)
    code, captured, verdicts = judged(capsys, "run", shared, store, "--jobs", 2, "--claim", "D1-random")
    assert code == 2
    assert "could not be measured" in captured.err
    failed = {verdict["id"] for verdict in verdicts if verdict["verdict"] is None}
    assert failed == {"D2-rte", "D1-rte-random"} < {verdict["id"] for verdict in verdicts}


# ---------------------------------------------------------------------- interruptions


def serve_endless_trainings(connection, options):
    """A worker whose trainings write half a checkpoint and then run until interrupted."""
    import bertsecrets.models.training.finetune as finetuning

    def endless(classifier, split, folder, *_, **__):
        Path(folder, "half").write_text("begun")
        with Path(options.store_folder).with_name("pids").open("a") as file:
            file.write(f"{os.getpid()}\n")
        threading.Event().wait(LIMIT)  # a limit, so that it cannot outlive the tests

    finetuning.finetune = endless
    serve(connection, options)


def run_endlessly(words, errors):
    """Run the command `run` in a subprocess, with workers whose trainings never end."""
    signal.signal(signal.SIGINT, signal.default_int_handler)  # background jobs ignore SIGINT
    os.dup2(os.open(errors, os.O_WRONLY | os.O_CREAT), 2)
    pool.SPAWN_CONTEXT = multiprocessing.get_context("fork")  # safe without threads; `PROCESSES` would start a server
    pool.serve = serve_endless_trainings
    sys.exit(main(words))


def eventually(condition: Callable[[], bool]) -> bool:
    """Return whether a condition becomes true within `LIMIT` seconds."""
    deadline = time.monotonic() + LIMIT
    while not condition() and time.monotonic() < deadline:
        time.sleep(0.05)
    return condition()


def workers(room: Path) -> list[int]:
    return [int(line) for line in (room / "pids").read_text().splitlines()]


def alive(pid: int) -> bool:
    return Path(f"/proc/{pid}").exists()


def half_written(store: Path) -> list[str]:
    """Return the half-written checkpoints in a store. Unlike `rglob`, `os.walk` tolerates folders that disappear."""
    return [folder for folder, _, files in os.walk(store) if "half" in files]


@pytest.fixture
def running(shared, tmp_path):
    """A run whose two workers are training."""
    (tmp_path / "pids").touch()
    command = [*("run", "--task", "rte", "--claim", "D1-pretrained", "--seeds", "2", "--jobs", "2"), *shared]
    words = [str(word) for word in (*command, "--store", tmp_path / "runs", "--threads", 1)]
    process = PROCESSES.Process(target=run_endlessly, args=(words, tmp_path / "errors"))
    process.start()
    assert eventually(lambda: not process.is_alive() or len(workers(tmp_path)) == 2)
    assert len(half_written(tmp_path / "runs")) == 2
    yield process
    process.kill()


@pytest.mark.parametrize(
    ("number", "code"), [(signal.SIGTERM, 143), pytest.param(signal.SIGINT, 130, marks=pytest.mark.slow)]
)
def test_an_interrupted_run_ends_its_processes_and_leaves_nothing_behind(running, tmp_path, number, code):
    os.kill(running.pid, number)
    running.join(LIMIT)
    store, errors = tmp_path / "runs", (tmp_path / "errors").read_text()
    assert running.exitcode == code, errors
    assert not any(map(alive, workers(tmp_path)))
    last = f"bertsecrets: interrupted; finished results are saved in {store}: run the same command to continue"
    assert errors.splitlines()[-1] == last
    assert [path for path in (store / "checkpoints").iterdir() if path.is_dir()] == []


def test_the_workers_of_a_killed_run_clean_up_and_end(running, tmp_path):
    running.kill()
    assert eventually(lambda: not any(map(alive, workers(tmp_path))))
    assert half_written(tmp_path / "runs") == []
