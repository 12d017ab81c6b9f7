"""Tokenizers that encode texts as their models read them: segments, special tokens, case and files."""

import json
import warnings

import numpy as np
import pytest
import torch
from tiny import assert_refused, byte_pairs, openers, refused, save_bert, settings, vocabulary
from tokenizers import Tokenizer, pre_tokenizers, processors
from tokenizers.models import BPE, Unigram
from transformers import AutoModelForSequenceClassification, AutoTokenizer, PreTrainedTokenizerFast, RobertaConfig
from zoo import save_family

from bertsecrets.errors import UserError
from bertsecrets.models.configuration import ModelWarning, open_tokenizer
from bertsecrets.models.encoding import encode, predict
from bertsecrets.models.locations import ModelRef
from bertsecrets.models.opening import open_checkpoint, open_classifier
from bertsecrets.texts.glue import load_folder
from bertsecrets.texts.tasks import task


def save_pieces(folder):
    """Save a sentencepiece tokenizer with the folder's number of tokens."""
    specials = ["[PAD]", "[UNK]", "[CLS]", "[SEP]", "[MASK]"]
    words = [f"▁{word}" for word in vocabulary() if word.isalnum()]
    made = Tokenizer(Unigram([(piece, 0.0 if piece in specials else -5.0) for piece in [*specials, "▁", *words]], 1))
    made.pre_tokenizer = pre_tokenizers.Metaspace()
    made.add_special_tokens(specials)
    roles = [(token, specials.index(token)) for token in ("[CLS]", "[SEP]")]
    made.post_processor = processors.TemplateProcessing("[CLS] $A [SEP]", "[CLS] $A [SEP] $B:1 [SEP]:1", roles)
    made.save(str(folder / "tokenizer.json"))


@pytest.mark.filterwarnings("ignore:.*but tokenizer.json splits it")  # ALBERT's and RemBERT's lower-case by themselves
@pytest.mark.parametrize(
    ("family", "name"),
    [
        *(("albert", "AlbertTokenizer"), ("rembert", "RemBertTokenizer")),
        *(("big_bird", "BigBirdTokenizer"), ("funnel", "FunnelTokenizer")),
        *((family, "PreTrainedTokenizerFast") for family in ("bert", "electra", "roformer", "albert", "nomic_bert")),
    ],
)
def test_pairs_have_segments_whatever_the_tokenizer_returns_by_itself(family, name, tmp_path, tiny_glue):
    folder = save_family(family, tmp_path / family)
    if family != "funnel":
        save_pieces(folder)
    roles = {f"{role}_token": f"[{role.upper()}]" for role in ("pad", "unk", "cls", "sep", "mask")}
    roles |= {"bos_token": "[CLS]", "eos_token": "[SEP]"}
    settings(folder, "tokenizer_config.json", tokenizer_class=name, model_input_names=None, **roles)
    opened = open_checkpoint(folder, task("rte"))
    rows = load_folder(tiny_glue, task("rte"), "dev").head(4)
    encoded = encode(rows, opened.tokenizer, 64)
    plain = AutoModelForSequenceClassification.from_pretrained(folder, attn_implementation="eager").eval()
    for i, logits in enumerate(predict(opened.model, encoded)):
        ids = encoded.input_ids[i]
        first = ids.index(3) + 1  # [SEP]
        assert (ids[0], ids[-1], ids.count(3)) == (2, 3, 2)
        segments = [0] * first + [1] * (len(ids) - first)
        if family == "funnel":  # [CLS] has a segment of its own
            segments[0] = 2
        with torch.no_grad():
            alone = plain(input_ids=torch.tensor([ids]), token_type_ids=torch.tensor([segments])).logits[0]
        np.testing.assert_allclose(logits, alone, atol=1e-5)


def test_a_tokenizer_whose_files_leave_out_segments_returns_none(own_bert, tiny_glue):
    settings(own_bert, "tokenizer_config.json", model_input_names=["input_ids", "attention_mask"])
    rows = load_folder(tiny_glue, task("rte"), "dev")
    assert encode(rows, open_checkpoint(own_bert, task("rte")).tokenizer, 64).segments is None


