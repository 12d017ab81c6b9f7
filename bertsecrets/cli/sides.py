"""The sides of a comparison, as the command line names them: a pin, stored measurements, a checkpoint or a model."""

import json
from collections.abc import Sequence
from dataclasses import dataclass, replace
from pathlib import Path
from typing import TYPE_CHECKING, Literal

from bertsecrets.errors import UserError, near_matches
from bertsecrets.types import InitialisationName

if TYPE_CHECKING:
    from bertsecrets.compare.sides import Side, Wanted
    from bertsecrets.session import Session
    from bertsecrets.types import Measurement

DEFAULT_TASK = "rte"  # the smallest
Kind = Literal["pin", "measurements", "checkpoint", "model"]


@dataclass(frozen=True)
class Choice:
    """The measures and tasks to compare; empty for all that a side has, or else all measures on RTE."""

    tasks: Sequence[str] = ()
    measures: Sequence[str] = ()
    initialisation: InitialisationName = "pretrained"

    def __post_init__(self) -> None:
        from bertsecrets.compare.readings import MEASURES

        for name in self.measures:
            if name not in MEASURES:
                raise UserError(f"measure {name!r} cannot be compared: {near_matches(name, MEASURES)}")

    def selects(self, wanted: "Wanted") -> bool:
        """Return whether a measure on a task is to be compared."""
        return (not self.tasks or wanted.task in self.tasks) and (not self.measures or wanted.measure in self.measures)


@dataclass(frozen=True)
class Named:
    """What an argument names; `model` is the model of stored measurements if it is given."""

    argument: str
    kind: Kind
    path: Path
    model: str | None = None


def named(argument: str) -> Named:
    """Return what an argument of `bertsecrets compare` names.

    A file is a pin. MODEL@FOLDER, or a folder with measurements, names stored measurements. A folder with a classifier
    is a checkpoint, which is measured as it is. Anything else is a model, which is fine-tuned first.
    """
    path = Path(argument)
    model, _, store = argument.rpartition("@")
    if model and Path(store).is_dir():
        return Named(argument, "measurements", Path(store), model)
    if path.is_file() or path.suffix in (".yaml", ".yml"):
        return Named(argument, "pin", path)
    if path.is_dir() and not (path / "config.json").is_file():
        return Named(argument, "measurements", path)
    return Named(argument, "checkpoint" if path.is_dir() and _classifies(path) else "model", path)


def _classifies(folder: Path) -> bool:
    """Return whether a folder has a sequence classifier, by its configuration."""
    try:
        names = json.loads((folder / "config.json").read_text(encoding="utf-8")).get("architectures") or []
    except (OSError, ValueError, AttributeError):
        return False  # opening it as a model reports the problem
    return any("ForSequenceClassification" in str(name) for name in names)


def open_sides(arguments: Sequence[str], session: "Session", choice: Choice) -> list["Side"]:
    """Return the sides that arguments name; models and checkpoints are measured for what the other side holds.

    Raises:
        UserError: a side cannot be read or measured.
    """
    names = [named(argument) for argument in arguments]
    stored = [_stored(side, session, choice) for side in names]
    for side in names:
        if side.kind == "model":
            session.check_model(side.argument)  # before anything is measured
    held = [part.wanted for ready in stored if ready is not None for part in ready.parts]
    wanted = held or wanted_of(session, choice)
    return [ready or _measured(side, session, wanted) for side, ready in zip(names, stored, strict=True)]


def wanted_of(session: "Session", choice: Choice) -> list["Wanted"]:
    """Return what to measure: all chosen measures on each task, except those that are not available.

    Raises:
        UserError: a measure that was named is not available, or none is.
    """
    from bertsecrets.compare.readings import MEASURES
    from bertsecrets.compare.sides import Wanted
    from bertsecrets.measures.registry import get_measure

    wanted, problems = [], []
    for name in choice.tasks or [DEFAULT_TASK]:
        for measure in choice.measures or MEASURES:
            problem = session.missing(measure, name)
            if problem and (choice.measures or measure != "features"):
                problems.append(problem)
            if problem is None and get_measure(measure).fits(choice.initialisation):
                wanted.append(Wanted(measure, name, choice.initialisation))
    if not wanted or (choice.measures and problems):
        raise UserError(problems[0] if problems else "no measure can be compared")
    return wanted


