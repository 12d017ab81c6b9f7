"""Collapsed models and non-finite answers are refused or reported as degenerate."""

import re
import shutil
from dataclasses import replace

import numpy as np
import pytest
import torch
from ablation_models import tiny, tokens
from measurements import correlated, gridded, measured, scored, verdict
from safetensors.torch import load_file, save_file
from sessions import local_session
from tiny import CONFIGS, family, save_bert, some_inputs
from transformers import BertModel

from bertsecrets import caches
from bertsecrets.errors import MisreadError, UserError
from bertsecrets.measures.base.ablation_measure import set_ablation
from bertsecrets.measures.registry import get_measure
from bertsecrets.models import opening
from bertsecrets.models.consistency import check_logits
from bertsecrets.models.encoding import collate, predict
from bertsecrets.patterns.readings import READINGS
from bertsecrets.texts.tasks import task
from bertsecrets.types import Subject

NAN = np.nan
LAYERS, HEADS = 6, 4


def problem(measurement) -> str | None:
    return get_measure(measurement.measure).degenerate(measurement)


def without_mask(model):
    forward = model.forward
    model.forward = lambda attention_mask=None, **inputs: forward(**inputs)
    return model


# ---------------------------------------------------------------------- logits that depend on the batch


@pytest.mark.parametrize("name", CONFIGS)
def test_scores_refuse_only_a_model_that_ignores_its_mask(name):
    model, encoded = family(name), some_inputs(40)
    check_logits(model, encoded)
    if name != "gpt2":  # it is causal: no token attends to later padding
        with pytest.raises(MisreadError, match="if its example is scored alone .* does not mask padding"):
            check_logits(without_mask(model), encoded)


@pytest.mark.parametrize("scale", [1e-6, 1e3])
def test_tiny_and_huge_logits_are_not_taken_for_a_lost_mask(scale):
    """Rounding errors are relative to the summands, which may cancel."""
    model, encoded = family("bert"), some_inputs(40)
    with torch.no_grad():
        model.classifier.weight.mul_(scale)
        model.classifier.bias.zero_()
    check_logits(model, encoded)


def test_rounding_is_not_taken_for_a_difference_of_modes():
    model, encoded = family("bert"), some_inputs(40)
    logits = lambda rows: model(**collate(encoded, rows).inputs()).logits  # noqa: E731
    check_logits(model, encoded, lambda rows: 1.05 * logits(rows), rounded=True)
    with pytest.raises(
        MisreadError, match=r"features that are rounded to bfloat16 .*: set the option `precision` to fl"
    ):
        check_logits(model, encoded, lambda rows: 1.5 * logits(rows), rounded=True)
    with pytest.raises(MisreadError, match="in training mode and in evaluation mode, even without dropout"):
        check_logits(model, encoded, lambda rows: 1.05 * logits(rows))


def test_nothing_is_stored_of_a_model_that_ignores_its_mask(tiny_bert, tiny_glue, tmp_path, monkeypatch):
    forward = BertModel.forward
    monkeypatch.setattr(BertModel, "forward", lambda *args, attention_mask=None, **more: forward(*args, **more))
    for module in (caches, opening):
        monkeypatch.setattr(module, "check_code", lambda *_: None)  # would refuse the patch
    session = local_session(model=tiny_bert, glue=tiny_glue, store=tmp_path / "runs")
    peaked = save_bert(tmp_path / "peaked", initializer_range=0.3)
    with pytest.raises(MisreadError, match="the model does not mask padding"):
        session.measure("scores", "rte", checkpoint=peaked)
    assert list((tmp_path / "runs" / "measurements").glob("*/")) == []


# ---------------------------------------------------------------------- non-finite answers


def test_a_model_with_one_answer_that_is_nan_is_refused():
    """Both scores and ablations refuse it, although the longest example, which probes the engine, is finite."""
    classifier, encoded = tiny("bert"), tokens((5, 9, 5, 3, 12))
    (word, *_) = set(encoded.input_ids[0]).difference(*(encoded.input_ids[i] for i in range(1, 5)))
    with torch.no_grad():
        classifier.model.bert.embeddings.word_embeddings.weight[word] = NAN
    with pytest.raises(UserError, match="a logit is nan"):
        predict(classifier.model, encoded)
    with pytest.raises(UserError, match="a logit is nan"):
        set_ablation(classifier, encoded, task("mnli"), [0, 1, 2, 0, 1], [])


