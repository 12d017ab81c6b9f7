"""The rooms of `bertsecrets.patterns`: what measuring needs imports neither the annotation app nor training."""

import ast
from graphlib import TopologicalSorter
from pathlib import Path

import pytest

PACKAGE = Path(__file__).resolve().parents[2] / "bertsecrets"
PATTERNS = PACKAGE / "patterns"


def imports(path: Path) -> set[str]:
    """The suite's modules that a file imports, at its top or inside a function."""
    names = set()
    for node in ast.walk(ast.parse(path.read_text(encoding="utf-8"))):
        if isinstance(node, ast.ImportFrom) and node.module and node.module.startswith("bertsecrets."):
            names |= {node.module} | {f"{node.module}.{alias.name}" for alias in node.names}
        if isinstance(node, ast.Import):
            names |= {alias.name for alias in node.names if alias.name.startswith("bertsecrets.")}
    return names


MODULES = {
    ".".join(("bertsecrets", *path.relative_to(PACKAGE).with_suffix("").parts)): imports(path)
    for path in PATTERNS.rglob("*.py")
    if path.stem != "__init__"
}


@pytest.mark.parametrize(
    ("room", "closed"),
    [
        ("bertsecrets.patterns.", ("measures", "claims", "report", "options", "session", "cli")),
        ("bertsecrets.patterns.annotation.", ("patterns.training",)),
        ("bertsecrets.patterns.features.", ("patterns.annotation", "patterns.training")),
    ],
)
def test_no_room_imports_one_on_its_right(room, closed):
    for module, imported in MODULES.items():
        if module.startswith(room):
            assert not [name for name in imported if name.startswith(tuple(f"bertsecrets.{part}" for part in closed))]


def test_what_measuring_needs_imports_neither_app_nor_training():
    needed = [module for module in MODULES if module.count(".") == 2]
    assert "bertsecrets.patterns.classifier" in needed
    for module in needed:
        closed = ("bertsecrets.patterns.annotation", "bertsecrets.patterns.training")
        assert not [name for name in MODULES[module] if name.startswith(closed)], module


def test_there_is_no_circle():
    order = TopologicalSorter({module: imported & MODULES.keys() for module, imported in MODULES.items()})
    assert len(list(order.static_order())) == len(MODULES)
