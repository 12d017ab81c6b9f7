"""Damage a fine-tuned checkpoint in eight ways, and count detections and false alarms of the drift test.

    python benchmarks/damage_study.py PIN --glue DIR [--store DIR] [--seeds 5] [--damaged 1] [--json FILE]

Every damaged checkpoint is compared with the pin, whose seeds provide the seed variance, and with the undamaged
checkpoint. To count false alarms, each undamaged seed is compared with the pin, or with the pin's other seeds if it is
part of the pin. All results are stored. The study supports models of the BERT family.
"""

import argparse
import json
import shutil
import sys
import tempfile
from collections.abc import Iterator, Mapping, Sequence
from contextlib import contextmanager
from dataclasses import replace
from pathlib import Path
from typing import Any

import torch
from safetensors.torch import load_file, save_file
from tabulate import tabulate
from transformers import BertForSequenceClassification

from bertsecrets.compare.comparison import Comparison, compare
from bertsecrets.compare.pins import side_of_pin
from bertsecrets.compare.sides import MeasureOnTask, Side, measured_side
from bertsecrets.errors import UserError
from bertsecrets.options import RunOptions, add_options
from bertsecrets.provenance import run_facts
from bertsecrets.session import Session
from bertsecrets.store.entries import write_json
from bertsecrets.types import Measurement, Subject

OPTIONS = (
    *("model", "glue", "store", "precision", "threads", "limit", "train_limit", "grid_limit", "seeds"),
    *("offline", "allow_unofficial_data"),
)
WEIGHTS = "model.safetensors"


# ---------------------------------------------------------------------- damage


@contextmanager
def weights_of(folder: Path) -> Iterator[dict[str, torch.Tensor]]:
    """Give the weights in a folder, and save them after the block has changed them."""
    tensors = load_file(folder / WEIGHTS)
    yield tensors
    save_file({name: tensor.contiguous() for name, tensor in tensors.items()}, folder / WEIGHTS, {"format": "pt"})
    (folder / "manifest.json").unlink(missing_ok=True)  # its digests are those of the old weights


def values_of_a_head_zeroed(folder: Path) -> None:
    """Zero the values of a head, so that it has no output."""
    heads = int(json.loads((folder / "config.json").read_text())["num_attention_heads"])
    with weights_of(folder) as weights:
        for name in weights:
            if "layer.1.attention.self.value." in name:
                weights[name].unflatten(0, (heads, -1))[1] = 0


def two_layers_swapped(folder: Path) -> None:
    """Swap two layers."""
    with weights_of(folder) as weights:
        for name in [name for name in weights if ".layer.1." in name]:
            other = name.replace(".layer.1.", ".layer.2.")
            weights[name], weights[other] = weights[other], weights[name]


def a_norm_reset(folder: Path) -> None:
    """Reset a LayerNorm to its initial weights."""
    with weights_of(folder) as weights:
        for name in weights:
            if "layer.1.attention.output.LayerNorm." in name:
                weights[name].fill_(1.0 if name.endswith("weight") else 0.0)


def rounded_to_8_bits(folder: Path) -> None:
    """Round every matrix to 8 bits per weight, with one scale per matrix."""
    with weights_of(folder) as weights:
        for tensor in weights.values():
            if tensor.ndim == 2:
                scale = tensor.abs().max() / 127
                tensor.copy_((tensor / scale).round() * scale)


def attention_of_a_layer_uniform(folder: Path) -> None:
    """Zero the queries of a layer, so that its heads attend uniformly."""
    with weights_of(folder) as weights:
        for name in weights:
            if "layer.1.attention.self.query." in name:
                weights[name].zero_()


def classifier_of_another_seed(folder: Path, other: Path) -> None:
    """Copy the classifier from another seed's checkpoint."""
    theirs = {name: tensor for name, tensor in load_file(other / WEIGHTS).items() if name.startswith("classifier.")}
    with weights_of(folder) as weights:
        weights.update(theirs)


def wrong_casing(folder: Path) -> None:
    """Let the tokenizer of an uncased model keep capitals."""
    for name in ("tokenizer.json", "tokenizer_config.json"):
        data = json.loads((folder / name).read_text())
        if name == "tokenizer.json":
            data["normalizer"]["lowercase"] = False
        else:
            data["do_lower_case"] = False
        (folder / name).write_text(json.dumps(data))
    (folder / "manifest.json").unlink(missing_ok=True)


