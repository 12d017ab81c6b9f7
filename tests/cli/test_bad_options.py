"""Options that cannot be meant: one clear line that says what is wrong, exit code 2."""

import json
from dataclasses import replace

import pytest
from calls import run, told
from measurements import measured
from patterned import pattern_set

from bertsecrets.errors import UserError
from bertsecrets.store.measurements import keep
from bertsecrets.types import Subject

pytestmark = pytest.mark.usefixtures("quick")


@pytest.mark.parametrize("name", ["foo bar", "a--b", "minilm/", "x" * 300, f"./{'x' * 300}", "@abc"])
def test_a_name_that_no_model_can_have_is_named(capsys, shared, name):
    line = told(capsys, "measure", "scores", "--task", "rte", *shared, "--model", name)
    assert name in line
    assert "--model minilm" in line


def test_a_device_that_computes_nothing_is_none(capsys, shared):
    assert "device 'meta' is not available" in told(
        capsys, "measure", "scores", "--task", "rte", *shared, "--device", "meta"
    )


@pytest.mark.parametrize("seed", [-1, 2**32])
def test_a_seed_that_none_can_use_is_refused_by_every_command(capsys, shared, tmp_path, seed):
    pattern_set(4).save(tmp_path / "maps")
    for command in (
        ["sheets", tmp_path / "maps", tmp_path / "out"],
        ["annotate", tmp_path / "drawn", "--task", "rte", *shared],
        ["finetune", "--task", "rte", *shared],
        ["measure", "scores", "--task", "rte", *shared],
    ):
        assert f"--seed {seed} is out of range" in told(capsys, *command, "--seed", seed)
    assert not (tmp_path / "out").exists()


@pytest.mark.parametrize("measure", ["frame-heads", "example-sentence", "pattern-quality"])
@pytest.mark.parametrize("option", [("--init", "random"), ("--seed", 7), ("--task", "rte")])
def test_what_is_measured_without_training_has_no_task_initialisation_or_seed(capsys, shared, measure, option):
    assert "leave out --task, --init and --seed" in told(capsys, "measure", measure, *shared, *option)


def test_what_looks_at_annotated_maps_takes_no_checkpoint(capsys, shared, tmp_path):
    line = told(capsys, "measure", "pattern-quality", *shared, "--checkpoint", tmp_path)
    assert "pattern-quality uses no model: leave out --checkpoint" in line


def test_another_corpus_that_is_there_is_neither_replaced_nor_taken_for_the_one_asked_for(capsys, tmp_path):
    call = ["corpus", tmp_path / "glue", "--train-rows", 5, "--dev-rows", 3]
    first = run(capsys, *call)
    before = (tmp_path / "glue" / "RTE" / "dev.tsv").read_bytes()
    line = told(capsys, "corpus", tmp_path / "glue", "--train-rows", 50, "--dev-rows", 30)
    assert "already holds 5 and 3 pairs, not 50 training and 30 validation pairs: name a new folder" in line
    assert run(capsys, *call) == first
    assert (tmp_path / "glue" / "RTE" / "dev.tsv").read_bytes() == before


def test_a_corpus_has_an_end(capsys, tmp_path):
    assert "at most 1000000" in told(capsys, "corpus", tmp_path / "glue", "--train-rows", 100_000_000)
    assert not (tmp_path / "glue").exists()


# ---------------------------------------------------------------------- measurements that were kept


@pytest.fixture
def shelf(tmp_path):
    """Scores of model `m`, fine-tuned with seeds 1, 2 and 4, untrained with 1 and 2."""
    for initialisation, seeds in {"pretrained": (1, 2, 4), "untrained": (1, 2)}.items():
        for seed in seeds:
            found = measured("scores", {"accuracy": 1.0}, {"predicted": [1] * 9, "target": [1] * 9})
            keep(replace(found, subject=Subject("m", "rte", initialisation, seed)), tmp_path / "kept")
    return tmp_path / "kept"