# ---------------------------------------------------------------------- classes in another order


def answers(task_name, share, rows, order=None, seed=1):
    """Return predictions that are right on a share of the rows, in another order of the classes, and targets."""
    draw, classes = np.random.default_rng(seed), len(task(task_name).labels)
    target = np.arange(rows) % classes
    wrong = (target + draw.integers(1, classes, rows)) % classes
    predicted = np.where(draw.random(rows) < share, target, wrong)
    return (predicted if order is None else np.array(order)[predicted]), target


@pytest.mark.parametrize(
    ("task_name", "share", "rows", "order", "says"),
    [
        ("sst2", 0.9, 60, (1, 0), "worse than chance: .* if the classes were swapped; correct the class names in"),
        ("rte", 0.665, 277, (1, 0), "worse than chance: .* if the classes were swapped; correct the class names in"),
        ("mnli", 0.84, 300, (1, 2, 0), "chance: .* entailment, neutral, contradiction were renamed contradiction, ent"),
        ("mnli", 0.84, 300, (2, 1, 0), "right, .* were renamed contradiction, neutral, entailment; correct"),
        ("mnli", 0.6, 3000, (0, 2, 1), "right, .* were renamed entailment, contradiction, neutral; correct"),
    ],
)
def test_classes_in_another_order_are_named_as_the_reason(task_name, share, rows, order, says):
    predicted, target = answers(task_name, share, rows, order)
    scores = scored(predicted, target, task_name)
    assert re.search(says, problem(scores))
    on_claim = verdict(f"D1-{task_name}-pretrained", scores)
    assert on_claim.outcome == "degenerate"
    assert re.search(says, on_claim.reason)
    assert "learned nothing" not in on_claim.reason
    samples = {"predicted": predicted[None], "baseline_predicted": predicted, "target": target}
    assert re.search(says, problem(measured("head-ablation", {"baseline": 0.1}, samples, task_name)))
    assert problem(replace(scores, options={"shuffle": 1})) is None
    assert problem(replace(scores, subject=replace(scores.subject, initialisation="untrained"))) is None


@pytest.mark.parametrize(("task_name", "share", "rows"), [("rte", 0.35, 8), ("rte", 0.45, 277), ("mnli", 0.3, 300)])
def test_a_score_near_chance_says_nothing_about_the_order_of_classes(task_name, share, rows):
    predicted, target = answers(task_name, share, rows)
    assert problem(scored(predicted, target, task_name)) is None


def test_confusing_two_classes_is_not_another_order():
    """A model that says neutral for most contradictions has learned the rest, so its order of classes is right."""
    target = np.arange(3000) % 3
    tenth = np.arange(3000) // 3 % 10
    predicted = np.select([target == 0, target == 1], [0, np.where(tenth < 5, 0, 1)], np.where(tenth < 7, 1, 2))
    assert problem(scored(predicted, target, "mnli")) is None


def test_reversed_scores_are_worse_than_chance():
    target = np.linspace(0, 5, 100)
    assert problem(correlated(target, target)) is None
    assert problem(correlated(5 - target, target)).startswith(
        "worse than chance: the correlation of its scores with the labels is -1.00"
    )


# ---------------------------------------------------------------------- maps


def with_head(grid, layer, head, value):
    damaged = np.array(grid)
    damaged[:, layer, head] = value
    return damaged


def cosines(value=0.9, examples=40):
    rng = np.random.default_rng(0)
    return value + 1e-3 * rng.normal(size=(examples, LAYERS, HEADS))


@pytest.mark.parametrize(("measure", "name"), [("attention-change", "cosine"), ("features", "noun")])
def test_a_head_without_numbers_is_named(measure, name):
    whole = cosines()
    assert problem(gridded(measure, **{name: whole})) is None
    damaged = gridded(measure, **{name: with_head(whole, 2, 1, NAN)})
    assert problem(damaged) == f"no values for head 2 of layer 3 ({name})"
    two = gridded(measure, **{name: with_head(with_head(whole, 2, 1, NAN), 4, 0, np.inf)})
    assert problem(two) == f"no values for head 2 of layer 3 and 1 other head ({name})"


def test_features_that_inputs_lack_are_not_missing_numbers():
    """Inputs without a pronoun have no attention to pronouns in any head, and models without [SEP] none to [SEP]."""
    some, none = cosines(), np.full((40, LAYERS, HEADS), NAN)
    some[::2] = NAN
    assert problem(gridded("features", noun=cosines(), pronoun=some, negation=none)) is None
    assert problem(gridded("special-tokens", cls=cosines(), sep=none, sep_sum=none)) is None


