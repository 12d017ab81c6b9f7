"""Tags and relations of words: from rules on a parse, from a treebank, and from a pipeline trained by these tests."""

import json
import sys
import warnings
from pathlib import Path

import pytest
from treebank_sample import write_treebank
from wordpieces import tiny_tokenizer, words_of

from bertsecrets.errors import UserError
from bertsecrets.measures.base.needs import pipeline_facts
from bertsecrets.measures.relations import relation_pairs
from bertsecrets.models.alignment import encode_words
from bertsecrets.store.files import with_digest
from bertsecrets.texts.parsing import WORD_FEATURES, Word, parse, parse_pairs, verb_subject_links
from instruments.train_parser import train_pipeline
from instruments.treebank import read_treebank, spacing


@pytest.fixture(scope="module")
def tokenizer():
    return tiny_tokenizer()


# ---------------------------------------------------------------------- words


@pytest.mark.parametrize(
    ("text", "yes"),
    [("not", True), ("Nothing", True), ("n't", True), ("don't", True), ("n’t", True), ("another", False),
     ("knot", False), ("nowhere", True), ("no", False), ("cannot", True), ("want", False)],
)  # fmt: skip
def test_negations_are_words_not_substrings(text, yes):
    assert WORD_FEATURES["negation"](Word(text, 0, len(text), "RB", "neg", 0)) is yes


@pytest.mark.parametrize(
    ("text", "yes"), [(".", True), ("--", True), ("“", True), ("``", True), ("%", False), ("$", False), ("a.", False)]
)
def test_punctuation_is_made_of_punctuation(text, yes):
    assert WORD_FEATURES["punctuation"](Word(text, 0, len(text), ".", "punct", 0)) is yes


def test_a_verb_is_linked_to_its_own_subject_only():
    text = "cats sat , mice were eaten"
    tags = {"sat": "VBD", "were": "VBD", "eaten": "VBN", "mice": "NNS", "cats": "NNS"}
    relations = {"cats": "nsubj", "mice": "nsubjpass"}
    words = words_of(text, tags, relations, {"cats": 1, "mice": 5})
    assert verb_subject_links(words) == [((5, 8), (0, 4))]


def test_relations_of_two_texts(tokenizer):
    first, second = "the cat sat", "him sat"
    tags, relations = {"sat": "VBD", "him": "PRP", "the": "DT"}, {"cat": "nsubj", "him": "nsubj"}
    one = [words_of(first, tags, relations, {"cat": 2})]
    other = [words_of(second, tags, relations, {"him": 1})]
    _, alignment = encode_words(tokenizer, [first], [second])  # [CLS] the cat sat [SEP] him sat [SEP]
    pairs = relation_pairs(alignment, one, other)
    assert listed(pairs["noun_pronoun"]) == [(2, 5)]
    assert listed(pairs["pronoun_noun"]) == [(5, 2)]
    assert listed(pairs["verb_subject"]) == [(3, 2), (6, 5)]
    assert listed(pairs["subject_verb"]) == [(2, 3), (5, 6)]


def listed(pairs):
    return list(zip(pairs.source.tolist(), pairs.target.tolist(), strict=True))


# ---------------------------------------------------------------------- treebank and pipeline


@pytest.fixture
def treebank(tmp_path):
    return write_treebank(tmp_path)


def test_function_tags_become_relations(treebank):
    first, second = read_treebank(treebank)
    relations = {w: (label, first.words[h]) for w, label, h in zip(first.words, first.labels, first.heads, strict=True)}
    assert relations["seen"] == ("ROOT", "seen")
    assert relations["was"] == ("aux", "seen")
    assert relations["cat"] == ("nsubjpass", "seen")
    assert relations["by"] == ("agent", "seen")
    assert relations["who"] == ("nsubj", "give")
    assert relations["will"] == ("aux", "give")
    assert relations["him"] == ("dative", "give")
    assert relations["milk"] == ("dobj", "give")
    assert relations["today"][0] == "dep"
    assert relations["."] == ("punct", "seen")
    assert dict(zip(second.words, second.labels, strict=True))["cat"] == "attr"


def test_running_text_is_spaced_as_people_write():
    words = ["``", "He", "is", "n't", "``", "-LRB-", "$", "5", "-RRB-", ",", "''"]
    assert "".join(w + " " * s for w, s in zip(words, spacing(words), strict=True)) == "``He isn't ``-LRB-$5-RRB-,''"


@pytest.fixture(scope="module")
def pipeline(tmp_path_factory):
    pytest.importorskip("spacy")
    folder = write_treebank(tmp_path_factory.mktemp("treebank"))
    with warnings.catch_warnings():
        warnings.simplefilter("ignore")  # spaCy warns about training on two sentences
        train_pipeline(folder, folder / "pipeline", epochs=5)
    return str(folder / "pipeline")


