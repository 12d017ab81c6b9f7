"""Quantities of frame-semantic heads, checked by hand: the best two heads, gaps, figure 3, and the paper's example."""

import math
from dataclasses import replace

import numpy as np
import pytest
from measurements import estimand, gridded, read, verdict

from bertsecrets.errors import NotApplicableError
from bertsecrets.models.locations import published_identities
from bertsecrets.texts.published import FRAME_DIGEST, PAPERS_MODEL, published_figures
from bertsecrets.types import Provenance

NAN = math.nan
KINDS = ("max_weight", "max_weight_zipped", "max_weight_reverse", "max_weight_zipped_reverse")


def paper_like(noise=0.02, sentences=473, swap=False, **more):
    """Return frame heads with figure 3's means and noise in every sentence; `swap` makes other heads the best."""
    grid = np.array(published_figures()["fig3_frame_notebook"])
    if swap:
        grid = grid[::-1]
    rng = np.random.default_rng(0)
    sample = grid + noise * rng.normal(size=(sentences, 12, 12))
    sample -= sample.mean(0) - grid
    return of_sentences(gridded("frame-heads", "all", **dict.fromkeys(KINDS, sample), **more), own=sentences == 473)


def of_sentences(found, own=True):
    """Return the measurement, marked as made on the paper's own sentences or on others."""
    return replace(found, values={**found.values, "sentences": FRAME_DIGEST if own else "another"})


def frames(*grids):
    """Return frame heads for a few sentences, the same for all pairings."""
    return of_sentences(gridded("frame-heads", "all", **dict.fromkeys(KINDS, np.array(grids, dtype=float))))


def test_the_lead_of_named_heads_by_hand():
    weights = frames([[0.1, 0.5], [0.4, 0.2]], [[0.3, 0.7], [0.4, 0.0]], [[NAN, NAN], [NAN, NAN]])
    # means .2 .6 / .4 .1
    assert read("frame-heads-lead", weights, heads=[(1, 2), (2, 1)]) == pytest.approx(0.4 - 0.2)
    assert read("frame-heads-lead", weights, heads=[(1, 1), (2, 1)]) == pytest.approx(0.2 - 0.6)
    with pytest.raises(NotApplicableError, match="the model has 2 x 2 heads, so it has no head 3 in layer 1"):
        read("frame-weight", weights, layer=1, head=3)


@pytest.mark.parametrize(
    "name", ["B1-all", "B2-all-l7h6", "B2-all-l1h2", "B2-all-next", "B3-all", "B3-all-gap", "B6-all"]
)
def test_figure_3_itself_reproduces_and_other_heads_do_not(name):
    same = verdict(name, paper_like())
    assert same.outcome == same.case.claim.expect.passes
    if name not in ("B3-all-gap", "B2-all-next"):  # these do not name the heads
        assert verdict(name, paper_like(swap=True)).outcome == "deviates"


def test_identity_is_reported_with_the_best_three():
    assert verdict("B1-all", paper_like()).reason.endswith(
        "the best heads are layer 7 head 6 0.209, layer 1 head 2 0.201, layer 1 head 9 0.130"
    )
    noisy = verdict("B1-all", paper_like(noise=0.5, sentences=40))
    assert noisy.outcome == "inconclusive"
    assert "examples instead of 40 would be needed" in noisy.power
    assert "seeds" not in noisy.power  # nothing is trained


def test_the_weight_of_a_head_and_of_a_rank():
    weights = frames([[0.1, 0.5], [0.4, 0.2]], [[NAN] * 2] * 2, [[0.3, 0.7], [0.4, 0.0]])
    assert read("frame-weight", weights, layer=1, head=2) == pytest.approx(0.6)
    assert read("ranked-frame-weight", weights, rank=2) == pytest.approx(0.4)
    with pytest.raises(NotApplicableError, match="no head of rank 9"):
        read("ranked-frame-weight", weights, rank=9)
    weights.values["max_weight_zipped"] = weights.values["max_weight"] - 0.02
    note = estimand("frame-weight", weights, layer=2, head=1, pairing="zip").notes[0]
    assert note == "other pairings: all +0.020, reverse +0.020, reverse zip +0.020"


def shifted(by, sentences=473, **how):
    """Return frame heads as in figure 3, with `by` added to all weights."""
    like = paper_like(sentences=sentences, **how)
    moved = gridded("frame-heads", "all", **{kind: sample + by for kind, sample in like.samples.items()})
    return of_sentences(moved, own=sentences == 473)


def test_other_sentences_are_not_the_papers_even_if_there_are_473_of_them():
    others = of_sentences(paper_like(), own=False)
    assert verdict("B6-all", others).outcome == "inconclusive"
    low, high = verdict("B2-all-l7h6", others).interval
    assert low < 0.209 < high


def test_on_the_papers_own_sentences_a_figure_has_no_error_but_rounding():
    """Weights and sentences are the paper's own, so variation between sentences cannot excuse an extraction error."""
    rounded = verdict("B2-all-l7h6", shifted(0.0004, noise=0.1))
    assert rounded.outcome == "compatible"
    assert rounded.interval == pytest.approx((0.2094, 0.2094))
    off = verdict("B2-all-l7h6", shifted(0.005, noise=0.1))
    assert off.outcome == "deviates"
    assert off.band[1] - off.band[0] < 0.006
    assert verdict("B2-all-next", shifted(0.006, noise=0.1)).outcome == "deviates"


