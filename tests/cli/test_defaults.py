"""Option defaults from `pyproject.toml` and the environment, ranges of options, and early checks of output paths."""

import argparse
from pathlib import Path

import pytest
from calls import run, told

from bertsecrets.cli.main import build_parser
from bertsecrets.models.locations import locate
from bertsecrets.options import RunOptions, path


def options(*arguments):
    return RunOptions.from_namespace(
        build_parser().parse_args(["report" if "--checkpoint" in arguments else "plan", *map(str, arguments)])
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
    monkeypatch.setenv("BERTSECRETS_GLUE", "c:d")
    assert (options().model, [str(folder) for folder in options().glue_folders]) == ("minilm", ["c", "d"])
    assert (options("--model", "other", "--limit", 4).model, options("--limit", 4).limit) == ("other", 4)


def test_defaults_of_training_do_not_disturb_a_finished_checkpoint(project):
    assert options("--checkpoint", "x").judging("x", ["rte"]).seeds is None


def test_claims_are_listed_by_task_and_family(capsys):
    shown = run(capsys, "claims", "--task", "sst2", "--family", "c")
    assert "4.3 Change in attention" in shown
    assert "4.4 Special tokens" not in shown
    assert "unknown family 'Z': give one of A, B" in told(capsys, "claims", "--family", "Z")


def test_a_tilde_is_expanded_wherever_a_path_can_be_given(tmp_path, monkeypatch, tiny_bert, tiny_glue):
    monkeypatch.setenv("HOME", str(tmp_path))
    for name, target in (("my-bert", tiny_bert), ("glue", tiny_glue)):
        (tmp_path / name).symlink_to(target)
    given = RunOptions(
        model="~/my-bert", glue="~/glue", store="~/store", frames="~/f", checkpoint="~/c", checkpoint_task="rte"
    )
    assert given.model == str(tmp_path / "my-bert")
    assert given.glue_folders == [tmp_path / "glue"]
    assert (given.store_folder, given.frames_path) == (tmp_path / "store", tmp_path / "f")
    assert given.checkpoint == tmp_path / "c"
    for variable, name in (("GLUE", "glue"), ("STORE", "store"), ("FRAMES", "f"), ("MODEL", "my-bert")):
        monkeypatch.setenv(f"BERTSECRETS_{variable}", f"~/{name}")
    inherited = RunOptions.from_namespace(argparse.Namespace(model=None))
    assert (inherited.model, inherited.glue_folders) == (given.model, given.glue_folders)
    assert (inherited.store_folder, inherited.frames_path) == (given.store_folder, given.frames_path)
    assert locate("~/my-bert").path == given.model
    assert path("~/x.json") == tmp_path / "x.json"
    assert path("./~x") == Path("./~x")
