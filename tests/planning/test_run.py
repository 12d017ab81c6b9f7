"""Jobs in several processes: the verdicts of a serial run, whatever becomes of single jobs and processes."""

import json
import os
import signal
import subprocess
import sys
import time
from pathlib import Path

import pytest
import torch
from calls import told
from faults import lasting

from bertsecrets.cli.main import main
from bertsecrets.errors import RunError, UserError
from bertsecrets.options import RunOptions
from bertsecrets.planning import pool
from bertsecrets.planning import prepare as preparing
from bertsecrets.planning.jobs import Job, Step, steps_of
from bertsecrets.planning.pool import fitting, run_local
from bertsecrets.planning.prepare import with_share
from bertsecrets.session import Session
from bertsecrets.types import Subject

pytestmark = pytest.mark.usefixtures("quick", "same_threads")
PROJECT = Path(__file__).parents[2]
FEW = ("--task", "rte", "--claim", "D2-rte", "--claim", "E1", "--claim", "C1", "--seeds", "2", "--threads", "1")


def judged(capsys, command, shared, room, *more):
    words = [command, *shared, "--store", room / "runs", *FEW, "--json", room / "verdicts.json", *more]
    code = main([str(word) for word in words])
    captured = capsys.readouterr()
    return code, captured, lasting(json.loads((room / "verdicts.json").read_text())["verdicts"])


@pytest.fixture
def rooms(tmp_path):
    for name in ("serial", "pool"):
        (tmp_path / name).mkdir()
    return tmp_path / "serial", tmp_path / "pool"


def test_a_pool_reaches_the_verdicts_of_a_serial_run(capsys, shared, rooms):
    serial = judged(capsys, "report", shared, rooms[0])
    code, captured, verdicts = judged(capsys, "run", shared, rooms[1], "--jobs", 2, "--html", rooms[1] / "report.html")
    assert code == serial[0]
    assert verdicts == serial[2]
    assert (rooms[1] / "report.html").exists()
    lines = [line for line in captured.err.splitlines() if " of " in line]
    assert "2 at a time, each with --threads 1" in captured.err
    assert len(lines) == int(captured.err.split(" jobs to do")[0].split()[-1])
    again = judged(capsys, "run", shared, rooms[1], "--jobs", 2)
    assert again[2] == verdicts
    assert again[1].err == ""  # everything is stored: no process is started


def test_every_job_gets_its_share_of_threads_unless_someone_says_how_many(monkeypatch):
    monkeypatch.delenv("OMP_NUM_THREADS", raising=False)
    torch.set_num_threads(4)
    assert [with_share(RunOptions(), jobs).threads for jobs in (1, 2, 3, 9)] == [4, 2, 1, 1]
    assert with_share(RunOptions(threads=3), 2).threads == 3
    monkeypatch.setenv("OMP_NUM_THREADS", "4")
    assert with_share(RunOptions(), 2).threads == 4


def test_as_many_jobs_run_at_once_as_fit_into_memory():
    steps = [Step(Job(Subject("m", "rte", seed=seed))) for seed in range(1, 5)]
    memory = {step.job: 3_000 for step in steps}
    assert [fitting(steps, memory, free, 4) for free in (1, 3_000, 8_999, 9_000, 99_000)] == [1, 1, 2, 3, 4]
    assert fitting(steps, dict.fromkeys(memory), 1, 4) == 4


def test_on_a_gpu_its_memory_and_that_of_the_machine_limit_the_jobs(monkeypatch):
    steps = [Step(Job(Subject("m", "rte", "pretrained", seed))) for seed in range(4)]
    memory = {step.job: 10**10 for step in steps}
    cpu, gpu = torch.device("cpu"), torch.device("cuda")
    for on_gpu, beside, fits in ((10**11, 10**11, 4), (2 * 10**10, 10**11, 2), (10**11, 4 * 10**9, 1)):
        monkeypatch.setattr(torch.cuda, "mem_get_info", lambda _, free=on_gpu: (free, 10**12))
        monkeypatch.setattr(preparing, "available_bytes", lambda free=beside: free)
        assert preparing.fitting_on(gpu, steps, memory, 4) == fits
    assert preparing.fitting_on(cpu, steps, memory, 4) == 1


# ---------------------------------------------------------------------- what goes wrong


