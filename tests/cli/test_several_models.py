"""`report --model A --model B`: one page with the models side by side."""

import re

import pytest
from tiny import save_bert

from bertsecrets.cli.main import main
from bertsecrets.measures.attention_change import AttentionChange

pytestmark = pytest.mark.usefixtures("quick")
CLAIM = ("--task", "rte", "--claim", "C1")


@pytest.fixture(scope="module")
def other(tmp_path_factory):
    return save_bert(tmp_path_factory.mktemp("models") / "other-bert", seed=1)


def test_models_stand_side_by_side_on_one_page(shared, other, tmp_path, capsys):
    file = tmp_path / "page.html"
    assert main(["report", *CLAIM, *shared, "--model", str(other), "--html", str(file)]) in (0, 1)
    first, output = shared[1], capsys.readouterr().out
    assert re.findall(rf"^(?:{first}|{other})$", output, re.M) == [first, str(other)]
    page = file.read_text()
    columns = re.findall(r'<th scope="col" data-task="rte"[^>]*>RTE<small>(.*?)</small>', page)
    assert columns == [first, str(other)]
    again = re.findall(r"<code>(bertsecrets report.*?--claim C1-rte)</code>", page)
    assert [words.count("--model") for words in again] == [1, 1]
    assert [f"--model {model} --claim" in words for model, words in zip(columns, again, strict=True)] == [True, True]
    groups = re.findall(r'<optgroup label="(.*?)">', page)
    assert groups == [f"{model}, RTE" for model in columns]  # in the attention viewer


def test_a_model_that_is_not_there_ends_it_before_anything_is_measured(shared, monkeypatch, capsys, tmp_path):
    monkeypatch.setattr(AttentionChange, "run", None)
    assert main(["report", *CLAIM, *shared, "--model", str(tmp_path / "none")]) == 2
    assert "no model folder at" in capsys.readouterr().err


def test_files_of_one_model_are_refused(shared, other, capsys, tmp_path):
    assert main(["report", *CLAIM, *shared, "--model", str(other), "--json", str(tmp_path / "v.json")]) == 2
    assert capsys.readouterr().err == "bertsecrets: --json is for a single --model: leave it out\n"


def test_a_model_that_is_named_twice_is_judged_once(shared, tmp_path, capsys):
    file = tmp_path / "v.json"
    assert main(["report", *CLAIM, *shared, "--model", shared[1], "--json", str(file)]) in (0, 1)
    assert file.exists()
