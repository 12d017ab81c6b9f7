"""The output of `report` and `run`: the table of verdicts, the HTML page, and files for other programs."""

import argparse
import os
import shlex
import sys
from collections.abc import Collection, Iterable, Sequence
from itertools import chain
from os.path import isfile
from pathlib import Path
from typing import TYPE_CHECKING, Any

from bertsecrets.cli.baseline import BASELINE_OPTIONS, accepted_cases, conclude_baseline, read_baseline
from bertsecrets.cli.console import encodable, signals_deferred
from bertsecrets.errors import UserError, check_extra
from bertsecrets.options import VARIABLE_PREFIX, RunOptions, flag, path, several, whole_number
from bertsecrets.progress import counted, log
from bertsecrets.reading import READ_FILES, expanded
from bertsecrets.settings import EXPECTED_VARIABLE, project_options
from bertsecrets.store.contents import ITEM_KINDS
from bertsecrets.store.files import check_writable
from bertsecrets.types import AUTO

if TYPE_CHECKING:
    from bertsecrets.claims.verdict import Verdict
    from bertsecrets.compare.baseline import Baseline
    from bertsecrets.judging import JudgedRun

MAX_EXAMPLES = 6  # the number of examples that `example-maps` stores
# The output files, by option.
OUTPUT_FILES = {
    "html": "the report page",
    "json": "the verdicts (JSON)",
    "markdown": "a summary (Markdown)",
    "model_card": "a section for a model card (Markdown)",
    "metrics": "outcomes and observed values (JSON)",
    "plots": "curves over layers (JSON)",
}
WRITTEN_OPTIONS = (*OUTPUT_FILES, "save", "output", "digests")  # options of all commands that name an output
RECORDING_COMMANDS = ("report", "run")  # commands whose --save names the folder of a record
RESULT_FIELDS = frozenset({"format", "bertsecrets", "outcomes", "subject"})  # fields of the JSON files that we write
OUTPUT_SWITCHES = ("-v", "--verbose", "--strict", "--strict-verdicts", "--update-baseline")
# Options that select claims and outputs. They are dropped from a command that judges a single claim again.
OUTPUT_FLAGS = (*map(flag, OUTPUT_FILES), "--save", "--examples", "--baseline", *OUTPUT_SWITCHES)
SELECTION_FLAGS = ("--task", "--claim", *OUTPUT_FLAGS)
SEED_FLAGS = ("--seeds", "--budget")
NEXT_BUDGET = "24h"  # proposed for claims that lack seeds
NAMED_CLAIMS = 6  # maximum number of claims named in this proposal


def _examples(text: str) -> int:
    number = whole_number(text)
    if not 0 <= number <= MAX_EXAMPLES:
        raise argparse.ArgumentTypeError(f"{number} is out of range: give 0 to {MAX_EXAMPLES}")
    return number


EXAMPLES_OPTION: dict[str, Any] = {
    "help": "number of examples per task in the page's attention viewer; the page shows their texts (default: 3)",
    "type": _examples,
    "default": 3,
    "metavar": "N",
}


def add_outputs(parser: argparse.ArgumentParser) -> None:
    """Add the options for the output and the exit code."""
    group = parser.add_argument_group("output")
    group.add_argument(
        "-v", "--verbose", action="store_true", help="also print each claim's statement, band, reason and remarks"
    )
    group.add_argument(
        "--strict", "--strict-verdicts", action="store_true", help="also exit with 1 if a claim is undecided"
    )
    for name, content in OUTPUT_FILES.items():
        group.add_argument(flag(name), type=path, metavar="FILE", help=f"write {content}")
    group.add_argument(
        "--save", type=path, metavar="DIR", help="save the measurements as a record for `report --measurements`"
    )
    group.add_argument("--examples", **EXAMPLES_OPTION)
    for name, parsing in BASELINE_OPTIONS.items():
        group.add_argument(flag(name), **parsing)


def check_outputs(options: argparse.Namespace) -> "Baseline | None":
    """Check that all requested files can be written, before anything is printed or measured. Return the baseline."""
    if options.html:
        check_extra("report")
    updated = options.baseline if options.update_baseline else None
    check_output_files([updated, *(getattr(options, name) for name in OUTPUT_FILES)])
    check_output_folder(options.save)
    return read_baseline(options.baseline, updating=options.update_baseline)


