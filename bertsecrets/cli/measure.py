"""The command `measure`, as in `bertsecrets measure attention-change --task rte`."""

import argparse
import json
from collections.abc import Sequence
from typing import TYPE_CHECKING, Any

from bertsecrets.cli.outputs import check_output_files, check_output_folder
from bertsecrets.errors import (
    NotApplicableError,
    NotGivenError,
    RunError,
    UserError,
    in_short,
    of_the_machine,
    one_line,
)
from bertsecrets.options import (
    INITIALISATION_OPTION,
    ROW_OPTIONS,
    RunOptions,
    add_command,
    add_run_options,
    path,
    whole_number,
)
from bertsecrets.progress import counted, log

if TYPE_CHECKING:
    from bertsecrets.measures.base import Measure
    from bertsecrets.session import Session
    from bertsecrets.types import Subject

    Run = tuple[Measure, dict[str, Any]]  # a measure and its options

ALL_MEASURES = "all"


def add_parsers(commands) -> None:
    """Add the command and its options to the command line."""
    parser = add_command(
        commands,
        measure,
        "run one or all measures on one model and task",
        "attention-change --model minilm --task rte --glue ./glue_data --json change.json",
    )
    parser.add_argument("measure", metavar="MEASURE", help="scores, attention-change, special-tokens, ... or all")
    parser.add_argument("--task", help="GLUE task; not needed for measures that do not run on a task")
    parser.add_argument("--init", default="pretrained", **INITIALISATION_OPTION)
    parser.add_argument("--seed", type=whole_number, default=1, metavar="N", help="fine-tuning seed (default: 1)")
    parser.add_argument(
        "--checkpoint", type=path, metavar="DIR", help="measure this sequence classifier instead of fine-tuning one"
    )
    parser.add_argument("--json", type=path, metavar="FILE", help="write the measurement as JSON (default: print it)")
    parser.add_argument(
        "--save", type=path, metavar="DIR", help="save the measurement with its samples, for `report --measurements`"
    )
    parser.add_argument(
        "--heads",
        metavar="SETS",
        help="for head-ablation: sets of heads to disable, separated by spaces, such as 1.2 (layer 1, head 2), "
        "1.2+7.6, 5 (all heads of layer 5), all, pairs:5 or nested:1.2,7.6",
    )
    parser.add_argument(
        "--option",
        action="append",
        default=[],
        metavar="NAME=VALUE",
        help="option of the measure, such as padded_to=200, rows=first or cased=true; repeatable",
    )
    add_run_options(parser, (*ROW_OPTIONS, "keep_checkpoints", "frames", "spacy"))


def measure(options: argparse.Namespace) -> None:
    """Run one measure, or all measures that apply to the model and task."""
    from bertsecrets.ablation.head_sets import parse_sets
    from bertsecrets.measures.registry import get_measure, measure_names
    from bertsecrets.models.configuration import shape_of
    from bertsecrets.session import Session

    check_output_files([options.json])
    check_output_folder(options.save)
    given = _given(options)
    if options.measure == ALL_MEASURES:
        if options.save is None or options.json is not None:
            raise UserError(
                "`measure all` requires --save DIR and cannot write JSON: to use --json, name a single measure"
            )
        if given:
            raise UserError(f"option {next(iter(given))} cannot be used with `measure all`: leave out this option")
        measures = [get_measure(name) for name in measure_names()]
        measures = [measure for measure in measures if measure.common and measure.fits(options.init)]
    else:
        measures = [get_measure(options.measure)]
        measures[0].check_options(given)
    for measure in measures:
        measure.check_request(options.task, options.init, options.seed, checkpoint=options.checkpoint)
    compares = any(measure.compares for measure in measures)
    if options.model is None and options.checkpoint is not None and not compares:
        options.model = str(options.checkpoint)
    session = Session(RunOptions.from_namespace(options))
    subject = session.subject(options.task, options.init, options.seed)
    if any(measure.reads_model for measure in measures) and (options.checkpoint is None or compares):
        session.check_model()
    if "heads" in given and options.checkpoint is None and (shape := shape_of(session.ref(session.model))) is not None:
        parse_sets(given["heads"], *shape)  # before training
    if options.measure == ALL_MEASURES:
        runs = [(measure, values) for measure in measures for values in measure.variants(session.settings)]
        _run_all(session, subject, runs, options)
    else:
        _run(session, subject, measures[0], given, options)
    session.close()


def _run(
    session: "Session", subject: "Subject", measure: "Measure", values: dict[str, Any], options: argparse.Namespace
) -> None:
    from bertsecrets.store.entries import finite, write_json
    from bertsecrets.store.measurements import save_to_folder

    measurement = session.measurement(measure.name, subject, options.checkpoint, **values)
    about = options.checkpoint if options.checkpoint is not None and measure.on_task else subject
    problem = measure.degenerate(measurement)
    for remark in [*([problem] if problem else []), *measure.remarks(measurement)]:
        log.warning(f"{measure.name} of {about}: {remark}")
    if options.save:
        save_to_folder(measurement, options.save, options.checkpoint if measure.reads_model else None)
    if options.json:
        write_json(options.json, measurement.as_json())
    if not (options.json or options.save):
        print(json.dumps(finite(measurement.as_json()), indent=1))
        return
    reused = " (reused from the store)" if measurement.reused else ""
    what = f"{measure.name} of {about}, {counted(measurement.examples, 'example')}{reused}"
    print(f"wrote {options.json or options.save}: {what}")


def _run_all(session: "Session", subject: "Subject", runs: "Sequence[Run]", options: argparse.Namespace) -> None:
    """Run every measure, even if some of them fail or do not apply to the model."""
    failed: list[str] = []
    not_applicable: list[str] = []
    bug: Exception | None = None
    for measure, values in runs:
        try:
            _run(session, subject, measure, values, options)
        except RunError:
            raise
        except Exception as error:
            line = str(error) if isinstance(error, UserError) else of_the_machine(error)
            bug = bug or (error if line is None else None)
            applies = not isinstance(error, NotApplicableError) or isinstance(error, NotGivenError)
            name = " ".join([measure.name, *(f"{name}={value}" for name, value in values.items())])
            (failed if applies else not_applicable).append(name)
            print(f"{name} {'failed' if applies else 'is not applicable'}: {one_line(line or in_short(error))}")
    if bug is not None:
        raise bug
    if len(not_applicable) == len(runs):
        raise UserError("no measure is applicable to this model: choose another model")
    if failed:
        raise UserError(f"{len(failed)} of {len(runs)} measurements failed ({', '.join(failed)}); all others are saved")


def _given(options: argparse.Namespace) -> dict[str, Any]:
    """Return the values of `--heads` and `--option`, by option name."""
    given: dict[str, Any] = {} if options.heads is None else {"heads": options.heads}
    for text in options.option:
        name, equals, value = text.partition("=")
        if not name or not equals:
            raise UserError(f"--option {text!r} must have the form NAME=VALUE")
        name = name.replace("-", "_")
        if name in given:
            raise UserError(f"option {name} is given twice: give it once")
        given[name] = value
    return given
