"""Functions that open a model as a bare encoder, with a new classifier head, or as a fine-tuned checkpoint."""

from collections.abc import Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import torch
from torch import nn

from bertsecrets.errors import NotApplicableError, RunError, UserError, shortened
from bertsecrets.models.class_names import classes_in_order
from bertsecrets.models.configuration import load, open_config, open_tokenizer
from bertsecrets.models.consistency import LOGIT_TOLERANCE, Logits, explain_failure, largest, largest_difference
from bertsecrets.models.encoding import collate, tokenize
from bertsecrets.models.families import NO_ANSWERS, READS_NEIGHBOURS, first_position, own_family, why_no_maps
from bertsecrets.models.initialisations import get_initialisation
from bertsecrets.models.layers import (
    LAST,
    SETTING,
    architecture,
    attention_shape,
    read_last_token,
    size_difference,
    unreadable,
)
from bertsecrets.models.loans import borrowed
from bertsecrets.models.locations import ModelRef, check_folder
from bertsecrets.models.memory import MORE_MEMORY, check_memory, explain_out_of_memory
from bertsecrets.models.patches import check_code, refuse_hooks
from bertsecrets.models.tokenization import match_tokenizer
from bertsecrets.models.unused_weights import check_weights
from bertsecrets.progress import counted
from bertsecrets.store.files import listed
from bertsecrets.store.locks import one_thread
from bertsecrets.texts.tasks import Task
from bertsecrets.types import InitialisationName

# Names of a setting of sentence-transformers in config.json: the current name, and the name before version 4.
ACTIVATIONS = ("sentence_transformers", "sbert_ce_default_activation_function")
# Modules that define activation functions. The second of them defines Identity.
ACTIVATION_MODULES = ("torch.nn.modules.activation", "torch.nn.modules.linear", "torch.nn")

PROBE_TOKENS = 16  # maximum length of a text on which changes of the outputs are checked
UNUSED_EMBEDDINGS = 128  # some models have a few more embeddings than tokens, to round up the size for the hardware


@dataclass(frozen=True)
class OpenModel:
    """An encoder or sequence classifier that is ready to run: a model (in evaluation mode) and its tokenizer.

    `fingerprint` identifies the weights by a digest of local files, or by the hub name and the commit.
    """

    model: Any
    tokenizer: Any
    fingerprint: str

    def fit(self, tokens: int) -> int:
        """Return the smaller of `tokens` and the number of tokens that the model and its tokenizer allow."""
        config = self.model.config
        positions = getattr(config, "max_position_embeddings", None) or tokens
        positions = positions if positions > 0 else tokens  # -1 means unlimited (XLNet)
        positions -= first_position(self.model)
        room = int(min(tokens, positions, self.tokenizer.model_max_length))
        if room <= (special := self.tokenizer.num_special_tokens_to_add(True)):
            raise UserError(
                f"there is room for {room} tokens, but {special} special tokens are added to a pair of texts: allow "
                "more (max_length, padded_to), or correct the tokenizer's model_max_length or max_position_embeddings"
            )
        return room

    @property
    def layers(self) -> int:
        """Number of attention layers."""
        return attention_shape(self.model)[0]

    @property
    def heads(self) -> int:
        """Number of attention heads per layer."""
        return attention_shape(self.model)[1]

    def to(self, device: torch.device | str) -> "OpenModel":
        """Move the model to a device in place, and return this `OpenModel`."""
        self.model.to(device)
        return self


