"""`bertsecrets lab calibrate`: error rates and power of the judge in simulated worlds."""

import argparse
import json
import os
from collections.abc import Iterable, Sequence
from typing import TYPE_CHECKING

from bertsecrets.errors import UserError
from bertsecrets.options import path
from bertsecrets.progress import progress

if TYPE_CHECKING:
    from bertsecrets.lab.calibration.rates import Cell, Rates
    from bertsecrets.settings import JudgeParams

WORLDS, EXAMPLES, SEEDS, SPREADS = 200, [100, 277, 1000], [1, 3, 5], [0.0, 0.5, 1.0]


def add_parsers(commands) -> None:
    """Add the command's options to the command line."""
    parser = commands.add_parser(
        "calibrate",
        help="estimate the judge's error rates and power in simulated worlds",
        epilog="example: bertsecrets lab calibrate --kind attention --worlds 100 --seeds 1 5",
    )
    parser.add_argument("--kind", action="append", metavar="K", help="only this kind of claim; repeatable")
    parser.add_argument("--worlds", type=int, default=WORLDS, metavar="N", help=f"for each cell (default: {WORLDS})")
    parser.add_argument("--examples", type=int, nargs="+", default=EXAMPLES, metavar="N", help="default: 100 277 1000")
    parser.add_argument(
        "--seeds", dest="counts", type=int, nargs="+", default=SEEDS, metavar="N", help="default: 1 3 5"
    )
    parser.add_argument(
        "--spread",
        type=float,
        nargs="+",
        default=SPREADS,
        metavar="S",
        help="standard deviation over seeds relative to that of examples: 0, 0.5, 1 (default: all)",
    )
    parser.add_argument("--unknown", action="store_true", help="give the judge no prior knowledge of the seed variance")
    parser.add_argument("--jobs", type=int, default=1, metavar="N", help="processes (default: 1)")
    parser.add_argument("--json", action="store_true", help="print every cell as JSON")
    parser.add_argument("--markdown", type=path, metavar="FILE", help="write the table to this file")
    parser.set_defaults(run=calibrate)


def calibrate(options: argparse.Namespace) -> int:
    """Print the rates, and return 1 if one exceeds its bound by more than chance explains.

    Raises:
        UserError: a number is out of range, or a kind of claim is unknown.
    """
    from bertsecrets.lab.calibration.kinds import find_kinds
    from bertsecrets.lab.calibration.rates import cells
    from bertsecrets.lab.calibration.table import as_data, table, wrong_lines
    from bertsecrets.settings import load_settings

    for name, numbers, least in (
        ("--worlds", [options.worlds], 1),
        ("--examples", options.examples, 2),
        ("--seeds", options.counts, 1),
        ("--jobs", [options.jobs], 1),
    ):
        if min(numbers) < least:
            raise UserError(f"{name} {min(numbers)} is out of range: give at least {least}")
    unknown = [spread for spread in options.spread if spread not in SPREADS]
    if unknown:
        raise UserError(f"--spread {unknown[0]:g} is not a simulated spread: give 0, 0.5 or 1")
    wanted = [
        cell
        for kind in find_kinds(options.kind)
        for cell in cells(kind, options.examples, options.counts, options.spread, not options.unknown)
    ]
    found = _all_rates(wanted, options.worlds, load_settings().judge, options.jobs)
    if options.markdown:
        from bertsecrets.store.files import write_whole

        write_whole(options.markdown, table(found, "markdown"))
    if options.json:
        print(json.dumps([as_data(rates) for rates in found], indent=1))
    else:
        print(table(found))
        for line in wrong_lines(found):
            print(line)
    return 1 if any(rates.wrong for rates in found) else 0


def _all_rates(wanted: Sequence["Cell"], worlds: int, settings: "JudgeParams", jobs: int) -> list["Rates"]:
    """Return the rates of all cells, which several processes may count."""
    from functools import partial

    from bertsecrets.lab.calibration.rates import rates

    one = partial(rates, worlds=worlds, settings=settings)
    if jobs == 1:
        return _counted(map(one, wanted), len(wanted))
    from concurrent.futures import ProcessPoolExecutor
    from multiprocessing import get_context

    for name in ("OMP_NUM_THREADS", "OPENBLAS_NUM_THREADS", "MKL_NUM_THREADS"):
        os.environ.setdefault(name, "1")  # of each process
    with ProcessPoolExecutor(jobs, mp_context=get_context("spawn")) as pool:
        return _counted(pool.map(one, wanted), len(wanted))


def _counted(found: "Iterable[Rates]", total: int) -> list["Rates"]:
    """Return what comes, showing how much has."""
    every = []
    with progress("cells", total, "cell") as shown:
        for one in found:
            every.append(one)
            shown.advance()
    return every
