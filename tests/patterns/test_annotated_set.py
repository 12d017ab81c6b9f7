"""The annotated set that the suite ships: whole, small, labelled, and as its data card says."""

import csv
from collections import Counter
from functools import partial
from itertools import product
from pathlib import Path

import numpy as np
import pytest
from sklearn.metrics import cohen_kappa_score

from bertsecrets.patterns.annotation.agreement import label_agreement, set_agreement
from bertsecrets.patterns.annotation.attribute_file import read_attributes
from bertsecrets.patterns.annotation.map_set import ANNOTATIONS, UNSEEN, MapSet, own_maps, shards
from bertsecrets.patterns.classes import CLASSES
from bertsecrets.patterns.classifier import SHIPPED, held_out_errors, read_report, report_of
from bertsecrets.patterns.readings import READINGS, read_class
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


def section(title: str) -> str:
    """A section of the data card."""
    return CARD.read_text(encoding="utf-8").split(f"## {title}\n")[1].split("\n## ")[0]


def row(values, form: str) -> str:
    return f"| {' | '.join(form.format(value) for value in values)} |\n"


def test_the_data_card_says_what_readers_agree_on():
    """Attribute by attribute and under each reading, in the maps' first and second readings."""
    seen = [read for part in ("", UNSEEN) for read in read_attributes(own_maps(part)).values()]
    card = section("Attributes, for two readings of *vertical*")
    columns = {
        "stripes on special tokens (none, faint, strong)": lambda one: one.special,
        "number of strong stripes on others": lambda one: one.other,
        "whether there is one": lambda one: one.other > 0,
        "faint stripes (none, a few, many)": lambda one: one.faint,
        "diagonal (none, faint, plain)": lambda one: one.diagonal,
        "squares (none, weak, plain)": lambda one: one.squares,
        "haze (hardly any, some, much)": lambda one: one.haze,
        "what carries the map most": lambda one: one.carried_by[0],
        **{f"class under `{reading}`": partial(read_class, reading=reading) for reading in READINGS},
    }
    for name, of in columns.items():
        first, second = ([of(read[place]) for read in seen] for place in (0, 1))
        alike = np.mean([one == other for one, other in zip(first, second, strict=True)])
        assert f"| {name} | {100 * alike:.0f} % | {cohen_kappa_score(first, second):.2f} |" in card
    for reading in READINGS:
        counts = Counter(read_class(read[0], reading) for read in seen)
        assert f"| `{reading}` | {' | '.join(str(counts[label]) for label in CLASSES)} |\n" in card
        settled = report_of(read_report(SHIPPED), reading)
        numbers = [settled["classes"][label] for label in CLASSES]
        agreed = settled["classifiers"]["bertsecrets"]["agreed"]["maps"]
        assert f"| `{reading}` | {' | '.join(map(str, numbers))} | {agreed} |" in card


def test_the_data_card_says_how_readers_of_plain_words_agree():
    with (own_maps() / "plain-words.tsv").open(encoding="utf-8", newline="") as file:
        given = {(r["words"], r["reader"], r["name"]): r["class"] for r in csv.DictReader(file, delimiter="\t")}
    names = sorted({name for _, _, name in given})
    card = " ".join(section("Attributes, for two readings of *vertical*").split())
    by_reader = {key: [given[*key, name] for name in names] for key in product(("paper", "blog"), "12")}
    shares = {}
    for words in ("paper", "blog"):
        one, other = by_reader[words, "1"], by_reader[words, "2"]
        shares[words] = np.mean([a == b for a, b in zip(one, other, strict=True)]), cohen_kappa_score(one, other)
    (paper, paper_kappa), (blog, blog_kappa) = shares.values()
    assert f"agree on {100 * paper:.0f} % (kappa {paper_kappa:.2f}), two of the blog's on {100 * blog:.0f} %" in card
    assert f"({blog_kappa:.2f}). Kappa with them" in card
    read = {name: found for part in ("", UNSEEN) for name, found in read_attributes(own_maps(part)).items()}
    for reading in READINGS:
        cells = []
        for words in ("paper", "blog"):
            ours = [[read_class(read[name][place], reading) for name in names] for place in (0, 1)]
            found = [cohen_kappa_score(mine, by_reader[words, reader]) for mine in ours for reader in "12"]
            cells.append(f"{min(found):.2f} to {max(found):.2f}")
        assert f"{' | '.join(cells)} |" in card


