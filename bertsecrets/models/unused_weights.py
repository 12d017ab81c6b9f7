"""Checks for stored weights that an opened model does not use. transformers would silently drop such weights."""

import re
from collections.abc import Iterable, Iterator, Mapping
from importlib.metadata import version
from typing import Any

from bertsecrets.errors import UserError
from bertsecrets.models.families import CLASSIFIERS, OTHER_HEADS, POOLER, PRETRAINING_HEADS, UNUSED_WEIGHTS
from bertsecrets.models.layers import architecture, layer_of
from bertsecrets.progress import counted

UNSCALED_TYPES = {"F64", "F32", "F16", "BF16"}  # safetensors' names for types whose numbers are stored without a scale


def check_weights(
    path: str, model: Any, unexpected: Iterable[str], stored: Mapping[str, str], *, trained: bool = False
) -> None:
    """Check that a model uses all of its stored weights, and that the stored weights are not quantised.

    Args:
        path: Folder or hub name, for the messages.
        unexpected: Names of the stored weights that transformers reports as unused.
        stored: Data type of each tensor in the files, by name.
        trained: Whether the stored classifier head is used, instead of a new classifier head.
    """
    names = _Names(model)
    _refuse_quantised(path, names, stored)
    _refuse_duplicates(path, names, stored)
    dropped = sorted({*unexpected, *names.ignored(stored)})
    _refuse_more_layers(path, names, dropped)
    refused = [name for name in dropped if not names.is_harmless(name, trained)]
    if not refused:
        return
    first = refused[0]
    if (own := names.behind_prefix(first)) is not None:
        raise UserError(
            f"{path}: the names of its weights begin with {first.removesuffix(own)!r}, as in {first}: "
            "save the model itself instead of its wrapper"
        )
    name, release = architecture(model.config), version("transformers")
    raise UserError(
        f"{path}: {name} in transformers {release} does not use the weight {first} (tensors affected: {len(refused)}). "
        "The files belong to another architecture, or to a quantised model without its quantisation settings: register "
        "the model's classes as a Family, or save the model in float32"
    )


class _Names:
    """The names of weights and modules in an opened model, for comparison with the names in the model's files."""

    def __init__(self, model: Any) -> None:
        self.model, self.encoder = model, model.base_model
        self.prefix = f"{model.base_model_prefix}."
        self.own = {name.removeprefix(self.prefix): weight for name, weight in model.state_dict().items()}

    def ignored(self, stored: Iterable[str]) -> Iterator[str]:
        """Yield unused stored weights that transformers does not report because they match its ignore patterns."""
        patterns = getattr(self.model, "_keys_to_ignore_on_load_unexpected", None) or ()
        modules = {name.removeprefix(self.prefix) for name, _ in self.model.named_modules()}
        for name in stored:
            part = name.removeprefix(self.prefix)
            inside = part not in self.own and part.rpartition(".")[0] in modules
            if inside and any(re.search(pattern, name) for pattern in patterns):
                yield name

    def is_harmless(self, name: str, trained: bool) -> bool:
        """Return whether an unused weight is known to be irrelevant, such as a constant or a head for another task."""
        part = name.removeprefix(self.prefix)
        root = part.split(".")[0]
        if re.search(UNUSED_WEIGHTS, part):
            return True
        if getattr(self.encoder, root, None) is not None:
            return False
        if part != name:
            return root == POOLER or (self.model.config.model_type, root) == ("funnel", "decoder")
        if trained:
            return re.fullmatch(PRETRAINING_HEADS, root) is not None and not hasattr(self.model, root)
        return re.fullmatch(rf"{OTHER_HEADS}|{CLASSIFIERS}", root) is not None

    def behind_prefix(self, name: str) -> str | None:
        """Return the name without its prefix if the rest is the name of a weight in the model, or else None."""
        parts = name.split(".")
        ends = (".".join(parts[start:]) for start in range(1, len(parts) - 1))
        return next((end for end in ends if end.removeprefix(self.prefix) in self.own), None)


def _refuse_quantised(path: str, names: _Names, stored: Mapping[str, str]) -> None:
    for name, kind in stored.items():
        own = names.own.get(name.removeprefix(names.prefix))
        if kind not in UNSCALED_TYPES and (
            kind.startswith(("F", "I8")) or (own is not None and own.is_floating_point())
        ):
            raise UserError(
                f"{path}: {name} is quantised ({kind}), and config.json does not say how to read it: save the model in "
                "float32 or bfloat16"
            )


def _refuse_duplicates(path: str, names: _Names, stored: Iterable[str]) -> None:
    seen: dict[str, str] = {}
    for name in sorted(stored):
        part = re.sub("gamma$", "weight", re.sub("beta$", "bias", name.removeprefix(names.prefix)))  # former names
        if part in seen and part in names.own:
            raise UserError(f"{path}: {seen[part]} and {name} are two names of the same weight: save the model again")
        seen[part] = name


def _refuse_more_layers(path: str, names: _Names, dropped: Iterable[str]) -> None:
    held: dict[str, int] = {}
    for place, index in filter(None, map(layer_of, names.encoder.state_dict())):
        held[place] = max(index, held.get(place, 0))
    others = filter(None, (layer_of(name.removeprefix(names.prefix)) for name in dropped))
    more = max(((index, place) for place, index in others if index > held.get(place, index)), default=None)
    if more is not None:
        raise UserError(
            f"{path}: the model has {counted(held[more[1]] + 1, 'layer')} according to config.json, but weights for "
            f"{counted(more[0] + 1, 'layer')}: correct num_hidden_layers, or save the model again"
        )
