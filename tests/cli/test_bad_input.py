"""Bad input on the command line: one clear line for every kind, exit code 2, nothing lost."""

import json
import os
import shutil
import subprocess
import sys
from pathlib import Path

import pytest
from calls import run, told
from tiny import save_bert

from bertsecrets.session import Session

ROOT = Path(__file__).parents[2]
pytestmark = pytest.mark.usefixtures("quick")


def test_unknown_names_come_with_near_matches(capsys, shared):
    assert "did you mean rte" in told(capsys, "measure", "scores", "--task", "rtee", *shared)
    assert "did you mean scores" in told(capsys, "measure", "score", "--task", "rte", *shared)
    assert "did you mean C1" in told(capsys, "explain", "C11")
    assert "unknown claim 'Z9'" in told(capsys, "report", "--claim", "Z9", *shared)
    for command in (["explain"], ["history"], ["report", "--claim"], ["specifications", "--task", "rte", "--claim"]):
        assert "unknown claim 'C1-rt': did you mean C1-rte" in told(capsys, *command, "C1-rt")
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


@pytest.mark.parametrize(
    "arguments",
    [
        ["measure", "scores", "--json", ""], ["measure", "scores", "--glue", ""], ["corpus", ""],
        ["claims", "--store="], ["finetune", "--task", "rte", "--output", ""], ["sheets", "", "out"],
    ],
)  # fmt: skip
def test_an_empty_path_is_refused(capsys, arguments):
    assert "the path is empty: name a file or folder" in told(capsys, *arguments)


def test_a_measure_on_a_task_needs_one(capsys, shared):
    assert "--task" in told(capsys, "measure", "scores", *shared)


def test_no_seeds(capsys, shared):
    assert "--seeds 0" in told(capsys, "report", "--task", "rte", *shared, "--seeds", 0)


def test_no_such_device(capsys, shared):
    assert "device 'cuda:77' is not available" in told(
        capsys, "measure", "scores", "--task", "rte", *shared, "--device", "cuda:77"
    )


def test_measure_all_wants_a_place(capsys, shared):
    assert "--save DIR" in told(capsys, "measure", "all", "--task", "rte", *shared)


def test_the_untrained_model_is_not_compared_with_itself(capsys, shared):
    line = told(capsys, "measure", "attention-change", "--task", "rte", "--init", "untrained", *shared)
    assert "choose another --init" in line


@pytest.mark.parametrize("measure", ["scores", "special-tokens"])
def test_padding_belongs_to_attention_change(capsys, shared, measure):
    assert "--padded-to" in told(capsys, "measure", measure, "--task", "rte", *shared, "--padded-to", 50)


def test_which_rows_are_read_is_asked_of_measures_of_attention(capsys, shared, tmp_path):
    call = ["measure", "special-tokens", "--task", "rte", "--init", "untrained", *shared]
    run(capsys, *call, "--rows", "first", "--json", tmp_path / "first.json")
    assert json.loads((tmp_path / "first.json").read_text())["options"] == {"rows": "first"}
    assert "--rows of measure special-tokens: input should be 'drawn' or 'first'" in told(
        capsys, *call, "--rows", "last"
    )
    assert "has no option --rows" in told(capsys, "measure", "scores", "--task", "rte", *shared, "--rows", "first")


def test_sets_of_heads_belong_to_head_ablation(capsys, shared):
    assert "--heads" in told(capsys, "measure", "scores", "--task", "rte", *shared, "--heads", "1.1")
    assert "'9.1' is not in this model" in told(
        capsys, "measure", "head-ablation", "--task", "rte", "--init", "untrained", *shared, "--heads", "9.1"
    )
    nothing = told(capsys, "measure", "head-ablation", "--task", "rte", "--init", "untrained", *shared, "--heads", " ")
    assert "no heads named" in nothing  # which is not the same as all heads


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
    assert "measure head-ablation has no option --cased" in told(
        capsys, "measure", "head-ablation", "--task", "rte", *shared, "--cased"
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


@pytest.mark.parametrize(
    ("entry", "told_of"),
    [("colour: red", ", line "), ("source: 2019-99-99", ", line 1: a value cannot be read: month must be")],
)
def test_a_malformed_claim_is_named(capsys, tmp_path, monkeypatch, entry, told_of):
    from bertsecrets.claims.schema import load_claims

    (tmp_path / "C.yaml").write_text(f"- id: C1\n  {entry}\n")
    monkeypatch.setenv("BERTSECRETS_EXPECTED", str(tmp_path))
    load_claims.cache_clear()
    try:
        assert f"{tmp_path / 'C.yaml'}{told_of}" in told(capsys, "claims")
    finally:
        load_claims.cache_clear()


def test_a_place_that_cannot_be_written_is_one_line_and_nothing_is_lost(capsys, shared, tmp_path, runs):
    (tmp_path / "file").write_text("mine")
    at = shared.index("--store")
    line = told(capsys, "measure", "scores", "--task", "rte", *shared[: at + 1], tmp_path / "file", *shared[at + 2 :])
    assert "a file stands where a folder is needed" in line
    assert (tmp_path / "file").read_text() == "mine"
    assert "cannot write" in told(capsys, "measure", "scores", "--task", "rte", *shared, "--json", tmp_path)


def test_an_export_never_replaces_what_is_a_users(capsys, shared, tmp_path, monkeypatch):
    thesis = tmp_path / "thesis.txt"
    thesis.write_text("years of work")
    monkeypatch.setattr(Session, "checkpoint", lambda *_: pytest.fail("trained first"))
    assert "name a new folder" in told(capsys, "finetune", "--task", "rte", *shared, "--output", tmp_path)
    assert "a file stands where" in told(capsys, "finetune", "--task", "rte", *shared, "--output", thesis)
    assert thesis.read_text() == "years of work"


def test_a_missing_glue_folder_is_named(capsys, shared, tmp_path):
    assert "no GLUE folder at" in told(capsys, "report", *shared, "--glue", tmp_path / "none")
    assert "SST-2/" in told(capsys, "measure", "scores", "--task", "sst2", *shared)


@pytest.mark.skipif(not Path("/dev/full").exists(), reason="no /dev/full here")
@pytest.mark.parametrize("unbuffered", ["", "1"])
def test_output_that_cannot_be_written_is_one_line(unbuffered):
    with open("/dev/full", "w") as full:
        done = subprocess.run(
            [sys.executable, "-m", "bertsecrets", "explain", "C1"],
            env={**os.environ, "PYTHONPATH": str(ROOT), "PYTHONUNBUFFERED": unbuffered},
            stdout=full,
            stderr=subprocess.PIPE,
            text=True,
        )
    assert (
        done.stderr == "bertsecrets: cannot write the output (No space left on device): redirect it to another place\n"
    )
    assert done.returncode == 2


def test_the_module_runs_as_a_program_and_ends_with_two():
    done = subprocess.run(
        [sys.executable, "-m", "bertsecrets", "explain", "Z1"],
        env={**os.environ, "PYTHONPATH": str(ROOT)},
        capture_output=True,
        text=True,
    )
    assert done.returncode == 2
    assert done.stdout == ""
    assert done.stderr.count("\n") == 1
    assert "Traceback" not in done.stderr
