"""The suite by command: `bertsecrets claims | explain | fetch | corpus | finetune | measure | report | doctor`.

Nothing heavy is imported before a command needs it, so that `--help` answers at once. Bad input ends in one line and
exit code 2.
"""

import argparse
import errno
import os
import signal
import sys
from pathlib import Path
from typing import NoReturn

from bertsecrets import __version__
from bertsecrets.cli.patterns import add_parsers as add_pattern_parsers
from bertsecrets.cli.signals import as_interrupt
from bertsecrets.errors import UserError
from bertsecrets.types import INITIALISATIONS

# How writing to a standard output fails that is a file or a device; no path is named then.
OUTPUT_FAILS = (errno.ENOSPC, errno.EDQUOT, errno.EFBIG, errno.EIO, errno.EBADF)


class _Parser(argparse.ArgumentParser):
    def error(self, message: str) -> NoReturn:
        self.exit(2, f"{self.prog}: {message} (see {self.prog} --help)\n")


def path(text: str) -> Path:
    """A path as every option takes it.

    Raises:
        argparse.ArgumentTypeError: it is empty, as from a variable that is not set, and would be the current folder.
    """
    if not text:
        raise argparse.ArgumentTypeError("an empty path: name a file or folder")
    return Path(text)


def _add_bench_options(parser: argparse.ArgumentParser) -> None:
    """The options that every command which computes shares; the benchmarks have the same."""
    parser.add_argument("--model", help="hub name, folder, or minilm; NAME@REVISION pins a commit")
    parser.add_argument(
        "--glue",
        type=path,
        action="append",
        help="local GLUE folder (default: BERTSECRETS_GLUE, else the hub); given again, for what the first lacks",
    )
    parser.add_argument("--store", type=path, help="where checkpoints and measurements are kept (default: runs)")
    parser.add_argument("--device", help="cpu, cuda, cuda:1 (default: the GPU where there is one)")
    parser.add_argument("--limit", type=int, metavar="N", help="only the first N validation rows")
    parser.add_argument("--train-limit", type=int, metavar="N", help="only the first N training rows")
    parser.add_argument("--grid-limit", type=int, metavar="N", help="of these, only the first N in ablation grids")
    parser.add_argument("--offline", action="store_true", help="never touch the network")
    parser.add_argument("--allow-unofficial-data", action="store_true", help="go on where row or class counts differ")


def _add_text_options(parser: argparse.ArgumentParser) -> None:
    """The options of what needs frame sentences, tags or parses."""
    frames_help = "frame sentences: JSONL, or FrameNet's folder or archive (default: BERTSECRETS_FRAMES)"
    parser.add_argument("--frames", type=path, help=frames_help)
    parser.add_argument("--spacy", metavar="NAME", help="pipeline that tags and parses (default: en_core_web_sm)")


