"""The annotated set that the suite ships: whole, small, labelled, and balanced over heads, tasks and states."""

from collections import Counter

import pytest

from bertsecrets.patterns.annotation.map_set import ANNOTATIONS, UNSEEN, MapSet, own_maps, shards
from bertsecrets.patterns.classes import CLASSES
from bertsecrets.patterns.classifier import SHIPPED, read_report, report_of
from bertsecrets.patterns.readings import READINGS

PARTS = {  # by rows; "added" ones were chosen for their heads
    "MiniLM, drawn": slice(640),
    "MiniLM, drawn, other tasks": slice(900, 1008),
    "other encoders": slice(1200, 2136),
    "MiniLM, drawn, again": slice(2136, 2586),
    "other encoders, again": slice(2586, 3378),
}


@pytest.fixture(scope="module")
def shipped() -> MapSet:
    return MapSet.load(own_maps())


def test_every_map_is_labelled_three_times_and_on_where_these_differ(shipped):
    assert len(shipped) == 3378
    for given in shipped.votes:
        assert len(given) == 3 if len(set(given[:3])) == 1 else len(given) in (5, 7, 9)
    for labels in (shipped.labels, shipped.second_labels, shipped.third_labels, shipped.settled().labels):
        assert set(labels) == set(CLASSES)
    assert sum(path.stat().st_size for path in (*shards(own_maps()), own_maps() / ANNOTATIONS)) < 20e6


def test_rows_of_every_map_are_distributions(shipped):
    for each in shipped:
        assert each.values.min() >= 0
        assert abs(each.values.astype(float).sum(axis=1) - 1).max() < 5e-3
        assert 3 <= each.tokens <= 100


def test_the_draw_is_balanced_over_heads_and_states(shipped):
    draws = (
        ("MiniLM, drawn", {8, 9}, ("rte", "mrpc", "sst2", "stsb"), (128, 32)),
        ("MiniLM, drawn, other tasks", {1, 2}, ("qnli", "qqp", "mnli"), (28, 8)),
    )
    for part, turns, tasks, (tuned, pretrained) in draws:
        drawn = shipped[PARTS[part]]
        counts = Counter(drawn.groups)
        assert len(counts) == 72
        assert set(counts.values()) == turns
        states = Counter((each.task, each.state) for each in drawn)
        assert states == {
            (task, state): count
            for task in tasks
            for state, count in (("fine-tuned", tuned), ("pretrained", pretrained))
        }


def test_other_encoders_heads_come_alike_often(shipped):
    heads = {
        "aegis-judge": 72, "aegis-microbrain": 144, "aegis-router": 144, "all-mpnet-base-v2": 144,
        "paraphrase-minilm-l3": 36, "quire-distilbert": 72,
    }  # fmt: skip
    for part, maps in (
        ("other encoders", (288, 144, 144, 144, 72, 144)),
        ("other encoders, again", (288, 144, 72, 144, 36, 108)),
    ):
        counts = Counter((each.model, each.layer, each.head) for each in shipped[PARTS[part]])
        for (model, every), total in zip(heads.items(), maps, strict=True):
            times = [count for (name, _, _), count in counts.items() if name == model]
            assert sum(times) == total
            assert set(times) <= {total // every, -(-total // every)} - {0}
            assert len(times) == min(every, total)
    assert len(set(shipped.groups)) == 360


def test_the_draw_made_again_is_balanced_too_and_new(shipped):
    drawn = shipped[PARTS["MiniLM, drawn, again"]]
    assert set(Counter(drawn.groups).values()) == {6, 7}
    tasks = Counter(each.task for each in drawn)
    assert tasks == {"rte": 64, "mrpc": 64, "stsb": 64, "qnli": 90, "qqp": 60, "mnli": 60, "sst2": 48}
    places = [(each.model, each.task, each.state, each.layer, each.head, each.example) for each in shipped]
    assert len(set(places)) == len(places)


@pytest.mark.parametrize("reading", READINGS)
def test_classifiers_come_as_near_to_a_reader_as_another_reader_does(reading):
    """Within .02 of macro-F1."""
    readers = report_of(read_report(SHIPPED), reading)["readers"]
    assert readers["single_macro_f1"] >= readers["readers_macro_f1"] - 0.02


def test_the_unseen_set_has_two_maps_of_each_head_of_an_encoder_that_no_classifier_learnt_from(shipped):
    fresh = MapSet.load(own_maps(UNSEEN))
    assert not {each.model for each in fresh} & {each.model for each in shipped}
    assert sorted(Counter(fresh.groups).values()) == [2] * 72