def check_command(options: argparse.Namespace) -> None:
    """Check, before anything is measured, that no output of a command replaces one of its inputs or another output.

    Options that are not known as outputs count as inputs.
    """
    given = {name: value for name, value in vars(options).items() if name not in ("words", "command")}
    outputs = [name for name in WRITTEN_OPTIONS if isinstance(given.get(name), Path)]
    if given.get("update_baseline"):
        outputs.append("baseline")
    written = [given.pop(name) for name in outputs]
    if options.command in RECORDING_COMMANDS and isinstance(options.save, Path):
        written[outputs.index("save")] = options.save / "record.zip"
    check_places(written, given.values(), RunOptions(store=given["store"]).store_folder if "store" in given else None)


def check_places(written: Iterable[Path | None], given: Iterable[Any], store: Path | None = None) -> None:
    """Check that no output replaces an input or another output, or is in a folder of a store's items.

    An existing file inside an input folder counts as input unless it is a page, a summary or a file of results.

    Args:
        written: The paths of the outputs. None values are ignored.
        given: The values of all other options. Paths among them are inputs. So are paths in environment variables and
            in `pyproject.toml`, and all files that have been read so far.
    """
    files = [file for file in written if file is not None]
    if not files:
        return
    values = [each for value in (*given, *project_options().values()) for each in several(value)]
    for name, text in os.environ.items():
        if name.startswith(VARIABLE_PREFIX):
            values += [Path(part) for part in text.split(os.pathsep) if name != EXPECTED_VARIABLE or isfile(part)]
    read = {_identity(path): path for path in [*map(Path, READ_FILES), *chain.from_iterable(map(_paths_in, values))]}
    folders = [os.path.realpath(path) for path in read.values() if path.is_dir()]
    items = {os.path.realpath(store / kind) for kind in ITEM_KINDS} if store is not None else set()
    taken: set[object] = set()
    for file in files:
        if items & {os.path.realpath(file), *map(str, Path(os.path.realpath(file)).parents)}:
            raise UserError(
                f"cannot write {file}, because it is in a folder of the store: name a folder outside {store}"
            )
        place, is_device = _identity(file), file.exists() and not (file.is_file() or file.is_dir())
        if place in taken and not is_device:
            raise UserError(f"cannot write two outputs to {file}: name a separate file for each")
        taken.add(place)
        inside = any(folder in map(str, Path(os.path.realpath(file)).parents) for folder in folders)
        if not is_device and (place in read or (inside and file.is_file() and not _is_result(file))):
            raise UserError(f"cannot write {file}, which is an input of this run: name another file or folder")


def _paths_in(value: object) -> list[Path]:
    """Return the paths that the value of an option names: `value` itself and, for MODEL@FOLDER, the folder."""
    if isinstance(value, Path):
        return [value]
    if not isinstance(value, str):
        return []
    parts = [expanded(part) for part in (value, value.rpartition("@")[2]) if part]
    return [part for part in parts if os.sep in value or part.is_file() or (part / "config.json").is_file()]


def _identity(path: Path) -> object:
    """Return what identifies a file or folder: its device and inode or, if it does not exist, its real path."""
    try:
        status = path.stat()
    except (OSError, ValueError):
        return os.path.realpath(path) if "\0" not in str(path) else str(path)
    return status.st_dev, status.st_ino


def _is_result(file: Path) -> bool:
    """Return whether a file was probably written by an earlier run: a page, a summary, or JSON with results."""
    from bertsecrets.store.files import read_json_object

    return file.suffix in (".html", ".md", ".xml") or not RESULT_FIELDS.isdisjoint(read_json_object(file))


def check_output_files(files: Iterable[Path | None]) -> None:
    """Check, before anything is measured, that each file can be written to an existing folder. Ignore None values."""
    for file in filter(None, files):
        if not file.parent.exists():
            raise UserError(f"cannot write {file}: the folder {file.parent} does not exist; create it first")
        if file.is_dir():
            raise UserError(f"cannot write {file}: it is a folder, not a file: choose another file")
        check_writable(file)


