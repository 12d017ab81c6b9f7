"""No output of a command replaces one of its inputs or another output."""

import os
from pathlib import Path

import pytest

from bertsecrets.cli.outputs import check_places
from bertsecrets.errors import UserError

REFUSED = {
    "the same file": (["b.json"], [Path("b.json")]),
    "a symbolic link": (["link.json"], [Path("b.json")]),
    "a hard link": (["hard.json"], [Path("b.json")]),
    "another spelling": (["b.json"], ["./b.json"]),
    "a file of an input folder": (["model/config.json"], ["model"]),
    "two outputs": (["n.json", "n.json"], []),
    "an entry of the store": (["store/checkpoints/x"], []),
    "all entries of the store": (["link/measurements"], []),
}
ALLOWED = {
    "different files": (["b.json", "x.json"], [Path("y.json")]),
    "a device": (["/dev/null", "/dev/null"], []),
    "a file next to the store's entries": (["store/page.html"], []),
    "a new file": (["model/new.json"], ["model"]),
    "a summary": (["model/README.md"], ["model"]),
    "earlier results": (["model/verdicts.json"], ["model"]),
}


@pytest.fixture
def places(tmp_path, monkeypatch):
    monkeypatch.chdir(tmp_path)
    (tmp_path / "model").mkdir()
    files = {"b.json": "{}", "model/config.json": "{}", "model/README.md": "", "model/verdicts.json": '{"format": 1}'}
    for name, text in files.items():
        (tmp_path / name).write_text(text)
    os.symlink("b.json", "link.json")
    os.link("b.json", "hard.json")
    os.symlink("store", "link")


@pytest.mark.parametrize("name", REFUSED)
def test_an_output_that_replaces_an_input_is_refused(places, name):
    written, read = REFUSED[name]
    with pytest.raises(UserError, match="cannot write"):
        check_places(map(Path, written), read, Path("store"))


@pytest.mark.parametrize("name", ALLOWED)
def test_other_outputs_are_allowed(places, name):
    written, read = ALLOWED[name]
    check_places(map(Path, written), read, Path("store"))


def test_files_named_by_the_environment_are_inputs(places, monkeypatch):
    monkeypatch.setenv("BERTSECRETS_PARAMS", "b.json")
    with pytest.raises(UserError, match="which is an input of this run"):
        check_places([Path("b.json")], [])
