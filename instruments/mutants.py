"""Mutation testing: insert small faults into the package, one at a time, and show which of them the tests detect."""

import ast
import multiprocessing
import os
import random
import shutil
import subprocess  # nosec B404
import sys
import tempfile
from collections import Counter
from collections.abc import Iterable, Iterator, Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import Any

from bertsecrets.errors import UserError
from bertsecrets.settings import project_path

PROJECT = project_path("pyproject.toml").parent
SWAPPED: dict[Any, Any] = {
    ast.Gt: ast.GtE, ast.GtE: ast.Gt, ast.Lt: ast.LtE, ast.LtE: ast.Lt, ast.Eq: ast.NotEq, ast.NotEq: ast.Eq,
    ast.In: ast.NotIn, ast.NotIn: ast.In, ast.Is: ast.IsNot, ast.IsNot: ast.Is, ast.And: ast.Or, ast.Or: ast.And,
}  # fmt: skip
REDUCTIONS = ("all", "any", "argmax", "argmin", "cumsum", "max", "mean", "min", "std", "sum")
TIMEOUT = 300  # maximum time in seconds; a mutant that loops forever counts as detected
SURVIVED = 0  # exit code of pytest


@dataclass(frozen=True)
class Mutant:
    """A fault that replaces the characters `start` to `end` of a file by `new`. The path is relative to the project."""

    file: str
    line: int
    kind: str
    start: int
    end: int
    old: str
    new: str

    def __str__(self) -> str:
        old, new = (" ".join(text.split())[:60] for text in (self.old, self.new))
        return f"{self.file}:{self.line}, {self.kind}: {old} -> {new or 'nothing'}"


def mutants_in(file: str, source: str) -> list[Mutant]:
    """Return all mutants of a module, in the order of their positions."""
    lines = source.splitlines(keepends=True)
    starts = [sum(map(len, lines[:number])) for number in range(len(lines) + 1)]

    def offset(line: int, byte: int) -> int:
        return starts[line - 1] + len(lines[line - 1].encode()[:byte].decode())

    mutants = []
    for function in ast.walk(ast.parse(source)):
        if not isinstance(function, ast.FunctionDef):
            continue
        inner: Iterator[Any] = (node for statement in function.body for node in ast.walk(statement))
        for node in inner:
            for kind, new in faults(node):
                start, end = offset(node.lineno, node.col_offset), offset(node.end_lineno, node.end_col_offset)
                mutants.append(Mutant(file, node.lineno, kind, start, end, source[start:end], new))
    return sorted(set(mutants), key=lambda mutant: (mutant.start, mutant.end, mutant.kind, mutant.new))


def faults(node: ast.AST) -> Iterator[tuple[str, str]]:
    """Yield the kind and the code of each fault that a node can have."""
    match node:
        case ast.Raise():
            yield "dropped check", "pass"
        case ast.Compare(left=left, ops=[operator], comparators=[right]):
            yield "comparison", ast.unparse(ast.Compare(left, [SWAPPED[type(operator)]()], [right]))
        case ast.BoolOp(op=operator, values=values):
            yield "condition", f"({ast.unparse(ast.BoolOp(SWAPPED[type(operator)](), values))})"
        case ast.UnaryOp(op=ast.Not(), operand=operand):
            yield "condition", f"bool({ast.unparse(operand)})"
        case ast.Constant(value=int(number)) if not isinstance(number, bool):
            yield "off by one", str(number + 1)
        case ast.Dict(keys=keys, values=values) if len(keys) > 1:
            for place in range(len(keys)):
                rest = [[*column[:place], *column[place + 1 :]] for column in (keys, values)]
                yield "dropped key field", ast.unparse(ast.Dict(*rest))
        case ast.Subscript(value=array, slice=ast.Compare() | ast.UnaryOp(op=ast.Invert())):
            yield "dropped mask", ast.unparse(array)
        case ast.Call(func=ast.Attribute(attr=name) as method, args=[ast.Constant(value=int(axis)), *rest]) if (
            name in REDUCTIONS
        ):
            yield "swapped axes", ast.unparse(ast.Call(method, [ast.Constant(1 - axis), *rest], node.keywords))


