"""Opening of models: as an encoder without a classifier, with a new classifier, or as a fine-tuned checkpoint.

Knowledge about particular architectures is in `families.py`. The rest of what the suite needs of a model (its layers,
its heads, the modules that hold attention weights) is found by observing a tiny forward pass.
"""

import os
import re
from collections.abc import Iterable
from dataclasses import dataclass
from functools import partial
from pathlib import Path
from typing import Any

import torch
from tokenizers.processors import Sequence, TemplateProcessing
from torch import nn

from bertsecrets.errors import NotApplicableError, RunError, UserError, first_line, shortened
from bertsecrets.models.families import NO_ANSWERS, READS_NEIGHBOURS, counts_after_padding, own_family, why_no_maps
from bertsecrets.models.last_token import LAST, SETTING, read_last_token
from bertsecrets.models.locations import ModelRef, check_folder
from bertsecrets.models.memory import MORE_MEMORY, check_memory, memory_errors_in_words
from bertsecrets.texts.tasks import Task
from bertsecrets.types import Initialisation

os.environ.setdefault("DISABLE_SAFETENSORS_CONVERSION", "1")  # pickled weights are refused, never silently converted

# Sizes in a configuration with the largest that are plausible, each some ten times that of any published model.
LARGEST = {
    "num_hidden_layers": 2000,
    "num_attention_heads": 2000,
    "hidden_size": 2**18,
    "intermediate_size": 2**21,
    "vocab_size": 2**23,
    "max_position_embeddings": 2**27,
    "type_vocab_size": 2**16,
    "num_labels": 2**20,
}
UNBOUNDED, NONE = ("max_position_embeddings", "type_vocab_size"), (0, -1)  # some architectures do without


@dataclass(frozen=True)
class OpenModel:
    """An encoder or sequence classifier, ready to run: the model (in eval mode) and its tokenizer.

    `fingerprint` identifies the weights: a digest of local files, or the hub name and commit.
    """

    model: Any
    tokenizer: Any
    fingerprint: str

    def fit(self, tokens: int) -> int:
        """Return a number of tokens, reduced to the number of positions that the model has."""
        config = self.model.config
        positions = getattr(config, "max_position_embeddings", None) or tokens
        positions = positions if positions > 0 else tokens  # -1 stands for any number (XLNet)
        if counts_after_padding(config.model_type):
            positions -= config.pad_token_id + 1
        return int(min(tokens, positions, self.tokenizer.model_max_length))

    @property
    def layers(self) -> int:
        """Number of attention layers."""
        return attention_shape(self.model)[0]

    @property
    def heads(self) -> int:
        """Number of attention heads per layer."""
        return attention_shape(self.model)[1]

    def to(self, device: torch.device | str) -> "OpenModel":
        """Move the model to a device, in place, and return it."""
        self.model.to(device)
        return self


def _load(ref: ModelRef, cls: Any, **options: Any) -> Any:
    """Return what `cls.from_pretrained` returns, without remote code and from local files alone.

    Raises:
        UserError: it fails, for whatever reason.
    """
    from safetensors import SafetensorError

    folder = ref.folder(weights=cls.__name__ not in ("AutoConfig", "AutoTokenizer"))
    try:
        return cls.from_pretrained(folder, local_files_only=True, trust_remote_code=False, **options)
    except SafetensorError as error:
        raise RunError(f"{ref.path}: model.safetensors is damaged ({error}): download or save it again") from error
    except (UserError, MemoryError):
        raise
    except KeyError as error:
        raise UserError(f"{ref.path} cannot be opened as a model: transformers does not know {error}") from error
    except Exception as error:  # tokenizers raises bare ones, transformers those of any arithmetic on a config
        raise UserError(f"{ref.path} cannot be opened as a model: {first_line(error)}") from error


