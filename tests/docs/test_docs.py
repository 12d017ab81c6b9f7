"""The documentation says what is so: its commands parse, its code runs, its claims load, its tables are whole."""

import argparse
import importlib.util
import os
import re
import tomllib

import pytest
import yaml
from accelerate.commands.launch import launch_command_parser
from pages import DOCS, PROJECT, Block, all_blocks, blocks, pages
from torch.distributed.run import get_args_parser

from bertsecrets.claims.quantities import QUANTITIES
from bertsecrets.claims.schema import Claim, load_claims
from bertsecrets.cli.main import build_parser, main
from bertsecrets.measures.registry import measure_names
from bertsecrets.options import PARSING

SHELL = ("sh", "bash", "console", "")
OWN = [f"--{name.replace('_', '-')}" for name in PARSING]
# Options of pytest alone: its own, and one of the benchmarks.
PYTESTS = [
    "-k",
    "-m",
    "-n",
    "-rs",
    "--pyargs",
    "--benchmark-json",
    "--junitxml",
    "--collect-only",
    "--jobs",
    "--checkpoint",
    "--task",
    "--against",
    "--report",
    "--examples",
]
COMMANDS = [(block, command) for block in all_blocks(*SHELL) for command in block.commands]
LAUNCHERS = ("accelerate", "torchrun")
CONTAINERS = ("podman", "apptainer")
# Options of these and of Docker that pages name in passing.
OF_CONTAINERS = {"--volume", "--userns", "--user", "--gpus"}
# What stands for the user's own in the messages of the page of troubles.
YOURS = r"\b[A-Z]{2,}[\w.-]*(?:'s)?|'[^']*'|\b\d+\b|\bC1\b[-\w]*|\.\.\.|/dev\.tsv|\bdev\b|[\w.]+_model\.bin"
RUN_FOR_REAL = [  # but for claims that a page adds, which tests/docs/test_adding.py does
    (block, command)
    for block, command in COMMANDS
    if command[0] == "bertsecrets"
    and command[1] in ("claims", "explain", "corpus")
    and block.page.parent.name != "adding"
]


def of(program: str) -> list:
    """The command lines of a program, for a test of each."""
    called = [(block, c[1 : c.index(">") if ">" in c else None]) for block, c in COMMANDS if c[0] == program]
    return [pytest.param(words, id=f"{block} {' '.join(words[:3])}") for block, words in called]


def subparsers(parser: argparse.ArgumentParser | None = None) -> dict[str, argparse.ArgumentParser]:
    """The parser of each command, or of each action of a command that has some."""
    actions = (parser or build_parser())._actions
    return next((action.choices for action in actions if isinstance(action, argparse._SubParsersAction)), {})


# ---------------------------------------------------------------------- shell


def test_every_command_line_is_of_a_program_that_is_checked():
    known = {
        "bertsecrets",
        "pytest",
        "make",
        "pip",
        "python",
        "dvc",
        "git",
        "source",
        "mkdocs",
        "bash",
        *LAUNCHERS,
        *CONTAINERS,
    }
    assert {command[0] for _, command in COMMANDS} <= known


@pytest.mark.parametrize("arguments", of("bertsecrets"))
def test_a_documented_command_is_understood(arguments):
    assert build_parser().parse_args(arguments).command == arguments[0]


@pytest.mark.parametrize("arguments", [words for name in LAUNCHERS for words in of(name)])
def test_a_documented_launcher_and_the_command_that_it_starts_are_understood(arguments):
    parser = launch_command_parser() if arguments[0] == "launch" else get_args_parser()
    started = parser.parse_args(arguments[arguments[0] == "launch" :])
    assert (started.module, started.training_script) == (True, "bertsecrets")
    assert build_parser().parse_args(started.training_script_args).run


@pytest.mark.parametrize("arguments", [words for name in CONTAINERS for words in of(name)])
def test_a_command_that_a_documented_container_runs_is_understood(arguments):
    if arguments[0] == "run":
        image = next(place for place, word in enumerate(arguments) if word in ("bertsecrets", "bertsecrets.sif"))
        assert arguments[image + 1] == "bertsecrets"
        assert build_parser().parse_args(arguments[image + 2 :]).run
    else:
        files = [word for word in arguments if word.startswith("container/")]
        assert all((PROJECT / name).is_file() for name in files)


@pytest.mark.parametrize("arguments", of("pytest"))
def test_a_documented_pytest_line_has_only_options_that_there_are(arguments):
    assert [word for word in arguments if word.startswith("-") and word.split("=")[0] not in (*OWN, *PYTESTS)] == []
    assert {"benchmarks", "bertsecrets.benchmarks"} & set(arguments)
    parser = argparse.ArgumentParser(exit_on_error=False)
    for name, parsing in PARSING.items():
        parser.add_argument(f"--{name.replace('_', '-')}", **parsing)
    parser.parse_known_args([word for word in arguments if word not in PYTESTS])


