"""The command that shows how the verdicts on a claim moved: `bertsecrets history C1 --task rte`."""

import argparse
import json
from dataclasses import asdict

from bertsecrets.errors import UserError
from bertsecrets.options import RunOptions, add_options
from bertsecrets.texts.tasks import ALL_TASKS, task


def add_parsers(commands) -> None:
    """Add the command's options to the command line."""
    parser = commands.add_parser("history", help="show every verdict on one claim, and where it stepped")
    parser.add_argument("claim", help="an id or name as verdicts have it, such as C1, C1-rte or D1-rte-random")
    parser.add_argument("--task", help="only verdicts on this task; `all` for those across tasks")
    parser.add_argument("--model", help="only verdicts on this model")
    parser.add_argument("--json", action="store_true", help="print JSON")
    add_options(parser.add_argument, ("store",))
    parser.set_defaults(run=history)


def history(options: argparse.Namespace) -> None:
    """Print the verdicts on a claim in the order in which they were given.

    Raises:
        UserError: there is no such claim, or no verdict on it.
    """
    from bertsecrets.claims.schema import find_cases
    from bertsecrets.compare.history import steps
    from bertsecrets.report.history import LEGEND, history_lines
    from bertsecrets.store.verdicts import read_history

    root, name = RunOptions.of(options).store_folder, options.task
    only = name if name in (None, ALL_TASKS) else task(name).name
    of_task = {str(case): case.task for case in find_cases(options.claim) if only in (None, case.task)}
    found = read_history(root, of_task)
    chosen = [series for series in found if options.model in (None, series[0]["model"])]
    if not chosen:
        models = ", ".join(dict.fromkeys(series[0]["model"] for series in found))
        on = f" on {only}" if only else ""
        raise UserError(
            f"no verdict on {options.claim}{on} by {options.model} in {root}: it has those of {models}"
            if found
            else f"no verdict on {options.claim}{on} in {root}: judge it first, or name another store with --store"
        )
    if options.json:
        print(
            json.dumps([{"verdicts": series, "steps": list(map(asdict, steps(series)))} for series in chosen], indent=1)
        )
        return
    for series in chosen:
        print("\n".join(history_lines(series)), end="\n\n")
    print(LEGEND)