def test_a_trained_checkpoint_keeps_its_segments(own_bert, tmp_path):
    settings(own_bert, "tokenizer_config.json", tokenizer_class="PreTrainedTokenizerFast")
    open_classifier(ModelRef.in_folder(own_bert), task("rte")).tokenizer.save_pretrained(tmp_path / "saved")
    assert "token_type_ids" in AutoTokenizer.from_pretrained(tmp_path / "saved")("a", "b")


TEMPLATES = {
    "no [CLS] and [SEP]": (None, "[CLS]"),
    "no [CLS]": (("$A [SEP]", "$A [SEP] $B:1 [SEP]:1"), "[CLS]"),
    "no [SEP]": (("[CLS] $A", "[CLS] $A $B:1"), "[SEP]"),
    "[SEP] only at the end": (("[CLS] $A [SEP]", "[CLS] $A $B:1 [SEP]:1"), "[SEP]"),
}


@pytest.mark.parametrize(("template", "missing"), TEMPLATES.values(), ids=TEMPLATES)
@pytest.mark.parametrize("declared", [True, False])
def test_a_tokenizer_that_does_not_separate_texts_is_refused(own_bert, template, missing, declared):
    roles = {"cls_token": "[CLS]", "sep_token": "[SEP]", "eos_token": "[SEP]"} if declared else {}
    shown = {"tokenizer_class": "PreTrainedTokenizerFast", "unk_token": "[UNK]", "pad_token": "[PAD]", **roles}
    (own_bert / "tokenizer_config.json").write_text(json.dumps(shown))
    backend = Tokenizer.from_file(str(own_bert / "tokenizer.json"))
    content = json.loads(backend.to_str())
    content["post_processor"] = None
    if template is not None:
        backend.post_processor = processors.TemplateProcessing(*template, [("[CLS]", 2), ("[SEP]", 3)])
        content = json.loads(backend.to_str())
    (own_bert / "tokenizer.json").write_text(json.dumps(content))
    assert_refused(own_bert, rf"has the token \{missing[:-1]}\], but does not add it to texts")


@pytest.mark.parametrize(("capitals", "lower", "warned"), [(20, True, True), (20, False, False), (1, True, False)])
def test_a_cased_vocabulary_with_a_lower_casing_tokenizer_is_a_warning(tmp_path, capitals, lower, warned):
    words = [word.capitalize() for word in vocabulary() if word.isalpha() and len(word) > 3][:capitals]
    folder = save_bert(tmp_path, words=[*vocabulary(), *words])
    settings(folder, "tokenizer_config.json", do_lower_case=lower)
    content = json.loads((folder / "tokenizer.json").read_text("utf-8"))
    content["normalizer"]["lowercase"] = lower
    (folder / "tokenizer.json").write_text(json.dumps(content), "utf-8")
    for opened in openers(folder):
        with warnings.catch_warnings(record=True) as caught:
            warnings.simplefilter("always")
            opened()
        said = [str(warning.message) for warning in caught if warning.category is ModelWarning]
        assert bool(said) == warned
        assert all(f"{capitals} words of its vocabulary are capitalised" in text for text in said)


def change_file(folder, **parts):
    """Change parts of a tokenizer.json."""
    content = json.loads((folder / "tokenizer.json").read_text("utf-8"))
    (folder / "tokenizer.json").write_text(json.dumps(content | parts), "utf-8")


NORMALIZER = {"type": "BertNormalizer", "clean_text": True, "handle_chinese_chars": True, "strip_accents": None}
TWO_BETWEEN = processors.TemplateProcessing(
    "[CLS] $A [SEP]", "[CLS] $A [SEP] [SEP] $B:1 [SEP]:1", [("[CLS]", 2), ("[SEP]", 3)]
)


