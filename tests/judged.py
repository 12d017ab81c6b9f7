"""Cases and measurements made by hand, for the tests of judging."""

import numpy as np

from bertsecrets.claims.quantities import QUANTITIES
from bertsecrets.claims.schema import Case, Claim
from bertsecrets.settings import JudgeParams
from bertsecrets.types import Measurement, Subject

SETTINGS = JudgeParams(confidence=0.99, decided=0.95, resamples=4000, seed=7)
Z99 = 2.5758293035489004


def case(quantity="score", task_name="rte", kind="around", value=0.0, sampling="none", figure=None, **more) -> Case:
    figure = {"published": 60.0} if figure is None else figure
    claim = Claim(
        id="D9", source="test", statement="A claim.", measure="scores", quantity=quantity,
        expect={"kind": kind, "value": value, "sampling": sampling}, tasks={task_name: figure}, **more,
    )  # fmt: skip
    return Case(claim, task_name)


def measured(measure="scores", values=None, samples=None, seed=1, initialisation="pretrained", task_name="rte", **more):
    samples = {k: np.asarray(v) for k, v in (samples or {}).items()}
    size = len(next(iter(samples.values()), ()))
    return Measurement(measure, Subject("m", task_name, initialisation, seed), size, values or {}, samples, **more)


def scored(predicted, target, **more):
    return measured(values={"accuracy": 0.0}, samples={"predicted": predicted, "target": target}, **more)


def correlated(predicted, target, **more):
    return measured(values={"pearson": 0.0}, samples={"predicted": predicted, "target": target}, **more)


def read(quantity, *found, task_name="rte"):
    """The quantity's value on the measurements as they are, without resampling."""
    return QUANTITIES[quantity].read(found, task_name).value
