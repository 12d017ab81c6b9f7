"""The command that compares two models: `bertsecrets compare minilm.yaml ./my-checkpoint --task rte`."""

import argparse

from bertsecrets.cli.sides import named, open_sides
from bertsecrets.options import ROW_OPTIONS, RunOptions, add_options, check_initialisation, path
from bertsecrets.types import INITIALISATIONS


def add_parsers(commands) -> None:
    """Add the command's options to the command line."""
    parser = commands.add_parser(
        "compare", help="say whether a model, a checkpoint, kept measurements or a pin has drifted from another"
    )
    for name, which in (("before", "drift is measured from"), ("after", "may have drifted")):
        parser.add_argument(
            name,
            metavar="A" if name == "before" else "B",
            help=f"what {which}: a pin (a file), MODEL@STORE or a folder of kept measurements, a folder with a "
            "classifier (measured as it is), or a model (fine-tuned first)",
        )
    parser.add_argument("--task", action="append", default=[], help="GLUE task; repeatable (default: rte)")
    parser.add_argument(
        "--measure", action="append", default=[], metavar="NAME", help="compare only this measure; repeatable"
    )
    parser.add_argument("--init", choices=INITIALISATIONS, default="pretrained")
    parser.add_argument("--json", type=path, metavar="FILE", help="write the comparison as data to this file")
    parser.add_argument("--html", type=path, metavar="FILE", help="write it as a page to this file")
    parser.add_argument("--markdown", type=path, metavar="FILE", help="write it as Markdown to this file")
    add_options(parser.add_argument, (*ROW_OPTIONS, "seeds", "spacy"))
    parser.set_defaults(run=compare_sides)


def compare_sides(options: argparse.Namespace) -> int:
    """Print how far one side has drifted from the other, and write it; returns 1 if it has.

    Raises:
        UserError: a side cannot be read or measured, or they have nothing in common.
    """
    from bertsecrets.compare.comparison import compare
    from bertsecrets.report.drift import drift_markdown, drift_text
    from bertsecrets.session import Session
    from bertsecrets.store.entries import write_json
    from bertsecrets.store.files import write_whole

    session = Session(RunOptions.of(options))
    sides = [named(options.before), named(options.after)]
    before, after = open_sides(sides, session, options.task, options.measure, check_initialisation(options.init))
    comparison = compare(before, after, session.settings.judge)
    print(drift_text(comparison))
    if options.json:
        write_json(options.json, comparison.data)
    if options.markdown:
        write_whole(options.markdown, drift_markdown(comparison))
    if options.html:
        from bertsecrets.report.html import comparison_page  # needs an extra

        write_whole(options.html, comparison_page(comparison))
    return int(comparison.drifted)