def check_output_folder(folder: Path | None) -> None:
    """Check, before anything is measured, that files can be written to a folder, which need not exist yet."""
    if folder is None:
        return
    if folder.exists() and not folder.is_dir():
        raise UserError(f"cannot write {folder}: a file exists where a folder is needed: choose another location")
    check_writable(folder)


def refuse(options: argparse.Namespace, names: Iterable[str], why: str) -> None:
    """Check that none of the named options was given. `why` follows the option's name in the error message."""
    for name in names:
        value = getattr(options, name)
        if value is not None and value is not False and value != []:
            raise UserError(f"{flag(name)} {why}: leave it out")


def without(arguments: Sequence[str], names: Collection[str]) -> list[str]:
    """Return a command's arguments without the named options and their values.

    >>> without(["report", "--claim", "C1", "--html=x.html", "-v", "--offline"], SELECTION_FLAGS)
    ['report', '--offline']
    """
    remaining, skipping = [], False
    for argument in arguments:
        name, given, _ = argument.partition("=")
        if skipping:
            skipping = False
        elif name in names:
            skipping = not given and name not in OUTPUT_SWITCHES
        else:
            remaining.append(argument)
    return remaining


def conclude(options: argparse.Namespace, opened: Sequence["JudgedRun"], baseline: "Baseline | None") -> int:
    """Judge the claims about each model, write the requested files, print the verdicts, and return the exit code.

    The files are written before anything is printed, so that they do not depend on the terminal. Signals are deferred
    until all files are written, so that all of them describe the same run.
    """
    runs = []
    for run in opened:
        if baseline is not None:
            baseline.check_run(run)
        run.baseline = baseline
    for run in opened:
        run.judge()
        _add_examples(options, run)
        runs.append(run)
        if run.ended is not None:
            break
    with signals_deferred():
        for run in runs:
            if run.verdicts:
                _write(options, run)
        if options.html and any(run.verdicts for run in runs):
            _write_page(options, runs)
    for run in runs:
        if len(runs) > 1:
            print(f"\n{run.model}")
        if run.verdicts:
            _print_verdicts(options, run)
    for name, file in (("verdicts", options.json), ("report", options.html)):
        if file and any(run.verdicts for run in runs):
            print(f"{name}: {file.resolve()}")
    for run in runs:
        if line := _open_claims(options, run, several=len(runs) > 1):
            print(encodable(line, sys.stdout))
        if run.note:
            print(f"incomplete: {run.note}")
        if options.strict and run.undecided:
            print(f"not decided: {', '.join(run.undecided)}")
        for line in conclude_baseline(run, run.verdicts, baseline, run.note):
            print(encodable(line, sys.stdout))
    return max(run.exit_code(strict=options.strict) for run in runs)


def _add_examples(options: argparse.Namespace, run: "JudgedRun") -> None:
    """If a page is requested and the run is complete, add attention maps to the run for the page's viewer."""
    if not options.html or not options.examples or run.ended is not None:
        return
    from bertsecrets.report.viewer import find_examples  # needs the extra `report`

    try:
        run.examples = find_examples(run.session.example_maps, run.verdicts, options.examples)
    except KeyboardInterrupt as error:  # verdicts are still shown and written
        run.ended = error


def _print_verdicts(options: argparse.Namespace, run: "JudgedRun") -> None:
    from bertsecrets.report.terminal import Screen, run_text
    from bertsecrets.report.text import annotations
    from bertsecrets.settings import load_settings

    confidence = load_settings().judge.confidence
    text = run_text(run.verdicts, Screen.of_stream(sys.stdout), confidence, verbose=options.verbose)
    print(encodable(text, sys.stdout))
    if not options.verbose:
        print("for details, add -v or run bertsecrets explain ID")
    for line in annotations(filter(run.fails, run.verdicts)):
        print(line)


def _open_claims(options: argparse.Namespace, run: "JudgedRun", *, several: bool) -> str:
    """Return a line about claims that lack seeds, with a command that adds seeds; empty if no claim lacks seeds."""
    if options.checkpoint is not None:
        return ""
    command = ["bertsecrets", *without(options.words, (*SELECTION_FLAGS, *(["--model"] * several)))]
    command += ["--model", run.model] * several
    if options.measurements is not None:
        command = []
    return more_seeds_line(run, run.verdicts, command, ["bertsecrets", *options.words])


