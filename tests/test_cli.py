"""The command line: fixed JSON names, exit codes, and one clear line for every kind of bad input."""

import json
import os
import shutil
import socket
import subprocess
import sys
from pathlib import Path

import pytest
from tiny import HEADS, LAYERS, save_bert

from bertsecrets.cli import main

ROOT = Path(__file__).parents[1]
pytestmark = pytest.mark.usefixtures("quick")


@pytest.fixture(scope="module")
def runs(tmp_path_factory):
    return tmp_path_factory.mktemp("cli") / "runs"


@pytest.fixture
def shared(runs, tiny_glue, tiny_bert):
    """The options that most commands here share."""
    return [
        *("--model", str(tiny_bert), "--glue", str(tiny_glue), "--store", str(runs), "--device", "cpu"),
        *("--offline", "--allow-unofficial-data"),
    ]


def told(capsys, *arguments) -> str:
    """What a command that must fail writes: one line, and exit code 2."""
    try:
        code = main([str(a) for a in arguments])
    except SystemExit as stop:
        code = stop.code
    captured = capsys.readouterr()
    assert code == 2, captured
    lines = [line for line in captured.err.splitlines() if not line.startswith(("fine-tuning", "attention of"))]
    assert len(lines) == 1, captured.err
    assert lines[0].startswith("bertsecrets")
    return lines[0]


def run(capsys, *arguments) -> str:
    assert main([str(a) for a in arguments]) == 0
    return capsys.readouterr().out


# ---------------------------------------------------------------------- what it does


def test_help_imports_nothing_heavy():
    code = """
import sys
import bertsecrets
from bertsecrets.cli import main
try:
    main(["--help"])
except SystemExit as stop:
    assert stop.code == 0
heavy = {"torch", "transformers", "scipy", "datasets", "pydantic", "matplotlib"} & set(sys.modules)
assert not heavy, heavy
"""
    done = subprocess.run(
        [sys.executable, "-c", code], env={**os.environ, "PYTHONPATH": str(ROOT)}, capture_output=True, text=True
    )
    assert done.returncode == 0, done.stderr
    for command in ("claims", "fetch", "finetune", "measure", "report", "doctor"):
        assert command in done.stdout


@pytest.mark.parametrize("command", ["claims", "explain", "corpus", "fetch", "finetune", "measure", "report", "doctor"])
def test_every_command_has_help(capsys, command):
    with pytest.raises(SystemExit) as stop:
        main([command, "--help"])
    assert stop.value.code == 0
    assert f"bertsecrets {command}" in capsys.readouterr().out


def test_measure_writes_json_with_fixed_names(capsys, shared, tmp_path, tiny_bert):
    file = tmp_path / "new" / "scores.json"
    run(capsys, "measure", "scores", "--task", "rte", *shared, "--limit", 5, "--json", file)
    data = json.loads(file.read_text())
    assert list(data)[:5] == ["measure", "model", "task", "examples", "values"]
    assert (data["measure"], data["model"], data["task"], data["examples"]) == ("scores", str(tiny_bert), "rte", 5)
    assert 0 <= data["values"]["accuracy"] <= 1
    assert data["provenance"]["limit"] == 5
    assert data["provenance"]["official_data"] is False


def test_measures_by_layer_and_head(capsys, shared, tmp_path):
    for measure, names in {"attention-change": ["cosine"], "special-tokens": ["cls", "sep"]}.items():
        run(capsys, "measure", measure, "--task", "RTE", *shared, "--json", tmp_path / "x.json")
        values = json.loads((tmp_path / "x.json").read_text())["values"]
        for name in names:
            assert [len(row) for row in values[name]] == [HEADS] * LAYERS


def test_without_a_file_the_json_is_printed(capsys, shared):
    data = json.loads(run(capsys, "measure", "scores", "--task", "rte", *shared))
    assert data["measure"] == "scores"


def test_a_checkpoint_that_is_compared_with_nothing_needs_no_model(capsys, shared, tmp_path):
    options = [option for option in shared if option not in ("--model", shared[1])]
    run(capsys, "finetune", "--task", "rte", *shared, "--output", tmp_path / "mine")
    (tmp_path / "mine" / "manifest.json").unlink()
    for measure in ("scores", "special-tokens"):
        out = run(capsys, "measure", measure, "--task", "rte", *options, "--checkpoint", tmp_path / "mine")
        assert json.loads(out)["examples"] == 24


