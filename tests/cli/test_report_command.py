"""`report`: which claims are judged, several models on one page, and the examples in its attention viewer."""

import json
import os
import re
import shutil
import signal
import sys

import pytest
from calls import run, told
from tiny import save_bert
from zoo import save_family

from bertsecrets.cli.main import main
from bertsecrets.report import json as report_json

pytestmark = pytest.mark.usefixtures("quick")


# ---------------------------------------------------------------------- which claims are judged


@pytest.fixture(scope="module")
def gpt2(tmp_path_factory):
    """A GPT-2 that predicts both classes; with other seeds, it predicts only one."""
    return save_family("gpt2", tmp_path_factory.mktemp("models") / "gpt2", seed=3)


@pytest.fixture
def rest(tiny_glue, runs):
    return ("--glue", tiny_glue, "--store", runs, "--device", "cpu", "--offline", "--allow-unofficial-data")


def test_the_claims_about_gpt2_run_on_gpt2(gpt2, rest, tmp_path):
    claims = ("--claim", "H1-scratch", "--claim", "H2", "--claim", "H5", "--json", tmp_path / "v.json")
    arguments = ("report", "--model", gpt2, "--task", "rte", "--seeds", 1, *claims, *rest)
    assert main(list(map(str, arguments))) in (0, 1)  # a claim may deviate
    of = {verdict["id"]: verdict for verdict in json.loads((tmp_path / "v.json").read_text())["verdicts"]}
    variants = ("best", "mean", "worst", "first-layer")
    assert set(of) == {"H1-rte-scratch", "H2-rte", *(f"H5-rte-{name}" for name in variants)}
    assert all(verdict["observed"] is not None for verdict in of.values())


def test_claims_about_gpt2_are_not_judged_for_other_architectures(capsys, tiny_bert, rest, tmp_path):
    run(capsys, "report", "--model", tiny_bert, "--task", "rte", "--seeds", 1, "--claim", "C2", "--claim", "H2",
        "--json", tmp_path / "v.json", *rest)  # fmt: skip
    assert [verdict["id"] for verdict in json.loads((tmp_path / "v.json").read_text())["verdicts"]] == ["C2-rte"]
    line = told(capsys, "report", "--model", tiny_bert, "--task", "rte", "--claim", "H2", *rest)
    assert line == "bertsecrets: H2-rte applies only to gpt2 models: choose such a model with --model"


def test_a_baseline_of_other_rows_is_refused_before_anything_is_measured(capsys, tiny_bert, rest, tmp_path):
    words = ("report", "--model", tiny_bert, "--task", "rte", "--claim", "C2", "--seeds", 1, *rest)
    words = (*words, "--store", tmp_path / "runs", "--baseline", tmp_path / "accepted.json")
    run(capsys, *words, "--update-baseline")
    shutil.rmtree(tmp_path / "runs")
    line = told(capsys, *words, "--limit", 6)
    assert "is the baseline of another run (limits of C2-rte: all rows -> limit 6): run again with" in line
    assert not (tmp_path / "runs").exists()


def test_expensive_claims_are_judged_only_by_name(capsys, tiny_bert, rest):
    planned = ("plan", "--model", tiny_bert, "--task", "rte", "--seeds", 1, "--json")
    of_kinds = '"kind": "resampled"'
    assert of_kinds not in run(capsys, *planned, *rest)
    assert of_kinds in run(capsys, *planned, "--claim", "G9", *rest)


def test_an_interrupt_while_files_are_written_waits_for_all_of_them(shared, tmp_path, monkeypatch, capsys):
    files = [tmp_path / name for name in ("v.json", "page.html")]
    arguments = ["report", "--task", "rte", "--claim", "C2", "--seeds", "1", *shared]
    arguments += ["--json", str(files[0]), "--html", str(files[1])]
    original = report_json.as_file

    def interrupted(*arguments, **options):
        os.kill(os.getpid(), signal.SIGTERM)
        return original(*arguments, **options)

    monkeypatch.setattr(report_json, "as_file", interrupted)
    assert main(arguments) == 128 + signal.SIGTERM
    assert all("C2-rte" in file.read_text("utf-8") for file in files)
    assert capsys.readouterr().err.splitlines()[-1].startswith("bertsecrets: interrupted")


