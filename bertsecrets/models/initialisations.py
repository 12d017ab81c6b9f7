"""The initialisations of a classifier: which weights it begins with, and which of them are trained.

A new one is a name in `types.Initialisation` and a registration here. Importing this module does not import torch.
"""

from collections.abc import Callable
from dataclasses import dataclass
from typing import Any

from bertsecrets.types import InitialisationName

Model = Any  # a classifier of transformers, which has no common type


def _nothing(*_: Any) -> None:
    pass


@dataclass(frozen=True, kw_only=True)
class Initialisation:
    """One way to begin a training (K19 section 3, table 1).

    Attributes:
        name: on the command line and in keys of the store.
        title: what its models are, as in "a model trained from random weights".
        label: the same in a figure.
        loads: whether the pretrained weights are loaded.
        trains: whether any step is taken.
        trains_encoder: whether the encoder is trained too.
        prepare: changes a classifier, in place, before it is trained. It is given the classifier, its tokenizer, and a
            function that returns a new classifier with random weights, the same for the same seed.
        freeze: makes weights untrainable, in place.
    """

    name: InitialisationName
    title: str
    label: str
    loads: bool = True
    trains: bool = True
    trains_encoder: bool = True
    prepare: Callable[[Model, Any, Callable[[], Model]], None] = _nothing
    freeze: Callable[[Model], None] = _nothing


_REGISTERED: dict[str, Initialisation] = {}


def register(initialisation: Initialisation) -> None:
    """Make an initialisation known by its name."""
    _REGISTERED[initialisation.name] = initialisation


def get_initialisation(name: str) -> Initialisation:
    """Return the initialisation of this name.

    >>> get_initialisation("frozen").trains_encoder
    False
    """
    return _REGISTERED[name]


def freeze_encoder(model: Model) -> None:
    """Make only the classifier trainable."""
    model.base_model.requires_grad_(False)


def freeze_but_last_layers(model: Model) -> None:
    """Make nothing of the encoder trainable except its last two layers and its pooler.

    Raises:
        NotApplicableError: it has no last two layers.
    """
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


# K19's, section 3
register(Initialisation(name="pretrained", title="a fine-tuned model", label="fine-tuned"))
register(
    Initialisation(name="random", title="a model trained from random weights", label="from random weights", loads=False)
)
register(
    Initialisation(
        name="frozen",
        title="a model trained on a frozen encoder",
        label="frozen encoder",
        trains_encoder=False,
        freeze=freeze_encoder,
    )
)
register(  # the "pretrained" column of K19's table 1, as its code computes it: a new classifier without training
    Initialisation(
        name="untrained",
        title="a pretrained model without training",
        label="not fine-tuned",
        trains=False,
        trains_encoder=False,
    )
)
# beyond K19
register(
    Initialisation(
        name="last-two-new",
        title="a model fine-tuned after its last two layers were reinitialised",
        label="last two layers reinitialised",
        prepare=_replace_last_layers,
    )
)
register(
    Initialisation(
        name="last-two-trained",
        title="a model of which only the last two layers were fine-tuned",
        label="only the last two layers fine-tuned",
        freeze=freeze_but_last_layers,
    )
)
register(
    Initialisation(
        name="from-sep",
        title="a model fine-tuned to classify from [SEP]",
        label="classifying from [SEP]",
        prepare=_read_last_token,
    )
)