@pytest.mark.parametrize("options", [[], ["--model", "minilm"], ["--model", "m", "--seeds", 3]])
def test_models_and_seeds_that_were_kept_are_named_where_others_are_asked_for(capsys, shelf, options):
    assert f"{shelf} has m (seeds 1 2 4): choose among these with" in told(
        capsys, "report", "--measurements", shelf, *options
    )


@pytest.mark.parametrize(("options", "fine_tuned", "gain"), [([], [1, 2, 4], [1, 2]), (["--seeds", 2], [1, 2], [1, 2])])
def test_each_claim_is_judged_on_the_seeds_that_were_kept_for_it(capsys, shelf, tmp_path, options, fine_tuned, gain):
    call = ["report", "--model", "m", "--claim", "D1", "--claim", "D2", "--measurements", shelf]
    run(capsys, *call, "--json", tmp_path / "v.json", *options)  # nine answers decide nothing
    seeds = {verdict["id"]: verdict["seeds"] for verdict in json.loads((tmp_path / "v.json").read_text())["verdicts"]}
    assert (seeds["D1-rte-pretrained"], seeds["D2-rte"]) == (fine_tuned, gain)


def test_what_seeds_gave_is_put_on_record(capsys, shelf, tmp_path):
    call = ["report", "--model", "m", "--claim", "D1-pretrained", "--measurements", shelf, "--record"]
    run(capsys, *call, tmp_path / "seeds-m.json", "--seeds", 2)
    data = json.loads((tmp_path / "seeds-m.json").read_text())
    assert data["model"] == "m"
    assert [(one["claim"], one["task"], one["values"]) for one in data["runs"]] == [
        ("D1-pretrained", "rte", [[100.0], [100.0]])
    ]
    assert "no verdict rests on several seeds" in told(capsys, *call, tmp_path / "none.json", "--seeds", 1)
    assert not (tmp_path / "none.json").exists()


@pytest.mark.parametrize("option", [("--limit", 5), ("--device", "cpu"), ("--glue", "."), ("--grid-limit", 0)])
def test_options_of_measuring_are_refused_beside_measurements(capsys, shelf, option):
    line = told(capsys, "report", "--model", "m", "--measurements", shelf, *option)
    assert f"{option[0]} has no effect on --measurements" in line


@pytest.mark.parametrize("option", [("--init", "random"), ("--seed", 1)])
def test_a_part_is_chosen_of_saved_measurements_alone(capsys, option):
    assert f"{option[0]} chooses among --measurements" in told(capsys, "report", "--model", "m", *option)


# ---------------------------------------------------------------------- doctor


@pytest.mark.parametrize(
    ("option", "line"),
    [
        (("--device", "cuda:77"), "device: missing; device 'cuda:77' is not available"),
        (("--glue", "nowhere"), "GLUE: missing; no GLUE folder at nowhere: give the folder that holds RTE/dev.tsv"),
        (("--store", __file__), f"store: missing; {__file__} is a file where a folder is needed"),
        (("--store", f"{__file__}/deep"), f"store: missing; {__file__} is a file where a folder is needed"),
        (
            (),
            "spaCy pipeline en_core_web_sm: missing; spaCy pipeline 'en_core_web_sm' is not installed: python -m spacy",
        ),
        ((), "frames: missing; frame-heads needs --frames"),
    ],
)
def test_doctor_says_what_is_missing_and_goes_on(capsys, monkeypatch, shared, option, line):
    from bertsecrets.measures.base import needs

    def load(name):
        raise UserError(f"spaCy pipeline {name!r} is not installed: python -m spacy download {name}")

    monkeypatch.setattr("bertsecrets.measures.base.needs.load_pipeline", load)
    needs.described.cache_clear()
    out = run(capsys, "doctor", *shared, *option)
    assert f"\n{line}" in out
    assert "extra spacy:" in out
    assert "GLUE RTE: here" in out
