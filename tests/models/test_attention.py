"""Streamed attention equals that of transformers for single examples; sanity checks detect wrong attention."""

from dataclasses import replace

import numpy as np
import pytest
import torch
from tiny import HEADS, LAYERS, family, opened, plain_maps, some_inputs

from bertsecrets.errors import UserError
from bertsecrets.measures.attention_change import CosineObserver, map_cosine
from bertsecrets.measures.special_tokens import SpecialTokenObserver
from bertsecrets.models.attention import Pass, Tap
from bertsecrets.models.encoding import batches, collate

SHAPE = (LAYERS, HEADS)


def special_naively(model, inputs, ids):
    """Compute attention to special tokens with loops.

    Each column is averaged over rows. Of several [SEP]s, the largest value and the sum are returned. `brightest` is
    whether a special token has the largest value of all tokens.
    """
    measures = {kind: np.zeros((len(inputs), *SHAPE)) for kind in ("cls", "sep", "sep_sum", "brightest")}
    for i, row in enumerate(inputs.input_ids):
        maps = plain_maps(model, inputs, i).double().numpy()
        for layer in range(LAYERS):
            for head in range(HEADS):
                columns = [sum(maps[layer, head, q, k] for q in range(len(row))) / len(row) for k in range(len(row))]
                seps = [columns[k] for k, token in enumerate(row) if token == ids["sep"]]
                measures["cls"][i, layer, head] = max(columns[k] for k, token in enumerate(row) if token == ids["cls"])
                measures["sep"][i, layer, head], measures["sep_sum"][i, layer, head] = max(seps), sum(seps)
                measures["brightest"][i, layer, head] = row[int(np.argmax(columns))] in ids.values()
    return measures


def test_attention_to_special_tokens_equals_loops_over_single_examples():
    model, inputs, ids = family("bert"), some_inputs(segments=True), {"cls": 2, "sep": 3}
    observer = SpecialTokenObserver(len(inputs), *SHAPE, ids)
    Pass(opened(model)).feed(inputs, [observer])
    values, samples = observer.compute()
    expected = special_naively(model, inputs, ids)
    for kind in ("cls", "sep", "sep_sum", "brightest"):
        np.testing.assert_allclose(samples[kind], expected[kind], atol=1e-6)
        np.testing.assert_allclose(values[kind], expected[kind].mean(0), atol=1e-6)


def test_a_special_token_that_a_model_lacks_is_not_a_number():
    observer = SpecialTokenObserver(2, *SHAPE, {"cls": None, "sep": 3})
    Pass(opened(family("bert"))).feed(some_inputs(2), [observer])
    values, _ = observer.compute()
    assert np.isnan(values["cls"]).all()
    assert (values["sep"] > 0).all()


def test_a_padding_id_that_equals_the_separator_does_not_count():
    inputs = some_inputs(6)
    plain, padded_with_sep = (SpecialTokenObserver(6, *SHAPE, {"cls": 2, "sep": 3}) for _ in range(2))
    Pass(opened(family("bert"))).feed(inputs, [plain])
    Pass(opened(family("bert"))).feed(replace(inputs, padding_id=3), [padded_with_sep])
    for kind in ("cls", "sep", "sep_sum"):
        np.testing.assert_allclose(plain.samples[kind], padded_with_sep.samples[kind], atol=1e-6)


def cosine(a, b):
    return float(np.dot(a, b) / np.sqrt(np.dot(a, a) * np.dot(b, b)))


@pytest.mark.parametrize("name", ["bert", "gpt2"])
def test_attention_change_equals_loops_over_single_examples(name):
    one, other, inputs = family(name, 0), family(name, 1), some_inputs(segments=name == "bert")
    observer = CosineObserver(len(inputs), *SHAPE)
    Pass(opened(one), opened(other)).feed(inputs, [observer])
    values, samples = observer.compute()
    expected = np.zeros((len(inputs), *SHAPE))
    for i in range(len(inputs)):
        a, b = (plain_maps(model, inputs, i).double().numpy() for model in (one, other))
        for layer, head in np.ndindex(*SHAPE):
            expected[i, layer, head] = cosine(a[layer, head].ravel(), b[layer, head].ravel())
    assert expected.min() < 0.99  # the two models do differ
    np.testing.assert_allclose(samples["cosine"], expected, atol=2e-6)
    np.testing.assert_allclose(values["cosine"], expected.mean(0), atol=2e-6)


def test_equal_maps_have_a_cosine_of_exactly_1_and_slight_changes_are_not_rounding():
    maps = torch.randn(2, 3, 60, 60, generator=torch.Generator().manual_seed(0)).softmax(-1)
    assert (map_cosine(maps, maps.clone()) == 1).all()
    noise = torch.randn(maps.shape, generator=torch.Generator().manual_seed(1))
    slight = (maps.log() + 1e-3 * noise).softmax(-1)
    exact = map_cosine(maps.double(), slight.double())
    assert 1e-7 < float((1 - exact).min()) < float((1 - exact).max()) < 1e-6
    np.testing.assert_allclose(map_cosine(maps, slight), exact, atol=6e-8)