def test_everything_measured_here_is_judged_elsewhere(capsys, shared, tmp_path, tiny_bert):
    for init in ("pretrained", "random", "untrained"):
        out = run(
            capsys, "measure", "all", "--task", "rte", "--init", init, *shared, "--save", tmp_path / "kept" / init
        )
        assert f"{tmp_path / 'kept' / init}: scores of" in out
    out = run(
        capsys, "report", "--model", tiny_bert, "--measurements", tmp_path / "kept", "--json", tmp_path / "v.json",
        "--metrics", tmp_path / "m.json", "--plots", tmp_path / "p.json", "--html", tmp_path / "r.html",
    )  # fmt: skip
    verdicts = json.loads((tmp_path / "v.json").read_text())
    ids = {verdict["id"] for verdict in verdicts}
    assert ids >= {"C1-rte", "C2-rte", "C3-rte", "E1-rte", "D2-rte", "D3-rte", "D1-rte-pretrained", "D1-rte-untrained"}
    assert {verdict["task"] for verdict in verdicts} == {"rte"}
    for name in ("id", "published", "band", "observed", "verdict"):
        assert all(name in verdict for verdict in verdicts)
    assert all("unofficial data" in verdict["remarks"] for verdict in verdicts)
    assert "D2" in out
    assert "unofficial data" in " ".join(out.split())
    metrics = json.loads((tmp_path / "m.json").read_text())
    assert sum(metrics["outcomes"].values()) == len(verdicts)
    layers = {row["layer"] for row in json.loads((tmp_path / "p.json").read_text())}
    assert layers == {1, 2, 3}
    page = (tmp_path / "r.html").read_text()
    assert page.count("<svg") >= 3
    assert "C1" in page
    assert 'http-equiv="refresh"' not in page
    assert "<script src" not in page


def test_claims_on_no_task_are_asked_for_as_all(capsys, shared):
    out = run(capsys, "report", "--task", "all", "--claim", "B5", *shared)
    assert "B5-l7h6" in out
    assert "2 not applicable" in out  # the example needs 12 layers of 12 heads


def test_report_measures_what_is_missing_and_takes_the_rest_from_the_store(capsys, shared):
    run(capsys, "measure", "scores", "--task", "rte", *shared)
    out = run(capsys, "report", "--task", "rte", "--claim", "D1", "--claim", "d3", *shared)
    assert "D1-random" in out
    assert "D3" in out
    assert "C1" not in out


def test_claims_lists_all_and_says_what_is_not_implemented(capsys):
    out = run(capsys, "claims")
    assert all(f"\n{name} " in out for name in ("A1", "C1", "E1", "H5"))
    assert "not implemented" in out
    assert "reproduced" not in out


def test_explain_prints_a_claim_whole(capsys):
    out = run(capsys, "explain", "c1")
    assert "C1: The last two layers change most." in out
    assert "RTE: published -0.251; band < 0" in out
    assert run(capsys, "explain", "D1").count("source: K19 table 1") == 6


def test_doctor_says_what_is_here_and_what_is_missing(capsys, shared, tiny_glue, tiny_bert):
    out = run(capsys, "doctor", *shared)
    assert f"model {tiny_bert}: here" in out
    assert "GLUE RTE: here" in out
    assert "GLUE MRPC: missing; no MRPC/train.tsv" in out
    for word in ("torch", "device: cpu", "memory:", "stored checkpoints:", "extra dvc:"):
        assert word in out


def test_doctor_works_where_nothing_is(capsys, tmp_path):
    out = run(capsys, "doctor", "--store", tmp_path / "none" / "deep", "--offline")
    assert "model google-bert/bert-base-uncased: missing" in out
    assert "stored checkpoints: 0" in out


def test_fetch_checks_model_and_task(capsys, shared):
    out = run(capsys, "fetch", "--task", "rte", *shared)
    assert "RTE train: 64 rows (unofficial)" in out
    assert "RTE dev: 24 rows (unofficial)" in out


def test_corpus_writes_a_glue_folder(capsys, tmp_path):
    out = run(capsys, "corpus", tmp_path / "glue", "--train-rows", 12, "--dev-rows", 6)
    assert "12 training and 6 validation pairs" in out
    assert (tmp_path / "glue" / "RTE" / "dev.tsv").read_text().count("\n") == 7


def test_offline_opens_no_connection(capsys, monkeypatch, shared):
    def refuse(*_):
        raise AssertionError("the network was touched")

    monkeypatch.setattr(socket.socket, "connect", refuse)
    monkeypatch.setattr(socket, "getaddrinfo", refuse)
    assert '"accuracy"' in run(capsys, "measure", "scores", "--task", "rte", *shared)


