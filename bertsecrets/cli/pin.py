"""The command that pins a model: `bertsecrets pin --model minilm --seeds 5 --reason "first release"`."""

import argparse

from bertsecrets.cli.sides import DEFAULT_TASK, model_side, wanted_of
from bertsecrets.options import ROW_OPTIONS, RunOptions, add_options, check_initialisation, path
from bertsecrets.types import INITIALISATIONS


def add_parsers(commands) -> None:
    """Add the command's options to the command line."""
    parser = commands.add_parser("pin", help="keep what a model's measures say, to notice drift from it later")
    parser.add_argument("--reason", required=True, help="why it is pinned, or what has changed since; never the same")
    parser.add_argument("--output", type=path, metavar="FILE", help="the pin (default: expected/variants/MODEL.yaml)")
    parser.add_argument("--task", action="append", default=[], help="GLUE task; repeatable (default: rte)")
    parser.add_argument("--measure", action="append", default=[], metavar="NAME", help="pin only this; repeatable")
    parser.add_argument("--init", choices=INITIALISATIONS, default="pretrained")
    add_options(parser.add_argument, (*ROW_OPTIONS, "seeds", "spacy"))
    parser.set_defaults(run=pin)


def pin(options: argparse.Namespace) -> None:
    """Measure a model on several seeds, and write its pin.

    Raises:
        UserError: the reason is not a new one, or something cannot be measured.
    """
    from bertsecrets.compare.pins import check_reason, check_seeds, default_place, pin_of, write_pin
    from bertsecrets.session import Session

    session = Session(RunOptions.of(options))
    place = options.output or default_place(session.model)
    earlier = check_reason(place, options.reason)
    check_seeds(session.seeds)
    session.check_model()
    wanted = wanted_of(session, options.task or [DEFAULT_TASK], options.measure, check_initialisation(options.init))
    side = model_side(session, session.model, wanted)
    ref = session.ref(session.model)
    made = pin_of(side, session.model, options.reason, earlier, weights=ref.identity(), tokenizer=ref.tokenizer())
    write_pin(place, made)
    for name, why in side.left_out.items():
        print(f"left out: {name}: {why}")
    numbers = sum(len(values.mean) for part in side.parts for values in part.values.values())
    print(f"{place}: {len(side.parts)} measures of {session.model} on {len(session.seeds)} seeds, {numbers} numbers")
