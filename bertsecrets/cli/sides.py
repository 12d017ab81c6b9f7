"""The sides of a comparison, from the words of a command: a pin, kept measurements, a checkpoint or a model."""

import json
from collections.abc import Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import TYPE_CHECKING, Literal

from bertsecrets.errors import UserError, near_matches
from bertsecrets.types import Initialisation

if TYPE_CHECKING:
    from bertsecrets.compare.sides import Side, Wanted
    from bertsecrets.session import Session
    from bertsecrets.types import Measurement, Subject

DEFAULT_TASK = "rte"  # the smallest
Kind = Literal["pin", "kept measurements", "checkpoint", "model"]


@dataclass(frozen=True)
class Named:
    """What a word names; `model` is that of kept measurements, where it is said."""

    word: str
    kind: Kind
    path: Path
    model: str | None = None


def named(word: str) -> Named:
    """Return what a word of `bertsecrets compare` names.

    A file is a pin; `MODEL@FOLDER`, or a folder with measurements, kept measurements; a folder with a classifier a
    checkpoint, which is measured as it is; anything else a model, which is fine-tuned first.
    """
    path = Path(word)
    model, at, store = word.rpartition("@")
    if at and model and Path(store).is_dir():
        return Named(word, "kept measurements", Path(store), model)
    if path.is_file() or path.suffix in (".yaml", ".yml"):
        return Named(word, "pin", path)
    if path.is_dir() and not (path / "config.json").is_file():
        return Named(word, "kept measurements", path)
    if path.is_dir() and _classifies(path):
        return Named(word, "checkpoint", path)
    return Named(word, "model", path)


def _classifies(folder: Path) -> bool:
    """Return whether a model folder holds a sequence classifier, as its configuration says."""
    try:
        config = json.loads((folder / "config.json").read_text(encoding="utf-8"))
        names = config.get("architectures") or []
    except (OSError, ValueError, AttributeError):
        return False  # whoever opens it as a model says what is wrong
    return any("ForSequenceClassification" in str(name) for name in names)


def open_sides(
    sides: Sequence[Named],
    session: "Session",
    tasks: Sequence[str],
    measures: Sequence[str],
    initialisation: Initialisation = "pretrained",
) -> list["Side"]:
    """Return the sides that words name; what a pin or kept measurements hold is measured of the others.

    Args:
        tasks, measures: those to compare; by default all that a pin or kept measurements hold, or else RTE and all.

    Raises:
        UserError: one cannot be read or measured.
    """
    ready: dict[int, Side] = {}
    for place, one in enumerate(sides):
        if one.kind == "pin":
            from bertsecrets.compare.pins import side_of_pin

            ready[place] = _part_of_side(side_of_pin(one.path), tasks, measures)
        elif one.kind == "kept measurements":
            ready[place] = _kept_side(one, session, tasks, measures, initialisation)
    held = [part.wanted for side in ready.values() for part in side.parts]
    wanted = held or wanted_of(session, tasks or [DEFAULT_TASK], measures, initialisation)
    return [ready.get(place) or _measured(one, session, wanted) for place, one in enumerate(sides)]


def wanted_of(
    session: "Session", tasks: Sequence[str], measures: Sequence[str], initialisation: Initialisation = "pretrained"
) -> list["Wanted"]:
    """Return what is to be measured: on each task all measures that are compared, without those that lack something.

    Raises:
        UserError: a measure or a task is unknown, or none can be had.
    """
    from bertsecrets.compare.readings import MEASURES
    from bertsecrets.compare.sides import Wanted
    from bertsecrets.measures.registry import get_measure
    from bertsecrets.texts.tasks import task

    check_measures(measures)
    wanted, problems = [], []
    for name in (task(name).name for name in tasks):
        for measure in measures or MEASURES:
            problem = session.missing(measure, name)
            if problem and (measures or measure != "features"):
                problems.append(problem)
            if problem is None and get_measure(measure).fits(initialisation):
                wanted.append(Wanted(measure, name, initialisation))
    if not wanted or (measures and problems):
        raise UserError(problems[0] if problems else "no measure can be compared")
    return wanted


def check_measures(measures: Sequence[str]) -> None:
    """Make sure that measures can be compared.

    Raises:
        UserError: one cannot.
    """
    from bertsecrets.compare.readings import MEASURES

    for name in measures:
        if name not in MEASURES:
            raise UserError(f"measure {name!r} cannot be compared: {near_matches(name, MEASURES)}")


