"""`--checkpoint` judges all claims that a single fine-tuned checkpoint allows, and gives reasons for the others."""

import json
import shutil

import pytest
from bad_input import outcome
from calls import run, told
from faults import PROCESSES, lasting, pytest_benchmarks

import bertsecrets as bs
from bertsecrets.cli.main import main
from bertsecrets.jobs import pool
from bertsecrets.models.locations import ModelRef

SOME = ("--claim", "C2", "--claim", "D1", "--claim", "D2-rte", "--claim", "E1", "--claim", "C3", "--claim", "D3")
OF_PRETRAINED = "needs the pretrained model: name it with the option `model`"

pytestmark = pytest.mark.usefixtures("quick")


@pytest.fixture
def own(shared, runs, capsys):
    """A user's own checkpoint, fine-tuned on RTE, without the suite's manifest."""
    folder = runs.parent / "my-checkpoint"
    if not folder.exists():
        run(capsys, "finetune", "--task", "rte", *shared, "--output", folder)
        (folder / "manifest.json").unlink()
    return folder


@pytest.fixture
def without_model(shared, tmp_path):
    """The options that most commands share, without the model and with an empty store."""
    return [*shared[2:4], "--store", str(tmp_path / "runs"), *shared[6:]]


def verdicts(capsys, tmp_path, *words):
    code, _, errors = outcome([str(word) for word in ("report", *words, "--json", tmp_path / "v.json")])
    assert code in (0, 1), errors
    assert " to train, " not in errors
    return {verdict["id"]: verdict for verdict in json.loads((tmp_path / "v.json").read_text())["verdicts"]}


@pytest.mark.slow
def test_parallel_jobs_measure_a_checkpoint_and_reach_the_same_verdicts(
    capsys, own, without_model, tmp_path, monkeypatch
):
    monkeypatch.setattr(pool, "SPAWN_CONTEXT", PROCESSES)
    words = ("--task", "rte", *SOME, *without_model, "--checkpoint", own)
    alone = verdicts(capsys, tmp_path, *words, "--store", tmp_path / "alone")
    monkeypatch.setenv("BERTSECRETS_JOBS", "2")
    assert lasting(verdicts(capsys, tmp_path, *words)) == lasting(alone)
    assert all("/checkpoints/" not in str(path) for path in (tmp_path / "runs").rglob("*"))
    monkeypatch.setattr(pool, "serve", lambda *_: pytest.fail("a worker was started"))
    assert all(verdict["reused"] for verdict in verdicts(capsys, tmp_path, *words).values() if verdict["seeds"])


def test_a_checkpoint_alone_supports_measures_without_another_model(capsys, own, without_model, tmp_path):
    of = verdicts(capsys, tmp_path, "--task", "rte", *SOME, *without_model, "--checkpoint", own)
    for name in ("C2-rte", "C3-rte", "D2-rte", "D1-rte-untrained"):
        assert (of[name]["verdict"], of[name]["reason"]) == ("inconclusive", OF_PRETRAINED)
        assert (of[name]["brief"], of[name]["reason_code"]) == ("needs the pretrained model", "not-given")
    frozen = of["D1-rte-frozen"]["reason"]
    assert frozen == "needs a model trained on a frozen encoder, not the given checkpoint"
    assert of["D3-rte"]["reason"] == "needs a model trained from random weights, not the given checkpoint"
    for name in ("D1-rte-pretrained", "E1-rte"):
        assert of[name]["verdict"] not in ("not applicable", None)
        assert (of[name]["models"], of[name]["seeds"]) == ([str(own)], [1])
    assert not (tmp_path / "runs" / "checkpoints").exists()
    words = ("--task", "rte", "--claim", "D1-pretrained", *without_model, "--checkpoint", own)
    main(list(map(str, ("report", *words))))
    assert "more seeds" not in capsys.readouterr().out


def test_with_its_pretrained_model_it_also_supports_comparisons(
    capsys, own, shared, without_model, tiny_bert, tmp_path
):
    given = (*without_model, "--model", tiny_bert, "--checkpoint", own)
    of = verdicts(capsys, tmp_path, "--task", "rte", *SOME, *given)
    left = {name for name, verdict in of.items() if verdict["verdict"] == "not applicable"}
    assert left == {"D1-rte-frozen", "D1-rte-random", "D3-rte", "E1-rte-crossing"}
    assert of["C2-rte"]["remarks"][0] == "this checkpoint"
    made = [path.name for path in (tmp_path / "runs" / "checkpoints").iterdir() if not path.name.startswith(".")]
    assert len(made) == 1
    assert made[0].startswith("rte-untrained-1-")
    usual = bs.Session(model=str(tiny_bert), glue=shared[3], store=shared[5], allow_unofficial_data=True, device="cpu")
    assert of["C2-rte"]["observed"] == pytest.approx(usual.judge("C2", "rte").observed)


def test_the_judged_weights_are_identified_by_their_digest(own, without_model, tiny_glue, tmp_path):
    def judged(folder):
        options = {"glue": tiny_glue, "store": tmp_path / "runs", "allow_unofficial_data": True, "device": "cpu"}
        return bs.Session(checkpoint=folder, checkpoint_task="rte", **options).judge("E1", "rte")

    moved = shutil.copytree(own, tmp_path / "moved")
    first, second = judged(own), judged(moved)
    assert {measurement.provenance.weights for measurement in first.measurements} == {
        ModelRef.in_folder(own).identity()
    }
    assert (first.reused, second.reused) == (False, True)


