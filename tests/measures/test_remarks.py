"""What a measurement says of itself beside its numbers."""

from dataclasses import replace

import pytest
from measurements import measured

from bertsecrets.measures.registry import get_measure


@pytest.mark.parametrize(("model", "checked"), [("minilm", True), ("mpnet", True), ("other", False)])
def test_models_whose_maps_were_annotated_are_known_by_every_name(model, checked):
    found = measured("patterns")
    found = replace(
        found,
        subject=replace(found.subject, model=model),
        settings={"annotated_models": ["all-mpnet-base-v2", "minilm"]},
    )
    assert (get_measure("patterns").remarks(found) == []) == checked
