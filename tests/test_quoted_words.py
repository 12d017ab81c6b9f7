"""Tests quote error messages only in this package's own words: other libraries reword theirs between versions."""

import ast
import functools
import importlib
import re
from collections import defaultdict
from collections.abc import Iterator
from pathlib import Path

import pytest

import bertsecrets

TESTS = Path(__file__).parent
PACKAGES = (Path(bertsecrets.__file__).parent, TESTS.parent / "instruments")
SCRIPT = TESTS.parent / ".github" / "verdict_comment.py"
HOLE = "{}"  # a value in an f-string, or a part of a pattern that matches values
VALUE_WORDS = 4  # that a value may have
ALLOWED = {"the maps do not sum to 1"}  # from the tests' own input
IMPOSSIBLE = -1000

Words = tuple[str, ...]


def words_in(text: str) -> list[Words]:
    """Return the words of each clause of a text."""
    text = re.sub(r"(?<!\w)'[^']*'(?!\w)", HOLE, text)
    clauses = ([word.strip("-'\"") for word in clause.split()] for clause in re.split(r"[:;,()|\n]|\.\*", text))
    return [tuple(HOLE if HOLE in word else word for word in clause if word) for clause in clauses]


def text_of(node: ast.AST) -> str | None:
    """Return the text of a string or an f-string, with a hole for each value."""
    if isinstance(node, ast.JoinedStr):
        return "".join(part.value if isinstance(part, ast.Constant) else HOLE for part in node.values)
    return node.value if isinstance(node, ast.Constant) and isinstance(node.value, str) else None


@functools.cache
def own_clauses() -> dict[str, set[Words]]:
    """Return the clauses of all strings in the packages, by each of their words and as a whole."""
    clauses = defaultdict(set)
    for path in [*(path for package in PACKAGES for path in package.rglob("*.py")), SCRIPT]:
        for node in ast.walk(ast.parse(path.read_text(encoding="utf-8"))):
            for clause in words_in(text_of(node) or ""):
                for word in (*clause, " ".join(clause)):
                    clauses[word].add(clause)
    return clauses


def is_ours(clause: Words) -> bool:
    """Return whether a clause is in the package: its words in order, with at most `VALUE_WORDS` for each value.

    Words with digits, dots or capitals are values. Of the others, at least half must be the package's. A value may be
    a clause of the package itself.
    """
    if " ".join(clause) in ALLOWED:
        return True
    plain = {word for word in clause if re.fullmatch("[a-z-]+", word)}
    if len(plain) < 3:  # too short to be another library's sentence, if the package uses these words
        return all(word in own_clauses() for word in plain - {clause[0], clause[-1]})
    candidates = set().union(*(own_clauses().get(word, ()) for word in plain))
    return any(2 * common(clause, candidate) >= len(plain) for candidate in candidates)


def common(clause: Words, own: Words) -> int:
    """Return how many words a clause shares with one of the package's, or a negative number if they cannot be equal."""

    @functools.cache
    def rest(i: int, j: int) -> int:
        if i == len(clause):
            return 0
        if j == len(own):
            return IMPOSSIBLE
        if own[j] == HOLE:
            ends = range(i, min(i + VALUE_WORDS, len(clause)) + 1)
            return max((k - i) * (" ".join(clause[i:k]) in own_clauses()) + rest(k, j + 1) for k in ends)
        if clause[i] == HOLE:
            return max(rest(i + 1, k) for k in range(j, min(j + VALUE_WORDS, len(own)) + 1))
        cut = (i == 0 and own[j].endswith(clause[i])) or (i == len(clause) - 1 and own[j].startswith(clause[i]))
        return 1 + rest(i + 1, j + 1) if own[j] == clause[i] or cut else IMPOSSIBLE

    return max(rest(0, j) for j in range(len(own)))


def literal(pattern: str) -> str:
    """Return a regular expression as text, with a hole for what matches several characters."""
    pattern = re.sub(r"\\[dwb]\+?|(?<!\\)\[(?:\\.|[^\]])*\]\+?", HOLE, re.sub(r"\^|\$|\\n|\(\?i\)", "\n", pattern))
    return re.sub(r"\\(.)", r"\1", pattern)


def quoted(path: Path) -> Iterator[tuple[int, str]]:
    """Return the line and text of each `match=` of a test module, with those of the names in it."""
    tree = ast.parse(path.read_text(encoding="utf-8"))
    constants = dict(column for node in tree.body for column in columns(node))
    for function in ast.walk(tree):
        if isinstance(function, ast.FunctionDef):
            names = constants | dict(
                column for node in [*function.decorator_list, *ast.walk(function)] for column in columns(node)
            )
            for node in ast.walk(function):
                if isinstance(node, ast.keyword) and node.arg == "match":
                    used = {part.id for part in ast.walk(node.value) if isinstance(part, ast.Name)} & set(names)
                    for value in [node.value, *(value for name in used for value in names[name])]:
                        yield from ((node.value.lineno, text) for text in texts(value))


def columns(node: ast.AST) -> Iterator[tuple[str, list[ast.expr]]]:
    """Return the names that a loop, an assignment or `parametrize` binds, each with its values."""
    if isinstance(node, ast.Call) and ast.unparse(node.func).endswith("parametrize") and len(node.args) == 2:
        names = [name.strip() for text in texts(node.args[0]) for name in text.split(",")]
        rows = node.args[1]
    elif isinstance(node, ast.For):
        names, rows = [part.id for part in ast.walk(node.target) if isinstance(part, ast.Name)], node.iter
    elif isinstance(node, ast.Assign) and isinstance(node.targets[0], ast.Name):
        names, rows = [node.targets[0].id], ast.List([node.value])
    else:
        return
    for index, name in enumerate(names):
        values = rows.elts if isinstance(rows, ast.List | ast.Tuple) else [rows]
        yield name, [row.elts[index] if isinstance(row, ast.Tuple) and len(names) > 1 else row for row in values]


def texts(node: ast.AST) -> Iterator[str]:
    """Return the strings in an expression."""
    if (text := text_of(node)) is not None:
        yield text
    else:
        for child in ast.iter_child_nodes(node):
            yield from texts(child)


@pytest.mark.parametrize("path", sorted(TESTS.rglob("test_*.py")), ids=lambda path: str(path.relative_to(TESTS)))
def test_a_match_quotes_no_other_library(path):
    assert [
        f"line {line}: {' '.join(clause)}"
        for line, text in quoted(path)
        for clause in words_in(literal(text))
        if clause and not is_ours(clause)
    ] == []


def test_the_table_of_bad_inputs_quotes_no_other_library(monkeypatch):
    monkeypatch.syspath_prepend(TESTS / "attack")
    rows = importlib.import_module("test_bad_inputs").ROWS
    parts = {part for row in rows for part in ([row.says] if isinstance(row.says, str) else row.says)}
    assert [part for part in sorted(parts) for clause in words_in(part) if clause and not is_ours(clause)] == []