@pytest.mark.parametrize("claim", ["C1-rte", "C1p-rte", "C2-rte", "C2p-rte"])
def test_claims_about_change_are_degenerate_if_nothing_changed(claim):
    """Rounding errors do not count as a change, but a measurable change of a single head is judged."""
    dust = gridded("attention-change", cosine=1 + 4e-8 * np.random.default_rng(1).normal(size=(40, LAYERS, HEADS)))
    judged = verdict(claim, dust)
    assert judged.outcome == "degenerate"
    assert judged.reason.endswith("its attention maps equal the pretrained model's: training changed none of them")
    slight = gridded("attention-change", cosine=with_head(dust.samples["cosine"], 5, 3, 1 - 1e-6))
    assert verdict(claim, slight).outcome != "degenerate"


def test_maps_that_could_not_be_classified_are_degenerate():
    own = {"predicted": np.zeros((4, 2, 2), np.int8), "expected": np.full((4, 5), 0.2), "errors": np.zeros((3, 5))}
    samples = {f"{reading}_{name}": sample for reading in READINGS for name, sample in own.items()}
    whole = measured("patterns", {}, samples)
    assert problem(whole) is None
    for name, value in (("special_predicted", -1), ("stripes_predicted", -1), ("stripes_expected", NAN)):
        damaged = {**samples, name: samples[name].copy()}
        damaged[name][1] = value
        assert problem(replace(whole, samples=damaged)) == "some attention maps are not finite"


# ---------------------------------------------------------------------- ablations


@pytest.mark.parametrize("measure", ["head-ablation", "layer-ablation", "weight-pruning", "head-pruning"])
def test_a_grid_of_a_constant_model_is_degenerate(measure):
    def grid(baseline, task_name, **more):
        predicted = np.stack([baseline, baseline])
        samples = {"predicted": predicted, "baseline_predicted": baseline, "target": np.arange(len(baseline)) % 2}
        return measured(measure, {}, samples, task_name, **more)

    mixed, scores = np.arange(40) % 2, np.linspace(0, 5, 40)
    said = "gives every example the same answer"
    assert problem(grid(mixed, "rte")) is problem(grid(scores, "stsb")) is None
    assert problem(grid(0 * mixed, "rte")) == problem(grid(2.5 + scores / 1000, "stsb")) == said
    assert problem(grid(0 * mixed, "rte", initialisation="random")) is None  # the paper's own finding
    assert problem(grid(np.where(mixed, NAN, scores), "stsb")) == "some predictions are not finite"


# ---------------------------------------------------------------------- diverged checkpoints


@pytest.mark.parametrize("measure", ["scores", "special-tokens", "head-ablation"])
def test_a_diverged_checkpoint_is_a_one_line_error(tiny_bert, tiny_glue, tmp_path, measure):
    folder = shutil.copytree(tiny_bert, tmp_path / "diverged")
    tensors = load_file(folder / "model.safetensors")
    for name in tensors:
        if ".query.weight" in name or ".key.weight" in name or name.startswith("classifier"):
            signs = (-1) ** torch.arange(tensors[name].numel()).reshape(tensors[name].shape)
            tensors[name] = torch.full_like(tensors[name], 1e38) * signs  # finite, but results overflow
    save_file(tensors, folder / "model.safetensors", {"format": "pt"})
    session = local_session(model=tiny_bert, glue=tiny_glue, store=tmp_path / "runs", limit=6, grid_limit=6)
    with pytest.raises(UserError, match=r"is not finite|a logit is (nan|-?inf)") as error:
        session.measure(measure, task="rte", checkpoint=folder)
    assert "\n" not in str(error.value)
    assert list((tmp_path / "runs" / "measurements").glob("*/")) == []


# ---------------------------------------------------------------------- remarks


@pytest.mark.parametrize(("model", "checked"), [("minilm", True), ("mpnet", True), ("other", False)])
def test_models_with_annotated_maps_are_recognised_by_every_name(model, checked):
    measurement = measured("patterns", settings={"annotated_models": ["all-mpnet-base-v2", "minilm"]})
    remarks = get_measure("patterns").remarks(replace(measurement, subject=Subject(model, "rte")))
    said = ["the pattern classifier's errors were measured on other models, not on this one"]
    assert remarks == ([] if checked else said)
