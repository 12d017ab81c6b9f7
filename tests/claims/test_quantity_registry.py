"""Registration of quantities: invalid arguments and needs, missing values, and additional tasks."""

import pytest
from measurements import estimand, made_up, measured
from pydantic import ValidationError

from bertsecrets.claims.estimand import Estimand
from bertsecrets.claims.quantities import QUANTITIES
from bertsecrets.claims.quantity import REGISTERED_QUANTITIES, Need, Quantity, quantity
from bertsecrets.errors import UserError
from bertsecrets.measures.registry import measure_names
from bertsecrets.types import Measurement


@pytest.fixture
def own():
    """Register a quantity for this test only."""

    @quantity("test-mean", unit="points", scores=Need("scores"))
    def mean(scores: Measurement, add: float, times: float = 1.0) -> Estimand:
        """Return the mean of the predictions."""
        block = scores.sample("predicted")[:, None].astype(float)
        return Estimand.from_block(block, lambda means: times * means[..., 0] + add)

    yield REGISTERED_QUANTITIES["test-mean"]
    del REGISTERED_QUANTITIES["test-mean"]


def test_a_quantity_is_handed_its_measurements_by_name(own):
    assert isinstance(own, Quantity)
    assert QUANTITIES["test-mean"] is own
    assert estimand("test-mean", measured(samples={"predicted": [1, 3]}), add=1.0, times=10.0).value == 21


@pytest.mark.parametrize(
    ("arguments", "wrong"),
    [({}, "add"), ({"add": 1, "colour": 2}, "colour"), ({"add": 1, "scores": 2}, "scores")],
)
def test_arguments_that_the_function_does_not_take_are_refused_at_load(own, arguments, wrong):
    case = made_up("test-mean", kind="above", arguments={"add": 1})
    assert case.claim.arguments == {"add": 1}
    with pytest.raises(ValueError, match=f"arguments of quantity test-mean: .*{wrong}"):
        made_up("test-mean", kind="above", arguments=arguments)


@pytest.mark.parametrize("name", [name for name, of in QUANTITIES.items() if of.arguments.model_fields])
def test_a_claims_arguments_are_checked_before_anything_is_measured(name):
    taken = QUANTITIES[name].arguments
    numbers = () if name == "cased-loss" else (0, 0.25)  # only its argument may be any number
    for argument in taken.model_fields:
        for nonsense in (*numbers, "nope", "no", [], ["nope"], ["block", "block"], {}, float("nan")):
            with pytest.raises(ValidationError, match=rf"(?m)^{argument}\b"):
                taken.model_validate({argument: nonsense})


def test_a_need_that_the_function_does_not_take_is_refused():
    with pytest.raises(TypeError, match="quantity test-other: other takes no measurement named 'before'"):

        @quantity("test-other", unit="points", after=Need("scores"), before=Need("scores", "against"))
        def other(after: Measurement) -> Estimand: ...

    assert "test-other" not in QUANTITIES


def test_two_quantities_of_one_name_are_refused(own):
    with pytest.raises(ValueError, match="two quantities are named 'test-mean'"):

        @quantity("test-mean", unit="points", scores=Need("scores"))
        def again(scores: Measurement) -> Estimand: ...


def test_every_need_names_a_measure():
    for name, registered in QUANTITIES.items():
        assert {need.measure for need in registered.needs.values()} <= set(measure_names()), name


def test_a_missing_value_is_reported_where_it_is_read():
    with pytest.raises(UserError, match=r"scores of m-rte-pretrained-s1 is incomplete .* \(no 'target'\): recreate it"):
        estimand("score", measured(values={"accuracy": 1.0}, samples={"predicted": [1]}))
    with pytest.raises(UserError, match=r"\(no 'lower_cases'\)"):
        estimand("cased-loss", measured(), measured())
