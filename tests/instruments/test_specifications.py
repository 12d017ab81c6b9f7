"""Specification curves: the choices of a claim, each combination once, and the effect of each choice."""

import json
import xml.etree.ElementTree as ET

import pytest
from calls import run, told
from measurements import of_id

from bertsecrets.claims.loading import load_claims
from bertsecrets.claims.quantities import QUANTITIES
from bertsecrets.claims.verdict import Verdict
from bertsecrets.errors import UserError
from bertsecrets.session import Session
from bertsecrets.settings import JudgeParams
from bertsecrets.texts.corpus import write_corpus
from instruments.specifications import (
    CHOICES,
    OF_CLAIMS,
    Curve,
    Inputs,
    Specification,
    choices_of,
    chosen_cases,
    combinations,
    curve,
    options_for,
    specification,
    specified,
)

SETTINGS = JudgeParams(confidence=0.95, resamples=100, seed=1)


def switched(*names: str, claim="C1") -> dict:
    """Return the combination with these alternatives of a claim switched on."""
    return {name: name in names for name in OF_CLAIMS[claim]}


# ---------------------------------------------------------------------- the table


def test_every_choice_of_a_claim_changes_how_it_is_measured_or_computed():
    for name, choices in OF_CLAIMS.items():
        claim = next(claim for claim in load_claims() if claim.name == name)
        quantity = QUANTITIES[claim.quantity]
        for choice in map(CHOICES.__getitem__, choices):
            taken = {
                option for need in quantity.needs.values() for option in options_for(need.measure, {choice.name: True})
            }
            assert taken | set(choice.arguments), (name, choice)
            assert taken == set(choice.options), (name, choice)
            if choice.arguments:
                quantity.arguments.model_validate({**claim.arguments, **choice.arguments})


def test_without_alternatives_a_claim_is_unchanged():
    for case in (of_id("C1-rte"), of_id("F1-rte")):
        assert specified(case, switched(claim=case.claim.id)) == case
        assert options_for("attention-change", switched(claim=case.claim.id)) == {}


# ---------------------------------------------------------------------- combinations


def test_all_combinations_come_once_and_those_nearest_to_this_suite_first():
    every = list(combinations(choices_of(of_id("C1-rte"))))
    assert len({tuple(combination.items()) for combination in every}) == len(every) == 2**5
    changes = [sum(combination.values()) for combination in every]
    assert changes == sorted(changes)
    assert changes[0] == 0


def test_unknown_choices_and_claims_without_choices_are_refused():
    with pytest.raises(UserError, match="unknown choice 'paddin': did you mean padding"):
        choices_of(of_id("C1-rte"), ["paddin"])
    with pytest.raises(UserError, match="claim C2 has no specifications: give one of C1, C3"):
        chosen_cases(["C2"], "rte")
    with pytest.raises(UserError, match="C1 is not about qqp"):
        chosen_cases(["C1"], "qqp")
    assert [str(case) for case in chosen_cases(None, "qqp")] == ["C3-qqp", "E1-qqp", "F1-qqp"]


# ---------------------------------------------------------------------- the curve


def judged(case, combination, outcome="reproduced", observed=1.0):
    return Specification(combination, Verdict(case, outcome, "a test", observed=observed))


def test_shares_and_medians_are_over_all_combinations():
    case = of_id("E1-rte")

    def by_way(combination):
        sign = -1.0 if combination["casing"] else 1.0
        outcome = "inconclusive" if combination["casing"] else "reproduced"
        return judged(case, combination, outcome, sign * (1 + 2 * combination["separators"]))

    of_two = Curve(case, tuple(map(by_way, combinations(choices_of(case, ["separators", "casing"])))), ("rows",))
    assert (of_two.share_holds, of_two.share_agrees) == (0.5, 0.5)
    assert of_two.medians() == {"separators": {"larger": 0.0, "sum": 0.0}, "casing": {"lower": 2.0, "cased": -2.0}}
    data = of_two.as_json()
    assert data["specifications"] == len(data["curve"]) == 4
    assert data["curve"][0]["choices"] == {"separators": "larger", "casing": "lower"}
    assert data["without_effect"] == ["rows"]