def open_config(ref: ModelRef) -> Any:
    """Return a model's configuration, which is also a quick way to see whether the model is available.

    Raises:
        UserError: it is not available.
    """
    import transformers
    from transformers import AutoConfig

    transformers.logging.set_verbosity_error()  # what matters in its warnings is checked here and reported in one line
    transformers.logging.disable_progress_bar()

    own_family(ref.model_type())
    config = _load(ref, AutoConfig)
    _check_sizes(config, ref)
    config.return_dict = True
    if getattr(config, "chunk_size_feed_forward", 0):
        config.chunk_size_feed_forward = 0  # saves memory, changes no result, and refuses most lengths
    return config


def _check_sizes(config: Any, ref: ModelRef) -> None:
    """Make sure that a configuration describes a model of possible size, before anything of that size is made.

    Raises:
        UserError: a size is not a whole number, or not one that any model has.
    """
    for name, most in LARGEST.items():
        size = getattr(config, name, None)
        if size is None:
            continue
        whole = isinstance(size, int) and not isinstance(size, bool)
        if not whole or not (1 <= size <= most or (size in NONE and name in UNBOUNDED)):
            raise UserError(
                f"{ref.path}: {name} in config.json is {shortened(repr(size), 50)}, not a whole number from 1 to {most}"
            )


def open_tokenizer(ref: ModelRef) -> Any:
    """Return a model's own fast tokenizer.

    Raises:
        UserError: it is not available, or only in the slow form.
    """
    from transformers import AutoTokenizer

    if ref.local and ref.tokenizer() is None:  # transformers would make an empty one
        raise UserError(f"{ref.path} holds no tokenizer: save one beside the weights")
    tokenizer = _load(ref, AutoTokenizer)
    longest = tokenizer.model_max_length
    if isinstance(longest, bool) or not isinstance(longest, int | float) or not longest >= 1:
        raise UserError(
            f"{ref.path}: model_max_length in tokenizer_config.json is {shortened(repr(longest), 50)}, "
            "not a number of tokens"
        )
    if tokenizer.pad_token_id is None:  # GPT-2, Llama: padding is masked, so that any token will do
        tokenizer.pad_token = tokenizer.eos_token or tokenizer.unk_token
    _separate_texts(tokenizer)
    try:
        tokenizer("A few words.", "And 2 more!")
    except Exception as error:  # tokenizers raises bare ones, such as for a vocabulary without the unknown token
        raise UserError(f"{ref.path}: its tokenizer fails on a short text: {first_line(error)}") from error
    if not tokenizer.is_fast:
        raise UserError(f"{ref.name} has no fast tokenizer, which is needed to align words: save one as tokenizer.json")
    return tokenizer


def _separate_texts(tokenizer: Any) -> None:
    """Let a fast tokenizer that adds nothing to its texts put the token that ends a text before and between them.

    So `<|endoftext|>` stands in GPT-2's inputs, which it has seen there in training; two texts would otherwise run on.
    """
    end, backend = tokenizer.eos_token, getattr(tokenizer, "backend_tokenizer", None)
    if backend is None or end is None or tokenizer.num_special_tokens_to_add(True):
        return
    template = TemplateProcessing(f"{end} $A", f"{end} $A {end} $B:1", [(end, tokenizer.eos_token_id)])
    own = backend.post_processor
    backend.post_processor = template if own is None else Sequence([own, template])


