"""Runs on record: what a quantity was on every seed, as the prior of its spread over seeds.

`expected/evidence/` has one file of runs for each model; `bertsecrets report --record` writes them.
"""

from collections.abc import Sequence
from dataclasses import replace
from functools import cache
from typing import Annotated, Any

import numpy as np
from pydantic import AfterValidator, Field, ValidationError

from bertsecrets.claims.band import cited_spread
from bertsecrets.claims.estimand import Extreme, decisive
from bertsecrets.claims.estimate import Spread, pooled
from bertsecrets.claims.readings import reading_of
from bertsecrets.claims.schema import Case, Claim, load_claims
from bertsecrets.claims.verdict import Verdict
from bertsecrets.errors import UserError
from bertsecrets.models.families import full_name
from bertsecrets.models.initialisations import get_initialisation
from bertsecrets.reading import read_text
from bertsecrets.settings import Section, first_problem, project_path

PATTERN = "seeds-*.json"  # one file for each model
LIMIT = 2**24  # bytes of such a file


class Runs(Section):
    """What a claim's quantity was on a task: the parts of each seed, a single one for most quantities.

    `extreme` says which of several parts the quantity is; `alike` is the share of the examples' variance that all
    seeds have in common (`Spread`). `reading` is empty where the claim hangs on none.
    """

    claim: str
    task: str
    reading: str = ""
    seeds: tuple[int, ...] = Field(min_length=2)
    values: tuple[tuple[float, ...], ...] = Field(min_length=2)
    extreme: Extreme | None = None
    alike: float = Field(default=1.0, ge=0, le=1)

    @property
    def std(self) -> float:
        """The standard deviation over seeds; of several parts, that of the one that decides."""
        return std_of_seeds(self.values, self.extreme)


class Recorded(Section):
    """All runs of one model, with how they were trained."""

    model: Annotated[str, AfterValidator(full_name)]
    precision: str
    runs: tuple[Runs, ...]


def spread_beforehand(case: Case, model: str) -> Spread | None:
    """Return the spread over seeds that is known before a model's own seeds; None where none is.

    It is that cited beside the published figure, otherwise that of runs on record: of the same claim, or else of
    claims with the same quantity. The model's own runs on the task do not count, since its seeds are judged with it.
    """
    on_record = [(of, runs) for of, runs in runs_on_record() if runs.reading == reading_of(case)]
    others = [(of, runs) for of, runs in on_record if (of, runs.task) != (full_name(model), case.task)]
    alike = _alike(case.claim)
    chosen = [one for one in others if one[1].claim == case.claim.name]
    chosen = chosen or [one for one in others if one[1].claim in alike]
    common = float(np.mean([runs.alike for _, runs in chosen])) if chosen else 1.0
    if (cited := cited_spread(case)) is not None:
        return replace(cited, alike=common)
    models, tasks = ({one[0] for one in chosen}, {one[1].task for one in chosen})
    source = f"runs on record ({', '.join(sorted(models))} on {', '.join(sorted(tasks))})"
    return pooled([(runs.std, len(runs.seeds) - 1) for _, runs in chosen], source, common)


def std_of_seeds(values: Sequence[Sequence[float]], extreme: Extreme | None) -> float:
    """Return the standard deviation over seeds of a quantity: of several parts, that of the one that decides."""
    of_part = decisive(np.mean(values, axis=0), extreme)
    return float(np.std([parts[of_part] for parts in values], ddof=1))


def _alike(claim: Claim) -> set[str]:
    """Return the names of the claims about the same quantity of models with the same initialisations."""
    kind = (claim.quantity, claim.initialisation, claim.against)
    return {one.name for one in load_claims() if (one.quantity, one.initialisation, one.against) == kind}


@cache
def runs_on_record() -> tuple[tuple[str, Runs], ...]:
    """Return all runs on record, each with its model.

    Raises:
        UserError: a file is malformed.
    """
    found = []
    for file in sorted((project_path("expected") / "evidence").glob(PATTERN)):
        try:
            recorded = Recorded.model_validate_json(read_text(file, LIMIT))
        except ValidationError as error:
            raise UserError(
                f"{file}: {first_problem(error)}: write it anew with bertsecrets report --record"
            ) from error
        found += [(recorded.model, runs) for runs in recorded.runs]
    return tuple(found)


def record(model: str, verdicts: Sequence[Verdict]) -> dict[str, Any]:
    """Return what the verdicts on a model put on record, where they rest on several seeds, as data for a file.

    Raises:
        UserError: no verdict rests on several seeds.
    """
    runs = [
        Runs(
            claim=verdict.case.claim.name,
            task=verdict.case.task,
            reading=reading_of(verdict.case),
            seeds=verdict.seeds,
            values=verdict.by_seed,
            extreme=verdict.extreme,
            alike=1.0 if verdict.alike is None else verdict.alike,
        )
        for whole in verdicts
        for verdict in (whole.readings.values() or [whole])
        if len(verdict.by_seed) > 1 and np.isfinite(verdict.by_seed).all()
    ]
    if not runs:
        raise UserError("nothing to put on record: no verdict rests on several seeds: measure them with --seeds 5")
    return Recorded(model=model, precision=_precision(verdicts), runs=tuple(runs)).model_dump(mode="json")


def _precision(verdicts: Sequence[Verdict]) -> str:
    """Return the precision in which all that verdicts rest on was trained; several where they differ."""
    measured = [one for verdict in verdicts for one in verdict.measurements]
    trained = [one for one in measured if get_initialisation(one.subject.initialisation).trains]
    return ", ".join(sorted({str(one.provenance.precision) for one in trained if one.provenance.precision}))
