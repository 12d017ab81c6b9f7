"""Attention along relations and to linguistic features, compared with loops and hand-computed values."""

import numpy as np
import pytest
import torch
from hypothesis import given, settings
from hypothesis import strategies as st
from tiny import opened
from transformers import BertConfig, BertModel
from wordpieces import tiny_tokenizer, words_of

from bertsecrets.measures.base.observers import PairObserver, max_weight
from bertsecrets.measures.features import FeatureObserver, contains_negation, feature_marks
from bertsecrets.measures.frame_heads import frame_observer
from bertsecrets.measures.relations import relation_pairs
from bertsecrets.models.alignment import TokenPairs, encode_words
from bertsecrets.models.attention import Pass, Tap
from bertsecrets.models.encoding import Batch, collate
from bertsecrets.texts.framenet import FrameSentence
from bertsecrets.texts.parsing import is_negation


def batch_of(indices, lengths, width):
    """Return a batch of the examples with these indices; their token ids do not matter."""
    mask = torch.arange(width)[None] < torch.tensor(lengths)[:, None]
    return Batch(np.array(indices), torch.ones(len(indices), width, dtype=torch.long), None, mask)


def random_maps(seed, lengths, heads, width):
    torch.manual_seed(seed)
    batch = batch_of(range(len(lengths)), lengths, width)
    scores = torch.randn(len(lengths), heads, width, width) * 2
    maps = scores.masked_fill(~batch.mask[:, None, None, :], -torch.inf).softmax(-1)
    return maps * batch.mask[:, None, :, None], batch


# ---------------------------------------------------------------------- hand-computed values


def test_missing_features_may_count_as_zero_but_missing_separators_never_do():
    maps = torch.tensor([[[[0.5, 0.5], [0.1, 0.9]]]])
    marks = {"verb": np.zeros((1, 2), dtype=bool), "sep": np.zeros((1, 2), dtype=bool)}
    observer = FeatureObserver(1, 1, 1, marks, cls=np.array([[True, False]]), absent=0.0)
    observer.update(batch_of([0], [2], 2), 0, maps, None)
    values, _ = observer.compute()
    assert (values["verb"][0, 0], values["cls_row_verb"][0], values["verb_examples"]) == (0, 0, 1)
    assert np.isnan(values["sep"]).all()


def test_the_papers_code_counts_words_that_contain_a_negation():
    words = words_of("another notice cannot nothing cat don't")
    assert [contains_negation(word) for word in words] == [True, True, True, True, False, True]
    assert [is_negation(word) for word in words] == [False, False, True, True, False, True]


def test_zipped_pairs_join_the_kth_verb_with_the_kth_subject():
    """Verbs and subjects of "sat mat cat cats": `sat` governs `cats`, `mat` governs `cat`."""
    tags = {"sat": "VBD", "mat": "VBD"}
    words = words_of("sat mat cat cats", tags, {"cat": "nsubj", "cats": "nsubj"}, {"cat": 1, "cats": 0})
    _, alignment = encode_words(tiny_tokenizer(), ["sat mat cat cats"])
    own, zipped = (relation_pairs(alignment, [words], zipped=of) for of in (False, True))
    of_verbs = [
        (pairs["verb_subject"].source.tolist(), pairs["verb_subject"].target.tolist()) for pairs in (own, zipped)
    ]
    assert of_verbs == [([1, 2], [4, 3]), ([1, 2], [3, 4])]


# ---------------------------------------------------------------------- reference loops and padding

shapes = st.tuples(st.integers(0, 999), st.lists(st.integers(2, 6), min_size=1, max_size=4))


@settings(deadline=None, max_examples=40)
@given(shapes, st.lists(st.tuples(st.integers(0, 3), st.integers(0, 5), st.integers(0, 5)), max_size=20))
def test_pair_attention_equals_a_loop(shape, triples):
    seed, lengths = shape
    maps, batch = random_maps(seed, lengths, 3, 6)
    valid_triples = [(e, s, t) for e, s, t in triples if e < len(lengths) and max(s, t) < lengths[e]]
    pairs = TokenPairs.unique(*np.array(valid_triples, dtype=np.int64).reshape(-1, 3).T)
    maxima = max_weight(maps, batch, pairs).numpy()
    for row in range(len(lengths)):
        for head in range(3):
            weights = [maps[row, head, s, t].item() for e, s, t in valid_triples if e == row]
            assert maxima[row, head] == pytest.approx(max(weights, default=np.nan), nan_ok=True)


