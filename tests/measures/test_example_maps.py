"""Maps of a few examples, compared with those of transformers."""

import numpy as np
import pytest
import torch

from bertsecrets.measures.example_maps import LONGEST_PIECES, SHORTEST_PIECES, TARGET_KINDS, short_examples


@pytest.fixture
def made(session):
    return session.measure("example-maps", task="rte")


def plain_maps(folder, texts) -> np.ndarray:
    """Return the maps of one example [layer, head, token, token] from transformers."""
    from transformers import AutoModelForSequenceClassification, AutoTokenizer

    model = AutoModelForSequenceClassification.from_pretrained(folder, attn_implementation="eager").eval()
    coded = AutoTokenizer.from_pretrained(folder)(*texts, return_tensors="pt")
    with torch.no_grad():
        return torch.cat(model(**coded, output_attentions=True).attentions).numpy()


def test_maps_equal_those_of_the_pretrained_model_and_the_checkpoint(session, made, tiny_bert):
    rows = session.resources.rows.split("rte", "dev")
    checkpoint = session.checkpoint(made.subject)
    for place, row in enumerate(made.sample("shown")[:2]):
        texts, length = (rows.sentence1[row], rows.sentence2[row]), made.sample("lengths")[place]
        for side, folder in (("before", tiny_bert), ("after", checkpoint)):
            expected = plain_maps(folder, texts)
            stored_maps = made.sample(f"maps_{side}")[place][..., :length, :length]
            np.testing.assert_allclose(stored_maps, expected, atol=1e-3)  # stored in 16 bits
        assert made.value("texts")[place] == " / ".join(texts)


def test_the_shortest_examples_alternate_between_labels(session, made):
    rows, lengths = session.resources.rows.split("rte", "dev"), made.sample("lengths")
    assert all(SHORTEST_PIECES <= length <= LONGEST_PIECES for length in lengths)
    assert made.value("labels") == ["entailment", "not_entailment"] * 3
    assert [rows.labels[i] for i in made.sample("shown")] == made.value("labels")
    assert list(lengths[::2]) == sorted(lengths[::2])


def test_examples_without_labels_are_the_shortest():
    lengths = np.array([30, 9, 7, LONGEST_PIECES + 1, 12, SHORTEST_PIECES])
    assert short_examples(lengths, [0.0, 5.0, 1.2, 3.0, 2.5, 4.0], ()) == [5, 1, 4, 0]
    assert short_examples(np.array([7, 99]), ["yes", "no"], ["yes", "no"]) == []


def test_shares_of_attention_equal_a_loop_over_tokens(made):
    lengths, tokens = made.sample("lengths"), list(made.value("tokens"))
    words, place = tokens[: lengths[0]], made.sample("shown")[0]
    assert (words[0], words[-1], words.count("[SEP]")) == ("[CLS]", "[SEP]", 2)
    text = [int("[SEP]" in words[:i]) for i in range(len(words))]  # a special token belongs to the text before it
    weights = made.sample("maps_after")[0].astype(np.float64)
    expected = np.zeros((*weights.shape[:2], len(TARGET_KINDS)))
    for i in range(len(words)):
        for j in range(len(words)):
            special = {"[CLS]": 0, "[SEP]": 1}.get(words[j])
            near = {0: 2, -1: 3, 1: 4}.get(j - i)
            kind = special if special is not None else near if near is not None else 5 if text[i] == text[j] else 6
            expected[..., kind] += weights[:, :, i, j] / len(words)
    np.testing.assert_allclose(made.sample("to_after")[place], expected, atol=2e-3)
    np.testing.assert_allclose(made.value("to_after").sum(-1), 1, atol=1e-5)
    np.testing.assert_allclose(made.value("to_before"), made.sample("to_before").mean(0), atol=1e-6)


def test_means_equal_those_of_attention_change(session, made):
    change = session.measure("attention-change", task="rte")
    np.testing.assert_allclose(made.value("cosine"), change.value("cosine"), atol=1e-6)
