"""Pruning of weights and heads: order, scores and claims."""

import numpy as np
import pytest
import torch
from ablation_models import EAGER, FAMILIES, tiny, tokens
from measurements import estimand, measured, read, verdict
from sessions import local_session
from tiny import fast_tier

from bertsecrets.ablation.engine import Engine, ablate
from bertsecrets.ablation.kinds import Ablation
from bertsecrets.errors import NotApplicableError
from bertsecrets.measures.head_pruning import gated, heads_left, prune_heads
from bertsecrets.measures.weight_pruning import layer_weights, prune_smallest
from bertsecrets.models.encoding import loss_of, predict
from bertsecrets.report.replicas import figures_of
from bertsecrets.settings import JudgeParams
from bertsecrets.texts.published import p20, p20_heads_left
from bertsecrets.texts.tasks import task

ENCODED = tokens((4, 6, 6, 8, 5))
ANSWERS = [0, 1, 2, 1, 0]


def skeleton(name="bert"):
    model = tiny(name)
    model.model.requires_grad_(False)
    return Engine.open(model, ablation=Ablation("zero")).skeleton


# ---------------------------------------------------------------------- weights


@pytest.mark.parametrize("name", FAMILIES)
def test_the_smallest_weights_of_all_layers_together_become_zero(name):
    model = tiny(name).model
    weights = layer_weights(model)
    before = torch.cat([weight.detach().abs().flatten() for weight in weights])
    others = {key: value.clone() for key, value in model.state_dict().items()}
    assert prune_smallest(weights, 0.3) == round(0.3 * len(before))
    after = torch.cat([weight.detach().abs().flatten() for weight in weights])
    assert int((after == 0).sum()) == round(0.3 * len(before))
    assert before[after == 0].max() <= before[after != 0].min()
    assert torch.equal(after[after != 0], before[after != 0])
    pruned = {key for key, weight in model.named_parameters() if any(weight is each for each in weights)}
    assert set(model.state_dict()) == set(others)
    assert all(torch.equal(value, others[key]) for key, value in model.state_dict().items() if key not in pruned)
    assert not any("embed" in key or "classifier" in key or "score" in key or "pooler" in key for key in pruned)


def test_growing_shares_equal_pruning_at_once():
    step_by_step, at_once = tiny("bert"), tiny("bert")
    for share in (0.0, 0.1, 0.4):
        prune_smallest(layer_weights(step_by_step.model), share)
    prune_smallest(layer_weights(at_once.model), 0.4)
    np.testing.assert_array_equal(predict(step_by_step.model, ENCODED), predict(at_once.model, ENCODED))


def test_the_requested_number_of_equal_weights_is_pruned():
    weights = layer_weights(tiny("bert").model)
    with torch.no_grad():
        for weight in weights:
            weight.fill_(1)
    count = prune_smallest(weights, 0.5)
    assert sum(int((weight == 0).sum()) for weight in weights) == count


def test_a_model_without_weights_in_layers_has_nothing_to_prune():
    class Bare(torch.nn.Module):
        base_model = torch.nn.Linear(2, 2)

    with pytest.raises(NotApplicableError, match="no weight matrices to prune"):
        layer_weights(Bare())


# ---------------------------------------------------------------------- heads


@pytest.mark.parametrize("name", fast_tier([*FAMILIES, *EAGER], "bert", "albert", "gpt2", "mpnet"))
def test_closed_gates_equal_ablation_by_zero_and_open_gates_the_model(name):
    open_heads = np.ones((3, 4), dtype=bool)
    open_heads[0, 1] = open_heads[1, 2] = open_heads[2, 0] = False
    model = tiny(name)
    engine = Engine.open(model, ablation=Ablation("zero"))
    whole, pruned = ablate(engine, ENCODED, [frozenset(), frozenset({(0, 1), (1, 2), (2, 0)})])
    model.model.requires_grad_(False)
    for gates, expected in ((np.ones((3, 4), dtype=bool), whole), (open_heads, pruned)):
        logits, importance = gated(engine.skeleton, ENCODED, ANSWERS, gates, loss_of(False))
        np.testing.assert_allclose(logits, expected, rtol=1e-3, atol=1e-3 * np.abs(expected).max())
        assert (importance > 0).all()


@pytest.mark.parametrize("regression", [False, True])
def test_importance_is_the_slope_of_each_examples_loss(regression):
    """Compare with finite differences per example; absolute values are summed."""
    layers, truth = skeleton(), torch.tensor(ANSWERS)

    def loss(logits, target):
        return loss_of(regression)(logits[:, :1] if regression else logits, target)

    step, slopes = 1e-2, np.zeros((3, 4))
    for i, ids in enumerate(ENCODED.input_ids):
        for head in np.ndindex(3, 4):
            moved = []
            for sign in (step, -step):
                gates = torch.ones(1, 3, 4)
                gates[0][head] += sign
                logits = layers.gated(torch.tensor([ids]), None, gates).double()
                moved.append(float(loss(logits, truth[i : i + 1])))
            slopes[head] += abs(moved[0] - moved[1]) / (2 * step)
    importance = gated(layers, ENCODED, ANSWERS, np.ones((3, 4), dtype=bool), loss)[1]
    np.testing.assert_allclose(np.linalg.norm(importance, axis=1), 1, rtol=1e-5)
    np.testing.assert_allclose(importance, slopes / np.linalg.norm(slopes, axis=1, keepdims=True), atol=0.02)


