"""The commands `calibrate`, `bands`, `train-parser`, `specifications` and `mutants`."""

import argparse
import json

from bertsecrets.errors import UserError
from bertsecrets.options import ROW_OPTIONS, RunOptions, add_run_options, path
from bertsecrets.progress import progress
from instruments.commands import FILE, NUMBER, REPEATED, add_instrument


def add_parsers(commands) -> None:
    """Add the commands and their options to the command line."""
    add = add_instrument(
        commands,
        calibrate,
        "simulate models whose truth is known, and count the judge's verdicts",
        "--as-published --claim C1 --task rte --worlds 100",
    ).add_argument
    as_published = "simulate a model exactly as published; short for --world as-published"
    add("--as-published", action="store_true", help=as_published)
    errors = "count false verdicts, for the claims and worlds of docs/instruments/calibration.md"
    add("--errors", action="store_true", help=errors)
    world = "world to simulate: as-published, null, spread-3, ..., or a combination such as null+spread-3; repeatable"
    add("--world", **REPEATED, metavar="W", help=world)
    add("--claim", **REPEATED, metavar="C", help="only this claim; repeatable")
    add("--task", **REPEATED, metavar="T", help="only this task, or `all` for claims over several tasks; repeatable")
    worlds = "worlds per cell (default: 1000; for as-published, 200 on RTE and MRPC, 40 elsewhere)"
    add("--worlds", **NUMBER, help=worlds)
    add("--resamples", **NUMBER, default=500, help="number of bootstrap resamples (default: 500)")
    add("--level", type=float, metavar="P", help="confidence level (default: from params.yaml)")
    add("--seed", **NUMBER, default=1, help="seed of the worlds (default: 1)")
    add("--jobs", **NUMBER, default=1, help="number of processes (default: 1)")
    add("--cells", **FILE, help="append finished worlds to this file, and skip those in it")
    add("--data", **FILE, help="write or update the data of expected/as-published.json")
    add("--rates", **FILE, help="write the rates of false verdicts as JSON")
    add("--markdown", **FILE, help="write the table as Markdown")

    add_instrument(commands, bands, "write the bands of all claims into expected/", "")

    add = add_instrument(
        commands,
        train_parser,
        "train a small spaCy pipeline if none can be downloaded",
        "./nltk_data/corpora ./pipeline",
    ).add_argument
    treebank = "folder with NLTK's dependency_treebank.zip and treebank.zip"
    add("treebank", type=path, metavar="DIR", help=treebank)
    add("folder", type=path, metavar="NEW", help="new folder for the pipeline, to use with --spacy")

    parser = add_instrument(
        commands,
        specifications,
        "judge claims under every combination of the choices that the paper leaves open",
        "--task mrpc --model minilm --glue ./glue_data",
    )
    add = parser.add_argument
    add("--task", required=True, help="GLUE task")
    add("--claim", nargs="+", metavar="ID", help="claims (default: C1 C3 E1 F1)")
    add("--choices", metavar="NAMES", help="vary only these choices, such as padding,length")
    add("--json", **FILE, help="write the curves as JSON")
    add("--figures", type=path, metavar="DIR", help="draw one SVG per claim into this folder")
    add_run_options(parser, (*ROW_OPTIONS, "seeds", "frames", "spacy"))

    add = add_instrument(
        commands,
        mutants,
        "insert small faults into modules, one at a time, and list those that tests do not detect",
        "--module bertsecrets/reading.py --tests tests/test_reading.py",
    ).add_argument
    add("--module", nargs="+", required=True, metavar="FILE", help="modules to change")
    add("--tests", nargs="+", required=True, metavar="FILE", help="test files to run on each fault")
    add("--count", **NUMBER, default=5, help="number of faults per module (default: 5)")
    add("--seed", **NUMBER, default=1, help="seed of the random choice (default: 1)")


def bands(options: argparse.Namespace) -> None:
    """Write the current bands into the files of claims."""
    from bertsecrets.claims.loading import claims_folder
    from bertsecrets.store.files import listed, write_whole
    from instruments.bands import with_bands

    for file in listed(claims_folder()):
        if file.suffix == ".yaml":
            write_whole(file, with_bands(file))


