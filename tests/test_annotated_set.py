"""The annotated set that the suite ships: whole, small, labelled, and as its data card says."""

from collections import Counter
from pathlib import Path

import pytest
from sklearn.metrics import f1_score

from bertsecrets.patterns import classifier
from bertsecrets.patterns.agreement import agreement, set_agreement
from bertsecrets.patterns.classes import CLASSES
from bertsecrets.patterns.classifier import read_report
from bertsecrets.patterns.mapset import ANNOTATIONS, MAPS, SHIPPED, MapSet

CARD = Path(__file__).parent.parent / "docs" / "patterns-data-card.md"
DRAWN = 640  # the first rows; the others were added for their class


@pytest.fixture(scope="module")
def shipped() -> MapSet:
    return MapSet.load()


def test_every_map_is_labelled_three_times(shipped):
    assert len(shipped) == 900
    for labels in (shipped.labels, shipped.second_labels, shipped.third_labels, shipped.settled().labels):
        assert set(labels) == set(CLASSES)
    assert sum((SHIPPED / name).stat().st_size for name in (MAPS, ANNOTATIONS)) < 20e6


def test_rows_of_every_map_are_distributions(shipped):
    for each in shipped:
        assert each.values.min() >= 0
        assert abs(each.values.astype(float).sum(axis=1) - 1).max() < 5e-3
        assert 3 <= each.tokens <= 100


def test_the_draw_is_balanced_over_heads_and_states(shipped):
    drawn = shipped[:DRAWN]
    counts = Counter(drawn.groups)
    assert len(counts) == 72
    assert set(counts.values()) == {8, 9}
    states = Counter((each.task, each.state) for each in drawn)
    assert states == {
        (task, state): count
        for task in ("rte", "mrpc", "sst2", "stsb")
        for state, count in (("fine-tuned", 128), ("pretrained", 32))
    }


def test_the_data_card_says_what_is_there(shipped):
    card = CARD.read_text(encoding="utf-8")
    for name, part in (("drawn", shipped[:DRAWN]), ("added", shipped[DRAWN:]), ("all", shipped)):
        counts, agreed = Counter(part.settled().labels), set_agreement(part)
        kappa = (
            f"{agreed.kappa:.2f} [{agreed.low:.2f}, {agreed.high:.2f}] on {agreed.maps} maps, {agreed.share:.0%} alike"
        )
        numbers = [len(part), *(counts[label] for label in CLASSES), kappa.replace("% alike", " % alike")]
        assert f"| {name} | {' | '.join(map(str, numbers))} |" in card
    for row, label in zip(set_agreement(shipped).table, CLASSES, strict=True):
        assert f"| {label} | {' | '.join(map(str, row))} |" in card
    votes = (shipped.labels, shipped.second_labels, shipped.third_labels)
    for one, name in ((0, "first and third"), (1, "second and third")):
        found = agreement(votes[one], votes[2])
        assert f"{name} {found.kappa:.2f} [{found.low:.2f}, {found.high:.2f}]" in card
    alike, apart = (sum(len(set(labels)) == kinds for labels in zip(*votes, strict=True)) for kinds in (1, 3))
    assert f"All three agree on {alike} maps, and {apart} have three labels" in card
    settled = shipped.settled().labels
    blocks = {each.group[1:] for each, label in zip(shipped, settled, strict=True) if label == "block"}
    assert blocks == {(4, 10), (4, 3)}
    for text, name in (("RTE", "rte"), ("MRPC", "mrpc"), ("SST-2", "sst2"), ("STS-B", "stsb")):
        counts = Counter(
            (each.state, label)
            for each, label in zip(shipped[:DRAWN], settled[:DRAWN], strict=True)
            if each.task == name
        )
        cells = [f"{counts['fine-tuned', label]} / {counts['pretrained', label]}" for label in CLASSES]
        assert f"| {text} | {' | '.join(cells)} |" in card


def test_the_data_card_has_the_shipped_classifiers_figures(shipped):
    card, report = CARD.read_text(encoding="utf-8"), read_report(classifier.SHIPPED)
    assert report["maps"] == len(shipped)
    for name, found in report["classifiers"].items():
        low, high = found["macro_f1_interval"]
        scores = " | ".join(f"{found['f1'][label]:.2f}" for label in CLASSES)
        assert f"| {name} | {found['macro_f1']:.3f} [{low:.3f}, {high:.3f}] | {scores} |" in card
    for label, row in zip(CLASSES, report["classifiers"]["bertsecrets"]["confusion"], strict=True):
        assert f"| {label} | {' | '.join(map(str, row))} |" in card
    for labels, text in ((shipped.second_labels, "the second ones"), (shipped.third_labels, "the third ones")):
        score = f1_score(shipped.labels, labels, average="macro")
        assert f"{score:.3f}" in card, text