@pytest.mark.parametrize("arguments", of("make"))
def test_a_documented_target_is_in_the_makefile(arguments):
    targets = re.findall(r"^([a-z-]+):", (PROJECT / "Makefile").read_text(), re.M)
    assert [word for word in arguments if "=" not in word and word not in targets] == []


@pytest.mark.parametrize("arguments", of("pip"))
def test_a_documented_extra_can_be_installed(arguments):
    extras = tomllib.loads((PROJECT / "pyproject.toml").read_text())["project"]["optional-dependencies"]
    for name in re.findall(r"\[([^]]+)\]", " ".join(arguments)):
        assert set(name.split(",")) <= set(extras)


@pytest.mark.parametrize("arguments", of("dvc"))
def test_a_documented_file_of_dvc_is_there(arguments):
    assert [word for word in arguments if word.endswith((".dvc", ".yaml")) and not (PROJECT / word).exists()] == []


@pytest.mark.parametrize("block", all_blocks(*SHELL), ids=str)
def test_a_documented_selection_names_claims_and_tasks_that_there_are(block):
    shown = {claim.id for claim in load_claims()} | _ids_that_pages_add()
    for command in block.commands:
        for claim in re.findall(r"\b([A-J]\d+p?)\b", " ".join(command)):
            assert claim in shown, (block, claim)


def _claims_of_pages() -> list[Block]:
    """The blocks of YAML that are claims; those of workflows are checked by tests/test_workflows.py."""
    return [block for block in all_blocks("yaml") if not block.title.startswith(".github/")]


def _ids_that_pages_add() -> set[str]:
    return {entry["id"] for block in _claims_of_pages() for entry in yaml.safe_load(block.text)}


@pytest.mark.parametrize(("block", "command"), RUN_FOR_REAL, ids=lambda value: str(value)[-40:])
def test_a_cheap_documented_command_runs(block, command, tmp_path, monkeypatch, capsys):
    monkeypatch.chdir(tmp_path)
    assert main(command[1:]) == 0
    assert capsys.readouterr().out


@pytest.mark.parametrize("command", ["", *subparsers()])
def test_every_command_has_its_help(command, capsys):
    with pytest.raises(SystemExit) as stop:
        main([*([command] if command else []), "--help"])
    assert stop.value.code == 0
    assert "usage: bertsecrets" in capsys.readouterr().out


def test_every_option_that_a_page_names_exists():
    parsers = [one for command in subparsers().values() for one in (command, *subparsers(command).values())]
    known = {option for parser in parsers for action in parser._actions for option in action.option_strings}
    known |= {*OWN, *PYTESTS, "--help", "--version"}
    for page in pages():
        prose = re.sub(r"^```.*?^```$", "", page.read_text(encoding="utf-8"), flags=re.M | re.S)
        named = {
            name for code in re.findall(r"`([^`]+)`", prose) for name in re.findall(r"(?<!\S)--[a-z][a-z-]+", code)
        }
        if page.name not in ("patterns-data-card.md",):  # which names options of DVC
            assert named - known - {"--strict-verdicts", "--remote", *OF_CONTAINERS} == set(), page


# ---------------------------------------------------------------------- Python and YAML


@pytest.mark.parametrize("page", [PROJECT / "README.md", DOCS / "python.md"], ids=lambda page: page.name)
def test_the_python_of_a_page_runs(page, as_documented, capsys):
    names: dict[str, object] = {}
    for block in blocks(page):
        if block.language == "python":
            exec(compile(as_documented(block.text), str(block), "exec"), names)
    assert names["verdict"].outcome in ("reproduced", "deviates", "inconclusive")
    assert {measurement.subject.seed for measurement in names["verdict"].measurements} == {1, 2}
    assert capsys.readouterr().out


def test_the_python_of_the_data_card_runs():
    (code,) = (block.text for block in blocks(DOCS / "patterns-data-card.md") if block.language == "python")
    names: dict[str, object] = {}
    exec(code, names)
    assert len(names["maps"]) == 3378


@pytest.mark.parametrize("block", _claims_of_pages(), ids=str)
def test_a_documented_claim_is_sound(block, monkeypatch):
    for entry in yaml.safe_load(block.text):
        if entry["measure"] in measure_names() and entry.get("quantity") in QUANTITIES and "cola" not in entry["tasks"]:
            assert Claim.model_validate(entry).implemented
        else:
            assert block.page.parent.name == "adding"  # of what the page adds: tests/docs/test_adding.py


