"""The house: who may import whom, and what must stay light."""

import ast
import subprocess
import sys
from collections.abc import Iterator
from pathlib import Path

import pytest

import bertsecrets

ROOT = Path(__file__).parents[1]
PACKAGE = Path(bertsecrets.__file__).parent
# From left to right; each imports only from those on its left, and from itself.
ORDER = (
    *(
        "errors",
        "progress",
        "reading",
        "types",
        "formats",
        "extras",
        "bootstrap",
        "settings",
        "published",
        "code",
        "provenance",
        "store",
        "hub",
        "texts",
        "models",
    ),
    *(
        "ablation",
        "patterns",
        "measures",
        "claims",
        "drift",
        "report",
        "options",
        "session",
        "planning",
        "cli",
        "benchmarks",
    ),
)
FACES = ("__init__", "__main__")  # the package's own face hands on what lies anywhere in it


def modules() -> Iterator[tuple[str, Path]]:
    """Every module of the package, by its dotted name below `bertsecrets`."""
    for path in sorted(PACKAGE.rglob("*.py")):
        yield ".".join(path.relative_to(PACKAGE).with_suffix("").parts), path


def imported(path: Path) -> Iterator[str]:
    """What a module imports of the package, by dotted name below `bertsecrets`; inside functions too."""
    for node in ast.walk(ast.parse(path.read_text(encoding="utf-8"))):
        if isinstance(node, ast.ImportFrom) and node.module and node.module.split(".")[0] == "bertsecrets":
            inner = node.module.split(".")[1:]
            yield from [".".join(inner)] if inner else [alias.name for alias in node.names if alias.name in ORDER]
        elif isinstance(node, ast.Import):
            for alias in node.names:
                if alias.name.startswith("bertsecrets."):
                    yield alias.name.removeprefix("bertsecrets.")


def test_every_module_has_its_place_in_the_order():
    rooms = {name.split(".")[0] for name, _ in modules()}
    assert rooms - set(FACES) == set(ORDER)


def test_imports_run_one_way():
    against = [
        f"{name} imports {other}"
        for name, path in modules()
        if name.split(".")[0] not in FACES
        for other in imported(path)
        if ORDER.index(other.split(".")[0]) > ORDER.index(name.split(".")[0])
    ]
    assert against == []


def test_no_modules_import_each_other_in_a_circle():
    names = {name.removesuffix(".__init__") for name, _ in modules()}
    arrows = {
        name.removesuffix(".__init__"): {other for other in imported(path) if other in names}
        - {name.removesuffix(".__init__")}
        for name, path in modules()
        if name not in FACES
    }
    done: set[str] = set()

    def visit(name: str, way: tuple[str, ...]) -> None:
        assert name not in way, " -> ".join((*way[way.index(name) :], name))
        if name not in done:
            for other in arrows.get(name, ()):
                visit(other, (*way, name))
            done.add(name)

    for name in arrows:
        visit(name, ())


def test_patterns_that_measuring_needs_stand_below_their_annotation_and_training():
    for name, path in modules():
        if name.startswith("patterns.") and not name.startswith(("patterns.annotation", "patterns.training")):
            assert [other for other in imported(path) if other.startswith(("patterns.a", "patterns.training"))] == []


def test_statistics_of_examples_are_made_by_the_claims_and_never_inside_a_measure():
    for name, path in modules():
        if name.startswith(("measures", "report")):
            assert "bootstrap" not in set(imported(path)), name


def test_the_command_line_starts_without_what_computes():
    code = (
        "import sys; from bertsecrets.cli.main import build_parser; build_parser();"
        "heavy = {'torch', 'transformers', 'scipy', 'altair', 'spacy'} & sys.modules.keys();"
        "sys.exit(f'imported {sorted(heavy)}' if heavy else 0)"
    )
    done = subprocess.run([sys.executable, "-c", code], capture_output=True, text=True, check=False)
    assert (done.returncode, done.stderr) == (0, "")


@pytest.mark.parametrize(
    "module", ["texts.framenet", "texts.parsing", "texts.tasks", "claims.schema", "store.verdicts"]
)
def test_what_only_reads_imports_nothing_that_computes(module):
    code = (
        f"import sys, bertsecrets.{module};"
        "heavy = {'torch', 'transformers', 'scipy', 'spacy'} & sys.modules.keys();"
        "sys.exit(f'imported {sorted(heavy)}' if heavy else 0)"
    )
    done = subprocess.run([sys.executable, "-c", code], capture_output=True, text=True, check=False)
    assert (done.returncode, done.stderr) == (0, "")


@pytest.mark.parametrize("place", ["bertsecrets/models/new.py", "tests/test_new.py", "benchmarks/new.py"])
def test_an_undefined_name_fails_the_lint_wherever_it_stands(place):
    command = [sys.executable, "-m", "ruff", "check", "--no-cache", "--stdin-filename", place, "-"]
    for text, code in (("print(undefined_name)\n", 1), ("print(1)\n", 0)):
        done = subprocess.run(command, cwd=ROOT, input=text, capture_output=True, text=True, check=False)
        assert done.returncode == code, done.stdout
    assert "name-defined" not in (ROOT / "pyproject.toml").read_text(encoding="utf-8")  # nor do types look away


def test_continuous_integration_names_no_folder_of_anyones():
    script = (ROOT / ".ci" / "run").read_text(encoding="utf-8")
    assert "BERTSECRETS_GLUE" in script
    assert "shared" not in script
