"""Head statistics and attention gradients, each compared with an independent computation."""

import numpy as np
import pytest
import torch
from measurements import gridded, measured, read, verdict
from scipy.spatial.distance import jensenshannon
from scipy.stats import entropy
from tiny import CONFIGS, family, opened, plain_maps, some_inputs

from bertsecrets.errors import NotApplicableError
from bertsecrets.measures import head_statistics
from bertsecrets.measures.attention_gradients import attention_slopes, mean_slope
from bertsecrets.measures.base.observers import marked
from bertsecrets.measures.head_statistics import HeadObserver, divergences
from bertsecrets.models.attention import Pass
from bertsecrets.models.encoding import Encoded, collate, loss_of
from bertsecrets.report.replicas import figures_of
from bertsecrets.settings import load_settings

ENCODED = some_inputs(9)
IDS = {"cls": 2, "sep": 3}


# ---------------------------------------------------------------------- entropy and divergence


def test_divergence_is_scipys_squared_distance_averaged_over_rows():
    maps = torch.randn(5, 7, 7, generator=torch.Generator().manual_seed(1)).softmax(-1)
    expected = [[np.mean(jensenshannon(a.T, b.T, base=2) ** 2) for b in maps.numpy()] for a in maps.numpy()]
    np.testing.assert_allclose(divergences(maps), expected, atol=1e-5)


@pytest.mark.parametrize("name", ["bert", "albert", "gpt2", "distilbert"])
def test_streamed_statistics_equal_those_of_single_examples(name, monkeypatch):
    monkeypatch.setattr(head_statistics, "COMPARED_EXAMPLES", 4)
    model = family(name)
    observer = HeadObserver(len(ENCODED), 3, 4)
    Pass(opened(model)).feed(ENCODED, [observer])
    values, samples = observer.compute()
    compared = np.flatnonzero(~np.isnan(samples["between"]))
    assert compared.tolist() == [0, 2, 5, 8]
    total = np.zeros((12, 12))
    for i in range(len(ENCODED)):
        maps = plain_maps(model, ENCODED, i)
        np.testing.assert_allclose(samples["entropy"][i], entropy(maps.numpy(), base=2, axis=-1).mean(-1), atol=1e-4)
        if i in compared:
            distances = divergences(maps.flatten(0, 1))
            total += distances
            blocks = distances.reshape(3, 4, 3, 4)
            within = sum(blocks[layer, :, layer].sum() for layer in range(3))
            assert samples["within"][i] == pytest.approx(within / (3 * 4 * 3), abs=1e-5)
            assert samples["between"][i] == pytest.approx((distances.sum() - within) / (12 * 8), abs=1e-5)
    np.testing.assert_allclose(values["divergence"], total / 4, atol=1e-5)


# ---------------------------------------------------------------------- gradients


@pytest.mark.parametrize("name", sorted(CONFIGS))
def test_gradients_do_not_depend_on_the_batch(name):
    model, loss = family(name), loss_of(False)
    targets = torch.tensor([0, 1, 1, 0, 1, 0, 0, 1, 1])
    batched = attention_slopes(model, batch := collate(ENCODED, np.arange(9)), targets, loss)
    for i in (0, 4):
        alone = attention_slopes(model, collate(ENCODED, np.array([i])), targets[i : i + 1], loss)
        length = int(batch.lengths[i])
        for one, other in zip(batched, alone, strict=True):
            torch.testing.assert_close(one[i, :, :length, :length], other[0], rtol=1e-3, atol=1e-5)


def test_gradients_equal_finite_differences():
    """Checked in the last layer: a hook applies a small change of one attention weight to the context vectors."""
    model = family("bert")
    batch, target, loss = collate(ENCODED, np.array([3])), torch.tensor([1]), loss_of(False)
    slopes = attention_slopes(model, batch, target, loss)[-1][0]
    attention = model.bert.encoder.layer[-1].attention
    heads, step = 4, 1e-2
    for head, i, j in ((0, 0, 0), (1, 0, 2), (3, 0, int(batch.lengths[0]) - 1)):
        losses = []
        for sign in (step, -step):

            def moved(_module, inputs, sign=sign, head=head, i=i, j=j):
                context = inputs[0].clone()
                values = attention.self.value.last[0]  # [token, width]
                size = values.shape[-1] // heads
                columns = slice(head * size, (head + 1) * size)
                context[0, i, columns] += sign * values[j, columns]
                return (context, *inputs[1:])

            def keep(module, _inputs, output):
                module.last = output

            handles = [
                attention.self.value.register_forward_hook(keep),
                attention.output.dense.register_forward_pre_hook(moved),
            ]
            with torch.no_grad():
                losses.append(float(loss(model(**batch.inputs()).logits, target)))
            for handle in handles:
                handle.remove()
        assert float(slopes[head, i, j]) == pytest.approx(abs(losses[0] - losses[1]) / (2 * step), rel=0.05, abs=1e-4)


def test_padding_is_neither_special_nor_another_token():
    batch = collate(Encoded([[2, 7, 8, 3, 9, 3], [2, 7, 3]], None, 0), np.array([0, 1]))
    marks = marked(batch, IDS)
    assert marks["sep"].int().tolist() == [[0, 0, 0, 1, 0, 1], [0, 0, 1, 0, 0, 0]]
    assert marks["other"].int().tolist() == [[0, 1, 1, 0, 1, 0], [0, 1, 0, 0, 0, 0]]
    slopes = torch.ones(2, 1, 6, 6)
    slopes[1, :, 3:] = slopes[1, :, :, 3:] = 9  # padding is never counted
    assert mean_slope(slopes, marks["sep"], batch.mask).tolist() == [[1], [1]]
    assert torch.isnan(mean_slope(slopes, torch.zeros_like(batch.mask), batch.mask)).all()


# ---------------------------------------------------------------------- claims


def test_quantities_of_heads_equal_hand_computed_values():
    some = np.random.default_rng(1).normal(0, 0.01, (100, 6, 2))
    falling = gridded("head-statistics", entropy=some + np.linspace(4, 2, 6)[:, None])
    assert read("lower-breadth", falling) == pytest.approx(4 - 0.4 - 2.4, abs=0.01)
    slopes = gridded("attention-gradients", sep=abs(some) + 0.1, other=abs(some) + 0.4, cls=abs(some))
    assert read("sep-gradient-ratio", slopes) == pytest.approx(0.26, abs=0.01)
    assert verdict("I5-rte", slopes).outcome == "reproduced"


def test_heads_are_compared_on_the_examples_that_have_them():
    within = np.full(100, np.nan)
    within[::2] = 0.2
    statistics = measured("head-statistics", {}, {"within": within, "between": within + 0.1, "cluster": np.arange(100)})
    assert read("layer-likeness", statistics) == pytest.approx(0.1)
    assert verdict("I6-rte", statistics).outcome == "reproduced"
    with pytest.raises(NotApplicableError, match="only one layer"):
        read("layer-likeness", measured("head-statistics", {}, {"within": within * np.nan, "between": within}))


@pytest.mark.parametrize(("name", "count"), [("head-statistics", 2), ("attention-gradients", 1)])
def test_a_checkpoint_is_measured_and_its_figures_drawn(name, count, session):
    measurement = session.measure(name, task="rte")
    assert len(figures_of([measurement], load_settings().judge)) == count
    assert all(np.isfinite(value).all() for value in measurement.values.values())
