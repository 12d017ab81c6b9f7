"""What changed between the verdicts of two runs, as lines and as Markdown.

The files may come from anyone, such as the author of a pull request: they are read within limits, and nothing in them
comes alive on the page.
"""

from collections import Counter
from collections.abc import Callable, Iterator, Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import Any

from pydantic import ValidationError
from pydantic_core import from_json, to_json

from bertsecrets.claims.band import format_interval, format_number
from bertsecrets.errors import UserError, excerpt
from bertsecrets.formats import ERROR, FORMAT, READS, VERSION, Ends, VerdictData, VerdictsFile
from bertsecrets.reading import read_bytes
from bertsecrets.report.markdown import code
from bertsecrets.report.tables import table
from bertsecrets.report.text import seeds_in_words
from bertsecrets.settings import in_words

LIMIT = 16 * 2**20  # bytes of a file: several times that of all claims
MOST_ROWS, MOST_FACTS = 40, 12  # of a table, and of what makes two runs unlike; a comment holds 65,536 characters
BY_HARM = ("reproduced", "not applicable", "inconclusive", ERROR, "degenerate", "deviates")
Pair = tuple[VerdictData, VerdictData]


def read_verdicts_file(path: Path) -> VerdictsFile:
    """Return the verdicts of a run from a file that `report --json` or `--benchmark-json` wrote.

    Raises:
        UserError: it is something else, is too large, or is in another major version of the format.
    """
    try:
        data = from_json(read_bytes(path, LIMIT))
    except ValueError as error:
        raise UserError(f"{path} is not valid JSON ({excerpt(error, 100)}): name a file of report --json") from error
    if isinstance(data, dict) and "bertsecrets" in data:  # of pytest-benchmark
        data = data["bertsecrets"]
    if not isinstance(data, dict) or data.get("format") != FORMAT:
        raise UserError(f"{path} holds no verdicts: name a file that bertsecrets report --json wrote")
    version = data.get("format_version")
    if not isinstance(version, str) or version.partition(".")[0] not in READS:
        raise UserError(
            f"{path} is in version {excerpt(version, 40)} of the format, and this bertsecrets reads {VERSION}: "
            "compare files that the same version wrote"
        )
    try:
        run = VerdictsFile.model_validate_json(to_json(data), strict=True)
    except ValidationError as error:
        raise UserError(f"{path}: {in_words(error)}: name a file that bertsecrets report --json wrote") from error
    ids = [one.id for one in run.verdicts]
    if len(set(ids)) < len(ids):
        [(twice, _)] = Counter(ids).most_common(1)
        raise UserError(f"{path} has two verdicts on {excerpt(twice, 60)}: name a file of a single run")
    return run


@dataclass(frozen=True)
class Changes:
    """What changed from one run's verdicts to another's.

    Args:
        outcomes: the verdicts whose outcome changed, the worst changes first.
        moved: those whose outcome is the same, but each observed value lies outside the other's interval.
        appeared: those that only the new run has; `gone`: those that only the old one has.
        unlike: in what the runs differ, so that they are not like with like: name, old and new.
    """

    old: VerdictsFile
    new: VerdictsFile
    outcomes: list[Pair]
    moved: list[Pair]
    appeared: list[VerdictData]
    gone: list[VerdictData]
    unlike: list[tuple[str, str, str]]

    @property
    def headline(self) -> str:
        """How much changed, in words."""
        worse = sum(_harm(pair) > 0 for pair in self.outcomes)
        parts = [
            f"{_count(len(self.outcomes), 'outcome')} changed ({worse} for the worse)" if self.outcomes else "",
            f"{_count(len(self.moved), 'value')} moved beyond the intervals" if self.moved else "",
            f"{_count(len(self.appeared), 'claim')} appeared" if self.appeared else "",
            f"{_count(len(self.gone), 'claim')} went" if self.gone else "",
        ]
        return ", ".join(filter(None, parts)) or f"nothing changed in {_count(len(self.new.verdicts), 'verdict')}"


def changes(old: VerdictsFile, new: VerdictsFile) -> Changes:
    """Return what changed between two runs."""
    before, after = ({one.id: one for one in run.verdicts} for run in (old, new))
    pairs = [(one, after[name]) for name, one in before.items() if name in after]
    outcomes = [pair for pair in pairs if pair[0].verdict != pair[1].verdict]
    return Changes(
        old=old,
        new=new,
        outcomes=sorted(outcomes, key=lambda pair: (-_harm(pair), -BY_HARM.index(_outcome(pair[1])), pair[0].id)),
        moved=[pair for pair in pairs if pair[0].verdict == pair[1].verdict and _moved(*pair)],
        appeared=[one for name, one in after.items() if name not in before],
        gone=[one for name, one in before.items() if name not in after],
        unlike=list(_unlike(old, new, pairs)),
    )


def _harm(pair: Pair) -> int:
    """Return how much worse the new outcome is; below 0 if it is better."""
    return BY_HARM.index(_outcome(pair[1])) - BY_HARM.index(_outcome(pair[0]))


def _moved(old: VerdictData, new: VerdictData) -> bool:
    """Return whether each observed value lies outside the other's interval."""
    return _outside(old.observed, new.interval) and _outside(new.observed, old.interval)


def _outside(value: float | None, ends: Ends | None) -> bool:
    if value is None or ends is None:
        return False
    low, high = ends
    return (low is not None and value < low) or (high is not None and value > high)


# ---------------------------------------------------------------------- like with like


