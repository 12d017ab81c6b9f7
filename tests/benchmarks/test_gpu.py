"""`make gpu`, tried out on a CPU with a short list of small parts: what is done stays done, what is left goes on."""

import json
import os
import re
import shutil
import signal
import subprocess
import sys
import time
import zipfile
from pathlib import Path

import pytest

from bertsecrets.errors import UserError

ROOT = Path(__file__).parents[2]
GPU = ROOT / "benchmarks" / "gpu"
# Counts to the number in a file, and goes on where it was.
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
LIST = """
[[part]]
name = "first"
command = "{{python}} -c pass {{jobs}}"

[[part]]
name = "counting"
command = "{{python}} {program} {{store}} {{work}} {last}"
least = 0

[[part]]
name = "last"
command = "{{python}} -c pass"
least = 100
"""
ENDLESS = 60_000  # takes ten minutes to count
MACHINE = {"device": "Some GPU", "software": {"torch": "2.13.0"}, "models": {}}
pytestmark = pytest.mark.slow


@pytest.fixture
def gpu(monkeypatch):
    """The modules of benchmarks/gpu, which are a program and no package."""
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
    """A checkout with one file of code, in git."""
    root = tmp_path / "checkout"
    (root / "bertsecrets").mkdir(parents=True)
    (root / "bertsecrets" / "code.py").write_text("1\n")
    git(root, "init", "--quiet")
    commit(root)
    return root


def without_pytest():
    """The environment of a process that must not take itself for a worker of this pytest."""
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
    """A function that makes one call with a list of parts; its exit code and lines."""

    def make(listed, *, seconds=1000.0, **changes):
        given = {"machine": MACHINE, "glue": tmp_path, "model": None, "device": "cpu", "root": checkout, **changes}
        run = gpu.runner.Run(
            parts=gpu.parts.read_parts(listed), out=tmp_path / "out", store=tmp_path / "store", seconds=seconds, **given
        )
        code = run.call()
        return code, capsys.readouterr().out.splitlines()

    return make


@pytest.fixture
def listed(tmp_path):
    """A function that writes a list of parts, of which one counts to a number."""
    (tmp_path / "counting.py").write_text(COUNTING)

    def write(last=2):
        file = tmp_path / "parts.toml"
        file.write_text(LIST.format(program=tmp_path / "counting.py", last=tmp_path / "last"))
        (tmp_path / "last").write_text(str(last))
        return file

    return write


def state(tmp_path, part):
    return json.loads((tmp_path / "out" / "summary.json").read_text())["parts"][part]


def test_what_is_done_is_not_run_again(call, listed, tmp_path):
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
    raise AssertionError("it has not happened within ten minutes")


def test_a_part_that_takes_too_long_is_ended_cleanly_and_goes_on_at_the_next_call(call, listed, gpu, tmp_path):
    store = tmp_path / "store" / "counting" / "store"

    class OverWhenCounted(subprocess.Popen):
        """A process whose time is over as soon as it has counted, however long starting it takes."""

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


def test_what_is_killed_takes_its_part_with_it_and_goes_on_at_the_next_call(call, listed, tmp_path):
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


def test_a_program_that_does_not_end_when_told_to_is_killed(gpu, tmp_path):
    before = signal.signal(signal.SIGTERM, signal.SIG_IGN)  # which the program inherits
    try:
        code, over = gpu.runner.run_for(["sleep", "120"], tmp_path / "log", tmp_path, seconds=0.1, grace=0.1)
    finally:
        signal.signal(signal.SIGTERM, before)
    assert (code, over) == (-signal.SIGKILL, True)


def test_a_failing_part_takes_no_other_with_it_and_is_tried_again(call, tmp_path):
    file = tmp_path / "parts.toml"
    failing = '[[part]]\nname = "failing"\ncommand = """{python} -c "print(\'why\'); exit(3)" """\n'
    file.write_text(failing + '[[part]]\nname = "good"\ncommand = "{python} -c pass"\n')
    for second in ("good: done in", "good: done before"):
        code, lines = call(file)
        assert code == 1
        assert lines[0] == f"failing: failed with exit code 3: why ({tmp_path / 'out' / 'failing.log'})"
        assert lines[1].startswith(second)
        assert lines[2] == "1 of 2 parts done, 1 failed"
    assert not (tmp_path / "out" / "failing.json").exists()


def test_a_part_that_leaves_no_result_has_failed_whatever_its_exit_code(call, tmp_path):
    """Python ends with 1 where an import fails, and `report` where a claim deviates."""
    crashing = "command = \"{python} -c 'import nothing_of_this_name' {work}/verdicts.json\"\ncodes = [0, 1]\n"
    (tmp_path / "parts.toml").write_text(f'[[part]]\nname = "crashing"\n{crashing}')
    code, lines = call(tmp_path / "parts.toml")
    assert code == 1
    assert lines[0].startswith(
        "crashing: failed with exit code 1 without verdicts.json: ModuleNotFoundError: No module"
    )


