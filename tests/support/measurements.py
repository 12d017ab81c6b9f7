"""Handmade measurements, cases of existing and invented claims, and quantities and verdicts from them."""

import functools
import math
from collections.abc import Iterable
from dataclasses import replace
from types import SimpleNamespace

import numpy as np

from bertsecrets.claims.estimand import Estimand
from bertsecrets.claims.judge import judge
from bertsecrets.claims.loading import cases
from bertsecrets.claims.quantities import QUANTITIES
from bertsecrets.claims.quantity import Needed
from bertsecrets.claims.schema import Case, Claim
from bertsecrets.claims.verdict import Verdict
from bertsecrets.patterns.classes import CLASSES
from bertsecrets.settings import JudgeParams
from bertsecrets.types import Measurement, Subject

SETTINGS = JudgeParams(confidence=0.95, resamples=500, seed=7)


# ---------------------------------------------------------------------- measurements


def measured(
    measure="scores", values=None, samples=None, task_name="rte", *, initialisation="pretrained", seed=1, **more
) -> Measurement:
    """Return a measurement of model `m` with the given values and samples."""
    samples = {name: np.asarray(sample) for name, sample in (samples or {}).items()}
    size = len(next(iter(samples.values()), ()))
    return Measurement(measure, Subject("m", task_name, initialisation, seed), size, values or {}, samples, **more)


def scored(predicted, target, task_name="rte", *, initialisation="pretrained", seed=1, **values) -> Measurement:
    """Return scores. If every label is 1, every second example gets the other label, and stays as right as it was."""
    if len(target) > 1 and np.min(target) == 1:
        swapped = np.arange(len(target)) % 2
        predicted, target = np.asarray(predicted) ^ swapped, np.asarray(target) ^ swapped
    samples, values = {"predicted": predicted, "target": target}, {"accuracy": 0.0, **values}
    return measured("scores", values, samples, task_name, initialisation=initialisation, seed=seed)


def as_seeds(*measurements: Measurement) -> list[Measurement]:
    """Return the measurements as those of seeds 1, 2 and so on."""
    return [replace(each, subject=replace(each.subject, seed=seed)) for seed, each in enumerate(measurements, start=1)]


def correlated(predicted, target, **values) -> Measurement:
    return measured("scores", {"pearson": 0.0, **values}, {"predicted": predicted, "target": target}, "stsb")


def gridded(measure: str, task_name="rte", **samples) -> Measurement:
    """Return a measurement with samples [example, layer, head], and their means over non-NaN examples as values."""
    arrays = {name: np.asarray(sample, dtype=np.float64) for name, sample in samples.items()}
    with np.errstate(invalid="ignore"):
        values = {name: np.ma.masked_invalid(a).mean(0).filled(np.nan) for name, a in arrays.items()}
    return measured(measure, values, arrays, task_name)


def shares(seed: int, **heterogeneous: float) -> Measurement:
    """Return a measurement with these percentages of heterogeneous maps by reading; the rest are vertical."""
    rng, samples = np.random.default_rng(seed), {}
    for reading, percent in heterogeneous.items():
        expected = np.zeros((300, 5))
        expected[:, CLASSES.index("heterogeneous")] = np.clip(percent / 100 + rng.normal(0, 0.02, 300), 0, 1)
        expected[:, 0] = 1 - expected.sum(1)
        samples[f"{reading}_expected"] = expected
        samples[f"{reading}_errors"] = np.zeros((90, 5))
        samples[f"{reading}_predicted"] = np.zeros((300, 6, 12), dtype=np.int8)
    return measured("patterns", {}, samples, seed=seed)


# ---------------------------------------------------------------------- cases


def of_id(name: str) -> Case:
    return _cases()[name]


@functools.cache
def _cases() -> dict[str, Case]:
    return {str(case): case for case in cases()}


def made_up(quantity="score", task_name="rte", kind="around", value=0.0, sampling="none", figure=None, **more) -> Case:
    """Return a case of an invented claim D9, which the paper does not make."""
    rule = {"sampling": sampling} if kind == "around" else {"value": value}
    figure = {"published": 60.0} if figure is None else figure
    if any(need.whose == "against" for need in QUANTITIES[quantity].needs.values()):
        more = {"against": "untrained", **more}
    claim = Claim(
        id="D9", source="test", statement="A claim.", quantity=quantity,
        measure=next(iter(QUANTITIES[quantity].needs.values())).measure,
        expect={"kind": kind, **rule}, tasks={task_name: figure}, **more,
    )  # fmt: skip
    return Case(claim, task_name)


def order(interval, kind="above", value=0.0, published=None, least=None) -> tuple[str, str]:
    """Return outcome and reason of an invented order for an interval, in a unit without a smallest effect."""
    effect = least and {"size": least, "reason": "for a reason"}
    figure = {"published": published}
    case = made_up("score-difference", kind=kind, value=value, unit="u", figure=figure, smallest_effect=effect)
    unlike_limit = SimpleNamespace(value=math.nan)
    outcome, cause = case.claim.expect.decide(SimpleNamespace(case=case, interval=interval, observed=unlike_limit))
    return outcome, str(cause)


# ---------------------------------------------------------------------- quantities and verdicts


def needed(quantity: str, *measurements: Needed) -> dict[str, Needed]:
    """Return measurements by the names of a quantity's needs, in their order; a tuple for a need with several tasks."""
    return dict(zip(QUANTITIES[quantity].needs, measurements, strict=True))


def estimand(quantity: str, *measurements: Needed, **arguments) -> Estimand:
    """Return the estimand of a quantity from the measurements."""
    return QUANTITIES[quantity].read(needed(quantity, *measurements), **arguments)


def read(quantity: str, *measurements: Needed, **arguments) -> float:
    """Return the value of a quantity on the measurements, without resampling."""
    return estimand(quantity, *measurements, **arguments).value


def judged(case: Case, *measurements: Needed, settings: JudgeParams = SETTINGS) -> Verdict:
    """Return the verdict on a case from one checkpoint. Seed variance is 0 unless the published figure provides it."""
    figure = case.figure
    if figure.published is not None and figure.seed_std is None:
        figure = figure.model_copy(update={"seed_std": 0.0, "seed_source": "a test"})
        case = Case(case.claim.model_copy(update={"tasks": {**case.claim.tasks, case.task: figure}}), case.task)
    return judge(case, [needed(case.claim.quantity, *measurements)], settings, checkpoint=True)


def judged_seeds(case: Case, measurements: Iterable[Measurement], settings: JudgeParams = SETTINGS) -> Verdict:
    """Return the verdict on a case whose quantity needs a single measurement, from that of each seed."""
    return judge(case, [needed(case.claim.quantity, measurement) for measurement in measurements], settings)


def verdict(name: str, *measurements: Needed) -> Verdict:
    """Return the verdict on the case with this id, from measurements of one checkpoint."""
    return judged(of_id(name), *measurements)