def open_classifier(
    ref: ModelRef,
    task: Task,
    initialisation: Initialisation = "pretrained",
    seed: int = 1,
    *,
    attention: str = "eager",
) -> OpenModel:
    """Return a model with a new classifier for `task`, before any training (K19 section 3, table 1).

    The classifier's weights, with `random` all weights, and with `last-two-new` those of the last two layers are drawn
    with this seed in the way that the architecture initialises them (from a normal distribution with the config's
    `initializer_range`).

    Args:
        attention: the implementation, `eager` or `sdpa`; only `eager` exposes attention weights.

    Raises:
        NotApplicableError: the model has no last two layers, or cannot classify from [SEP].
        UserError: the model is not available, has pickled weights, or cannot classify sequences.
    """
    from transformers import AutoModelForSequenceClassification

    config = open_config(ref)
    config.num_labels = task.outputs
    config.problem_type = "regression" if task.regression else "single_label_classification"
    if not task.regression:
        config.id2label = dict(enumerate(task.labels))
        config.label2id = {label: i for i, label in enumerate(task.labels)}
    tokenizer = open_tokenizer(ref)
    _prepare_to_classify(config, tokenizer)
    torch.manual_seed(seed)
    new_model = partial(
        AutoModelForSequenceClassification.from_config,
        config,
        attn_implementation=_kernel(config, attention),
        dtype=torch.float32,
    )
    if initialisation == "random":
        with memory_errors_in_words(f"opening {ref.name}", None):
            model = new_model()
    else:
        model, drawn = _load_classifier(ref, config, attention)  # a saved classifier may have another size
        encoder = f"{model.base_model_prefix}."
        _refuse_drawn(ref.path, [key for key in drawn if key.startswith(encoder) and ".pooler." not in key])
        torch.manual_seed(seed)
        head = [key for key in model.state_dict() if not key.startswith(encoder)]
        if not drawn.issuperset(head):  # the folder has a classifier of its own, which the new one replaces
            weights = new_model().state_dict()
            model.load_state_dict({key: weights[key] for key in head}, strict=False)
        if initialisation == "last-two-new":
            torch.manual_seed(seed)
            for layer, drawn_layer in zip(last_layers(model), last_layers(new_model()), strict=True):
                layer.load_state_dict(drawn_layer.state_dict())
        if initialisation == "from-sep":
            read_last_token(model, tokenizer, last_layers(model, 1)[0])
    return OpenModel(model.eval(), tokenizer, ref.identity())


def _kernel(config: Any, attention: str) -> str:
    """Return the wanted attention implementation, or `eager` if the architecture does not support `sdpa`."""
    from transformers import MODEL_FOR_SEQUENCE_CLASSIFICATION_MAPPING as CLASSIFIERS

    known = CLASSIFIERS.get(type(config), None)
    return "eager" if attention == "sdpa" and not getattr(known, "_supports_sdpa", True) else attention


def _prepare_to_classify(config: Any, tokenizer: Any) -> None:
    """Let a model without a padding token pad as its tokenizer does; it finds an input's last token by it.

    Raises:
        NotApplicableError: the architecture cannot classify padded inputs.
    """
    if (why := NO_ANSWERS.get(config.model_type)) is not None:
        raise NotApplicableError(f"{_architecture(config)} cannot be measured: {why}")
    if getattr(config, "pad_token_id", None) is None:
        config.pad_token_id = tokenizer.pad_token_id


def _load_classifier(ref: ModelRef, config: Any, attention: str) -> tuple[Any, set[str]]:
    """Return a classifier from a model's files, and the names of the weights that transformers had to draw."""
    from transformers import AutoModelForSequenceClassification

    return _load_weights(
        ref,
        AutoModelForSequenceClassification,
        config=config,
        attn_implementation=_kernel(config, attention),
        dtype=torch.float32,
    )


def _load_weights(ref: ModelRef, cls: Any, **options: Any) -> tuple[Any, set[str]]:
    """Return a model from its files, and the names of the weights that the files lack or have in another shape.

    Raises:
        UserError: it cannot be opened, memory is too small, a weight is not finite, or the files hold more layers.
    """
    needed = sum(file.stat().st_size for file in Path(ref.path).glob("*.safetensors")) if ref.local else None
    what = f"opening {ref.name}"
    check_memory(what, needed or 0, torch.device("cpu"), MORE_MEMORY)
    with memory_errors_in_words(what, needed):
        model, info = _load(
            ref,
            cls,
            use_safetensors=True,
            output_loading_info=True,
            ignore_mismatched_sizes=True,  # the caller refuses them, with their names
            **options,
        )
    drawn = {*info["missing_keys"], *(key for key, *_ in info["mismatched_keys"])}
    _refuse_more_layers(ref.path, model, info["unexpected_keys"])
    spoilt = [name for name, weight in model.named_parameters() if not torch.isfinite(weight).all()]
    if spoilt:
        raise UserError(
            f"{ref.path}: {spoilt[0]} is not finite ({len(spoilt)} tensors in all): its training has diverged, "
            "or the file is damaged: train or save the model again"
        )
    if model.config.model_type in READS_NEIGHBOURS:
        with torch.no_grad():
            model.get_input_embeddings().weight[model.config.pad_token_id] = 0
    return model, drawn


