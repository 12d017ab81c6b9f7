"""Initialisations of a classifier. An initialisation defines the initial weights and which of them are trained.

To add an initialisation, add its name to `types.InitialisationName` and an entry to the table below. This module does
not import torch.
"""

from collections.abc import Callable
from dataclasses import dataclass
from typing import Any

from bertsecrets.types import InitialisationName

Model = Any  # a transformers classifier; the classes of classifiers have no common type


def _nothing(*_: Any) -> None:
    pass


@dataclass(frozen=True, kw_only=True)
class Initialisation:
    """A way to initialise a classifier for training (K19 section 3, table 1).

    Attributes:
        name: Name of the initialisation on the command line and in cache keys.
        title: Description of the resulting models, such as "a model trained from random weights".
        label: Short description for charts.
        loads: Whether pretrained weights are loaded.
        trains: Whether any part of the model is trained.
        trains_encoder: Whether the encoder is also trained.
        prepare: Function that modifies a classifier in place before training. The function is called with the
            classifier, the tokenizer, and a function that returns a new classifier with random weights determined by
            the seed.
        freeze: Function that freezes some of a classifier's weights in place.
    """

    name: InitialisationName
    title: str
    label: str
    loads: bool = True
    trains: bool = True
    trains_encoder: bool = True
    prepare: Callable[[Model, Any, Callable[[], Model]], None] = _nothing
    freeze: Callable[[Model], None] = _nothing


def get_initialisation(name: str) -> Initialisation:
    """Return an initialisation by name.

    >>> get_initialisation("frozen").trains_encoder
    False
    """
    return _BY_NAME[name]


def freeze_encoder(model: Model) -> None:
    """Freeze all weights except those of the classifier head."""
    model.base_model.requires_grad_(False)


def freeze_but_last_layers(model: Model) -> None:
    """Freeze all weights of the encoder, except for the last two layers and the pooler."""
    from bertsecrets.models.layers import last_layers

    layers = last_layers(model)
    freeze_encoder(model)
    for module in (*layers, getattr(model.base_model, "pooler", None)):
        if module is not None:
            module.requires_grad_(True)


def _replace_last_layers(model: Model, _tokenizer: Any, new: Callable[[], Model]) -> None:
    from bertsecrets.models.layers import last_layers

    for layer, random_layer in zip(last_layers(model), last_layers(new()), strict=True):
        layer.load_state_dict(random_layer.state_dict())


def _read_last_token(model: Model, tokenizer: Any, _new: Callable[[], Model]) -> None:
    from bertsecrets.models.layers import read_last_token

    read_last_token(model, tokenizer)


_INITIALISATIONS = (
    # from K19, section 3
    Initialisation(name="pretrained", title="a fine-tuned model", label="fine-tuned"),
    Initialisation(
        name="random", title="a model trained from random weights", label="from random weights", loads=False
    ),
    Initialisation(
        name="frozen",
        title="a model trained on a frozen encoder",
        label="frozen encoder",
        trains_encoder=False,
        freeze=freeze_encoder,
    ),
    # the "pretrained" column of K19's table 1, which K19's code computes with an untrained classifier
    Initialisation(
        name="untrained",
        title="a pretrained model without training",
        label="not fine-tuned",
        trains=False,
        trains_encoder=False,
    ),
    # not in K19
    Initialisation(
        name="last-two-new",
        title="a model fine-tuned after its last two layers were reinitialised",
        label="last two layers reinitialised",
        prepare=_replace_last_layers,
    ),
    Initialisation(
        name="last-two-trained",
        title="a model of which only the last two layers were fine-tuned",
        label="only the last two layers fine-tuned",
        freeze=freeze_but_last_layers,
    ),
    Initialisation(
        name="from-sep",
        title="a model fine-tuned to classify from [SEP]",
        label="classifying from [SEP]",
        prepare=_read_last_token,
    ),
)
_BY_NAME: dict[str, Initialisation] = {initialisation.name: initialisation for initialisation in _INITIALISATIONS}
