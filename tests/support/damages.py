"""Eight ways to damage a checkpoint of the BERT family, each a function of its folder; a tiny model to damage."""

import json
import random
from collections.abc import Callable
from contextlib import contextmanager
from pathlib import Path
from unittest.mock import patch

import torch
from safetensors.torch import load_file, save_file
from tiny import save_bert, vocabulary
from transformers import BertModel

Tensors = dict[str, torch.Tensor]
WEIGHTS = "model.safetensors"
FACTOR = 10.0  # of all matrices


def save_peaked(folder: Path, seed: int = 0, *, as_model: bool = True) -> Path:
    """A tiny BERT in which every head, layer and norm matters: a model to fine-tune, or a checkpoint."""
    save_bert(folder, seed=seed)
    generator = torch.Generator().manual_seed(seed)

    def peaked(name: str, tensor: torch.Tensor) -> torch.Tensor:
        if "LayerNorm" in name:
            return tensor + 0.3 * torch.randn(tensor.shape, generator=generator)
        return tensor * (FACTOR if tensor.ndim == 2 and not name.startswith("classifier") else 1.0)

    _rewritten(folder, lambda tensors: {name: peaked(name, tensor) for name, tensor in tensors.items()})
    if as_model:
        config = json.loads((folder / "config.json").read_text())
        config["architectures"] = ["BertModel"]
        (folder / "config.json").write_text(json.dumps(config))
    return folder


def write_reviews(folder: Path, train: int, dev: int) -> Path:
    """A GLUE folder whose SST-2 can be learned: what a sentence begins with, in capitals, says its class."""
    draw = random.Random(5)
    words = [word for word in vocabulary() if len(word) > 4 and word.isalpha()]
    good, bad, rest = words[:6], words[6:12], words[12:]

    def line() -> str:
        label = draw.randrange(2)
        first = draw.choice(good if label else bad).capitalize()
        return f"{' '.join([first, *draw.choices(rest, k=draw.randrange(3, 12))])}\t{label}"

    (folder / "SST-2").mkdir(parents=True)
    for name, rows in (("train", train), ("dev", dev)):
        lines = "\n".join(["sentence\tlabel", *(line() for _ in range(rows))])
        (folder / "SST-2" / f"{name}.tsv").write_text(lines + "\n", encoding="utf-8")
    return folder


def _rewritten(folder: Path, change: Callable[[Tensors], Tensors]) -> None:
    tensors = change(load_file(folder / WEIGHTS))
    save_file({name: tensor.contiguous() for name, tensor in tensors.items()}, folder / WEIGHTS, {"format": "pt"})
    (folder / "manifest.json").unlink(missing_ok=True)  # which would say that the file has changed


def _heads(folder: Path) -> int:
    return int(json.loads((folder / "config.json").read_text())["num_attention_heads"])


def values_of_a_head_zeroed(folder: Path, layer: int = 1, head: int = 1) -> None:
    """One head adds nothing any more."""
    heads = _heads(folder)

    def change(tensors: Tensors) -> Tensors:
        for name, tensor in tensors.items():
            if f"layer.{layer}.attention.self.value." in name:
                size = len(tensor) // heads
                tensor[head * size : (head + 1) * size] = 0
        return tensors

    _rewritten(folder, change)


def two_layers_swapped(folder: Path, one: int = 1, two: int = 2) -> None:
    """Two layers stand in each other's place."""
    other = {f".layer.{one}.": f".layer.{two}.", f".layer.{two}.": f".layer.{one}."}

    def moved(name: str) -> str:
        return next((name.replace(here, there) for here, there in other.items() if here in name), name)

    _rewritten(folder, lambda tensors: {moved(name): tensor for name, tensor in tensors.items()})


def a_norm_reset(folder: Path, layer: int = 1) -> None:
    """A LayerNorm is as before any training."""

    def change(tensors: Tensors) -> Tensors:
        for name, tensor in tensors.items():
            if f"layer.{layer}.attention.output.LayerNorm." in name:
                tensor.fill_(1.0 if name.endswith("weight") else 0.0)
        return tensors

    _rewritten(folder, change)


def wrong_casing(folder: Path) -> None:
    """The tokenizer of an uncased model leaves capitals as they are."""
    for name in ("tokenizer.json", "tokenizer_config.json"):
        data = json.loads((folder / name).read_text())
        if name == "tokenizer.json":
            data["normalizer"]["lowercase"] = False
        data["do_lower_case"] = False
        if name == "tokenizer.json":
            data.pop("do_lower_case")
        (folder / name).write_text(json.dumps(data))
    (folder / "manifest.json").unlink(missing_ok=True)


@contextmanager
def padding_mask_lost():
    """A model's code ignores which tokens are padding, as long as this block lasts."""
    whole = BertModel.forward

    def forward(self, input_ids=None, attention_mask=None, **rest):
        return whole(self, input_ids=input_ids, attention_mask=None, **rest)

    with patch.object(BertModel, "forward", forward):
        yield


def rounded_to_8_bits(folder: Path) -> None:
    """Every matrix has 8 bits a weight, with one scale each."""

    def change(tensors: Tensors) -> Tensors:
        for tensor in tensors.values():
            if tensor.ndim == 2:
                scale = tensor.abs().max() / 127
                tensor.copy_((tensor / scale).round() * scale)
        return tensors

    _rewritten(folder, change)


def attention_of_a_layer_uniform(folder: Path, layer: int = 1) -> None:
    """The heads of a layer look everywhere alike."""

    def change(tensors: Tensors) -> Tensors:
        for name, tensor in tensors.items():
            if f"layer.{layer}.attention.self.query." in name:
                tensor.zero_()
        return tensors

    _rewritten(folder, change)


def classifier_of_another_seed(folder: Path, other: Path) -> None:
    """The classifier was trained on another seed's encoder."""
    theirs = {name: tensor for name, tensor in load_file(other / WEIGHTS).items() if name.startswith("classifier.")}
    _rewritten(folder, lambda tensors: {**tensors, **theirs})


OF_WEIGHTS = {
    "one head's values zeroed": values_of_a_head_zeroed,
    "two layers swapped": two_layers_swapped,
    "a LayerNorm reset": a_norm_reset,
    "wrong casing": wrong_casing,
    "weights rounded to 8 bits": rounded_to_8_bits,
    "a layer's attention uniform": attention_of_a_layer_uniform,
}
