"""A small labelled corpus that the suite generates itself, so that everything runs without the hub and licensed data.

Sentence pairs like RTE's, from a small grammar, about agreement, roles and negation. In each relation true and false
hypotheses share all templates and words, so that no bag of words gives the answer away: a model must compare the texts
and use word order. Half of the pairs are entailments. The corpus shows that the code works; it says nothing about the
paper, and every result from it is marked as made-up, unofficial data.
"""

import random
from pathlib import Path

from bertsecrets.store.files import guarded_writes, whole_folder
from bertsecrets.texts.glue import MADE_UP

PEOPLE = ("Ada", "Bruno", "Carla", "Deniz", "Emma", "Farid", "Greta", "Hugo", "Ines", "Jonas", "Kira", "Leo")
THINGS = ("letters", "apples", "books", "lamps", "chairs", "coats", "clocks", "boats", "keys", "maps")
PLACES = (
    "in Lisbon",
    "in Oslo",
    "at the harbour",
    "at the market",
    "near the river",
    "in the old town",
    "on the island",
)
DAYS = ("on Monday", "on Friday", "last week", "in spring", "before noon", "after dinner")
DEEDS = ("sold", "bought", "found", "lost", "painted", "repaired")
TRANSFERS = ("sold", "sent", "lent", "showed")
NUMBERS = ("two", "three", "four", "five", "six", "seven", "eight", "nine")

MOST = 1_000_000  # pairs that a user may ask for: more than any GLUE task has


def agreement(rng: random.Random, follows: bool) -> tuple[str, str]:
    """Return a premise, and a hypothesis that says the same or differs in verb, number, thing, place and day."""
    who = rng.choice(PEOPLE)
    deeds, numbers, things, places, days = (rng.sample(words, 2) for words in (DEEDS, NUMBERS, THINGS, PLACES, DAYS))
    premise = f"{who} {deeds[0]} {numbers[0]} {things[0]} {places[0]} {days[0]}"
    said = 0 if follows else 1
    deed, number, thing, place, day = (two[said] for two in (deeds, numbers, things, places, days))
    hypotheses = (
        f"{who} {deed} {number} {thing}",
        f"{who} {deed} {thing} {place}",
        f"{who} {deed} {number} {thing} {day}",
    )
    return premise, rng.choice(hypotheses)


def roles(rng: random.Random, follows: bool) -> tuple[str, str]:
    """Return a premise about a transfer, and a hypothesis with the same or swapped roles."""
    giver, taker = rng.sample(PEOPLE, 2)
    deed, thing = rng.choice(TRANSFERS), rng.choice(THINGS)
    premise = f"{giver} {deed} {rng.choice(NUMBERS)} {thing} to {taker}"
    if rng.random() < 0.4:
        premise += f" {rng.choice(PLACES + DAYS)}"
    said = (giver, taker) if follows else (taker, giver)
    return premise, f"{said[0]} {deed} {thing} to {said[1]}"


def negation(rng: random.Random, follows: bool) -> tuple[str, str]:
    """Return a premise that denies one of two persons, numbers, things or places, and a hypothesis about either."""
    whos, numbers, things, places = (rng.sample(words, 2) for words in (PEOPLE, NUMBERS, THINGS, PLACES))
    who, thing, deed = whos[0], things[0], rng.choice(DEEDS)
    template, two = rng.choice(
        (
            (f"{{}} {deed} {thing}", whos),
            (f"{who} {deed} {{}} {thing}", numbers),
            (f"{who} {deed} {{}}", things),
            (f"{who} {deed} {thing} {{}}", places),
        )
    )
    return template.format(f"{two[0]} but not {two[1]}"), template.format(two[0 if follows else 1])


RELATIONS = (agreement, roles, negation)


def pair(rng: random.Random) -> tuple[str, str, str, str]:
    """Return one premise, hypothesis, label (`entailment` or `not_entailment`) and relation (`roles` and so on)."""
    relation, follows = rng.choice(RELATIONS), rng.random() < 0.5
    premise, hypothesis = relation(rng, follows)
    label = "entailment" if follows else "not_entailment"
    return f"{premise[0].upper()}{premise[1:]}.", f"{hypothesis[0].upper()}{hypothesis[1:]}.", label, relation.__name__


def write_corpus(folder: Path, train_rows: int, dev_rows: int, seed: int = 2019) -> Path:
    """Write a GLUE folder whose RTE task is the corpus, and return it; the same arguments give the same bytes.

    No validation pair is in the training set. A further column, `made_up`, names each pair's relation. An existing
    RTE folder is not changed.

    Raises:
        UserError: the disk is full or the folder cannot be written.
    """
    target = folder / "RTE"
    with guarded_writes(folder):
        if target.is_dir():
            return folder
        folder.mkdir(parents=True, exist_ok=True)
    rng = random.Random(seed)
    pairs: dict[tuple[str, str, str, str], None] = {}
    while len(pairs) < train_rows + dev_rows:
        pairs[pair(rng)] = None
    rows = list(pairs)
    with guarded_writes(folder), whole_folder(target) as temporary:
        for name, split_rows in (("train", rows[:train_rows]), ("dev", rows[train_rows:])):
            lines = [
                f"index\tsentence1\tsentence2\tlabel\t{MADE_UP}",
                *("\t".join((str(i), *row)) for i, row in enumerate(split_rows)),
            ]
            (temporary / f"{name}.tsv").write_text("\n".join(lines) + "\n", encoding="utf-8")
    return folder
