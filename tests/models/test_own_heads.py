"""Classifiers of a registered family may compute anything from the encoder's outputs."""

import numpy as np
import pytest
import torch
from own_family import OwnBert, OwnClassifier, OwnConfig
from tiny import save_tokenizer, train
from transformers import CONFIG_MAPPING, MODEL_FOR_SEQUENCE_CLASSIFICATION_MAPPING, MODEL_MAPPING

from bertsecrets.ablation.skeleton import Skeleton
from bertsecrets.errors import UserError
from bertsecrets.models import families, opening
from bertsecrets.models.consistency import check_logits
from bertsecrets.models.encoding import encode, predict
from bertsecrets.models.locations import ModelRef
from bertsecrets.models.opening import open_checkpoint, open_classifier
from bertsecrets.texts.glue import load_folder
from bertsecrets.texts.tasks import task

SWAPPED = {"id2label": {0: "not_entailment", 1: "entailment"}}
SIGMOID = {"sentence_transformers": {"activation_fn": "torch.nn.modules.activation.Sigmoid"}}


@pytest.fixture(autouse=True)
def registered(monkeypatch):
    monkeypatch.setattr(families, "_OWN", {})
    monkeypatch.setattr(opening, "check_code", lambda *_: None)  # other tests may have changed modules that it covers
    families.register_family(families.Family(OwnConfig, OwnBert, OwnClassifier))
    yield
    for mapping in (CONFIG_MAPPING, MODEL_MAPPING, MODEL_FOR_SEQUENCE_CLASSIFICATION_MAPPING):
        mapping._extra_content.clear()


def saved(folder, head, **changes):
    sizes = {"hidden_size": 32, "num_hidden_layers": 2, "num_attention_heads": 2, "intermediate_size": 48}
    config = OwnConfig(vocab_size=len(save_tokenizer(folder)), head=head, use_cache=True, **sizes, **changes)
    torch.manual_seed(0)
    OwnClassifier(config).save_pretrained(folder)
    return folder


def test_an_encoder_in_another_attribute_is_refused_however_it_is_opened(tmp_path, monkeypatch):
    ref = ModelRef.in_folder(saved(tmp_path, "plain"))
    open_classifier(ref, task("rte"))
    monkeypatch.setattr(OwnClassifier, "base_model_prefix", "encoder")
    for opener in (lambda: open_classifier(ref, task("rte")), lambda: open_checkpoint(tmp_path, task("rte"))):
        with pytest.raises(UserError, match="is not in the attribute 'encoder', which its base_model_prefix names"):
            opener()


def test_classes_are_reordered_only_if_the_outputs_follow(tmp_path, tiny_glue):
    rows = load_folder(tiny_glue, task("rte"), "dev")
    in_order, swapped = (
        open_checkpoint(saved(tmp_path / name, "plain", **labels), task("rte"))
        for name, labels in (("in order", {"id2label": {0: "entailment", 1: "not_entailment"}}), ("swapped", SWAPPED))
    )
    logits = [predict(each.model, encode(rows, each.tokenizer, 64)) for each in (in_order, swapped)]
    np.testing.assert_allclose(logits[1], logits[0][:, ::-1], atol=1e-6)
    with pytest.raises(UserError, match="in the order entailment, not_entailment: they cannot be reordered here"):
        open_checkpoint(saved(tmp_path / "bias", "bias", **SWAPPED), task("rte"))
    with pytest.raises(UserError, match="they cannot be reordered here"):
        open_checkpoint(saved(tmp_path / "not a number", "not a number", **SWAPPED), task("rte"))


@pytest.mark.parametrize(("head", "refused"), [("plain", False), ("pooling", True)])
def test_an_activation_function_is_applied_only_to_the_output(tmp_path, head, refused):
    folder = saved(tmp_path, head, num_labels=1, **SIGMOID)
    if refused:
        with pytest.raises(UserError, match="the activation function Sigmoid cannot be applied, because OwnClassifier"):
            open_checkpoint(folder, task("stsb"))
    else:
        open_checkpoint(folder, task("stsb"))


@pytest.mark.parametrize(
    ("head", "message"),
    [("one output", r"returns outputs of shape \[4, 1\] for 4 examples and 2 classes"), ("random", "each time")],
)
def test_outputs_that_are_not_one_fixed_logit_per_class_are_refused(tmp_path, tiny_glue, head, message):
    opened = open_checkpoint(saved(tmp_path, head), task("rte"))
    with pytest.raises(UserError, match=message):
        check_logits(opened.model, encode(load_folder(tiny_glue, task("rte"), "dev"), opened.tokenizer, 64).head(4))


def test_a_model_without_a_loss_is_refused_before_training(tmp_path, tiny_glue):
    opened = open_classifier(ModelRef.in_folder(saved(tmp_path / "model", "no loss")), task("rte"))
    with pytest.raises(UserError, match="OwnClassifier returns no loss: compute it in its forward from the labels"):
        train(opened, load_folder(tiny_glue, task("rte"), "train"), tmp_path / "trained")


def test_a_forward_without_further_arguments_is_ablated(tmp_path, tiny_glue):
    opened = open_checkpoint(saved(tmp_path, "plain"), task("rte"))
    encoded = encode(load_folder(tiny_glue, task("rte"), "dev"), opened.tokenizer, 64).head(1)
    ids, segments = torch.tensor([encoded.input_ids[0]]), torch.tensor([encoded.segments[0]])
    logits = Skeleton(opened.model, opened.layers, opened.heads).run(ids, segments)
    np.testing.assert_allclose(logits, predict(opened.model, encoded), atol=1e-6)
    assert opened.model.config.use_cache