def more_seeds_line(
    run: "JudgedRun", verdicts: Sequence["Verdict"], command: Sequence[str], whole: Sequence[str]
) -> str:
    """Return a line about claims that lack seeds, with a command that adds seeds.

    If no claim lacks seeds, the line says what would decide the undecided claims. It is empty if this is unknown or if
    more than `NAMED_CLAIMS` claims are undecided.

    Args:
        command: The words of a command to which options for claims and seeds are added. If it is empty, the line
            contains no command.
        whole: The command of this run, which replaces `command` if more than `NAMED_CLAIMS` claims lack seeds.
    """
    from bertsecrets.report.text import ENOUGH_SEEDS, lacks_seeds

    lacking = [verdict for verdict in verdicts if lacks_seeds(verdict)]
    others = [verdict for verdict in verdicts if verdict.outcome == "inconclusive" and not lacks_seeds(verdict)]
    if not lacking:
        texts = [f"{verdict.case} ({verdict.power})" for verdict in others if verdict.power]
        return f"undecided: {', '.join(texts)}" if 0 < len(texts) <= NAMED_CLAIMS else ""
    rest = f" (undecided for other reasons: {len(others)}, see -v)" if others else ""
    line = f"more seeds may decide {counted(len(lacking), 'claim')}{rest}"
    more = ["--seeds", str(ENOUGH_SEEDS)]
    if run.session.wanted_seeds == AUTO:
        chosen = any(word.partition("=")[0] == "--seeds" for word in command)  # although the settings fix the seeds
        more = [*(["--seeds", AUTO] if chosen else []), "--budget", NEXT_BUDGET]
    claims = [word for verdict in lacking for word in ("--claim", str(verdict.case))]
    words = without([*command, *claims] if len(lacking) <= NAMED_CLAIMS else whole, SEED_FLAGS)
    return f"{line}: {shlex.join([*words, *more])}" if command else line


def _write(options: argparse.Namespace, run: "JudgedRun") -> None:
    from bertsecrets.report.json import as_file, layer_rows, metrics
    from bertsecrets.report.markdown import model_card, summary
    from bertsecrets.settings import load_settings
    from bertsecrets.store.entries import write_json
    from bertsecrets.store.files import write_whole

    verdicts, params, checkpoint = run.verdicts, load_settings(), options.checkpoint is not None
    written = as_file(verdicts, run.model, params, note=run.note, commits=run.session.commits)
    if options.save and run.ended is None:
        run.save(options.save)
    elif options.save:
        log.warning(f"no record was written to {options.save}, because the run is incomplete")
    if options.json:
        write_json(options.json, written.model_dump(mode="json"))
    if options.metrics:
        incomplete = {"incomplete": run.note} if run.note else {}
        write_json(options.metrics, metrics(verdicts, params.judge.confidence) | incomplete)
    if options.plots:
        write_json(options.plots, layer_rows(verdicts))
    if options.markdown:
        write_whole(options.markdown, summary(verdicts, written, accepted_cases(run), checkpoint=checkpoint))
    if options.model_card:
        write_whole(options.model_card, model_card(verdicts, written, checkpoint=checkpoint))


def _write_page(options: argparse.Namespace, runs: Sequence["JudgedRun"]) -> None:
    from bertsecrets.report.html import page
    from bertsecrets.report.viewer import Examples
    from bertsecrets.settings import load_settings
    from bertsecrets.store.files import write_whole

    examples = [run.examples for run in runs if run.examples is not None]
    dropped = (*SELECTION_FLAGS, "--model") if len(runs) > 1 else SELECTION_FLAGS
    content = page(
        {run.model: run.verdicts for run in runs},
        load_settings().judge,
        note="; ".join(run.note for run in runs if run.note),
        advice=[_open_claims(options, run, several=len(runs) > 1) for run in runs],
        command=["bertsecrets", *options.words],
        rerun=["bertsecrets", *without(options.words, dropped)],
        examples=Examples(
            [measurement for shown in examples for measurement in shown.measurements],
            [problem for shown in examples for problem in shown.problems],
            options.examples,
        ),
        checkpoint=options.checkpoint is not None,
        accepted={name for run in runs for name in accepted_cases(run)},
    )
    write_whole(options.html, content)
