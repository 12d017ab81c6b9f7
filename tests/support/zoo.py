"""A tiny model folder of every architecture family that somebody may name, each with a tokenizer of its kind."""

from pathlib import Path
from typing import Any

import torch
from tiny import save_tokenizer, vocabulary
from tokenizers import Tokenizer, pre_tokenizers, processors
from tokenizers.models import WordLevel
from transformers import AutoConfig, AutoModelForSequenceClassification, PreTrainedTokenizerFast

LAYERS, HEADS, WIDTH = 3, 4, 32
SIZES = {"hidden_size": WIDTH, "num_hidden_layers": LAYERS, "num_attention_heads": HEADS, "intermediate_size": 48}
LONG = {"max_position_embeddings": 256, **SIZES}
RELATIVE = {"relative_attention": True, "pos_att_type": ["c2p", "p2c"], "max_relative_positions": 16, **LONG}
SMALL_EMBEDDINGS = {"embedding_size": 16, **LONG}
ENCODERS: dict[str, dict[str, Any]] = {  # by transformers' name for the model type
    "bert": LONG,
    "ernie": LONG,
    "roberta": {"type_vocab_size": 1, **LONG},
    "xlm-roberta": {"type_vocab_size": 1, **LONG},
    "camembert": {"type_vocab_size": 1, **LONG},
    "electra": SMALL_EMBEDDINGS,
    "albert": SMALL_EMBEDDINGS,
    "distilbert": {"dim": WIDTH, "n_layers": LAYERS, "n_heads": HEADS, "hidden_dim": 48},
    "mpnet": LONG,
    "deberta": {"position_biased_input": False, **RELATIVE},
    "deberta-v2": {"position_buckets": 8, "conv_kernel_size": 3, "norm_rel_ebd": "layer_norm", **RELATIVE},
    "big_bird": LONG,
    "roformer": SMALL_EMBEDDINGS,
    "rembert": {"input_embedding_size": 16, "output_embedding_size": 16, **LONG},
    "mobilebert": {"embedding_size": 16, "intra_bottleneck_size": 16, **LONG},
    "modernbert": {"local_attention": 8, "global_attn_every_n_layers": 2, **LONG},
    "eurobert": {"num_key_value_heads": HEADS, **LONG},
    "nomic_bert": LONG,
    "longformer": {"attention_window": 8, "type_vocab_size": 1, **LONG},
    "squeezebert": {"embedding_size": WIDTH, **LONG},
    "convbert": SMALL_EMBEDDINGS,
    "funnel": {
        "d_model": WIDTH, "n_head": HEADS, "d_head": 8, "d_inner": 48,
        "block_sizes": [1, 1], "num_decoder_layers": 2,
    },
    "xlnet": {"d_model": WIDTH, "n_layer": LAYERS, "n_head": HEADS, "d_inner": 48},
    "fnet": {"hidden_size": WIDTH, "num_hidden_layers": LAYERS, "intermediate_size": 48},
    "bart": {
        "d_model": WIDTH, "encoder_layers": LAYERS, "decoder_layers": 1, "max_position_embeddings": 256,
        "encoder_attention_heads": HEADS, "decoder_attention_heads": HEADS,
        "encoder_ffn_dim": 48, "decoder_ffn_dim": 48,
    },
    "t5": {"d_model": WIDTH, "num_layers": LAYERS, "num_heads": HEADS, "d_ff": 48, "d_kv": 8},
}  # fmt: skip
DECODERS: dict[str, dict[str, Any]] = {
    "gpt2": {"n_embd": WIDTH, "n_layer": LAYERS, "n_head": HEADS, "n_positions": 256},
    "llama": {"num_key_value_heads": HEADS, **LONG},
    "qwen2": {"num_key_value_heads": HEADS, **LONG},
}
FAMILIES = [*ENCODERS, *DECODERS]
WITHOUT_SEGMENTS = {"roberta", "xlm-roberta", "camembert", "distilbert", "mpnet", "longformer", "bart", "t5"}


def save_family(family: str, folder: Path, seed: int = 0) -> Path:
    """A model folder: a randomly drawn classifier, and its tokenizer as such a model is published with."""
    tokenizer = save_tokenizer(folder) if family in ENCODERS else save_decoder_tokenizer(family, folder)
    if family in WITHOUT_SEGMENTS:  # as the published tokenizers of these families
        roles = {f"{role}_token": getattr(tokenizer, f"{role}_token") for role in ("unk", "pad", "cls", "sep", "mask")}
        names = ["input_ids", "attention_mask"]
        tokenizer = PreTrainedTokenizerFast(tokenizer_object=tokenizer._tokenizer, model_input_names=names, **roles)
        tokenizer.save_pretrained(folder)
    ids = {f"{role}_token_id": getattr(tokenizer, f"{role}_token_id") for role in ("bos", "eos", "pad", "cls", "sep")}
    if family in ENCODERS:
        ids |= {"bos_token_id": tokenizer.cls_token_id, "eos_token_id": tokenizer.sep_token_id}
    if family == "t5":
        ids["decoder_start_token_id"] = tokenizer.pad_token_id
    sizes = {**ENCODERS, **DECODERS}[family]
    config = AutoConfig.for_model(family, vocab_size=len(tokenizer), num_labels=2, **ids, **sizes)
    torch.manual_seed(seed)
    model = AutoModelForSequenceClassification.from_config(config)
    with torch.no_grad():
        for parameter in model.parameters():
            parameter.add_(0.2 * torch.randn_like(parameter))  # large enough that maps differ and heads matter
    model.save_pretrained(folder)
    return folder


def save_decoder_tokenizer(family: str, folder: Path) -> PreTrainedTokenizerFast:
    """A tokenizer as GPT-2, Llama and Qwen2 are published with: without a padding token, [CLS] and [SEP]."""
    last = "</s>" if family == "llama" else "<|endoftext|>"
    words = ["<unk>", "<s>", last, *(word for word in vocabulary() if not word.startswith(("[", "##")))]
    bare = Tokenizer(WordLevel({word: i for i, word in enumerate(words)}, unk_token="<unk>"))
    bare.pre_tokenizer = pre_tokenizers.BertPreTokenizer()
    first = {"bos_token": "<s>"} if family == "llama" else {}
    if first:
        bare.post_processor = processors.TemplateProcessing("<s> $A", "<s> $A <s> $B", [("<s>", 1)])
    made = PreTrainedTokenizerFast(tokenizer_object=bare, eos_token=words[2], unk_token="<unk>", **first)
    made.save_pretrained(folder)
    return made