@pytest.mark.parametrize("change", ["code", "software", "device", "damage"])
def test_what_other_code_or_another_machine_made_is_made_anew(call, listed, tmp_path, checkout, change):
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


def test_a_commit_that_changes_only_documentation_makes_nothing_anew(call, listed, checkout):
    call(listed())
    (checkout / "docs.md").write_text("More words.\n")
    commit(checkout)
    assert call(listed())[1][0].startswith("first: done before")


# ---------------------------------------------------------------------- evidence


@pytest.fixture
def done(call, listed, gpu, tmp_path, checkout):
    """A function that collects the evidence of a run whose parts are all done."""
    call(listed())
    return lambda **more: gpu.evidence.collect(tmp_path / "out", gpu.parts.read_parts(listed()), checkout, **more)


def test_evidence_is_one_file_of_figures(done, checkout):
    path = done()
    assert path.parent == checkout / "expected" / "evidence"
    data = json.loads(path.read_text())
    assert path.name == f"gpu-some-gpu-{data['made'][:10]}.json"
    assert data["commit"] == git(checkout, "rev-parse", "HEAD")
    assert (data["device"], data["software"]) == ("Some GPU", {"torch": "2.13.0"})
    assert list(data["parts"]) == ["first", "counting", "last"]
    assert data["parts"]["counting"]["figures"]["benchmarks"][0]["counted"] == 2
    assert done() == path  # evidence is no code: what was run stays what is here


def test_evidence_is_refused_where_a_result_is_missing_or_damaged(done, tmp_path):
    file = tmp_path / "out" / "last.json"
    file.write_text(file.read_text().replace('"calls": 1', '"calls": 2'))
    with pytest.raises(UserError, match="incomplete: no undamaged result of last; run `make gpu` again"):
        done()
    file.unlink()
    with pytest.raises(UserError, match="incomplete"):
        done()


def test_evidence_of_other_code_is_refused(done, checkout):
    (checkout / "bertsecrets" / "code.py").write_text("2\n")
    with pytest.raises(UserError, match="other code than this checkout's"):
        done()


def test_evidence_of_code_that_is_not_committed_is_refused(call, listed, done, checkout):
    (checkout / "bertsecrets" / "code.py").write_text("2\n")
    call(listed())
    with pytest.raises(UserError, match="changes that are not committed"):
        done()
    commit(checkout)
    done()


def test_evidence_of_two_machines_is_refused(call, listed, done, tmp_path):
    shutil.copy(tmp_path / "out" / "first.json", tmp_path / "first.json")
    call(listed(), machine={**MACHINE, "device": "Another GPU"})
    shutil.copy(tmp_path / "first.json", tmp_path / "out" / "first.json")
    with pytest.raises(UserError, match="results of two runs: counting has another device"):
        done()


def test_evidence_from_a_cpu_is_refused(call, listed, done):
    call(listed(), machine={**MACHINE, "device": "CPU AVX2, 2 threads"})
    with pytest.raises(UserError, match="made on CPU AVX2, 2 threads, not on a GPU"):
        done()
    done(gpu=False)


# ---------------------------------------------------------------------- what is missing


def wheel(folder, name, version):
    """A wheel of one module, as pip takes it."""
    folder.mkdir(exist_ok=True)
    with zipfile.ZipFile(folder / f"{name}-{version}-py3-none-any.whl", "w") as file:
        file.writestr(f"{name}.py", f"version = {version!r}\n")
        file.writestr(
            f"{name}-{version}.dist-info/METADATA", f"Metadata-Version: 2.1\nName: {name}\nVersion: {version}\n"
        )
        file.writestr(
            f"{name}-{version}.dist-info/WHEEL", "Wheel-Version: 1.0\nRoot-Is-Purelib: true\nTag: py3-none-any\n"
        )
        file.writestr(f"{name}-{version}.dist-info/RECORD", "")


def test_what_is_missing_is_one_line_and_is_taken_from_a_folder_of_wheels(tmp_path):
    own = '[project]\nname = "own"\ndependencies = ["pytest", "own-need>=2"]\n'
    own += "[project.optional-dependencies]\ngpu = ['own[more]']\nmore = ['own-other', 'torch>=999']\n"
    (tmp_path / "pyproject.toml").write_text(own)
    provide = f"""
import sys
from pathlib import Path
sys.path[:0] = [{str(GPU)!r}, {str(ROOT)!r}]
from environment import provide
from bertsecrets.errors import UserError
here = Path({str(tmp_path)!r})
try:
    provide(here / "wheels", here / "site", here)
except UserError as error:
    print(error)
else:
    import own_need, own_other, subprocess
    print(own_need.version)
    subprocess.run([sys.executable, "-c", "import own_need"], check=True)
"""

    def provided():
        return subprocess.run([sys.executable, "-c", provide], capture_output=True, text=True, check=True).stdout

    told = provided()
    assert told.startswith(
        "missing here: torch (a build for this GPU's CUDA), own-need>=2, own-other: install them, or "
    )
    assert told.count("\n") == 1
    (tmp_path / "pyproject.toml").write_text(own.replace(", 'torch>=999'", ""))
    wheel(tmp_path / "wheels", "own_other", "1.0")
    wheel(tmp_path / "wheels", "own_need", "1.0")
    assert provided().startswith("missing here: own-need>=2: install them, or ")
    (tmp_path / "wheels" / "own_need-1.0-py3-none-any.whl").unlink()
    wheel(tmp_path / "wheels", "own_need", "2.5")
    for _ in range(2):
        assert provided() == "2.5\n"


