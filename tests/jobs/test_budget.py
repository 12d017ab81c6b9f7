"""`--seeds auto`: seeds are added while they can decide a claim and another one like the last fits the budget."""

import json
from dataclasses import replace
from functools import partial

import numpy as np
import pytest
from calls import run, told
from measurements import scored
from sessions import local_session

from bertsecrets.claims import requirements
from bertsecrets.claims.loading import find_case
from bertsecrets.cli.main import main
from bertsecrets.jobs.prepare import PlannedRunner
from bertsecrets.texts.corpus import write_corpus

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


@pytest.fixture(autouse=True)
def learned(monkeypatch):
    """Judge the attention of tiny models although most of them give every example the same answer."""
    monkeypatch.setattr(requirements, "checkpoint_states", lambda bench, case: [])


@pytest.fixture
def shared(shared, glue):
    return [*shared[:2], "--glue", str(glue), *shared[4:]]


@pytest.fixture
def session(tiny_bert, glue, runs):
    return partial(local_session, model=tiny_bert, glue=glue, store=runs, seeds="auto")


def test_seeds_are_added_up_to_the_first_decision_and_the_verdict_says_so(capsys, shared, tmp_path):
    verdict = judged(capsys, tmp_path, "report", *E1, *shared, "--seeds", "auto", "--budget", "2h")["E1-rte"]
    assert 2 <= len(verdict["seeds"]) <= 5
    assert f"after {len(verdict['seeds'])} seeds (94.5 % interval)" in verdict["remarks"]
    again = judged(capsys, tmp_path, "report", *E1, *shared, "--seeds", "auto", "--budget", "0.001s")["E1-rte"]
    for name in ("verdict", "interval", "seeds"):  # stored seeds cost nothing, and the interim analyses are the same
        assert again[name] == verdict[name]


def test_saved_measurements_have_the_same_interim_analyses_and_no_budget(capsys, shared, tmp_path):
    for seed in (1, 2, 3):
        run(capsys, "measure", "special-tokens", "--task", "rte", *shared, "--seed", seed, "--save", tmp_path / "kept")
    options = ("--claim", "E1", "--model", shared[1], "--seeds", "auto", "--measurements", tmp_path / "kept")
    verdict = judged(capsys, tmp_path, "report", *options)["E1-rte"]
    assert verdict["remarks"][0].startswith("after 3 seeds ")
    assert len(verdict["seeds"]) == 3
    assert "--budget has no effect with --measurements" in told(capsys, "report", *options, "--budget", "1h")


def test_a_seed_is_stored_if_everything_that_the_claims_need_is_stored(session):
    session().measure("special-tokens", "rte", seed=6)
    runner = PlannedRunner(session())
    assert runner.is_stored([find_case("E1", "rte")], 6)
    assert not runner.is_stored([find_case("E1", "rte"), find_case("I6", "rte")], 6)
    assert not runner.is_stored([find_case("E1", "rte")], 7)


def test_a_fixed_number_of_seeds_replaces_one_that_learned_nothing(session, monkeypatch):
    """Seed 2 gives every example the same answer, so three seeds to judge take a fourth one."""
    target, by_seed = np.arange(277) % 2, {}
    for seed in range(1, 7):
        right = np.random.default_rng(seed).random(277) < 0.65
        answers = np.ones_like(target) if seed == 2 else np.where(right, target, 1 - target)
        scores = scored(answers, target, constant=seed == 2)
        by_seed[seed] = {"scores": replace(scores, subject=replace(scores.subject, seed=seed))}
    asked = lambda bench, case, model, seeds: [by_seed[seed] for seed in seeds]  # noqa: E731
    monkeypatch.setattr(requirements, "measure_case", asked)
    verdict = session(seeds=3).judge("D1-pretrained", "rte")
    assert verdict.seeds == (1, 3, 4)
    assert "1 left out: seed 2 (" in verdict.reason


def test_a_plan_lists_every_seed_that_auto_may_add(capsys, shared):
    options = ("plan", "--task", "rte", "--claim", "G1", *shared, "--seeds", "auto")
    assert json.loads(run(capsys, *options, "--json"))["seeds"] == [1, 2, 3, 4, 5]
