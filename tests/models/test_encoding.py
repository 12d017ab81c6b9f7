"""Batches: every example once, bounded, padded on the right, and the original order restored."""

import numpy as np
import pytest
import torch
from hypothesis import given
from hypothesis import strategies as st
from tiny import family, some_inputs

from bertsecrets.models.encoding import (
    Encoded,
    batches,
    cased,
    collate,
    encode,
    lower_cases,
    predict,
    without_lower_casing,
)
from bertsecrets.texts.glue import Split
from bertsecrets.texts.tasks import task

lengths = st.lists(st.integers(1, 40), min_size=1, max_size=50)


def encoded(sizes) -> Encoded:
    """Examples of given lengths; example i is made of the number i + 1."""
    return Encoded([[i + 1] * size for i, size in enumerate(sizes)], None, 0)


@given(lengths, st.integers(1, 200), st.integers(1, 20), st.one_of(st.none(), st.integers(1, 60)))
def test_every_example_comes_once_within_the_budget(sizes, tokens, rows, width):
    seen = []
    for batch in batches(encoded(sizes), tokens, rows, width):
        places = batch.indices.tolist()
        seen += places
        longest = max(sizes[i] for i in places)
        assert batch.input_ids.shape == (len(places), max(longest, width or 0))
        assert len(places) <= rows
        assert batch.input_ids.numel() <= tokens or len(places) == 1
        assert batch.lengths.tolist() == [sizes[i] for i in places]
    assert sorted(seen) == list(range(len(sizes)))
    assert [sizes[i] for i in seen] == sorted(sizes)


@given(lengths)
def test_padding_is_on_the_right_and_masked(sizes):
    batch = collate(encoded(sizes), np.arange(len(sizes)))
    assert torch.equal(batch.input_ids != 0, batch.mask)
    for row, size in enumerate(sizes):
        assert batch.input_ids[row, :size].tolist() == [row + 1] * size
        assert batch.mask[row].tolist() == [True] * size + [False] * (max(sizes) - size)


def test_a_batch_gives_a_model_its_masks_and_segments():
    batch = collate(Encoded([[5, 6], [7]], [[0, 1], [0]], 9), np.array([1, 0]), width=4)
    inputs = batch.inputs()
    assert inputs["input_ids"].tolist() == [[7, 9, 9, 9], [5, 6, 9, 9]]
    assert inputs["attention_mask"].tolist() == [[1, 0, 0, 0], [1, 1, 0, 0]]
    assert inputs["token_type_ids"].tolist() == [[0, 0, 0, 0], [0, 1, 0, 0]]
    assert "token_type_ids" not in collate(Encoded([[5]], None, 0), np.array([0])).inputs()


def test_no_examples_give_no_batches():
    assert list(batches(Encoded([], None, 0))) == []


def test_pairs_are_cut_longest_first(tiny_vocabulary):
    split = Split(task("rte"), "dev", ["ada sold apples in lisbon"], ["ada sold"], ["entailment"], "here", False)
    tokens = tiny_vocabulary.convert_ids_to_tokens
    whole = encode(split, tiny_vocabulary, 64)
    assert tokens(whole.input_ids[0]) == [
        "[CLS]",
        "ada",
        "sold",
        "apples",
        "in",
        "lisbon",
        "[SEP]",
        "ada",
        "sold",
        "[SEP]",
    ]
    assert list(whole.segments[0]) == [0] * 7 + [1] * 3
    cut = encode(split, tiny_vocabulary, 8)
    assert tokens(cut.input_ids[0]) == ["[CLS]", "ada", "sold", "apples", "[SEP]", "ada", "sold", "[SEP]"]


def test_a_single_sentence_has_one_separator(tiny_vocabulary):
    split = Split(task("sst2"), "dev", ["ada sold apples"], None, ["positive"], "here", False)
    ids = encode(split, tiny_vocabulary, 64).input_ids[0]
    assert tiny_vocabulary.convert_ids_to_tokens(ids) == ["[CLS]", "ada", "sold", "apples", "[SEP]"]


@pytest.mark.parametrize("name", ["bert", "gpt2", "roberta"])
def test_predictions_come_in_the_original_order_and_equal_those_one_by_one(name):
    model, inputs = family(name), some_inputs(11)
    together = predict(model, inputs)
    for i, ids in enumerate(inputs.input_ids):
        row = torch.tensor([ids])
        with torch.no_grad():
            alone = model(input_ids=row, attention_mask=torch.ones_like(row)).logits[0]
        np.testing.assert_allclose(together[i], alone.numpy(), atol=1e-5)


def test_a_cased_copy_leaves_capitals_and_the_vocabulary_alone(tiny_vocabulary):
    assert lower_cases(tiny_vocabulary)
    other = cased(tiny_vocabulary)
    assert not lower_cases(other)
    assert tiny_vocabulary.tokenize("Never were") == ["never", "were"]
    assert other.tokenize("Never were") == ["[UNK]", "were"]
    assert other.get_vocab() == tiny_vocabulary.get_vocab()
    assert tiny_vocabulary.tokenize("Never") == ["never"]  # the original is as it was


@pytest.mark.parametrize(
    ("normalizer", "without"),
    [
        ({"type": "Lowercase"}, {"type": "Sequence", "normalizers": []}),
        ({"type": "NFC"}, {"type": "NFC"}),
        (
            {"type": "Sequence", "normalizers": [{"type": "NFC"}, {"type": "Lowercase"}]},
            {"type": "Sequence", "normalizers": [{"type": "NFC"}]},
        ),
        ({"type": "BertNormalizer", "lowercase": True}, {"type": "BertNormalizer", "lowercase": False}),
    ],
)
def test_lower_casing_is_found_in_any_normalizer(normalizer, without):
    assert without_lower_casing(normalizer) == without
