"""`make gpu` on a CPU with small parts: finished parts stay finished, interrupted ones resume."""

import json
import os
import re
import signal
import subprocess
import sys
import time
from pathlib import Path

import pytest

from bertsecrets.errors import UserError

ROOT = Path(__file__).parents[2]
GPU = ROOT / "benchmarks" / "gpu"
# Counts to the number in a file, and resumes where it was.
COUNTING = """
import json, os, pathlib, signal, sys, time
store, work, last = map(pathlib.Path, sys.argv[1:])
told = []
signal.signal(signal.SIGTERM, lambda *_: told.append("to end"))  # which it does between two numbers
count = store / "count"
for number in range(int(count.read_text()) if count.exists() else 0, int(last.read_text())):
    print("counted", number)
    (store / "next").write_text(str(number + 1))
    os.replace(store / "next", count)
    time.sleep(0.01)
    if told:
        (store / "cleaned").touch()
        sys.exit(143)
extra = {"counted": int(last.read_text())}
(work / "benchmark.json").write_text(
    json.dumps({"benchmarks": [{"name": "counting", "stats": {"min": 0.5}, "extra_info": extra}]})
)
"""
ENDLESS = 60_000  # takes ten minutes to count
MACHINE = {"device": "Some GPU", "software": {"torch": "2.13.0"}, "models": {}}
pytestmark = pytest.mark.slow


@pytest.fixture
def gpu(monkeypatch):
    """The modules of benchmarks/gpu, which is a program and not a package."""
    monkeypatch.syspath_prepend(str(GPU))
    import evidence
    import parts
    import results
    import runner

    yield type("Modules", (), {"evidence": evidence, "parts": parts, "results": results, "runner": runner})
    for name in ("environment", "evidence", "parts", "results", "runner"):
        sys.modules.pop(name, None)


@pytest.fixture
def checkout(tmp_path):
    root = tmp_path / "checkout"
    (root / "bertsecrets").mkdir(parents=True)
    (root / "bertsecrets" / "code.py").write_text("1\n")
    git(root, "init", "--quiet")
    commit(root)
    return root


def without_pytest():
    return {name: value for name, value in os.environ.items() if not name.startswith("PYTEST_")}


def git(root, *words):
    names = {"GIT_AUTHOR_NAME": "a", "GIT_AUTHOR_EMAIL": "a@b", "GIT_COMMITTER_NAME": "a", "GIT_COMMITTER_EMAIL": "a@b"}
    done = subprocess.run(["git", *words], cwd=root, env={**os.environ, **names}, capture_output=True, check=True)
    return done.stdout.decode().strip()


def commit(root):
    git(root, "add", "--all")
    git(root, "commit", "--quiet", "--message", "A commit")


@pytest.fixture
def call(gpu, tmp_path, checkout, capsys):
    def make(parts, *, seconds=1000.0, **changes):
        given = {"machine": MACHINE, "glue": tmp_path, "model": None, "device": "cpu", "root": checkout, **changes}
        run = gpu.runner.Run(parts=parts, out=tmp_path / "out", store=tmp_path / "store", seconds=seconds, **given)
        code = run.call()
        return code, capsys.readouterr().out.splitlines()

    return make


@pytest.fixture
def listed(gpu, tmp_path):
    program = tmp_path / "counting.py"
    program.write_text(COUNTING)

    def parts(last=2):
        (tmp_path / "last").write_text(str(last))
        counting = f"{{python}} {program} {{store}} {{work}} {tmp_path / 'last'}"
        return [
            gpu.parts.Part("first", "{python} -c pass {jobs}"),
            gpu.parts.Part("counting", counting, least=0),
            gpu.parts.Part("last", "{python} -c pass", least=100),
        ]

    return parts


def state(tmp_path, part):
    return json.loads((tmp_path / "out" / "summary.json").read_text())["parts"][part]


