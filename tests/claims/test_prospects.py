"""Cases that a task's examples cannot decide even for a model as published: they are listed, but not measured."""

import json
import shutil
from dataclasses import replace

import pytest
from calls import run
from faults import pytest_benchmarks

from bertsecrets.claims import prospects, requirements
from bertsecrets.claims.prospects import Prospect, Prospects, too_few_examples, too_few_maps
from bertsecrets.claims.schema import find_cases, select_cases
from bertsecrets.judging import attempt
from bertsecrets.measures.special_tokens import SpecialTokens
from bertsecrets.settings import project_path

LINE = "cannot be decided on RTE (needs about 1,100 examples)"


def prospect(decided, *, truth=0.7, interval=(-0.7, 2.1), contradicted=False):
    """Return a prospect with this proportion of decided runs and this interval due to RTE's 277 examples alone."""
    outcomes = {name: {"reproduced": decided, "inconclusive": 1 - decided} for name in ("auto", "1", "5")}
    return Prospect(
        worlds=10,
        truth=truth,
        contradicted=contradicted,
        outcomes=outcomes,
        seeds=5.0,
        decided_by=(0.0, 0.0, 0.0, 0.0, decided),
        examples=277,
        examples_interval=interval,
    )


@pytest.fixture(autouse=True)
def simulated(monkeypatch):
    """Prospects in which G1 on RTE is decided in one of ten runs, because there are too few examples."""
    prospects_on_record = Prospects(assumptions=(), cases={"G1-rte": prospect(0.1), "G1-mrpc": prospect(0.9)})
    monkeypatch.setattr(prospects, "prospects", lambda: prospects_on_record)
    return prospects_on_record


def chosen(*claims):
    (case,) = (case for case in select_cases(claims, ["rte"]) if str(case) == "G1-rte")
    return case


def needs(examples):
    return f"cannot be decided on RTE (needs about {examples} examples)"


@pytest.mark.parametrize(
    ("case", "of", "line"),
    [
        ("G1-rte", prospect(0.49), LINE),  # the half-width 1.4 is twice the true value: four times the examples
        ("G1-rte", prospect(0.5), ""),
        ("G1-rte", prospect(0.1, interval=(0.1, 1.3)), ""),  # the cause is the seed variance, not the examples
        ("G1-rte", prospect(0.1, interval=(-1.4, 0.0)), needs("2,500")),  # the low end must be 3 times as close to .7
        ("G1-rte", prospect(0.1, truth=0.0), ""),  # no number of examples decides it
        ("G1-rte", prospect(0.1, truth=-0.7, interval=(-2.1, 0.7), contradicted=True), ""),  # it cannot deviate
        ("G4-rte", prospect(0.1, truth=-0.7, interval=(-2.1, 0.7), contradicted=True), LINE),  # but this one can
        ("B4-rte", prospect(0.1, truth=0.0, interval=(-1.0, 1.0)), LINE),  # the limit is -.5
        ("G1-mnli", prospect(0.1), ""),  # MNLI has 9 815 rows
    ],
)
def test_a_case_is_listed_if_the_interval_due_to_examples_does_not_decide_it(simulated, case, of, line):
    simulated.cases[case] = of
    assert too_few_examples(find_cases(case)[0]) == line


MAPS = "cannot be decided on RTE without annotated maps of bert-base-uncased (bertsecrets lab annotate)"


@pytest.mark.parametrize(
    ("case", "decided", "model", "line"),
    [
        ("A3-rte", 0.4, "bert-base-uncased", MAPS),
        ("A3-rte", 0.4, "minilm", ""),  # 242 of its maps were annotated
        ("A3-rte", 0.4, "mpnet", ""),  # annotated as all-mpnet-base-v2
        ("A3-rte", 0.6, "bert-base-uncased", ""),
        ("A5-rte", 0.4, "bert-base-uncased", ""),  # a change: the classifier makes the same errors before fine-tuning
        ("A2-rte", 0.4, "bert-base-uncased", ""),  # a figure, not an order
    ],
)
def test_an_order_of_class_shares_that_only_annotated_maps_decide_is_listed(simulated, case, decided, model, line):
    simulated.cases[case] = prospect(decided, interval=(0.5, 0.9))
    (found,) = find_cases(case)
    assert too_few_maps(found, model) == requirements.not_judged(replace(found, named=False), model) == line
    assert requirements.not_judged(found, model) == ""


