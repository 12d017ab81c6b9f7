"""The examples in docstrings run and produce the output shown."""

import ast
import doctest
import importlib
from collections.abc import Iterator
from pathlib import Path

import pytest

import bertsecrets

ROOT = Path(bertsecrets.__file__).parents[1]
PATHS = sorted(path for package in ("bertsecrets", "instruments") for path in (ROOT / package).rglob("*.py"))
DOCUMENTED = (ast.Module, ast.ClassDef, ast.FunctionDef, ast.AsyncFunctionDef)


def docstrings_with_examples() -> Iterator[tuple[str, str, str]]:
    """Yield module, object and text of every docstring with examples, without importing the package.

    The source is parsed, because doctest's own finder ignores functions with shape checks.
    """
    for path in PATHS:
        module = ".".join(path.relative_to(ROOT).with_suffix("").parts).removesuffix(".__init__")
        text = path.read_text(encoding="utf-8")
        for node in ast.walk(ast.parse(text)) if ">>> " in text else ():
            docstring = ast.get_docstring(node) if isinstance(node, DOCUMENTED) else None
            if docstring and ">>> " in docstring:
                yield module, getattr(node, "name", "module"), docstring


EXAMPLES = list(docstrings_with_examples())


@pytest.mark.parametrize(("module", "name", "docstring"), EXAMPLES, ids=[f"{m}:{name}" for m, name, _ in EXAMPLES])
def test_examples_produce_the_shown_output(module, name, docstring):
    names = vars(importlib.import_module(module)).copy()
    example = doctest.DocTestParser().get_doctest(docstring, names, name, module, 0)
    assert example.examples
    said: list[str] = []
    doctest.DocTestRunner().run(example, out=said.append)
    assert "".join(said) == ""


def test_examples_are_found_in_every_prompt_of_the_package():
    prompts = sum(path.read_text(encoding="utf-8").count(">>> ") for path in PATHS)
    assert prompts == sum(docstring.count(">>> ") for _, _, docstring in EXAMPLES) > 0
