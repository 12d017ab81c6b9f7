"""Opening models: invalid ones are refused with a clear message, valid ones are opened exactly as saved."""

import json
import os
import shutil
import warnings
from types import SimpleNamespace

import numpy as np
import pytest
import torch
from safetensors.torch import load_file
from tiny import CONFIGS, LAYERS, SPECIAL, assert_refused, family, openers, refused, rewrite, save_bert, settings
from transformers import AutoModelForSequenceClassification, AutoTokenizer
from zoo import save_family

from bertsecrets.errors import UserError
from bertsecrets.models import memory, opening
from bertsecrets.models.attention import attention_modules
from bertsecrets.models.configuration import ModelWarning, open_tokenizer
from bertsecrets.models.encoding import encode, predict, special_ids
from bertsecrets.models.locations import ModelRef, locate
from bertsecrets.models.opening import open_checkpoint, open_classifier
from bertsecrets.texts.glue import load_folder
from bertsecrets.texts.tasks import task

POSITIONS_AFTER_PADDING = (
    *("camembert", "data2vec-text", "esm", "ibert", "lilt", "longformer", "luke", "markuplm", "mpnet", "roberta"),
    *("roberta-prelayernorm", "xlm-roberta-xl", "xmod"),
)


def test_a_folder_without_config_or_weights_is_refused(own_bert):
    (own_bert / "model.safetensors").unlink()
    with pytest.raises(UserError, match="holds no weights"):
        locate(str(own_bert))
    (own_bert / "config.json").unlink()
    with pytest.raises(UserError, match=r"holds no config\.json"):
        locate(str(own_bert))


LAYER = "bert.encoder.layer.1"
QUERY = f"{LAYER}.attention.self.query"


def changed(file, **settings_of_file):
    return lambda folder: settings(folder, file, **settings_of_file)


def with_number(value):
    def fill(name, tensor):
        return {name: tensor.fill_(value) if name == f"{LAYER}.output.dense.bias" else tensor}

    return lambda folder: rewrite(folder, fill)


def with_others(*names):
    return lambda folder: rewrite(folder, added={name: torch.ones(2, 2) for name in names})


def with_a_new_token(folder):
    tokenizer = AutoTokenizer.from_pretrained(folder)
    tokenizer.add_tokens(["agitated"])
    tokenizer.save_pretrained(folder)


def eighths(name, tensor):
    """Return a matrix as float8 without its scale."""
    return {name: tensor.to(torch.float8_e4m3fn) if QUERY in name and tensor.dim() == 2 else tensor}


def packed(name, tensor):
    """Return a matrix as GPTQ does, with four numbers in one."""
    if name != f"{QUERY}.weight":
        return {name: tensor}
    root = name.removesuffix("weight")
    return {f"{root}qweight": torch.ones(4, 32, dtype=torch.int32), f"{root}scales": torch.ones(1, 32)}


REFUSED = {
    "a text": (lambda folder: (folder / "config.json").write_text("{"), "own-bert"),
    "a list": (lambda folder: (folder / "config.json").write_text("[]"), "own-bert"),
    "nothing": (lambda folder: (folder / "config.json").write_text("{}"), "own-bert"),
    "another family": (changed("config.json", model_type="no-such-family"), "own-bert"),
    "an empty file": (lambda folder: os.truncate(folder / "model.safetensors", 0), "own-bert"),
    "half a file": (lambda folder: os.truncate(folder / "model.safetensors", 5000), "own-bert"),
    "other shapes": (changed("config.json", intermediate_size=64), r"intermediate.dense.bias .* has the wrong shape"),
    "a missing weight": (
        lambda folder: rewrite(
            folder, lambda name, tensor: {} if name == f"{LAYER}.output.dense.weight" else {name: tensor}
        ),
        r"layer\.1\.output\.dense\.weight",
    ),
    "not a number": (with_number(torch.nan), r"output\.dense\.bias is not finite \(tensors affected: 1\)"),
    "infinity": (with_number(-torch.inf), r"output\.dense\.bias is not finite \(tensors affected: 1\)"),
    # Weights of another model
    "relative positions": (
        with_others(f"{LAYER}.attention.self.distance_embedding.weight"),
        rf"does not use the weight {LAYER}.attention.self.distance.* \(tensors affected: 1\)",
    ),
    "LoRA": (with_others(f"{QUERY}.lora_A", f"{QUERY}.lora_B"), rf"weight {QUERY}.lora_A \(tensors affected: 2\)"),
    "a deeper pooler": (with_others("bert.pooler.dense_1.weight"), r"weight bert.pooler.dense_1.weight \(tensors"),
    "no prefix": (with_others("encoder.layer.1.output.mask"), r"weight encoder.layer.1.output.mask \(tensors"),
    "a prompt": (with_others("prefix_encoder.embedding.weight"), r"weight prefix_encoder.embedding.weight \(tensors"),
    "a prefix": (
        lambda folder: rewrite(folder, lambda name, tensor: {f"base_model.model.{name}": tensor}),
        "the names of its weights begin with 'base_model.model.', as in .*: save the model",
    ),
    "float8": (
        lambda folder: rewrite(folder, eighths),
        rf"{QUERY}.weight is quantised \(F8_E4M3\), and config.json does not say how to read it",
    ),
    "four in one": (
        lambda folder: rewrite(folder, packed),
        rf"does not use the weight {QUERY}.qweight \(tensors affected: 2\)",
    ),
    # Settings that transformers ignores, although they name another model
    "code": (
        changed("config.json", auto_map={"AutoModel": "own.Model"}),
        r"needs code from its repository \(auto_map in config.json\), which this suite never runs: reg",
    ),
    "code of a tokenizer": (
        changed("tokenizer_config.json", auto_map={"AutoTokenizer": ["own.T", None]}),
        "needs code from its repository .auto_map in tokenizer_config",
    ),
    "a tokenizer": (changed("config.json", tokenizer_class="Own"), r"\(tokenizer_class Own in config.json\)"),
    "another tokenizer": (
        changed("tokenizer_config.json", tokenizer_class="OwnFast"),
        "tokenizer_class OwnFast in tok",
    ),
    "pruned heads": (changed("config.json", pruned_heads={"0": [1]}), r"removed \(pruned_heads in config.json\)"),
    "positions": (
        changed("config.json", position_embedding_type="relative_key"),
        "position_embedding_type in config.json is 'relative_key', but bert in",
    ),
    "a new token": (with_a_new_token, "has embeddings for 147 tokens, but the vocabulary of its tokenizer has 148"),
}