def test_a_finished_part_is_not_run_again(call, listed, tmp_path):
    code, lines = call(listed())
    assert code == 0
    assert [line.split(" in ")[0] for line in lines] == [
        "first: done",
        "counting: done",
        "last: done",
        "3 of 3 parts done",
    ]
    before = {path.name: path.read_bytes() for path in (tmp_path / "out").glob("*.json")}
    assert set(before) == {"first.json", "counting.json", "last.json", "summary.json"}
    code, lines = call(listed())
    assert code == 0
    assert [line.split(",")[0] for line in lines[:3]] == [
        "first: done before",
        "counting: done before",
        "last: done before",
    ]
    assert {path.name: path.read_bytes() for path in (tmp_path / "out").glob("*.json")} == before
    done = state(tmp_path, "counting")
    assert (done["state"], done["figures"]["benchmarks"]) == (
        "done",
        [{"name": "counting", "seconds": 0.5, "counted": 2}],
    )
    assert (done["made_by"]["device"], done["made_by"]["software"]) == ("Some GPU", {"torch": "2.13.0"})


def wait_for(happened):
    for _ in range(30_000):
        if happened():
            return
        time.sleep(0.02)
    raise AssertionError("nothing happened within ten minutes")


def test_a_part_that_exceeds_its_time_ends_cleanly_and_resumes_at_the_next_call(call, listed, gpu, tmp_path):
    store = tmp_path / "store" / "counting" / "store"

    class OverWhenCounted(subprocess.Popen):
        def wait(self, timeout=None):
            if timeout is None or timeout <= gpu.runner.GRACE or "counting.py" not in str(self.args):
                return super().wait(timeout)
            wait_for((store / "count").exists)
            raise subprocess.TimeoutExpired(self.args, timeout)

    with pytest.MonkeyPatch.context() as patch:
        patch.setattr(gpu.runner.subprocess, "Popen", OverWhenCounted)
        code, lines = call(listed(last=ENDLESS), seconds=100)
    assert code == 75
    assert lines[0].startswith("first: done")
    assert lines[1].startswith("counting: left after")
    assert lines[2:] == ["last: left", "1 of 3 parts done, 2 left: run the command again"]
    assert (store / "cleaned").exists()
    counted = int((store / "count").read_text())
    left = state(tmp_path, "counting")
    assert (left["state"], left["calls"]) == ("left", 1)
    assert f"counted {counted - 1}" in (tmp_path / "out" / "counting.log").read_text()
    code, lines = call(listed(last=counted + 2))
    assert code == 0
    assert lines[0].startswith("first: done before")
    assert lines[1].startswith("counting: resumed, done in ")
    assert lines[1].endswith(" in 2 calls")
    record = json.loads((tmp_path / "out" / "counting.json").read_text())
    assert record["log"] == [f"counted {number}" for number in range(counted + 2)]  # each once
    assert record["seconds"] > left["seconds"]
    assert not (tmp_path / "out" / "counting.log").exists()


def test_a_killed_run_ends_its_part_which_resumes_at_the_next_call(call, listed, tmp_path):
    count = tmp_path / "store" / "counting" / "store" / "count"
    child = os.fork()
    if child == 0:
        call(listed(last=ENDLESS))
        os._exit(0)
    wait_for(count.exists)
    os.kill(child, signal.SIGKILL)
    os.waitpid(child, 0)
    wait_for(count.with_name("cleaned").exists)
    counted = int(count.read_text())
    code, lines = call(listed(last=counted + 2))
    assert code == 0
    assert lines[0].startswith("first: done before")
    assert lines[1].startswith("counting: resumed, done in ")
    record = json.loads((tmp_path / "out" / "counting.json").read_text())
    assert record["log"] == [f"counted {number}" for number in range(counted + 2)]


