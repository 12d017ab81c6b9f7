"""The commands of the machine formats: `schema` prints theirs, `changes` compares two files of verdicts."""

import argparse
import json

from bertsecrets.options import path


def add_parsers(commands) -> None:
    """Add the commands' options to the command line."""
    printing = commands.add_parser("schema", help="print the JSON Schema of the files that report --json writes")
    printing.set_defaults(run=schema)

    parser = commands.add_parser("changes", help="say what changed between the verdicts of two runs")
    parser.add_argument("old", type=path, metavar="OLD.json", help="verdicts of the earlier run, from report --json")
    parser.add_argument("new", type=path, metavar="NEW.json", help="verdicts of the later run")
    parser.add_argument("--markdown", type=path, metavar="FILE", help="write it to this file too, as a comment")
    parser.set_defaults(run=changes)


def schema(options: argparse.Namespace) -> None:
    """Print the JSON Schema of the files of verdicts."""
    from bertsecrets.formats import json_schema

    print(json.dumps(json_schema(), indent=1, ensure_ascii=False))


def changes(options: argparse.Namespace) -> None:
    """Print what changed between two files of verdicts; whatever it is, the exit code is 0."""
    from bertsecrets.report import changes as report
    from bertsecrets.store.files import write_whole

    found = report.changes(report.read_verdicts_file(options.old), report.read_verdicts_file(options.new))
    for line in report.as_lines(found):
        print(line)
    if options.markdown:
        write_whole(options.markdown, report.as_markdown(found))
