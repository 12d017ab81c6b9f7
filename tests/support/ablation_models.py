"""Tiny classifiers of every family that the ablation engine supports, and inputs for them."""

import numpy as np
import torch

from bertsecrets.models.encoding import Encoded
from bertsecrets.models.opening import OpenModel

OUTPUTS = {"num_labels": 3, "pad_token_id": 0, "vocab_size": 100}
ENDS = {"bos_token_id": 1, "eos_token_id": 1}
SIZES = {"hidden_size": 32, "num_hidden_layers": 3, "num_attention_heads": 4, "intermediate_size": 48}
DEEP = {"max_position_embeddings": 64, **SIZES, **OUTPUTS}
SMALL_EMBEDDINGS = {"embedding_size": 16, **DEEP}
FAMILIES = {
    **dict.fromkeys(("Bert", "Roberta", "Ernie"), DEEP),
    **dict.fromkeys(("Electra", "Albert"), SMALL_EMBEDDINGS),
    "DistilBert": {"dim": 32, "n_layers": 3, "n_heads": 4, "hidden_dim": 48, "max_position_embeddings": 64, **OUTPUTS},
    "GPT2": {"n_embd": 32, "n_layer": 3, "n_head": 4, "n_positions": 64, **ENDS, **OUTPUTS},
    "ModernBert": {"cls_token_id": 1, "sep_token_id": 2, "bos_token_id": 1, "eos_token_id": 2, **DEEP},
}
RELATIVE = {"relative_attention": True, "pos_att_type": ["c2p", "p2c"], "max_relative_positions": 16, **DEEP}
EAGER = {  # families that do not use transformers' attention interface, or use it differently from BERT
    "MPNet": DEEP,
    "Deberta": {"position_biased_input": False, **RELATIVE},
    "DebertaV2": {"position_buckets": 8, "conv_kernel_size": 3, "norm_rel_ebd": "layer_norm", **RELATIVE},
    "BigBird": DEEP,
    "RoFormer": SMALL_EMBEDDINGS,
    "RemBert": {"input_embedding_size": 16, "output_embedding_size": 16, **DEEP},
    "MobileBert": {"embedding_size": 16, "intra_bottleneck_size": 16, **DEEP},
}


def tiny(family: str, seed: int = 0, **changes) -> OpenModel:
    """Return a randomly initialised classifier with weights large enough for every head to matter."""
    import transformers

    torch.manual_seed(seed)
    config = getattr(transformers, f"{family}Config")(**{**{**FAMILIES, **EAGER}.get(family, DEEP), **changes})
    model = getattr(transformers, f"{family}ForSequenceClassification")(config).eval()
    normed = family != "MobileBert"  # MobileBERT has no norms, so its vectors stay as small as the embeddings
    with torch.no_grad():
        for name, weight in model.named_parameters():
            if weight.dim() == 2 and not (normed and "embed" in name):
                weight.mul_(8 if normed else 10)
    return OpenModel(model, None, f"tiny {family} {seed}")


def tokens(lengths=(5, 9, 5, 3, 12), segments=False, seed=0) -> Encoded:
    """Return examples of the given lengths with random ordinary tokens."""
    drawn = np.random.default_rng(seed)
    ids = [drawn.integers(5, 100, length).tolist() for length in lengths]
    kinds = [[0] * (length // 2) + [1] * (length - length // 2) for length in lengths] if segments else None
    return Encoded(ids, kinds, 0)