def calibrate(options: argparse.Namespace) -> int:
    """Print the verdicts by cell, and return 1 if significantly more verdicts are false than the bound allows.

    Raises:
        UserError: If a number is out of range, a claim, task or world is unknown, or a file cannot be read or written.
    """
    from datetime import date

    from bertsecrets.claims.prospects import read_prospects
    from bertsecrets.settings import load_settings
    from bertsecrets.store.files import check_writable, write_whole
    from instruments.calibration.cells import count_all, find_cells
    from instruments.calibration.false_verdicts import false_verdicts, find_error_cells, wrong
    from instruments.calibration.rates_table import data, rates_data, table

    for name, number, least in (
        ("--worlds", 1 if options.worlds is None else options.worlds, 1),
        ("--resamples", options.resamples, 100),
        ("--seed", options.seed, 0),
        ("--jobs", options.jobs, 1),
    ):
        if number < least:
            raise UserError(f"{name} {number} is out of range: give at least {least}")
    if options.level is not None and not 0.5 <= options.level < 1:
        raise UserError(f"--level {options.level} is out of range: give 0.5 or more, and less than 1")
    names = [*(["as-published"] if options.as_published else []), *options.world]
    if not names and not options.errors:
        raise UserError(
            "no world to simulate: give --as-published, --errors, or --world with a name from "
            "docs/instruments/calibration.md"
        )
    if not names and (options.claim or options.task):
        raise UserError("--claim and --task have no effect on --errors: leave them out, or name a world with --world")
    confidence = load_settings().judge.confidence if options.level is None else (1 + options.level) / 2
    given = {"resamples": options.resamples, "seed": options.seed, "confidence": confidence}
    given |= {"worlds": options.worlds} if options.worlds else {}
    cells = find_cells(options.claim, options.task, names, given) if names else []
    cells += find_error_cells(given) if options.errors else []
    for file in filter(None, (options.cells, options.data, options.rates, options.markdown)):
        check_writable(file)
        file.parent.mkdir(parents=True, exist_ok=True)
    earlier = read_prospects(options.data) if options.data else None
    with progress("blocks of worlds", sum(len(cell.blocks) for cell in cells), "block") as shown:
        counted = count_all(cells, options.jobs, options.cells, shown.advance)
    print(table(counted))
    if options.markdown:
        write_whole(options.markdown, table(counted, "markdown"))
    if options.data:
        write_whole(options.data, data(counted, date.today().isoformat(), earlier))
    if options.rates:
        write_whole(options.rates, rates_data(false_verdicts(counted), date.today().isoformat()))
    return 1 if wrong(counted) else 0


def train_parser(options: argparse.Namespace) -> None:
    """Train a small spaCy tagger and parser, and print its scores."""
    from instruments.train_parser import train_pipeline

    scores = train_pipeline(options.treebank, options.folder)
    print(f"{options.folder}: {json.dumps(scores)}")


def specifications(options: argparse.Namespace) -> None:
    """Print how often each claim holds across all combinations of choices, and write the curves.

    Raises:
        UserError: If a claim, task or choice is unknown, or nothing can be measured.
    """
    from bertsecrets.claims.eligibility import Skipped
    from bertsecrets.session import Session
    from bertsecrets.store.entries import write_json
    from bertsecrets.store.files import check_writable, write_whole
    from instruments.curve import curve_lines, curve_table, draw_curve
    from instruments.specifications import choices_of, chosen_cases, curve

    for place in filter(None, (options.json, options.figures and options.figures / "curve.svg")):
        check_writable(place)
    names = None if options.choices is None else [name.strip() for name in options.choices.split(",")]
    choices = [(case, choices_of(case, names)) for case in chosen_cases(options.claim, options.task)]
    session = Session(RunOptions.from_namespace(options))
    session.check_model()
    curves = []
    for case, own in choices:
        answer = session.eligibility(case)
        if isinstance(answer, Skipped):
            print(f"1 claim skipped ({case}): {answer.reason}")
            continue
        curves.append(curve(session, case, own))
        print(curve_table(curves[-1]), end="\n\n")
        if options.json:  # written after each claim, so that finished curves survive an interruption
            write_json(options.json, [made.as_json() for made in curves])
        if options.figures:
            write_whole(options.figures / f"{case}.svg", draw_curve(curves[-1]))
    if not curves:
        raise UserError("nothing to judge: every claim lacks an input")
    for made in curves:
        print(curve_lines(made)[0])


def mutants(options: argparse.Namespace) -> None:
    """Print each fault with the test that detects it, and the number of detected faults.

    Raises:
        UserError: If a module does not exist, or the tests fail without a fault.
    """
    from instruments.mutants import judged, sampled

    chosen = sampled(options.module, options.count, options.seed)
    detected = 0
    for mutant, test in judged(chosen, [*options.tests, "-m", "not slow"]):
        detected += bool(test)
        print(f"{'detected' if test else 'MISSED'}  {mutant}" + f"  ({test[:100]})" * bool(test), flush=True)
    print(f"{detected} of {len(chosen)} detected")
