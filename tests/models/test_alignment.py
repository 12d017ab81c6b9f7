"""Words are aligned with their word-pieces by character offsets."""

import numpy as np
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st
from hypothesis.extra.numpy import arrays
from wordpieces import byte_level_tokenizer, tiny_tokenizer

from bertsecrets.models.alignment import TokenPairs, all_pairs, encode_words, zipped_pairs
from bertsecrets.models.encoding import encode
from bertsecrets.texts.glue import Split
from bertsecrets.texts.tasks import task


@pytest.fixture(scope="module")
def tokenizer():
    return tiny_tokenizer()


def pieces(tokenizer, text, *words, second=None, part=0, max_length=64):
    """Return the word-pieces of the first occurrence of each word."""
    encoded, alignment = encode_words(tokenizer, [text], None if second is None else [second], max_length)
    searched = second if part else text
    spans = [(searched.index(word), searched.index(word) + len(word)) for word in words]
    marks = alignment.mark([spans], part)[0]
    return [tokenizer.convert_ids_to_tokens(encoded.input_ids[0][i]) for i in np.flatnonzero(marks)]


def test_a_word_is_all_its_pieces(tokenizer):
    assert pieces(tokenizer, "The unhappiness sat.", "unhappiness") == ["un", "##happi", "##ness"]


def test_a_contraction_is_found_by_place(tokenizer):
    text = "The cat don't sat"
    assert pieces(tokenizer, text, "n't") == ["don", "'", "t"]  # the piece `don` contains the n of n't
    assert pieces(tokenizer, text, "do") == ["don"]
    assert pieces(tokenizer, text, "sat") == ["sat"]


def test_an_equal_piece_elsewhere_is_not_taken(tokenizer):
    encoded, alignment = encode_words(tokenizer, ["cat sat cat"])
    assert alignment.mark([[(8, 11)]])[0].tolist() == [False, False, False, True, False]
    assert encoded.input_ids[0][1] == encoded.input_ids[0][3]


@pytest.mark.parametrize("naive", ["na\u00efve", "nai\u0308ve"], ids=["composed", "combining"])
def test_accents_do_not_shift_later_tokens(tokenizer, naive):
    text = f"The {naive} cat – café 🐭 sat"
    assert pieces(tokenizer, text, naive) == ["na", "##ive"]
    assert pieces(tokenizer, text, "cat") == ["cat"]
    assert pieces(tokenizer, text, "café") == ["cafe"]
    assert pieces(tokenizer, text, "🐭") == ["[UNK]"]
    assert pieces(tokenizer, text, "sat") == ["sat"]


def test_the_second_text_has_its_own_characters(tokenizer):
    assert pieces(tokenizer, "the cat sat", "cat", second="sat the mat", part=0) == ["cat"]
    assert pieces(tokenizer, "the cat sat", "mat", second="sat the mat", part=1) == ["mat"]


def test_truncated_spans_have_no_tokens(tokenizer):
    assert pieces(tokenizer, "the cat sat on the mat", "mat", max_length=5) == []
    assert pieces(tokenizer, "the cat sat on the mat", "cat", max_length=5) == ["cat"]


@pytest.mark.parametrize("trim", [True, False])
def test_the_space_before_a_byte_level_piece_belongs_to_no_word(trim):
    text = "the cat sat don't the café"
    made = byte_level_tokenizer([text], trim)
    for word in ("cat", "sat", "the", "café"):
        encoded, alignment = encode_words(made, [text])
        marks = alignment.mark([[(text.index(word), text.index(word) + len(word))]])[0]
        assert made.decode([t for t, hit in zip(encoded.input_ids[0], marks, strict=True) if hit]).strip() == word


def test_special_tokens_belong_to_no_word(tokenizer):
    encoded, alignment = encode_words(tokenizer, ["the cat", "sat"], ["mat", "the cat sat"])
    whole = alignment.mark([[(0, 99)], [(0, 99)]], 0) | alignment.mark([[(0, 99)], [(0, 99)]], 1)
    for example, ids in enumerate(encoded.input_ids):
        assert [token for token, hit in zip(ids, whole[example], strict=False) if not hit] == [2, 3, 3]
    assert alignment.tokens(encoded.input_ids, 3).sum() == 4
    assert alignment.tokens(encoded.input_ids, None).sum() == 0


def test_tokens_are_those_of_an_ordinary_encoding(tokenizer):
    first, second = ["the cat sat on the mat .", "unhappiness"], ["don't , cat", "the mat"]
    split = Split(task("rte"), "dev", first, second, ["entailment", "not_entailment"], "here", official=False)
    ours, _ = encode_words(tokenizer, first, second, 10)
    theirs = encode(split, tokenizer, 10)
    assert (ours.input_ids, ours.segments) == (theirs.input_ids, theirs.segments)


def test_links_pair_linked_spans_only(tokenizer):
    text = "the cat sat on the unhappiness"
    _, alignment = encode_words(tokenizer, [text, text])
    pairs = alignment.links([[], [((4, 7), (19, 30)), ((8, 11), (4, 7))]])
    links = list(zip(pairs.example.tolist(), pairs.source.tolist(), pairs.target.tolist(), strict=True))
    assert links == [(1, 2, 6), (1, 2, 7), (1, 2, 8), (1, 3, 2)]
    back = pairs.reverse
    assert sorted(zip(back.source.tolist(), back.target.tolist(), strict=True)) == [(2, 3), (6, 2), (7, 2), (8, 2)]


marks = arrays(bool, (3, 6))


@settings(deadline=None)
@given(marks, marks)
def test_all_pairs_and_zipped_pairs_equal_their_loops(sources, targets):
    every, zipped = set(), set()
    for i in range(3):
        s, t = np.flatnonzero(sources[i]).tolist(), np.flatnonzero(targets[i]).tolist()
        every |= {(i, a, b) for a in s for b in t if a != b}
        zipped |= {(i, a, b) for a, b in zip(s, t, strict=False)}
    assert as_set(all_pairs(sources, targets)) == every
    assert as_set(zipped_pairs(sources, targets)) == zipped


@settings(deadline=None)
@given(st.lists(st.tuples(st.integers(0, 4), st.integers(0, 3), st.integers(0, 3))), st.permutations(range(5)))
def test_pairs_follow_their_examples_into_a_batch(triples, order):
    table = np.array(triples, dtype=np.int64).reshape(-1, 3)
    rows, source, target = TokenPairs.unique(*table.T).of_rows(np.array(order[:3]))
    expected = {(order.index(e), s, t) for e, s, t in triples if order.index(e) < 3}
    assert set(zip(rows.tolist(), source.tolist(), target.tolist(), strict=True)) == expected


def as_set(pairs):
    return set(zip(pairs.example.tolist(), pairs.source.tolist(), pairs.target.tolist(), strict=True))
