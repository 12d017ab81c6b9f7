"""The documentation is correct: its commands parse, its code runs, its claims load, and its tables are complete."""

import argparse
import os
import re
import tomllib
from collections.abc import Callable

import pytest
import yaml
from pages import DOCS, PROJECT, Block, all_blocks, blocks, pages, program, run_options

from bertsecrets.benchmarks.pytest_options import RUN_OPTIONS
from bertsecrets.claims.band import format_interval, format_number
from bertsecrets.claims.loading import ADDED_FIELDS, find_cases, load_claims
from bertsecrets.claims.quantities import QUANTITIES
from bertsecrets.claims.schema import Claim
from bertsecrets.cli.main import build_parser, main
from bertsecrets.compare.changes import read_verdicts_file
from bertsecrets.measures.registry import measure_names
from bertsecrets.options import flag, variable
from bertsecrets.report.explanation import statements
from bertsecrets.texts.own_tasks import read_task_file
from instruments.__main__ import build_parser as build_instruments

SHELL = ("sh", "bash", "console", "")
OWN = [flag(name) for name in RUN_OPTIONS]
# Options of pytest and its plugins.
PYTESTS = ["-k", "-m", "-rs", "--pyargs", "--collect-only", "--junitxml", "--benchmark-json"]
PYTESTS += ["--benchmark-autosave", "--benchmark-compare", "--benchmark-compare-fail", "--benchmark-only"]
COMMANDS = [(block, command) for block in all_blocks(*SHELL) for command in block.commands]
# Options of these and of Docker that pages mention.
OF_CONTAINERS = {"--volume", "--userns", "--user", "--gpus"}
EXTENDING = ("extend.md", "measures.md")
RUN_FOR_REAL = [  # except on pages that add claims, which tests/docs/test_adding.py runs
    (block, command)
    for block, command in COMMANDS
    if command[0] == "bertsecrets"
    and command[1] in ("claims", "explain", "corpus")
    and block.page.name not in EXTENDING
]
TASK_FILE = "complaints.yaml"


def lines_of(*programs: str) -> list[tuple[Block, list[str]]]:
    """Return the documented command lines of some programs, without the program name and redirections."""
    return [(block, c[1 : c.index(">") if ">" in c else None]) for block, c in COMMANDS if c[0] in programs]


def check_lines(lines: list[tuple[Block, list[str]]], check: Callable[[list[str]], bool]) -> None:
    """Assert that no command line fails a check or is rejected by the parser."""
    failed = []
    for block, arguments in lines:
        try:
            passed = check(arguments)
        except (SystemExit, argparse.ArgumentError):
            passed = False
        failed += [] if passed else [f"{block}: {' '.join(arguments)}"]
    assert lines
    assert failed == []


def subparsers(parser: argparse.ArgumentParser | None = None) -> dict[str, argparse.ArgumentParser]:
    parser = parser or build_parser()
    actions = parser._actions
    return next((action.choices for action in actions if isinstance(action, argparse._SubParsersAction)), {})


# ---------------------------------------------------------------------- shell


def test_documented_commands_are_understood():
    parser, instruments = build_parser(), build_instruments()
    check_lines(lines_of("bertsecrets"), lambda arguments: parser.parse_args(arguments).command == arguments[0])
    lines = [
        (block, arguments[2:]) for block, arguments in lines_of("python") if arguments[:2] == ["-m", "instruments"]
    ]
    check_lines(lines, lambda arguments: instruments.parse_args(arguments).command == arguments[0])


def test_documented_pytest_lines_have_only_options_that_exist():
    parser = run_options()

    def check(arguments: list[str]) -> bool:
        parser.parse_known_args([argument for argument in arguments if argument not in PYTESTS])
        options = [argument.split("=")[0] for argument in arguments if argument.startswith("-")]
        return {*options} <= {*OWN, *PYTESTS} and bool(
            {"benchmarks", "benchmarks/speed", "bertsecrets.benchmarks"} & {*arguments}
        )

    check_lines(lines_of("pytest"), check)


def test_documented_targets_extras_and_files_exist():
    targets = re.findall(r"^([a-z-]+):", (PROJECT / "Makefile").read_text(), re.M)
    check_lines(lines_of("make"), lambda arguments: all("=" in word or word in targets for word in arguments))
    extras = tomllib.loads((PROJECT / "pyproject.toml").read_text())["project"]["optional-dependencies"]

    def installable(arguments: list[str]) -> bool:
        return all({*names.split(",")} <= {*extras} for names in re.findall(r"\[([^]]+)\]", " ".join(arguments)))

    check_lines(lines_of("pip"), installable)
    files = (".dvc", ".yaml")
    check_lines(lines_of("dvc"), lambda arguments: all((PROJECT / w).exists() for w in arguments if w.endswith(files)))


def test_documented_selections_name_claims_that_exist():
    known = {claim.id for claim in load_claims()} | _ids_that_pages_add()
    check_lines(COMMANDS, lambda arguments: {*re.findall(r"\b([A-J]\d+p?)\b", " ".join(arguments))} <= known)


def _claims_of_pages() -> list[Block]:
    """Return the YAML blocks with claims; tests/test_workflows.py checks those with workflows."""
    others = (".git", TASK_FILE)
    return [block for block in all_blocks("yaml") if not block.title.startswith(others)]


def _ids_that_pages_add() -> set[str]:
    return {entry["id"] for block in _claims_of_pages() for entry in yaml.safe_load(block.text)}


def test_cheap_documented_commands_run(tmp_path, monkeypatch, capsys):
    monkeypatch.chdir(tmp_path)
    assert RUN_FOR_REAL
    for _, command in RUN_FOR_REAL:
        assert main(command[1:]) == 0, command
        assert capsys.readouterr().out, command