def build_parser() -> argparse.ArgumentParser:
    """All commands and their options."""
    parser = _Parser(
        prog="bertsecrets", description='"Revealing the Dark Secrets of BERT", as benchmarks that can fail.'
    )
    parser.add_argument("--version", action="version", version=f"bertsecrets {__version__}")
    commands = parser.add_subparsers(dest="command", required=True, metavar="COMMAND", parser_class=_Parser)

    claims = commands.add_parser("claims", help="list every claim and what is known of it")
    claims.add_argument("--model", help="only what is known of this model")
    claims.add_argument("--store", type=path, help="whose last verdicts are shown (default: runs)")

    explain = commands.add_parser("explain", help="print one claim whole")
    explain.add_argument("claim", help="its id, e.g. C1")
    explain.add_argument("--store", type=path, help="whose last verdicts are shown (default: runs)")

    corpus = commands.add_parser("corpus", help="write the suite's own small corpus as a GLUE folder")
    corpus.add_argument("folder", type=path)
    corpus.add_argument("--train-rows", type=int, help="training pairs (default: params.yaml)")
    corpus.add_argument("--dev-rows", type=int, help="validation pairs (default: params.yaml)")

    fetch = commands.add_parser("fetch", help="get a model and GLUE tasks ahead of time, and check them")
    fetch.add_argument("--task", action="append", help="may be given several times (default: all seven)")
    _add_bench_options(fetch)

    finetune = commands.add_parser("finetune", help="train one checkpoint")
    finetune.add_argument("--task", required=True)
    finetune.add_argument("--init", choices=INITIALISATIONS, default="pretrained")
    finetune.add_argument("--seed", type=int, default=1)
    finetune.add_argument("--output", type=path, help="also write the checkpoint to this folder")
    _add_bench_options(finetune)

    measure = commands.add_parser("measure", help="run one measure on one subject")
    measure.add_argument("measure", help="scores, attention-change, special-tokens, ... or all")
    measure.add_argument("--task", help="required by all but frame-heads, example-sentence and pattern-quality")
    _add_text_options(measure)
    measure.add_argument("--cased", action="store_true", help="scores with the tokenizer's lower-casing off (claim D6)")
    measure.add_argument("--checkpoint", type=path, help="any folder that opens as a sequence classifier")
    measure.add_argument("--init", choices=INITIALISATIONS, default="pretrained")
    measure.add_argument("--seed", type=int, default=1)
    measure.add_argument(
        "--padded-to", type=int, metavar="TOKENS", help="attention-change as K19's notebook has it (200)"
    )
    measure.add_argument(
        "--heads",
        metavar="SETS",
        help="head-ablation of these sets: 1.2 1.2+7.6 5 (a layer) pairs:5 nested:1.2,7.6, counted from 1",
    )
    measure.add_argument("--json", type=path, metavar="FILE", help="write the measurement here (default: print it)")
    measure.add_argument("--save", type=path, metavar="DIR", help="also keep it whole, with samples, in this folder")
    _add_bench_options(measure)

    report = commands.add_parser("report", help="judge claims, print the table, write a page")
    report.add_argument(
        "--task",
        action="append",
        help="may be given several times; `all` for claims on no task or several (default: everything that has data)",
    )
    report.add_argument("--claim", action="append", help="only these ids")
    report.add_argument(
        "--seeds", type=int, metavar="N", help="seeds 1 to N (default: params.yaml; with --measurements, those kept)"
    )
    report.add_argument("--measurements", type=path, metavar="DIR", help="judge what `measure --save` kept, alone")
    report.add_argument("--metrics", type=path, help="write outcomes and observed values here, as flat JSON")
    report.add_argument("--plots", type=path, help="write the curves by layer here, as JSON rows")
    report.add_argument("--html", type=path, help="write the page here")
    report.add_argument("--json", type=path, help="write the verdicts here")
    _add_text_options(report)
    _add_bench_options(report)

    parser_training = commands.add_parser("train-parser", help="train a small spaCy pipeline where none can be had")
    parser_training.add_argument(
        "treebank", type=path, help="folder with NLTK's dependency_treebank.zip and treebank.zip"
    )
    parser_training.add_argument("folder", type=path, help="where the pipeline goes; --spacy FOLDER then uses it")

    add_pattern_parsers(commands, path, _add_bench_options)

    doctor = commands.add_parser("doctor", help="what is here, what is missing, how to get it")
    _add_bench_options(doctor)
    return parser


def main(argv: list[str] | None = None) -> int:
    """Run a command; returns the exit code: 0, 2 where the user can put something right, 128 and the signal's number.

    A signal to end is taken as Ctrl-C is: what was begun is cleared away.
    """
    options = build_parser().parse_args(argv)
    with as_interrupt():
        return _run(options)


def _run(options: argparse.Namespace) -> int:
    try:
        from bertsecrets.cli import commands

        commands.run(options)
        print(end="", flush=True)
    except UserError as error:
        print(f"bertsecrets: {error}", file=sys.stderr)
        return 2
    except KeyboardInterrupt as signalled:
        print("bertsecrets: interrupted; what was finished is in the store", file=sys.stderr)
        return 128 + (signalled.args[0] if signalled.args else signal.SIGINT)
    except BrokenPipeError:
        _drop_output()
    except OSError as error:
        if error.filename is not None or error.errno not in OUTPUT_FAILS:
            raise
        _drop_output()
        print(f"bertsecrets: cannot write the output: {error.strerror}: send it elsewhere", file=sys.stderr)
        return 2
    return 0


def _drop_output() -> None:
    """Let whatever is still to be written go nowhere, so that it raises no second error at the end."""
    os.dup2(os.open(os.devnull, os.O_WRONLY), sys.stdout.fileno())


if __name__ == "__main__":
    sys.exit(main())
