"""Tiny model folders of every architecture family, each with a matching tokenizer."""

from pathlib import Path
from typing import Any

import torch
from tiny import byte_pairs, save_tokenizer, vocabulary
from tokenizers import Tokenizer, pre_tokenizers, processors
from tokenizers.models import WordLevel
from transformers import AutoConfig, AutoModelForSequenceClassification, PreTrainedTokenizerFast, Qwen2Tokenizer

LAYERS, HEADS, WIDTH = 3, 4, 32
SIZES = {"hidden_size": WIDTH, "num_hidden_layers": LAYERS, "num_attention_heads": HEADS, "intermediate_size": 48}
LONG = {"max_position_embeddings": 256, **SIZES}
ONE_SEGMENT = {"type_vocab_size": 1, **LONG}
RELATIVE = {"relative_attention": True, "pos_att_type": ["c2p", "p2c"], "max_relative_positions": 16, **LONG}
SMALL_EMBEDDINGS = {"embedding_size": 16, **LONG}
ENCODERS: dict[str, dict[str, Any]] = {  # by transformers' name for the model type
    "bert": LONG,
    "ernie": LONG,
    "roberta": ONE_SEGMENT,
    "xlm-roberta": ONE_SEGMENT,
    "camembert": ONE_SEGMENT,
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
# Further families for the sweep. Most accept BERT's names for their sizes.
FURTHER_ENCODERS: dict[str, dict[str, Any]] = {
    **dict.fromkeys(("esmc", "layoutlm", "megatron-bert", "mra", "tapas", "ultrabert", "yoso"), LONG),
    **dict.fromkeys((
        "data2vec-text", "ibert", "jina_embeddings_v3", "roberta-prelayernorm", "xlm-roberta-xl",
    ), ONE_SEGMENT),
    "canine": {"num_hash_buckets": 64, "local_transformer_stride": 8, "upsampling_kernel_size": 4, **LONG},
    "esm": {"position_embedding_type": "absolute", **LONG},
    "flaubert": {"emb_dim": WIDTH, "n_layers": LAYERS, "n_heads": HEADS, "max_position_embeddings": 256},
    "gte": {"type_vocab_size": 2, **LONG},
    "lilt": {"channel_shrink_ratio": 2, **LONG, "hidden_size": 48},  # a multiple of 6
    "luke": {"entity_vocab_size": 10, "entity_emb_size": 16, **LONG},
    "markuplm": {"max_depth": 2, "xpath_unit_hidden_size": 8, **LONG},
    "nystromformer": {"num_landmarks": 8, "segment_means_seq_len": 8, **LONG},
    "perceiver": {
        "d_model": WIDTH, "num_latents": 8, "d_latents": WIDTH, "num_self_attends_per_block": LAYERS, "num_blocks": 1,
        "num_self_attention_heads": HEADS, "num_cross_attention_heads": HEADS, "max_position_embeddings": 256,
    },
    "reformer": {"attention_head_size": 8, "feed_forward_size": 48, "axial_pos_shape": [16, 16],
        "axial_pos_embds_dim": [16, 16], "num_buckets": 4, "lsh_attn_chunk_length": 8, "local_attn_chunk_length": 8,
        "attn_layers": ["local", "lsh", "local"], "is_decoder": False, **LONG,
    },
    "roc_bert": {"pronunciation_vocab_size": 20, "shape_vocab_size": 20, "pronunciation_embed_dim": 8,
        "shape_embed_dim": 8, **LONG,
    },
    "xlm": {"emb_dim": WIDTH, "n_layers": LAYERS, "n_heads": HEADS, "max_position_embeddings": 256},
    "xmod": {"type_vocab_size": 1, "languages": ["en_XX"], "default_language": "en_XX", **LONG},
}  # fmt: skip
ROLES = {"pad_token_id": 0, "bos_token_id": 1, "eos_token_id": 2, "cls_token_id": 1, "sep_token_id": 2}
GROUPED = {"num_key_value_heads": HEADS, "head_dim": 8, **LONG}
SLIDING = {"sliding_window": 16, **GROUPED}
EXPERTS = {"num_local_experts": 4, "num_experts": 4, "num_experts_per_tok": 2, "moe_intermediate_size": 16, **GROUPED}
FURTHER_DECODERS: dict[str, dict[str, Any]] = {
    **dict.fromkeys(("biogpt", "falcon", "gpt_neox", "persimmon", "phi"), LONG),
    **dict.fromkeys((
        "arcee", "diffllama", "doge", "gemma", "glm", "glm4", "helium", "mistral", "nemotron", "olmo", "olmo2",
        "phi3", "qwen3", "seed_oss", "smollm3", "stablelm", "starcoder2",
    ), GROUPED),
    **dict.fromkeys(("exaone4", "ministral", "olmo3"), SLIDING),
    **dict.fromkeys(("gpt_oss", "mixtral", "qwen3_moe"), EXPERTS),
    "bloom": {"hidden_size": WIDTH, "n_layer": LAYERS, "n_head": HEADS},
    "ctrl": {"n_embd": WIDTH, "n_layer": LAYERS, "n_head": HEADS, "dff": 48, "n_positions": 256},
    "deepseek_v3": {"q_lora_rank": 16, "kv_lora_rank": 16, "qk_rope_head_dim": 8, "qk_nope_head_dim": 8,
        "v_head_dim": 8, "first_k_dense_replace": 1, "n_routed_experts": 4, "n_group": 1, "topk_group": 1,
        "num_experts_per_tok": 2, "moe_intermediate_size": 16, "num_key_value_heads": HEADS, **LONG,
    },
    "gemma2": {"query_pre_attn_scalar": 8, "sliding_window": 16, **GROUPED},
    "gemma3_text": {"query_pre_attn_scalar": 8, "sliding_window": 16, **GROUPED},
    "gpt_bigcode": {"n_embd": WIDTH, "n_layer": LAYERS, "n_head": HEADS, "n_positions": 256},
    "gpt_neo": {"hidden_size": WIDTH, "num_layers": 2, "num_heads": HEADS, "window_size": 8,
        "attention_types": [[["global", "local"], 1]], "max_position_embeddings": 256,
    },
    "gptj": {"n_embd": WIDTH, "n_layer": LAYERS, "n_head": HEADS, "rotary_dim": 4, "n_positions": 256},
    "jamba": {"attn_layer_period": 3, "attn_layer_offset": 1, "mamba_d_state": 4, "use_mamba_kernels": False,
        **EXPERTS,
    },
    "minicpm3": {"q_lora_rank": 16, "kv_lora_rank": 16, "qk_rope_head_dim": 8, "qk_nope_head_dim": 8, "v_head_dim": 8,
        "num_key_value_heads": HEADS, **LONG,
    },
    "modernbert-decoder": {"local_attention": 8, "global_attn_every_n_layers": 2, **LONG, **ROLES},
    "mpt": {"d_model": WIDTH, "n_heads": HEADS, "n_layers": LAYERS, "max_seq_len": 256},
    "openai-gpt": {"n_embd": WIDTH, "n_layer": LAYERS, "n_head": HEADS, "n_positions": 256},
    "opt": {"ffn_dim": 48, "word_embed_proj_dim": WIDTH, **LONG},
    "qwen2_moe": {"shared_expert_intermediate_size": 16, **EXPERTS},
}  # fmt: skip
FURTHER = [*FURTHER_ENCODERS, *FURTHER_DECODERS]
VARIANTS: dict[str, tuple[str, dict[str, Any]]] = {  # unusual configurations of families above
    "roformer-rotary-value": ("roformer", {"rotary_value": True}),
    "falcon-alibi": ("falcon", {"alibi": True}),
    "big_bird-sparse": ("big_bird", {"attention_type": "block_sparse", "block_size": 4, "num_random_blocks": 1}),
    "xmod-no-language": ("xmod", {"default_language": None}),
    "gte-segments": ("gte", {"type_vocab_size": 1}),
}
WITHOUT_SEGMENTS = {"roberta", "xlm-roberta", "camembert", "distilbert", "mpnet", "longformer", "bart", "t5"} | {
    *("data2vec-text", "roberta-prelayernorm", "xlm-roberta-xl", "xmod", "ibert", "esm", "esmc", "jina_embeddings_v3"),
    *("canine", "perceiver", "reformer", "xlm", "flaubert", "luke", "ultrabert", "mra", "yoso"),
}


def save_family(family: str, folder: Path, seed: int = 0, *, without_dropout: bool = False) -> Path:
    """Save a randomly initialised classifier, with a tokenizer like those published for its family."""
    name, changes = VARIANTS.get(family, (family, {}))
    encodes = name in {**ENCODERS, **FURTHER_ENCODERS}
    tokenizer = save_tokenizer(folder) if encodes else save_decoder_tokenizer(name, folder)
    if name in WITHOUT_SEGMENTS:  # like the published tokenizers of these families
        roles = {f"{role}_token": getattr(tokenizer, f"{role}_token") for role in ("unk", "pad", "cls", "sep", "mask")}
        names = ["input_ids", "attention_mask"]
        tokenizer = PreTrainedTokenizerFast(tokenizer_object=tokenizer._tokenizer, model_input_names=names, **roles)
        tokenizer.save_pretrained(folder)
    ids = {f"{role}_token_id": getattr(tokenizer, f"{role}_token_id") for role in ("bos", "eos", "pad", "cls", "sep")}
    if encodes:
        ids |= {"bos_token_id": tokenizer.cls_token_id, "eos_token_id": tokenizer.sep_token_id}
    if name == "t5":
        ids["decoder_start_token_id"] = tokenizer.pad_token_id
    sizes = {**ENCODERS, **DECODERS, **FURTHER_ENCODERS, **FURTHER_DECODERS}[name] | changes
    config = AutoConfig.for_model(name, vocab_size=len(tokenizer), num_labels=2, **{**ids, **sizes})
    for setting, rate in config.to_dict().items():
        if isinstance(rate, float) and "drop" in setting and without_dropout:
            setattr(config, setting, 0.0)
    torch.manual_seed(seed)
    model = AutoModelForSequenceClassification.from_config(config)
    with torch.no_grad():
        for parameter in model.parameters():
            parameter.add_(0.2 * torch.randn_like(parameter))  # large enough that maps differ and heads matter
    model.save_pretrained(folder)
    return folder


def save_decoder_tokenizer(family: str, folder: Path) -> PreTrainedTokenizerFast:
    """Save a tokenizer like those of GPT-2, Llama and Qwen2: without a padding token, [CLS] or [SEP]."""
    if family == "qwen2":  # its class replaces everything else in tokenizer.json
        words = [f" {word}" for word in vocabulary() if word.isalpha()]
        made = Qwen2Tokenizer(**byte_pairs(["<|endoftext|>"], words, size=2000))
        made.save_pretrained(folder)
        return made
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