def test_every_option_that_a_page_names_exists():
    commands = [*subparsers().values(), *subparsers(build_instruments()).values()]
    parsers = [subparser for command in commands for subparser in (command, *subparsers(command).values())]
    known = {option for parser in parsers for action in parser._actions for option in action.option_strings}
    known |= {*OWN, *PYTESTS, "--help", "--version"}
    for page in pages():
        prose = re.sub(r"^```.*?^```$", "", page.read_text(encoding="utf-8"), flags=re.M | re.S)
        named = {
            name for code in re.findall(r"`([^`]+)`", prose) for name in re.findall(r"(?<!\S)--[a-z][a-z-]+", code)
        }
        if page.name not in ("data-card.md",):  # it mentions DVC options
            assert named - known - {"--remote", *OF_CONTAINERS} == set(), page


# ---------------------------------------------------------------------- Python and YAML


@pytest.mark.parametrize(
    "page",
    [PROJECT / "README.md", pytest.param(DOCS / "python.md", marks=pytest.mark.slow)],
    ids=lambda page: page.name,
)
def test_the_python_of_a_page_runs(page, as_documented, capsys):
    names: dict[str, object] = {}
    for block in blocks(page):
        if block.language == "python":
            exec(compile(as_documented(block.text), str(block), "exec"), names)
    assert names["verdict"].outcome in ("reproduced", "deviates", "inconclusive", "degenerate")
    assert {measurement.subject.seed for measurement in names["verdict"].measurements} == {1, 2, 3}
    assert capsys.readouterr().out


def test_the_python_of_the_data_card_runs():
    (code,) = (block.text for block in blocks(DOCS / "instruments" / "data-card.md") if block.language == "python")
    names: dict[str, object] = {}
    exec(code, names)
    assert len(names["maps"]) == 3378


def test_the_documented_task_file_is_read(tmp_path):
    block = next(block for block in all_blocks("yaml") if block.title == TASK_FILE)
    for name in ("train.csv", "dev.csv"):
        (tmp_path / name).write_text("title,text,decision\nan order,it came late,upheld\nanother,it came,rejected\n")
    (tmp_path / TASK_FILE).write_text(block.text)
    assert read_task_file(tmp_path / TASK_FILE).labels == ("rejected", "upheld")


def test_documented_claims_are_sound():
    for block in _claims_of_pages():
        for entry in yaml.safe_load(block.text):
            if entry.keys() <= ADDED_FIELDS:  # outcomes of a claim of the suite
                assert find_cases(f"{entry['id']}-{entry['variant']}")
                continue
            known = entry["measure"] in measure_names() and entry.get("quantity") in QUANTITIES
            if known and "cola" not in entry["tasks"]:
                Claim.model_validate(entry)
            else:
                assert block.page.name in EXTENDING, block  # tests/docs/test_adding.py runs these claims


# ---------------------------------------------------------------------- tables and lists


@pytest.fixture(scope="module")
def tables():
    return program("docs/tables.py")


def test_the_tables_of_every_page_are_current(tables):
    for page in tables.PAGES:
        text = page.read_text(encoding="utf-8")
        assert len(tables.PLACE.findall(text)) == text.count("<!-- table"), f"{page} has a malformed marker of a table"
        assert tables.renewed(text) == text, f"the tables in {page} are out of date: run `make tables`"


def test_every_environment_variable_is_documented():
    sources = "".join(path.read_text(encoding="utf-8") for path in (PROJECT / "bertsecrets").rglob("*.py"))
    used = set(re.findall(r"\bBERTSECRETS_[A-Z]+", sources))
    used |= {variable(name) for name in re.findall(r"\bvariable\([\"'](\w+)[\"']\)", sources)}
    assert used == set(re.findall(r"^\| `(BERTSECRETS_[A-Z]+)`", (DOCS / "options.md").read_text(), re.M))


@pytest.mark.parametrize("name", ["README.md", "CONTRIBUTING.md"])
def test_links_outside_the_site_lead_somewhere(name):
    """`mkdocs build --strict` (`make docs`) checks the links of the site."""
    page = PROJECT / name
    prose = re.sub(r"^```.*?^```$", "", page.read_text(encoding="utf-8"), flags=re.M | re.S)
    for target in re.findall(r"\]\((?!http)([^)#]+)(?:#[^)]*)?\)", prose):
        assert os.path.exists(page.parent / target), (page, target)


def test_the_statements_of_the_sources_name_every_claim_and_no_other():
    listed = {name for row in statements() for name in row["claims"].split(", ")} - {"-"}
    known = {claim.name for claim in load_claims()} | {claim.id for claim in load_claims()} | {"B5-text"}
    assert listed <= known, listed - known
    assert {claim.id for claim in load_claims()} <= {name.split("-")[0] for name in listed} | {"G9"}  # G9 is our own


def test_the_readme_shows_verdicts_on_record():
    file = PROJECT / "expected" / "evidence" / "verdicts-minilm-rte.json"
    on_record = {verdict.id: verdict for verdict in read_verdicts_file(file).verdicts}
    [table] = [block.text for block in blocks(PROJECT / "README.md") if block.text.startswith("id ")]
    rows = [section.partition("\n\n")[0].split() for section in re.split(r"^(?=[A-J]\d)", table, flags=re.M)[1:]]
    assert len(rows) == 4
    for claim, _, published, *words in rows:
        verdict = on_record[f"{claim}-rte"]
        observed = f"{format_number(verdict.observed)} {format_interval(verdict.interval)} {verdict.unit}"
        assert published == ("-" if verdict.published is None else format_number(verdict.published))
        assert {*observed.split(), verdict.verdict} <= {word.rstrip(":") for word in words}
        assert ("(known)" in words) == verdict.known_deviation