# ---------------------------------------------------------------------- several models


CLAIM = ("--task", "rte", "--claim", "C1")


@pytest.fixture(scope="module")
def other(tmp_path_factory):
    return save_bert(tmp_path_factory.mktemp("models") / "other-bert", seed=1)


def test_several_models_share_one_page(shared, other, tmp_path, capsys):
    file = tmp_path / "page.html"
    models = ("--model", str(other), "--model", shared[1])  # the first is named twice, and judged once
    assert main(["report", *CLAIM, *shared, *models, "--html", str(file)]) in (0, 1)
    first, output = shared[1], capsys.readouterr().out
    assert re.findall(rf"^(?:{first}|{other})$", output, re.M) == [first, str(other)]
    page = file.read_text()
    again = re.findall(r"<code>(bertsecrets report.*?--claim C1-rte)</code>", page)
    assert [arguments.count("--model") for arguments in again] == [1, 1]
    assert all(f"--model {model} --claim" in words for model, words in zip((first, other), again, strict=True))
    groups = re.findall(r'<optgroup label="(.*?)">', page)
    assert groups == [f"{model}, RTE" for model in (first, other)]  # in the attention viewer


# ---------------------------------------------------------------------- the attention viewer of the page


@pytest.fixture
def page(shared, tmp_path):
    def make(*more: str) -> str:
        file = tmp_path / "page.html"
        assert main(["report", "--task", "rte", "--claim", "C1", *shared, "--html", str(file), *more]) in (0, 1)
        return file.read_text()

    return make


@pytest.mark.slow
def test_a_page_shows_the_requested_number_of_examples(page):
    pages = [page(*options) for options in (("--examples", "0"), ("--examples", "2"), ())]
    assert [text.count('<option value="0 ') for text in pages] == [0, 2, 3]
    assert ['id="maps"' in text for text in pages] == [False, True, True]


def test_a_report_without_a_page_needs_no_extra(capsys, shared, monkeypatch):
    monkeypatch.setitem(sys.modules, "altair", None)
    monkeypatch.delitem(sys.modules, "bertsecrets.report.viewer", raising=False)
    assert "G1-luck" in run(capsys, "report", "--task", "rte", "--claim", "G1-luck", *shared)


def test_nothing_is_trained_again_for_a_page(page, runs, tmp_path, monkeypatch):
    assert 'id="maps"' in page()
    for folder in (runs / "checkpoints").glob("rte-pretrained-*"):
        shutil.rmtree(folder)
    assert 'id="maps"' in page()  # from the store
    for folder in (runs / "measurements").glob("example-maps-*"):
        shutil.rmtree(folder)
    monkeypatch.setattr("bertsecrets.models.training.finetune.finetune", None)
    shown = page()
    assert 'id="maps"' not in shown
    assert "its checkpoint was not kept" in shown


def test_a_page_of_saved_measurements_shows_the_maps_that_were_saved(shared, tmp_path, capsys):
    model = shared[shared.index("--model") + 1]
    for measure in ("attention-change", "example-maps"):
        assert main(["measure", measure, "--task", "rte", *shared, "--save", str(tmp_path / "kept")]) == 0
    arguments = ["report", "--measurements", str(tmp_path / "kept"), "--model", model, "--claim", "C1"]
    assert main([*arguments, "--html", str(tmp_path / "page.html")]) in (0, 1)
    assert 'id="maps"' in (tmp_path / "page.html").read_text()


def test_a_task_brings_the_claims_about_the_bare_encoder_and_nothing_of_other_tasks(capsys, tiny_bert, rest, tmp_path):
    frames = tmp_path / "frames.jsonl"
    frames.write_text('{"sentence": "Her eyes shone .", "target": "shone", "core_elements": ["Her eyes"]}\n')
    assert main(["plan", "--model", str(tiny_bert), "--task", "rte", "--frames", str(frames), *map(str, rest)]) == 0
    captured = capsys.readouterr()
    assert "frame-heads" in captured.out  # for B3-gap, which applies to any weights
    assert "mrpc" not in captured.out.lower()
    left_out = captured.err.split("left out (")[1].split(")")[0].split(", ")
    assert {"D2-all-mean", "G6-all-pair"} <= set(left_out)
