"""Claims that depend on the meaning of a word: judged under both readings, and inconclusive if these disagree."""

import dataclasses

import pytest
from measurements import SETTINGS, of_id, shares

from bertsecrets.claims.band import format_interval, format_number
from bertsecrets.claims.judge import judge, under, under_readings
from bertsecrets.claims.schema import cases
from bertsecrets.patterns.readings import READINGS
from bertsecrets.report.text import describe, verdict_row

HALF = of_id("A4-rte-half")  # heterogeneous maps below 50 %


def verdict(case=HALF, seeds=3, **heterogeneous):
    return judge(case, [{"patterns": shares(seed, **heterogeneous)} for seed in range(1, seeds + 1)], SETTINGS)


@pytest.mark.parametrize(("special", "stripes", "outcome"), [(30, 10, "reproduced"), (60, 80, "deviates")])
def test_where_both_readings_say_the_same_that_is_the_verdict(special, stripes, outcome):
    judgement = verdict(special=special, stripes=stripes)
    assert judgement.outcome == outcome
    assert {name: of_reading.outcome for name, of_reading in judgement.readings.items()} == dict.fromkeys(
        READINGS, outcome
    )
    assert judgement.observed == pytest.approx(special, abs=1)


def test_disagreeing_readings_are_inconclusive_and_both_are_shown():
    judgement = verdict(special=60, stripes=10)
    assert judgement.outcome == "inconclusive"
    both = judgement.readings["special"], judgement.readings["stripes"]
    special, stripes = (
        f"{format_number(of_reading.observed)} {format_interval(of_reading.interval)}" for of_reading in both
    )
    assert judgement.reason == f"the readings disagree: special deviates ({special}), stripes reproduced ({stripes})"
    assert judgement.power == ""  # seeds cannot decide what a word means
    assert not judgement.open
    for shown in (describe(judgement), " ".join(verdict_row(judgement))):
        assert f"special {special}, stripes {stripes}" in shown


def test_each_reading_is_judged_as_if_it_were_the_only_one():
    both = verdict(special=45, stripes=52)
    for reading in READINGS:
        alone = verdict(under(HALF, reading), special=45, stripes=52)
        own = both.readings[reading]
        assert (own.outcome, own.observed, own.interval) == (alone.outcome, alone.observed, alone.interval)
        assert own.case.claim.arguments["reading"] == reading


def test_error_rates_are_those_at_which_every_reading_says_so():
    judgement = verdict(special=45, stripes=10)
    assert judgement.p_against == max(of_reading.p_against for of_reading in judgement.readings.values())
    assert judgement.p_for == max(of_reading.p_for for of_reading in judgement.readings.values())


def test_the_data_has_both_readings():
    data = verdict(special=60, stripes=10).as_json()
    assert {name: of_reading["verdict"] for name, of_reading in data["readings"].items()} == {
        "special": "deviates", "stripes": "reproduced"
    }  # fmt: skip
    assert data["observed"] == data["readings"]["special"]["observed"]


def test_a_model_of_which_some_maps_are_no_numbers_is_degenerate_once():
    whole = shares(1, special=60, stripes=10)
    corrupt = {**whole.samples, "stripes_predicted": whole.samples["stripes_predicted"] - 1}
    judgement = judge(HALF, [{"patterns": dataclasses.replace(whole, samples=corrupt)}], SETTINGS)
    assert (judgement.outcome, judgement.readings) == ("degenerate", {})


def test_claims_about_classes_of_maps_are_judged_under_each_reading_unless_they_name_one():
    assert not under_readings(of_id("A4-rte-columns"))  # it is about [SEP] and [CLS]
    assert not under_readings(of_id("A2-rte"))  # it quotes section 4.1
    hanging = {case.claim.id for case in cases() if under_readings(case)}
    assert hanging == {"A1", "A2", "A3", "A4", "A5", "C3", "F1"}