@one_thread()
def open_classifier(
    ref: ModelRef,
    task: Task,
    initialisation: InitialisationName = "pretrained",
    seed: int = 1,
    *,
    attention: str = "eager",
) -> OpenModel:
    """Return a model with a new classifier head for `task`, before any training (K19 section 3, table 1).

    Weights that are not loaded are drawn at random with `seed`, as the architecture prescribes: from a normal
    distribution with the standard deviation `initializer_range` of the configuration.

    Args:
        attention: Attention implementation, `eager` or `sdpa`. Only `eager` exposes attention weights.
    """
    from transformers import AutoModelForSequenceClassification

    config = open_config(ref)
    config.num_labels = task.outputs
    config.problem_type = "regression" if task.regression else "single_label_classification"
    if not task.regression:
        _name_classes(config, task.labels)
    for recorded in ACTIVATIONS:  # activation of a cross-encoder's own classifier
        vars(config).pop(recorded, None)
    tokenizer = open_tokenizer(ref)
    match_tokenizer(tokenizer, config, ref.path)
    _prepare_to_classify(config, tokenizer)

    def new_model() -> Any:
        torch.manual_seed(seed)
        with explain_out_of_memory(f"opening {ref.name}", None):
            return AutoModelForSequenceClassification.from_config(
                config, attn_implementation=_kernel(config, attention), dtype=torch.float32
            )

    chosen = get_initialisation(initialisation)
    if chosen.loads:
        torch.manual_seed(seed)
        # A saved classifier may have a different size.
        model, drawn = _load_weights(ref, AutoModelForSequenceClassification, config, attention)
        encoder = f"{model.base_model_prefix}."
        _refuse_drawn(ref.path, [key for key in drawn if key.startswith(encoder) and ".pooler." not in key])
        head = [key for key in model.state_dict() if not key.startswith(encoder)]
        if not drawn.keys() >= {*head}:  # the folder includes a classifier, which the new one replaces
            weights = new_model().state_dict()
            model.load_state_dict({key: weights[key] for key in head}, strict=False)
    else:
        model = new_model()
    chosen.prepare(model, tokenizer, new_model)
    return _opened(ref, model, tokenizer)


def _kernel(config: Any, attention: str) -> str:
    """Return the requested attention implementation, or `eager` if the architecture does not support `sdpa`."""
    from transformers import MODEL_FOR_SEQUENCE_CLASSIFICATION_MAPPING as CLASSIFIERS

    known = CLASSIFIERS.get(type(config), None)
    return "eager" if attention == "sdpa" and not getattr(known, "_supports_sdpa", True) else attention


def _prepare_to_classify(config: Any, tokenizer: Any) -> None:
    """Copy a missing padding token from the tokenizer, because the model needs it to find the end of an input."""
    if (why := NO_ANSWERS.get(config.model_type)) is not None:
        raise NotApplicableError(f"{architecture(config)} cannot be measured: {why}")
    if getattr(config, "pad_token_id", None) is None:
        config.pad_token_id = tokenizer.pad_token_id


def _load_weights(
    ref: ModelRef, cls: Any, config: Any, attention: str, *, trained: bool = False
) -> tuple[Any, dict[str, tuple[int, ...] | None]]:
    """Return a model, and a dict with the stored shape of each weight that does not fit the model.

    For a weight that is missing, the shape is None. `trained` says whether the stored classifier head is used.
    """
    from transformers import AutoModel

    refuse_hooks()
    if (model := borrowed(ref.path, bare=cls is AutoModel)) is not None:
        own = model.config
        own.id2label, own.label2id, own.pad_token_id = config.id2label, config.label2id, config.pad_token_id
        own.return_dict = True
        return model, {}
    needed = sum(file.stat().st_size for file in listed(Path(ref.path), "*.safetensors")) if ref.local else None
    what = f"opening {ref.name}"
    check_memory(what, needed or 0, torch.device("cpu"), MORE_MEMORY)
    with explain_out_of_memory(what, needed):
        model, info = load(
            ref,
            cls,
            use_safetensors=True,
            output_loading_info=True,
            ignore_mismatched_sizes=True,  # the caller rejects them by name
            config=config,
            attn_implementation=_kernel(config, attention),
            dtype=torch.float32,
        )
    drawn = dict.fromkeys(info["missing_keys"]) | {key: tuple(shape) for key, shape, *_ in info["mismatched_keys"]}
    if (own := own_family(config.model_type)) is not None and not isinstance(model.base_model, own.encoder):
        raise UserError(
            f"the encoder of {type(model).__name__} is not in the attribute {model.base_model_prefix!r}, which its "
            f"base_model_prefix names: store the {own.encoder.__name__} in this attribute"
        )
    check_weights(ref.path, model, info["unexpected_keys"], ref.tensors(), trained=trained)
    infinite = [name for name, weight in model.named_parameters() if not torch.isfinite(weight).all()]
    if infinite:
        raise UserError(
            f"{ref.path}: the weight {infinite[0]} is not finite (tensors affected: {len(infinite)}), because training "
            "diverged or the file is damaged: train or save the model again"
        )
    if model.config.model_type in READS_NEIGHBOURS:
        with torch.no_grad():
            model.get_input_embeddings().weight[model.config.pad_token_id] = 0
    return model, drawn