def test_a_trained_pipeline_parses_caches_and_names_itself(pipeline, tmp_path):
    texts = ["The cat was seen by mice.", "He isn't a cat.", "The cat was seen by mice."]
    cache = tmp_path / "cache"
    parses = parse(texts, pipeline, cache)
    assert parses[0] == parses[2]
    assert [texts[1][slice(*word.span)] for word in parses[1]] == ["He", "is", "n't", "a", "cat", "."]
    facts = pipeline_facts(pipeline)
    assert facts["name"] == "en_treebank_small"
    assert set(facts["accuracy"]) >= {"tag_acc", "dep_las", "subject", "object"}
    (file,) = cache.iterdir()
    stored = json.loads(file.read_text(encoding="utf-8"))
    stored["parses"][0][0][3] = "XX"
    file.write_text(json.dumps(with_digest({"parses": stored["parses"]})), encoding="utf-8")
    assert parse(texts, pipeline, cache)[0][0].tag == "XX"  # read, not parsed again
    for damaged in (json.dumps(stored), "[", json.dumps(stored["parses"]), json.dumps(with_digest({}))):
        file.write_text(damaged, encoding="utf-8")
        assert parse(texts, pipeline, cache) == parses  # parsed again
    first, second = parse_pairs(texts[:1], texts[1:2], pipeline, cache)
    assert first + second == parses[:2]
    assert parse_pairs(texts[:1], None, pipeline, cache)[1] is None
    with pytest.raises(UserError, match="already exists"):
        train_pipeline(tmp_path, Path(pipeline))


@pytest.mark.slow
def test_the_same_seed_trains_the_same_pipeline(pipeline, treebank, tmp_path):
    with warnings.catch_warnings():
        warnings.simplefilter("ignore")
        train_pipeline(treebank, tmp_path / "again", epochs=5)
    files = sorted(file.relative_to(tmp_path / "again") for file in (tmp_path / "again").rglob("model"))
    assert len(files) == 3
    for file in files:
        assert (tmp_path / "again" / file).read_bytes() == (Path(pipeline) / file).read_bytes()


def test_a_missing_pipeline_comes_with_its_install_command(tmp_path):
    spacy = pytest.importorskip("spacy")
    with pytest.raises(UserError, match="python -m spacy download xx_no_such"):
        parse(["a"], "xx_no_such", tmp_path)
    (tmp_path / "x").mkdir()
    with pytest.raises(UserError, match="cannot be opened as a spaCy pipeline"):
        parse(["a"], str(tmp_path / "x"), tmp_path)
    spacy.blank("en").to_disk(tmp_path / "blank")
    with pytest.raises(UserError, match="no tagger .*parser"):
        parse(["a"], str(tmp_path / "blank"), tmp_path)


def test_without_spacy_the_message_says_how_to_install_it(monkeypatch, tmp_path):
    monkeypatch.setitem(sys.modules, "spacy", None)
    with pytest.raises(UserError, match="pip install"):
        parse(["a"], "en_core_web_sm", tmp_path)


def untrained_pipeline(folder, seed):
    """Save a pipeline with random weights, which depend on the seed, and return its meta.json, which does not."""
    spacy = pytest.importorskip("spacy")
    spacy.util.fix_random_seed(seed)
    nlp = spacy.blank("en")
    nlp.add_pipe("tagger").add_label("NN")
    nlp.add_pipe("parser").add_label("nsubj")
    nlp.initialize()
    nlp.to_disk(folder)
    return (folder / "meta.json").read_text()


@pytest.mark.slow
def test_other_weights_are_another_pipeline_even_under_the_same_name(tmp_path):
    first = untrained_pipeline(tmp_path / "pipeline", 1)
    before = pipeline_facts(str(tmp_path / "pipeline"))
    parse(["a b"], str(tmp_path / "pipeline"), tmp_path / "parses")
    assert pipeline_facts(str(tmp_path / "pipeline")) == before
    assert untrained_pipeline(tmp_path / "pipeline", 2) == first
    after = pipeline_facts(str(tmp_path / "pipeline"))
    assert after["fingerprint"] != before["fingerprint"]
    assert {**after, "fingerprint": ""} == {**before, "fingerprint": ""}
    parse(["a b"], str(tmp_path / "pipeline"), tmp_path / "parses")
    assert len(list((tmp_path / "parses").iterdir())) == 2  # the first pipeline's parses were not reused
    moved = tmp_path / "elsewhere"
    (tmp_path / "pipeline").rename(moved)
    assert pipeline_facts(str(moved)) == after