def test_a_failing_part_does_not_stop_others_and_is_retried(call, gpu, tmp_path):
    failing = gpu.parts.Part("failing", """{python} -c "print('why'); exit(3)" """)
    parts = [failing, gpu.parts.Part("good", "{python} -c pass")]
    for second in ("good: done in", "good: done before"):
        code, lines = call(parts)
        assert code == 1
        assert lines[0] == f"failing: failed with exit code 3: why ({tmp_path / 'out' / 'failing.log'})"
        assert lines[1].startswith(second)
        assert lines[2] == "1 of 2 parts done, 1 failed"
    assert not (tmp_path / "out" / "failing.json").exists()


def test_a_part_without_a_result_fails_even_with_exit_code_0(call, gpu):
    """Python ends with 1 if an import fails, and `report` if a claim deviates."""
    command = "{python} -c 'import nothing_of_this_name' {work}/verdicts.json"
    code, lines = call([gpu.parts.Part("crashing", command, codes=(0, 1))])
    assert code == 1
    assert lines[0].startswith(
        "crashing: failed with exit code 1 without verdicts.json: ModuleNotFoundError: No module"
    )


@pytest.mark.parametrize("change", ["code", "software", "device", "damage"])
def test_results_of_other_code_or_machines_are_recomputed(call, listed, tmp_path, checkout, change):
    call(listed())
    machine = MACHINE
    if change == "code":
        (checkout / "bertsecrets" / "code.py").write_text("2\n")
        commit(checkout)
    elif change == "damage":
        file = tmp_path / "out" / "counting.json"
        file.write_text(file.read_text().replace('"counted": 2', '"counted": 3'))
    else:
        machine = {**MACHINE, change: {"torch": "2.14.0"} if change == "software" else "Another GPU"}
    code, lines = call(listed(), machine=machine)
    assert code == 0
    assert lines[1].startswith("counting: done in")
    assert lines[2].startswith("last: done before" if change == "damage" else "last: done in")


# ---------------------------------------------------------------------- evidence


@pytest.fixture
def collect(call, listed, gpu, tmp_path, checkout):
    call(listed())
    return lambda: gpu.evidence.collect(tmp_path / "out", listed(), checkout)


def test_evidence_is_one_file_of_figures(collect, checkout):
    path = collect()
    assert path.parent == checkout / "expected" / "evidence"
    data = json.loads(path.read_text())
    assert path.name == f"gpu-some-gpu-{data['made'][:10]}.json"
    assert data["commit"] == git(checkout, "rev-parse", "HEAD")
    assert (data["device"], data["software"]) == ("Some GPU", {"torch": "2.13.0"})
    assert list(data["parts"]) == ["first", "counting", "last"]
    assert data["parts"]["counting"]["figures"]["benchmarks"][0]["counted"] == 2
    assert collect() == path  # evidence is not code


@pytest.mark.parametrize(
    ("change", "message"),
    [
        ("a damaged result", "incomplete: no undamaged result of last; run `make gpu` again"),
        ("other code", "other code than this checkout's"),
        ("uncommitted code", "changes that are not committed"),
        ("two machines", "results of two runs: counting has another device"),
        ("no gpu", "made on CPU AVX2, 2 threads, not on a GPU"),
    ],
)
def test_other_evidence_is_refused(collect, call, listed, checkout, tmp_path, change, message):
    file, first = tmp_path / "out" / "last.json", tmp_path / "out" / "first.json"
    if change == "a damaged result":
        file.write_text(file.read_text().replace('"calls": 1', '"calls": 2'))
    if change in ("other code", "uncommitted code"):
        (checkout / "bertsecrets" / "code.py").write_text("2\n")
    if change == "uncommitted code":
        call(listed())
    if change in ("two machines", "no gpu"):
        before = first.read_bytes()
        call(listed(), machine={**MACHINE, "device": "CPU AVX2, 2 threads"})
        if change == "two machines":
            first.write_bytes(before)
    with pytest.raises(UserError, match=message):
        collect()


# ---------------------------------------------------------------------- the command


def ran(*words):
    environment = {**without_pytest(), "CUDA_VISIBLE_DEVICES": ""}
    line = [sys.executable, str(GPU), *map(str, words)]
    done = subprocess.run(line, capture_output=True, text=True, env=environment)
    return done.returncode, done.stdout, done.stderr