def model_side(session: "Session", model: str, wanted: Sequence["Wanted"]) -> "Side":
    """Return the side of a model that is fine-tuned on the session's seeds."""
    from bertsecrets.compare.sides import measured_side

    def measure(of: "Wanted", seed: int) -> "Measurement":
        return session.measurement(of.measure, of.subject(model, seed), **of.options)

    count = len(session.seeds)
    return measured_side(model, f"{count} seed{'s' if count > 1 else ''}", wanted, session.seeds, measure)


def _measured(side: Named, session: "Session", wanted: Sequence["Wanted"]) -> "Side":
    """Return the side of a model or a checkpoint."""
    from bertsecrets.compare.sides import measured_side

    if side.kind == "model":
        return model_side(session, side.argument, wanted)
    model = session.options.model
    if model is not None:
        session.check_model(model)

    def measure(of: "Wanted", seed: int) -> "Measurement":
        if model is None and of.measure == "attention-change":
            raise UserError("a checkpoint is compared with the model that it was trained from: name it with --model")
        return session.measurement(of.measure, of.subject(model or side.argument, seed), side.path, **of.options)

    return measured_side(side.argument, "checkpoint", wanted, [1], measure)


def _stored(side: Named, session: "Session", choice: Choice) -> "Side | None":
    """Return the side of a pin or of stored measurements; None for what has to be measured.

    Raises:
        UserError: it cannot be read, or holds nothing that was chosen.
    """
    if side.kind == "measurements":
        return _of_measurements(side, session, choice)
    if side.kind != "pin":
        return None
    from bertsecrets.compare.pins import side_of_pin

    pin = side_of_pin(side.path)
    parts = tuple(part for part in pin.parts if choice.selects(part.wanted))
    if not parts:
        raise UserError(f"{pin.name} holds nothing of {', '.join((*choice.tasks, *choice.measures))}")
    return replace(pin, parts=parts)


def _of_measurements(side: Named, session: "Session", choice: Choice) -> "Side":
    """Return the side of stored measurements: for each subject the latest, preferably with the session's limits."""
    from bertsecrets.compare.readings import MEASURES
    from bertsecrets.compare.sides import Side, Wanted, part_of

    options = session.options
    precision = options.precision if options.precision in ("float32", "bfloat16") else None

    def suits(stored: "Measurement") -> bool:
        return (
            stored.measure in MEASURES
            and not stored.options
            and choice.selects(Wanted(stored.measure, stored.subject.task))
            and stored.subject.initialisation == choice.initialisation
            and side.model in (None, stored.subject.model)
            and stored.provenance.train_limit == options.train_limit
            and (precision is None or stored.provenance.precision in (None, precision))
        )

    suitable = [stored for stored in _all_stored(side.path) if suits(stored)]
    models = sorted({stored.subject.model for stored in suitable})
    if not models:
        of_model = f" of {side.model}" if side.model else ""
        raise UserError(f"{side.path} has no measurements{of_model} to compare with these limits and tasks")
    if len(models) > 1:
        raise UserError(f"{side.path} has measurements of {', '.join(models)}: name one, as in {models[0]}@{side.path}")
    suitable.sort(key=lambda of: (of.provenance.limit == options.limit, of.provenance.made))
    latest: dict[tuple[str, int], dict[int, Measurement]] = {}
    for stored in suitable:
        place = (stored.subject.task, MEASURES.index(stored.measure))
        latest.setdefault(place, {})[stored.subject.seed] = stored
    parts = [
        part_of(Wanted(MEASURES[place], task, choice.initialisation), [by_seed[seed] for seed in sorted(by_seed)])
        for (task, place), by_seed in sorted(latest.items())
    ]
    return Side(side.argument, f"stored measurements of {models[0]}", tuple(parts))


def _all_stored(folder: Path) -> list["Measurement"]:
    """Return the measurements of a store, or of a folder of `measure --save`, except for those in hidden folders.

    Raises:
        UserError: one is damaged.
    """
    from bertsecrets.store.measurements import VALUES, load

    root = folder / "measurements" if (folder / "measurements").is_dir() else folder
    places = sorted(path.parent for path in root.rglob(VALUES))
    return [load(place) for place in places if not any(part[0] == "." for part in place.relative_to(root).parts)]
