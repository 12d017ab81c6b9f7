"""Changes in verdicts from one run to another.

Verdict files are untrusted input, for example from a pull request, so they are validated and limited in size.
"""

import json
import math
from collections import Counter
from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from functools import cached_property
from pathlib import Path
from typing import Any, Literal

from pydantic import ValidationError
from pydantic_core import from_json, to_json

from bertsecrets.claims.reasons import Grounds
from bertsecrets.errors import UserError, excerpt
from bertsecrets.formats import (
    EARLIER_VERSION,
    ERROR,
    FAILURES,
    FORMAT,
    MAJOR_VERSION,
    PASSES,
    VerdictData,
    VerdictsFile,
    upgraded,
)
from bertsecrets.progress import counted
from bertsecrets.reading import read_text, unique_keys
from bertsecrets.settings import first_problem
from bertsecrets.store.entries import finite

VERDICTS_BYTES = 16 * 2**20  # maximum file size in bytes, several times the size of a file with all claims
EQUAL_TOLERANCE = 1e-9  # relative tolerance for equal observed values
MILD_DEVIATIONS = (Grounds.LESS_THAN_HALF.code, Grounds.NEGLIGIBLE.code)  # the effect is too small; mildest first
STANDINGS_FROM_BEST = (
    *PASSES, "not applicable", "inconclusive", ERROR, *MILD_DEVIATIONS, "deviates", "degenerate",
)  # fmt: skip

Kind = Literal["worse", "weaker", "better", "moved", "new", "gone", "same"]
CHANGE_KINDS: tuple[Kind, ...] = ("worse", "weaker", "better", "moved", "new", "gone")


@dataclass(frozen=True)
class ChangedFact:
    """A fact that differs between two runs or two verdicts, with both of its values as text."""

    name: str
    before: str
    after: str

    def __str__(self) -> str:
        return f"{self.name} {self.before} -> {self.after}"


def differing(before: Mapping[str, Any], after: Mapping[str, Any]) -> list[ChangedFact]:
    """Return the facts that differ between two sides, ignoring facts that only one side has.

    >>> [str(fact) for fact in differing({"numpy": "2.3", "seeds": [1]}, {"numpy": "2.4", "seeds": [1], "scipy": "1"})]
    ['numpy 2.3 -> 2.4']
    """
    names = [name for name in before if name in after and before[name] != after[name]]
    return [ChangedFact(name, as_text(before[name]), as_text(after[name])) for name in names]


def as_text(value: Any) -> str:
    """Return a fact as text.

    >>> as_text([1, 2]), as_text(0.00002)
    ('1, 2', '2e-05')
    """
    if isinstance(value, list | tuple):
        return ", ".join(map(as_text, value)) or "none"
    if value is None:
        return "none"
    return f"{value:.4g}" if isinstance(value, float) else str(value)


def ends(interval: Sequence[float | None] | None) -> tuple[float, float] | None:
    """Return the ends of an interval or band, with None replaced by infinity."""
    if interval is None:
        return None
    low, high = interval
    return (-math.inf if low is None else low, math.inf if high is None else high)


def moved(before: VerdictData, after: VerdictData) -> bool:
    """Return whether the observed value changed significantly, according to both confidence intervals.

    The interval for the difference is computed from both intervals (MOVER, Zou & Donner 2008). This method assumes that
    the two values are independent, so it is conservative if the verdicts share examples or seeds.
    """
    if before.observed is None or after.observed is None:
        return False
    change = after.observed - before.observed
    noise = math.hypot(_reach(before, change), _reach(after, -change))
    return abs(change) > max(noise, EQUAL_TOLERANCE * abs(before.observed))


def _reach(verdict: VerdictData, direction: float) -> float:
    """Return the distance from the observed value to its interval's upper end or, if `direction` <= 0, lower end."""
    interval = ends(verdict.interval)
    return 0.0 if interval is None or verdict.observed is None else abs(interval[direction > 0] - verdict.observed)


def standing(verdict: VerdictData) -> str:
    """Return the outcome of a verdict or, if it is a mild deviation, its reason code."""
    if verdict.verdict != "deviates":
        return verdict.verdict or ERROR
    return verdict.reason_code if verdict.reason_code in MILD_DEVIATIONS else "deviates"


def _harm(before: VerdictData, after: VerdictData) -> int:
    """Return the number of ranks by which `after` is worse than `before`. It is negative if `after` is better."""
    was, now = (STANDINGS_FROM_BEST.index(standing(verdict)) for verdict in (before, after))
    equal = len(PASSES) - 1  # no pass is better than another
    return max(now, equal) - max(was, equal)


def is_worse(before: VerdictData, after: VerdictData) -> bool:
    """Return whether `after` fails and ranks below `before`, or is an error while `before` is not.

    An undecided verdict does not count as a failure, so an undecided `after` is never worse.
    """
    if after.verdict is None:
        return before.verdict is not None
    return after.verdict in FAILURES and _harm(before, after) > 0


# ---------------------------------------------------------------------- two runs


