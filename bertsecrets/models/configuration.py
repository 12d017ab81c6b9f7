"""Functions that load a model's configuration and tokenizer. This module does not import torch."""

import math
import os
import re
import warnings
from typing import Any

from tokenizers import Tokenizer
from tokenizers.processors import Sequence, TemplateProcessing

from bertsecrets.errors import RunError, UserError, first_line, shortened
from bertsecrets.models.families import own_family
from bertsecrets.models.locations import ModelRef, check_files
from bertsecrets.store.files import read_json_object

os.environ.setdefault("DISABLE_SAFETENSORS_CONVERSION", "1")  # pickled weights are rejected, never silently converted

# Largest plausible sizes in a configuration, about ten times those of any published model.
SIZE_LIMITS = {
    "num_hidden_layers": 2000,
    "num_attention_heads": 2000,
    "hidden_size": 2**18,
    "intermediate_size": 2**21,
    "vocab_size": 2**23,
    "max_position_embeddings": 2**27,
    "type_vocab_size": 2**16,
    "num_labels": 2**20,
}
# A pair of texts with capitals, accents, digits and punctuation.
PROBE_TEXTS = ("Zoë SOLD 23 boats.", "Didn't she?")
# Settings in tokenizer_config.json, and the settings of BERT's normalizer that they override.
NORMALIZER_SETTINGS = {
    "do_lower_case": "lowercase",
    "strip_accents": "strip_accents",
    "tokenize_chinese_chars": "handle_chinese_chars",
}
OPTIONAL_SIZES, ABSENT_SIZES = ("max_position_embeddings", "type_vocab_size"), (0, -1)  # absent in some architectures


class ModelWarning(UserWarning):
    """Warning that an opened model or tokenizer may not match the description in its files."""


def load(ref: ModelRef, cls: Any, **options: Any) -> Any:
    """Call `cls.from_pretrained` with local files only, and without running remote code."""
    from safetensors import SafetensorError

    folder = ref.folder(weights=cls.__name__ not in ("AutoConfig", "AutoTokenizer"))
    check_files(folder)
    try:
        return cls.from_pretrained(folder, local_files_only=True, trust_remote_code=False, **options)
    except SafetensorError as error:
        raise RunError(f"{ref.path}: model.safetensors is damaged ({error}): download or save it again") from error
    except (UserError, MemoryError):
        raise
    except KeyError as error:
        raise UserError(f"{ref.path} cannot be opened as a model: transformers does not know {error}") from error
    except Exception as error:  # tokenizers raises bare exceptions, and transformers may raise arithmetic errors
        if "trust_remote_code" in str(error):
            raise _needs_code(ref) from error
        file = " (config.json)" if cls.__name__ == "AutoConfig" else ""
        quantised = isinstance(error, ImportError) and hasattr(options.get("config"), "quantization_config")
        advice = " (quantization_config in config.json): use the model that is not quantised" if quantised else ""
        raise UserError(f"{ref.path} cannot be opened as a model{file}: {first_line(error)}{advice}") from error


def _needs_code(ref: ModelRef, why: str = "") -> UserError:
    way = "register the model's classes as a Family, or use another model"
    return UserError(f"{ref.path} needs code from its repository{why}, which this suite never runs: {way}")


def open_config(ref: ModelRef) -> Any:
    """Return a model's configuration, which is a quick check that the model is available."""
    import transformers
    from transformers import AutoConfig

    transformers.logging.set_verbosity_error()  # relevant warnings are replaced by our own checks and messages
    transformers.logging.disable_progress_bar()

    own_family(ref.model_type())
    names = read_json_object(ref.folder(weights=False) / "config.json").get("id2label")
    if names is not None and not isinstance(names, dict):
        raise UserError(
            f"{ref.path}: id2label in config.json is {shortened(repr(names), 50)}, but must map the number of each "
            "class to its name"
        )
    config = load(ref, AutoConfig)
    _check_sizes(config, ref)
    if own_family(config.model_type) is None:
        _check_class(config, ref)
    config.return_dict = True
    if getattr(config, "chunk_size_feed_forward", 0):
        config.chunk_size_feed_forward = 0  # chunking only saves memory, and rejects inputs of most lengths
    if getattr(config, "attention_type", None) == "block_sparse":
        config.attention_type = "original_full"  # BigBird switches to this permanently at its first short input
    return config


