"""The examples in docstrings give what they show."""

import doctest
import importlib
from pathlib import Path

import pytest

ROOT = Path(__file__).parents[1]
MODULES = sorted(
    ".".join(path.relative_to(ROOT).with_suffix("").parts)
    for path in (ROOT / "bertsecrets").rglob("*.py")
    if ">>> " in path.read_text(encoding="utf-8")
)


@pytest.mark.parametrize("module", MODULES)
def test_examples_in_docstrings_run(module):
    results = doctest.testmod(importlib.import_module(module))
    assert results.attempted
    assert not results.failed
