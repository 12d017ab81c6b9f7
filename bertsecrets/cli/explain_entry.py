"""`bertsecrets store explain`: the inputs of an entry's cache key, and why the key no longer matches."""

from collections.abc import Iterator, Mapping
from dataclasses import replace
from pathlib import Path
from typing import Any

from bertsecrets.errors import UserError
from bertsecrets.measures.registry import get_measure, request
from bertsecrets.provenance import TRAINING_MODULE, differences, made_by
from bertsecrets.session import Session
from bertsecrets.store.entries import CHECKPOINTS, Key, damage, entries, read_manifest
from bertsecrets.types import Subject


def find_entry(root: Path, text: str) -> Path:
    """Return the folder `text` if it is an entry. Otherwise, return the only entry whose name contains `text`."""
    if (Path(text) / "manifest.json").is_file():
        return Path(text)
    matching = [entry for entry in entries(root) if text in entry.name]
    if not matching:
        raise UserError(f"no entry of {root} has {text!r} in its name: see bertsecrets store ls")
    if len(matching) > 1:
        names = ", ".join([*(entry.name for entry in matching[:3]), *(["..."] if matching[3:] else [])])
        raise UserError(
            f"{len(matching)} entries of {root} have {text!r} in their names ({names}): give a longer part of the name"
        )
    return matching[0]


def explanation(entry: Path, session: Session) -> Iterator[str]:
    """Yield lines that list the inputs of an entry's cache key, and show how the session's current inputs differ."""
    manifest = read_manifest(entry)
    key = Key.of_manifest(manifest)
    if key is None:
        raise UserError(f"{entry} has no cache key: give the name of an entry that bertsecrets store ls lists")
    problem = damage(entry)
    yield f"{entry}: made {manifest.get('made')}, {f'damaged ({problem})' if problem else 'undamaged'}"
    if weights := manifest.get("weights"):
        yield f"weights: {_short(weights)}"
    yield from _parts(key)
    checkpoint = _of_checkpoint(key)
    if checkpoint is not None:
        yield "checkpoint:"
        yield from (f"  {line}" for line in _parts(checkpoint))
    yield "now:"
    lines = list(_today(manifest, key, session))
    yield from (f"  {line}" for line in lines or ["the key matches"])


def _of_checkpoint(key: Key) -> Key | None:
    """Return the key of the measured checkpoint, or None if the suite did not train the checkpoint."""
    return Key.of_manifest({"key": key.inputs.get("checkpoint")})


def _parts(key: Key) -> Iterator[str]:
    own = _of_checkpoint(key) is not None
    yield "inputs:"
    for name, value in key.inputs.items():
        if value is not None and not (own and name == "checkpoint"):
            yield f"  {name}: {_short(value)}"
    yield "made by:"
    yield f"  code: {_short(key.made_by.get('code'))}"
    yield from (f"  {name} {number}" for name, number in (key.made_by.get("software") or {}).items())
    if key.made_by.get("device"):
        yield f"  {key.made_by['device']}"


def _today(manifest: Mapping[str, Any], key: Key, session: Session) -> Iterator[str]:
    """Yield the differences between the key of an entry and the key that the same entry would get today."""
    subject = Subject(**manifest["subject"])
    subject = replace(subject, model=session.options.model or subject.model)
    measure = None if manifest.get("kind") == CHECKPOINTS else get_measure(manifest["measure"])
    if measure is None:
        now = made_by(TRAINING_MODULE, session.resources.device)
        inputs: dict[str, Any] = (
            {"finetune": session.settings.finetune.model_dump()} if key.inputs.get("finetune") else {}
        )
    else:
        now = measure.made_by(session.resources.device)
        inputs = {"version": measure.version, "settings": measure.own_settings(session.settings)}
    try:  # inputs that need the model or data, too
        if measure is None:
            inputs = session.checkpoints.key(subject).inputs
        elif measure.on_task and _of_checkpoint(key) is None:
            raise UserError("the path of the measured folder is not recorded")
        else:
            wanted = request(measure.name, subject, key.inputs.get("options") or {})
            inputs = session.measurements.key(wanted).inputs
    except UserError as error:
        yield f"model and data not compared: {error}"
    yield from _changes(key.inputs, inputs)
    yield from differences(key.made_by, now)


def _changes(before: Mapping[str, Any], now: Mapping[str, Any]) -> Iterator[str]:
    for name, value in now.items():
        old = before.get(name)
        if name == "made_by" and isinstance(old, Mapping):
            yield from (f"checkpoint {difference}" for difference in differences(old, value))
        elif isinstance(value, Mapping) and isinstance(old, Mapping):
            yield from _changes(old, value)
        elif value != old:
            yield f"{name}: {_short(value)}, not {_short(old)}"


def _short(value: Any) -> str:
    """Return a short string for a value, with digests truncated to twelve digits."""
    if isinstance(value, Mapping):
        return ", ".join(f"{name} {_short(part)}" for name, part in value.items()) or "none"
    if isinstance(value, list | tuple):
        return ", ".join(map(_short, value))
    text = str(value)
    return text[:12] if len(text) == 64 and set(text) <= set("0123456789abcdef") else text
