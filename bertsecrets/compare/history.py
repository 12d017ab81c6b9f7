"""How the verdicts on one claim moved: what each rests on, where the observed value stepped, and what then differed."""

import math
from collections.abc import Iterable, Iterator, Mapping, Sequence
from dataclasses import dataclass
from itertools import pairwise
from pathlib import Path
from pkgutil import iter_modules
from typing import Any

from bertsecrets.claims import quantities
from bertsecrets.claims.band import format_interval
from bertsecrets.claims.schema import Case
from bertsecrets.code import code_digest
from bertsecrets.errors import UserError
from bertsecrets.settings import Params
from bertsecrets.store.files import digest
from bertsecrets.types import Measurement

SHORT = 12  # digits of a digest that are kept
JUDGES = " of the judge"
# The modules that turn measurements into verdicts; the quantities are found by their files, so nothing imports each.
JUDGING = (
    "bertsecrets.claims.plan",
    *(f"bertsecrets.claims.quantities.{module.name}" for module in iter_modules(quantities.__path__)),
)
SAME = 1e-9  # relative difference below which two observed values are equal


def evidence(
    case: Case, measurements: Sequence[Measurement], settings: Params, weights: Mapping[str, str | None]
) -> dict[str, Any]:
    """Return what a verdict rests on, to be kept with it: its measurements, and all that might make it another.

    `measurements` are the names of the measurements in the store, each with the time at which it was made.
    `circumstances` are weights, code, versions of libraries, devices, data, limits and settings that made them, and
    the claim, code and settings that judged them, each under the name by which a person knows it.

    Args:
        weights: the identities of the model's files, by name.
    """
    facts = [pair for measurement in measurements for pair in _facts(measurement)]
    trained = any(measurement.provenance.training for measurement in measurements)
    training = {f"{name} of training": value for name, value in settings.finetune.model_dump().items()}
    judging = {f"{name}{JUDGES}": value for name, value in settings.judge.model_dump().items()}
    claim = digest([case.claim.model_dump(), case.figure.model_dump()])
    return {
        "measurements": {Path(one.origin).name: one.provenance.made for one in measurements if one.origin},
        "circumstances": {
            **{name: _short(identity) for name, identity in weights.items() if identity},
            **_gathered(facts),
            **(training if trained else {}),
            "claim": _short(claim),
            f"code{JUDGES}": _code_of_judge(),
            **judging,
        },
    }


def _code_of_judge() -> str | None:
    try:
        return _short(digest([code_digest(module) for module in JUDGING]))
    except UserError:  # it was edited meanwhile, which spoils no verdict of the code that runs
        return None


def _facts(measurement: Measurement) -> Iterator[tuple[str, Any]]:
    """Yield what made one measurement."""
    name, given = measurement.measure, measurement.provenance
    yield f"data of {name} on {measurement.subject.task}", _short(given.data_fingerprint)
    yield f"examples of {name}", measurement.examples
    yield "limit", given.limit or "none"
    yield "train limit", given.train_limit or "none"
    yield from ((f"{key} of {name}", value) for key, value in {**measurement.settings, **measurement.options}.items())
    for maker, made_by in ((name, given.made_by), ("training", given.checkpoint_made_by)):
        if made_by:
            yield f"code of {maker}", _short(made_by.get("code"))
            yield f"device of {maker}", made_by.get("device")
            yield from (made_by.get("software") or {}).items()


def _gathered(facts: Iterable[tuple[str, Any]]) -> dict[str, Any]:
    """Return facts by their names; where one has several values, they are listed."""
    values: dict[str, list[Any]] = {}
    for name, value in facts:
        known = values.setdefault(name, [])
        if value is not None and value not in known:
            known.append(value)
    ordered = {name: sorted(of_name, key=str) for name, of_name in values.items() if of_name}
    return {name: of_name[0] if len(of_name) == 1 else of_name for name, of_name in ordered.items()}


def _short(text: str | None) -> str | None:
    """Return the first digits of a digest; other texts, such as a hub's name and commit, unchanged."""
    return text[:SHORT] if text and len(text) == 64 else text


# ---------------------------------------------------------------------- steps