@settings(deadline=None, max_examples=40)
@given(shapes, st.integers(0, 2**32 - 1))
def test_features_equal_a_loop_with_any_padding(shape, seed):
    lengths = shape[1]
    maps, batch = random_maps(shape[0], lengths, 2, 6)
    drawn = np.random.default_rng(seed).random((2, len(lengths), 6)) < 0.4
    drawn &= np.arange(6) < np.array(lengths)[:, None]
    cls = np.zeros((len(lengths), 6), dtype=bool)
    cls[:, 0] = True
    observer = FeatureObserver(len(lengths), 1, 2, dict(zip("ab", drawn, strict=True)), cls)
    observer.update(batch, 0, maps, None)
    _, samples = observer.compute()
    for n, kind in enumerate("ab"):
        for row, length in enumerate(lengths):
            real = maps[row, :, :length, :length].numpy()
            tokens = np.flatnonzero(drawn[n, row])
            for head in range(2):
                columns = [real[head, :, t].sum() / length for t in tokens]
                row_weights = [real[head, 0, t] for t in tokens]
                assert samples[kind][row, 0, head] == pytest.approx(max(columns, default=np.nan), nan_ok=True)
                of_row = samples[f"cls_row_{kind}"][row, head]
                assert of_row == pytest.approx(max(row_weights, default=np.nan), nan_ok=True)


@pytest.fixture(scope="module")
def tokenizer():
    return tiny_tokenizer()


@pytest.fixture(scope="module")
def model():
    torch.manual_seed(0)
    config = BertConfig(
        vocab_size=40, hidden_size=24, num_hidden_layers=2, num_attention_heads=3, intermediate_size=32,
        max_position_embeddings=64, attn_implementation="eager",
    )  # fmt: skip
    return BertModel(config).eval()


SENTENCES = [
    FrameSentence("the unhappiness sat on the mat .", (20, 22), ((4, 15),)),
    FrameSentence("cat don't sat .", (10, 13), ((0, 3),)),
    FrameSentence("him , the cats sat on the unhappiness", (26, 37), ((0, 3), (10, 14))),
]


def test_frame_attention_equals_maps_of_transformers(model, tokenizer):
    encoded, alignment = encode_words(tokenizer, [s.sentence for s in SENTENCES])
    observer = frame_observer(alignment, SENTENCES, 2, 3)
    Pass(opened(model)).feed(encoded, [observer])
    values, samples = observer.compute()
    places = [([2, 3, 4], [6]), ([1], [5]), ([1, 4], [8, 9, 10])]
    for i, (elements, targets) in enumerate(places):
        with torch.no_grad():
            maps = model(torch.tensor([encoded.input_ids[i]]), output_attentions=True).attentions
        for layer in range(2):
            m = maps[layer][0].numpy()
            every = np.max([m[:, e, t] for e in elements for t in targets], axis=0)
            back = np.max([m[:, t, e] for e in elements for t in targets], axis=0)
            zipped = np.max([m[:, e, t] for e, t in zip(elements, targets, strict=False)], axis=0)
            np.testing.assert_allclose(samples["max_weight"][i, layer], every, atol=1e-6)
            np.testing.assert_allclose(samples["max_weight_reverse"][i, layer], back, atol=1e-6)
            np.testing.assert_allclose(samples["max_weight_zipped"][i, layer], zipped, atol=1e-6)
    np.testing.assert_allclose(values["max_weight"], samples["max_weight"].mean(0), atol=1e-6)
    assert values["max_weight_examples"] == 3


def test_padding_never_changes_a_value(model, tokenizer):
    texts = [s.sentence for s in SENTENCES]
    encoded, alignment = encode_words(tokenizer, texts)
    parses = [words_of(text, {"him": "PRP"}) for text in texts]
    marks = feature_marks(alignment, encoded.input_ids, {"cls": 2, "sep": 3}, parses)

    def measure(groups, width):
        observers = [
            frame_observer(alignment, SENTENCES, 2, 3),
            FeatureObserver(3, 2, 3, marks, marks["cls"]),
            PairObserver(3, 2, 3, relation_pairs(alignment, parses)),
        ]
        for group in groups:
            batch = collate(encoded, np.array(group), width)

            def see(layer, maps, batch=batch):
                for observer in observers:
                    observer.update(batch, layer, maps, None)

            Tap(model, 2).run(batch, see)
        return {name: sample for observer in observers for name, sample in observer.compute()[1].items()}

    alone = measure([[0], [1], [2]], None)
    for other in (measure([[0, 1, 2]], None), measure([[2, 0], [1]], 20)):
        for name, sample in alone.items():
            np.testing.assert_allclose(sample, other[name], atol=1e-6, err_msg=name)
    assert not np.isnan(alone["noun"]).any()
    assert np.isnan(alone["noun_pronoun"][:2]).all()
    assert not np.isnan(alone["noun_pronoun"][2]).any()
