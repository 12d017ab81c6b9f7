"""The annotated set that the suite ships: whole, small, labelled, and as its data card says."""

from collections import Counter
from pathlib import Path

import numpy as np
import pytest
from sklearn.metrics import f1_score

from bertsecrets.patterns import classifier
from bertsecrets.patterns.annotation.agreement import label_agreement, set_agreement
from bertsecrets.patterns.annotation.map_set import ANNOTATIONS, UNSEEN, MapSet, own_maps, shards
from bertsecrets.patterns.classes import CLASSES
from bertsecrets.patterns.classifier import read_report
from bertsecrets.patterns.shares import corrected, heads_to_draw
from bertsecrets.patterns.training.audit import share_interval
from bertsecrets.patterns.training.crossval import quality
from bertsecrets.patterns.training.train import unseen

CARD = Path(__file__).parents[2] / "docs" / "patterns-data-card.md"
PARTS = {  # by rows; "added" ones were chosen for their heads
    "MiniLM, drawn": slice(640), "MiniLM, added": slice(640, 900),
    "MiniLM, drawn, other tasks": slice(900, 1008), "MiniLM, added, other tasks": slice(1008, 1200),
    "other encoders": slice(1200, 2136), "MiniLM, drawn, again": slice(2136, 2586),
    "other encoders, again": slice(2586, 3378), "all": slice(3378),
}  # fmt: skip
TASKS = {"RTE": "rte", "MRPC": "mrpc", "SST-2": "sst2", "STS-B": "stsb", "QNLI": "qnli", "QQP": "qqp", "MNLI": "mnli"}


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


def test_the_data_card_says_what_is_there(shipped):
    card = " ".join(CARD.read_text(encoding="utf-8").split())
    for name, rows in PARTS.items():
        part = shipped[rows]
        counts, agreed = Counter(part.settled().labels), set_agreement(part)
        kappa = f"{agreed.kappa:.2f} [{agreed.low:.2f}, {agreed.high:.2f}], {100 * agreed.share:.0f} % alike"
        numbers = [len(part), *(counts[label] for label in CLASSES), kappa, sum(part.agreed)]
        assert f"| {name} | {' | '.join(map(str, numbers))} |" in card
    for row, label in zip(set_agreement(shipped).table, CLASSES, strict=True):
        assert f"| {label} | {' | '.join(map(str, row))} |" in card
    votes = (shipped.labels, shipped.second_labels, shipped.third_labels)
    for one, name in ((0, "first and third"), (1, "second and third")):
        found = label_agreement(votes[one], votes[2])
        assert f"{name} {found.kappa:.2f} [{found.low:.2f}, {found.high:.2f}]" in card
    alike, apart = (sum(len(set(labels)) == kinds for labels in zip(*votes, strict=True)) for kinds in (1, 3))
    assert f"The first three agree on {alike} maps, and {apart} have three labels" in card
    settled = shipped.settled().labels
    moved = sum(max(g[:3], key=g[:3].count) != label for g, label in zip(shipped.votes, settled, strict=True))
    split = sum(2 * Counter(given).most_common(1)[0][1] <= len(given) for given in shipped.votes)
    assert f"{moved} of them went over to another class by that, and {split} have" in card
    times = Counter(map(len, shipped.votes))
    assert f"{times[5]} maps have five labels, {times[7]} seven and {times[9]} nine" in card
    blocks = Counter(each.group[1:] for each, label in zip(shipped, settled, strict=True) if label == "block")
    assert f"**Block comes from {len(blocks)} heads**, {sum(blocks.values())} maps in all" in card
    assert all(f"{head} {count}" in card for head, count in blocks.most_common(5))
    for model in {each.model for each in shipped}:
        labels = [label for each, label in zip(shipped, settled, strict=True) if each.model == model]
        assert f"| `{model}` | {' | '.join(str(labels.count(label)) for label in CLASSES)} |" in card
    drawn = [i for name, rows in PARTS.items() if "drawn" in name for i in range(len(shipped))[rows]]
    for text, name in TASKS.items():
        counts = Counter((shipped[i].state, settled[i]) for i in drawn if shipped[i].task == name)
        cells = [f"{counts['fine-tuned', label]} / {counts['pretrained', label]}" for label in CLASSES]
        assert f"| {text} | {' | '.join(cells)} |" in card


