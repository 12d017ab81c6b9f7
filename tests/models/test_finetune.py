"""Training is reproducible by seed, reduces the loss and writes a folder that plain transformers can open."""

import numpy as np
import pytest
import tiny
import torch
from safetensors.torch import load_file
from tiny import alone, fast_tier, save_bert
from transformers import AutoModelForSequenceClassification, AutoTokenizer
from zoo import save_family

from bertsecrets.devices import best_device
from bertsecrets.errors import UserError
from bertsecrets.models.encoding import encode, predict
from bertsecrets.models.layers import read_last_token
from bertsecrets.models.locations import locate
from bertsecrets.models.opening import open_checkpoint, open_classifier
from bertsecrets.texts.glue import load_folder
from bertsecrets.texts.tasks import task


@pytest.fixture(scope="module")
def tiny_bert(tmp_path_factory):
    """Return a model whose weights have the usual size, so that it learns in a few steps."""
    return save_bert(tmp_path_factory.mktemp("model"))


def train(model, glue, folder, initialisation="pretrained", **changes):
    classifier = open_classifier(locate(str(model)), task("rte"), initialisation, 1)
    split = load_folder(glue, task("rte"), "train") if initialisation != "untrained" else None
    facts = tiny.train(classifier, split, folder, initialisation, **{"batch_size": 8, **changes})
    return facts, load_file(folder / "model.safetensors")


def test_the_loss_goes_down_and_plain_transformers_opens_the_result(tiny_bert, tiny_glue, tmp_path):
    facts, _ = train(tiny_bert, tiny_glue, tmp_path / "x", epochs=12, learning_rate=3e-3)
    assert np.mean(facts["loss"][-5:]) < 0.8 * np.mean(facts["loss"][:5])
    assert (facts["attention"], facts["precision"], facts["device"]) == ("eager", "float32", "cpu")
    model = AutoModelForSequenceClassification.from_pretrained(tmp_path / "x")
    assert model.config.id2label == {0: "entailment", 1: "not_entailment"}
    split = load_folder(tiny_glue, task("rte"), "train")
    logits = predict(model.eval(), encode(split, AutoTokenizer.from_pretrained(tmp_path / "x"), 64))
    assert (logits.argmax(1) == split.targets()).mean() > 0.7


def test_the_last_two_layers_can_be_trained_alone(tiny_bert, tiny_glue, tmp_path):
    _, after = train(tiny_bert, tiny_glue, tmp_path / "x", "last-two-trained")
    before = open_classifier(locate(str(tiny_bert)), task("rte"), "pretrained", 1).model.state_dict()
    changed = {name for name in after if not torch.equal(after[name], before[name])}
    trained = ("bert.encoder.layer.1.", "bert.encoder.layer.2.", "bert.pooler.", "classifier.")
    assert changed == {name for name in after if name.startswith(trained)}


def test_the_last_two_layers_can_be_reinitialised_before_training(tiny_bert):
    opened = (open_classifier(locate(str(tiny_bert)), task("rte"), "last-two-new", seed) for seed in (1, 1, 2))
    one, same, other = (classifier.model.state_dict() for classifier in opened)
    plain = open_classifier(locate(str(tiny_bert)), task("rte"), "pretrained", 1).model.state_dict()
    assert all(torch.equal(one[name], same[name]) for name in one)
    drawn = {name for name in one if not torch.equal(one[name], plain[name])}
    matrices = {name for name in one if ".layer.1." in name or ".layer.2." in name if one[name].ndim == 2}
    assert {name for name in drawn if one[name].ndim == 2} == matrices
    assert all(name.startswith(("bert.encoder.layer.1.", "bert.encoder.layer.2.")) for name in drawn)
    assert all(not torch.equal(one[name], other[name]) for name in matrices)


