"""Functions that read the claims in `expected/` and in the user's own files, and find claims by name."""

import functools
import os
from collections.abc import Collection, Iterable, Mapping
from pathlib import Path
from typing import Any

import yaml
from pydantic import ValidationError

from bertsecrets.arguments import checked
from bertsecrets.claims.band import format_interval
from bertsecrets.claims.expectations import Equality, Order
from bertsecrets.claims.figure import TaskFigure
from bertsecrets.claims.quantities import QUANTITIES
from bertsecrets.claims.schema import Case, Claim
from bertsecrets.errors import UserError, errors_in, near_matches
from bertsecrets.measures.registry import get_measure
from bertsecrets.reading import YAML_LIMIT, YamlError, expanded, read_text, read_yaml
from bertsecrets.settings import EXPECTED_VARIABLE, first_problem, project_path
from bertsecrets.store.files import file_sha256, listed
from bertsecrets.texts.tasks import ALL_TASKS, TASKS, task

LARGEST = {"points": 200.0, "percent": 100.0}  # by unit, the largest value of quantities without a range
LARGEST_NUMBER = 1e6  # in other units
ADDED_FIELDS = {"id", "variant", "known"}  # fields of an entry that only adds known outcomes to an existing claim


def claims_folder() -> Path:
    """Return the claims folder: the project's, unless `BERTSECRETS_EXPECTED` names another folder."""
    given = _given()
    return given if given is not None and not given.is_file() else project_path("expected")


def _given() -> Path | None:
    """Return the folder or file that `BERTSECRETS_EXPECTED` names, if any."""
    name = os.environ.get(EXPECTED_VARIABLE)
    return expanded(name) if name else None


@checked
def load_claims(folder: Path | None = None) -> tuple[Claim, ...]:
    """Return all claims, in the order of file names and entries. If a file has changed, all files are read again.

    Args:
        folder: The claims folder. Defaults to `claims_folder()`, plus any file that `BERTSECRETS_EXPECTED` names.

    Raises:
        UserError: If a file is malformed (the message gives the line), an id is duplicated, or a reference does not
            exist.
    """
    given = None if folder else _given()
    folder = folder or claims_folder()
    files = [path for path in listed(folder) if path.suffix == ".yaml"]
    if not files:
        there = "" if folder.is_dir() else ", which does not exist"
        raise UserError(f"no claims in {folder}{there}: expected YAML files such as C-change.yaml")
    if given is not None and given.is_file():
        files.append(given)
    return _load_claims(tuple((file, file_sha256(file)) for file in files))


@functools.cache
def _load_claims(files: tuple[tuple[Path, str], ...]) -> tuple[Claim, ...]:
    claims: dict[str, tuple[str, Claim]] = {}
    for file, _ in files:
        for entry, node in _entries(file):
            place, name = f"{file}, line {node.start_mark.line + 1}", _name(entry)
            adds = isinstance(entry, dict) and "known" in entry and entry.keys() <= ADDED_FIELDS
            if adds and name in claims:
                data, known = claims[name][1].model_dump(exclude_unset=True), entry["known"]
                version, outcomes = claims[name][1].version, [each for each in known or () if isinstance(each, dict)]
                if version > 1 and any("version" not in outcome for outcome in outcomes):
                    raise UserError(f"{place}: {name} has version {version}: give each outcome the version it is about")
                entry = {**data, "known": [*data.get("known", ()), *known] if isinstance(known, list) else known}
            elif adds:
                raise UserError(f"{place} adds outcomes to the unknown claim {name}: {near_matches(name, claims)}")
            elif name in claims:
                raise UserError(f"{place}: claim {name} is defined twice: give each definition its own id or variant")
            claims[name] = (place, claim := _claim(entry, node, file))
            if claim.options and file.parent != project_path("expected"):  # ours are tested; imports the measure
                with errors_in(f"{place}: {claim.name}"):
                    get_measure(claim.measure).check_options(claim.options)
            shows_band = claim.band or any(figure.band is not None for figure in claim.tasks.values())
            if file.parent != files[0][0].parent and not adds and shows_band:
                raise UserError(f"{place}: `band` is computed and must not be given: remove it, or state a `tolerance`")
    figures = {name: claim.tasks for name, (_, claim) in claims.items()}
    return tuple(_filled(place, claim, figures) for place, claim in claims.values())


def _name(entry: Any) -> str:
    """Return the name of the claim that an entry defines, as in `Claim.name`; "" if the entry is malformed."""
    parts = (entry.get("id"), entry.get("variant")) if isinstance(entry, dict) else ()
    return "-".join(str(part) for part in parts if part)


def _filled(place: str, claim: Claim, figures: Mapping[str, Mapping[str, TaskFigure]]) -> Claim:
    if claim.relative is not None and claim.relative not in figures:
        hint = near_matches(claim.relative, figures)
        raise UserError(f"{place}: {claim.name}: relative: unknown claim {claim.relative!r}: {hint}")
    try:
        claim = claim.filled(figures)
        for name, figure in claim.tasks.items():
            _check_numbers(claim, name, figure)
    except ValueError as error:
        raise UserError(f"{place}: {claim.name}: {error}") from error
    return claim