def fake(connection, options):
    """What processes of these tests run: the seed of a job says what becomes of it."""
    from bertsecrets.planning.jobs import Outcome

    store = Path(options.store)
    signal.signal(signal.SIGTERM, lambda *_: (_ for _ in ()).throw(KeyboardInterrupt()))
    try:
        while True:
            job = connection.recv()
            with (store / "calls").open("a") as file:
                file.write(f"{job}\n")
            seed, error = job.subject.seed, None
            if seed == 66 or (seed == 67 and (store / "calls").read_text().count(str(job)) == 1):
                os.kill(os.getpid(), signal.SIGKILL)
            if seed == 13:
                error = UserError("training diverged")
            if seed == 14:
                error = RunError("the disk is full")
            if seed == 99:
                time.sleep(60)
            connection.send(Outcome(job, True, error, 1.0))
    except EOFError:
        pass
    except KeyboardInterrupt:
        (store / "cleaned").write_text("up")


@pytest.fixture
def done(tmp_path, monkeypatch):
    """A function that does jobs of these seeds, each a training and a measurement of it."""
    monkeypatch.setattr(pool, "serve", fake)

    def do(*seeds, jobs=2):
        trainings = [Job(Subject("m", "rte", seed=seed)) for seed in seeds]
        steps = [Step(job) for job in trainings]
        steps += [Step(Job(job.subject, "scores"), job) for job in trainings]
        outcomes = run_local(steps, RunOptions(store=tmp_path), jobs=jobs)
        calls = (tmp_path / "calls").read_text().splitlines()
        return {str(job): outcome.error for job, outcome in outcomes.items()}, calls

    return do


def test_a_job_that_fails_takes_only_those_with_it_that_need_its_checkpoint(done):
    errors, calls = done(1, 13, 2)
    assert str(errors["train rte pretrained seed 13"]) == "training diverged"
    assert str(errors["measure scores rte pretrained seed 13"]) == "training diverged"
    assert "measure scores rte pretrained seed 13" not in calls
    assert {name for name, error in errors.items() if error is None} == {
        *("train rte pretrained seed 1", "train rte pretrained seed 2"),
        *("measure scores rte pretrained seed 1", "measure scores rte pretrained seed 2"),
    }


def test_a_job_whose_process_is_killed_is_done_once_more(done):
    errors, calls = done(1, 67)
    assert set(errors.values()) == {None}
    assert calls.count("train rte pretrained seed 67") == 2
    assert calls.count("train rte pretrained seed 1") == 1


def test_a_job_whose_process_is_killed_twice_fails_and_says_so(done):
    errors, calls = done(66, 1)
    assert calls.count("train rte pretrained seed 66") == 2
    assert "its process was ended 2 times, by signal 9" in str(errors["train rte pretrained seed 66"])
    assert errors["measure scores rte pretrained seed 1"] is None


def test_what_is_wrong_with_everything_ends_the_run(done):
    errors, calls = done(14, 1, 2, jobs=1)
    assert calls == ["train rte pretrained seed 14"]
    assert {str(error) for error in errors.values()} == {"the disk is full"}


def test_a_measurement_that_fails_is_not_measured_and_the_others_are_judged(capsys, shared, rooms, monkeypatch):
    from bertsecrets.planning import prepare
    from bertsecrets.planning.jobs import Outcome

    real = prepare.run_local

    def spoiling(steps, options, **more):
        outcomes = real(steps, options, **more)
        broken = next(job for job in outcomes if job.measure == "scores" and job.subject.initialisation == "untrained")
        return {**outcomes, broken: Outcome(broken, error=UserError("training diverged"))}

    monkeypatch.setattr(prepare, "run_local", spoiling)
    code, captured, verdicts = judged(capsys, "run", shared, rooms[1], "--jobs", 2)
    assert code == 2
    assert "could not be measured" in captured.err
    outcomes = {verdict["id"]: verdict["verdict"] for verdict in verdicts}
    assert outcomes.pop("D2-rte") == "not measured"
    assert "not measured" not in outcomes.values()


LONG = """
import sys
from pathlib import Path
import bertsecrets.models.finetune as module
def begun(classifier, split, folder, *more, **options):
    import time
    Path(folder, "half").write_text("done")
    time.sleep(60)
module.finetune = begun
"""


def alive(group: int) -> list[str]:
    """The processes of a group that have not ended."""
    states = [path.read_text().rpartition(")")[2].split() for path in Path("/proc").glob("[0-9]*/stat")]
    return [state for state, _, number, *_ in states if int(number) == group and state != "Z"]


