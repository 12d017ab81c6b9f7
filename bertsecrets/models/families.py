"""All knowledge about particular models and architectures, in one table for each question.

The rest of what the suite needs of a model (its layers, its heads, the modules that hold attention weights) is found
by observing a tiny forward pass, so a new family usually needs no entry here.
"""

# Well-known models, pinned to a commit of their hub repository.
PINNED = {
    "google-bert/bert-base-uncased": "86b5e0934494bd15c9632b12f734a8a67f723594",
    "distilbert/distilbert-base-uncased": "12040accade4e8a0f71eabdb258fecc2e7e948be",
    "FacebookAI/roberta-base": "e2da8e2f811d1448a5b465c236feacd80ffbac7b",
    "openai-community/gpt2": "607a30d783dfa663caf39e06633721c8d4cfcd7e",
}
ALIASES = {name.split("/")[1]: name for name in PINNED}  # the short names that users type

# Model types whose position numbers start after the padding id, so that they have fewer positions than they list.
POSITIONS_AFTER_PADDING = ("roberta", "xlm-roberta", "camembert", "mpnet")

# Terms that some families add to the product of query and key, by the names of their arguments in transformers.
LOGIT_TERMS = ("position_bias", "s_aux", "alibi")

# Families whose heads can be disabled exactly, as listed in messages.
ABLATABLE = "BERT, RoBERTa, ELECTRA, ALBERT, DistilBERT, GPT-2, ModernBERT"

# The parts of a layer that is built like BERT's, by each family's names for them, in this order: query, key, value,
# output, norm after attention, first linear part of the feed-forward network, activation, second linear part, norm.
BERT_LAYOUTS = {
    "BERT, RoBERTa, ELECTRA, ERNIE": (
        "attention.self.query", "attention.self.key", "attention.self.value", "attention.output.dense",
        "attention.output.LayerNorm", "intermediate.dense", "intermediate.intermediate_act_fn", "output.dense",
        "output.LayerNorm",
    ),
    "DistilBERT": (
        "attention.q_lin", "attention.k_lin", "attention.v_lin", "attention.out_lin", "sa_layer_norm", "ffn.lin1",
        "ffn.activation", "ffn.lin2", "output_layer_norm",
    ),
    "ALBERT": (
        "attention.query", "attention.key", "attention.value", "attention.dense", "attention.LayerNorm", "ffn",
        "activation", "ffn_output", "full_layer_layer_norm",
    ),
}  # fmt: skip
ACTIVATION = 6  # place of the activation, the only part that is neither a Linear nor a LayerNorm