def _refuse_more_layers(path: str, model: Any, unexpected: Iterable[str]) -> None:
    """Refuse weights of more layers than config.json says, since transformers silently leaves out the rest.

    Other weights that the model has no use for, such as the heads of pretraining, do no harm.

    Raises:
        UserError: there are such weights.
    """
    held: dict[str, int] = {}
    for place, index in filter(None, map(_layer_of, model.base_model.state_dict())):
        held[place] = max(index, held.get(place, 0))
    prefix = f"{model.base_model_prefix}."
    others = filter(None, (_layer_of(name.removeprefix(prefix)) for name in unexpected))
    more = max(((index, place) for place, index in others if index > held.get(place, index)), default=None)
    if more is not None:
        raise UserError(
            f"{path}: config.json says {held[more[1]] + 1} layers, but the weights hold {more[0] + 1}: "
            "correct num_hidden_layers, or save the model again"
        )


def _layer_of(name: str) -> tuple[str, int] | None:
    """Return the place of a weight in its layer, and the layer's number (from 0); None where it is in no layer.

    >>> _layer_of("encoder.layer.11.output.dense.bias")
    ('encoder.layer.*.output.dense.bias', 11)
    """
    match = re.search(r"\.(\d+)\.", f".{name}")
    return (f".{name}"[1 : match.start()] + ".*." + f".{name}"[match.end() :], int(match[1])) if match else None


def _refuse_drawn(path: str, names: list[str]) -> None:
    """Refuse weights that the file lacks or has in another shape, since transformers silently draws random ones.

    Raises:
        UserError: there are such weights.
    """
    if names:
        first = sorted(names)[0]
        raise RunError(
            f"{path}: {first} is missing from model.safetensors or has another shape there "
            f"({len(names)} tensors in all): download or save the model again"
        )


def open_encoder(ref: ModelRef) -> OpenModel:
    """Return an encoder without a classifier, with eager attention.

    Raises:
        UserError: the model is not available, or has pickled weights.
    """
    from transformers import AutoModel

    if ref.local:
        check_folder(Path(ref.path))
    config = open_config(ref)
    if (why := why_no_maps(config)) is not None:
        raise _unreadable(config, why)
    model, drawn = _load_weights(ref, AutoModel, config=config, attn_implementation="eager")
    _refuse_drawn(ref.path, [key for key in drawn if not key.startswith("pooler.")])
    return OpenModel(model.eval(), open_tokenizer(ref), ref.identity())


def open_checkpoint(folder: Path, task: Task, base: ModelRef | None = None, attention: str = "eager") -> OpenModel:
    """Return a fine-tuned classifier from any local folder that transformers can open.

    If the checkpoint's classes are in another order than the task's, its outputs are reordered; if it has no
    tokenizer, the base model's is used.

    Raises:
        UserError: it has pickled weights, another number of classes, other class names, or another vocabulary than
            the base model.
    """
    config = open_checkpoint_config(folder, task)
    ref = ModelRef.in_folder(folder)
    tokenizer = _checkpoint_tokenizer(ref, base, config)
    _prepare_to_classify(config, tokenizer)
    model, drawn = _load_classifier(ref, config, attention)
    if drawn and not any(name.startswith(f"{model.base_model_prefix}.") and ".pooler." not in name for name in drawn):
        raise UserError(
            f"{folder} is an encoder without a trained classifier ({sorted(drawn)[0]} is not among its weights): "
            "name it with --model instead of --checkpoint"
        )
    _refuse_drawn(ref.path, sorted(drawn))
    _order_classes(model, task, folder)
    if getattr(config, SETTING, None) == LAST:
        read_last_token(model, tokenizer, last_layers(model, 1)[0])
    return OpenModel(model.eval(), tokenizer, ref.identity())


