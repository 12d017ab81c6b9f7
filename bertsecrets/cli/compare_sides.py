"""The two sides of a comparison on the command line. A side is a pin, stored measurements, a checkpoint or a model."""

import json
from collections.abc import Sequence
from dataclasses import dataclass, replace
from itertools import groupby
from operator import itemgetter
from pathlib import Path
from typing import TYPE_CHECKING, Literal

from bertsecrets.errors import NotGivenError, UserError, near_matches
from bertsecrets.progress import counted
from bertsecrets.reading import expanded
from bertsecrets.store.files import visible_files
from bertsecrets.types import InitialisationName

if TYPE_CHECKING:
    from bertsecrets.compare.sides import MeasureOnTask, Part, Side
    from bertsecrets.session import Session
    from bertsecrets.types import Measurement

DEFAULT_TASK = "rte"  # the smallest task


@dataclass(frozen=True)
class Selection:
    """The measures and tasks to compare.

    By default, all measures and tasks of the stored sides are compared. If neither side is stored, all measures are
    compared on RTE.
    """

    tasks: Sequence[str] = ()
    measures: Sequence[str] = ()
    initialisation: InitialisationName = "pretrained"

    def __post_init__(self) -> None:
        from bertsecrets.compare.cell_values import COMPARED_MEASURES

        for name in self.measures:
            if name not in COMPARED_MEASURES:
                raise UserError(f"measure {name!r} cannot be compared: {near_matches(name, COMPARED_MEASURES)}")

    def selects(self, wanted: "MeasureOnTask") -> bool:
        """Return whether the selection includes a measure on a task."""
        return (not self.tasks or wanted.task in self.tasks) and (not self.measures or wanted.measure in self.measures)


@dataclass(frozen=True)
class SideSource:
    """The source of one side, parsed from an argument. `model` is None unless it has the form MODEL@FOLDER."""

    argument: str
    kind: Literal["pin", "measurements", "checkpoint", "model"]
    path: Path
    model: str | None = None

    @classmethod
    def parse(cls, argument: str) -> "SideSource":
        """Parse an argument.

        A file is a pin. MODEL@FOLDER and folders that contain no model refer to stored measurements. A folder that
        contains a sequence classifier is a checkpoint, which is measured without training. Any other argument names a
        model, which is fine-tuned before it is measured.
        """
        path = expanded(argument)
        model, _, store = argument.rpartition("@")
        if model and expanded(store).is_dir():
            return cls(argument, "measurements", expanded(store), model)
        if path.suffix == ".zip":
            from bertsecrets.store.records import check_not_file

            check_not_file(path)
        if path.is_file() or path.suffix in (".yaml", ".yml"):
            return cls(argument, "pin", path)
        if path.is_dir() and not (path / "config.json").is_file():
            return cls(argument, "measurements", path)
        return cls(argument, "checkpoint" if _is_classifier(path) else "model", path)


def _is_classifier(folder: Path) -> bool:
    try:
        names = json.loads((folder / "config.json").read_text(encoding="utf-8")).get("architectures") or []
    except (OSError, ValueError, AttributeError):
        return False  # a damaged configuration is reported when the folder is opened as a model
    return any("ForSequenceClassification" in str(name) for name in names)


def open_sides(arguments: Sequence[str], session: "Session", selection: Selection) -> list["Side"]:
    """Return the two sides of a comparison. If one side is stored, the other is measured with the same measures."""
    sources = [SideSource.parse(argument) for argument in arguments]
    stored = [_stored(source, session, selection) for source in sources]
    for source in sources:
        if source.kind == "model":
            session.check_model(source.argument)  # before anything is measured
    in_store = [part.wanted for side in stored if side is not None for part in side.parts]
    trains = any(source.kind == "model" for source in sources)
    wanted = in_store or wanted_of(session, selection, trains=trains)
    _check_training(sources, stored, session, wanted)
    if None in stored:
        check_rows([part for side in stored if side is not None for part in side.parts], session)
    pinned = any(source.kind == "pin" for source in sources)  # a regression must not hide in a measure left out
    return [
        side or _measured(source, session, wanted, required=pinned)
        for source, side in zip(sources, stored, strict=True)
    ]