# ---------------------------------------------------------------------- bad input


def test_unknown_names_come_with_near_matches(capsys, shared):
    assert "did you mean rte" in told(capsys, "measure", "scores", "--task", "rtee", *shared)
    assert "did you mean scores" in told(capsys, "measure", "score", "--task", "rte", *shared)
    assert "did you mean C1" in told(capsys, "explain", "C11")
    assert "unknown claim 'Z9'" in told(capsys, "report", "--claim", "Z9", *shared)
    assert "did you mean minilm" in told(capsys, "measure", "scores", "--task", "rte", *shared, "--model", "minilmm")


def test_the_default_model_out_of_reach(capsys, tiny_glue, tmp_path):
    line = told(
        capsys,
        "report",
        "--glue",
        tiny_glue,
        "--store",
        tmp_path,
        "--offline",
        "--allow-unofficial-data",
        "--task",
        "rte",
    )
    assert "google-bert/bert-base-uncased" in line
    assert "--model minilm" in line
    assert "FOLDER" in line


@pytest.mark.parametrize("option", ["--limit", "--train-limit"])
@pytest.mark.parametrize("value", [0, -4])
def test_a_limit_that_leaves_nothing(capsys, shared, option, value):
    assert f"{option} {value}" in told(capsys, "measure", "scores", "--task", "rte", *shared, option, value)


@pytest.mark.parametrize(
    "arguments",
    [
        [], ["nothing"], ["measure"], ["measure", "scores", "--task", "rte", "--limit", "many"],
        ["finetune", "--task", "rte", "--init", "none"], ["report", "--seeds", "1.5"], ["claims", "--colour"],
    ],
)  # fmt: skip
def test_a_wrong_call_is_one_line(capsys, arguments):
    assert "--help" in told(capsys, *arguments)


def test_a_measure_on_a_task_needs_one(capsys, shared):
    assert "--task" in told(capsys, "measure", "scores", *shared)


def test_no_seeds(capsys, shared):
    assert "--seeds 0" in told(capsys, "report", "--task", "rte", *shared, "--seeds", 0)


def test_no_such_device(capsys, shared):
    assert "no device 'cuda:77'" in told(capsys, "measure", "scores", "--task", "rte", *shared, "--device", "cuda:77")


def test_measure_all_wants_a_place(capsys, shared):
    assert "--save DIR" in told(capsys, "measure", "all", "--task", "rte", *shared)


def test_the_untrained_model_is_not_compared_with_itself(capsys, shared):
    line = told(capsys, "measure", "attention-change", "--task", "rte", "--init", "untrained", *shared)
    assert "choose another --init" in line


@pytest.mark.parametrize("measure", ["scores", "special-tokens"])
def test_padding_belongs_to_attention_change(capsys, shared, measure):
    assert "--padded-to" in told(capsys, "measure", measure, "--task", "rte", *shared, "--padded-to", 50)


def test_sets_of_heads_belong_to_head_ablation(capsys, shared):
    assert "--heads" in told(capsys, "measure", "scores", "--task", "rte", *shared, "--heads", "1.1")
    assert "'9.1' is not in this model" in told(
        capsys, "measure", "head-ablation", "--task", "rte", "--init", "untrained", *shared, "--heads", "9.1"
    )


def test_chosen_sets_of_heads_are_scored_by_name(capsys, shared, tmp_path):
    call = ["measure", "head-ablation", "--task", "rte", "--init", "untrained", *shared]
    call += ["--json", tmp_path / "sets.json"]
    run(capsys, *call, "--heads", "1.1  pairs:2")
    found = json.loads((tmp_path / "sets.json").read_text())
    assert found["values"]["sets"][:2] == ["1.1", "2.1+2.2"]
    assert len(found["values"]["score"]) == len(found["values"]["sets"])
    run(capsys, *call)
    whole = json.loads((tmp_path / "sets.json").read_text())
    assert whole["values"]["score"][0][0] == found["values"]["score"][0]
    assert whole["values"]["baseline"] == found["values"]["baseline"]


def test_cased_scores_are_a_measurement_of_their_own(capsys, shared, tmp_path):
    run(capsys, "measure", "scores", "--task", "rte", *shared, "--cased", "--json", tmp_path / "cased.json")
    data = json.loads((tmp_path / "cased.json").read_text())
    assert data["options"] == {"cased": True}
    assert data["values"]["lower_cases"] is True
    assert "--cased belongs to scores alone" in told(
        capsys, "measure", "special-tokens", "--task", "rte", *shared, "--cased"
    )


