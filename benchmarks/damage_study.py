"""Is damage noticed, and are retrainings left alone? Damage a fine-tuned checkpoint in eight ways, and compare it.

    python benchmarks/damage_study.py PIN --glue DIR [--store DIR] [--seeds 5] [--damaged 1] [--json FILE]

Every damaged checkpoint is compared with the pin, whose seeds say how far another training may differ, and with the
undamaged checkpoint itself. Each seed is compared with the pin or, if it is one of the pin's own, with the others of
these: an alarm there is a false one. Everything goes through the store. It is for models of the BERT family.
"""

import argparse
import json
import shutil
import sys
import tempfile
from collections.abc import Callable, Iterator, Mapping, Sequence
from contextlib import contextmanager
from dataclasses import replace
from pathlib import Path
from typing import Any
from unittest.mock import patch

import torch
from safetensors.torch import load_file, save_file
from tabulate import tabulate
from transformers import BertModel

from bertsecrets.compare.comparison import Comparison, compare
from bertsecrets.compare.pins import side_of_pin
from bertsecrets.compare.sides import Side, Wanted, measured_side
from bertsecrets.errors import UserError
from bertsecrets.options import RunOptions, add_options
from bertsecrets.provenance import run_facts
from bertsecrets.session import Session
from bertsecrets.store.entries import write_json
from bertsecrets.types import Measurement, Subject

OPTIONS = (
    *("model", "glue", "store", "precision", "threads", "limit", "train_limit", "grid_limit", "seeds"),
    *("offline", "allow_unofficial_data", "accept_older"),
)
Tensors = dict[str, torch.Tensor]
WEIGHTS = "model.safetensors"


# ---------------------------------------------------------------------- damages


def rewritten(folder: Path, change: Callable[[Tensors], Tensors]) -> None:
    """Change the weights in a folder."""
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

    rewritten(folder, change)


def two_layers_swapped(folder: Path, one: int = 1, two: int = 2) -> None:
    """Two layers stand in each other's place."""
    other = {f".layer.{one}.": f".layer.{two}.", f".layer.{two}.": f".layer.{one}."}

    def moved(name: str) -> str:
        return next((name.replace(here, there) for here, there in other.items() if here in name), name)

    rewritten(folder, lambda tensors: {moved(name): tensor for name, tensor in tensors.items()})


def a_norm_reset(folder: Path, layer: int = 1) -> None:
    """A LayerNorm is as before any training."""

    def change(tensors: Tensors) -> Tensors:
        for name, tensor in tensors.items():
            if f"layer.{layer}.attention.output.LayerNorm." in name:
                tensor.fill_(1.0 if name.endswith("weight") else 0.0)
        return tensors

    rewritten(folder, change)


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
def padding_mask_lost() -> Iterator[None]:
    """A model's code ignores which tokens are padding, as long as this block lasts."""
    whole = BertModel.forward

    def forward(self: Any, input_ids: Any = None, attention_mask: Any = None, **rest: Any) -> Any:
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

    rewritten(folder, change)


def attention_of_a_layer_uniform(folder: Path, layer: int = 1) -> None:
    """The heads of a layer look everywhere alike."""

    def change(tensors: Tensors) -> Tensors:
        for name, tensor in tensors.items():
            if f"layer.{layer}.attention.self.query." in name:
                tensor.zero_()
        return tensors

    rewritten(folder, change)


def classifier_of_another_seed(folder: Path, other: Path) -> None:
    """The classifier was trained on another seed's encoder."""
    theirs = {name: tensor for name, tensor in load_file(other / WEIGHTS).items() if name.startswith("classifier.")}
    rewritten(folder, lambda tensors: {**tensors, **theirs})


OF_WEIGHTS = {
    "one head's values zeroed": values_of_a_head_zeroed,
    "two layers swapped": two_layers_swapped,
    "a LayerNorm reset": a_norm_reset,
    "wrong casing": wrong_casing,
    "weights rounded to 8 bits": rounded_to_8_bits,
    "a layer's attention uniform": attention_of_a_layer_uniform,
}


# ---------------------------------------------------------------------- the study


def damaged_sides(
    sessions: Sequence[Session], wanted: Sequence[Wanted], folder: Path, seeds: Sequence[int] = (1,)
) -> Iterator[tuple[str, Side]]:
    """Yield each damage with the side of the checkpoints that it is done to.

    Args:
        sessions: the second has a store of its own, for code that is damaged instead of a checkpoint.
        folder: for damaged copies.
        seeds: of the checkpoints that are damaged.
    """
    session, apart = sessions
    of_seed = {
        seed: session.checkpoint(Subject(session.model, wanted[0].task, "pretrained", seed))
        for seed in {*seeds, *(seed + 1 for seed in seeds)}
    }
    for name, damage in {**OF_WEIGHTS, "another seed's classifier": None}.items():
        copies = {}
        for seed in seeds:
            copies[seed] = folder / f"{name.replace(' ', '-').replace(chr(39), '')}-{seed}"
            shutil.copytree(of_seed[seed], copies[seed])
            if damage is None:
                classifier_of_another_seed(copies[seed], of_seed[seed + 1])
            else:
                damage(copies[seed])
        yield name, checkpoints_side(session, name, wanted, copies)
    with padding_mask_lost():
        whole = {seed: of_seed[seed] for seed in seeds}
        yield "the padding mask lost", checkpoints_side(apart, "the padding mask lost", wanted, whole)


