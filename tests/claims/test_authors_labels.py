"""Claims about classes of maps are judged in the words of their source, or by the labels of K19's authors."""

import dataclasses

import pytest
from measurements import SETTINGS, of_id, shares

from bertsecrets.claims.judge import READING, judge
from bertsecrets.claims.loading import cases
from bertsecrets.claims.quantities import QUANTITIES
from bertsecrets.claims.quantities.pattern_shares import AUTHORS_NOTE
from bertsecrets.measures.registry import get_measure


def verdict(case, model="m", seeds=5, **heterogeneous):
    """Return the verdict on shares by reading, each in percent of all maps."""
    by_seed = [shares(seed, **heterogeneous) for seed in range(1, seeds + 1)]
    by_seed = [dataclasses.replace(each, subject=dataclasses.replace(each.subject, model=model)) for each in by_seed]
    return judge(of_id(case), [{"patterns": each} for each in by_seed], SETTINGS)


def test_every_claim_about_classes_names_the_words_of_its_source():
    for case in cases():
        claim = case.claim
        if READING not in QUANTITIES[claim.quantity].arguments.model_fields:
            continue
        blog = claim.first_source == "blog"
        assert claim.arguments[READING] == ("stripes" if blog else "special"), claim.name


@pytest.mark.parametrize(("special", "stripes", "outcome"), [(80, 10, "reproduced"), (10, 80, "deviates")])
def test_the_other_reading_does_not_matter(special, stripes, outcome):
    judgement = verdict("A4-rte-half", special=special, stripes=stripes)
    assert (judgement.outcome, judgement.observed) == (outcome, pytest.approx(stripes, abs=1))


def test_the_authors_labels_judge_bert_base_only():
    labels = {"special": 60, "stripes": 60, "k19": 35}
    theirs = verdict("A2-rte", "google-bert/bert-base-uncased", **labels)
    assert (theirs.outcome, theirs.observed) == ("compatible", pytest.approx(35, abs=1))
    assert theirs.case.claim.arguments[READING] == "k19"
    assert theirs.case.definition != of_id("A2-rte").definition
    other = verdict("A2-rte", "roberta-base", **labels)
    assert (other.outcome, other.observed) == ("deviates", pytest.approx(60, abs=1))
    assert verdict("A4-rte-half", "bert-base-uncased", **labels).outcome == "reproduced"
    assert verdict("A2-rte", "bert-base-uncased", special=60, stripes=60).observed == pytest.approx(60, abs=1)


def test_the_authors_labels_leave_no_doubt_about_readers():
    """The band is that of one more run: it has the spread of these seeds and of the examples, not of readers."""
    by_readers, by_authors = (verdict("A2-rte", model, special=35, k19=35) for model in ("m", "bert-base-uncased"))
    widths = [judgement.band[1] - judgement.band[0] for judgement in (by_readers, by_authors)]
    assert widths[1] < 6 < 20 < widths[0]


def test_bert_base_without_the_authors_labels_is_told_how_to_get_them():
    patterns = dataclasses.replace(shares(1, special=60), settings={"annotated_models": ["minilm"]})

    def reason(model):
        subject = dataclasses.replace(patterns.subject, model=model)
        return judge(of_id("A2-rte"), [{"patterns": dataclasses.replace(patterns, subject=subject)}], SETTINGS).reason

    assert AUTHORS_NOTE in reason("google-bert/bert-base-uncased")
    assert AUTHORS_NOTE not in reason("roberta-base")
    with_labels = dataclasses.replace(patterns, samples=patterns.samples | shares(1, k19=60).samples)
    remarks = get_measure("patterns").remarks
    assert remarks(with_labels)
    subject = dataclasses.replace(patterns.subject, model="bert-base-uncased")
    assert remarks(dataclasses.replace(with_labels, subject=subject)) == []
