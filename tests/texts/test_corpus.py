"""The suite's own corpus: reproducible, balanced, sound, and not solvable by a bag of words."""

import random
import re

import pytest
from sklearn.feature_extraction.text import CountVectorizer
from sklearn.linear_model import LogisticRegression
from sklearn.pipeline import make_pipeline

from bertsecrets.errors import UserError
from bertsecrets.texts.corpus import (
    CORPUS_FRAME_SENTENCES,
    PAIR_RELATIONS,
    PEOPLE,
    THINGS,
    negation,
    pair,
    roles,
    write_corpus,
    write_frames,
)
from bertsecrets.texts.framenet import Annotation, choose, read_jsonl
from bertsecrets.texts.glue import load_folder
from bertsecrets.texts.tasks import task


def test_the_same_arguments_give_the_same_bytes(tmp_path):
    one, same = write_corpus(tmp_path / "a", 30, 10), write_corpus(tmp_path / "b", 30, 10)
    write_corpus(tmp_path / "a", 20, 5)  # an existing corpus is not changed
    for name in ("train.tsv", "dev.tsv"):
        assert (one / "RTE" / name).read_bytes() == (same / "RTE" / name).read_bytes()
    frames = [write_frames(tmp_path / name, 20).read_bytes() for name in ("a", "b", "a")]
    assert len({*frames}) == 1


def test_it_is_a_glue_folder_whose_splits_share_no_pair(tmp_path):
    write_corpus(tmp_path, 1600, 200)
    splits = {name: load_folder(tmp_path, task("rte"), name) for name in ("train", "dev")}
    assert {name: len(split) for name, split in splits.items()} == {"train": 1600, "dev": 200}
    pairs = {name: set(zip(split.sentence1, split.sentence2, strict=True)) for name, split in splits.items()}
    assert not pairs["train"] & pairs["dev"]


def role(element):
    *before, noun = element.split()
    if noun in PEOPLE:
        return "recipient" if before == ["to"] else "giver"
    assert noun in THINGS, element
    return "thing"


def test_frame_sentences_are_distinct_transfers_that_pass_the_papers_filters(tmp_path):
    sentences = read_jsonl(write_frames(tmp_path))
    assert len({sentence.sentence for sentence in sentences}) == len(sentences) == CORPUS_FRAME_SENTENCES
    core_sets = {"Transfer": frozenset({"giver", "recipient", "thing"})}
    found = set()
    for sentence in sentences:
        assert sentence.made_up
        target, elements = sentence.words()
        assert sentence.sentence.split().count(target) == 1
        assert target in ("sold", "sent", "lent", "shown")
        names = [role(element) for element in elements]
        assert len(set(names)) == len(names)
        assert "thing" in names
        found |= {frozenset(names)}
        spans = tuple(zip(names, sentence.core_elements, strict=True))
        chosen, _ = choose([Annotation(sentence.sentence, "Transfer", (sentence.target,), spans)], core_sets)
        assert [*map(set, (one.core_elements for one in chosen))] == [set(sentence.core_elements)], sentence
    assert found == {frozenset(names) for names in (("thing",), ("thing", "giver"), ("thing", "recipient"))}


def test_a_place_that_cannot_be_written_is_one_line(tmp_path):
    (tmp_path / "file").write_text("mine")
    with pytest.raises(UserError, match=f"^cannot write {tmp_path / 'file'}: .*: choose another location$"):
        write_corpus(tmp_path / "file", 2, 1)
    assert (tmp_path / "file").read_text() == "mine"


def rows(count, seed=0):
    """Return distinct pairs, in columns: premises, hypotheses, labels, relations."""
    rng, drawn = random.Random(seed), {}
    while len(drawn) < count:
        drawn[pair(rng)] = None
    return tuple(zip(*drawn, strict=True))


@pytest.mark.parametrize("read", ["both texts", "premise", "hypothesis", "each text separately"])
def test_no_bag_of_words_does_better_than_chance(read):
    premises, hypotheses, labels, _ = rows(3600)
    marked = [" ".join(f"said{word}" for word in text.split()) for text in hypotheses]
    second = {"premise": [""] * 3600, "hypothesis": hypotheses, "both texts": hypotheses}.get(read, marked)
    first = [""] * 3600 if read == "hypothesis" else premises
    texts = [f"{one} {other}" for one, other in zip(first, second, strict=True)]
    bag_of_words = make_pipeline(CountVectorizer(), LogisticRegression(max_iter=1000))
    bag_of_words.fit(texts[:1600], labels[:1600])
    assert bag_of_words.score(texts[1600:], labels[1600:]) == pytest.approx(0.5, abs=0.05)


def test_all_relations_are_as_frequent_and_hold_as_often():
    _, _, labels, relations = rows(3600)
    for relation in PAIR_RELATIONS:
        own_labels = [label for label, name in zip(labels, relations, strict=True) if name == relation.__name__]
        assert len(own_labels) / len(labels) == pytest.approx(1 / len(PAIR_RELATIONS), abs=0.04)
        assert own_labels.count("entailment") / len(own_labels) == pytest.approx(0.5, abs=0.05)


def test_roles_are_those_of_the_premise_or_exchanged():
    rng = random.Random(4)
    for follows in [True, False] * 300:
        premise, hypothesis = roles(rng, follows)
        giver, taker = re.match(r"(\w+) .* to (\w+)", premise).groups()
        said = re.match(r"(\w+) .* to (\w+)$", hypothesis).groups()
        assert said == ((giver, taker) if follows else (taker, giver))


def test_a_negation_negates_the_following_words():
    rng = random.Random(5)
    for follows in [True, False] * 300:
        premise, hypothesis = negation(rng, follows)
        before, after = premise.split(" but not ")
        denied = next(word for word in after.split() if word not in before.split())
        assert (denied in hypothesis.split()) == (not follows)


def test_no_pair_has_both_labels():
    seen = {}
    for premise, hypothesis, label, _ in zip(*rows(3600), strict=True):
        assert seen.setdefault((premise, hypothesis), label) == label
        assert premise[0].isupper()


def test_readers_know_that_it_is_made_up(tmp_path):
    write_corpus(tmp_path, 6, 4)
    assert load_folder(tmp_path, task("rte"), "dev").head(2).made_up
    file = tmp_path / "RTE" / "dev.tsv"
    file.write_text(file.read_text().replace("made_up", "remark", 1))
    assert not load_folder(tmp_path, task("rte"), "dev").made_up
