"""Everything that needs a GPU, in resumable parts (docs/lab/gpu.md).

    python benchmarks/gpu run --glue DIR --out DIR
    python benchmarks/gpu evidence --out DIR

Exit codes: 0 all parts are done, 1 a part has failed, 2 bad input, 75 parts are left: run it again.
"""

import argparse
import sys
import time
from pathlib import Path
from typing import NoReturn

sys.path.insert(1, str(Path(__file__).parents[2]))

from environment import provide

from bertsecrets.cli.console import as_interrupt
from bertsecrets.errors import UserError, one_line
from bertsecrets.options import path

BEGAN = time.monotonic()
BAD_INPUT = 2


class _Parser(argparse.ArgumentParser):
    def error(self, message: str) -> NoReturn:
        self.exit(BAD_INPUT, f"gpu: {one_line(message)} (see {self.prog} --help)\n")


def main() -> int:
    """Run the command and return the exit code."""
    options = _parser().parse_args()
    try:
        with as_interrupt():
            provide(options.wheels, options.store / "site")
            return options.run(options)
    except UserError as error:
        print(f"gpu: {one_line(error)}", file=sys.stderr)
        return BAD_INPUT
    except KeyboardInterrupt as signalled:
        print("gpu: interrupted; what is done is kept", file=sys.stderr)
        return 128 + (signalled.args[0] if signalled.args else 2)


def _parser() -> argparse.ArgumentParser:
    parser = _Parser(prog="python benchmarks/gpu", description=__doc__.splitlines()[0])
    commands = parser.add_subparsers(required=True, metavar="COMMAND")
    run = commands.add_parser("run", help="run as many parts as fit into the time of a call")
    run.add_argument("--glue", type=path, required=True, metavar="DIR", help="folder in GLUE's own layout")
    run.add_argument("--model", type=path, metavar="DIR", help="BERT-base (default: random weights, for speed alone)")
    run.add_argument("--seconds", type=float, default=540, help="of a call (default: 540)")
    evidence = commands.add_parser("evidence", help="write the results into expected/evidence/")
    for command, function in ((run, _run), (evidence, _evidence)):
        command.add_argument("--out", type=path, required=True, metavar="DIR", help="folder of the results")
        command.add_argument("--store", type=path, default=Path("runs/gpu"), metavar="DIR", help="(default: runs/gpu)")
        command.add_argument("--wheels", type=path, metavar="DIR", help="install what is missing from these files")
        command.set_defaults(run=function)
    return parser


def _run(options: argparse.Namespace) -> int:
    from parts import PARTS
    from runner import Run, described

    if not options.glue.is_dir():
        raise UserError(f"no folder {options.glue}: GLUE must name a folder in GLUE's own layout")
    if options.model and not options.model.is_dir():
        raise UserError(f"no folder {options.model}: MODEL must name a folder that holds BERT-base")
    if not options.seconds > 0:
        raise UserError(f"{options.seconds} seconds is not a time: give PART_SECONDS=540")
    model = options.model and options.model.resolve()
    return Run(
        parts=PARTS,
        machine=described(PARTS, model, "cuda"),
        glue=options.glue.resolve(),
        model=model,
        out=options.out.resolve(),
        store=options.store.resolve(),
        device="cuda",
        seconds=max(1, options.seconds - (time.monotonic() - BEGAN)),
    ).call()


def _evidence(options: argparse.Namespace) -> int:
    from evidence import collect
    from parts import PARTS

    print(collect(options.out, PARTS))
    return 0


if __name__ == "__main__":
    sys.exit(main())
