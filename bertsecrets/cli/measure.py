"""The command that measures: `bertsecrets measure attention-change --task rte`."""

import argparse
import json
from collections.abc import Callable, Sequence
from typing import TYPE_CHECKING, Any

from bertsecrets.cli.parsing import add_command, refuse
from bertsecrets.errors import RunError, UserError, in_short, of_the_machine, one_line
from bertsecrets.options import ROW_OPTIONS, RunOptions, add_options, path
from bertsecrets.types import INITIALISATIONS

if TYPE_CHECKING:
    from bertsecrets.measures.base import Measure
    from bertsecrets.session import Session
    from bertsecrets.types import Subject

ALL = "all"


def add_parsers(commands) -> None:
    """Add the command's options to the command line."""
    parser = add_command(
        commands,
        "measure",
        "run one measure, or all, on one model and task",
        "measure attention-change --model minilm --task rte --glue ./glue_data --json change.json",
        measure,
    )
    parser.add_argument("measure", help="scores, attention-change, special-tokens, ... or all")
    parser.add_argument(
        "--task", help="GLUE task; all measures need it except frame-heads, example-sentence and pattern-quality"
    )
    parser.add_argument(
        "--cased",
        action="store_true",
        help="for scores and attention: switch off the tokenizer's lower-casing (claim D6)",
    )
    parser.add_argument(
        "--checkpoint", type=path, help="measure this folder of a sequence classifier instead of fine-tuning one"
    )
    parser.add_argument("--init", choices=INITIALISATIONS, default="pretrained")
    parser.add_argument("--seed", type=int, default=1)
    parser.add_argument(
        "--padded-to",
        type=int,
        metavar="TOKENS",
        help="for attention-change: pad every input, as the paper's notebook does (200)",
    )
    parser.add_argument(
        "--rows",
        metavar="WHICH",
        help="for measures of attention: read rows drawn at random (default) or the first of the file (first)",
    )
    parser.add_argument(
        "--heads",
        metavar="SETS",
        help="for head-ablation: the sets to disable, such as 1.2 1.2+7.6 5 (a layer) all pairs:5 nested:1.2,7.6, "
        "counted from 1",
    )
    parser.add_argument(
        "--option",
        action="append",
        default=[],
        metavar="NAME=VALUE",
        help="any other option of the measure; repeatable",
    )
    parser.add_argument(
        "--json", type=path, metavar="FILE", help="write the measurement to this file (default: print it)"
    )
    parser.add_argument(
        "--save",
        type=path,
        metavar="DIR",
        help="also save it with its samples in this folder, for `report --measurements`",
    )
    add_options(parser.add_argument, (*ROW_OPTIONS, "keep_checkpoints", "frames", "spacy"))


def measure(options: argparse.Namespace) -> None:
    """Run one measure, or all that fit the subject.

    Raises:
        UserError: options that do not go together, or something that is needed is missing.
    """
    from bertsecrets.measures.registry import get_measure, measure_names
    from bertsecrets.session import Session
    from bertsecrets.store.entries import finite, write_json
    from bertsecrets.store.measurements import keep

    given = _given(options)
    if options.measure == ALL:
        if options.save is None or options.json is not None:
            raise UserError("measure all needs --save DIR and cannot write --json: name a single measure for that")
        refuse(options, given, "is an option of a single measure, not of all")
        chosen = [get_measure(name) for name in measure_names() if get_measure(name).common]
        chosen = [one for one in chosen if one.fits(options.init)]
    else:
        chosen = [get_measure(options.measure)]
        chosen[0].check_options(given)
    for one in chosen:
        one.check_request(options.task, options.init, options.seed, checkpoint=options.checkpoint)
    compares = any(one.compares for one in chosen)
    if options.model is None and options.checkpoint is not None and not compares:
        options.model = str(options.checkpoint)  # a checkpoint that is compared with nothing needs no other model
    session = Session(RunOptions.of(options))
    subject = session.subject(options.task, options.init, options.seed)
    if any(one.reads_model for one in chosen) and (options.checkpoint is None or compares):
        session.check_model()
    wanted = [
        (one, more)
        for one in chosen
        for more in (one.variants(session.settings) if options.measure == ALL else [given])
    ]
    if options.checkpoint is None:
        _announce(session, subject, wanted)

    def run(one: "Measure", more: dict[str, Any]) -> None:
        measurement = session.measurement(one.name, subject, options.checkpoint, **more)
        if options.save:
            keep(measurement, options.save, options.checkpoint if one.reads_model else None)
        if options.json:
            write_json(options.json, measurement.as_json())
        where = options.json or options.save
        if where is None:
            print(json.dumps(finite(measurement.as_json()), indent=1))
        else:
            stored = " (stored)" if measurement.reused else ""
            print(f"{where}: {measurement.measure} of {subject}, {measurement.examples} examples{stored}")

    if options.measure == ALL:
        _run_all(wanted, run)
    else:
        run(chosen[0], given)
    session.close()


def _announce(session: "Session", subject: "Subject", wanted: Sequence[tuple["Measure", dict[str, Any]]]) -> None:
    """Say how much disk a checkpoint and its measurements take, if it is trained now.

    Raises:
        UserError: it is not free.
    """
    from bertsecrets.jobs.disk import announce
    from bertsecrets.measures.registry import request
    from bertsecrets.types import Request

    here = [(one, more) for one, more in wanted if one.on_task and one.missing(session.resources, subject.task) is None]
    requests = [request(one.name, subject, more) for one, more in here]
    announce(session, dict.fromkeys([Request(None, subject), *requests] if requests else []))


def _run_all(measures: Sequence[tuple["Measure", dict[str, Any]]], run: Callable[["Measure", dict[str, Any]], None]):
    """Run every measure with its options; one that fails does not take the others with it.

    Raises:
        UserError: some failed; each has been named on a line of its own.
        Exception: a bug, once all others have run.
    """
    failed: list[str] = []
    crash: Exception | None = None
    for one, more in measures:
        try:
            run(one, more)
        except RunError:
            raise
        except Exception as error:
            line = str(error) if isinstance(error, UserError) else of_the_machine(error)
            crash = crash or (error if line is None else None)
            failed.append(" ".join([one.name, *(f"{name}={value}" for name, value in more.items())]))
            print(f"{failed[-1]} failed: {one_line(line or in_short(error))}")
    if crash is not None:
        raise crash
    if failed:
        names = ", ".join(failed)
        raise UserError(f"{len(failed)} of {len(measures)} measurements failed ({names}); the others are saved")


def _given(options: argparse.Namespace) -> dict[str, Any]:
    """Return the options of the measure itself that were given.

    Raises:
        UserError: an `--option` that is not NAME=VALUE.
    """
    named = {
        "padded_to": options.padded_to,
        "rows": options.rows,
        "heads": options.heads,
        "cased": options.cased or None,
    }
    given: dict[str, Any] = {name: value for name, value in named.items() if value is not None}
    for text in options.option:
        name, equals, value = text.partition("=")
        if not name or not equals:
            raise UserError(f"--option {text!r} is not of the form NAME=VALUE")
        given[name.replace("-", "_")] = value
    return given