def test_a_bad_checkpoint_is_one_line_before_anything_is_judged(capsys, own, without_model, own_bert, tmp_path):
    def line(folder, *more, task="rte"):
        return told(capsys, "report", "--task", task, *without_model, "--checkpoint", folder, *more)

    assert "no checkpoint folder at" in line(tmp_path / "none")
    assert "has 2 outputs, but STS-B needs one score" in line(own, task="stsb")
    assert "gives output 0 the name 'entailment', so the outputs cannot be matched" in line(own, task="mrpc")
    for name in ("tokenizer.json", "tokenizer_config.json"):
        own_bert.joinpath(name).unlink()
    assert "holds no tokenizer" in line(own_bert)
    (own_bert / "model.safetensors").unlink()
    assert "holds no weights" in line(own_bert)
    other = ("a checkpoint belongs to a single task", "report", *without_model, "--checkpoint", own)
    assert other[0] in told(capsys, *other[1:])
    assert other[0] in told(capsys, *other[1:], "--task", "rte", "--task", "mrpc")
    assert "the option `seeds` has no effect on a trained checkpoint" in line(own, "--seeds", 2)


def test_pytest_judges_a_checkpoint(own, without_model, tmp_path, quick):
    def bench(*more):
        words = (*without_model, "--checkpoint", own, "--benchmark-json", tmp_path / "b.json", "-k", "E1 or C2 or D2")
        return pytest_benchmarks(*words, *more, output=tmp_path / "output", BERTSECRETS_PARAMS=str(quick))

    code, output = bench("--task", "RTE")
    assert code in (0, 1), output
    verdicts = json.loads((tmp_path / "b.json").read_text())["bertsecrets"]["verdicts"]
    of = {verdict["id"]: verdict for verdict in verdicts}
    assert {verdict["task"] for verdict in of.values()} == {"rte"}
    assert of["C2-rte"]["reason"] == OF_PRETRAINED
    assert of["E1-rte"]["models"] == [str(own)]
    code, output = bench()
    assert (code, "a checkpoint belongs to a single task" in output) == (2, True), output


def test_a_checkpoint_is_compared_with_the_accepted_verdicts_on_it(capsys, own, without_model, tmp_path):
    def call(folder, *more):
        words = ("report", "--task", "rte", "--claim", "D1", "--claim", "E1", *without_model, "--checkpoint", folder)
        return (*words, "--baseline", tmp_path / "accepted.json", *more)

    run(capsys, *call(own, "--limit", 20, "--update-baseline"))
    verdicts = json.loads((tmp_path / "accepted.json").read_text())["verdicts"]
    limits = {verdict["id"]: verdict["limits"] for verdict in verdicts}
    assert limits["E1-rte"] == {"limit": 20}
    run(capsys, *call(own, "--limit", 20))
    assert "-> all rows)" in told(capsys, *call(own))
    moved = shutil.copytree(own, tmp_path / "moved")
    assert f"(model {own} -> {moved})" in told(capsys, *call(moved, "--limit", 20))


@pytest.fixture
def validation_only(tiny_glue, tmp_path):
    """A GLUE folder with only the validation rows of RTE."""
    folder = tmp_path / "glue" / "RTE"
    folder.mkdir(parents=True)
    shutil.copy(tiny_glue / "RTE" / "dev.tsv", folder)
    return folder.parent


def test_a_checkpoint_is_judged_and_compared_on_validation_rows_alone(
    capsys, own, without_model, validation_only, tiny_bert, tmp_path
):
    without_model[1] = validation_only
    of = verdicts(capsys, tmp_path, "--task", "rte", "--claim", "E1", *without_model, "--checkpoint", own)
    assert of["E1-rte"]["verdict"] not in ("not applicable", None)
    run(capsys, "compare", own, own, "--measure", "scores", *without_model)
    assert "needs this" in told(
        capsys, "report", "--task", "rte", "--claim", "E1", *without_model, "--model", tiny_bert
    )


def test_a_limited_report_skips_ablation_and_says_how_to_include_it(capsys, own, without_model, tmp_path):
    words = ("report", "--task", "rte", "--limit", 4, *without_model, "--checkpoint", own)
    words = (*words, "--json", tmp_path / "v.json")

    def judged(*more):
        assert main([str(word) for word in (*words, *more)]) in (0, 1)
        verdicts = json.loads((tmp_path / "v.json").read_text())["verdicts"]
        return {verdict["id"] for verdict in verdicts}, capsys.readouterr().out

    quick, said = judged()
    assert "left out to save time" in said
    assert "use --grid-limit 4 to include them" in said
    assert {"D1-rte-pretrained", "E1-rte"} <= quick
    assert not quick & {"G1-rte", "G4-rte"}
    assert not [name for name in quick if name.startswith(("I", "J"))]
    assert judged("--claim", "G4")[0] == {"G4-rte"}
    full, said = judged("--grid-limit", 4)
    assert full - quick >= {"G1-rte", "G4-rte"}
    assert "left out to save time" not in said
