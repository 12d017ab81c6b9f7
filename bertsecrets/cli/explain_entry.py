"""`bertsecrets store explain`: what the key of an entry consists of, and why it does not match today."""

from collections.abc import Iterator, Mapping
from pathlib import Path
from typing import Any

from bertsecrets.errors import UserError
from bertsecrets.measures.base import Measure, Run
from bertsecrets.measures.registry import get_measure
from bertsecrets.models.locations import ModelRef
from bertsecrets.provenance import TRAINING, differences, made_by
from bertsecrets.session import Session
from bertsecrets.store.entries import CHECKPOINTS, DROPPED, Key, damage, entries, read_manifest
from bertsecrets.types import Subject


def find_entry(root: Path, text: str) -> Path:
    """Return the entry of a store, named by its folder or by a part of its name that no other entry has.

    Raises:
        UserError: there is none, or several.
    """
    if (Path(text) / "manifest.json").is_file():
        return Path(text)
    matching = [entry for entry in entries(root) if text in entry.name]
    if not matching:
        raise UserError(f"no entry of {root} has {text!r} in its name: bertsecrets store ls lists them")
    if len(matching) > 1:
        names = ", ".join(entry.name for entry in matching[:3])
        raise UserError(
            f"{len(matching)} entries of {root} have {text!r} in their names ({names}, ...): give more of it"
        )
    return matching[0]


def explanation(entry: Path, session: Session) -> Iterator[str]:
    """Yield the lines that explain an entry.

    Args:
        session: with the settings, device, model and data to compare with.

    Raises:
        UserError: its manifest cannot be read, or has no key.
    """
    manifest = read_manifest(entry)
    key = Key.of_manifest(manifest)
    if key is None:
        raise UserError(f"{entry} has no key: it is not an entry of a store")
    problem = damage(entry)
    yield f"{entry}: made {manifest.get('made')}, {f'damaged ({problem})' if problem else 'undamaged'}"
    if manifest.get("kind") == DROPPED:
        yield "weights: dropped"
    yield "asked for:"
    yield from (f"  {name}: {_short(value)}" for name, value in key.inputs.items() if value is not None)
    yield "made by:"
    yield f"  code: {_short(key.made_by.get('code'))}"
    yield from (f"  {name} {number}" for name, number in (key.made_by.get("software") or {}).items())
    if key.made_by.get("device"):
        yield f"  {key.made_by['device']}"
    yield "today:"
    lines = list(_today(manifest, key, session))
    yield from (f"  {line}" for line in lines)
    if not lines:
        yield "  it fits"


def _today(manifest: Mapping[str, Any], key: Key, session: Session) -> Iterator[str]:
    """Yield the differences between a key and that of the same request today, and what could not be compared."""
    subject = Subject(**manifest["subject"])
    if manifest.get("kind") in (CHECKPOINTS, DROPPED):
        measure = None
        now = made_by(TRAINING, session.resources.device)
        settings = {"finetune": session.settings.finetune.model_dump()} if key.inputs.get("finetune") else {}
        before = {"finetune": key.inputs.get("finetune")}
    else:
        measure = get_measure(manifest["measure"])
        now = measure.made_by(session.resources.device)
        if measure.version != key.inputs.get("version"):
            yield f"version {measure.version} of the measure, not {key.inputs.get('version')}"
        settings = {"settings": measure.own_settings(session.settings)}
        before = {"settings": key.inputs.get("settings")}
    if key.inputs.get("device") not in (None, session.resources.device.type):
        yield f"measured on {session.resources.device.type}, not on {key.inputs['device']}: see --device"
    else:
        yield from differences(key.made_by, now)
    for section, values in settings.items():
        for name, value in values.items():
            old = (before[section] or {}).get(name)
            if old != value:
                yield f"{name} is {value} in the settings, not {old}"
    yield from _weights(measure, key, subject, session)
    yield from _data(measure, key, subject, session)


def _weights(measure: Measure | None, key: Key, subject: Subject, session: Session) -> Iterator[str]:
    if measure is not None and not measure.reads_model:
        return
    name = session.options.model or subject.model
    try:
        ref = session.ref(name)
        base = {"encoder": ref.identity(), "tokenizer": ref.tokenizer()}
    except UserError as error:
        yield f"model not compared: {error}"
        return
    if measure is None:
        before = {"encoder": key.inputs.get("model"), "tokenizer": key.inputs.get("tokenizer")}
    elif not measure.on_task:
        encoder = ModelRef.in_folder(ref.folder())
        base = {"encoder": encoder.identity(), "tokenizer": encoder.tokenizer()}
        before = {"encoder": key.inputs.get("checkpoint"), "tokenizer": key.inputs.get("tokenizer")}
    else:
        compared = key.inputs.get("base")
        before = dict(zip(base, compared, strict=True)) if compared else {}
        trained = (folder for kind in (CHECKPOINTS, DROPPED) for folder in (session.store.root / kind).glob("[!.]*"))
        weights = {ModelRef.in_folder(folder).identity() for folder in trained}
        if key.inputs.get("checkpoint") not in weights:
            yield "no checkpoint in the store has the weights that were measured"
    yield from (f"another {part} in {name}" for part in before if before[part] != base[part])


def _data(measure: Measure | None, key: Key, subject: Subject, session: Session) -> Iterator[str]:
    rows = session.resources.rows
    asked, split = ("train", "training rows") if measure is None else ("data", "texts")
    on_task = measure is None or measure.on_task
    if key.inputs.get(asked) is None:
        return
    if on_task and not session.options.glue_folders:
        yield f"{split} not compared: give --glue, and the limits"
        return
    try:
        if measure is None:
            now = rows.split(subject.task, "train").fingerprint
        else:
            asked_for = measure.check_options(key.inputs.get("options") or {})
            now = measure.fingerprint(Run(subject, asked_for, session.resources))
            if facts := _facts_of_needs(measure, key, session):
                yield f"other {', '.join(facts)}"
    except UserError as error:
        yield f"{split} not compared: {error}"
        return
    if now != key.inputs[asked]:
        yield f"other {split}, or other limits"


def _facts_of_needs(measure: Measure, key: Key, session: Session) -> list[str]:
    """Return the names of other needs, such as the pipeline, that differ."""
    before = key.inputs.get("settings") or {}
    own = measure.own_settings(session.settings)
    now = measure.settings(session.resources)
    return [name for name in now if name not in own and now[name] != before.get(name)]


def _short(value: Any) -> str:
    """Return a value as short text; a digest as its first twelve digits."""
    if isinstance(value, Mapping):
        return ", ".join(f"{name} {_short(part)}" for name, part in value.items()) or "none"
    if isinstance(value, list | tuple):
        return ", ".join(map(_short, value))
    text = str(value)
    return text[:12] if len(text) == 64 and set(text) <= set("0123456789abcdef") else text
