"""Tasks written as a GLUE folder: writing is lossless, reproducible and atomic."""

import json
from dataclasses import replace
from pathlib import Path

import pytest
from calls import run, told
from test_glue import ROWS, write

from bertsecrets.errors import UserError
from bertsecrets.options import RunOptions
from bertsecrets.texts.glue import FETCH_RECORD, Source, as_fetched, load_folder, other_content
from bertsecrets.texts.glue_folder import as_tsv, write_tasks
from bertsecrets.texts.tasks import TASKS, task


def contents(folder: Path) -> dict[str, bytes]:
    return {str(path.relative_to(folder)): path.read_bytes() for path in folder.rglob("*") if path.is_file()}


@pytest.fixture
def own_glue(tmp_path) -> Path:
    """A GLUE folder with every task, two rows per split, and a file that belongs to no split."""
    for name in TASKS:
        for split in ("train", "dev"):
            write(tmp_path / "own", name, ROWS[name], split=split)
    (tmp_path / "own" / "RTE" / "test.tsv").write_text("index\n")
    return tmp_path / "own"


@pytest.mark.parametrize("name", TASKS)
def test_rows_of_the_hub_are_read_again_as_they_were(own_glue, tmp_path, name):
    split = load_folder(own_glue, task(name), "dev")
    file = tmp_path / "written" / task(name).folder / task(name).dev_file
    file.parent.mkdir(parents=True)
    file.write_text(as_tsv(split), encoding="utf-8", newline="")
    assert load_folder(tmp_path / "written", task(name), "dev").fingerprint == split.fingerprint


def test_files_are_copied_byte_for_byte_and_reproducibly(own_glue, tmp_path):
    source = Source(glue=own_glue, allow_unofficial=True)
    for name in ("one", "two", "two"):  # an earlier one is replaced
        write_tasks(source, [task("rte"), task("mnli")], tmp_path / name)
    files = contents(tmp_path / "one")
    assert files == contents(tmp_path / "two")
    assert set(files) == {"RTE/train.tsv", "RTE/dev.tsv", "MNLI/train.tsv", "MNLI/dev_matched.tsv", FETCH_RECORD}
    assert files["RTE/dev.tsv"] == (own_glue / "RTE" / "dev.tsv").read_bytes()


def test_a_folder_appears_whole_or_not_at_all(own_glue, tmp_path):
    source, output = Source(glue=own_glue, allow_unofficial=True), tmp_path / "output"
    write_tasks(source, [task("rte")], output)
    before = contents(output)
    write(own_glue, "rte", ["0\tOne.\tAn one.\tmaybe"])
    for folder in (output, tmp_path / "new"):
        with pytest.raises(UserError, match="unknown label 'maybe'"):
            write_tasks(source, [task("rte")], folder)
    assert contents(output) == before
    assert not (tmp_path / "new").exists()


def test_a_folder_with_other_files_is_left_alone(own_glue, tmp_path):
    (tmp_path / "mine").mkdir()
    (tmp_path / "mine" / "letter.txt").write_text("dear")
    with pytest.raises(UserError, match=r"contains other files \(letter.txt\)"):
        write_tasks(Source(glue=own_glue, allow_unofficial=True), [task("rte")], tmp_path / "mine")


def test_a_tab_inside_a_text_is_named_with_its_row(own_glue):
    split = replace(load_folder(own_glue, task("sst2"), "dev"), sentence1=["one", "one\ttwo"])
    with pytest.raises(UserError, match="row 2: a text contains a tab or line end, which cannot be written"):
        as_tsv(split)


def test_official_rows_of_the_hub_stay_official_until_they_are_altered(own_glue):
    """Only the digest of the hub's file is published, so `fetch` must record which rows are official."""
    split = load_folder(own_glue, task("rte"), "dev")
    assert "texts or labels differ" in other_content(split)
    record = {"rte": {"dev": {"official": True, "fingerprint": split.fingerprint}}}
    (own_glue / FETCH_RECORD).write_text(json.dumps(record))
    assert other_content(split, as_fetched(own_glue, split)) is None
    write(own_glue, "rte", [ROWS["rte"][0], ROWS["rte"][1].replace("Two", "Too")])
    altered = load_folder(own_glue, task("rte"), "dev")
    assert "texts or labels differ" in other_content(altered, as_fetched(own_glue, altered))
    record["rte"]["dev"]["official"] = False
    (own_glue / FETCH_RECORD).write_text(json.dumps(record))
    assert as_fetched(own_glue, split) is None


def test_the_hub_can_be_asked_for_where_a_folder_is_usual(own_glue, monkeypatch):
    monkeypatch.setenv("BERTSECRETS_GLUE", str(own_glue))
    assert RunOptions().source().glue == own_glue
    assert RunOptions(glue=[Path("hub")]).source().glue is None


# ---------------------------------------------------------------------- command line


def test_a_task_is_fetched_without_a_model(own_glue, tmp_path, capsys):
    arguments = ("fetch", "--task", "rte", "--glue", own_glue, "--output", tmp_path / "rte", "--model", "nobody/none")
    assert "it has 2 rows, but RTE's official train split has 2490" in told(capsys, *arguments)
    said = run(capsys, *arguments, "--allow-unofficial-data")
    assert "RTE dev: 2 rows (unofficial)" in said
    assert (tmp_path / "rte" / "RTE" / "dev.tsv").is_file()


def test_the_digests_of_a_model_change_with_its_weights_and_its_tokenizer_alone(own_bert, tmp_path, capsys):
    arguments = ("fetch", "--model", own_bert, "--digests", tmp_path / "model.json", "--glue", "hub")
    run(capsys, *arguments)
    before = json.loads((tmp_path / "model.json").read_text())["files"]
    assert {"model.safetensors", "config.json", "tokenizer.json"} <= set(before)
    for name in ("notes.txt", "model.safetensors", "tokenizer.json"):
        with (own_bert / name).open("a") as file:
            file.write(" ")
        run(capsys, *arguments)
        after = json.loads((tmp_path / "model.json").read_text())["files"]
        assert {path for path in after if after[path] != before[path]} == {name} - {"notes.txt"}
        before = after


def test_read_and_watched_paths_must_agree(own_glue, own_bert, tmp_path, capsys):
    data = ("fetch", "--task", "rte", "--output", tmp_path / "rte", "--allow-unofficial-data")
    model = ("fetch", "--digests", tmp_path / "model.json")
    pin = Path(__file__)
    for arguments in (
        (*data, "--glue", own_glue, "--watched", pin),
        (*data, "--glue", own_glue, "--watched", own_bert),
        (*data, "--glue", "hub", "--watched", own_glue),
        (*model, "--model", own_bert, "--watched", pin),
        (*model, "--model", "minilm", "--watched", own_bert),
    ):
        assert "use the same folder for both" in told(capsys, *arguments)
    run(capsys, *data, "--glue", own_glue, "--watched", own_glue.parent / "." / own_glue.name)
    run(capsys, *model, "--model", own_bert, "--watched", own_bert)


def test_options_of_fetch_that_do_not_go_together(tmp_path, capsys):
    assert "cannot be combined" in told(capsys, "fetch", "--output", tmp_path / "a", "--digests", tmp_path / "b")
    assert "--watched has no effect" in told(capsys, "fetch", "--watched", tmp_path)