def _unlike(old: VerdictsFile, new: VerdictsFile, pairs: Sequence[Pair]) -> Iterator[tuple[str, str, str]]:
    """Yield in what two runs differ, each with its old and its new state in words."""
    measured = [pair for pair in pairs if pair[0].models and pair[1].models]
    if old.model != new.model:
        yield "model", old.model, new.model
    shown: dict[str, Callable[[list[VerdictData]], str]] = {
        "seeds": lambda all_: seeds_in_words(seed for one in all_ for seed in one.seeds),
        "data": lambda all_: ", ".join(sorted({mark for one in all_ for mark in one.data})) or "none",
        "limits": lambda all_: ", ".join(sorted({f"{n} {rows}" for one in all_ for n, rows in one.limits.items()})),
        "published": lambda all_: ", ".join(format_number(one.published) for one in all_),
    }
    for name, in_one in shown.items():
        different = [pair for pair in measured if getattr(pair[0], name) != getattr(pair[1], name)]
        if different:
            before, after = (in_one([pair[side] for pair in different]) or "all rows" for side in (0, 1))
            yield f"{name} of {_count(len(different), 'claim')}", before, after
    settings = _flat(old.settings), _flat(new.settings)
    for title, (was, is_) in {"setting": settings, "version of": (old.software, new.software)}.items():
        for name in sorted(was.keys() | is_.keys()):
            if was.get(name) != is_.get(name):
                yield f"{title} {name}", str(was.get(name, "none")), str(is_.get(name, "none"))
    if old.incomplete or new.incomplete:
        yield "incomplete", old.incomplete or "no", new.incomplete or "no"


def _flat(settings: dict[str, Any]) -> dict[str, Any]:
    """Return settings with dotted names."""
    return {
        f"{section}.{name}": value
        for section, inner in settings.items()
        for name, value in (inner.items() if isinstance(inner, dict) else [("", inner)])
    }


# ---------------------------------------------------------------------- in words


def as_lines(found: Changes) -> Iterator[str]:
    """Yield what changed, in lines for a terminal."""
    yield found.headline
    for old, new in found.outcomes:
        yield f"  {_name(new)}: {_outcome(old)}, now {_outcome(new)}; {_values(old, new)}: {excerpt(new.reason, 200)}"
    for old, new in found.moved:
        yield f"  {_name(new)}: still {_outcome(new)}; {_values(old, new)}"
    for word, verdicts in {"appeared": found.appeared, "went": found.gone}.items():
        for one in verdicts:
            yield f"  {_name(one)} {word}: {_outcome(one)}, {_value(one)}"
    if found.unlike:
        yield "not like with like:"
    for name, before, after in found.unlike:
        yield f"  {excerpt(name, 80)}: {excerpt(before, 80)}, now {excerpt(after, 80)}"


def as_markdown(found: Changes) -> str:
    """Return what changed as Markdown for a comment: short enough for one, and safe whatever the files hold."""
    old, new = found.old, found.new
    parts = [
        f"### K19 claims: {found.headline}",
        f"{code(new.model)}; from {code(_when(old))} to {code(_when(new))}."
        + (" **Not like with like**: the last table says how the runs differ." if found.unlike else ""),
        _table(
            ("claim", "was", "is", "observed", "why"),
            [
                (code(_name(b)), _outcome(a), f"**{_outcome(b)}**", code(_values(a, b)), code(b.reason, 240))
                for a, b in found.outcomes
            ],
        ),
        _table(
            ("same outcome, other value", "outcome", "observed"),
            [(code(_name(b)), _outcome(b), code(_values(a, b))) for a, b in found.moved],
        ),
        *(
            _table(
                (title, "outcome", "observed"), [(code(_name(one)), _outcome(one), code(_value(one))) for one in ones]
            )
            for title, ones in {"appeared": found.appeared, "went": found.gone}.items()
        ),
        _table(
            ("not like with like", "was", "is"),
            [(code(name, 80), code(a, 80), code(b, 80)) for name, a, b in found.unlike],
            MOST_FACTS,
        ),
    ]
    return "\n\n".join(filter(None, parts)) + "\n"


def _table(header: Sequence[str], rows: Sequence[Sequence[str]], most: int = MOST_ROWS) -> str:
    if not rows:
        return ""
    more = len(rows) - most
    return table(header, rows[:most], "markdown") + (f"\n\nand {more} more" if more > 0 else "")


def _when(run: VerdictsFile) -> str:
    return (f"{run.commit[:12]}{', modified' if run.modified else ''}, " if run.commit else "") + run.made


def _name(verdict: VerdictData) -> str:
    return excerpt(verdict.id, 60)


def _outcome(verdict: VerdictData) -> str:
    return verdict.verdict or ERROR


def _values(old: VerdictData, new: VerdictData) -> str:
    return f"{_value(old, unit=False)} → {_value(new)}"


def _value(verdict: VerdictData, *, unit: bool = True) -> str:
    """Return the observed value with its interval and unit."""
    if verdict.observed is None:
        return "-"
    ends = None if verdict.interval is None else tuple(end for end in verdict.interval if end is not None)
    shown = format_number(verdict.observed)
    if ends is not None and len(ends) == 2:
        shown += f" {format_interval((ends[0], ends[1]))}"
    return excerpt(f"{shown} {verdict.unit if unit else ''}".strip(), 80)


def _count(number: int, noun: str) -> str:
    return f"{number} {noun}{'' if number == 1 else 's'}"