def _check_class(config: Any, ref: ModelRef) -> None:
    """Reject a model that needs code or settings that transformers lacks. Warn if its class is unknown."""
    import transformers

    if getattr(config, "auto_map", None):
        raise _needs_code(ref, " (auto_map in config.json)")
    if getattr(config, "pruned_heads", None):
        raise UserError(
            f"{ref.path}: some heads were removed (pruned_heads in config.json), and transformers 5 cannot open models "
            "with fewer heads: use the model from before pruning"
        )
    positions = getattr(config, "position_embedding_type", None) or "absolute"
    if positions != "absolute" and not hasattr(type(config)(), "position_embedding_type"):
        raise UserError(
            f"{ref.path}: position_embedding_type in config.json is {shortened(repr(positions), 50)}, but "
            f"{config.model_type} in transformers {transformers.__version__} does not support this: use another model"
        )
    known = {*transformers.__all__}  # type: ignore[attr-defined]
    names = getattr(config, "architectures", None)
    names = names if isinstance(names, list | tuple) else ()
    unknown = next((name for name in names if re.sub("^(TF|Flax)", "", str(name)) not in known), None)
    if unknown is not None:
        warnings.warn(
            f"{ref.path}: config.json names the class {unknown}, which transformers does not know, so the model is "
            f"opened as {config.model_type}",
            ModelWarning,
            stacklevel=2,
        )


def _check_sizes(config: Any, ref: ModelRef) -> None:
    """Check that the sizes in a configuration are plausible, before anything of these sizes is allocated."""
    for name, most in SIZE_LIMITS.items():
        size = getattr(config, name, None)
        if size is None:
            continue
        whole = isinstance(size, int) and not isinstance(size, bool)
        if not whole or not (1 <= size <= most or (size in ABSENT_SIZES and name in OPTIONAL_SIZES)):
            raise UserError(
                f"{ref.path}: {name} in config.json is {shortened(repr(size), 50)}, "
                f"but must be a whole number from 1 to {most}"
            )
    for name, number in vars(config).items():
        if name.endswith("eps") and isinstance(number, float) and not 0 <= number < math.inf:
            raise UserError(f"{ref.path}: {name} in config.json is {number}, but must be finite and not negative")


def open_tokenizer(ref: ModelRef) -> Any:
    """Return a model's fast tokenizer."""
    from transformers import AutoTokenizer

    if ref.local and ref.tokenizer() is None:  # transformers would create an empty tokenizer
        raise UserError(f"{ref.path} holds no tokenizer: save the tokenizer in the same folder")
    _check_tokenizer_class(ref)
    try:
        tokenizer = load(ref, AutoTokenizer)
    except UserError as error:
        if (ref.folder(weights=False) / "tokenizer.json").is_file():
            raise
        way = "save a fast tokenizer together with the model"
        raise UserError(
            f"{ref.path} holds no tokenizer.json, and its other files do not define a fast tokenizer: {way}"
        ) from error
    if getattr(getattr(getattr(tokenizer, "backend_tokenizer", None), "model", None), "dropout", None):
        raise UserError(f"{ref.path}: its tokenizer splits words at random: set dropout to null in tokenizer.json")
    longest = tokenizer.model_max_length
    if isinstance(longest, bool) or not isinstance(longest, int | float) or not longest >= 1:
        raise UserError(
            f"{ref.path}: model_max_length in tokenizer_config.json is {shortened(repr(longest), 50)}, "
            "but must be a number of tokens"
        )
    if len(tokenizer) <= len({*tokenizer.all_special_ids}):
        raise UserError(
            f"{ref.path}: the tokenizer's vocabulary contains only special tokens, so every word would be encoded as "
            f"{tokenizer.unk_token}: save the tokenizer again with its full vocabulary"
        )
    _compare_with_file(tokenizer, ref)
    complete_tokenizer(tokenizer)
    try:
        tokenizer("A few words.", "And 2 more!")
    except Exception as error:  # tokenizers raises bare exceptions, such as for a vocabulary without the unknown token
        raise UserError(f"{ref.path}: its tokenizer fails on a short text: {first_line(error)}") from error
    if not tokenizer.is_fast:
        raise UserError(f"{ref.name} has no fast tokenizer, which is needed to align words: save one as tokenizer.json")
    return tokenizer


