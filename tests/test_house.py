"""The layers of the package: which parts may import which, and which must start without heavy libraries."""

import ast
import functools
import re
from collections import Counter
from collections.abc import Iterable, Iterator
from graphlib import TopologicalSorter
from pathlib import Path

from calls import started

import bertsecrets

PACKAGE = Path(bertsecrets.__file__).parent
# Each part imports only from itself and from parts to its left.
ORDER = (
    "errors", "arguments", "progress", "reading", "types", "formats", "settings", "devices", "store", "provenance",
    "hub", "texts", "models", "ablation", "patterns", "measures", "claims", "judging", "saved", "compare", "report",
    "option_checks", "options", "cores", "caches", "open_session", "session", "jobs", "cli", "benchmarks",
)  # fmt: skip
COMMANDS = "cli"  # its modules have the command's name, which a domain module may share
# Modules named like a folder: two after their measure; the third's name is part of the cache keys of checkpoints.
NAMED_LIKE_A_FOLDER = {"measures/features", "measures/patterns", "models/training/texts"}
FACES = ("__init__", "__main__")  # the package's `__init__` re-exports names from all layers


@functools.cache
def imports() -> dict[str, set[str]]:
    """Return each module's imports from the package, including those inside functions, as names below `bertsecrets`."""
    paths = {".".join(path.relative_to(PACKAGE).with_suffix("").parts): path for path in PACKAGE.rglob("*.py")}
    return {
        name.removesuffix(".__init__"): set(imported(path)) for name, path in sorted(paths.items()) if name not in FACES
    }


def imported(path: Path) -> Iterator[str]:
    for node in ast.walk(ast.parse(path.read_text(encoding="utf-8"))):
        if isinstance(node, ast.ImportFrom) and node.module and node.module.split(".")[0] == "bertsecrets":
            inner = node.module.split(".")[1:]
            names = [".".join([*inner, alias.name]) for alias in node.names]
            yield from [".".join(inner), *names] if inner else [name for name in names if name in ORDER]
        elif isinstance(node, ast.Import):
            for alias in node.names:
                if alias.name.startswith("bertsecrets."):
                    yield alias.name.removeprefix("bertsecrets.")


def layer(name: str) -> int:
    return ORDER.index(name.split(".")[0])


def test_every_module_has_its_place_in_the_order():
    assert {name.split(".")[0] for name in imports()} == set(ORDER)


def test_imports_run_one_way():
    assert [
        f"{name} imports {other}"
        for name, others in imports().items()
        for other in others
        if layer(other) > layer(name)
    ] == []


def test_no_modules_import_each_other_in_a_circle():
    graph = imports()
    order = TopologicalSorter({name: (others & graph.keys()) - {name} for name, others in graph.items()})
    assert len(list(order.static_order())) == len(graph)


def test_the_package_imports_neither_the_instruments_nor_the_tests():
    checkout = {"instruments", "tests", "benchmarks", "docs"}
    assert all((PACKAGE.parent / name).is_dir() for name in checkout)
    for path in PACKAGE.rglob("*.py"):
        for node in ast.walk(ast.parse(path.read_text(encoding="utf-8"))):
            names = [alias.name for alias in node.names] if isinstance(node, ast.Import) else []
            names += [node.module or ""] if isinstance(node, ast.ImportFrom) else []
            assert not {name.split(".")[0] for name in names} & checkout, path


def test_no_two_modules_share_a_name():
    paths = [path.relative_to(PACKAGE).with_suffix("") for path in PACKAGE.rglob("*.py") if path.stem not in FACES]
    modules = [path for path in paths if path.parent.as_posix() != COMMANDS]
    folders = {path.parent for path in paths if path.parent.name}
    assert repeated(path.name for path in modules) == set()
    assert repeated(folder.name for folder in folders) == set()
    assert {path.as_posix() for path in modules if path.name in {f.name for f in folders}} == NAMED_LIKE_A_FOLDER


def test_no_two_public_classes_share_a_name():
    trees = [ast.parse(path.read_text(encoding="utf-8")) for path in PACKAGE.rglob("*.py")]
    classes = [node.name for tree in trees for node in tree.body if isinstance(node, ast.ClassDef)]
    assert repeated(name for name in classes if not name.startswith("_")) == set()


def test_no_two_modules_define_a_constant_of_the_same_name():
    trees = [ast.parse(path.read_text(encoding="utf-8")) for path in PACKAGE.rglob("*.py")]
    assert repeated(name for tree in trees for name in constants(tree)) == set()


def constants(tree: ast.Module) -> Iterator[str]:
    """Yield the names in capitals that a module assigns."""
    assigned = [node.targets for node in tree.body if isinstance(node, ast.Assign)]
    assigned += [[node.target] for node in tree.body if isinstance(node, ast.AnnAssign)]
    for target in (target for targets in assigned for target in targets):
        yield from (node.id for node in ast.walk(target) if isinstance(node, ast.Name) and node.id.isupper())


def repeated(names: Iterable[str]) -> set[str]:
    return {name for name, count in Counter(names).items() if count > 1}


def test_statistics_of_examples_are_made_by_the_claims_and_never_inside_a_measure():
    for name, others in imports().items():
        if name.startswith(("measures", "report")):
            assert "claims.bootstrap" not in others, name


def test_reading_files_and_starting_a_command_import_no_heavy_library(tmp_path):
    process = started(
        """
        import os, sys

        def check(step, heavy="torch transformers scipy sklearn spacy"):
            loaded = sys.modules.keys() & set(heavy.split())
            assert not loaded, f"{step} imports {sorted(loaded)}"

        import bertsecrets
        check("bertsecrets", "numpy pydantic torch")
        import bertsecrets.texts.framenet, bertsecrets.texts.parsing, bertsecrets.texts.tasks
        check("bertsecrets.texts")
        import bertsecrets.claims.loading
        check("bertsecrets.claims.loading")
        from bertsecrets.cli.main import build_parser, main
        build_parser()
        check("the parser", "torch transformers scipy sklearn spacy altair")
        for command in (["claims"], ["explain", "C1"]):
            assert main(command) == 0
            check(command[0], "torch transformers scipy sklearn spacy altair")
        import bertsecrets.session
        check("bertsecrets.session", "transformers scipy sympy datasets pyarrow sklearn spacy")
        """,
        STORE=str(tmp_path),
    )
    output, errors = process.communicate()
    assert process.returncode == 0, errors
    assert "C1" in output


def test_the_architecture_page_names_every_folder_and_module():
    page = (PACKAGE.parent / "docs" / "architecture.md").read_text(encoding="utf-8")
    tree = page.split("```text")[1].split("```")[0]
    folders = {path.parent.name for path in PACKAGE.rglob("*.py") if path.parent != PACKAGE}
    named = set(re.findall(r"[a-z_]+/|\b[a-z_]+\b", tree))
    assert {f"{name}/" for name in folders} - named == set()
    assert {name for name in ORDER if name not in folders} - named == set()


def test_folders_are_listed_by_functions_that_report_errors():
    """`glob` and `rglob` pass off a folder that cannot be read as empty; `os.walk` does so too."""
    swallowing = re.compile(r"\.r?glob\(|os\.walk\(|import glob|from glob\b")
    found = [
        f"{path.relative_to(PACKAGE)}: {line.strip()}"
        for path in sorted(PACKAGE.rglob("*.py"))
        for line in path.read_text(encoding="utf-8").splitlines()
        if swallowing.search(line)
    ]
    assert found == []
