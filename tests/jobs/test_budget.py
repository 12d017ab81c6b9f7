"""`--seeds auto`: seeds are added while they can decide a claim and the estimated cost fits the budget."""

import json

import pytest
from calls import run, told

from bertsecrets.claims.schema import find_case
from bertsecrets.cli.main import main
from bertsecrets.errors import UserError
from bertsecrets.jobs.estimates import JobEstimate, seed_cost, within
from bertsecrets.judging import SeedBudget
from bertsecrets.session import Session
from bertsecrets.texts.corpus import write_corpus
from bertsecrets.types import Request, Subject

pytestmark = pytest.mark.usefixtures("quick", "same_threads")
E1 = ("--task", "rte", "--claim", "E1")


def judged(capsys, tmp_path, command, *options) -> dict[str, dict]:
    file = tmp_path / "verdicts.json"
    file.unlink(missing_ok=True)
    main([command, *map(str, options), "--json", str(file)])
    return {verdict["id"]: verdict for verdict in json.loads(file.read_text())["verdicts"]}


@pytest.fixture(scope="module")
def glue(tmp_path_factory):
    """A corpus with enough validation rows to decide a claim."""
    return write_corpus(tmp_path_factory.mktemp("corpus") / "glue", 64, 40)


@pytest.fixture
def shared(shared, glue):
    return [*shared[:2], "--glue", str(glue), *shared[4:]]


@pytest.fixture
def session(tiny_bert, glue, runs):
    def open_session(**more) -> Session:
        given = {"model": str(tiny_bert), "glue": glue, "store": runs, "offline": True, "device": "cpu"}
        return Session(**(given | {"allow_unofficial_data": True, "seeds": "auto"} | more))

    return open_session


def test_the_first_seed_is_measured_whatever_the_budget_and_no_other_that_it_does_not_afford(capsys, shared, tmp_path):
    verdict = judged(
        capsys, tmp_path, "report", *E1, *shared, "--seeds", "auto", "--budget", "0.001s", "--store", tmp_path
    )
    assert verdict["E1-rte"]["seeds"] == [1]


def test_seeds_are_added_up_to_the_first_decision_and_the_verdict_says_so(capsys, shared, tmp_path):
    verdict = judged(capsys, tmp_path, "report", *E1, *shared, "--seeds", "auto", "--budget", "2h")["E1-rte"]
    assert 2 <= len(verdict["seeds"]) <= 5
    assert f"analysis after {len(verdict['seeds'])} of at most 5 seeds (97.4 % interval)" in verdict["remarks"]
    again = judged(capsys, tmp_path, "report", *E1, *shared, "--seeds", "auto", "--budget", "0.001s")["E1-rte"]
    assert {name: again[name] for name in ("verdict", "interval", "seeds")} == {
        name: verdict[name] for name in ("verdict", "interval", "seeds")
    }  # stored seeds cost nothing, and the interim analyses are the same


def test_saved_measurements_have_the_same_interim_analyses_and_no_budget(capsys, shared, tmp_path):
    for seed in (1, 2, 3):
        run(capsys, "measure", "special-tokens", "--task", "rte", *shared, "--seed", seed, "--save", tmp_path / "kept")
    options = ("--claim", "E1", "--model", shared[1], "--seeds", "auto", "--measurements", tmp_path / "kept")
    verdict = judged(capsys, tmp_path, "report", *options)["E1-rte"]
    assert verdict["remarks"][0].startswith("analysis after 3 ")
    assert len(verdict["seeds"]) == 3
    assert "--budget has no effect on --measurements" in told(capsys, "report", *options, "--budget", "1h")


def test_a_further_seed_must_fit_into_the_budget_with_the_first_seeds_of_other_claims(session, capsys):
    case, statistics = find_case("E1", "rte"), find_case("I6", "rte")
    cost = seed_cost(session(), [statistics])
    assert SeedBudget(7200, cost).affords([case], 2)
    assert not SeedBudget(0.001, cost).affords([case], 9)
    session().measure("special-tokens", "rte", seed=2)
    assert seed_cost(session(), [find_case("D1-random", "rte")])([case], 2) == 0  # stored; pending jobs are not counted
    assert capsys.readouterr().err.startswith("bertsecrets: not adding seed 9 for E1-rte: it may need ")


def test_a_plan_lists_as_many_seeds_as_the_budget_is_enough_for(capsys, shared, tmp_path):
    options = ("plan", "--task", "rte", "--claim", "G1", *shared, "--seeds", "auto")
    assert json.loads(run(capsys, *options, "--budget", "9h", "--json"))["seeds"] == [1, 2, 3, 4, 5]
    assert json.loads(run(capsys, *options, "--budget", "0.001s", "--json"))["seeds"] == [1]
    assert "a budget of 9 h 0 min is enough for 5 of at most 5 seeds" in run(capsys, *options, "--budget", "9h")
    unknown = (*options, "--store", tmp_path / "empty", "--budget", "9h", "--json")
    assert json.loads(run(capsys, *unknown))["seeds"] == [1]


def test_a_plan_is_cut_where_the_next_seed_would_exceed_the_budget():
    requests = [Request(None, Subject("m", "rte", "pretrained", seed)) for seed in (1, 2, 3)]
    estimates = [JobEstimate(request, "to do", 60.0, "a test", 0, 0) for request in requests]
    assert [len(within(estimates, budget, 1)) for budget in (30, 60, 119, 120, 180, None)] == [1, 1, 1, 2, 3, 3]
    assert len(within(estimates, 120, at_once=2)) == 3


@pytest.mark.parametrize("budget", ["20", "min", "0min", "-5min", "20 minutes", "1e9s", ""])
def test_an_invalid_budget_is_reported_in_one_line(capsys, shared, budget):
    told_so = told(capsys, "report", *E1, *shared, "--seeds", "auto", f"--budget={budget}")
    assert f"--budget {budget!r} is not a duration: give one such as 90s, 20min or 2h" in told_so


def test_a_budget_is_for_seeds_that_are_added(capsys, shared):
    message = "--budget has no effect on a fixed number of seeds: give --seeds auto, or leave it out"
    assert message in told(capsys, "report", *E1, *shared, "--seeds", 3, "--budget", "20min")


def test_seeds_are_a_number_or_auto(capsys, shared, session):
    assert "some is neither a whole number nor auto" in told(capsys, "report", *E1, *shared, "--seeds", "some")
    with pytest.raises(UserError, match="^seeds some is neither a whole number nor auto"):
        session(seeds="some")