def against_the_others(maps: MapSet, place: int) -> float:
    """Macro-F1 of an annotator's labels as predictions of what most of the others say, where most say one thing."""
    pairs = []
    for given in maps.votes:
        others = [label for i, label in enumerate(given) if i != place]
        label, count = Counter(others).most_common(1)[0]
        if 2 * count > len(others):
            pairs.append((label, given[place]))
    return float(f1_score(*zip(*pairs, strict=True), average="macro"))


def test_the_data_card_has_the_shipped_classifiers_figures(shipped):
    card, report = CARD.read_text(encoding="utf-8"), read_report(classifier.SHIPPED)
    assert report["maps"] == len(shipped)
    of_agreed, of_all = card.split("\nMaps agreed on:\n")[1].split("\nAll maps:\n")
    for name, whole in report["classifiers"].items():
        for found, table in ((whole, of_all), (whole["agreed"], of_agreed)):
            low, high = found["macro_f1_interval"]
            scores = " | ".join(f"{found['f1'][label]:.2f}" for label in CLASSES)
            assert f"| {name} | {found['macro_f1']:.3f} [{low:.3f}, {high:.3f}] | {scores} |" in table
    ours = report["classifiers"]["bertsecrets"]
    assert ours["agreed"]["maps"] == sum(shipped.agreed)
    page = " ".join((CARD.parent / "experiments" / "a-patterns.md").read_text(encoding="utf-8").split())
    assert f"{ours['agreed']['macro_f1']:.3f} where annotators agree and {ours['macro_f1']:.3f} on all maps" in page
    for label, row in zip(CLASSES, ours["confusion"], strict=True):
        assert f"| {label} | {' | '.join(map(str, row))} |" in card
    for model, found in report["models"].items():
        row = next(line for line in card.splitlines() if line.startswith(f"| `{model}` |"))
        assert row.endswith(f"| {found['accuracy']:.2f} | {found['macro_f1']:.2f} |")
    for labels, text in ((shipped.second_labels, "the second ones"), (shipped.third_labels, "the third ones")):
        score = f1_score(shipped.labels, labels, average="macro")
        assert f"{score:.3f}" in card, text
    for place, text in enumerate(("first reach", "second", "third")):
        assert f"{text} {against_the_others(shipped, place):.3f}" in " ".join(card.split())


def test_the_data_card_says_what_shares_are_worth():
    card, report = CARD.read_text(encoding="utf-8"), read_report(classifier.SHIPPED)
    section = card.split("## What shares are worth\n")[1].split("\n## ")[0]

    def row(values, form: str) -> str:
        return f"| {' | '.join(form.format(value) for value in values)} |\n"

    for name in ("corrected_error", "raw_error", "covers"):
        assert row((report["shares"][name][label] for label in CLASSES), "{:.2f}") in section
    assert f"{report['shares']['models']} random sets of {report['shares']['heads']} annotated heads" in section
    errors, found = classifier.held_out_errors(report), unseen()
    assert f"({heads_to_draw(72, len(errors))} for 72)" in section
    shares = corrected(found.probabilities.mean(0), errors.mean(0))
    ends = share_interval(found.probabilities, errors, 72, np.random.default_rng(0), 2000)
    for said in (found.labels, found.predicted):
        assert row(100 * np.bincount(said, minlength=5) / len(said), "{:.1f}") in section
    cells = zip(*(100 * values for values in (shares, *ends)), strict=True)
    assert " | ".join(f"{value:.1f} [{low:.1f}, {high:.1f}]" for value, low, high in cells) in section


def test_the_data_card_has_the_figures_of_the_set_that_no_choice_was_made_on(shipped):
    """Another encoder's heads, none of which is in the set that classifiers learn from."""
    fresh, found = MapSet.load(own_maps(UNSEEN)), unseen()
    assert not {each.model for each in fresh} & {each.model for each in shipped}
    assert sorted(Counter(fresh.groups).values()) == [2] * 72
    figures = quality(found, 0)
    card = " ".join(CARD.read_text(encoding="utf-8").split())
    assert f"{figures['agreed']['maps']} agreed on. On those the shipped classifier is right on" in card
    assert f"right on {figures['agreed']['accuracy']:.3f}, on all on {figures['accuracy']:.3f}" in card
    for label, row in zip(CLASSES, figures["agreed"]["confusion"], strict=True):
        assert f"| {label} | {' | '.join(map(str, row))} |" in card