def open_checkpoint_config(folder: Path, task: Task) -> Any:
    """Return a checkpoint's configuration, checked for the task before any weights are read.

    Raises:
        UserError: the folder does not exist, or has pickled weights or another number of classes.
    """
    if not folder.is_dir():
        raise UserError(f"no checkpoint folder at {folder}: give a folder that save_pretrained has written")
    check_folder(folder)
    config = open_config(ModelRef.in_folder(folder))
    if config.num_labels != task.outputs:
        kind = "one score" if task.regression else f"{task.outputs} classes"
        raise UserError(
            f"checkpoint {folder} has {config.num_labels} outputs, but {task.title} needs {kind}: "
            f"give one that was trained on {task.title}"
        )
    return config


def _checkpoint_tokenizer(ref: ModelRef, base: ModelRef | None, config: Any) -> Any:
    folder = Path(ref.path)
    own = open_tokenizer(ref) if ref.tokenizer() else None
    of_base = open_tokenizer(base) if base is not None else None
    if own is None and of_base is None:
        raise UserError(f"checkpoint {folder} holds no tokenizer: save one beside the weights")
    if own is not None and of_base is not None and own.get_vocab() != of_base.get_vocab():
        raise UserError(
            f"checkpoint {folder} has another vocabulary ({len(own)} entries) than {base.name if base else ''} "
            f"({len(of_base)}): name the model that it was trained from with --model"
        )
    tokenizer: Any = own if own is not None else of_base
    if max(tokenizer.get_vocab().values()) >= config.vocab_size:
        raise UserError(
            f"checkpoint {folder} embeds {config.vocab_size} tokens, but the vocabulary has {len(tokenizer)}: "
            "name the model that it was trained from with --model"
        )
    return tokenizer


def _order_classes(model: Any, task: Task, folder: Path) -> None:
    """Put the classifier's outputs in the task's order, if the checkpoint names its classes in another order.

    Raises:
        UserError: its classes have other names.
    """
    if task.regression:
        return
    names = [str(model.config.id2label[i]).lower().replace("-", "_") for i in range(task.outputs)]
    if all(re.fullmatch(r"label_\d+", name) for name in names) or names == list(task.labels):
        return
    if set(names) != set(task.labels):
        raise UserError(
            f"checkpoint {folder} has the classes {names}, but {task.title} has {list(task.labels)}: "
            f"give one that was trained on {task.title}"
        )
    last: Any = [m for m in model.modules() if isinstance(m, nn.Linear) and m.out_features == task.outputs][-1]
    order = torch.tensor([names.index(label) for label in task.labels])
    with torch.no_grad():
        last.weight.copy_(last.weight[order])
        if last.bias is not None:
            last.bias.copy_(last.bias[order])


def freeze_encoder(model: Any) -> None:
    """Make only the classifier trainable, not the encoder (the `frozen` initialisation)."""
    model.base_model.requires_grad_(False)


def freeze_but_last_layers(model: Any) -> None:
    """Make nothing of the encoder trainable but its last two layers and its pooler (`last-two-trained`).

    Raises:
        NotApplicableError: it has no last two layers.
    """
    layers = last_layers(model)
    freeze_encoder(model)
    for module in (*layers, getattr(model.base_model, "pooler", None)):
        if module is not None:
            module.requires_grad_(True)


def last_layers(model: Any, number: int = 2) -> list[nn.Module]:
    """Return a model's last layers.

    Raises:
        NotApplicableError: it has not so many, or layers that share their weights.
    """
    depth = model.config.num_hidden_layers
    stacks = (m for m in model.base_model.modules() if isinstance(m, nn.ModuleList) and len(m) == depth)
    stack = next(stacks, None)
    if stack is None or depth < number:
        raise NotApplicableError(f"{_architecture(model.config)} has no last {number} layers with weights of their own")
    return list(stack)[-number:]


def same_shape(one: OpenModel, other: OpenModel) -> str | None:
    """Return why two models' attention maps cannot be compared head by head; None where they can."""
    if (one.layers, one.heads) != (other.layers, other.heads):
        return f"{one.layers} layers x {one.heads} heads against {other.layers} x {other.heads}"
    return None


