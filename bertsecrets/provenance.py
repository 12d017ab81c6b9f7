"""What a result depends on besides data and weights: software, device, spaCy pipeline, pattern classifier."""

import functools
import platform
from importlib.metadata import version
from typing import Any

import torch

from bertsecrets.errors import UserError
from bertsecrets.store.files import digest

COMPUTING = ("cpu", "cuda", "mps")  # kinds of device; `meta` and its like can be named, but compute nothing


def classifier_facts() -> dict[str, Any]:
    """Which classifier names the patterns, on which annotations it was judged, and of which models these are."""
    from bertsecrets.patterns.classifier import annotated_models, chosen_folder, read_report

    report = read_report(chosen_folder())
    return {
        "classifier": report["weights_sha256"],
        "judged_on": digest(report["held_out"]),
        "annotated_models": annotated_models(report),
    }


def classifier_problem() -> str | None:
    """Why maps cannot be classified; None where they can."""
    from bertsecrets.patterns.classifier import PatternClassifier, chosen_folder, held_out_errors, read_report

    try:
        PatternClassifier.load(chosen_folder())
        held_out_errors(read_report(chosen_folder()))
    except UserError as error:
        return str(error)
    return None


@functools.cache
def pipeline_facts(name: str) -> dict[str, Any]:
    """Which spaCy pipeline tags and parses."""
    from bertsecrets.texts.parsing import describe, load_pipeline

    return describe(load_pipeline(name))


@functools.cache
def pipeline_problem(name: str) -> str | None:
    """Why a spaCy pipeline cannot be used; None where it can."""
    try:
        pipeline_facts(name)
    except UserError as error:
        return str(error)
    return None


@functools.cache
def software() -> dict[str, str]:
    """Versions of what computes."""
    from bertsecrets import __version__

    names = ("torch", "transformers", "tokenizers", "datasets", "numpy", "scipy")
    return {"python": platform.python_version(), "bertsecrets": __version__, **{n: version(n) for n in names}}


def best_device(wanted: str | None = None) -> torch.device:
    """The device named, or the GPU where there is one, else the CPU.

    Raises:
        UserError: the named device is not there, or computes nothing.
    """
    if wanted is None or wanted == "auto":
        return torch.device("cuda" if torch.cuda.is_available() else "cpu")
    try:
        device = torch.device(wanted)
        if device.type not in COMPUTING:
            raise RuntimeError(f"{device.type} is none of {', '.join(COMPUTING)}")
        torch.empty(1, device=device)
    except (RuntimeError, AssertionError) as error:
        raise UserError(f"no device {wanted!r} here: use --device cpu, or cuda where a GPU is present") from error
    return device


def device_name(device: torch.device) -> str:
    """A device in words."""
    if device.type == "cuda":
        return torch.cuda.get_device_name(device)
    return f"{device.type} ({torch.get_num_threads()} threads)"
