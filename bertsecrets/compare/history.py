"""The history of verdicts on a claim, with the evidence for each and changes of the observed value."""

from collections.abc import Iterable, Iterator, Mapping, Sequence
from dataclasses import dataclass
from itertools import pairwise
from pathlib import Path
from pkgutil import iter_modules
from typing import Any

from bertsecrets.claims import quantities
from bertsecrets.claims.band import format_interval
from bertsecrets.claims.schema import Case
from bertsecrets.claims.verdict import Verdict
from bertsecrets.compare.changes import ChangedFact, differing, ends, moved
from bertsecrets.errors import UserError
from bertsecrets.provenance import run_facts
from bertsecrets.settings import Params
from bertsecrets.store.code import code_digest
from bertsecrets.store.files import digest
from bertsecrets.store.verdicts import KeptVerdict, keep_verdict
from bertsecrets.types import Measurement

SHORT = 12  # digits of shortened digests
JUDGES = " of the judge"
# The modules that turn measurements into verdicts, listed because no single module imports all quantities.
JUDGING = (
    *("bertsecrets.claims.requirements", "bertsecrets.claims.sequential"),
    *(f"bertsecrets.claims.quantities.{module.name}" for module in iter_modules(quantities.__path__)),
)


def keep(root: Path, verdict: Verdict, model: str, settings: Params, weights: Mapping[str, str | None]) -> None:
    """Add a verdict and its evidence to the history in a store.

    Args:
        root: Folder of the store.
        verdict: Verdict to add.
        model: Name of the model.
        settings: Settings of the run.
        weights: Identities of the model's files, by name.

    Raises:
        UserError: The disk is full or the store cannot be written.
    """
    limited = any(measurement.provenance.limits for measurement in verdict.measurements)
    facts = run_facts() | evidence(verdict.case, verdict.measurements, settings, weights)
    keep_verdict(root, verdict.as_json(), model, limited=limited, facts=facts)


def evidence(
    case: Case, measurements: Sequence[Measurement], settings: Params, weights: Mapping[str, str | None]
) -> dict[str, Any]:
    """Return the evidence for a verdict, to be stored with it.

    `measurements` maps the names of measurements in the store to their times. `circumstances` contains everything that
    may change a verdict: weights, data, limits, settings, code, library versions and devices of the measurements, and
    the claim, code and settings of the judge.

    Args:
        case: Case that was judged.
        measurements: Measurements behind the verdict.
        settings: Settings of the run.
        weights: Identities of the model's files, by name.
    """
    trained = any(measurement.provenance.training for measurement in measurements)
    training = settings.finetune.model_dump() if trained else {}
    try:
        code_of_judge = _short(digest([code_digest(module) for module in JUDGING]))
    except UserError:  # the code was edited during the run
        code_of_judge = None
    return {
        "measurements": {Path(m.origin).name: m.provenance.made for m in measurements if m.origin},
        "circumstances": {
            **{name: _short(identity) for name, identity in weights.items() if identity},
            **_gathered(fact for measurement in measurements for fact in _facts(measurement)),
            **{f"{name} of training": value for name, value in training.items()},
            "claim": _short(digest([case.claim.model_dump(), case.figure.model_dump()])),
            f"code{JUDGES}": code_of_judge,
            **{f"{name}{JUDGES}": value for name, value in settings.judge.model_dump().items()},
        },
    }


def _facts(measurement: Measurement) -> Iterator[tuple[str, Any]]:
    """Yield the circumstances of a measurement."""
    name, provenance = measurement.measure, measurement.provenance
    yield f"data of {name} on {measurement.subject.task}", _short(provenance.data_fingerprint)
    yield f"examples of {name}", measurement.examples
    yield "limit", provenance.limit or "none"
    yield "train limit", provenance.train_limit or "none"
    yield from ((f"{key} of {name}", value) for key, value in {**measurement.settings, **measurement.options}.items())
    for step, made_by in ((name, provenance.made_by), ("training", provenance.checkpoint_made_by)):
        if made_by:
            yield f"code of {step}", _short(made_by.get("code"))
            yield f"device of {step}", made_by.get("device")
            yield from (made_by.get("software") or {}).items()


def _gathered(facts: Iterable[tuple[str, Any]]) -> dict[str, Any]:
    """Group facts by name; multiple values become a sorted list."""
    values: dict[str, list[Any]] = {}
    for name, value in facts:
        if value is not None and value not in values.setdefault(name, []):
            values[name].append(value)
    return {name: each[0] if len(each) == 1 else sorted(each, key=str) for name, each in values.items() if each}


def _short(text: str | None) -> str | None:
    """Shorten a digest; other strings, such as a hub name with a commit, are returned unchanged."""
    return text[:SHORT] if text and len(text) == 64 else text


# ---------------------------------------------------------------------- moves


@dataclass(frozen=True)
class Move:
    """Two consecutive verdicts between which the observed value moved (`changes.moved`)."""

    before: KeptVerdict
    after: KeptVerdict

    @property
    def same_measurements(self) -> bool:
        """Whether both verdicts have the same measurements, so only the judge can have changed the value."""
        return bool(self.before.measurements) and self.before.measurements == self.after.measurements

    @property
    def differing(self) -> list[ChangedFact]:
        """The recorded differences: code, versions, device, data, settings."""
        facts = {fact.name: fact for fact in differing(_circumstances(self.before), _circumstances(self.after))}

        def repeated(fact: ChangedFact) -> bool:
            own = facts.get(fact.name.removesuffix(JUDGES))
            return own is not None and own is not fact and (own.before, own.after) == (fact.before, fact.after)

        return [fact for fact in facts.values() if not repeated(fact)]

    @property
    def data(self) -> dict[str, Any]:
        """The move as JSON data."""
        return {
            "before": self.before.model_dump(),
            "after": self.after.model_dump(),
            "same_measurements": self.same_measurements,
            "differing": list(map(str, self.differing)),
        }


def moves(series: Sequence[KeptVerdict]) -> list[Move]:
    """Return the moves in a series of verdicts, skipping verdicts without an observed value."""
    pairs = [Move(*pair) for pair in pairwise(verdict for verdict in series if verdict.observed is not None)]
    return [pair for pair in pairs if moved(pair.before, pair.after, same_measurements=pair.same_measurements)]


def _circumstances(verdict: KeptVerdict) -> dict[str, Any]:
    """Return all recorded facts that may differ, by name, most informative first."""
    commit = verdict.commit and verdict.commit[:7] + (" (modified)" if verdict.modified else "")
    band = ends(verdict.band)
    known = {
        "commit": commit,
        "bertsecrets": verdict.software.get("bertsecrets"),
        "seeds": verdict.seeds,
        **verdict.circumstances,
        "band": format_interval(band) if band else None,
        **{f"{name}{JUDGES}": verdict.software.get(name) for name in ("python", "numpy", "scipy")},
    }
    return {name: value for name, value in known.items() if value is not None}
