"""Attention between equal words and to punctuation, compared with plain loops, and claims about it."""

import numpy as np
import pytest
import torch
from measurements import estimand, gridded, measured, read, verdict
from wordpieces import tiny_tokenizer

from bertsecrets.measures.surface_words import SurfaceObserver, equal_words, kinds
from bertsecrets.models.alignment import encode_words
from bertsecrets.models.encoding import collate

FIRST = ["the Cat sat, the dog sat.", "a mat!", "dogs and cats"]
SECOND = ["cat and the mat.", "mats", "a cat ?"]


@pytest.fixture(scope="module")
def encoded():
    return encode_words(tiny_tokenizer(), FIRST, SECOND)


def characters(alignment, example, token):
    """Return a token's part and text; the text of special tokens is empty."""
    part = alignment.part[example, token]
    start, stop = alignment.offsets[example, token]
    return part, (FIRST, SECOND)[part][example][start:stop].lower() if part >= 0 else ""


def test_equal_words_are_found_only_across_texts(encoded):
    _, alignment = encoded
    pairs = equal_words(alignment, [FIRST, SECOND])
    links = [
        (int(i), *(characters(alignment, i, token) for token in (source, target)))
        for i, source, target in zip(pairs.example, pairs.source, pairs.target, strict=True)
    ]
    expected = {(0, (0, "the"), (1, "the")), (0, (0, "cat"), (1, "cat"))}
    assert set(links) == expected | {(i, target, source) for i, source, target in expected}
    assert len(links) == 2 * (2 + 1)  # "the" occurs twice


def test_single_texts_have_no_equal_words(encoded):
    _, alignment = encode_words(tiny_tokenizer(), FIRST)
    assert len(equal_words(alignment, [FIRST]).example) == 0


def test_every_token_of_a_text_is_of_one_kind(encoded):
    _, alignment = encoded
    marks = kinds(alignment, [FIRST, SECOND])
    assert (sum(mark.astype(int) for mark in marks.values()) == (alignment.part >= 0)).all()
    said = {
        kind: [characters(alignment, i, token) for i, token in zip(*np.nonzero(mark), strict=True)]
        for kind, mark in marks.items()
    }
    assert said["final"] == [(0, "."), (1, "."), (0, "!"), (1, "?")]
    assert said["other"] == [(0, ",")]


def test_weights_equal_plain_loops(encoded):
    rows, alignment = encoded
    batch = collate(rows, np.array([2, 0, 1]))
    torch.manual_seed(0)
    width = batch.input_ids.shape[1]
    maps = torch.randn(3, 4, width, width).masked_fill(~batch.mask[:, None, None], -torch.inf).softmax(-1)
    maps = maps * batch.mask[:, None, :, None]
    observer = SurfaceObserver(3, 1, 4, alignment, [FIRST, SECOND])
    observer.update(batch, 0, maps, None)
    values, samples = observer.compute()

    of_first = maps[list(batch.indices).index(0)].double().numpy()
    tokens = [characters(alignment, 0, token) for token in range(int(rows.lengths[0]))]
    equal, by_chance = [], []
    for i, (part, word) in enumerate(tokens):
        others = [j for j, (other, _) in enumerate(tokens) if part >= 0 and other == 1 - part]
        same = [j for j in others if word.isalpha() and tokens[j][1] == word]
        if same:
            equal.append(of_first[:, i, same].sum(1))
            by_chance.append(of_first[:, i, others].sum(1) * len(same) / len(others))
    assert len(equal) == 5
    np.testing.assert_allclose(samples["equal"][0, 0], np.mean(equal, 0), rtol=1e-5)
    np.testing.assert_allclose(samples["expected"][0, 0], np.mean(by_chance, 0), rtol=1e-5)
    assert np.isnan(samples["equal"][1:]).all()
    assert (values["equal_examples"], values["final_examples"], values["other_examples"]) == (1, 3, 1)
    columns = of_first.sum(1) / len(tokens)
    ends = [j for j, (_, word) in enumerate(tokens) if word == "."]
    np.testing.assert_allclose(samples["final"][0, 0], columns[:, ends].max(1), rtol=1e-5)


def test_uniform_attention_equals_chance(encoded):
    rows, alignment = encoded
    batch = collate(rows, np.arange(3))
    maps = (batch.mask[:, None, None] * batch.mask[:, None, :, None] / batch.lengths[:, None, None, None]).float()
    observer = SurfaceObserver(3, 1, 1, alignment, [FIRST, SECOND])
    observer.update(batch, 0, maps, None)
    _, samples = observer.compute()
    np.testing.assert_allclose(samples["equal"], samples["expected"], rtol=1e-5)


# ---------------------------------------------------------------------- claims


def surface(name, **kinds):
    """Return samples of 40 examples with these values in 2 x 3 heads, plus a little noise."""
    rng = np.random.default_rng(3)
    noise = 0.002 * rng.normal(size=(40, 1, 1))
    return gridded(
        "surface-words", name, **{kind: np.ones((40, 2, 3)) * value + noise for kind, value in kinds.items()}
    )


def test_final_punctuation_is_compared_with_words_in_the_last_two_layers():
    layers = np.full((4, 3), 0.1)
    layers[0], layers[2, 0], layers[3, 1:] = 0.9, 0.3, 0.3  # three of six heads; the first two layers do not count
    words = gridded("surface-words", "rte", final=[layers] * 40, word=[np.full((4, 3), 0.2)] * 40)
    words.samples["final"][5:10] = np.nan  # texts without final punctuation
    assert read("final-punctuation-heads", words) == pytest.approx(50)
    assert verdict("J7-rte", words).outcome == "reproduced"
    assert verdict("J7-rte", surface("rte", final=0.1, word=0.2)).outcome == "deviates"


def test_named_heads_attend_to_equal_words_beyond_chance():
    excess = np.zeros((12, 12))
    excess[3, 0], excess[1, 11] = 0.1, 0.05
    words = gridded("surface-words", "rte", equal=[0.02 + excess] * 40, expected=[np.full((12, 12), 0.02)] * 40)
    assert read("named-equal-word-attention", words) == pytest.approx(0.05)
    assert verdict("J4-rte", words).outcome == "reproduced"
    excess[1, 11] = -0.05
    words = gridded("surface-words", "rte", equal=[0.1 + excess] * 40, expected=[np.full((12, 12), 0.1)] * 40)
    assert verdict("J4-rte", words).outcome == "deviates"


def test_heads_are_selected_by_the_cost_of_disabling_them():
    gains = np.array([[-9.0, 1, 2], [3, 4, -8]])
    target = np.arange(40) % 2
    answers = {"baseline_predicted": target, "predicted": np.zeros((6, 40)), "target": target}
    grids = tuple(measured("head-ablation", {"score": gains}, answers, name) for name in ("stsb", "rte"))
    harmful = np.zeros((2, 3))
    harmful[0, 0] = harmful[1, 2] = 0.1
    words = surface("rte", equal=0.05 + harmful, expected=0.05)
    quantity = estimand("equal-word-attention", words, grids)
    assert quantity.value == pytest.approx(0.1)
    assert "33 % of all heads are above chance" in quantity.notes
    assert verdict("J4-rte-own", words, grids).outcome == "reproduced"
    assert verdict("J4-rte-own", surface("rte", equal=0.02, expected=0.05), grids).outcome == "deviates"
