"""Cases that a task's examples rarely decide for a model as published are explained."""

import pytest
from calls import run

from bertsecrets.claims import prospects
from bertsecrets.claims.loading import find_case, find_cases
from bertsecrets.claims.prospects import Prospect, Prospects, advice
from bertsecrets.formats import PASSES


def prospect(decided, *, truth=0.7, interval=(-0.7, 2.1), **more):
    """Return a prospect with this proportion of decided runs and this interval due to RTE's 277 examples alone."""
    rates = {"reproduced": decided, "inconclusive": 1 - decided}
    outcomes = dict.fromkeys(("auto", "3", "5"), rates)
    facts = {"worlds": 10, "seeds": 5.0, "examples": 277, "contradicted": False, **more}
    return Prospect(truth=truth, outcomes=outcomes, examples_interval=interval, **facts)


@pytest.fixture(autouse=True)
def simulated(monkeypatch):
    """Prospects in which G1 on RTE is decided in one of ten runs, because there are too few examples."""
    prospects_on_record = Prospects(assumptions=(), cases={})
    for name, decided in {"G1-rte": 0.1, "G1-mrpc": 0.9}.items():
        prospects_on_record.cases[name] = of_case(name, prospect(decided))
    monkeypatch.setattr(prospects, "prospects", lambda: prospects_on_record)
    return prospects_on_record


def of_case(name, recorded):
    """Return a prospect with the current definition of a case."""
    return recorded.model_copy(update={"definition": find_case(name).definition})


NEEDS = "if the model is as published, {} would be needed to decide the claim; {}"
AGAINST = {"truth": -0.7, "interval": (-2.1, 0.7), "contradicted": True}


def examples(count):
    return NEEDS.format(f"about {count} examples", "RTE has 277")


def more_seeds(task):
    return NEEDS.format("more than 5 seeds", f"{task} has enough examples")


@pytest.mark.parametrize(
    ("case", "of", "line"),
    [
        (
            "G1-rte",
            prospect(0.49),
            examples("1,300"),
        ),  # from .7 to the smallest effect, .05, is .65, and 277 (1.4 / .65)^2 = 1 285
        ("G1-rte", prospect(0.5), ""),
        ("G1-rte", prospect(0.1, interval=(0.1, 1.3)), more_seeds("RTE")),
        ("G1-rte", prospect(0.1, interval=(-1.4, 0.0)), examples("2,900")),
        ("G1-rte", prospect(0.1, truth=0.05), ""),  # no number of examples decides it
        ("G1-rte", prospect(0.1, **AGAINST), ""),  # it cannot deviate
        ("G4-rte", prospect(0.1, **AGAINST), examples("380")),  # but this one can
        ("B4-rte-by-task", prospect(0.1, truth=0.0, interval=(-1.0, 1.0)), examples("1,100")),  # the limit is -.5
        ("G1-mnli", prospect(0.1), more_seeds("MNLI-m")),
    ],
)
def test_advice_names_the_examples_or_the_seeds_that_would_decide_it(simulated, case, of, line):
    simulated.cases[str(find_cases(case)[0])] = of_case(case, of)
    assert advice(find_cases(case)[0]) == line


def test_rows_without_an_interval_due_to_examples_say_nothing(simulated):
    known = prospect(0.1).model_dump(exclude={"examples", "examples_interval"})
    simulated.cases["G1-rte"] = of_case("G1-rte", Prospect.model_validate(known))
    assert advice(find_cases("G1-rte")[0]) == ""


def test_rates_of_another_definition_are_not_quoted(simulated, capsys):
    simulated.cases["G1-rte"] = prospect(0.1).model_copy(update={"definition": "of an earlier version"})
    assert "simulated runs" not in run(capsys, "explain", "G1-rte")


def test_explain_quotes_it(capsys):
    out = run(capsys, "explain", "G1-rte")
    assert "the claim is reproduced in 10 % [2, 40] of 10 simulated runs (auto, 5.0 seeds on average, 277 rows; " in out
    assert "as-published.json)" in out
    assert examples("1,300") in out


def test_both_kinds_of_pass_count_with_wilsons_interval():
    of = prospect(0.25, worlds=40)
    of.outcomes["auto"] = {"compatible": 0.15, "reproduced": 0.1, "inconclusive": 0.75}
    assert of.share(*PASSES) == pytest.approx(0.25)
    assert of.interval(PASSES) == pytest.approx((0.1419, 0.4019), abs=1e-4)  # statsmodels' proportion_confint
