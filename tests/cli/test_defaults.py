"""Option defaults from `pyproject.toml` and the environment, ranges of options, and early checks of output paths."""

import pytest
from calls import run, told

from bertsecrets.cli.main import build_parser
from bertsecrets.errors import UserError
from bertsecrets.options import RunOptions


def options(*words):
    return RunOptions.from_namespace(
        build_parser().parse_args(["report" if "--checkpoint" in words else "plan", *map(str, words)])
    )


@pytest.fixture
def project(tmp_path, monkeypatch):
    """Change to a folder with defaults in its `pyproject.toml`, and return a function that replaces them."""
    monkeypatch.chdir(tmp_path)
    for name in ("MODEL", "GLUE", "STORE", "FRAMES"):
        monkeypatch.delenv(f"BERTSECRETS_{name}", raising=False)

    def write(text):
        (tmp_path / "pyproject.toml").write_text(f"[tool.bertsecrets]\n{text}\n")

    write('model = "./my-bert"\nglue = ["a", "b"]\nseeds = 3\noffline = true\nallow-unofficial-data = true\nlimit = 8')
    return write


def test_the_command_line_precedes_the_environment_which_precedes_pyproject(project, monkeypatch):
    of = options()
    assert (of.model, of.glue, of.seeds, of.offline, of.limit) == ("./my-bert", ["a", "b"], 3, True, 8)
    assert of.allow_unofficial_data
    monkeypatch.setenv("BERTSECRETS_MODEL", "minilm")
    monkeypatch.setenv("BERTSECRETS_GLUE", "c")
    assert (options().model, [str(folder) for folder in options().glue_folders]) == ("minilm", ["c"])
    assert (options("--model", "other", "--limit", 4).model, options("--limit", 4).limit) == ("other", 4)


def test_defaults_of_training_do_not_disturb_a_finished_checkpoint(project):
    assert options("--checkpoint", "x").judging("x", ["rte"]).seeds is None


@pytest.mark.parametrize(
    ("text", "said"),
    [
        ('modle = "x"', "unknown option 'modle': did you mean model"),
        ('limit = "8"', "[tool.bertsecrets]: limit must be a whole number, not '8'"),
        ("limit = 0", "[tool.bertsecrets]: limit 0 leaves no rows"),
        ("model = [1", "pyproject.toml: "),
    ],
)
def test_bad_defaults_are_one_line(project, capsys, text, said):
    project(text)
    assert said in told(capsys, "report", "--task", "rte")


def test_options_out_of_range_are_refused_with_the_range(capsys):
    assert "seeds 100000 is out of range: give 1 to 100" in told(capsys, "report", "--seeds", 100000)
    assert "the model's name is empty" in told(capsys, "report", "--model", "")
    with pytest.raises(UserError, match="empty"):
        RunOptions(model="")


@pytest.mark.parametrize(
    "command", [("report", "--task", "rte"), ("compare", "a", "b"), ("measure", "scores", "--task", "rte")], ids=str
)
def test_an_output_in_a_missing_folder_is_refused_and_nothing_is_created(capsys, tmp_path, command):
    file = tmp_path / "missing" / "x.json"
    assert f"the folder {file.parent} does not exist" in told(capsys, *command, "--json", file)
    assert not file.parent.exists()


def test_claims_are_listed_by_task_and_family(capsys):
    shown = run(capsys, "claims", "--task", "sst2", "--family", "c")
    assert "4.3 Change in attention" in shown
    assert "4.4 Special tokens" not in shown
    assert "unknown family 'Z': give one of A, B" in told(capsys, "claims", "--family", "Z")


def test_a_claim_is_explained_with_numbers_a_reader_can_check(capsys):
    assert "[0.2065, 0.2115]" in run(capsys, "explain", "B2-l7h6")
    assert "-0.0;" not in run(capsys, "explain", "D5")