@pytest.mark.parametrize("initialisation", ["last-two-new", "last-two-trained"])
def test_layers_that_share_their_weights_have_no_last_two(initialisation, tiny_glue, tmp_path):
    model = save_family("albert", tmp_path / "albert")
    with pytest.raises(UserError, match="Albert does not have 2 layers with separate weights"):
        train(model, tiny_glue, tmp_path / "x", initialisation)


@pytest.mark.parametrize("precision", fast_tier(["float32", "bfloat16"], "float32"))
def test_a_classifier_can_read_the_token_that_ends_an_input(tiny_bert, tiny_glue, tmp_path, precision):
    """Compare the checkpoint's predictions with pooler and classifier applied to the last token of a plain model."""
    facts, _ = train(tiny_bert, tiny_glue, tmp_path / "x", "from-sep", precision=precision)
    assert facts["precision"] == precision
    opened = open_checkpoint(tmp_path / "x", task("rte"))
    encoded = encode(load_folder(tiny_glue, task("rte"), "dev"), opened.tokenizer, 64)
    assert len(set(encoded.lengths)) > 1  # so that some are padded
    plain = AutoModelForSequenceClassification.from_pretrained(tmp_path / "x").eval()
    by_hand = []
    for i in range(len(encoded)):
        with torch.inference_mode():
            hidden = plain.bert(**alone(encoded, i)).last_hidden_state[:, -1:]
            by_hand.append(plain.classifier(plain.bert.pooler(hidden))[0].numpy())
    np.testing.assert_allclose(predict(opened.model, encoded), by_hand, atol=1e-5)
    assert np.abs(predict(plain, encoded) - by_hand).max() > 1e-3


@pytest.mark.parametrize("precision", fast_tier(["float32", "bfloat16"], "float32"))
def test_training_from_sep_differs_from_training_from_cls(tiny_bert, tiny_glue, tmp_path, precision):
    losses = [
        train(tiny_bert, tiny_glue, tmp_path / name, name, precision=precision)[0]["loss"]
        for name in ("from-sep", "pretrained")
    ]
    assert losses[0] != losses[1]


def test_models_that_cannot_read_sep_are_refused(tiny_bert, tmp_path):
    with pytest.raises(UserError, match="its inputs do not end with .SEP."):
        open_classifier(locate(str(save_family("gpt2", tmp_path / "gpt2"))), task("rte"), "from-sep")
    blind = open_classifier(locate(str(tiny_bert)), task("rte"))
    torch.nn.init.zeros_(blind.model.classifier.weight)
    with pytest.raises(UserError, match="its classifier does not read the first token"):
        read_last_token(blind.model, blind.tokenizer)


def test_untrained_takes_no_step(tiny_bert, tiny_glue, tmp_path):
    facts, after = train(tiny_bert, tiny_glue, tmp_path / "x", "untrained")
    before = open_classifier(locate(str(tiny_bert)), task("rte"), "untrained", 1).model.state_dict()
    assert (facts["steps"], facts["loss"]) == (0, [])
    assert all(torch.equal(after[name], before[name]) for name in after)


@pytest.mark.parametrize("name", ["cuda:77", "tpu", "xyz:1"])
def test_an_absent_device_is_one_line(name):
    with pytest.raises(UserError, match=f"device '{name}' is not available"):
        best_device(name)


def test_attention_on_a_gpu_uses_the_memory_efficient_kernel(monkeypatch):
    monkeypatch.setattr(torch, "empty", lambda *_, device: None)  # pretend that every device is available
    switches = {"flash": torch.backends.cuda.flash_sdp_enabled, "cudnn": torch.backends.cuda.cudnn_sdp_enabled}
    before = {name: enabled() for name, enabled in switches.items()}
    try:
        best_device("cpu")
        assert {name: enabled() for name, enabled in switches.items()} == before
        best_device("cuda")
        assert not any(enabled() for enabled in switches.values())
    finally:
        torch.backends.cuda.enable_flash_sdp(before["flash"])
        torch.backends.cuda.enable_cudnn_sdp(before["cudnn"])
