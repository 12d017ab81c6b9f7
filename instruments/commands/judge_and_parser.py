"""The commands `calibrate`, `bands` and `train-parser`."""

import argparse
import json

from bertsecrets.errors import UserError
from bertsecrets.options import path
from bertsecrets.progress import progress
from instruments.commands import add_instrument

WORLDS, RESAMPLES = 200, 500


def add_parsers(commands) -> None:
    """Add the commands and their options to the command line."""
    calibrating = add_instrument(
        commands,
        "calibrate",
        "simulate models whose truth is known, and count the judge's verdicts",
        "calibrate --as-published --claim C1 --task rte --worlds 100",
        calibrate,
    )
    calibrating.add_argument(
        "--as-published",
        action="store_true",
        help="simulate a model exactly as published; short for --world as-published",
    )
    calibrating.add_argument(
        "--world",
        action="append",
        default=[],
        metavar="W",
        help="as-published, null, spread-3 and others, or several of them, such as null+spread-3; repeatable",
    )
    calibrating.add_argument("--claim", action="append", default=[], metavar="C", help="only this claim; repeatable")
    calibrating.add_argument(
        "--task",
        action="append",
        default=[],
        metavar="T",
        help="only this task, or `all` for several at once; repeatable",
    )
    calibrating.add_argument("--worlds", type=int, default=WORLDS, metavar="N", help=f"per cell (default: {WORLDS})")
    calibrating.add_argument(
        "--resamples", type=int, default=RESAMPLES, metavar="N", help=f"bootstrap resamples (default: {RESAMPLES})"
    )
    calibrating.add_argument("--seed", type=int, default=1, metavar="N", help="seed of the worlds (default: 1)")
    calibrating.add_argument("--jobs", type=int, default=1, metavar="N", help="processes (default: 1)")
    calibrating.add_argument(
        "--cells", type=path, metavar="FILE", help="append finished cells to this file, and do not repeat those in it"
    )
    calibrating.add_argument(
        "--data", type=path, metavar="FILE", help="write or update the data of expected/as-published.json"
    )
    calibrating.add_argument("--markdown", type=path, metavar="FILE", help="write the table as Markdown")

    add_instrument(commands, "bands", "write the bands of all claims into expected/", "bands", bands)

    training = add_instrument(
        commands,
        "train-parser",
        "train a small spaCy pipeline if none can be downloaded",
        "train-parser ./nltk_data/corpora ./pipeline",
        train_parser,
    )
    training.add_argument(
        "treebank", type=path, metavar="DIR", help="folder with NLTK's dependency_treebank.zip and treebank.zip"
    )
    training.add_argument("folder", type=path, metavar="NEW", help="new folder for the pipeline, to use with --spacy")


def bands(options: argparse.Namespace) -> None:
    """Write the current bands into the files of claims."""
    from bertsecrets.claims.loading import claims_folder
    from bertsecrets.store.files import listed, write_whole
    from instruments.bands import with_bands

    for file in listed(claims_folder()):
        if file.suffix == ".yaml":
            write_whole(file, with_bands(file))


def calibrate(options: argparse.Namespace) -> int:
    """Print the verdicts by cell. Returns 1 if significantly more verdicts are false than the bound allows.

    Raises:
        UserError: If a number is out of range, a claim, task or world is unknown, or a file cannot be read or written.
    """
    from datetime import date

    from bertsecrets.claims.prospects import read_prospects
    from bertsecrets.settings import load_settings
    from bertsecrets.store.files import check_writable, write_whole
    from instruments.calibration import rates_table
    from instruments.calibration.cells import count_all, find_cells

    for name, number, least in (
        ("--worlds", options.worlds, 1),
        ("--resamples", options.resamples, 100),
        ("--seed", options.seed, 0),
        ("--jobs", options.jobs, 1),
    ):
        if number < least:
            raise UserError(f"{name} {number} is out of range: give at least {least}")
    names = [*(["as-published"] if options.as_published else []), *options.world]
    if not names:
        raise UserError(
            "no world to simulate: give --as-published, or --world with a name from docs/instruments/calibration.md"
        )
    cells = find_cells(options.claim, options.task, names, options.worlds, options.resamples, options.seed)
    for file in filter(None, (options.cells, options.data, options.markdown)):
        check_writable(file)
        file.parent.mkdir(parents=True, exist_ok=True)
    earlier = read_prospects(options.data) if options.data else None
    counted = []
    with progress("cells", len(cells), "cell") as shown:
        for rates in count_all(cells, load_settings().judge.confidence, options.jobs, options.cells):
            counted.append(rates)
            shown.advance()
    places = {cell: place for place, cell in enumerate(cells)}
    counted.sort(key=lambda rates: places[rates.cell])
    print(rates_table.table(counted))
    if options.markdown:
        write_whole(options.markdown, rates_table.table(counted, "markdown"))
    if options.data:
        write_whole(options.data, rates_table.data(counted, date.today().isoformat(), earlier))
    return 1 if any(rates_table.wrong(rates) for rates in counted) else 0


def train_parser(options: argparse.Namespace) -> None:
    """Train a small spaCy tagger and parser, and print its scores."""
    from instruments.train_parser import train_pipeline

    scores = train_pipeline(options.treebank, options.folder)
    print(f"{options.folder}: {json.dumps(scores)}")