@pytest.mark.parametrize("reading", READINGS)
def test_the_data_card_has_the_shipped_classifiers_figures(reading):
    card, report = section("What classifiers make of them"), report_of(read_report(SHIPPED), reading)
    for name, whole in report["classifiers"].items():
        for found, said in ((whole, name), (whole["agreed"], f"{name}, agreed on")):
            low, high = found["macro_f1_interval"]
            scores = " | ".join(f"{found['f1'][label]:.2f}" for label in CLASSES)
            assert f"| {said} | {found['macro_f1']:.3f} [{low:.3f}, {high:.3f}] | {scores} |" in card
    ours, readers = report["classifiers"]["bertsecrets"], report["readers"]
    page = " ".join((CARD.parent / "experiments" / "a-patterns.md").read_text(encoding="utf-8").split())
    assert f"{ours['macro_f1']:.3f} under `{reading}`" in page
    assert (
        f"| `{reading}` | {ours['macro_f1']:.3f} | {readers['single_macro_f1']:.3f} | "
        f"{readers['readers_macro_f1']:.3f} | {readers['kappa']:.2f}, {100 * readers['share']:.0f} % |"
    ) in card
    for label, counts in zip(CLASSES, ours["confusion"], strict=True):
        assert f"| {label} | {' | '.join(map(str, counts))} |" in card
    place = 7 + READINGS.index(reading)
    for model, found in report["models"].items():
        cells = next(line for line in CARD.read_text().splitlines() if line.startswith(f"| `{model}` |")).split("|")
        assert cells[place].strip() == f"{found['accuracy']:.2f}"


@pytest.mark.parametrize("reading", READINGS)
def test_classifiers_come_as_near_to_a_reader_as_another_reader_does(reading):
    """Within .02 of macro-F1."""
    readers = report_of(read_report(SHIPPED), reading)["readers"]
    assert readers["single_macro_f1"] >= readers["readers_macro_f1"] - 0.02


@pytest.mark.parametrize("reading", READINGS)
def test_the_data_card_says_what_shares_are_worth(reading):
    card, report = section("What shares are worth"), read_report(SHIPPED)
    shares = report_of(report, reading)["shares"]
    for name in ("corrected_error", "raw_error", "covers"):
        assert row((shares[name][label] for label in CLASSES), "{:.2f}") in card
    assert f"{shares['models']} random sets of {shares['heads']} annotated heads" in card
    errors, found = held_out_errors(report, reading), unseen()[reading]
    assert f"({heads_to_draw(72, len(errors))} for 72)" in card
    card = section("A set that no choice was made on")
    corrected_shares = corrected(found.probabilities.mean(0), errors.mean(0))
    ends = share_interval(found.probabilities, errors, heads=72, rng=np.random.default_rng(0), resamples=2000)
    for said in (found.labels, found.predicted):
        assert row(100 * np.bincount(said, minlength=5) / len(said), "{:.1f}") in card
    cells = zip(*(100 * values for values in (corrected_shares, *ends)), strict=True)
    assert " | ".join(f"{value:.1f} [{low:.1f}, {high:.1f}]" for value, low, high in cells) in card


def test_the_data_card_has_the_figures_of_the_set_that_no_choice_was_made_on(shipped):
    """Another encoder's heads, none of which is in the set that classifiers learn from."""
    fresh = MapSet.load(own_maps(UNSEEN))
    assert not {each.model for each in fresh} & {each.model for each in shipped}
    assert sorted(Counter(fresh.groups).values()) == [2] * 72
    card = section("A set that no choice was made on")
    for reading, found in unseen().items():
        of_all = quality(found, 0)
        agreed = of_all["agreed"]
        numbers = [f"{part[name]:.3f}" for part in (of_all, agreed) for name in ("accuracy", "macro_f1")]
        assert f"| `{reading}` | {numbers[0]} | {numbers[1]} | {agreed['maps']} | {numbers[2]} | {numbers[3]} |" in card