def test_a_claim_that_holds_below_a_limit_agrees_below_it():
    case = of_id("C1-rte")
    assert Specification({}, Verdict(case, "inconclusive", "", observed=-0.1)).agrees
    assert not Specification({}, Verdict(case, "inconclusive", "", observed=0.1)).agrees
    assert not Specification({}, Verdict(case, "inconclusive", "")).agrees


# ---------------------------------------------------------------------- measurements


@pytest.fixture(scope="module")
def glue(tmp_path_factory):
    """A corpus whose validation file has quotation marks that swallow rows if quotes are parsed."""
    folder = write_corpus(tmp_path_factory.mktemp("corpus") / "glue", 64, 40)
    file = next(folder.glob("*/dev.tsv"))
    header, first, *rest = file.read_text(encoding="utf-8").splitlines()
    number, sentence, *others = first.split("\t")
    last = rest[1].split("\t")
    last[1] += '"'
    lines = [header, "\t".join([number, f'"{sentence}', *others]), rest[0], "\t".join(last), *rest[2:]]
    file.write_text("\n".join(lines) + "\n", encoding="utf-8")
    return folder


@pytest.fixture
def session(tiny_bert, glue, runs, quick):
    return Session(model=str(tiny_bert), glue=glue, store=runs, offline=True, device="cpu", allow_unofficial_data=True)


@pytest.mark.slow
@pytest.mark.parametrize("choice", ["quoting", "casing", "separators"])
def test_a_choice_changes_the_observed_value(session, choice):
    ours, changed = (
        specification(session, of_id("E1-rte"), combination, session.model, [1], SETTINGS).verdict
        for combination in (switched(claim="E1"), switched(choice, claim="E1"))
    )
    assert ours.observed != changed.observed
    assert ours.observed == session.judge("E1", "rte", seeds=1).observed


def test_a_choice_that_changes_no_input_is_idle(session):
    inputs = Inputs(session.resources, session.ref(session.model), "rte")
    idle = inputs.idle(choices_of(of_id("C1-rte")))
    assert "rows" in idle  # all 40 rows are read either way
    assert "quoting" not in idle
    assert inputs.digest(switched()) == inputs.digest(switched("rows", "padding"))
    assert inputs.digest(switched()) != inputs.digest(switched("quoting"))


def test_choices_without_effect_are_left_out_and_named(session):
    case = of_id("E1-rte")
    made = curve(session, case, choices_of(case, ["rows", "casing"]))
    assert made.idle == ("rows",)
    assert [each.ways for each in made.specifications] == [{"casing": "lower"}, {"casing": "cased"}]


# ---------------------------------------------------------------------- the command

FEW = ("instruments", "specifications", "--task", "rte", "--claim", "C1", "E1", "--choices", "padding,casing")


def test_a_run_prints_how_often_claims_hold_and_the_effect_of_each_choice(quick, capsys, shared, tmp_path):
    out = run(capsys, *FEW, *shared, "--json", tmp_path / "curves.json", "--figures", tmp_path / "drawn")
    curves = {curve["id"]: curve for curve in json.loads((tmp_path / "curves.json").read_text())}
    assert {name: curve["specifications"] for name, curve in curves.items()} == {"C1-rte": 4, "E1-rte": 2}
    assert "E1-rte: reproduced in 0 %, same sign in " in out
    assert "casing (case of an uncased model's inputs): median lower" in out
    drawn = ET.parse(tmp_path / "drawn" / "C1-rte.svg").getroot()
    assert drawn.tag.endswith("svg")
    assert len(list(drawn.iter())) > 20


def test_bad_input_is_reported_in_one_line(quick, capsys, shared):
    assert "unknown choice 'pading'" in told(capsys, *FEW[:-1], "pading", *shared)
    assert "unknown claim 'C99'" in told(capsys, *FEW[:4], "--claim", "C99", *shared)
    assert "unknown task 'rtee'" in told(capsys, *FEW[:3], "rtee", *shared)
