"""`python -m instruments specifications`, which judges claims under all choices that the paper leaves open."""

import argparse
from typing import TYPE_CHECKING

from bertsecrets.errors import UserError
from bertsecrets.options import ROW_OPTIONS, RunOptions, add_run_options, path
from instruments.commands import add_instrument

if TYPE_CHECKING:
    from instruments.specifications import Curve


def add_parsers(commands) -> None:
    """Add the command and its options to the command line."""
    parser = add_instrument(
        commands,
        "specifications",
        "judge claims under every combination of the choices that the paper leaves open",
        "specifications --task mrpc --model minilm --glue ./glue_data",
        specifications,
    )
    parser.add_argument("--task", required=True, help="GLUE task")
    parser.add_argument("--claim", nargs="+", metavar="ID", help="claims (default: C1 C3 E1 F1)")
    parser.add_argument("--choices", metavar="NAMES", help="vary only these choices, such as padding,length")
    parser.add_argument("--json", type=path, metavar="FILE", help="write the curves as JSON")
    parser.add_argument("--figures", type=path, metavar="DIR", help="draw one SVG per claim into this folder")
    add_run_options(parser, (*ROW_OPTIONS, "seeds", "frames", "spacy"))


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
    curves: list[Curve] = []
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
