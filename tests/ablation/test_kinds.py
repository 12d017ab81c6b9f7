"""Kinds of ablation other than 1/L match a reference that replaces the heads' vectors directly, in any family."""

from collections import Counter
from dataclasses import replace

import numpy as np
import pytest
import torch
from ablation_models import EAGER, FAMILIES, tiny, tokens
from ablation_reference import logits_from_other_vectors
from hypothesis import given
from hypothesis import strategies as st
from tiny import fast_tier

from bertsecrets.ablation.engine import Engine, ablate
from bertsecrets.ablation.head_sets import BASELINE, whole_layers
from bertsecrets.ablation.kinds import Ablation, partners, stretched
from bertsecrets.errors import NotApplicableError, UserError
from bertsecrets.measures.base.ablation_measure import set_ablation
from bertsecrets.measures.registry import get_measure
from bertsecrets.models.memory import Budget
from bertsecrets.texts.tasks import task

SETS = [  # each head index, each layer, a whole layer, and heads from several layers
    BASELINE,
    *(frozenset({head}) for head in ((0, 0), (1, 1), (2, 2), (0, 3))),
    whole_layers(3, 4)[1],
    frozenset({(0, 1), (1, 0), (1, 2), (2, 3)}),
]
FAST = {"bert", "roberta", "electra", "ernie", "distilbert", "albert", "big_bird", "rembert", "mpnet"}
KINDS = ("zero", "mean", "resampled")
ROWS = tokens((5, 9, 5, 3))


@pytest.mark.parametrize("kind", KINDS)
@pytest.mark.parametrize("family", fast_tier([*FAMILIES, *EAGER], "bert", "albert", "gpt2"))
def test_every_kind_equals_the_reference_in_every_family(family, kind):
    classifier = tiny(family)
    expected = logits_from_other_vectors(classifier.model, ROWS, SETS, kind)
    assert np.abs(expected[1:] - expected[0]).max((1, 2)).min() > 1e-5
    engines = [Engine.open(classifier, ablation=Ablation(kind))]
    assert (engines[0].blocks is not None) == (family in FAST)
    if family in FAST:
        engines.append(replace(engines[0], blocks=None))
    for engine in engines:
        np.testing.assert_allclose(ablate(engine, ROWS, SETS), expected, rtol=0, atol=2e-5)


def test_another_draw_uses_vectors_of_other_rows():
    classifier = tiny("bert")
    one, other = (Engine.open(classifier, ablation=Ablation("resampled", draw)) for draw in (1, 2))
    first, second = ablate(one, ROWS, SETS), ablate(other, ROWS, SETS)
    np.testing.assert_array_equal(first, ablate(one, ROWS, SETS))
    np.testing.assert_allclose(
        second, logits_from_other_vectors(classifier.model, ROWS, SETS, "resampled", 2), rtol=0, atol=2e-5
    )
    assert np.abs(first - second)[1:].max() > 1e-3


@pytest.mark.parametrize("kind", KINDS)
def test_portion_sizes_do_not_change_results(kind):
    """The memory budget affects neither the mean nor the choice of partners."""
    engine = Engine.open(tiny("bert"), ablation=Ablation(kind))
    small = replace(engine, budget=Budget(tokens=12, kept=40))
    np.testing.assert_allclose(ablate(small, ROWS, SETS), ablate(engine, ROWS, SETS), rtol=0, atol=1e-5)


@given(rows=st.integers(2, 60), draw=st.integers(1, 99))
def test_every_row_is_the_partner_of_one_other(rows, draw):
    chosen = partners(rows, draw)
    assert (chosen != np.arange(rows)).all()
    assert Counter(chosen.tolist()) == Counter(range(rows))


@given(length=st.integers(2, 60), partner=st.integers(1, 60))
def test_a_partner_is_stretched_from_its_first_token_to_its_last(length, partner):
    places = stretched(length, partner)
    assert (places[0], places[-1], len(places)) == (0, partner - 1, length)
    assert (np.diff(places) >= 0).all()


def test_a_single_row_has_no_partner():
    with pytest.raises(UserError, match="use at least two rows, or choose another kind"):
        ablate(Engine.open(tiny("bert"), ablation=Ablation("resampled")), tokens((6,)), SETS)


def test_a_model_whose_vectors_cannot_be_replaced_is_refused():
    """Its attention weights can be overwritten, but no product of weights and values is found to replace."""
    classifier = tiny("mpnet")
    for layer in classifier.model.mpnet.encoder.layer:
        layer.attention.attn.dropout.register_forward_hook(lambda _m, _i, weights: weights * 1.0)
    assert Engine.open(classifier).skeleton.way == "written"
    with pytest.raises(NotApplicableError, match="only kind=uniform is possible"):
        Engine.open(classifier, ablation=Ablation("zero"))


def test_each_kind_has_its_own_cache_key():
    measure = get_measure("head-ablation")
    given_options = [measure.check_options(o).given() for o in ({}, {"kind": "uniform"}, {"kind": "zero"})]
    assert given_options == [{}, {}, {"kind": "zero"}]
    assert measure.check_options({"kind": "resampled", "draw": "3"}).given() == {"kind": "resampled", "draw": 3}
    with pytest.raises(UserError, match="option kind of measure layer-ablation: .*'uniform', 'zero'"):
        get_measure("layer-ablation").check_options({"kind": "noise"})
    with pytest.raises(UserError, match="option draw of measure head-ablation: it applies only to kind=resampled"):
        measure.check_options({"draw": 2})


@pytest.mark.parametrize("kind", KINDS)
def test_a_float32_sample_uses_vectors_of_all_rows(kind, monkeypatch):
    """The sample uses the mean and the partners of the whole measurement."""
    from bertsecrets.measures.base import ablation_measure

    monkeypatch.setattr(ablation_measure, "CHECKED_ROWS", 2)
    asked = []

    def noted(engine, encoded, sets, *, instead, **more):
        asked.append((len(encoded), instead(np.array([1]))))
        return ablate(engine, encoded, sets, instead=instead, **more)

    monkeypatch.setattr(ablation_measure, "ablate", noted)
    set_ablation(
        tiny("bert"), ROWS, task("mnli"), [0, 1, 2, 1], SETS[1:5], ablation=Ablation(kind), precision="bfloat16"
    )
    (rows, sample), _logits, (all_rows, whole) = asked  # the second call finds the scale of the logits
    assert (rows, all_rows) == (2, 4)
    for one, other in zip(sample, whole, strict=True):
        torch.testing.assert_close(one, other.float(), rtol=0.1, atol=0.1)


def test_grids_of_different_kinds_are_not_mixed_up(tmp_path):
    arguments = (tiny("bert"), ROWS, task("mnli"), [0, 1, 2, 1], SETS[1:5])
    set_ablation(*arguments, folder=tmp_path / "grid", ablation=Ablation("zero"))
    with pytest.raises(UserError, match="a different grid"):
        set_ablation(*arguments, folder=tmp_path / "grid", ablation=Ablation("mean"))