def _opened(ref: ModelRef, model: Any, tokenizer: Any) -> OpenModel:
    check_code(ref, model, tokenizer)
    return OpenModel(model.eval(), tokenizer, ref.identity())


def _refuse_drawn(path: str, names: list[str]) -> None:
    """Reject missing or wrongly shaped weights, because transformers silently replaces them with random weights."""
    if names:
        first = sorted(names)[0]
        raise RunError(
            f"{path}: the weight {first} is missing from model.safetensors or has the wrong shape "
            f"(tensors affected: {len(names)}): download or save the model again"
        )


@one_thread()
def open_encoder(ref: ModelRef) -> OpenModel:
    """Open a model as a bare encoder (without a classifier head), with eager attention."""
    from transformers import AutoModel

    if ref.local:
        check_folder(Path(ref.path))
    config = open_config(ref)
    if (why := why_no_maps(config)) is not None:
        raise unreadable(config, why)
    model, drawn = _load_weights(ref, AutoModel, config, "eager")
    _refuse_drawn(ref.path, [key for key in drawn if not key.startswith("pooler.")])
    tokenizer = open_tokenizer(ref)
    match_tokenizer(tokenizer, config, ref.path)
    return _opened(ref, model, tokenizer)


@one_thread()
def open_checkpoint(folder: Path, task: Task, base: ModelRef | None = None, attention: str = "eager") -> OpenModel:
    """Open a fine-tuned classifier from any local folder that transformers can read.

    If the classes of the checkpoint and of the task are in different orders, the outputs are reordered. If the
    checkpoint has no tokenizer, the base model's tokenizer is used.
    """
    from transformers import AutoModelForSequenceClassification

    config = open_checkpoint_config(folder, task)
    ref = ModelRef.in_folder(folder)
    tokenizer = _checkpoint_tokenizer(ref, base, config)
    match_tokenizer(tokenizer, config, ref.path)
    _prepare_to_classify(config, tokenizer)
    model, drawn = _load_weights(ref, AutoModelForSequenceClassification, config, attention, trained=True)
    if drawn and not any(name.startswith(f"{model.base_model_prefix}.") and ".pooler." not in name for name in drawn):
        other = next(((name, shape) for name, shape in sorted(drawn.items()) if shape is not None), None)
        if other is not None:
            raise UserError(
                f"{folder}: the weight {other[0]} has the shape {other[1]}, but config.json requires {task.outputs} "
                "outputs: correct num_labels or id2label in config.json"
            )
        raise UserError(
            f"{folder} is an encoder without a trained classifier ({sorted(drawn)[0]} is not among its weights): "
            "use the option `model` instead of `checkpoint` for it"
        )
    _refuse_drawn(ref.path, sorted(drawn))
    _order_classes(model, tokenizer, task)
    if task.regression and (name := ref.activation() or _activation(config)) is not None:
        _activate(model, tokenizer, name, folder)
    if getattr(config, SETTING, None) == LAST:
        read_last_token(model, tokenizer)
    return _opened(ref, model, tokenizer)


def open_checkpoint_config(folder: Path, task: Task) -> Any:
    """Check that a checkpoint's configuration fits the task, and return the configuration. Weights are not read."""
    if not folder.is_dir():
        way = "give a folder that was written by save_pretrained (a model on the hub must first be downloaded)"
        raise UserError(f"no checkpoint folder at {folder}: {way}")
    check_folder(folder)
    config = open_config(ModelRef.in_folder(folder))
    classes = None
    if not task.regression and config.num_labels <= task.outputs:
        classes = classes_in_order(folder, task)
    if classes is None and config.num_labels != task.outputs:
        kind = "one score" if task.regression else f"{task.outputs} classes"
        raise UserError(
            f"checkpoint {folder} has {counted(config.num_labels, 'output')}, but {task.title} needs {kind}: "
            f"use a checkpoint that was trained on {task.title}"
        )
    if not task.regression:
        _name_classes(config, classes or task.labels)
    return config


def check_base(folder: Path, task: Task, base: ModelRef) -> None:
    """Check that a checkpoint has the same architecture and size as its supposed base model."""
    if problem := size_difference(open_checkpoint_config(folder, task), open_config(base)):
        raise UserError(
            f"checkpoint {folder} was not fine-tuned from {base.name} ({problem}): use the option `model` to name the "
            "model that it was fine-tuned from"
        )


def _name_classes(config: Any, classes: Sequence[str]) -> None:
    config.id2label = dict(enumerate(classes))
    config.label2id = {label: i for i, label in enumerate(classes)}