def _check_training(
    sources: Sequence[SideSource],
    stored: Sequence["Side | None"],
    session: "Session",
    wanted: Sequence["MeasureOnTask"],
) -> None:
    """Check that both sides have the same number of training rows for at least one task, before measuring anything."""
    from bertsecrets.compare.sides import rows_of, training_difference
    from bertsecrets.models.initialisations import get_initialisation
    from bertsecrets.models.locations import ModelRef

    def trained_on(source: SideSource, side: "Side | None", of: "MeasureOnTask") -> str | None:
        if side is not None:
            return next((part.trained_on for part in side.parts if part.wanted == of), None)
        if source.kind == "model":
            return rows_of(session.resources.rows.cut(of.task, "train"))
        manifest = ModelRef.in_folder(source.path).manifest()
        return rows_of(manifest.get("train_limit")) if manifest else None

    trained = [of for of in wanted if get_initialisation(of.initialisation).trains]
    sides = [*zip(sources, stored, strict=True)]
    differences = [training_difference(*(trained_on(*side, of) for side in sides)) for of in trained]
    if differences and all(differences):
        raise UserError(differences[0])


def check_rows(parts: Sequence["Part"], session: "Session") -> None:
    """Check that at least one part has the rows that the session will measure, before measuring anything."""
    from bertsecrets.compare.sides import examples_difference
    from bertsecrets.measures.base import MeasureContext
    from bertsecrets.measures.registry import get_measure

    differences = []
    for part in parts:
        measure = get_measure(part.measure)
        context = MeasureContext(part.wanted.subject("", 1), measure.check_options(part.options), session.resources)
        try:
            facts, examples = measure.data_facts(context), len(measure.rows(context))
        except UserError:  # raised again when the measure is run
            return
        if part.data in ("", facts["data_fingerprint"]):
            return
        rows = (facts["data_fingerprint"], examples, facts["limit"])
        differences.append(examples_difference((part.data, part.examples, part.limit), rows))
    if differences:
        raise UserError(differences[0])


def wanted_of(session: "Session", selection: Selection, *, trains: bool = True) -> list["MeasureOnTask"]:
    """Return each combination of a selected measure and task that can be measured.

    Training rows are required only if `trains` is True.
    """
    from bertsecrets.compare.cell_values import COMPARED_MEASURES
    from bertsecrets.compare.sides import MeasureOnTask
    from bertsecrets.measures.registry import get_measure

    resources = replace(session.resources, rows=replace(session.resources.rows, trains=trains))
    wanted, problems = [], []
    for name in selection.tasks or [DEFAULT_TASK]:
        for measure in selection.measures or COMPARED_MEASURES:
            problem = get_measure(measure).missing(resources, name)
            if problem and (selection.measures or measure != "features"):
                problems.append(problem)
            if problem is None and get_measure(measure).fits(selection.initialisation):
                wanted.append(MeasureOnTask(measure, name, selection.initialisation))
    if not wanted or (selection.measures and problems):
        raise UserError(problems[0] if problems else "no measure supports this --init: choose another initialisation")
    return wanted


def model_side(session: "Session", model: str, wanted: Sequence["MeasureOnTask"], **options: bool) -> "Side":
    """Fine-tune and measure a model with each seed, and return a side. `options` are those of `measured_side`."""
    from bertsecrets.compare.sides import measured_side
    from bertsecrets.jobs.plan import plan_of, remaining
    from bertsecrets.jobs.prepare import run_jobs
    from bertsecrets.measures.registry import request

    def measure(of: "MeasureOnTask", seed: int) -> "Measurement":
        return session.measurement(of.measure, of.subject(model, seed), **of.options)

    if session.jobs > 1 and session.options.checkpoint is None:
        subjects = [(of, of.subject(model, seed)) for of in wanted for seed in session.seeds]
        requests = [request(of.measure, subject, of.options) for of, subject in subjects]
        if left := remaining(session, plan_of(requests)):
            run_jobs(session, left)
    seeds = counted(len(session.seeds), "seed")
    return measured_side(model, seeds, wanted, session.seeds, measure, **options)