def _check_tokenizer_class(ref: ModelRef) -> None:
    """Reject a tokenizer that needs its own code, because transformers would open the files with another class."""
    from transformers.models.auto.tokenization_auto import tokenizer_class_from_name

    for file in ("tokenizer_config.json", "config.json"):
        settings = read_json_object(ref.folder(weights=False) / file)
        if "AutoTokenizer" in str(settings.get("auto_map")):
            raise _needs_code(ref, f" (auto_map in {file})")
        name = settings.get("tokenizer_class")
        if name is not None and not any(map(tokenizer_class_from_name, (str(name), f"{name}Fast"))):
            raise _needs_code(ref, f" (tokenizer_class {name} in {file})")


def _compare_with_file(tokenizer: Any, ref: ModelRef) -> None:
    """Warn if a loaded tokenizer encodes texts differently from the tokenizer in tokenizer.json.

    Many tokenizer classes of transformers override parts of tokenizer.json. A difference that is explained by the
    normalizer settings in tokenizer_config.json causes no warning.
    """
    folder = ref.folder(weights=False)
    try:
        own = Tokenizer.from_file(str(folder / "tokenizer.json"))
        read = own.encode(*PROBE_TEXTS).tokens
        encoded = tokenizer.backend_tokenizer.encode(*PROBE_TEXTS).tokens
    except Exception:  # the file is missing or only readable by transformers; tokenizers raises bare exceptions
        return
    if read != encoded and own.normalizer is not None:
        settings = read_json_object(folder / "tokenizer_config.json")
        for name, part in NORMALIZER_SETTINGS.items():
            if name in settings and hasattr(own.normalizer, part):
                setattr(own.normalizer, part, settings[name])
        read = own.encode(*PROBE_TEXTS).tokens
    if read != encoded:
        warnings.warn(
            f"{ref.path}: transformers splits a test text into {' '.join(encoded)!r}, but tokenizer.json splits it "
            f"into {' '.join(read)!r}: if tokenizer.json is right, correct tokenizer_config.json (transformers follows "
            "tokenizer.json if the tokenizer_class is PreTrainedTokenizerFast)",
            ModelWarning,
            stacklevel=2,
        )


def complete_tokenizer(tokenizer: Any) -> Any:
    """Add a padding token and a separator to a tokenizer that has none, and return the tokenizer."""
    if tokenizer.pad_token_id is None:  # GPT-2, Llama: padding is masked, so any token will do
        tokenizer.pad_token = tokenizer.eos_token or tokenizer.unk_token
    _separate_texts(tokenizer)
    return tokenizer


def _separate_texts(tokenizer: Any) -> None:
    """If a fast tokenizer adds no special tokens, make it insert the end-of-text token before and between texts.

    GPT-2 was trained with `<|endoftext|>` in these positions. Without a token between them, the two texts of a pair
    would run together.
    """
    end, backend = tokenizer.eos_token, getattr(tokenizer, "backend_tokenizer", None)
    if backend is None or end is None or tokenizer.num_special_tokens_to_add(True):
        return
    template = TemplateProcessing(f"{end} $A", f"{end} $A {end} $B:1", [(end, tokenizer.eos_token_id)])
    own = backend.post_processor
    backend.post_processor = template if own is None else Sequence([own, template])


def shape_of(ref: ModelRef) -> tuple[int, int] | None:
    """Return a model's number of layers and its number of heads per layer, or None if they cannot be determined."""
    try:
        config = open_config(ref)
    except UserError:
        return None
    layers, heads = (getattr(config, name, None) for name in ("num_hidden_layers", "num_attention_heads"))
    return (layers, heads) if isinstance(layers, int) and isinstance(heads, int) else None