def test_other_sentences_add_their_error_and_that_of_the_papers():
    assert verdict("B2-all-l7h6", shifted(0.005, noise=0.1, sentences=300)).outcome == "compatible"
    assert verdict("B2-all-l7h6", shifted(0.05, noise=0.1, sentences=300)).outcome == "deviates"


def test_a_band_grows_only_with_the_error_of_the_measurement():
    nearly_all, few = (verdict("B2-all-l7h6", paper_like(noise=0.1, sentences=n)) for n in (472, 118))
    assert few.interval[1] - few.interval[0] == pytest.approx(
        2 * (nearly_all.interval[1] - nearly_all.interval[0]), rel=0.2
    )
    # with a quarter of the sentences, the variance is four times as large; that of the paper's 473 does not change
    widths = [judgement.band[1] - judgement.band[0] for judgement in (nearly_all, few)]
    assert widths[1] == pytest.approx(widths[0] * math.sqrt((4 + 1) / (1 + 1)), rel=0.2)


def test_the_percentile_is_numpys():
    grid = np.arange(144.0).reshape(12, 12)
    weights = frames(grid, grid)
    expected = min(grid[6, 5], grid[0, 1]) - np.percentile(grid, 99)
    assert read("frame-heads-over-percentile", weights) == pytest.approx(expected)


def test_the_gap_in_spreads_by_hand():
    weights = frames([[0.9, 0.8, 0.3], [0.2, 0.1, 0.2]])
    rest = np.array([0.3, 0.2, 0.1, 0.2])
    assert read("frame-gap-in-spread", weights) == pytest.approx(0.5 / rest.std())
    assert math.isnan(read("frame-gap-in-spread", frames(np.ones((2, 3)))))
    with pytest.raises(NotApplicableError):
        read("frame-gap-in-spread", frames([[0.1, 0.2, 0.3]]))


def test_no_two_equal_heads_stand_out():
    rng = np.random.default_rng(1)
    flat = frames(*(rng.normal(1, 0.1, size=(12, 12)) for _ in range(473)))
    assert verdict("B3-all-gap", flat).outcome == "deviates"


def test_figure_3_is_compared_as_it_is_and_on_its_own_sentences_alone():
    """Noise lowers the correlation on resampled or other sentences, although the true map is the same."""
    noisy = paper_like(noise=0.2)
    assert (noisy.sample("max_weight").std(0) / np.sqrt(473)).mean() > 0.009  # the heads' standard deviation is .038
    on_own_sentences = verdict("B6-all", noisy)
    assert (on_own_sentences.outcome, on_own_sentences.interval) == ("reproduced", (pytest.approx(1), pytest.approx(1)))
    fewer = verdict("B6-all", paper_like(noise=0.2, sentences=100))
    assert (fewer.outcome, fewer.brief) == ("inconclusive", "the sentences are not the paper's 473")
    assert "a map of 100 other sentences" in fewer.reason


def test_ranks_are_compared_by_spearman():
    cubed = frames(*[np.array(published_figures()["fig3_frame_notebook"]) ** 3] * 473)
    assert read("figure-3-correlation", cubed, ranks=True) == pytest.approx(1)
    assert read("figure-3-correlation", cubed) < 0.99
    assert verdict("B6-all-ranks", cubed).outcome == "reproduced"
    assert verdict("B6-all-ranks", paper_like(swap=True)).outcome == "deviates"


def example(weight, he=0.1, rest=0.1):
    """Return the example sentence with this weight from "he" to every word in layer 7 head 6, and .1 in other heads."""
    grids = {}
    for name, own in {**dict.fromkeys(("was", "becoming", "agitated", "sep"), weight), "he": he, "rest": rest}.items():
        grid = np.full((12, 12), 0.1)
        grid[6, 5] = own
        grids[name if name not in ("he", "rest") else f"{name}_from_agitated"] = grid[None]
    return gridded("example-sentence", "all", **grids)


def test_the_papers_example_is_judged_to_its_rounding():
    assert verdict("B5-all-l7h6", example(0.8732)).outcome == "compatible"
    assert verdict("B5-all-l7h6", example(0.8732)).reason.endswith("also was 0.87, becoming 0.87, sep 0.87")
    assert verdict("B5-all-l7h6", example(0.8770)).outcome == "deviates"
    assert verdict("B5-all-l1h2", example(0.8732)).outcome == "deviates"


def test_the_direction_of_the_text_is_the_row_of_the_target():
    assert read("example-weight-lead", example(0.9, he=0.6, rest=0.2), layer=7, head=6) == pytest.approx(0.4)
    assert verdict("B5-all-text-l7h6", example(0.1, he=0.6, rest=0.2)).outcome == "reproduced"
    assert verdict("B5-all-text-l7h6", example(0.9, he=0.2, rest=0.6)).outcome == "deviates"


@pytest.mark.parametrize("name", ["B1-all", "B2-all-l7h6", "B3-all", "B5-all-l7h6", "B5-all-text-l7h6", "B6-all"])
def test_claims_about_berts_weights_do_not_apply_to_others(name):
    measurement = example(0.8732) if name.startswith("B5") else paper_like()
    for weights, applies in {**dict.fromkeys(published_identities(PAPERS_MODEL), True), "0" * 64: False}.items():
        own = replace(measurement, provenance=Provenance(weights=weights))
        assert (verdict(name, own).outcome != "not applicable") == applies
    assert "is about the published weights of bert-base-uncased" in verdict(name, own).reason
