"""Saved states of training runs. A run that was killed can resume from its saved state.

A state is a folder that is written atomically, with tensors as safetensors, facts as JSON, and a manifest. Only the
newest state is kept. The states belong to a store entry, and the training process holds the lock of that entry.
"""

import json
import random
import shutil
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import numpy as np
import torch
from safetensors.torch import load_file, save_file
from torch import nn

from bertsecrets.errors import UserError
from bertsecrets.models.opening import OpenModel
from bertsecrets.progress import log
from bertsecrets.store.entries import damage, read_manifest, write_manifest
from bertsecrets.store.files import check_space, guarded_writes, listed, read_json, whole_folder

FACTS_FILE = "facts.json"
Tensors = dict[str, torch.Tensor]


@dataclass(frozen=True)
class State:
    """The state of a training run after `step` steps. `tensors` are nested by file and name; `facts` are JSON data."""

    step: int
    tensors: dict[str, Tensors]
    facts: dict[str, Any]


def checkpoint_bytes(classifier: OpenModel) -> int:
    """Return the size in bytes that the weights and the tokenizer of a checkpoint take up on disk."""
    weights = sum(weight.nbytes for weight in classifier.model.parameters())
    return weights + len(classifier.tokenizer.backend_tokenizer.to_str().encode())


def state_bytes(model: nn.Module) -> int:
    """Return the size in bytes that the trained weights and the two moments of AdamW take up in a saved state."""
    return 3 * sum(weight.nbytes for weight in model.parameters() if weight.requires_grad)


def save_state(folder: Path, state: State, reserved: int) -> None:
    """Write a state to the folder of a run's states, and remove older states.

    If the state cannot be written, for example because the disk is full, the problem is logged and training continues.
    `reserved` is the number of bytes that must remain free for the checkpoint.
    """
    size = sum(tensor.nbytes for tensors in state.tensors.values() for tensor in tensors.values())
    place = folder / f"step-{state.step:09d}"
    try:
        with guarded_writes(folder):
            folder.mkdir(parents=True, exist_ok=True)
            check_space("it and the checkpoint", size + reserved, folder)
            with whole_folder(place, durable=False) as temporary:  # damage by a power cut would be detected
                for name, tensors in state.tensors.items():
                    save_file(tensors, temporary / f"{name}.safetensors")
                (temporary / FACTS_FILE).write_text(json.dumps(state.facts), encoding="utf-8")
                write_manifest(temporary, {"kind": "training", "name": folder.name, "step": state.step})
    except (UserError, OSError) as error:
        log.info(f"training state after step {state.step} not saved: {error}")
        return
    for older in folder.iterdir():
        if older != place:
            shutil.rmtree(older, ignore_errors=True)


def newest(folder: Path) -> State | None:
    """Return the newest undamaged state in a folder, or None. Damaged states are removed."""
    if not folder.is_dir():
        return None
    for half in listed(folder, ".*"):
        shutil.rmtree(half, ignore_errors=True)
    for place in reversed(listed(folder, "step-*")):
        try:
            return _read(place)
        except UserError as error:
            log.info(f"ignoring the damaged training state {place}: {error}")
            shutil.rmtree(place, ignore_errors=True)
    return None


def _read(place: Path) -> State:
    problem = damage(place)
    if problem is not None:
        raise UserError(problem)
    manifest = read_manifest(place)
    if (manifest.get("kind"), manifest.get("name")) != ("training", place.parent.name):
        raise UserError("it belongs to another training run")
    if place.name != f"step-{manifest.get('step'):09d}":
        raise UserError("it belongs to another step")
    tensors = {file.stem: load_file(file) for file in listed(place, "*.safetensors")}
    return State(manifest["step"], tensors, read_json(place / FACTS_FILE))


def random_state(device: torch.device) -> tuple[Tensors, dict[str, Any]]:
    """Return the states of all random number generators, as tensors and JSON data."""
    _, words, *of_numpy = np.random.get_state(legacy=True)
    tensors = {"torch": torch.get_rng_state(), "numpy": torch.from_numpy(np.asarray(words).astype(np.int64))}
    if device.type == "cuda":
        tensors["cuda"] = torch.cuda.get_rng_state(device)
    elif device.type == "mps":
        tensors["mps"] = torch.mps.get_rng_state()
    return tensors, {"python": random.getstate(), "numpy": of_numpy}


def set_random_state(tensors: Tensors, facts: dict[str, Any], device: torch.device) -> None:
    """Set all random number generators to the states that `random_state` returned."""
    version, words, gauss = facts["python"]
    random.setstate((version, tuple(words), gauss))
    place, has_gauss, cached = facts["numpy"]
    np.random.set_state(("MT19937", tensors["numpy"].numpy().astype(np.uint32), place, has_gauss, cached))
    torch.set_rng_state(tensors["torch"])
    if device.type == "cuda":
        torch.cuda.set_rng_state(tensors["cuda"], device)
    elif device.type == "mps":
        torch.mps.set_rng_state(tensors["mps"])