def test_rows_without_an_interval_due_to_examples_list_nothing(simulated):
    simulated.cases["G1-rte"] = Prospect.model_validate(
        prospect(0.1).model_dump(exclude={"examples", "examples_interval"})
    )
    assert too_few_examples(find_cases("G1-rte")[0]) == ""


@pytest.mark.parametrize(("claims", "judged"), [((), False), (("G",), False), (("G1",), True), (("G", "g1-RTE"), True)])
def test_it_is_judged_only_if_it_is_named(claims, judged):
    case, needed = chosen(*claims), []

    class Bench:
        def missing(self, measure, task_name):
            return None

        def measurement(self, measure, subject, **options):
            needed.append(measure)

    assert bool(list(requirements.needed(Bench(), [case], "m", [1]))) == judged
    if judged:
        requirements.measure_case(Bench(), case, "m", [1, 2])
        assert needed == ["head-ablation"] * 2
        return
    verdict = attempt(case, lambda: requirements.measure_case(Bench(), case, "m", [1, 2]))
    assert (verdict.outcome, verdict.reason, verdict.p_against, needed) == ("not applicable", LINE, None, [])


def test_plan_and_explain_list_it(capsys, shared, tmp_path):
    call = ("plan", *shared, "--task", "rte", "--seeds", 1, "--store", tmp_path)
    out = run(capsys, *call, "--claim", "G")
    assert f"G1-rte {LINE}" in out
    assert json.loads(run(capsys, *call, "--claim", "G", "--json"))["not_judged"] in out
    assert LINE not in run(capsys, *call, "--claim", "G1")
    assert LINE in run(capsys, "explain", "G1-rte")


def test_pytest_lists_it_in_its_header_and_skips_it(tmp_path):
    expected = tmp_path / "expected"
    shutil.copytree(project_path("expected"), expected)
    data = Prospects(assumptions=(), cases={"G1-rte": prospect(0.1)})
    (expected / "as-published.json").write_text(data.model_dump_json())
    for words, listed in (("rte and G", True), ("G1-rte", False)):
        _, out = pytest_benchmarks(
            "--collect-only", "-q", "-k", words, output=tmp_path, BERTSECRETS_EXPECTED=str(expected)
        )
        assert ("[G1-rte]" in out, LINE in out) == (True, listed)


def test_report_lists_it_and_shows_it_in_the_table_and_in_files_without_measuring(
    capsys, shared, simulated, tmp_path, monkeypatch
):
    monkeypatch.setattr(SpecialTokens, "run", None)
    cases = ("E1-rte", "E1-rte-crossing", "E5-rte-cls", "E5-rte-sep", "E6-rte", "E6-rte-pretrained")
    simulated.cases.update(dict.fromkeys(cases, prospect(0.1, truth=900.0, interval=(-900.0, 2700.0))))
    markdown, data = tmp_path / "r.md", tmp_path / "r.json"
    files = ("--markdown", markdown, "--json", data)
    out = run(capsys, "report", *shared, "--task", "rte", "--seeds", 1, "--claim", "E", *files)
    before, table = out.split("4.4 Special tokens")
    listed, _, _ = before.partition(f" {LINE}")
    assert set(listed.rpartition("6 claims not judged: ")[2].split(", ")) == set(cases[:4])  # E6 needs more examples
    assert "(name one to judge it anyway, unless its band is too wide)" in before
    assert [line.split()[-2:] for line in table.splitlines() if line.startswith("E1")] == [["applicable", "a"]] * 2
    assert f"a: {LINE}" in table
    assert "6 claims: 0 reproduced, 0 deviate, 6 not applicable" in table
    assert f"not applicable: {LINE}" in markdown.read_text()
    verdicts = {of["id"]: (of["verdict"], of["reason"]) for of in json.loads(data.read_text())["verdicts"]}
    assert verdicts["E1-rte"] == ("not applicable", LINE)
