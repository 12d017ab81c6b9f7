"""Tiny classifiers of every family that the ablation engine supports, and inputs for them."""

import numpy as np
import torch
from transformers import AutoConfig, AutoModelForSequenceClassification
from zoo import DECODERS, ENCODERS

from bertsecrets.models.encoding import Encoded
from bertsecrets.models.opening import OpenModel

OUTPUTS = {"num_labels": 3, "vocab_size": 100, "max_position_embeddings": 64}
ROLES = {"pad_token_id": 0, "bos_token_id": 1, "eos_token_id": 1, "cls_token_id": 1, "sep_token_id": 1}
SIZES = ENCODERS | DECODERS
FAMILIES = ("bert", "roberta", "ernie", "electra", "albert", "distilbert", "gpt2", "modernbert")
# Families that do not use transformers' attention interface, or use it differently from BERT.
EAGER = ("mpnet", "deberta", "deberta-v2", "big_bird", "roformer", "rembert", "mobilebert")


def tiny(family: str, seed: int = 0, **changes) -> OpenModel:
    """Return a randomly initialised classifier with weights large enough for every head to matter."""
    torch.manual_seed(seed)
    config = AutoConfig.for_model(family, **{**SIZES[family], **OUTPUTS, **ROLES, **changes})
    model = AutoModelForSequenceClassification.from_config(config).eval()
    normed = family != "mobilebert"  # MobileBERT has no norms, so its vectors stay as small as the embeddings
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