def without_padding_mask(folder: Path) -> BertForSequenceClassification:
    """Open a checkpoint, and make the model ignore the padding mask."""
    model = BertForSequenceClassification.from_pretrained(folder)
    forward = model.bert.forward
    model.bert.forward = lambda *given, **named: forward(*given, **{**named, "attention_mask": None})
    return model


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
    session: Session, wanted: Sequence[MeasureOnTask], folder: Path, seeds: Sequence[int] = (1,)
) -> Iterator[tuple[str, Side]]:
    """Yield each kind of damage with the damaged checkpoints, as one side of a comparison.

    Args:
        folder: Folder for damaged copies.
        seeds: Seeds of the checkpoints to damage.
    """
    checkpoints = {
        seed: session.checkpoint(Subject(session.model, wanted[0].task, "pretrained", seed))
        for seed in {*seeds, *(seed + 1 for seed in seeds)}
    }
    for name, damage in {**OF_WEIGHTS, "another seed's classifier": None}.items():
        copies = {}
        for seed in seeds:
            copies[seed] = folder / f"{name.replace(' ', '-').replace(chr(39), '')}-{seed}"
            shutil.copytree(checkpoints[seed], copies[seed])
            if damage is None:
                classifier_of_another_seed(copies[seed], checkpoints[seed + 1])
            else:
                damage(copies[seed])
        yield name, seeds_side(session, name, wanted, seeds, copies)
    unmasked = {seed: without_padding_mask(checkpoints[seed]) for seed in seeds}
    yield "the padding mask lost", seeds_side(session, "the padding mask lost", wanted, seeds, unmasked)


def seeds_side(
    session: Session,
    name: str,
    wanted: Sequence[MeasureOnTask],
    seeds: Sequence[int],
    checkpoints: Mapping[int, Path | BertForSequenceClassification] | None = None,
) -> Side:
    """Return one side of a comparison: the model's checkpoints of these seeds, or the given checkpoints, by seed."""

    def measure(of: MeasureOnTask, seed: int) -> Measurement:
        checkpoint = checkpoints[seed] if checkpoints else None
        given = {"init": of.initialisation, "seed": seed, "checkpoint": checkpoint, **of.options}
        return session.measure(of.measure, of.task, **given)

    return measured_side(name, f"seeds {', '.join(map(str, seeds))}", wanted, seeds, measure)


def outcomes_by_measure(comparison: Comparison) -> dict[str, str]:
    """Return the outcome of each measure, with the number of drifted cells or the reason for drift."""
    outcomes = {}
    for measure in comparison.measures:
        drifted = sum(int(difference.drifted.sum()) for difference in measure.differences)
        cells = sum(len(difference.before) for difference in measure.differences)
        how = f"{drifted} of {cells}" if measure.differences else measure.reason
        outcomes[measure.wanted.measure] = f"drift: {how}" if measure.outcome == "drift" else measure.outcome
    return outcomes


def main(arguments: Sequence[str] | None = None) -> int:
    """Run the study and return the exit code."""
    parser = argparse.ArgumentParser(description=(__doc__ or "").partition("\n")[0])
    parser.add_argument("pin", type=Path)
    parser.add_argument("--measure", action="append", default=[], help="measure; repeatable (default: all in the pin)")
    parser.add_argument("--damaged", type=int, default=1, metavar="N", help="damage seeds 1 to N (default: 1)")
    parser.add_argument("--json", type=Path, metavar="FILE", help="write the result to this file")
    add_options(parser.add_argument, OPTIONS)
    given = parser.parse_args(arguments)
    given.model = given.model or "minilm"
    try:
        result = study(given.pin, RunOptions.from_namespace(given), given.measure, given.damaged)
        if given.json:
            write_json(given.json, result)
    except UserError as error:
        print(f"damage_study: {error}", file=sys.stderr)
        return 2
    return 0


def study(place: Path, options: RunOptions, measures: Sequence[str] = (), damaged: int = 1) -> dict[str, Any]:
    """Return the drift that each kind of damage causes relative to the pin and to the checkpoint, and the false alarms.

    Raises:
        UserError: The pin cannot be read, or a measurement fails.
    """
    session = Session(options)
    pin, judge, first = side_of_pin(place), session.settings.judge, range(1, damaged + 1)
    pin = replace(pin, parts=tuple(part for part in pin.parts if not measures or part.wanted.measure in measures))
    wanted = [part.wanted for part in pin.parts]
    result: dict[str, Any] = {
        "model": session.model,
        "pin": str(place),
        **run_facts(),
        "damages": {},
        "false_alarms": {},
    }
    with tempfile.TemporaryDirectory() as temporary:
        bases = (replace(pin, name="the pin"), seeds_side(session, "itself", wanted, first))
        for name, side in damaged_sides(session, wanted, Path(temporary), first):
            outcomes = {base.name: outcomes_by_measure(compare(base, side, judge)) for base in bases}
            result["damages"][name] = outcomes
            rows = [[base, *by_measure.values()] for base, by_measure in outcomes.items()]
            print(f"{name}:\n{tabulate(rows, ['from', *(of.measure for of in wanted)], maxcolwidths=24)}\n", flush=True)
    pinned = pin.parts[0].seeds
    for seed in session.seeds:
        others = [other for other in pinned if other != seed]
        base = pin if seed not in pinned else seeds_side(session, "its other seeds", wanted, others)
        comparison = compare(base, seeds_side(session, f"seed {seed}", wanted, [seed]), judge)
        result["false_alarms"][str(seed)] = outcomes_by_measure(comparison) if comparison.drifted else "none"
        alarm = "a false alarm" if comparison.drifted else "no alarm"
        print(f"seed {seed} against the pin's {len(base.parts[0].seeds)} seeds: {alarm}", flush=True)
    return result


if __name__ == "__main__":
    sys.exit(main())
