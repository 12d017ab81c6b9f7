"""`bertsecrets compare` and `pin`: two models side by side, the same examples, exit code 1 where one has drifted."""

import json
import shutil

import numpy as np
import pytest
import yaml
from calls import run, told
from damages import save_peaked

from bertsecrets.caches import MeasurementCache
from bertsecrets.cli.main import main

pytestmark = pytest.mark.usefixtures("quick")
CHEAP = ("--measure", "special-tokens", "--measure", "layer-ablation")
PINNED = ("--measure", "special-tokens", "--measure", "attention-change")


@pytest.fixture(scope="module")
def one_bert(tmp_path_factory):
    """A checkpoint."""
    return save_peaked(tmp_path_factory.mktemp("one") / "one-bert", as_model=False)


@pytest.fixture(scope="module")
def other_bert(tmp_path_factory):
    """A checkpoint of the same shape and other weights."""
    return save_peaked(tmp_path_factory.mktemp("other") / "other-bert", seed=5, as_model=False)


@pytest.fixture(scope="module")
def retrained(tmp_path_factory):
    """A model, which is fine-tuned before it is measured."""
    return save_peaked(tmp_path_factory.mktemp("model") / "tiny")


@pytest.fixture
def rest(shared):
    """The options that commands share, without the model."""
    return shared[2:]


def test_a_checkpoint_against_itself_does_not_differ_at_all(capsys, one_bert, rest):
    said = run(capsys, "compare", one_bert, one_bert, *CHEAP, *rest)
    assert "no drift: 2 measures exactly equal" in said


def test_another_checkpoint_is_told_by_its_heads_and_written_in_every_form(
    capsys, one_bert, other_bert, rest, tmp_path
):
    files = {name: tmp_path / f"drift.{name}" for name in ("json", "html", "markdown")}
    options = [word for name, file in files.items() for word in (f"--{name}", str(file))]
    assert main(["compare", str(one_bert), str(other_bert), *CHEAP, *rest, *options]) == 1
    said = capsys.readouterr().out
    assert "special-tokens on RTE has drifted (24 examples, one seed each; se: standard errors over examples):" in said
    assert "attention to [CLS] in " in said
    data = json.loads(files["json"].read_text())
    assert data["drift"] is True
    assert [one["measure"] for one in data["measures"]] == ["special-tokens", "layer-ablation"]
    assert "has drifted" in files["html"].read_text()
    assert files["markdown"].read_text().startswith("### drift in ")


def test_kept_measurements_are_compared_without_model_or_data(capsys, one_bert, other_bert, rest, tmp_path):
    for folder, name in ((one_bert, "one"), (other_bert, "two")):
        words = ("--checkpoint", folder, "--task", "rte", "--save", tmp_path / name)
        run(capsys, "measure", "special-tokens", *words, *rest)
    assert main(["compare", str(tmp_path / "one"), str(tmp_path / "two")]) == 1
    assert main(["compare", f"{one_bert}@{tmp_path / 'one'}", str(tmp_path / "one")]) == 0
    assert "no measurements of one-bert to compare" in told(capsys, "compare", f"one-bert@{tmp_path / 'one'}", tmp_path)
    assert "name one, as in" in told(capsys, "compare", tmp_path, tmp_path / "one")


def test_a_change_of_attention_needs_the_model_that_was_trained(capsys, one_bert, other_bert, rest):
    words = ["compare", str(other_bert), str(other_bert), "--measure", "attention-change", *rest]
    assert "name it with --model" in told(capsys, *words)
    assert main([*words, "--model", str(one_bert)]) == 0


def test_bad_input_is_one_line(capsys, one_bert, rest, tmp_path):
    (tmp_path / "empty").mkdir()
    (tmp_path / "list.yaml").write_text("- 1\n")
    for words, line in (
        ((one_bert, "nowhere/at/all"), "no model folder at nowhere/at/all"),
        ((one_bert, tmp_path / "gone.yaml"), "cannot read the pin"),
        ((one_bert, tmp_path / "list.yaml"), "is not a pin"),
        ((one_bert, tmp_path / "empty"), "has no measurements to compare"),
        ((one_bert, one_bert, "--measure", "relations"), "measure 'relations' cannot be compared"),
        ((one_bert, one_bert, "--task", "rtee"), "unknown task 'rtee'"),
        ((one_bert, one_bert, "--task", "stsb"), "no STS-B/train.tsv"),
    ):
        assert line in told(capsys, "compare", *words, *rest)


# ---------------------------------------------------------------------- pins