@pytest.mark.parametrize(("change", "message"), REFUSED.values(), ids=REFUSED)
def test_a_model_is_refused_in_one_line_however_it_is_opened(own_bert, change, message):
    change(own_bert)
    assert_refused(own_bert, message)


def test_an_integer_classifier_without_its_settings_is_refused(own_bert):
    rewrite(own_bert, lambda name, tensor: {name: tensor.to(torch.int8) if name == "classifier.weight" else tensor})
    with refused(r"classifier.weight is quantised \(I8\)"):
        open_checkpoint(own_bert, task("rte"))


def test_a_bare_encoder_is_refused_as_a_checkpoint(own_bert):
    rewrite(own_bert, lambda name, tensor: {} if "classifier" in name else {name: tensor})
    with pytest.raises(UserError, match=r"without a trained classifier \(classifier\.bias .*: use the option `model`"):
        open_checkpoint(own_bert, task("rte"))


def test_a_saved_classifier_is_replaced_by_a_new_one(own_bert):
    saved = load_file(own_bert / "model.safetensors")
    loaded = open_classifier(locate(str(own_bert)), task("rte"), "untrained", 1).model.state_dict()
    assert not torch.equal(loaded["classifier.weight"], saved["classifier.weight"])
    assert all(torch.equal(loaded[name], saved[name]) for name in saved if name.startswith("bert."))


def test_another_number_of_classes_is_refused(tmp_path):
    folder = save_bert(tmp_path / "three", num_labels=3)
    with pytest.raises(UserError, match="has 3 outputs, but RTE needs 2 classes"):
        open_checkpoint(folder, task("rte"))
    with pytest.raises(UserError, match="has 3 outputs, but STS-B needs one score"):
        open_checkpoint(folder, task("stsb"))


def test_another_vocabulary_is_refused(tiny_bert, tmp_path):
    words = ["[PAD]", "[UNK]", "[CLS]", "[SEP]", "[MASK]", *"abcdefgh"]
    folder = save_bert(tmp_path / "other", words=words)
    with pytest.raises(UserError, match=r"has a different vocabulary \(13 entries\)"):
        open_checkpoint(folder, task("rte"), locate(str(tiny_bert)))


def test_half_precision_files_are_opened_in_float32(own_bert):
    rewrite(own_bert, lambda name, tensor: {name: tensor.half()})
    settings(own_bert, "config.json", dtype="float16")
    for opened in openers(own_bert):
        assert {parameter.dtype for parameter in opened().model.parameters()} == {torch.float32}


def test_the_seed_changes_the_classifier_and_not_the_encoder(tiny_bert):
    one, same, other = (
        open_classifier(locate(str(tiny_bert)), task("mnli"), "untrained", seed).model for seed in (1, 1, 2)
    )
    assert one.classifier.out_features == 3
    assert torch.equal(one.classifier.weight, same.classifier.weight)
    assert not torch.equal(one.classifier.weight, other.classifier.weight)
    for a, b in zip(one.bert.parameters(), other.bert.parameters(), strict=True):
        assert torch.equal(a, b)


@pytest.mark.parametrize(("name", "kernel"), [("bert", "sdpa"), ("mpnet", "eager")])
def test_models_without_sdpa_use_eager_attention(tiny_bert, tmp_path, name, kernel):
    tokenizer = AutoTokenizer.from_pretrained(tiny_bert)
    tokenizer.save_pretrained(tmp_path)
    model = AutoModelForSequenceClassification.from_config(CONFIGS[name])
    model.resize_token_embeddings(len(tokenizer))
    model.save_pretrained(tmp_path)
    for attention, expected in (("sdpa", kernel), ("eager", "eager")):
        opened = opening.open_checkpoint(tmp_path, task("rte"), attention=attention)
        assert opened.model.config._attn_implementation == expected


