"""Output of `report` and `run`: the table of verdicts, the page, and files for programs."""

import argparse
import sys
from collections.abc import Collection, Sequence
from typing import TYPE_CHECKING

from bertsecrets.extras import check_extra
from bertsecrets.options import EXAMPLES, flag, path

if TYPE_CHECKING:
    from bertsecrets.judging import JudgedRun

# The files to write, by option.
FILES = {
    "metrics": "outcomes and observed values, as JSON",
    "plots": "the curves over layers, as JSON",
    "html": "the report page",
    "json": "the verdicts, as JSON",
    "markdown": "a summary, as Markdown",
    "badge": "the number of claims that hold, as JSON for shields.io",
    "record": "the results of each seed, as JSON; saved as expected/evidence/seeds-MODEL.json, it gives later verdicts "
    "the variance between seeds",
}
SWITCHES = ("-v", "--verbose", "--strict", "--strict-verdicts")
# Options that choose claims, and what is written of them: left out when one claim is judged again.
CHOOSING = ("--task", "--claim", *map(flag, FILES), "--eval-results", "--examples", *SWITCHES)


def add_outputs(parser: argparse.ArgumentParser) -> None:
    """Add the options that name the files to write, and what the exit code says."""
    parser.add_argument(
        "-v", "--verbose", action="store_true", help="also print each claim's statement, band, reason and remarks"
    )
    for name, content in FILES.items():
        parser.add_argument(flag(name), type=path, metavar="FILE", help=f"write {content}")
    parser.add_argument(
        "--eval-results",
        type=path,
        metavar="DIR",
        help="write the scores of table 1 in the layout of .eval_results, for a model repository on the hub",
    )
    parser.add_argument("--examples", **EXAMPLES)
    parser.add_argument(
        "--strict", "--strict-verdicts", action="store_true", help="exit with 1 also if a requested claim is undecided"
    )


def check_outputs(options: argparse.Namespace) -> None:
    """Make sure, before anything is measured, that the requested files can be written.

    Raises:
        UserError: a package that writes one is missing, or its place cannot be written.
    """
    from bertsecrets.store.files import check_writable

    if options.html:
        check_extra("report")
    for name in FILES:
        if (file := getattr(options, name)) is not None:
            check_writable(file)


def without(words: Sequence[str], names: Collection[str]) -> list[str]:
    """Return a command without some of its options.

    >>> without(["report", "--claim", "C1", "--html=x.html", "-v", "--offline"], CHOOSING)
    ['report', '--offline']
    """
    kept, skipping = [], False
    for word in words:
        name, given, _ = word.partition("=")
        if skipping:
            skipping = False
        elif name in names:
            skipping = not given and name not in SWITCHES
        else:
            kept.append(word)
    return kept


def conclude(options: argparse.Namespace, *runs: "JudgedRun") -> int:
    """Print the verdicts of each model, write the requested files, and return the exit code."""
    for run in runs:
        if len(runs) > 1:
            print(f"\n{run.model}")
        if run.verdicts:
            _print_verdicts(options, run)
            _write(options, run)
    if options.html and any(run.verdicts for run in runs):
        _write_page(options, runs)
    for run in runs:
        if run.note:
            print(f"incomplete: {run.note}")
        if options.strict and run.undecided:
            print(f"not decided: {', '.join(run.undecided)}")
    return max(run.exit_code(strict=options.strict) for run in runs)


def _print_verdicts(options: argparse.Namespace, run: "JudgedRun") -> None:
    """Print the table of verdicts and the lines about all of them."""
    from bertsecrets.report.tables import fold
    from bertsecrets.report.terminal import Screen, verdict_table
    from bertsecrets.report.text import run_lines
    from bertsecrets.settings import load_settings

    screen = Screen.of(sys.stdout)
    print(verdict_table(run.verdicts, screen, verbose=options.verbose))
    lines = run_lines(run.verdicts, load_settings().judge.confidence)
    print("\n".join(fold(line, screen.width) for line in lines))
    if not options.verbose:
        print("details: -v, or bertsecrets explain ID")


def _write(options: argparse.Namespace, run: "JudgedRun") -> None:
    """Write the requested files except for the page."""
    from bertsecrets.report.json import as_file, badge, layer_rows, metrics
    from bertsecrets.report.markdown import summary
    from bertsecrets.settings import load_settings
    from bertsecrets.store.entries import write_json
    from bertsecrets.store.files import write_whole

    verdicts, params = run.verdicts, load_settings()
    written = as_file(verdicts, run.model, params, note=run.note)
    if options.json:
        write_json(options.json, written.model_dump(mode="json"))
        print(f"verdicts: {options.json.resolve()}")
    if options.record:
        from bertsecrets.claims.record import record

        write_json(options.record, record(run.model, verdicts))
        print(f"seeds: {options.record.resolve()}")
    if options.metrics:
        incomplete = {"incomplete": run.note} if run.note else {}
        write_json(options.metrics, metrics(verdicts, params.judge.confidence) | incomplete)
    if options.plots:
        write_json(options.plots, layer_rows(verdicts))
    if options.markdown:
        write_whole(options.markdown, summary(verdicts, written))
    if options.badge:
        write_json(options.badge, badge(written))
    if options.eval_results:
        from bertsecrets.report.eval_results import eval_results

        files, left_out = eval_results(verdicts, written)
        for line in left_out:
            print(line)
        for name, content in files.items():
            write_whole(options.eval_results / name, content)
            print(f"evaluation result: {options.eval_results.resolve() / name}")


def _write_page(options: argparse.Namespace, runs: Sequence["JudgedRun"]) -> None:
    """Write the page of one model, or of several side by side."""
    from bertsecrets.report.html import page
    from bertsecrets.report.viewer import Examples
    from bertsecrets.settings import load_settings
    from bertsecrets.store.files import write_whole

    examples = [run.examples for run in runs if run.examples is not None]
    content = page(
        {run.model: run.verdicts for run in runs},
        load_settings().judge,
        note="; ".join(run.note for run in runs if run.note),
        command=["bertsecrets", *options.words],
        rerun=["bertsecrets", *without(options.words, (*CHOOSING, *(["--model"] if len(runs) > 1 else [])))],
        examples=Examples(
            [measurement for shown in examples for measurement in shown.measurements],
            [problem for shown in examples for problem in shown.problems],
            options.examples,
        ),
    )
    write_whole(options.html, content)
    print(f"report: {options.html.resolve()}")