def _part_of_side(side: "Side", tasks: Sequence[str], measures: Sequence[str]) -> "Side":
    """Return what a side holds of some tasks and measures; of all, where none are named.

    Raises:
        UserError: it holds nothing of them.
    """
    from dataclasses import replace

    check_measures(measures)
    parts = [
        part
        for part in side.parts
        if (not tasks or part.wanted.task in tasks) and (not measures or part.wanted.measure in measures)
    ]
    if not parts:
        raise UserError(f"{side.name} holds nothing of {', '.join((*tasks, *measures))}")
    return replace(side, parts=tuple(parts))


def _measured(one: Named, session: "Session", wanted: Sequence["Wanted"]) -> "Side":
    """Return the side of a checkpoint, or of a model, which is fine-tuned first; made now unless it is in the store."""
    from bertsecrets.compare.sides import measured_side

    if one.kind == "model":
        session.check_model(one.word)
        return model_side(session, one.word, wanted)
    model = session.options.model
    if model is not None:
        session.check_model(model)

    def measure(of: "Wanted", subject: "Subject") -> "Measurement":
        if model is None and of.measure == "attention-change":
            raise UserError("a checkpoint is compared with the model that it was trained from: name it with --model")
        return session.measurement(of.measure, subject, one.path, **of.options)

    return measured_side(one.word, "checkpoint", wanted, [1], measure, model or one.word)


def model_side(session: "Session", model: str, wanted: Sequence["Wanted"]) -> "Side":
    """Return the side of a model that is fine-tuned on the session's seeds; made now unless it is in the store."""
    from bertsecrets.compare.sides import measured_side

    def measure(of: "Wanted", subject: "Subject") -> "Measurement":
        return session.measurement(of.measure, subject, **of.options)

    count = len(session.seeds)
    kind = f"{count} seed{'s' if count > 1 else ''}"
    return measured_side(model, kind, wanted, list(session.seeds), measure, model)


def _kept_side(
    one: Named, session: "Session", tasks: Sequence[str], measures: Sequence[str], initialisation: Initialisation
) -> "Side":
    """Return the side of kept measurements: of each subject the newest with the limits of the session.

    Raises:
        UserError: there are none, or they are of several models.
    """
    from bertsecrets.compare.readings import MEASURES
    from bertsecrets.compare.sides import Side, Wanted, part_of

    check_measures(measures)
    options = session.options
    precision = options.precision if options.precision in ("float32", "bfloat16") else None

    def belongs(kept: "Measurement") -> bool:
        facts = kept.provenance
        return (
            kept.measure in (measures or MEASURES)
            and not kept.options
            and kept.subject.initialisation == initialisation
            and (not tasks or kept.subject.task in tasks)
            and (one.model is None or kept.subject.model == one.model)
            and facts.train_limit == options.train_limit
            and (precision is None or facts.precision in (None, precision))
        )

    found = [kept for kept in _all_kept(one.path) if belongs(kept)]
    models = sorted({kept.subject.model for kept in found})
    if not found:
        whose = f" of {one.model}" if one.model else ""
        raise UserError(f"{one.path} holds no measurements{whose} that can be compared, with these limits and tasks")
    if len(models) > 1:
        raise UserError(f"{one.path} holds measurements of {', '.join(models)}: name one, as in {models[0]}@{one.path}")
    newest: dict[tuple[str, str], dict[int, Measurement]] = {}
    for kept in sorted(found, key=lambda kept: (_limited(kept, options.limit), kept.provenance.made)):
        newest.setdefault((kept.subject.task, kept.measure), {})[kept.subject.seed] = kept
    parts = []
    for (task_name, measure), by_seed in newest.items():
        wanted = Wanted(measure, task_name, initialisation)
        parts.append(part_of(wanted, [by_seed[seed] for seed in sorted(by_seed)]))
    order = [*MEASURES]
    parts.sort(key=lambda part: (part.wanted.task, order.index(part.wanted.measure)))
    return Side(one.word, f"kept measurements of {models[0]}", tuple(parts))


def _limited(kept: "Measurement", wanted: int | None) -> bool:
    """Return whether a measurement has the rows that are wanted; such ones come last, and so before others."""
    return kept.provenance.limit == wanted


def _all_kept(folder: Path) -> list["Measurement"]:
    """Return the measurements of a store, or of a folder of `measure --save`; hidden folders are passed over.

    Raises:
        UserError: one is damaged.
    """
    from bertsecrets.store.measurements import VALUES, load

    root = folder / "measurements" if (folder / "measurements").is_dir() else folder
    places = sorted(path.parent for path in root.rglob(VALUES))
    return [load(place) for place in places if not any(part[0] == "." for part in place.relative_to(root).parts)]
