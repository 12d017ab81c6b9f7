"""The commands `compare` (compare two sides) and `pin` (record a model for later comparisons)."""

import argparse
from dataclasses import replace
from pathlib import Path
from typing import TYPE_CHECKING

from bertsecrets.cli.compare_sides import Selection, model_side, open_sides, wanted_of
from bertsecrets.cli.outputs import check_output_files, refuse
from bertsecrets.errors import UserError, check_extra, excerpt
from bertsecrets.option_checks import check_initialisation
from bertsecrets.options import INITIALISATION_OPTION, ROW_OPTIONS, RunOptions, add_command, add_run_options, path
from bertsecrets.progress import counted
from bertsecrets.texts.tasks import task

if TYPE_CHECKING:
    from bertsecrets.report.findings import Findings

SIDE_HELP = (
    "a pin file, stored measurements (MODEL@STORE or a folder), a folder with a classifier to measure without "
    "training, a model to fine-tune first, or a .json file of verdicts written by report --json"
)

# The arguments that a comparison of two files of verdicts reads. All other options have no effect on it.
VERDICT_OPTIONS = {"words", "command", "run", "before", "after", "fail_on", "html", "markdown"}


def add_parsers(commands) -> None:
    """Add the commands and their options to the command line."""
    comparing = add_command(
        commands,
        compare,
        "test for drift between models, checkpoints or pins, or compare two files of verdicts",
        "expected/variants/minilm.yaml ./checkpoint --glue ./glue_data",
    )
    comparing.add_argument("before", metavar="A", help=f"the reference: {SIDE_HELP}")
    comparing.add_argument("after", metavar="B", help="the side to test for drift; it takes the same forms as A")
    comparing.add_argument(
        "--fail-on", choices=("worse",), help="for files of verdicts: exit with 1 if a verdict got worse"
    )
    comparing.add_argument("--json", type=path, metavar="FILE", help="write the comparison as JSON")
    comparing.add_argument("--html", type=path, metavar="FILE", help="write the comparison as an HTML page")
    comparing.add_argument("--markdown", type=path, metavar="FILE", help="write the comparison as Markdown")

    pinning = add_command(
        commands,
        pin,
        "record a model's measurements, to detect drift later",
        '--model minilm --seeds 5 --reason "first release" --glue ./glue_data',
    )
    pinning.add_argument("--reason", required=True, help="why the model is pinned, or what changed since the last pin")
    pinning.add_argument(
        "--checkpoint",
        type=path,
        metavar="DIR",
        help="pin this checkpoint instead of fine-tuning; give its task (--task) and its pretrained model (--model)",
    )
    pinning.add_argument("--output", type=path, metavar="FILE", help="pin file (default: expected/variants/MODEL.yaml)")

    for parser in (comparing, pinning):
        parser.add_argument("--task", action="append", default=[], help="GLUE task; repeatable (default: rte)")
        parser.add_argument(
            "--measure", action="append", default=[], metavar="NAME", help="use only this measure; repeatable"
        )
        parser.add_argument("--init", **INITIALISATION_OPTION)
        add_run_options(parser, (*ROW_OPTIONS, "seeds", "spacy"))


def _selection(options: argparse.Namespace) -> Selection:
    tasks = [task(name).name for name in options.task]
    return Selection(tasks, options.measure, check_initialisation(options.init or "pretrained"))


def compare(options: argparse.Namespace) -> int:
    """Compare two sides, print their differences, and write the requested files.

    Return 1 if there is drift or, with `--fail-on worse`, if a verdict got worse. Otherwise, return 0.
    """
    from bertsecrets.store.files import write_whole

    check_output_files([options.json, options.html, options.markdown])
    if options.html:
        check_extra("report")
    of_runs = options.before.endswith(".json") and options.after.endswith(".json")
    for side, other in ((options.before, options.after), (options.after, options.before)):
        if not of_runs and side.endswith(".json"):
            raise UserError(f"{side} is a .json file of verdicts, but {other} is not: give two files of verdicts")
    findings, failed = _compare_verdicts(options) if of_runs else _compare_models(options)
    print(findings.text())
    if options.markdown:
        write_whole(options.markdown, findings.markdown())
    if options.html:
        from bertsecrets.report.html import comparison_page  # needs the extra `report`

        write_whole(options.html, comparison_page(findings))
    return int(failed)


