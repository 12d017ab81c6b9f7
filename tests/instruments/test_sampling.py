"""Sampled maps equal the model's, are balanced over heads and are reproducible by seed."""

from collections import Counter

import numpy as np
import pytest
import torch
from tiny import HEADS, LAYERS, plain_maps
from transformers import AutoModelForSequenceClassification

from bertsecrets.errors import UserError
from bertsecrets.models.encoding import encode
from bertsecrets.session import Session
from bertsecrets.types import Subject
from instruments.annotation.sampling import draw


@pytest.fixture(scope="module")
def bench(tiny_glue, tmp_path_factory):
    return Session(
        store=tmp_path_factory.mktemp("store"), glue=tiny_glue, device="cpu", offline=True, allow_unofficial_data=True
    )


@pytest.fixture(scope="module")
def subject(tiny_bert) -> Subject:
    return Subject(str(tiny_bert), "rte", "untrained")


def test_drawn_maps_equal_those_of_the_model(bench, subject):
    drawn = draw(bench, {subject: 9}, seed=3)
    folder = bench.checkpoint(subject)
    model = AutoModelForSequenceClassification.from_pretrained(folder, attn_implementation="eager").eval()
    from transformers import AutoTokenizer

    encoded = encode(bench.resources.rows.split("rte", "dev"), AutoTokenizer.from_pretrained(folder), 200)
    for each in drawn:
        expected = plain_maps(model, encoded, each.example)[each.layer - 1, each.head - 1]
        np.testing.assert_allclose(each.values.astype(float), expected.numpy(), atol=1e-3)
        assert each.boundary == torch.tensor(encoded.segments[each.example]).argmax()
        assert (each.model, each.task, each.state) == ("tiny-bert", "rte", "pretrained")


def test_heads_take_turns_across_subjects(bench, subject):
    other = Subject(subject.model, "rte", "untrained", 2)
    drawn = draw(bench, {subject: 15, other: 2 * LAYERS * HEADS - 15}, seed=1)
    counts = Counter((each.layer, each.head) for each in drawn)
    assert [*counts.values()] == [2] * LAYERS * HEADS
    assert len({each.name for each in drawn}) == len(drawn)
    assert len({each.example for each in drawn.maps[:15]}) == 15  # inputs are not repeated if there are enough


def test_more_maps_than_inputs_use_inputs_in_turns(bench, subject):
    drawn = draw(bench, {subject: 60}, seed=1)
    counts = Counter(each.example for each in drawn)
    assert len(counts) == 24
    assert max(counts.values()) - min(counts.values()) <= 2
    assert len({each.name for each in drawn}) == 60


def test_the_same_seed_gives_the_same_draw(bench, subject):
    names = [[each.name for each in draw(bench, {subject: 8}, seed=seed)] for seed in (1, 1, 2)]
    assert names[0] == names[1] != names[2]


def test_long_inputs_are_skipped(bench, subject):
    tokens = [each.tokens for each in draw(bench, {subject: 24}, seed=1)]
    limit = sorted(tokens)[5]
    assert max(each.tokens for each in draw(bench, {subject: 5}, seed=1, max_tokens=limit)) <= limit
    with pytest.raises(UserError, match="has no row of at most 3 tokens"):
        draw(bench, {subject: 5}, max_tokens=3)


def test_impossible_counts_are_refused(bench, subject):
    with pytest.raises(UserError, match="draw 1 or more"):
        draw(bench, {subject: 0})
    with pytest.raises(UserError, match="has inputs for only 288 of 289 maps"):
        draw(bench, {subject: 24 * LAYERS * HEADS + 1})
