"""Checks that a tokenizer encodes texts in the same way as when its model was trained."""

import warnings
from typing import Any

from bertsecrets.errors import UserError
from bertsecrets.models.configuration import ModelWarning
from bertsecrets.models.encoding import lower_cases
from bertsecrets.models.families import SEGMENTS

# Names of the tokens before a text and between two texts, for tokenizers that do not declare such tokens.
START_TOKENS, SEPARATOR_TOKENS = ("[CLS]", "<s>"), ("[SEP]", "</s>")
CAPITALISED_SHARE = 0.01  # a vocabulary with at least this share of capitalised words is cased


def match_tokenizer(tokenizer: Any, config: Any, path: str) -> None:
    """Check that a tokenizer fits a model.

    If the model distinguishes the two texts of a pair, also make the tokenizer return segment ids. Some tokenizers
    return segment ids only on request, and transformers 5 does not request them.
    """
    size, largest = getattr(config, "vocab_size", None), max(tokenizer.get_vocab().values())
    if isinstance(size, int) and largest >= size:
        raise UserError(
            f"{path} has embeddings for {size} tokens, but the vocabulary of its tokenizer has {len(tokenizer)} "
            "tokens: use the tokenizer and the config.json that belong to these weights"
        )
    _ask_for_segments(tokenizer, getattr(config, "type_vocab_size", SEGMENTS.get(config.model_type)))
    if not _generates(config.model_type):
        _check_special_tokens(tokenizer, path)
    words = [token.lstrip("Ġ▁") for token in tokenizer.get_vocab()]
    capitalised = sum(word[:1].isupper() and word[1:].islower() for word in words)
    if capitalised > CAPITALISED_SHARE * len(words) and lower_cases(tokenizer):
        warnings.warn(
            f"{path}: {capitalised} words of its vocabulary are capitalised, but its tokenizer lower-cases texts: set "
            "do_lower_case to false in tokenizer_config.json if the model is cased",
            ModelWarning,
            stacklevel=2,
        )


def _ask_for_segments(tokenizer: Any, segments: int | None) -> None:
    """Make a tokenizer return segment ids if both the tokenizer and the model distinguish the texts of a pair.

    If the tokenizer's files set `model_input_names`, this setting is not changed.
    """
    names = tokenizer.model_input_names
    last = max(tokenizer("A", "B", return_token_type_ids=True)["token_type_ids"])
    if "token_type_ids" in names:
        if segments and last >= segments:
            raise UserError(
                f"the tokenizer numbers the segments of a pair from 0 to {last}, but type_vocab_size in config.json is "
                f"only {segments}: remove token_type_ids from model_input_names in tokenizer_config.json"
            )
    elif last and segments and last < segments and "model_input_names" not in tokenizer.init_kwargs:
        tokenizer.model_input_names = tokenizer.init_kwargs["model_input_names"] = [*names, "token_type_ids"]


def _generates(model_type: str) -> bool:
    """Return whether models of this type are causal language models, whose inputs need no special tokens."""
    from transformers.models.auto import modeling_auto as auto

    return model_type in auto.MODEL_FOR_CAUSAL_LM_MAPPING_NAMES.keys() - auto.MODEL_FOR_MASKED_LM_MAPPING_NAMES.keys()


def _check_special_tokens(tokenizer: Any, path: str) -> None:
    pair = tokenizer("A few words.", "And 2 more!")
    ids, texts = pair["input_ids"], pair.sequence_ids(0)
    end = len(texts) - texts[::-1].index(0)
    vocabulary = tokenizer.get_vocab()
    for token, names, places in (
        (tokenizer.cls_token, START_TOKENS, ids),
        (tokenizer.sep_token, SEPARATOR_TOKENS, ids[end : texts.index(1)]),
    ):
        token = token or next((name for name in names if name in vocabulary), None)
        if token is not None and vocabulary.get(token) not in places:
            raise UserError(
                f"{path}: its tokenizer has the token {token}, but does not add it to texts: use the tokenizer that "
                "the model was trained with (post_processor in tokenizer.json)"
            )