def _checkpoint_tokenizer(ref: ModelRef, base: ModelRef | None, config: Any) -> Any:
    own = open_tokenizer(ref) if ref.tokenizer() else None
    if base is None:
        if own is None:
            raise UserError(f"checkpoint {ref.path} holds no tokenizer: save the tokenizer in the same folder")
        return own
    of_base = open_tokenizer(base)
    if own is None:
        check_embeddings(f"checkpoint {ref.path}", config, base, of_base)
        return of_base
    if own.get_vocab() != of_base.get_vocab():
        raise UserError(
            f"checkpoint {ref.path} has a different vocabulary ({len(own)} entries) from {base.name} "
            f"({len(of_base)} entries): use the option `model` to name the model that it was fine-tuned from"
        )
    return own


def check_embeddings(model: str, config: Any, base: ModelRef, tokenizer: Any) -> None:
    """Check that a model has the right number of token embeddings for the tokenizer of its base model."""
    own, known = (getattr(each, "vocab_size", None) for each in (config, open_config(base)))
    if own is not None and own != known and not 0 <= own - len(tokenizer) < UNUSED_EMBEDDINGS:
        raise UserError(
            f"{model} has embeddings for {own} tokens, but the tokenizer of {base.name} has {len(tokenizer)} tokens: "
            "save the model with its own tokenizer, or use the option `model` to name the model that it was fine-tuned "
            "from"
        )


def _activation(config: Any) -> Any:
    """Return the sentence-transformers activation function in config.json, or None if the file does not name one."""
    own, former = (getattr(config, name, None) for name in ACTIVATIONS)
    return (own.get("activation_fn") if isinstance(own, dict) else None) or former


def _probed(model: Any, tokenizer: Any) -> Logits:
    """Return a model's logits for two short texts."""
    encoded = tokenize(tokenizer, ["A few words.", "And 2 more!"], None, PROBE_TOKENS)[0]
    with explain_failure(model), torch.no_grad():
        logits: torch.Tensor = model.eval()(**collate(encoded, range(len(encoded))).inputs()).logits
    return logits


def _check_outputs(model: Any, tokenizer: Any, wanted: Logits, what: str) -> None:
    """Check the effect of a change of the model's last linear module, after which a model may compute anything."""
    outputs = _probed(model, tokenizer)
    fits = outputs.shape == wanted.shape and largest_difference(outputs, wanted) <= LOGIT_TOLERANCE * largest(wanted)
    if not fits:  # also if a logit is not a number
        name = type(model).__name__
        raise UserError(f"{what}, because {name} does not return the outputs of its last linear module unchanged")


def _activate(model: Any, tokenizer: Any, name: Any, folder: Path) -> None:
    """Apply an activation function to a cross-encoder's output, using a hook on the model's last linear module."""
    root, _, function = name.rpartition(".") if isinstance(name, str) else ("", "", "")
    try:
        activation = getattr(nn, function)() if root in ACTIVATION_MODULES else None
    except (AttributeError, TypeError):  # the class does not exist, or requires arguments
        activation = None
    if activation is None:
        raise UserError(
            f"{folder} needs code from its repository, which this suite never runs, for its activation function "
            f"{shortened(str(name), 100)}"
        )
    last = [module for module in model.modules() if isinstance(module, nn.Linear) and module.out_features == 1][-1]
    wanted = activation(_probed(model, tokenizer))
    last.register_forward_hook(lambda _module, _inputs, output: activation(output))
    _check_outputs(model, tokenizer, wanted, f"{folder}: the activation function {function} cannot be applied")


def _order_classes(model: Any, tokenizer: Any, task: Task) -> None:
    """Reorder the outputs of a classifier if its classes are in a different order from the classes of the task."""
    names = list(model.config.id2label.values())
    if task.regression or names == list(task.labels):
        return
    last: Any = [m for m in model.modules() if isinstance(m, nn.Linear) and m.out_features == task.outputs][-1]
    order = torch.tensor([names.index(label) for label in task.labels])
    wanted = _probed(model, tokenizer)[:, order]
    with torch.no_grad():
        last.weight.copy_(last.weight[order])
        if last.bias is not None:
            last.bias.copy_(last.bias[order])
    what = f"save the model with its classes in the order {', '.join(task.labels)}: they cannot be reordered here"
    _check_outputs(model, tokenizer, wanted, what)
