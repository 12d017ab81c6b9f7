"""Encoding of texts, and batches: every example once, within the token budget, padded on the right."""

import json
import string
from dataclasses import replace

import numpy as np
import pytest
import torch
from hypothesis import given
from hypothesis import strategies as st
from tiny import byte_pairs, family, save_tokenizer, some_inputs
from transformers import AlbertTokenizerFast, GPT2TokenizerFast, RobertaTokenizerFast

from bertsecrets.errors import UserError
from bertsecrets.models import encoding
from bertsecrets.models.alignment import encode_words
from bertsecrets.models.encoding import (
    Encoded,
    batches,
    cased,
    collate,
    encode,
    lower_cases,
    predict,
    special_ids,
    without_lower_casing,
)
from bertsecrets.texts.glue import Split
from bertsecrets.texts.tasks import task

lengths = st.lists(st.integers(1, 40), min_size=1, max_size=50)


def encoded(sizes) -> Encoded:
    """Return examples of the given lengths; example i repeats the token id i + 1."""
    return Encoded([[i + 1] * size for i, size in enumerate(sizes)], None, 0)


@given(lengths | st.just([]), st.integers(1, 200), st.integers(1, 20), st.none() | st.integers(1, 60))
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


def test_pairs_are_cut_longest_first(tiny_vocabulary):
    split = Split(task("rte"), "dev", ["ada sold apples in lisbon"], ["ada sold"], ["entailment"], "here", False)
    tokens = tiny_vocabulary.convert_ids_to_tokens
    whole = encode(split, tiny_vocabulary, 64)
    assert " ".join(tokens(whole.input_ids[0])) == "[CLS] ada sold apples in lisbon [SEP] ada sold [SEP]"
    assert list(whole.segments[0]) == [0] * 7 + [1] * 3
    cut = encode(split, tiny_vocabulary, 8)
    assert " ".join(tokens(cut.input_ids[0])) == "[CLS] ada sold apples [SEP] ada sold [SEP]"


def test_a_cased_copy_keeps_capitals_and_the_vocabulary(tiny_vocabulary):
    assert lower_cases(tiny_vocabulary)
    other = cased(tiny_vocabulary)
    assert not lower_cases(other)
    assert tiny_vocabulary.tokenize("Sold keys") == ["sold", "keys"]
    assert other.tokenize("Sold keys") == ["[UNK]", "keys"]
    assert other.get_vocab() == tiny_vocabulary.get_vocab()
    assert tiny_vocabulary.tokenize("Sold") == ["sold"]  # the original is unchanged


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


# ---------------------------------------------------------------------- special tokens in texts


def albert(**options):
    special = ("<pad>", "<unk>", "[CLS]", "[SEP]", "[MASK]")
    letters = [(letter, -9.0) for letter in string.printable if not letter.isspace()]
    pieces = [(token, 0.0) for token in special] + [("▁", -3.0), ("▁ada", -4.0), ("▁sold", -4.0), *letters]
    return AlbertTokenizerFast(vocab=pieces, **options)


MADE = {
    "bert": save_tokenizer,
    "roberta": lambda folder: RobertaTokenizerFast(**byte_pairs(["<s>", "<pad>", "</s>", "<unk>", "<mask>"])),
    "gpt2": lambda folder: GPT2TokenizerFast(**byte_pairs(["<|endoftext|>"])),
    "albert": lambda folder: albert(),
    "cased albert": lambda folder: albert(do_lower_case=False),
}
TYPED = ("[SEP]", "[CLS]", "[PAD]", "[MASK]", "[UNK]", "<s>", "</s>", "<pad>", "<mask>", "<|endoftext|>")


@pytest.mark.parametrize("made", MADE.values(), ids=MADE)
@pytest.mark.parametrize("second", [None, "{} two </s>{} keys"])
def test_a_special_token_in_a_text_is_text(made, second, tmp_path):
    tokenizer = made(tmp_path / "tokenizer")
    before = json.loads(tokenizer.backend_tokenizer.to_str())
    texts = ["ada sold two books", *(f"{typed} ada {typed}sold {typed} {typed}" for typed in TYPED)]
    seconds = None if second is None else [second.format("ada", "leo"), *(second.format(tag, tag) for tag in TYPED)]
    encoded, alignment = encode_words(tokenizer, texts, seconds, 256)
    roles = {*special_ids(tokenizer).values(), tokenizer.pad_token_id, tokenizer.mask_token_id} - {None}
    counts = [sum(token in roles for token in ids) for ids in encoded.input_ids]
    assert counts == [tokenizer.num_special_tokens_to_add(second is not None)] * len(texts)
    for i in range(1, len(texts)):  # a word is still found at its place
        place = texts[i].index("sold")
        marks = alignment.mark([[]] * i + [[(place, place + 4)]] + [[]] * (len(texts) - i - 1))
        offsets = alignment.offsets[i][marks[i]]
        assert (offsets[:, 0].min(), offsets[:, 1].max()) in {(place, place + 4), (place - 1, place + 4)}
    after = json.loads(tokenizer.backend_tokenizer.to_str())
    assert after | {"truncation": None} == before  # so the tokenizer is saved unchanged with a checkpoint


@pytest.mark.parametrize("value", [float("nan"), float("inf")])
def test_a_logit_that_is_not_finite_is_one_line(value):
    model = family("bert")
    with torch.no_grad():
        model.classifier.bias[1] = value
    with pytest.raises(UserError, match=f"a logit is {value}: the model's training has diverged"):
        predict(model, some_inputs())


def test_rows_are_encoded_once_by_equal_tokenizers(tmp_path, monkeypatch):
    """Other rows, another length or a tokenizer with any difference are encoded again."""
    tokenizer = save_tokenizer(tmp_path)
    calls = []
    whole = encoding.tokenize
    monkeypatch.setattr(encoding, "tokenize", lambda *given: calls.append(given) or whole(*given))
    rows = Split(task("sst2"), "dev", ["the Doctor", "once, never"], None, ["0", "1"], "here", False)
    first = encode(rows, tokenizer, 16)
    again = type(tokenizer).from_pretrained(tmp_path)
    assert encode(rows, again, 16) is encode(rows, tokenizer, 16) is first
    assert len(calls) == 1
    other = replace(rows, sentence1=["the Doctor", "once, twice"])
    for number, (split, chosen, length) in enumerate(
        [(rows, tokenizer, 8), (other, tokenizer, 16), (rows, cased(tokenizer), 16)], start=2
    ):
        assert encode(split, chosen, length).input_ids == whole(chosen, split.sentence1, None, length)[0].input_ids
        assert len(calls) == number
    tokenizer.truncation_side = "left"
    assert encode(rows, tokenizer, 4).input_ids != encode(rows, again, 4).input_ids
