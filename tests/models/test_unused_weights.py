"""Weights that the opened model does not use: refused by name, unless they are known to change nothing."""

import functools
import shutil

import pytest
import torch
from safetensors.torch import save_file
from tiny import fast_tier, refused, rewrite
from transformers import AutoConfig
from transformers.models.auto import modeling_auto
from zoo import FAMILIES, FURTHER, save_family

from bertsecrets.errors import UserError
from bertsecrets.models.families import why_no_maps
from bertsecrets.models.locations import ModelRef
from bertsecrets.models.opening import open_checkpoint, open_classifier, open_encoder
from bertsecrets.texts.tasks import task

TASKS = ("PRETRAINING", "CAUSAL_LM", "MASKED_LM", "SEQ_TO_SEQ_CAUSAL_LM", "NEXT_SENTENCE_PREDICTION", "MULTIPLE_CHOICE")
TASKS += ("QUESTION_ANSWERING", "TOKEN_CLASSIFICATION", "SEQUENCE_CLASSIFICATION")
# Classes without an encoder or a decoder, or with another decoder.
NOT_WHOLE = {"BartForCausalLM", "T5ForTokenClassification", "ReformerModelWithLMHead", "PerceiverForMaskedLM"}
CANNOT_ANSWER = ("xlnet", "fnet", "convbert")
EACH_FAMILY = pytest.mark.parametrize(
    "family",
    fast_tier(
        [family for family in [*FAMILIES, *FURTHER] if family not in CANNOT_ANSWER],
        *("bert", "roberta", "distilbert", "deberta-v2", "modernbert", "gpt2", "mixtral"),
    ),
)


@pytest.fixture(scope="module")
def folders(tmp_path_factory):
    root = tmp_path_factory.mktemp("zoo")
    return functools.cache(lambda family: save_family(family, root / family))


def open_new(folder):
    return open_classifier(ModelRef.in_folder(folder), task("rte"))


def open_trained(folder):
    return open_checkpoint(folder, task("rte"))


def open_bare(folder):
    return open_encoder(ModelRef.in_folder(folder))


@EACH_FAMILY
def test_a_weight_in_any_module_of_an_encoder_is_refused(folders, family, tmp_path):
    folder = shutil.copytree(folders(family), tmp_path / family)
    encoder = open_new(folder).model.base_model
    prefix = encoder.base_model_prefix
    modules = [name for name, _ in encoder.named_modules()]
    rewrite(folder, added={".".join(filter(None, (prefix, name, "unheard_of"))): torch.ones(2) for name in modules})
    ways = [open_new]
    if family != "bart":  # a BART of two classes is saved as one of three
        ways.append(open_trained)
    if why_no_maps(encoder.config) is None:
        ways.append(open_bare)
    for opened in ways:
        count = r"\d+" if opened is open_bare else len(modules)  # some encoders have no pooler without a classifier
        with pytest.raises(UserError, match=rf"unheard_of \(tensors affected: {count}\)\. The files belong"):
            opened(folder)


@EACH_FAMILY
def test_heads_of_other_tasks_are_left_out(folders, family, tmp_path):
    config = AutoConfig.from_pretrained(folders(family))
    mappings = [getattr(modeling_auto, f"MODEL_FOR_{name}_MAPPING") for name in TASKS]
    prefix = open_new(folders(family)).model.base_model_prefix  # another one cannot be read as a classifier
    classes = {mapping[type(config)] for mapping in mappings if type(config) in mapping}
    classes = {cls for cls in classes if cls.base_model_prefix == prefix and cls.__name__ not in NOT_WHOLE}
    assert classes
    for cls in classes:
        folder = shutil.copytree(folders(family), tmp_path / cls.__name__)
        cls(config).save_pretrained(folder)
        assert open_new(folder).model.config.model_type == config.model_type


LAYER = "bert.encoder.layer.1"


@pytest.mark.parametrize(
    "name",
    [
        *("bert.embeddings.position_ids", "cls.predictions.bias", "cls.seq_relationship.weight", "lm_head.bias"),
        *("qa_outputs.weight", f"{LAYER}.crossattention.self.query.weight", f"{LAYER}.attn.masked_bias"),
    ],
)
def test_weights_that_change_nothing_are_left_out(own_bert, name):
    before = open_trained(own_bert).model.state_dict()
    rewrite(own_bert, added={name: torch.ones(2, 2)})
    for opened in (open_new, open_bare):
        opened(own_bert)
    after = open_trained(own_bert).model.state_dict()
    assert all(torch.equal(before[name], tensor) for name, tensor in after.items())


@pytest.mark.parametrize(
    "name",
    [
        *("classifier.norm", "pre_classifier", "regression_head", "dense", "linear", "score"),
        *("output_gate", "vocab_adapter", "nsp_gate", "my_decoder"),  # like heads of other tasks
    ],
)
def test_unknown_heads_are_left_out_unless_the_classifier_is_a_trained_one(own_bert, name):
    name += ".weight"
    rewrite(own_bert, added={name: torch.ones(2, 2)})
    open_new(own_bert)
    open_bare(own_bert)
    with pytest.raises(UserError, match=f"does not use the weight {name}"):
        open_trained(own_bert)


def test_only_the_masks_of_gpt2_are_left_out_as_such(own_bert):
    name = f"{LAYER}.attention.self.attn.bias"
    rewrite(own_bert, added={name: torch.ones(2, 2)})
    for opened in (open_new, open_bare, open_trained):
        with pytest.raises(UserError, match=f"does not use the weight {name}"):
            opened(own_bert)


def test_a_single_file_and_shards_in_one_folder_are_refused(own_bert):
    open_new(own_bert).model.save_pretrained(own_bert, max_shard_size="20KB")
    assert (own_bert / "model.safetensors").is_file()
    with refused(r"both model.safetensors and model.safetensors.index.json: delete the outdated"):
        open_trained(own_bert)
    (own_bert / "model.safetensors").unlink()
    open_trained(own_bert)


def test_shards_without_an_index_are_not_read(own_bert):
    before = open_trained(own_bert).model.state_dict()
    shard = own_bert / "model-00001-of-00002.safetensors"
    save_file({"bert.pooler.dense.bias": torch.ones(32)}, shard, {"format": "pt"})
    assert all(torch.equal(before[name], tensor) for name, tensor in open_trained(own_bert).model.state_dict().items())
