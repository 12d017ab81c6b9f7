"""Which claims are judged: those about one architecture of its models alone, those that cost much where named."""

import json

import pytest
from calls import run, told
from zoo import save_family

from bertsecrets.cli.main import main

pytestmark = pytest.mark.usefixtures("quick")


@pytest.fixture(scope="module")
def gpt2(tmp_path_factory):
    """A GPT-2 that gives both answers; with other seeds it gives one alone."""
    return save_family("gpt2", tmp_path_factory.mktemp("models") / "gpt2", seed=3)


@pytest.fixture
def rest(tiny_glue, runs):
    return ("--glue", tiny_glue, "--store", runs, "--device", "cpu", "--offline", "--allow-unofficial-data")


def test_the_claims_about_gpt2_run_on_gpt2(gpt2, rest, tmp_path):
    claims = [word for name in ("H1-scratch", "H2", "H5") for word in ("--claim", name)]
    words = ["report", "--model", gpt2, "--task", "rte", "--seeds", 1, *claims, "--json", tmp_path / "v.json", *rest]
    assert main(list(map(str, words))) in (0, 1)  # a claim may deviate
    of = {one["id"]: one for one in json.loads((tmp_path / "v.json").read_text())["verdicts"]}
    assert set(of) == {"H1-rte-scratch", "H2-rte", *(f"H5-rte-{name}" for name in ("best", "mean", "worst"))} | {
        "H5-rte-first-layer"
    }
    assert all(one["observed"] is not None for one in of.values())


def test_they_are_not_judged_of_another_architecture(capsys, tiny_bert, rest, tmp_path):
    run(capsys, "report", "--model", tiny_bert, "--task", "rte", "--seeds", 1, "--claim", "C2", "--claim", "H2",
        "--json", tmp_path / "v.json", *rest)  # fmt: skip
    assert [one["id"] for one in json.loads((tmp_path / "v.json").read_text())["verdicts"]] == ["C2-rte"]
    line = told(capsys, "report", "--model", tiny_bert, "--task", "rte", "--claim", "H2", *rest)
    assert line == "bertsecrets: H2-rte is about gpt2: name one with --model"


def test_what_costs_much_is_judged_only_where_it_is_named(capsys, tiny_bert, rest):
    planned = ("plan", "--model", tiny_bert, "--task", "rte", "--seeds", 1, "--json")
    of_kinds = '"kind": "resampled"'
    assert of_kinds not in run(capsys, *planned, *rest)
    assert of_kinds in run(capsys, *planned, "--claim", "G9", *rest)