def checkpoints_side(session: Session, name: str, wanted: Sequence[Wanted], folders: Mapping[int, Path]) -> Side:
    """Return the side of the checkpoints in folders, by their seeds."""

    def measure(of: Wanted, seed: int) -> Measurement:
        return session.measurement(of.measure, of.subject(session.model, seed), folders[seed], **of.options)

    return measured_side(name, "checkpoint", wanted, list(folders), measure)


def seeds_side(session: Session, name: str, wanted: Sequence[Wanted], seeds: Sequence[int]) -> Side:
    """Return the side of a model's own trainings."""

    def measure(of: Wanted, seed: int) -> Measurement:
        return session.measurement(of.measure, of.subject(session.model, seed), **of.options)

    return measured_side(name, f"seeds {', '.join(map(str, seeds))}", wanted, seeds, measure)


def found_in(comparison: Comparison) -> dict[str, str]:
    """Return what a comparison found, by measure: how many numbers drifted, or why the model cannot be measured."""
    found = {}
    for one in comparison.measures:
        drifted = sum(int(difference.drifted.sum()) for difference in one.differences)
        cells = sum(len(difference.before) for difference in one.differences)
        told = f"{drifted} of {cells}" if one.differences else one.reason
        found[one.wanted.measure] = f"drift: {told}" if one.outcome == "drift" else one.outcome
    return found


def main(arguments: Sequence[str] | None = None) -> int:
    """Run the study; returns the exit code."""
    parser = argparse.ArgumentParser(description=(__doc__ or "").partition("\n")[0])
    parser.add_argument("pin", type=Path)
    parser.add_argument("--measure", action="append", default=[], help="repeatable (default: all of the pin)")
    parser.add_argument("--damaged", type=int, default=1, metavar="N", help="damage seeds 1 to N (default: 1)")
    parser.add_argument("--json", type=Path, metavar="FILE", help="write the result to this file")
    add_options(parser.add_argument, OPTIONS)
    given = parser.parse_args(arguments)
    given.model = given.model or "minilm"
    try:
        result = study(given.pin, RunOptions.of(given), given.measure, given.damaged)
        if given.json:
            write_json(given.json, result)
    except UserError as error:
        print(f"damage_study: {error}", file=sys.stderr)
        return 2
    return 0


def study(place: Path, options: RunOptions, measures: Sequence[str] = (), damaged: int = 1) -> dict[str, Any]:
    """Return what each damage changes, from the pin and from the checkpoint itself, and the false alarms of the seeds.

    Raises:
        UserError: the pin cannot be read, or something cannot be measured.
    """
    session = Session(options)
    pin, judge, first = side_of_pin(place), session.settings.judge, range(1, damaged + 1)
    pin = replace(pin, parts=tuple(part for part in pin.parts if not measures or part.wanted.measure in measures))
    wanted, seeds = [part.wanted for part in pin.parts], list(session.seeds)
    result: dict[str, Any] = {
        "model": session.model,
        "pin": str(place),
        **run_facts(),
        "damages": {},
        "false_alarms": {},
    }
    with tempfile.TemporaryDirectory() as temporary:
        apart = Session(replace(options, store=Path(temporary) / "store"))
        itself = seeds_side(session, "itself", wanted, first)
        for name, side in damaged_sides((session, apart), wanted, Path(temporary), first):
            against = {
                base.name: found_in(compare(base, side, judge)) for base in (replace(pin, name="the pin"), itself)
            }
            result["damages"][name] = against
            rows = [[base, *found.values()] for base, found in against.items()]
            print(
                f"{name}:\n{tabulate(rows, ['from', *(one.measure for one in wanted)], maxcolwidths=24)}\n", flush=True
            )
    pinned = pin.parts[0].seeds
    for seed in seeds:
        others = [one for one in pinned if one != seed]
        base = pin if seed not in pinned else seeds_side(session, "its other seeds", wanted, others)
        comparison = compare(base, seeds_side(session, f"seed {seed}", wanted, [seed]), judge)
        result["false_alarms"][str(seed)] = found_in(comparison) if comparison.drifted else "none"
        told = "a false alarm" if comparison.drifted else "no alarm"
        print(f"seed {seed} against the pin's {len(base.parts[0].seeds)} seeds: {told}", flush=True)
    return result


if __name__ == "__main__":
    sys.exit(main())