@dataclass(frozen=True)
class Change:
    """The verdicts of two runs on one case. A verdict is None if its run did not judge the case."""

    before: VerdictData | None
    after: VerdictData | None

    @property
    def harm(self) -> int:
        """Number of ranks by which the new verdict is worse; negative if it is better, 0 if one verdict is missing."""
        if self.before is None or self.after is None:
            return 0
        return _harm(self.before, self.after)

    @property
    def kind(self) -> Kind:
        """How the verdict changed."""
        if self.before is None or self.after is None:
            return "new" if self.before is None else "gone"
        if is_worse(self.before, self.after):
            return "worse"
        if self.harm:
            return "weaker" if self.harm > 0 else "better"
        return "moved" if moved(self.before, self.after) else "same"


@dataclass(frozen=True)
class Changes:
    """The changes in verdicts from one run to another."""

    before: VerdictsFile
    after: VerdictsFile

    @cached_property
    def verdicts(self) -> list[Change]:
        """The changes, one for each case that at least one of the two runs judged."""
        before, after = ({verdict.id: verdict for verdict in run.verdicts} for run in (self.before, self.after))
        return [Change(before.get(name), after.get(name)) for name in before | after]

    def of_kind(self, kind: Kind) -> list[Change]:
        """Return the changes of one kind, most harmful first."""
        return sorted((change for change in self.verdicts if change.kind == kind), key=lambda change: -change.harm)

    @property
    def by_definition(self) -> list[Change]:
        """The verdicts that changed because the suite changed, although weights and data are the same.

        A changed verdict is included if the suite's version or the claim's definition differs. A changed verdict is
        also included if all measured values are equal, because only different rules can lead to different verdicts on
        equal values.
        """
        suites = [(run.software.get("bertsecrets"), run.commit) for run in (self.before, self.after)]
        return [
            change
            for change in self.verdicts
            if change.before and change.after and change.kind != "same"
            if change.before.weights is not None and _measured(change.before) == _measured(change.after)
            if suites[0] != suites[1]
            or change.before.definition != change.after.definition
            or change.before.by_seed == change.after.by_seed
        ]

    @property
    def different_conditions(self) -> list[ChangedFact]:
        """Other differences between the runs, which may explain why verdicts changed."""
        pairs = [(change.before, change.after) for change in self.verdicts if change.before and change.after]
        measured = [(old, new) for old, new in pairs if old.models and new.models]
        by_claim = Counter(fact for old, new in measured for fact in differing(_conditions(old), _conditions(new)))
        return differing(_facts(self.before), _facts(self.after)) + [
            ChangedFact(f"{fact.name} of {counted(count, 'claim')}", fact.before, fact.after)
            for fact, count in by_claim.items()
        ]


def _measured(verdict: VerdictData) -> tuple[Any, ...]:
    return verdict.weights, verdict.data, verdict.seeds, verdict.limits


def _conditions(verdict: VerdictData) -> dict[str, Any]:
    limits = [f"{name} {rows}" for name, rows in verdict.limits.items()]
    return {
        "seeds": verdict.seeds,
        "data": verdict.data,
        "limits": limits or "all rows",
        "published figure": verdict.published,
        **({"definition": verdict.definition} if verdict.definition else {}),
        **({"weights": verdict.weights} if verdict.weights else {}),
    }


def setting_facts(settings: Mapping[str, Any]) -> dict[str, Any]:
    """Return the settings of a run as a flat mapping from names to values."""
    return {
        f"setting {section}.{name}": value
        for section, inner in settings.items()
        for name, value in (inner.items() if isinstance(inner, dict) else [("", inner)])
    }


def _facts(run: VerdictsFile) -> dict[str, Any]:
    versions = {f"version of {name}": version for name, version in run.software.items()}
    return {"model": run.model, **setting_facts(run.settings), **versions, "incomplete": run.incomplete or "no"}


def read_verdicts_file(path: Path) -> VerdictsFile:
    """Read the verdicts of a run from a file written by `report --json` or `--benchmark-json`."""
    try:
        text = read_text(path, VERDICTS_BYTES)
        data = from_json(text)  # refuses invalid Unicode
        json.loads(text, object_pairs_hook=unique_keys)
        if "\\u0000" in text:
            raise ValueError("it contains a null character")
    except (ValueError, RecursionError) as error:
        raise UserError(
            f"{path} is not valid JSON ({excerpt(error, 100)}): pass a file written by bertsecrets report --json"
        ) from error
    if isinstance(data, dict) and "bertsecrets" in data:  # written by pytest-benchmark
        data = data["bertsecrets"]
    if not isinstance(data, dict) or data.get("format") != FORMAT:
        raise UserError(f"{path} has no verdicts: pass a file written by bertsecrets report --json")
    if finite(data) != data:
        raise UserError(f"{path} contains NaN or an infinite number, which JSON does not allow: write the file again")
    data = upgraded(data)
    version = data.get("format_version")
    if not isinstance(version, str) or version.partition(".")[0] != MAJOR_VERSION:
        raise UserError(
            f"{path} uses version {excerpt(version, 40)} of the format, but this version of bertsecrets reads "
            f"only versions {EARLIER_VERSION} and {MAJOR_VERSION}: compare files written by the same version"
        )
    try:
        run = VerdictsFile.model_validate_json(to_json(data), strict=True)
    except ValidationError as error:
        raise UserError(f"{path}: {first_problem(error)}: pass a file written by bertsecrets report --json") from error
    ids = [verdict.id for verdict in run.verdicts]
    if len(set(ids)) < len(ids):
        [(duplicate, _)] = Counter(ids).most_common(1)
        raise UserError(f"{path} contains two verdicts for {excerpt(duplicate, 60)}: pass a file from a single run")
    return run
