"""Cases that the task's examples cannot decide even if the model is as published: they are listed, and cost nothing."""

import json
import shutil

import pytest
from calls import run
from faults import pytest_benchmarks

from bertsecrets.claims import prospects, requirements
from bertsecrets.claims.prospects import Prospect, Prospects, too_few_examples
from bertsecrets.claims.schema import find_cases, select_cases
from bertsecrets.judging import attempt
from bertsecrets.settings import project_path

LINE = "cannot be decided on RTE (needs about 530 examples)"


def prospect(decided, *, contradicted=False):
    outcomes = {name: {"reproduced": decided, "inconclusive": 1 - decided} for name in ("auto", "1", "5")}
    decided_by = (0.0, 0.0, 0.0, 0.0, decided)
    return Prospect(
        worlds=10, truth=0.7, contradicted=contradicted, outcomes=outcomes, seeds=5.0, decided_by=decided_by
    )


@pytest.fixture(autouse=True)
def simulated(monkeypatch):
    """G1 on RTE is decided in one of ten runs, for lack of examples."""
    prospects_on_record = Prospects(
        made="", code="", assumptions=(), cases={"G1-rte": prospect(0.1), "G1-mrpc": prospect(0.9)}
    )
    monkeypatch.setattr(prospects, "prospects", lambda: prospects_on_record)
    return prospects_on_record


def chosen(*claims):
    (case,) = (case for case in select_cases(claims, ["rte"]) if str(case) == "G1-rte")
    return case


@pytest.mark.parametrize(
    ("of", "line"),
    [
        (prospect(0.49), LINE),
        (prospect(0.5), ""),
        (prospect(0.1, contradicted=True), ""),  # K19's own figure contradicts it: no matter of examples
    ],
)
def test_a_case_that_is_decided_in_less_than_half_of_the_runs_names_the_examples_it_needs(simulated, of, line):
    """A gain of .72 points has a variance of .0072 * .9928 or more: (1.96 / .0072) ** 2 of it make 530 examples."""
    simulated.cases["G1-rte"] = of
    assert too_few_examples(find_cases("G1-rte")[0]) == line
    simulated.cases["G1-mnli"] = of  # 9 815 rows are enough
    assert too_few_examples(find_cases("G1-mnli")[0]) == ""


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
    data = Prospects(made="", code="", assumptions=(), cases={"G1-rte": prospect(0.1)})
    (expected / "as-published.json").write_text(data.model_dump_json())
    for words, listed in (("rte and G", True), ("G1-rte", False)):
        _, out = pytest_benchmarks(
            "--collect-only", "-q", "-k", words, output=tmp_path, BERTSECRETS_EXPECTED=str(expected)
        )
        assert ("[G1-rte]" in out, LINE in out) == (True, listed)