def _architecture(config: Any) -> str:
    """Return an architecture's name.

    >>> from transformers import BertConfig
    >>> _architecture(BertConfig())
    'Bert'
    """
    return type(config).__name__.removesuffix("Config")


def _unreadable(config: Any, why: str) -> NotApplicableError:
    return NotApplicableError(f"the attention of {_architecture(config)} cannot be read: {why}")


def attention_shape(model: Any) -> tuple[int, int]:
    """Return the numbers of a model's layers and of the heads in each.

    Raises:
        NotApplicableError: its configuration does not say, as that of a model without attention.
    """
    layers, heads = (getattr(model.config, name, None) for name in ("num_hidden_layers", "num_attention_heads"))
    if layers is None or heads is None:
        why = why_no_maps(model.config) or "its configuration gives no numbers of layers and heads"
        raise _unreadable(model.config, why)
    return int(layers), int(heads)


@torch.no_grad()
def attention_modules(model: Any) -> tuple[list[nn.Module], bool]:
    """Return the modules whose output contains attention weights, and whether the model must be asked for them.

    They are found by a tiny forward pass: a module counts if it is the first to return a tuple with a
    [1, heads, tokens, tokens] tensor. A module that all layers share (ALBERT) appears once.

    Returns:
        The modules in the order of their calls, and True if they return weights only with `output_attentions=True`.

    Raises:
        NotApplicableError: the architecture does not expose its attention weights.
    """
    config = model.config
    if (why := why_no_maps(config)) is not None:
        raise _unreadable(config, why)
    (layers, heads), tokens = attention_shape(model), 5
    device = next(model.parameters()).device
    ids = torch.full((1, tokens), 3, device=device)
    for must_ask in (False, True):
        modules: list[nn.Module] = []
        seen: list[torch.Tensor] = []  # kept alive, so that a later tensor cannot be mistaken for an earlier one

        def note(module, _, output, modules=modules, seen=seen):
            weights = weights_in(output, (1, heads, tokens, tokens))
            if weights is not None and not any(weights is earlier for earlier in seen):
                seen.append(weights)
                if module not in modules:
                    modules.append(module)

        handles = [module.register_forward_hook(note) for module in model.modules() if module is not model]
        try:
            model(
                input_ids=ids,
                attention_mask=torch.ones_like(ids),
                **({"output_attentions": True} if must_ask else {}),
            )
        finally:
            for handle in handles:
                handle.remove()
        if not modules:
            continue
        if len(seen) != layers:
            raise _unreadable(config, f"{len(seen)} of its {layers} layers have a map of every token to every token")
        names = {module: name for name, module in model.named_modules()}
        stacks = sorted({(_layer_of(names[module]) or (names[module], 0))[0] for module in modules})
        if len(stacks) > 1:
            raise _unreadable(config, f"its layers are of several kinds ({', '.join(stacks)})")
        return modules, must_ask
    kernel = config._attn_implementation
    if kernel != "eager":
        raise _unreadable(config, f"it was opened with {kernel}, which gives out no maps: open it with eager attention")
    raise _unreadable(config, "it is no map of every token to every token")


def weights_in(output: Any, shape: tuple[int, ...]) -> torch.Tensor | None:
    """Return the attention weights among a module's outputs: the tensor of shape [rows, heads, tokens, tokens]."""
    if isinstance(output, tuple):
        for item in output[1:]:
            if torch.is_tensor(item) and item.dtype.is_floating_point and tuple(item.shape) == shape:
                return item
    return None


def special_ids(tokenizer: Any) -> dict[str, int | None]:
    """Return the ids of the tokens in the roles of [CLS] and [SEP], such as RoBERTa's `<s>` and `</s>`, by role.

    In GPT-2, `<|endoftext|>` has both roles; None where a tokenizer has no token for a role.
    """
    first = tokenizer.cls_token_id if tokenizer.cls_token_id is not None else tokenizer.bos_token_id
    last = tokenizer.sep_token_id if tokenizer.sep_token_id is not None else tokenizer.eos_token_id
    return {"cls": first, "sep": last}