@pytest.fixture(scope="module")
def pinned(retrained, tiny_glue, runs, tmp_path_factory, quick_params):
    """A pin of the tiny BERT on three seeds."""
    place = tmp_path_factory.mktemp("pins") / "tiny.yaml"
    with pytest.MonkeyPatch.context() as patch:
        patch.setenv("BERTSECRETS_PARAMS", str(quick_params))
        words = ["--glue", tiny_glue, "--store", runs, "--device", "cpu", "--offline", "--allow-unofficial-data"]
        options = ["--seeds", "3", "--reason", "The first.", "--output", place, *PINNED]
        assert main(list(map(str, ["pin", "--model", retrained, *options, *words]))) == 0
    return place


def test_a_pin_holds_means_and_spreads_by_head_and_what_they_rest_on(pinned, retrained):
    data = yaml.safe_load(pinned.read_text())
    assert data["model"] == str(retrained)
    assert [one["reason"] for one in data["reasons"]] == ["The first."]
    assert {"weights", "tokenizer", "device", "precision", "software", "commit", "official_data"} <= data.keys()
    heads = data["measures"][0]
    assert (heads["measure"], heads["seeds"], heads["examples"]) == ("special-tokens", [1, 2, 3], 24)
    cls = heads["quantities"]["cls"]
    assert np.shape(cls["mean"]) == np.shape(cls["std"]) == (3, 4)
    assert np.asarray(cls["std"]).max() > 0
    assert pinned.stat().st_size < 5000


def test_no_text_of_the_data_is_in_a_pin(pinned, tiny_glue):
    words = {word for line in (tiny_glue / "RTE" / "dev.tsv").read_text().splitlines()[1:] for word in line.split()[1:]}
    held = set(pinned.read_text().replace(",", " ").split())
    assert {word for word in words & held if len(word) > 4} == set()


def test_the_model_of_a_pin_has_not_drifted_from_it(capsys, pinned, retrained, rest):
    said = run(capsys, "compare", pinned, retrained, "--seeds", "3", *rest)
    assert "no drift: 2 measures exactly equal" in said


def test_a_damaged_checkpoint_has_drifted_from_a_pin(capsys, pinned, other_bert, rest):
    assert main(["compare", str(pinned), str(other_bert), *rest]) == 1
    assert "(3 seeds against 1 seed, 24 examples; sd: standard deviations over seeds)" in capsys.readouterr().out


def test_a_pin_is_written_again_only_for_a_new_reason_and_keeps_the_old_ones(
    capsys, pinned, retrained, rest, tmp_path, monkeypatch
):
    place = shutil.copy(pinned, tmp_path / "tiny.yaml")
    words = ["pin", "--model", retrained, "--seeds", "3", "--output", place, *PINNED, *rest]
    before = place.read_bytes()
    with monkeypatch.context() as patch:
        patch.setattr(MeasurementCache, "_made", None)  # refused before anything is measured
        assert "for the same reason" in told(capsys, *words, "--reason", "the  FIRST.")
        assert "--reason is empty" in told(capsys, *words, "--reason", " ")
        assert "use --seeds 2 or more" in told(capsys, *words, "--reason", "one seed", "--seeds", "1")
    assert place.read_bytes() == before
    run(capsys, *words, "--reason", "Trained on new data.")
    assert [one["reason"] for one in yaml.safe_load(place.read_text())["reasons"]] == [
        "Trained on new data.",
        "The first.",
    ]
    assert "for the same reason" in told(capsys, *words, "--reason", "The first.")


def test_a_file_that_is_no_pin_is_not_overwritten(capsys, retrained, rest, tmp_path):
    place = tmp_path / "notes.yaml"
    place.write_text("mine: 1\n")
    line = told(capsys, "pin", "--model", retrained, "--reason", "x", "--seeds", "2", "--output", place, *rest)
    assert "is not a pin" in line
    assert place.read_text() == "mine: 1\n"


def test_a_pin_of_other_rows_is_not_compared(capsys, pinned, retrained, rest):
    line = told(capsys, "compare", pinned, retrained, "--seeds", "2", "--limit", "12", *rest)
    assert "not the same examples (24 and 12; all rows and limit 12)" in line


@pytest.mark.parametrize(
    ("change", "line"),
    [
        (lambda data: data["measures"][0]["quantities"]["cls"]["mean"].pop(), "mean and std have different shapes"),
        (lambda data: data["measures"][0]["quantities"]["cls"]["mean"][0].pop(), "as many heads in every layer"),
        (lambda data: data.pop("reasons"), "reasons"),
        (lambda data: data["measures"][0].update(seeds=[1]), "seeds"),
        (lambda data: data["measures"][0].update(task="rtee"), "rtee"),
        (lambda data: data["measures"][0].update(measure="x"), "'x'"),
    ],
)
def test_a_spoilt_pin_is_one_line(capsys, pinned, one_bert, rest, tmp_path, change, line):
    data = yaml.safe_load(pinned.read_text())
    change(data)
    (tmp_path / "spoilt.yaml").write_text(yaml.safe_dump(data))
    assert line in told(capsys, "compare", tmp_path / "spoilt.yaml", one_bert, *rest)