# ---------------------------------------------------------------------- the command


def ran(*words):
    environment = {**without_pytest(), "CUDA_VISIBLE_DEVICES": ""}
    line = [sys.executable, str(GPU), *map(str, words)]
    done = subprocess.run(line, capture_output=True, text=True, env=environment)
    return done.returncode, done.stdout, done.stderr


@pytest.fixture
def folders(tmp_path):
    return ("--out", tmp_path / "out", "--store", tmp_path / "store")


def test_bad_input_is_one_line(folders, tiny_glue, tmp_path):
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


def test_claims_are_judged_and_the_seconds_of_each_stage_are_told(folders, tiny_glue, tiny_bert, tmp_path):
    (tmp_path / "parts.toml").write_text("""
[[part]]
name = "{model}-{task}"
models = ["bert"]
tasks = ["rte"]
command = '''{python} -m bertsecrets report --model {model} --task {task} --claim C2 --glue {glue} --store {store}
  --device {device} --offline --allow-unofficial-data --json {work}/verdicts.json'''
codes = [0, 1]
""")
    words = ("run", "--glue", tiny_glue, "--model", tiny_bert, *folders, "--device", "cpu")
    code, out, err = ran(*words, "--parts", tmp_path / "parts.toml")
    assert code == 0, err
    assert re.fullmatch(r"bert-rte: done in [0-9.]+ s\n1 of 1 parts done\n", out)
    record = json.loads((tmp_path / "out" / "bert-rte.json").read_text())
    [verdict] = record["verdicts"]
    assert (verdict["id"], verdict["claimed"], record["claimed"]) == ("C2-rte", True, True)
    stages = {stage["stage"]: stage for stage in record["figures"]["stages"]}
    assert stages["train pretrained"]["times"] == 1
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


def test_every_part_runs_a_command_that_there_is(gpu, tmp_path):
    from bertsecrets.cli.main import build_parser

    parts = gpu.parts.read_parts(gpu.parts.LIST)
    models, tasks = ("minilm", "bert"), ("rte", "mrpc", "stsb", "sst2")
    assert [part.name for part in parts] == [
        "tests",
        "speed",
        "training-speed",
        *(f"{model}-{task}" for model in models for task in tasks),
    ]
    places = {"python": "python", "glue": tmp_path, "device": "cuda", "model": "m", "store": "s", "work": "w"}
    places["jobs"] = "4"
    for part in parts:
        words = part.words(places)
        assert words[:2] == ["python", "-m"]
        if words[2] == "bertsecrets":
            options = build_parser().parse_args(words[3:])
            assert (options.seeds, options.jobs, options.precision) == (5, 4, "auto")
        else:
            named = [word for word in words if word.startswith("benchmarks/")]
            assert all((ROOT / word).exists() for word in named)


def test_a_wrong_list_is_one_line(gpu, tmp_path):
    for text in ("part = 1", "[[part]]", "[[part]]\nname = 'a'\ncommand = 'b'\nmost = 3"):
        (tmp_path / "parts.toml").write_text(text)
        with pytest.raises(UserError, match="cannot read the list of parts"):
            gpu.parts.read_parts(tmp_path / "parts.toml")


@pytest.mark.parametrize(
    ("mark", "unopened"),
    [("gpu", ""), ("not slow", "import pytest\npytestmark = pytest.mark.slow\n")],
    ids=["gpu", "not slow"],
)
def test_files_in_which_a_mark_deselects_everything_are_not_opened(tmp_path, mark, unopened):
    """They may import what a machine with a GPU lacks, and importing takes time."""
    (tmp_path / "test_a.py").write_text(unopened + "import nothing_of_this_name\n")
    shutil.copy(ROOT / "conftest.py", tmp_path / "conftest.py")
    tests = "@pytest.mark.gpu\ndef test_one(): pass\n\n@pytest.mark.slow\ndef test_two(): pass\n"
    (tmp_path / "test_b.py").write_text(f"import pytest\n{tests}")
    words = ["-q", "-p", "no:cacheprovider", "-m", mark, "--collect-only", "-c", os.devnull, "--rootdir", tmp_path]
    line = [sys.executable, "-m", "pytest", *map(str, words), str(tmp_path)]
    done = subprocess.run(line, capture_output=True, text=True, env=without_pytest(), cwd=tmp_path)
    assert (done.returncode, "1/2 tests collected (1 deselected)" in done.stdout) == (0, True), done.stdout