def test_each_step_removes_the_least_important_of_the_heads_that_are_left():
    layers, truth = skeleton(), np.array(ANSWERS)
    predicted, _, removed = prune_heads(layers, ENCODED, task("mnli"), truth)
    assert sorted(removed.flat) == list(range(1, 13))  # a tenth of 12 heads is one
    for step in (0, 1, 7):
        open_heads = removed > step
        logits, importance = gated(layers, ENCODED, truth, open_heads, loss_of(False))
        np.testing.assert_array_equal(predicted[step], logits.argmax(1))
        next_one = np.where(open_heads, importance, np.inf).argmin()
        assert removed.flat[next_one] == step + 1
    assert heads_left(12)[-1] == 0


# ---------------------------------------------------------------------- claims

LABELS = np.arange(1000) % 2


def pruned_heads(*right: float, left=(75, 50, 25, 0), **more):
    """Return a `head-pruning` measurement with these accuracies on 1000 examples, starting with the unpruned model."""
    answers = np.array([np.where(np.arange(1000) < 1000 * share, LABELS, 1 - LABELS) for share in right])
    values = {"left": np.array(left), "removed": np.arange(100).reshape(10, 10), "baseline": right[0], **more}
    samples = {"predicted": answers[1:], "baseline_predicted": answers[0], "target": LABELS}
    return measured("head-pruning", {**values, "score": np.array(right[1:]), "importance": np.eye(10)}, samples)


def test_heads_left_count_while_every_score_is_nine_tenths():
    assert read("heads-left", pruned_heads(0.8, 0.75, 0.721, 0.6, 0.5)) == 50
    assert read("heads-left", pruned_heads(0.8, 0.5, 0.8, 0.8, 0.5)) == 100  # a later recovery does not count
    assert read("heads-left", pruned_heads(0.8, 0.8, 0.8, 0.8, 0.8)) == 0
    assert verdict("I4-rte", pruned_heads(0.8, 0.79, 0.79, 0.79, 0.5)).outcome == "reproduced"
    assert verdict("I4-rte", pruned_heads(0.8, 0.6, 0.6, 0.6, 0.5)).outcome == "deviates"


def pruned_weights(*right: float):
    answers = np.array([np.where(np.arange(1000) < 1000 * share, LABELS, 1 - LABELS) for share in right])
    values = {"share": np.arange(1, 8) / 10, "baseline": right[0], "score": np.array(right[1:])}
    samples = {"predicted": answers[1:], "baseline_predicted": answers[0], "target": LABELS}
    return measured("weight-pruning", values, samples)


def test_losses_of_pruned_weights_equal_hand_computed_values():
    weights = pruned_weights(0.8, 0.8, 0.79, 0.77, 0.7, 0.7, 0.6, 0.5)
    assert read("pruning-loss", weights, share=0.3) == pytest.approx(3)
    assert read("pruned-score", weights, share=0.7) == pytest.approx(50)
    assert estimand("pruned-score", weights, share=0.5).notes == ("80.0 with all weights",)
    assert verdict("I1-rte", weights).outcome == "deviates"
    assert verdict("I1-rte-falls", weights).outcome == "reproduced"
    assert verdict("I1-rte", pruned_weights(*[0.8] * 8)).outcome == "reproduced"


def test_p20s_survivors_are_counted_in_percent():
    shares = [sum(map(int, "".join(grid))) / 1.44 for grid in p20()["surviving_heads"]["sst2"].values()]
    assert p20_heads_left("sst2") == pytest.approx((np.mean(shares), np.std(shares, ddof=1)), abs=1e-3)


def test_curves_are_drawn_with_p20s():
    settings = JudgeParams(confidence=0.95, resamples=200, seed=7)
    (weights,) = figures_of([pruned_weights(0.8, 0.8, 0.79, 0.77, 0.7, 0.7, 0.6, 0.5)], settings)
    assert weights.header == ("percent of weights pruned", "m", "P20, BERT-base")
    assert weights.rows[0] == (0.0, 80.0, None)
    assert (70.0, 49.0) in [(row[0], row[2]) for row in weights.rows]
    curve, importance = figures_of([pruned_heads(0.8, 0.75, 0.721, 0.6, 0.5)], settings)
    assert [row[0] for row in curve.rows] == [0, 25, 50, 75, 100]
    assert "Importance" in importance.caption


def test_pruning_does_not_change_the_checkpoint(session):
    folder = session.checkpoint(session.subject("rte"))
    before = {file.name: file.read_bytes() for file in folder.iterdir()}
    weights, heads = (session.measure(name, task="rte") for name in ("weight-pruning", "head-pruning"))
    assert {file.name: file.read_bytes() for file in folder.iterdir()} == before
    scores = session.measure("scores", task="rte")
    for pruned in (weights, heads):
        np.testing.assert_array_equal(pruned.sample("baseline_predicted"), scores.sample("predicted"))
    assert heads.value("left")[-1] == 0


@pytest.mark.parametrize("mode", [torch.no_grad, torch.inference_mode])
def test_a_caller_that_disables_gradients_does_not_affect_a_measure_that_needs_them(
    tiny_bert, tiny_glue, tmp_path, session, mode
):
    checkpoint = session.checkpoint(session.subject("rte"))
    other = local_session(model=tiny_bert, glue=tiny_glue, store=tmp_path, limit=4)
    with mode():
        assert other.measure("head-pruning", "rte", checkpoint=checkpoint).value("left")[-1] == 0