def test_bad_input_is_one_line(tiny_glue, tmp_path):
    folders = ("--out", tmp_path / "out", "--store", tmp_path / "store")
    code, out, err = ran("run", "--glue", tiny_glue, *folders)
    assert (code, out, err.count("\n")) == (2, "", 1)
    assert err.startswith("gpu: no GPU that torch ")
    code, out, err = ran("run", "--glue", tmp_path / "nowhere", *folders)
    assert (code, err) == (2, f"gpu: no folder {tmp_path / 'nowhere'}: GLUE must name a folder in GLUE's own layout\n")
    code, out, err = ran("run", "--glue", "", *folders)  # as make calls it where GLUE is not set
    assert (code, err.count("\n")) == (2, 1)
    assert err.startswith("gpu: argument --glue: the path is empty")
    code, out, err = ran("evidence", *folders)
    assert (code, err.count("\n")) == (2, 1)
    assert "is incomplete: no undamaged result of tests, speed, training-speed" in err


def test_claims_are_judged_and_the_seconds_of_each_stage_are_recorded(call, gpu, tiny_glue, tiny_bert, tmp_path):
    command = (
        "{python} -m bertsecrets report --model {model} --task {task} --claim C2 --glue {glue} --store {store} "
        "--device {device} --offline --allow-unofficial-data --json {work}/verdicts.json"
    )
    parts = [gpu.parts.Part("bert-rte", command, "bert", "rte", codes=(0, 1))]
    machine = gpu.runner.described(parts, tiny_bert, "cpu")
    code, (line, _) = call(parts, machine=machine, model=tiny_bert, glue=tiny_glue, root=ROOT)
    assert code == 0
    assert re.fullmatch(r"bert-rte: done in [0-9.]+ s", line)
    record = json.loads((tmp_path / "out" / "bert-rte.json").read_text())
    [verdict] = record["verdicts"]
    assert (verdict["id"], verdict["claimed"], record["claimed"]) == ("C2-rte", True, True)
    stages = {stage["stage"]: stage for stage in record["figures"]["stages"]}
    assert stages["train pretrained"]["times"] == 3  # seeds
    assert stages["train pretrained"]["precision"] in ("float32", "bfloat16")
    assert stages["measure attention-change"]["seconds"] > 0


def test_verdicts_of_random_weights_are_marked_and_never_evidence(gpu, tmp_path):
    part = gpu.parts.Part("bert-rte", "a command", model="bert", task="rte")
    (tmp_path / "RTE").mkdir()
    made_by = gpu.results.identity(part, MACHINE, None, tmp_path, tmp_path)
    assert made_by["model"] == "random weights"
    (tmp_path / "verdicts.json").write_text('{"verdicts": [{"id": "C2-rte", "verdict": "reproduced"}]}')
    places = {"work": tmp_path, "store": tmp_path / "store", "log": tmp_path / "log"}
    record = gpu.results.write_record(tmp_path, part, made_by, **places, commit=None, seconds=1.0, calls=1)
    assert record["verdicts"] == [{"id": "C2-rte", "verdict": "reproduced", "claimed": False}]
    assert "verdicts" not in gpu.evidence._part(record)


# ---------------------------------------------------------------------- the list of parts


def test_every_part_runs_an_existing_command(gpu, tmp_path):
    from bertsecrets.cli.main import build_parser

    places = {"python": "python", "glue": tmp_path, "device": "cuda", "model": "m", "store": "s", "work": "w"}
    places["jobs"] = "4"
    for part in gpu.parts.PARTS:
        words = part.words(places)
        assert words[:2] == ["python", "-m"]
        if words[2] == "bertsecrets":
            options = build_parser().parse_args(words[3:])
            assert (options.seeds, options.jobs, options.precision) == (5, 4, "auto")
        else:
            named = [word for word in words if word.startswith("benchmarks/")]
            assert all((ROOT / word).exists() for word in named)