def test_the_padded_form_is_the_notebooks():
    """Pad every example to 200 tokens and flatten the whole 200 x 200 map, including the rows of padding tokens."""
    one, other, inputs, width = family("bert", 0), family("bert", 1), some_inputs(5, segments=True), 200
    observer = CosineObserver(len(inputs), *SHAPE)
    Pass(opened(one), opened(other), padded_to=width).feed(inputs, [observer])
    expected = np.zeros((len(inputs), *SHAPE))
    for i, row in enumerate(inputs.input_ids):
        rest = width - len(row)
        padded = {
            "input_ids": torch.tensor([row + [0] * rest]),
            "token_type_ids": torch.tensor([inputs.segments[i] + [0] * rest]),
            "attention_mask": torch.tensor([[1] * len(row) + [0] * rest]),
        }
        with torch.no_grad():
            a, b = (model(**padded, output_attentions=True).attentions for model in (one, other))
        for layer, head in np.ndindex(*SHAPE):
            flat = [maps[layer][0, head].double().numpy().ravel() for maps in (a, b)]
            expected[i, layer, head] = cosine(*flat)
    np.testing.assert_allclose(observer.samples["cosine"], expected, atol=2e-6)
    cropped = CosineObserver(len(inputs), *SHAPE)
    Pass(opened(one), opened(other)).feed(inputs, [cropped])
    assert abs(observer.samples["cosine"] - cropped.samples["cosine"]).max() > 0.01


def test_one_pass_feeds_several_observers_and_reports_each_example_once():
    inputs, done = some_inputs(), []
    change = CosineObserver(len(inputs), *SHAPE)
    special = SpecialTokenObserver(len(inputs), *SHAPE, {"cls": 2, "sep": 3})
    Pass(opened(family("bert")), opened(family("bert", 1))).feed(inputs, [change, special], done.append)
    assert sum(done) == len(inputs)
    assert not np.isnan(change.samples["cosine"]).any()
    assert not np.isnan(special.samples["cls"]).any()


# ---------------------------------------------------------------------- sanity checks


def padded_batch():
    return next(batches(some_inputs(7)))


def test_a_wrong_number_of_layers_is_detected_and_leaves_no_hooks():
    model = family("bert")
    with pytest.raises(RuntimeError, match="attention weights were returned by 3 of 4 layers"):
        Tap(model, LAYERS + 1).run(padded_batch(), lambda *_: None)
    assert all(not module._forward_hooks for module in model.modules())


def test_a_lost_mask_is_detected():
    model = family("bert")
    model.register_forward_pre_hook(
        lambda _module, args, kwargs: (args, {**kwargs, "attention_mask": torch.ones_like(kwargs["attention_mask"])}),
        with_kwargs=True,
    )
    with pytest.raises(RuntimeError, match=r"layer 1: .* of attention goes to padding: the mask was lost"):
        Tap(model, LAYERS).run(padded_batch(), lambda *_: None)


def corrupt(model, layer, change):
    """Make a layer report different attention weights from those that it uses."""
    module = model.bert.encoder.layer[layer].attention.self
    module.register_forward_hook(lambda _module, _inputs, output: (output[0], change(output[1])))
    return model


@pytest.mark.parametrize(
    ("change", "message"),
    [
        (lambda maps: maps * 1.1, "layer 2: sums of attention rows differ from 1 by up to"),
        (lambda maps: torch.full_like(maps, float("nan")), "the attention of layer 2 is not finite"),
        (lambda maps: maps[:, :, :-1], r"layer 2 did not return attention weights"),
    ],
)
def test_weights_that_do_not_sum_to_1_are_detected(change, message):
    model = family("bert")
    tap = Tap(model, LAYERS)
    corrupt(model, 1, change)
    tap.modules = [layer.attention.self for layer in model.bert.encoder.layer]  # so that its hooks run last
    with pytest.raises(UserError, match=message):
        tap.run(padded_batch(), lambda *_: None)


def test_garbage_in_the_rows_of_padding_is_left_out():
    model = family("bert")
    tap = Tap(model, LAYERS)
    batch = collate(some_inputs(3), np.arange(3), width=25)
    corrupt(model, 0, lambda maps: maps.masked_fill(~batch.mask[:, None, :, None], float("nan")))
    tap.modules = [layer.attention.self for layer in model.bert.encoder.layer]
    seen = []
    tap.run(batch, lambda layer, maps: seen.append(bool(maps.isfinite().all())))
    assert seen == [True] * LAYERS
