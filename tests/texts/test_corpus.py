"""The suite's own corpus: the same bytes for the same seed, balanced, and sound where that can be read off."""

import random
import re

import pytest

from bertsecrets.errors import UserError
from bertsecrets.texts.corpus import PEOPLE, PLACES, pair, write_corpus
from bertsecrets.texts.glue import load_folder
from bertsecrets.texts.tasks import task


def test_the_same_arguments_give_the_same_bytes(tmp_path):
    one, same, other = write_corpus(tmp_path / "a", 30, 10), write_corpus(tmp_path / "b", 30, 10), None
    other = write_corpus(tmp_path / "c", 30, 10, seed=1)
    for name in ("train.tsv", "dev.tsv"):
        assert (one / "RTE" / name).read_bytes() == (same / "RTE" / name).read_bytes()
        assert (one / "RTE" / name).read_bytes() != (other / "RTE" / name).read_bytes()


def test_it_is_a_glue_folder_with_half_entailments_and_nothing_shared(tmp_path):
    write_corpus(tmp_path, 800, 200)
    splits = {name: load_folder(tmp_path, task("rte"), name) for name in ("train", "dev")}
    assert {name: len(split) for name, split in splits.items()} == {"train": 800, "dev": 200}
    pairs = {name: set(zip(split.sentence1, split.sentence2, strict=True)) for name, split in splits.items()}
    assert not pairs["train"] & pairs["dev"]
    for split in splits.values():
        assert sum(label == "entailment" for label in split.labels) / len(split) == pytest.approx(0.5, abs=0.08)


def test_an_existing_corpus_is_left_alone(tmp_path):
    write_corpus(tmp_path, 20, 10)
    before = (tmp_path / "RTE" / "dev.tsv").read_bytes()
    write_corpus(tmp_path, 20, 10, seed=5)
    assert (tmp_path / "RTE" / "dev.tsv").read_bytes() == before


@pytest.mark.parametrize("name", ["file", "file/deeper", "x" * 300])
def test_a_place_that_cannot_be_written_is_one_line(tmp_path, name):
    (tmp_path / "file").write_text("mine")
    with pytest.raises(UserError, match=f"^cannot write {tmp_path / name}: .*: name another place$"):
        write_corpus(tmp_path / name, 2, 1)
    assert (tmp_path / "file").read_text() == "mine"


def test_labels_are_sound():
    rng = random.Random(0)
    for _ in range(2000):
        premise, hypothesis, label = pair(rng)
        main = premise.split(", ")[0]
        places = [place for place in PLACES if place in hypothesis]
        denied = "never" in hypothesis or "did not" in hypothesis or hypothesis.startswith("Nobody")
        if denied or (places and places[0] not in main):
            assert label == "not_entailment"
        elif label == "entailment":
            words = set(re.findall("[a-z]+", hypothesis.lower())) - {"were", "was", "something"}
            assert words <= set(re.findall("[a-z]+", main.lower()))  # nothing is said that the premise does not say
            assert not places or places[0] in main


def test_no_pair_has_both_labels():
    rng, seen = random.Random(1), {}
    for _ in range(5000):
        premise, hypothesis, label = pair(rng)
        assert seen.setdefault((premise, hypothesis), label) == label
        assert premise[0].isupper()
        assert any(name in premise for name in PEOPLE) or " the " in f" {premise.lower()}"
