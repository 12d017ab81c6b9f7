"""The annotated set that the suite ships, and how its classifiers do on it; `test_map_shards.py` pins its contents."""

from collections import Counter

import pytest

from bertsecrets.patterns.classes import CLASSES
from bertsecrets.patterns.classifier import SHIPPED, read_report, report_of
from bertsecrets.patterns.crossval import quality
from bertsecrets.patterns.held_out import unseen
from bertsecrets.patterns.map_set import ANNOTATIONS, UNSEEN, MapSet, own_maps, shards
from bertsecrets.patterns.readings import READINGS


@pytest.fixture(scope="module")
def shipped() -> MapSet:
    return MapSet.load(own_maps())


def test_every_map_has_three_labels_and_more_if_these_differ(shipped):
    for given in shipped.votes:
        assert len(given) == 3 if len(set(given[:3])) == 1 else len(given) in (5, 7, 9)
    assert set(shipped.settled().labels) == set(CLASSES)
    assert sum(path.stat().st_size for path in (*shards(own_maps()), own_maps() / ANNOTATIONS)) < 20e6


def test_rows_of_every_map_are_distributions(shipped):
    for each in shipped:
        assert each.values.min() >= 0
        assert abs(each.values.astype(float).sum(axis=1) - 1).max() < 5e-3
        assert 3 <= each.tokens <= 100


def test_the_unseen_set_has_two_maps_of_each_head_of_an_encoder_that_no_classifier_learnt_from(shipped):
    fresh = MapSet.load(own_maps(UNSEEN))
    assert not {each.model for each in fresh} & {each.model for each in shipped}
    assert sorted(Counter(fresh.groups).values()) == [2] * 72


@pytest.mark.parametrize("reading", READINGS)
def test_classifiers_come_as_near_to_a_reader_as_another_reader_does(reading):
    """Within .02 of macro-F1."""
    readers = report_of(read_report(SHIPPED), reading)["readers"]
    assert readers["single_macro_f1"] >= readers["readers_macro_f1"] - 0.02


@pytest.mark.slow
def test_classifiers_do_well_on_the_encoder_that_they_have_not_seen():
    for reading, judged in unseen().items():
        assert quality(judged, 0)["macro_f1"] > 0.8, reading
