"""A small labelled corpus that the suite generates itself, so that everything runs without the hub and licensed data.

Sentence pairs like RTE's, from a grammar of our own: the hypothesis follows from the premise, or contradicts it in
the place, in the number and the thing, or by negation. Half of the pairs are entailments. The corpus shows that
the code works; it says nothing about the paper, and every result from it is marked as unofficial data.
"""

import random
from pathlib import Path

from bertsecrets.store.files import guarded_writes, whole_folder

PEOPLE = ("Ada", "Bruno", "Carla", "Deniz", "Emma", "Farid", "Greta", "Hugo", "Ines", "Jonas", "Kira", "Leo")
JOBS = (
    "the baker",
    "the pilot",
    "the nurse",
    "the gardener",
    "the judge",
    "the painter",
    "the farmer",
    "the tailor",
)
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
VERBS = (
    ("sold", "sell"),
    ("bought", "buy"),
    ("found", "find"),
    ("lost", "lose"),
    ("painted", "paint"),
    ("repaired", "repair"),
)
NUMBERS = ("two", "three", "four", "five", "six", "seven", "eight", "nine")
ASIDES = ("which surprised nobody", "as the neighbours recall", "although it rained", "to everyone's delight")

MOST = 1_000_000  # pairs that a user may ask for: more than any GLUE task has


def pair(rng: random.Random) -> tuple[str, str, str]:
    """Return one premise, hypothesis and label (`entailment` or `not_entailment`)."""
    who, bystander = rng.sample(PEOPLE + JOBS, 2)
    past, base = rng.choice(VERBS)
    number, wrong_number = rng.sample(NUMBERS, 2)
    thing, wrong_thing = rng.sample(THINGS, 2)
    place, wrong_place = rng.sample(PLACES, 2)
    day = rng.choice(DAYS)
    premise = f"{who} {past} {number} {thing} {place} {day}"
    if rng.random() < 0.5:
        premise += f", {rng.choice(ASIDES)}"
    if rng.random() < 0.4:
        premise += f", while {bystander} {rng.choice(VERBS)[0]} {wrong_number} {rng.choice(THINGS)}"
    true = [
        f"{who} {past} {thing}",
        f"{who} {past} {number} {thing} {place}",
        f"{number} {thing} were {past} {place}",
        f"{who} {past} something {day}",
        f"{who} was {place}",
    ]
    false = [
        f"{who} never {past} {thing}",
        f"{who} did not {base} any {thing} {place}",
        f"{who} {past} {number} {thing} {wrong_place}",
        f"{who} {past} {wrong_number} {wrong_thing} {place}",
        f"nobody {past} {thing} {day}",
    ]
    label = rng.choice(("entailment", "not_entailment"))
    hypothesis = rng.choice(true if label == "entailment" else false)
    return f"{premise[0].upper()}{premise[1:]}.", f"{hypothesis[0].upper()}{hypothesis[1:]}.", label


def write_corpus(folder: Path, train_rows: int, dev_rows: int, seed: int = 2019) -> Path:
    """Write a GLUE folder whose RTE task is the corpus, and return it; the same arguments give the same bytes.

    No validation pair is in the training set. An existing RTE folder is left as it is.

    Raises:
        UserError: the disk is full or the folder cannot be written.
    """
    target = folder / "RTE"
    with guarded_writes(folder):
        if target.is_dir():
            return folder
        folder.mkdir(parents=True, exist_ok=True)
    rng = random.Random(seed)
    pairs: dict[tuple[str, str, str], None] = {}
    while len(pairs) < train_rows + dev_rows:
        pairs[pair(rng)] = None
    rows = list(pairs)
    with guarded_writes(folder), whole_folder(target) as temporary:
        for name, split_rows in (("train", rows[:train_rows]), ("dev", rows[train_rows:])):
            lines = [
                "index\tsentence1\tsentence2\tlabel",
                *("\t".join((str(i), *row)) for i, row in enumerate(split_rows)),
            ]
            (temporary / f"{name}.tsv").write_text("\n".join(lines) + "\n", encoding="utf-8")
    return folder