BROKEN = {
    "missing column": ("sentence1\tsentence2\na\tb\n", "line 1: no column 'label'"),
    "empty": ("", "is empty"),
    "no rows": ("sentence1\tsentence2\tlabel\n", "has no rows"),
    "short row": ("sentence1\tsentence2\tlabel\na\tb\n", "line 2: 2 fields where the header has 3"),
    "unknown label": ("sentence1\tsentence2\tlabel\na\tb\tyes\n", "line 2, column 'label': unknown label 'yes'"),
    "broken encoding": (b"sentence1\tsentence2\tlabel\na\xff\tb\tentailment\n", "line 2: not UTF-8"),
    "wrong count": ("sentence1\tsentence2\tlabel\na\tb\tentailment\n", "1 rows where RTE's official dev split has 277"),
}


@pytest.mark.parametrize("name", BROKEN)
def test_a_bad_glue_file_is_named(capsys, tiny_bert, tiny_glue, tmp_path, name):
    content, message = BROKEN[name]
    shutil.copytree(tiny_glue, tmp_path / "glue")
    file = tmp_path / "glue" / "RTE" / "dev.tsv"
    file.write_bytes(content if isinstance(content, bytes) else content.encode())
    mark = [] if name == "wrong count" else ["--allow-unofficial-data"]
    options = ["--model", tiny_bert, "--glue", tmp_path / "glue", "--store", tmp_path / "runs", "--offline", *mark]
    line = told(capsys, "measure", "scores", "--task", "rte", "--checkpoint", tiny_bert, *options)
    assert str(file) in line
    assert message in line


def test_a_bad_checkpoint_is_named(capsys, shared, own_bert, tmp_path, tiny_bert):
    def line(folder):
        return told(capsys, "measure", "scores", "--task", "rte", *shared, "--checkpoint", folder)

    assert "no checkpoint folder" in line(tmp_path / "none")
    other = save_bert(tmp_path / "other", words=["[PAD]", "[UNK]", "[CLS]", "[SEP]", "[MASK]", *"abcdefgh"])
    assert "another vocabulary" in line(other)
    three = save_bert(tmp_path / "three", num_labels=3)
    assert "has 3 outputs, but RTE needs 2 classes" in line(three)
    (own_bert / "model.safetensors").rename(own_bert / "pytorch_model.bin")
    assert "which is never opened" in line(own_bert)


def test_a_malformed_claim_is_named(capsys, tmp_path, monkeypatch):
    from bertsecrets.claims import load_claims

    (tmp_path / "C.yaml").write_text("- id: C1\n  colour: red\n")
    monkeypatch.setenv("BERTSECRETS_EXPECTED", str(tmp_path))
    load_claims.cache_clear()
    try:
        assert f"{tmp_path / 'C.yaml'}, line " in told(capsys, "claims")
    finally:
        load_claims.cache_clear()


def test_a_place_that_cannot_be_written_is_one_line_and_nothing_is_lost(capsys, shared, tmp_path, runs):
    (tmp_path / "file").write_text("mine")
    at = shared.index("--store")
    line = told(capsys, "measure", "scores", "--task", "rte", *shared[: at + 1], tmp_path / "file", *shared[at + 2 :])
    assert "a file stands where a folder is needed" in line
    assert (tmp_path / "file").read_text() == "mine"
    assert "cannot write" in told(capsys, "measure", "scores", "--task", "rte", *shared, "--json", tmp_path)


def test_an_export_never_replaces_a_users_folder(capsys, shared, tmp_path):
    (tmp_path / "thesis.txt").write_text("years of work")
    assert "name a new folder" in told(capsys, "finetune", "--task", "rte", *shared, "--output", tmp_path)
    assert (tmp_path / "thesis.txt").read_text() == "years of work"


def test_a_missing_glue_folder_is_named(capsys, shared, tmp_path):
    assert "no GLUE folder at" in told(capsys, "report", *shared, "--glue", tmp_path / "none")
    assert "SST-2/" in told(capsys, "measure", "scores", "--task", "sst2", *shared)


def test_the_module_runs_as_a_program_and_ends_with_two():
    done = subprocess.run(
        [sys.executable, "-m", "bertsecrets.cli", "explain", "Z1"],
        env={**os.environ, "PYTHONPATH": str(ROOT)},
        capture_output=True,
        text=True,
    )
    assert done.returncode == 2
    assert done.stdout == ""
    assert done.stderr.count("\n") == 1
    assert "Traceback" not in done.stderr
