"""Measures are registered where they are defined."""

import pytest

from bertsecrets.claims.loading import load_claims
from bertsecrets.claims.quantities import QUANTITIES
from bertsecrets.measures.base import Measure
from bertsecrets.measures.registry import SEEDLESS_MEASURES, get_measure, measure, measure_names


@pytest.mark.parametrize("name", measure_names())
def test_every_measure_is_named_after_its_file_and_has_title_and_source(name):
    registered = get_measure(name)
    assert isinstance(registered, Measure)
    assert registered.name == name
    assert registered.title
    assert registered.source
    assert registered.check_options({}).given() == {}


def test_a_second_measure_of_the_same_name_is_refused():
    with pytest.raises(ValueError, match="two measures are called 'scores'"):

        @measure("scores", title="another", source="nowhere")
        class Other(Measure):
            pass


def test_options_of_every_claim_are_valid_for_its_measures():
    for claim in load_claims():
        for need in QUANTITIES[claim.quantity].needs.values():
            options = {**(claim.options if need.measure == claim.measure else {}), **need.options}
            get_measure(need.measure).check_options(options)


def test_the_list_of_seedless_measures_is_complete():
    assert [name for name in measure_names() if get_measure(name).seedless] == sorted(SEEDLESS_MEASURES)