@pytest.mark.parametrize(("number", "code"), [(signal.SIGINT, 130), (signal.SIGTERM, 143)])
def test_an_interrupted_run_ends_its_processes_and_leaves_nothing_behind(shared, tmp_path, number, code):
    (tmp_path / "sitecustomize.py").write_text(LONG)  # in the processes too
    store = tmp_path / "runs"
    command = [*("run", "--task", "rte", "--claim", "D2-rte", "--seeds", "2", "--jobs", "2"), *shared, "--store", store]
    start = "import signal, sys; signal.signal(signal.SIGINT, signal.default_int_handler); " + (
        "from bertsecrets.cli.main import main; sys.exit(main(sys.argv[1:])) if __name__ == '__main__' else None"
    )
    with subprocess.Popen(
        [sys.executable, "-c", start, *map(str, command)],
        env={**os.environ, "PYTHONPATH": f"{tmp_path}{os.pathsep}{PROJECT}"},
        stdout=subprocess.PIPE,
        stderr=subprocess.PIPE,
        text=True,
        start_new_session=True,
    ) as process:
        deadline = time.monotonic() + 100
        while len(list(store.rglob("half"))) < 2 and time.monotonic() < deadline:
            time.sleep(0.1)
        assert len(list(store.rglob("half"))) == 2
        process.send_signal(number)
        _, errors = process.communicate(timeout=60)
        while alive(process.pid) and time.monotonic() < deadline:  # Python's own tracker of resources ends a bit later
            time.sleep(0.1)
        assert alive(process.pid) == []
    assert process.returncode == code, errors
    last = f"bertsecrets: interrupted; what is finished is kept in {store}: the same command goes on from there"
    assert errors.splitlines()[-1] == last
    assert [path for path in (store / "checkpoints").iterdir() if path.is_dir()] == []


def half_written(store: Path) -> list[str]:
    """Return what is half written in a store; unlike `rglob`, `os.walk` bears that folders go meanwhile."""
    return [folder for folder, _, files in os.walk(store) if "half" in files]


def test_processes_whose_parent_is_killed_end_too(shared, tmp_path):
    (tmp_path / "sitecustomize.py").write_text(LONG)
    store = tmp_path / "runs"
    command = [*("run", "--task", "rte", "--claim", "D1", "--jobs", "2"), *shared, "--store", store]
    with subprocess.Popen(
        [sys.executable, "-m", "bertsecrets", *map(str, command)],
        env={**os.environ, "PYTHONPATH": f"{tmp_path}{os.pathsep}{PROJECT}"},
        stdout=subprocess.DEVNULL,
        stderr=subprocess.DEVNULL,
        start_new_session=True,
    ) as process:
        deadline = time.monotonic() + 100
        while not half_written(store) and time.monotonic() < deadline:
            time.sleep(0.1)
        process.kill()
    while half_written(store) and time.monotonic() < deadline:
        time.sleep(0.1)
    assert half_written(store) == []


@pytest.mark.parametrize(
    ("words", "says"),
    [
        (["--jobs", "0"], "--jobs 0 is out of range: give 1 to"),
        (["--jobs", "-3"], "--jobs -3 is out of range"),
        (["--jobs", "2", "--claim", "Z9"], "unknown claim"),
        (["--jobs", "2", "--task", "rtee"], "unknown task"),
        (["--gpus", "1"], "--gpus is for --ray"),
    ],
)
def test_a_run_that_makes_no_sense_is_one_line(capsys, shared, words, says):
    assert says in told(capsys, "run", *shared, *words)


def test_a_run_without_jobs_option_finds_what_report_has_made(capsys, shared, tmp_path):
    options = [*shared, "--store", tmp_path / "runs", "--task", "rte", "--claim", "D1"]
    for command in ("report", "run"):
        capsys.readouterr()
        main([str(word) for word in [command, *options]])
    assert "jobs to do" not in capsys.readouterr().err


def test_a_case_needs_the_jobs_that_its_judgement_looks_for(tiny_bert, tiny_glue, tmp_path):
    from bertsecrets.claims.schema import find_case

    session = Session(
        model=str(tiny_bert), glue=tiny_glue, store=tmp_path, device="cpu", allow_unofficial_data=True, offline=True
    )
    case = find_case("D2", "rte")
    steps = steps_of(session, [case], session.model, [1])
    made = {(m.measure, m.subject) for one in session.measure_case(case, [1]) for m in one.values()}
    assert made == {(step.job.measure, step.job.subject) for step in steps if step.job.measure}
