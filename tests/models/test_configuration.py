"""Settings in a model's folder that transformers ignores, although they name another model."""

import json
import warnings

import numpy as np
import pytest
from tiny import LAYERS, assert_refused, openers, refused, save_bert, settings

from bertsecrets.errors import UserError
from bertsecrets.models.configuration import ModelWarning
from bertsecrets.models.encoding import encode, predict
from bertsecrets.models.locations import ModelRef
from bertsecrets.models.opening import open_checkpoint, open_classifier
from bertsecrets.texts.glue import load_folder
from bertsecrets.texts.tasks import task


@pytest.mark.parametrize("longest", [1, 3])
def test_a_model_without_room_for_words_is_refused(own_bert, longest):
    settings(own_bert, "tokenizer_config.json", model_max_length=longest)
    with refused(
        f"room for {longest} tokens, but 3 special tokens are added to a pair of texts: correct model_max_len"
    ):
        open_classifier(ModelRef.in_folder(own_bert), task("rte")).fit(64)


@pytest.mark.parametrize(
    ("name", "warned"), [("BertMeanPoolClassifier", 1), ("TFBertModel", 0), ("BertForMaskedLM", 0)]
)
def test_an_unknown_class_is_a_warning(own_bert, name, warned):
    settings(own_bert, "config.json", architectures=[name])
    with warnings.catch_warnings(record=True) as caught:
        warnings.simplefilter("always")
        open_checkpoint(own_bert, task("rte"))
    said = [str(warning.message) for warning in caught if warning.category is ModelWarning]
    assert len(said) == warned
    assert all(
        f"config.json names the class {name}, which transformers does not know, so the model is opened as bert" in text
        for text in said
    )


def test_a_lost_number_of_classes_is_named(tmp_path):
    other = save_bert(tmp_path / "three", num_labels=3)
    settings(other, "config.json", id2label=None, label2id=None)
    with refused(r"classifier.bias has the shape \(3,\), but config.json requires 2 outputs: correct"):
        open_checkpoint(other, task("rte"))


@pytest.mark.parametrize("name", ["adapter_notes.txt", "adapters.md", "adapter.json", "use_adapter.py"])
def test_files_about_adapters_are_no_adapters(own_bert, name):
    (own_bert / name).write_text("{}")
    for opened in openers(own_bert):
        assert opened().layers == LAYERS


@pytest.mark.parametrize("name", ["adapter_config.json", "adapter_model.safetensors", "pytorch_adapter.bin"])
def test_an_adapter_is_refused_with_and_without_its_base_model(own_bert, name):
    (own_bert / name).write_text("{}")
    assert_refused(own_bert, f"holds an adapter .{name}., .* merge it into its base model")
    (own_bert / "config.json").unlink()
    with pytest.raises(UserError, match="holds an adapter"):
        open_checkpoint(own_bert, task("rte"))


@pytest.mark.parametrize(
    ("file", "recorded"),
    [
        ("config.json", {"sentence_transformers": {"activation_fn": "torch.nn.modules.activation.Sigmoid"}}),
        ("config.json", {"sbert_ce_default_activation_function": "torch.nn.modules.activation.Sigmoid"}),
        ("config_sentence_transformers.json", {"activation_fn": "torch.nn.modules.activation.Sigmoid"}),
        ("config.json", {"sentence_transformers": {"activation_fn": "torch.nn.modules.activation.Tanh"}}),
    ],
)
def test_a_cross_encoder_answers_with_its_activation_function(tmp_path, tiny_glue, file, recorded):
    folder = save_bert(tmp_path / "cross-encoder", num_labels=1)
    rows = load_folder(tiny_glue, task("rte"), "dev")
    plain, ref = open_checkpoint(folder, task("stsb")), ModelRef.in_folder(folder)
    logits, before = predict(plain.model, encode(rows, plain.tokenizer, 64)), ref.identity()
    (folder / file).touch()
    (folder / file).write_text(json.dumps({**json.loads((folder / file).read_text() or "{}"), **recorded}))
    opened = open_checkpoint(folder, task("stsb"))
    expected = np.tanh(logits) if "Tanh" in str(recorded) else 1 / (1 + np.exp(-logits))
    np.testing.assert_allclose(predict(opened.model, encode(rows, opened.tokenizer, 64)), expected, atol=1e-6)
    assert ref.identity() != before
    trained = open_classifier(ref, task("stsb"))
    assert not {"sentence_transformers", "sbert_ce_default_activation_function"} & trained.model.config.to_dict().keys()


@pytest.mark.parametrize("name", ["own.Activation", "torch.nn.modules.linear.Linear", "torch.nn.Nothing", 5])
def test_an_unknown_activation_function_is_refused(tmp_path, name):
    folder = save_bert(tmp_path / "cross-encoder", num_labels=1)
    settings(folder, "config.json", sentence_transformers="5.0")  # names no function
    open_checkpoint(folder, task("stsb"))
    (folder / "config_sentence_transformers.json").write_text(json.dumps({"activation_fn": name}))
    with pytest.raises(UserError, match=f"needs code from its repository, .* for its activation function {name}"):
        open_checkpoint(folder, task("stsb"))