@dataclass(frozen=True)
class Step:
    """Two consecutive verdicts between which the observed value moved by more than their intervals explain.

    Args:
        change: of the observed value.
        noise: how far it might have moved by the doubt in both intervals; 0 where both judge the same measurements.
        same: both judge the very same measurements, so that only the judge can have moved it.
        differing: what is known to differ, in words (`transformers 5.1 -> 5.2`).
    """

    before: Mapping[str, Any]
    after: Mapping[str, Any]
    change: float
    noise: float
    same: bool
    differing: tuple[str, ...]


def steps(verdicts: Sequence[Mapping[str, Any]]) -> list[Step]:
    """Return where a series of kept verdicts (`store.verdicts`) stepped.

    Verdicts without an observed value are passed over. The difference of two is held against the root of the squares of
    the distances from each observed value to that end of its interval that faces the other (Zou & Donner 2008). The
    intervals are taken for independent; where both rest on the same examples or seeds, less noise than that is left, so
    a small step may be missed, but no more are made up. On the very same measurements there is no noise at all.
    """
    observed = [verdict for verdict in verdicts if verdict["observed"] is not None]
    compared = (_compared(before, after) for before, after in pairwise(observed))
    return [step for step in compared if abs(step.change) > max(step.noise, SAME * abs(step.before["observed"]))]


def _compared(before: Mapping[str, Any], after: Mapping[str, Any]) -> Step:
    change = after["observed"] - before["observed"]
    same = bool(before["measurements"]) and before["measurements"] == after["measurements"]
    noise = 0.0 if same else math.hypot(_margin(before, change), _margin(after, -change))
    return Step(before, after, change, noise, same, tuple(differing(before, after)))


def _margin(verdict: Mapping[str, Any], towards: float) -> float:
    """Return how far the interval reaches from the observed value up or down; 0 without one, infinite if it is open."""
    interval = ends(verdict["interval"])
    return 0.0 if interval is None else abs(interval[towards > 0] - verdict["observed"])


def differing(before: Mapping[str, Any], after: Mapping[str, Any]) -> list[str]:
    """Return what is known to differ between two kept verdicts, in words: code, versions, device, data, settings.

    What only one of them knows is left out, since earlier versions kept less.

    >>> old = {"commit": "a" * 40, "seeds": [1], "software": {"numpy": "2.3"}}
    >>> differing(old, {"commit": "b" * 40, "seeds": [1, 2], "software": {"numpy": "2.4"}})
    ['commit aaaaaaa -> bbbbbbb', 'seeds 1 -> 1, 2', 'numpy of the judge 2.3 -> 2.4']
    """
    first, second = _circumstances(before), _circumstances(after)
    changed = {
        name: f"{in_words(first[name])} -> {in_words(second[name])}"
        for name in first
        if name in second and first[name] != second[name]
    }
    doubled = [name for name in changed if JUDGES in name and changed.get(name.removesuffix(JUDGES)) == changed[name]]
    return [f"{name} {change}" for name, change in changed.items() if name not in doubled]


def _circumstances(verdict: Mapping[str, Any]) -> dict[str, Any]:
    """Return all that may differ and is known, by its name, the most telling first."""
    software, band = verdict.get("software") or {}, verdict.get("band")
    commit, modified = verdict.get("commit"), verdict.get("modified")
    known = {
        "commit": commit and commit[:7] + (" (modified)" if modified else ""),
        "bertsecrets": software.get("bertsecrets"),
        "seeds": list(verdict["seeds"]),
        **(verdict.get("circumstances") or {}),
        "band": format_interval(ends(band)) if band else None,
        **{f"{name}{JUDGES}": software.get(name) for name in ("python", "numpy", "scipy")},
    }
    return {name: value for name, value in known.items() if value is not None}


def ends(interval: Sequence[float | None] | None) -> tuple[float, float] | None:
    """Return an interval or a band as it was before JSON, which has no infinite ends."""
    if interval is None:
        return None
    low, high = interval
    return (-math.inf if low is None else low, math.inf if high is None else high)


def in_words(value: Any) -> str:
    """Return one of the facts as a person reads it.

    >>> in_words([1, 2]), in_words(0.00002)
    ('1, 2', '2e-05')
    """
    if isinstance(value, list | tuple):
        return ", ".join(map(in_words, value)) or "none"
    return f"{value:.4g}" if isinstance(value, float) else str(value)