@pytest.mark.parametrize("name", ["BertTokenizer", "BertTokenizerFast", "PreTrainedTokenizerFast"])
@pytest.mark.parametrize(
    "parts",
    [
        {"normalizer": {**NORMALIZER, "lowercase": False}},
        {"normalizer": None},
        {"pre_tokenizer": {"type": "WhitespaceSplit"}},
        {"post_processor": json.loads(TWO_BETWEEN.__getstate__())},
    ],
    ids=lambda parts: "-".join(f"{part} {'changed' if value else 'deleted'}" for part, value in parts.items()),
)
def test_a_tokenizer_that_replaces_parts_of_its_file_is_a_warning(own_bert, name, parts):
    change_file(own_bert, **parts)
    settings(own_bert, "tokenizer_config.json", tokenizer_class=name, do_lower_case=None)
    with warnings.catch_warnings(record=True) as caught:
        warnings.simplefilter("always")
        tokenizer = open_tokenizer(ModelRef.in_folder(own_bert))
    said = [str(warning.message) for warning in caught if warning.category is ModelWarning]
    own = Tokenizer.from_file(str(own_bert / "tokenizer.json"))
    same = own.encode("Ada's CAT", "It's 5.").ids == tokenizer("Ada's CAT", "It's 5.")["input_ids"]
    assert same == (name == "PreTrainedTokenizerFast")
    assert len(said) == (not same)
    assert all("if tokenizer.json is right, correct tokenizer_config.json" in text for text in said)


@pytest.mark.parametrize(("setting", "value"), [("do_lower_case", False), ("strip_accents", False)])
def test_settings_of_the_normalizer_replace_those_of_the_file(own_bert, setting, value):
    settings(own_bert, "tokenizer_config.json", **{setting: value})
    tokenizer = open_tokenizer(ModelRef.in_folder(own_bert))
    assert tokenizer.tokenize("LÉO" if setting == "do_lower_case" else "léo") == ["[UNK]"]


def test_a_checkpoint_without_a_tokenizer_has_the_vocabulary_of_its_base(own_bert, tiny_bert):
    for file in own_bert.glob("*token*"):
        file.unlink()
    base = ModelRef.in_folder(tiny_bert)
    with pytest.raises(UserError, match="holds no tokenizer"):
        open_checkpoint(own_bert, task("rte"))
    model = open_checkpoint(own_bert, task("rte"), base).model
    for size in (160, 1000):  # a few unused embeddings are usual
        model.resize_token_embeddings(size, mean_resizing=False)
        model.save_pretrained(own_bert)
        if size == 160:
            open_checkpoint(own_bert, task("rte"), base)
    with pytest.raises(UserError, match="has embeddings for 1000 tokens, but the tokenizer of .* has 147 tokens: save"):
        open_checkpoint(own_bert, task("rte"), base)


def test_robertas_vocabulary_and_merges_are_read(tmp_path):
    parts = byte_pairs(["<s>", "<pad>", "</s>", "<unk>", "<mask>"])
    sizes = {"hidden_size": 32, "num_hidden_layers": 1, "num_attention_heads": 2, "intermediate_size": 8}
    config = RobertaConfig(vocab_size=len(parts["vocab"]), type_vocab_size=1, **sizes)
    AutoModelForSequenceClassification.from_config(config).save_pretrained(tmp_path)
    (tmp_path / "vocab.json").write_text(json.dumps(parts["vocab"]))
    (tmp_path / "merges.txt").write_text("\n".join(["#version: 0.2", *map(" ".join, parts["merges"])]))
    tokenizer = open_checkpoint(tmp_path, task("rte")).tokenizer
    coded = tokenizer("ada sold", "leo lost")
    assert tokenizer.convert_ids_to_tokens(coded["input_ids"]) == [
        *("<s>", "ada", "Ġsold", "</s>", "</s>", "leo", "Ġlost", "</s>"),
    ]
    assert "token_type_ids" not in coded


def test_a_tokenizer_that_splits_words_at_random_is_refused(own_bert):
    parts = byte_pairs(["[PAD]", "[UNK]", "[CLS]", "[SEP]"])
    words = Tokenizer(BPE(**parts, dropout=0.01, unk_token="[UNK]"))
    PreTrainedTokenizerFast(tokenizer_object=words, unk_token="[UNK]").save_pretrained(own_bert)
    with refused("its tokenizer splits words at random: set dropout to null in tokenizer.json"):
        open_tokenizer(ModelRef.in_folder(own_bert))


def test_a_folder_with_only_a_sentencepiece_model_is_one_line(tmp_path):
    folder = save_family("albert", tmp_path)
    for file in folder.glob("*token*"):
        file.unlink()
    (folder / "spiece.model").write_bytes(b"\n\x0e\n\x05<unk>\x15\x00\x00\x00\x00\x18\x02")
    with refused("its other files do not define a fast tokenizer: save"):
        open_tokenizer(ModelRef.in_folder(folder))