def test_a_model_opened_with_sdpa_has_no_readable_attention():
    model = AutoModelForSequenceClassification.from_config(CONFIGS["bert"], attn_implementation="sdpa").eval()
    with pytest.raises(UserError, match="the attention of Bert cannot be read: .* sdpa"):
        attention_modules(model)


# ---------------------------------------------------------------------- config.json and weights that disagree


@pytest.mark.parametrize(
    ("cls", "sep", "bos", "eos", "expected"),
    [(0, 2, 1, 3, (0, 2)), (None, None, 9, 8, (9, 8)), (None, None, None, None, (None, None))],
)
def test_special_tokens_by_role(cls, sep, bos, eos, expected):
    tokenizer = SimpleNamespace(cls_token_id=cls, sep_token_id=sep, bos_token_id=bos, eos_token_id=eos)
    assert special_ids(tokenizer) == dict(zip(("cls", "sep"), expected, strict=True))


@pytest.mark.parametrize("name", ["bert", "distilbert", "gpt2", "modernbert"])
def test_weights_of_more_layers_than_the_config_says_are_refused(tiny_bert, tmp_path, name):
    folder = shutil.copytree(tiny_bert, tmp_path / name)
    model = family(name)
    model.resize_token_embeddings(len(AutoTokenizer.from_pretrained(folder)))
    model.save_pretrained(folder)
    layers = {"distilbert": "n_layers", "gpt2": "n_layer"}.get(name, "num_hidden_layers")
    config = json.loads((folder / "config.json").read_text())
    per_layer = {key: value[:2] for key, value in config.items() if isinstance(value, list) and len(value) == LAYERS}
    settings(folder, "config.json", **per_layer, **{layers: 2})
    for opened in openers(folder)[::2]:
        with refused("has 2 layers according to config.json, but weights for 3 layers"):
            opened()


# ---------------------------------------------------------------------- memory


def test_too_little_memory_for_opening_is_refused_first(own_bert, monkeypatch):
    monkeypatch.setattr(memory, "available_bytes", lambda: 1000)
    assert_refused(own_bert, r"^opening .*own-bert needs about [\d.]+ [kM]B of memory, but only 1 kB is free: end")


@pytest.mark.parametrize(
    "raised", [MemoryError(), RuntimeError("DefaultCPUAllocator: can't allocate memory: you tried to allocate 9 bytes")]
)
def test_running_out_of_memory_while_opening_is_one_line(own_bert, monkeypatch, raised):
    def fail(*_args, **_more):
        raise raised

    monkeypatch.setattr(AutoModelForSequenceClassification, "from_pretrained", fail)
    with refused(r"^opening .*own-bert ran out of memory \(it needs about [\d.]+ [kM]B\): end"):
        open_classifier(ModelRef.in_folder(own_bert), task("rte"))


# ---------------------------------------------------------------------- unsuitable tokenizers


def test_a_tokenizer_of_special_tokens_only_is_refused(tmp_path):
    with pytest.raises(UserError, match=r"contains only special tokens, so every word would be encoded as \[UNK\]"):
        open_tokenizer(locate(str(save_bert(tmp_path, words=SPECIAL))))


def test_more_segments_than_the_model_embeds_are_refused(tmp_path):
    with pytest.raises(UserError, match="of a pair from 0 to 1, but type_vocab_size in config.json is only 1: remove"):
        open_classifier(locate(str(save_bert(tmp_path, type_vocab_size=1))), task("rte"))


def test_code_in_a_model_folder_is_refused_and_never_runs(own_bert):
    settings(own_bert, "config.json", model_type="unheard-of", auto_map={"AutoConfig": "planted.PlantedConfig"})
    (own_bert / "planted.py").write_text(f"open({str(own_bert / 'ran')!r}, 'w')")
    with pytest.raises(UserError, match="needs code from its repository, which this suite never runs: register"):
        open_classifier(locate(str(own_bert)), task("rte"))
    assert not (own_bert / "ran").exists()


# ---------------------------------------------------------------------- settings that transformers ignores


@pytest.mark.parametrize("longest", [1, 3])
def test_a_model_without_room_for_words_is_refused(own_bert, longest):
    settings(own_bert, "tokenizer_config.json", model_max_length=longest)
    with refused(f"room for {longest} tokens, but 3 special tokens are added to a pair of texts: allow more"):
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


@pytest.mark.parametrize("name", POSITIONS_AFTER_PADDING)
def test_every_position_that_a_model_has_is_used_and_no_other(tmp_path, name):
    opened = open_classifier(ModelRef.in_folder(save_family(name, tmp_path)), task("rte"))
    opened.tokenizer.model_max_length = 10**6
    room = opened.fit(10**6)
    ids = torch.full((1, room + 1), 5)
    with torch.no_grad():
        opened.model(ids[:, :room])
        with pytest.raises((IndexError, RuntimeError)):
            opened.model(ids)


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