def _measured(source: SideSource, session: "Session", wanted: Sequence["MeasureOnTask"], *, required: bool) -> "Side":
    from bertsecrets.compare.sides import measured_side

    if source.kind == "model":
        return model_side(session, source.argument, wanted, required=required)
    model = session.options.model
    if model is not None:
        session.check_model(model)

    def measure(of: "MeasureOnTask", seed: int) -> "Measurement":
        if model is None and of.measure == "attention-change":
            raise NotGivenError("needs the pretrained model of the checkpoint: name it with --model")
        return session.measurement(of.measure, of.subject(model or source.argument, seed), source.path, **of.options)

    return measured_side(source.argument, "checkpoint", wanted, [1], measure, required=required)


def _stored(source: SideSource, session: "Session", selection: Selection) -> "Side | None":
    """Return a side that is a pin or stored measurements, or None if the side must be measured."""
    if source.kind == "measurements":
        return _of_measurements(source, session, selection)
    if source.kind != "pin":
        return None
    from bertsecrets.compare.pins import side_of_pin

    pin = side_of_pin(source.path)
    parts = tuple(part for part in pin.parts if selection.selects(part.wanted))
    if not parts:
        raise UserError(
            f"{pin.name} has no measurements of {', '.join((*selection.tasks, *selection.measures))}: "
            "choose other tasks or measures"
        )
    return replace(pin, parts=parts)


def _of_measurements(source: SideSource, session: "Session", selection: Selection) -> "Side":
    """Return a side of stored measurements. Of several copies, use the latest, if possible with the session's limit."""
    from bertsecrets.compare.cell_values import COMPARED_MEASURES
    from bertsecrets.compare.sides import MeasureOnTask, Side, part_of
    from bertsecrets.store.measurements import VALUES_FILE, load
    from bertsecrets.store.records import RECORD_FILE, read_record

    options = session.options
    precision = options.precision if options.precision in ("float32", "bfloat16") else None

    def suits(stored: "Measurement") -> bool:
        return (
            stored.measure in COMPARED_MEASURES
            and not stored.options
            and selection.selects(MeasureOnTask(stored.measure, stored.subject.task))
            and stored.subject.initialisation == selection.initialisation
            and source.model in (None, stored.subject.model)
            and stored.provenance.train_limit == options.train_limit
            and (precision is None or stored.provenance.precision in (None, precision))
        )

    root = source.path / "measurements"  # in a store; `measure --save` folders have no such subfolder
    root = root if root.is_dir() else source.path
    places = sorted(file.parent for file in visible_files(root, VALUES_FILE))
    recorded = [each for file in visible_files(root, RECORD_FILE) for each in read_record(file)[1]]
    suitable = [stored for stored in [*map(load, places), *recorded] if suits(stored)]
    models = sorted({stored.subject.model for stored in suitable})
    if not models:
        of_model = f" of {source.model}" if source.model else ""
        raise UserError(
            f"{source.path} has no measurements{of_model} with these limits and tasks: "
            "choose other values for --task, --init or --train-limit"
        )
    if len(models) > 1:
        raise UserError(
            f"{source.path} has measurements of {', '.join(models)}: "
            f"name one of these models, as in {models[0]}@{source.path}"
        )
    suitable.sort(key=lambda stored: (stored.provenance.limit == options.limit, stored.provenance.made))
    latest = {(of.subject.task, COMPARED_MEASURES.index(of.measure), of.subject.seed): of for of in suitable}
    parts = [
        part_of(MeasureOnTask(COMPARED_MEASURES[place], task, selection.initialisation), [latest[key] for key in keys])
        for (task, place), keys in groupby(sorted(latest), itemgetter(0, 1))
    ]
    return Side(source.argument, f"stored measurements of {models[0]}", tuple(parts))
