"""Data of the attention viewer: the selected checkpoints, the number of examples, and how maps are packed."""

import base64
import gzip
import json
from dataclasses import replace

import numpy as np
import pytest
from measurements import SETTINGS, of_id
from reported import MODEL, SHAPE, WORDS, example_maps, of
from verdicts import of_every_outcome

from bertsecrets.claims.verdict import Verdict
from bertsecrets.measures.example_maps import TARGET_KINDS
from bertsecrets.report.html import VIEWER_BYTES, page
from bertsecrets.report.viewer import WEIGHT_LEVELS, Examples, packed, subjects_shown, viewer_data
from bertsecrets.types import Subject

SPACE = 100_000


def unpacked(text: str, shape: tuple[int, ...]) -> np.ndarray:
    changes = np.frombuffer(gzip.decompress(base64.b64decode(text)), np.uint8).reshape(shape)
    return (np.cumsum(changes, axis=0, dtype=np.uint8) / WEIGHT_LEVELS) ** 2


def test_packed_weights_are_exact_to_one_step():
    weights = np.random.default_rng(1).dirichlet(np.full(16, 0.2), size=(2, *SHAPE, 16))
    assert np.abs(unpacked(packed(weights), weights.shape) - weights).max() < 1 / WEIGHT_LEVELS


def test_maps_are_cropped_to_the_tokens_of_each_example():
    (data,) = viewer_data(Examples([example_maps()], rows=6), SPACE)
    assert [row["words"] for row in data["rows"]] == list(WORDS)
    for row in data["rows"]:
        n = len(row["words"])
        before, after = unpacked(row["maps"], (2, *SHAPE, n, n))
        np.testing.assert_allclose(before, 1 / n, atol=0.005)
        assert after[:, 1].argmax(-1).tolist() == [[1] * n] * SHAPE[0]


def test_kinds_without_attention_are_left_out():
    (data,) = viewer_data(Examples([example_maps()], rows=1), SPACE)
    assert data["kinds"] == [TARGET_KINDS[0]]
    assert data["mean"]["after"][0][0] == [1.0]
    assert (data["title"], data["who"], data["inputs"]) == ("RTE", "m on RTE, seed 1", 20)


def test_examples_are_added_in_turn_while_there_is_space():
    both = Examples([example_maps(), example_maps("sst2")], rows=2)
    assert [len(data["rows"]) for data in viewer_data(both, SPACE)] == [2, 2]
    assert [len(data["rows"]) for data in viewer_data(replace(both, rows=1), SPACE)] == [1, 1]
    one_of_each = len(json.dumps(viewer_data(replace(both, rows=1), SPACE)))
    assert [len(data["rows"]) for data in viewer_data(both, one_of_each + 200)] == [1, 1]
    assert viewer_data(both, 100) == []


def test_the_size_of_a_page_is_limited_for_any_number_of_examples(monkeypatch):
    both = Examples([example_maps(), example_maps("sst2")], rows=2)
    without = len(page({MODEL: of_every_outcome()}, SETTINGS).encode())
    most = without + VIEWER_BYTES + len(json.dumps(viewer_data(replace(both, rows=1), SPACE))) + 200
    monkeypatch.setattr("bertsecrets.report.html.PAGE_BYTES", most)
    shown = page({MODEL: of_every_outcome()}, SETTINGS, examples=both)
    assert len(shown.encode()) < most
    assert [shown.count(f'<option value="{place} ') for place in (0, 1)] == [1, 1]
    monkeypatch.setattr("bertsecrets.report.html.PAGE_BYTES", without)
    shown = page({MODEL: of_every_outcome()}, SETTINGS, examples=both)
    assert "No maps of any example: the page would be too large." in shown


def test_the_fine_tuned_checkpoint_of_the_lowest_seed_is_shown():
    measured = (
        of("scores", {}, task="rte", seed=2),
        of("scores", {}, task="rte", seed=1),
        of("scores", {}, task="sst2", initialisation="random"),
        of("example-sentence", {}, task="all", initialisation="untrained"),
    )
    assert subjects_shown([Verdict(of_id("C1-rte"), "reproduced", "why", measurements=measured)]) == [
        Subject(MODEL, "rte", "pretrained", 1)
    ]


def test_markup_in_texts_is_escaped():
    shown = page({MODEL: of_every_outcome()}, SETTINGS, examples=Examples([example_maps()], rows=2))
    (data,) = shown.split('<script type="application/json" id="maps">')[1].split("</script>")[:1]
    assert "\\u003c/script\\u003e" in data
    assert '<option value="0 1">No / &lt;/script&gt;s</option>' in shown


@pytest.mark.parametrize("made_up", [False, True])
def test_the_page_warns_only_about_texts_of_the_data_set(made_up):
    maps = example_maps()
    maps = replace(maps, provenance=replace(maps.provenance, made_up_data=made_up))
    shown = page({MODEL: of_every_outcome()}, SETTINGS, examples=Examples([maps], rows=1))
    assert ("check its terms before publishing this page" in shown) is not made_up


def test_a_page_without_examples_has_no_viewer_but_the_reason():
    assert 'id="attention"' not in page({MODEL: of_every_outcome()}, SETTINGS)
    without = Examples(problems=["m-rte-s1: its weights were not kept"])
    html = page({MODEL: of_every_outcome()}, SETTINGS, examples=without)
    assert "No maps of m-rte-s1: its weights were not kept." in html
    assert 'id="maps"' not in html