def test_every_python_block_is_run_by_a_test():
    run = {"README.md", "check-ablation.md", "python.md", "patterns-data-card.md"}
    for block in all_blocks("python"):
        assert block.page.name in run or block.page.parent.name == "adding", block


# ---------------------------------------------------------------------- tables and lists


@pytest.fixture(scope="module")
def tables():
    """The module that puts the tables into pages when the site is built."""
    spec = importlib.util.spec_from_file_location("tables", DOCS / "hooks" / "tables.py")
    module = importlib.util.module_from_spec(spec)
    spec.loader.exec_module(module)
    return module


def test_every_table_that_a_page_asks_for_is_made(tables):
    for page in sorted(DOCS.rglob("*.md")):
        made = tables.on_page_markdown(page.read_text(encoding="utf-8"))
        assert "<!-- table" not in made, page


def test_the_pages_of_reference_name_every_measure_quantity_option_and_command(tables):
    made = {
        name: tables.on_page_markdown((DOCS / f"{name}.md").read_text())
        for name in ("measures", "quantities", "options")
    }
    assert [name for name in measure_names() if f"### {name}\n" not in made["measures"]] == []
    assert [name for name in QUANTITIES if f"| `{name}` |" not in made["quantities"]] == []
    assert [option for option in OWN if f"| `{option}" not in made["options"]] == []
    assert [name for name in subparsers() if f"| `bertsecrets {name}` |" not in made["options"]] == []


def test_every_claim_stands_on_the_page_of_its_experiment(tables):
    made = "".join(tables.on_page_markdown(page.read_text()) for page in sorted((DOCS / "experiments").glob("*.md")))
    assert [claim.name for claim in load_claims() if f"\n| {claim.name} | {claim.statement}" not in made] == []


def test_every_quantity_of_a_claim_is_explained_with_its_experiment():
    families = {page.name[0]: page.read_text() for page in (DOCS / "experiments").glob("[a-z]-*.md")}
    for claim in load_claims():
        if claim.quantity:
            assert f"`{claim.quantity}`" in families[claim.id[0].lower()], claim.name
            assert f"`{claim.measure}`" in families[claim.id[0].lower()], claim.name


def test_every_environment_variable_is_documented():
    sources = "".join(path.read_text(encoding="utf-8") for path in (PROJECT / "bertsecrets").rglob("*.py"))
    used = set(re.findall(r"\bBERTSECRETS_[A-Z]+", sources))
    assert used == set(re.findall(r"^\| `(BERTSECRETS_[A-Z]+)`", (DOCS / "options.md").read_text(), re.M))


def test_troubleshooting_quotes_messages_that_the_suite_gives():
    """Capital letters and what is quoted stand for the user's own; the words between them are the suite's."""
    sources = "".join(path.read_text(encoding="utf-8") for path in (PROJECT / "bertsecrets").rglob("*.py"))
    rows = re.findall(r"^\| ([^|]+) \| [^|]+ \|$", (DOCS / "troubleshooting.md").read_text(), re.M)[2:]
    assert len(rows) > 15
    for message in rows:
        parts = re.split(YOURS, message)
        for part in (part.strip(" :,;") for part in parts):
            assert len(part) < 6 or part in sources, (message, part)


def test_readme_is_one_screen_and_says_who_k19_and_p20_are():
    readme = (PROJECT / "README.md").read_text(encoding="utf-8")
    assert readme.count("\n") <= 100
    assert "Kovaleva, Romanov, Rogers, Rumshisky" in readme
    assert "Prasanna, Rogers, Rumshisky" in readme
    assert (PROJECT / "docs" / "images" / "report.png").stat().st_size < 300_000


def test_links_between_pages_lead_somewhere():
    for page in pages():
        prose = re.sub(r"^```.*?^```$", "", page.read_text(encoding="utf-8"), flags=re.M | re.S)
        for target in re.findall(r"\]\((?!http)([^)#]+)(?:#[^)]*)?\)", prose):
            assert os.path.exists(page.parent / target), (page, target)


def test_the_glossary_has_the_words_that_pages_and_messages_use():
    terms = set(re.findall(r"\*\*([^*]+)\*\*", (DOCS / "glossary.md").read_text(encoding="utf-8").lower()))
    assert terms >= {
        "k19",
        "p20",
        "head",
        "map",
        "band",
        "verdict",
        "estimand",
        "subject",
        "seed",
        "measure",
        "quantity",
    }
    assert terms >= {"need", "gain", "block", "claim", "case", "measurement", "store", "points", "constant answer"}