def _compare_models(options: argparse.Namespace) -> tuple["Findings", bool]:
    from bertsecrets.compare.comparison import compare as compared
    from bertsecrets.report.findings import drift_findings
    from bertsecrets.session import Session
    from bertsecrets.store.entries import write_json

    refuse(options, ["fail_on"], "applies only to files of verdicts")
    session = Session(RunOptions.from_namespace(options))
    before, after = open_sides([options.before, options.after], session, _selection(options))
    comparison = compared(before, after, session.settings.judge)
    if options.json:
        write_json(options.json, comparison.data)
    return drift_findings(comparison), comparison.drifted


def _compare_verdicts(options: argparse.Namespace) -> tuple["Findings", bool]:
    from bertsecrets.compare.baseline import other_rows
    from bertsecrets.compare.changes import Changes, read_verdicts_file
    from bertsecrets.report.findings import change_findings

    refuse(options, sorted(vars(options).keys() - VERDICT_OPTIONS), "has no effect on files of verdicts")
    changes = Changes(*(read_verdicts_file(Path(name)) for name in (options.before, options.after)))
    for pair in changes.verdicts:
        if pair.before and pair.after and (difference := other_rows(pair.before, pair.after)):
            sides = f"{options.before} and {options.after} were measured on different rows"
            raise UserError(f"{sides} ({excerpt(difference, 200)}): compare runs on the same rows")
    findings = change_findings(changes)
    failed = [change.after for change in changes.of_kind("worse") if change.after and change.after.verdict is None]
    if options.fail_on and failed:
        error = f"{failed[0].id} ended in an error ({excerpt(failed[0].reason, 200)})"
        raise UserError(f"{options.after}: {error}: judge this claim again")
    if options.fail_on is None or changes.of_kind("worse"):
        return findings, options.fail_on is not None
    if not any(change.before and change.after for change in changes.verdicts):
        raise UserError(
            f"{options.before} and {options.after} have no claim in common: compare runs of the same claims"
        )
    if changes.after.incomplete:
        raise UserError(f"{options.after} is incomplete ({changes.after.incomplete}): compare a complete run")
    return findings, False


def pin(options: argparse.Namespace) -> None:
    """Measure either a model across several seeds or a single checkpoint, and write the pin."""
    from bertsecrets.compare.comparison import errors_over_examples
    from bertsecrets.compare.pins import MIN_PIN_SEEDS, check_reason, default_place, pin_of, write_pin
    from bertsecrets.session import Session
    from bertsecrets.store.files import check_writable

    choice, of_checkpoint = _selection(options), options.checkpoint is not None
    session = Session(RunOptions.from_namespace(options).judging(options.checkpoint, choice.tasks))
    place = options.output or default_place(session.model)
    earlier = check_reason(place, options.reason)
    check_writable(place)
    if len(session.seeds) < MIN_PIN_SEEDS and not of_checkpoint:
        raise UserError(f"a pin needs a standard deviation over seeds: use --seeds {MIN_PIN_SEEDS} or more, ideally 5")
    session.check_model()
    wanted = wanted_of(session, choice, trains=not of_checkpoint)
    side = model_side(session, session.model, wanted, stop_on_collapse=True)
    if of_checkpoint:
        judge = session.settings.judge
        parts = (part.model_copy(update={"errors": errors_over_examples(part, judge)}) for part in side.parts)
        side = replace(side, parts=tuple(parts))
    ref = session.ref(session.model)
    made = pin_of(side, session.model, options.reason, earlier, weights=ref.identity(), tokenizer=ref.tokenizer())
    write_pin(place, made)
    for name, why in side.left_out.items():
        print(f"left out: {name}: {why}")
    numbers = sum(values.mean.size for part in side.parts for values in part.quantities.values())
    on_seeds = "" if of_checkpoint else f" on {len(session.seeds)} seeds"
    print(f"{place}: {counted(len(side.parts), 'measure')} of {session.model}{on_seeds}, {numbers} numbers")