def _check_numbers(claim: Claim, task_name: str, figure: TaskFigure) -> None:
    """Check that the numbers of a claim on a task are possible values, or differences, of its quantity."""
    quantity = QUANTITIES[claim.quantity]
    widest = LARGEST.get(quantity.unit, LARGEST_NUMBER)
    low, high = (max(-widest, min(widest, end)) for end in quantity.within(task_name))
    values = {"published": figure.published, "second_value": figure.second_value}
    sizes = {name: getattr(figure, name) for name in ("rounding", "seed_std", "doubt", "second_error")}
    for name in ("tolerance", "smallest_effect"):
        sizes[name] = getattr(getattr(claim, name), "size", None)
    if isinstance(claim.expect, Order | Equality):
        values["expect.value"] = limit = claim.expect.value
        if limit == {"above": high, "below": low}.get(claim.expect.kind):
            raise ValueError(f"no {claim.quantity} is {claim.expect.kind} {limit:g}: correct the limit")
    ranges = [(values, (low, high), "the range of"), (sizes, (0.0, high - low), "the possible differences in")]
    for numbers, (least, most), of in ranges:
        for name, number in numbers.items():
            if number is not None and not least <= number <= most:
                outside = f"{name} {number:g} lies outside {format_interval((least, most))}, {of} {claim.quantity}"
                raise ValueError(f"task {task_name}: {outside}: correct it")


def _entries(file: Path) -> list[tuple[Any, yaml.Node]]:
    try:
        node, data = read_yaml(read_text(file, YAML_LIMIT))
    except YamlError as error:
        raise UserError(f"{file}, line {error.line}: {error}") from error
    if not isinstance(data, list) or node is None:
        raise UserError(f"{file}, line 1: expected a list of claims, each starting with `- id:`")
    return list(zip(data, node.value, strict=True))


def _claim(entry: Any, node: yaml.Node, file: Path) -> Claim:
    try:
        return Claim.model_validate(entry)
    except ValidationError as error:
        line = _line_of(node, error.errors()[0]["loc"])
        raise UserError(f"{file}, line {line}: {first_problem(error, Claim)}") from error


def _line_of(node: yaml.Node, path: tuple[int | str, ...]) -> int:
    """Follow `path` while its nodes exist in the file, and return the line of the last node found."""
    line = node.start_mark.line + 1
    for step in path:
        if isinstance(node, yaml.MappingNode):
            pair = next(((k, v) for k, v in node.value if k.value == str(step)), None)
            if pair is None:  # not in the file, such as the kind of an expectation, or missing
                continue
            line, node = pair[0].start_mark.line + 1, pair[1]
        elif isinstance(node, yaml.SequenceNode) and isinstance(step, int) and step < len(node.value):
            node = node.value[step]
            line = node.start_mark.line + 1
    return line


def cases() -> list[Case]:
    """Return all cases."""
    return [case for claim in load_claims() for case in claim.cases]


def find_cases(wanted: str) -> list[Case]:
    """Return the cases to which a name refers. Names are case-insensitive; tasks can be given by title (`SST-2`).

    `wanted` can be the name of a case (`D1-rte-pretrained`), the full name of a claim (`D1-pretrained`), or the id of a
    claim (`D1`), which refers to all variants. A task can follow the name or id of a claim (`D1-pretrained-RTE`,
    `D1-rte`). `wanted` can also be a family (`D`), which refers to all its claims except expensive ones.
    """
    name = wanted.lower()
    for task_name in TASKS.values():  # as tables spell it: STS-B, SST-2
        name = f"{name}-".replace(f"-{task_name.title.lower()}-", f"-{task_name.name}-")[:-1]
    named: dict[str, list[Case]] = {}
    every = cases()
    for case in every:
        claim = case.claim
        family = () if claim.on_request else (claim.family,)
        for spelling in {claim.id, claim.name, f"{claim.id}-{case.task}", f"{claim.name}-{case.task}", *family}:
            named.setdefault(spelling, []).append(case)
    spelt = {spelling.lower(): spelling for spelling in named}
    selected = [case for case in every if str(case).lower() == name] or named.get(spelt.get(name, ""))
    if not selected:
        families = sorted({case.claim.family for case in every})
        spellings = dict.fromkeys([*(case.claim.id for case in every), *map(str, every), *named])
        near = [spelling for spelling in spellings if spelling[0].lower() == name[:1]]
        hint = near_matches(wanted, near) if near else f"families are {', '.join(families)}"
        raise UserError(f"unknown claim {wanted!r}: {hint} (`bertsecrets claims` lists all claims)")
    return selected


def select_cases(claims: Iterable[str] = (), tasks: Iterable[str] = ()) -> list[Case]:
    """Return the cases of the given claims on the given tasks.

    Args:
        claims: Names that `find_cases` accepts. Defaults to the inexpensive claims of the replication.
        tasks: Names of tasks, or `all` for claims that are not about a single task (`Case.belongs_to`). Defaults to all
            cases.
    """
    named = {str(case) for name in claims for case in find_cases(name)}
    of_tasks = {ALL_TASKS if name == ALL_TASKS else task(name).name for name in tasks}
    chosen = (case for case in cases() if (str(case) in named if named else case.claim.by_default))
    return [case for case in chosen if not of_tasks or case.belongs_to(of_tasks)]


def find_case(wanted: str, task_name: str | None = None, scope: Collection[str] = ()) -> Case:
    """Return a single case.

    Args:
        wanted: Name of a claim (`C1`, `D1-untrained`) or case (`C1-rte`).
        task_name: One of the claim's tasks. Can be omitted if the claim has only one task.
        scope: Tasks to choose from if `task_name` is omitted. Ignored if the claim is not about any of them.
    """
    chosen = None if task_name is None else task_name if task_name == ALL_TASKS else task(task_name).name
    known = find_cases(wanted)
    meant = [case for case in known if case.task in scope] or known
    fitting = meant if chosen is None else [case for case in known if case.task == chosen]
    exact = [case for case in fitting if case.claim.name.lower() == wanted.lower()]
    for found in (exact, fitting):
        if len(found) == 1:
            return found[0]
    if fitting:
        raise UserError(f"{wanted} could mean {', '.join(map(str, fitting))}: use one of these names")
    raise UserError(f"{wanted} is not about {task_name}: its cases are {', '.join(map(str, known))}")