def sampled(modules: Iterable[str], count: int, seed: int) -> list[Mutant]:
    """Return `count` random mutants of each module, of as many kinds as possible. The seed determines the choice."""
    chosen: list[Mutant] = []
    for module in modules:
        path = PROJECT / module
        if not path.is_file():
            raise UserError(f"no module {path}: name files relative to the project, such as bertsecrets/reading.py")
        mutants = mutants_in(module, path.read_text(encoding="utf-8"))
        random.Random(f"{seed} {module}").shuffle(mutants)
        seen: Counter[str] = Counter()
        turns = []  # the number of mutants of the same kind before each mutant
        for mutant in mutants:
            turns.append(seen[mutant.kind])
            seen[mutant.kind] += 1
        chosen += [mutants[place] for place in sorted(range(len(mutants)), key=turns.__getitem__)[:count]]
    return chosen


def judged(mutants: Sequence[Mutant], tests: Sequence[str]) -> Iterator[tuple[Mutant, str]]:
    """Run tests on a copy of the project with each mutant, and yield the mutant and the test that fails, if any.

    Args:
        tests: Arguments of pytest, which are files relative to the project, and options.

    Raises:
        UserError: If the tests fail without a mutant.
    """
    import scipy.stats  # noqa: F401  # imported once, for all forks
    import torch  # noqa: F401
    import transformers  # noqa: F401

    with tempfile.TemporaryDirectory(prefix="mutants-") as name:
        folder = Path(name)
        subprocess.run(["git", "clone", "--quiet", "--shared", PROJECT, folder], check=True)  # nosec B603 B607
        uncommitted = ("git", "ls-files", "--modified", "--others", "--exclude-standard")
        listed = subprocess.run(uncommitted, cwd=PROJECT, capture_output=True, text=True, check=True)  # nosec B603
        for file in listed.stdout.splitlines():
            (folder / file).parent.mkdir(parents=True, exist_ok=True)
            (folder / file).unlink(missing_ok=True)
            if (PROJECT / file).is_file():
                shutil.copy(PROJECT / file, folder / file)
        code, output = run_tests(folder, tests)
        if code != SURVIVED:
            raise UserError(f"the tests fail without a mutant:\n{output[-2000:]}")
        for number, mutant in enumerate(mutants):
            path = folder / mutant.file
            source = path.read_text(encoding="utf-8")
            path.write_text(source[: mutant.start] + mutant.new + source[mutant.end :], encoding="utf-8")
            os.utime(path, (number, number))  # a new file time for each mutant, so that no compiled module is reused
            code, output = run_tests(folder, tests)
            failed = [line for line in output.splitlines() if line.startswith(("FAILED", "ERROR"))]
            yield mutant, "" if code == SURVIVED else failed[0] if failed else f"exit code {code}"
            path.write_text(source, encoding="utf-8")


def run_tests(folder: Path, tests: Sequence[str]) -> tuple[int | None, str]:
    """Run pytest on a copy of the project in a fork of this process, and return pytest's exit code and output."""
    output = folder / "output.txt"
    process = multiprocessing.get_context("fork").Process(target=_run_and_exit, args=(folder, output, tests))
    process.start()
    process.join(TIMEOUT)
    process.kill()
    process.join()
    return process.exitcode, output.read_text(errors="replace")


def _run_and_exit(folder: Path, output: Path, tests: Sequence[str]) -> None:
    with output.open("w") as file:
        os.dup2(file.fileno(), 1)
        os.dup2(file.fileno(), 2)
    os.chdir(folder)
    sys.path.insert(0, str(folder))
    os.environ["PYTHONPATH"] = str(folder)
    for name in [name for name in sys.modules if name.split(".")[0] in ("bertsecrets", "instruments")]:
        del sys.modules[name]
    import pytest

    imported = ("-W", "ignore::pytest.PytestAssertRewriteWarning")  # libraries are imported before pytest
    sys.exit(pytest.main(["-x", "-q", "-p", "no:benchmark", "-p", "no:cacheprovider", *imported, *tests]))
