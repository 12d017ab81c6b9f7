"""Correlation with published figures: shuffled heads, other panels, other seeds, and maps that must not pass."""

import dataclasses
from functools import partial

import measurements
import numpy as np
import pytest
from measurements import estimand, gridded, judged, measured, of_id

from bertsecrets.claims.estimand import Estimand
from bertsecrets.claims.estimate import estimate
from bertsecrets.claims.judge import judge, power
from bertsecrets.claims.quantities.likeness import (
    averaged,
    between_seeds,
    likeness,
    panels,
    reach_of_shuffles,
    shuffled_correlations,
    with_ceiling,
)

FEW = measurements.SETTINGS.model_copy(update={"resamples": 200})
FIGURE_5, FIGURE_8 = panels("fig5_cosine"), panels("fig8_head")
on_rte = partial(likeness, measured("attention-change"))


def change(grid, noise=0.05, examples=60, seed=0):
    """Return cosine similarities on RTE with these means and noise in every example."""
    rng = np.random.default_rng(seed)
    return gridded("attention-change", "rte", cosine=grid + noise * rng.normal(size=(examples, *grid.shape)))


def outcomes(grids, case="C4-rte"):
    """Return the outcome for each map, judged as a single checkpoint."""
    return [judged(of_id(case), change(grid, seed=i), settings=FEW).outcome for i, grid in enumerate(grids)]


# ---------------------------------------------------------------------- references


def test_moments_of_shuffled_heads_are_those_of_many_shuffles():
    rng = np.random.default_rng(3)
    depth = np.linspace(0, 2, 5)[:, None]
    figure, means = depth + rng.normal(size=(5, 7)), depth + rng.exponential(size=(5, 7))
    shuffles = rng.permuted(np.broadcast_to(means, (20_000, 5, 7)), axis=-1).reshape(20_000, -1)
    correlations = np.array([np.corrcoef(row, figure.ravel())[0, 1] for row in shuffles[:4000]])
    mean, std = shuffled_correlations(means.ravel(), figure)
    assert mean == pytest.approx(correlations.mean(), abs=4 * std / np.sqrt(4000))
    assert std == pytest.approx(correlations.std(), rel=0.05)
    reach = reach_of_shuffles(means.ravel(), figure)
    assert np.quantile(correlations, 0.95) == pytest.approx(mean + reach * std, abs=0.02)
    several = shuffled_correlations(np.stack([means.ravel(), figure.ravel()]), figure)
    assert several[0][0] == pytest.approx(mean)
    assert several[1].shape == (2,)


def test_a_few_skewed_heads_reach_further_than_a_normal_distribution():
    """One of four heads stands out in each of two rows. Both are in place in 1 of 16 shuffles, which gives r = 1."""
    figure = np.array([[1.0, 0, 0, 0], [1.0, 0, 0, 0]])
    mean, std = shuffled_correlations(figure.ravel(), figure)
    assert mean + 1.645 * std < 0.9
    assert mean + reach_of_shuffles(figure.ravel(), figure) * std == pytest.approx(1)


def test_a_map_is_compared_with_its_own_panel_shuffled_heads_and_every_other_panel():
    quantity = estimand("figure-5-correlation", change(FIGURE_5["RTE"], noise=0.0))
    others = [np.corrcoef(FIGURE_5["RTE"].ravel(), FIGURE_5[name].ravel())[0, 1] for name in FIGURE_5 if name != "RTE"]
    mean, std = shuffled_correlations(FIGURE_5["RTE"].ravel(), FIGURE_5["RTE"])
    assert quantity.parts == pytest.approx([1, 1 - mean - 1.6449 * std, *(1 - np.array(others))], abs=2e-3)
    assert (quantity.extreme, quantity.published) == ("least", 1)
    note = quantity.notes[0]
    assert note.startswith("Pearson correlation 1.000, Spearman 1.000, 95% quantile with shuffled heads ")
    assert note.endswith(f", {max(others):.3f} with MRPC's panel, 1.000 within layers")


# ---------------------------------------------------------------------- positive and negative controls


def test_the_panel_itself_is_reproduced_and_another_tasks_is_not():
    rng = np.random.default_rng(5)
    like = [FIGURE_5["RTE"] + 0.02 * rng.normal(size=(12, 12)) for _ in range(10)]
    assert outcomes(like).count("reproduced") == 10
    assert set(outcomes([FIGURE_5[name] for name in FIGURE_5 if name != "RTE"])) == {"deviates"}


def test_depth_alone_is_not_enough():
    """Tested with heads shuffled within the panel's layers, and with a map that decreases with depth."""
    rng = np.random.default_rng(2)
    judgements = outcomes(rng.permuted(FIGURE_5["RTE"], axis=-1) for _ in range(50))
    assert judgements.count("reproduced") <= 3
    falling = np.repeat(np.linspace(0.95, 0.5, 12)[:, None], 12, axis=1)
    assert np.corrcoef(falling.ravel(), FIGURE_5["RTE"].ravel())[0, 1] > 0.4
    assert outcomes([falling + 0.01 * rng.normal(size=(12, 12)) for _ in range(10)]).count("reproduced") == 0


def test_heads_of_a_layer_are_compared_without_the_layers_mean():
    rng = np.random.default_rng(8)
    grid = FIGURE_5["RTE"] + 0.1 * rng.normal(size=(12, 12))
    within_layers = on_rte(grid.reshape(1, 144), FIGURE_5, within_rows=True)
    centred = [each - each.mean(1, keepdims=True) for each in (grid, FIGURE_5["RTE"])]
    assert within_layers.parts[0] == pytest.approx(np.corrcoef(*(each.ravel() for each in centred))[0, 1])
    assert within_layers.map == pytest.approx(centred[0].ravel())
    assert on_rte(grid.reshape(1, 144), FIGURE_5).parts[1:] == pytest.approx(within_layers.parts[1:])


def of_seeds(grid, count=5):
    """Return the changes of `count` seeds that differ only slightly from this map and from each other."""
    by_seed = []
    for seed in range(1, count + 1):
        own = change(grid + 0.015 * np.random.default_rng(seed).normal(size=grid.shape), noise=0.01, seed=seed)
        by_seed.append({"change": dataclasses.replace(own, subject=dataclasses.replace(own.subject, seed=seed))})
    return by_seed


def test_heads_at_each_others_places_are_noticed():
    rng = np.random.default_rng(3)
    swapped, half = FIGURE_5["RTE"].copy(), FIGURE_5["RTE"].copy()
    for layer in range(12):
        pair, some = rng.choice(12, 2, replace=False), rng.choice(12, 6, replace=False)
        swapped[layer, pair] = swapped[layer, pair[::-1]]
        half[layer, some] = half[layer, rng.permutation(some)]
    assert np.corrcoef(swapped.ravel(), FIGURE_5["RTE"].ravel())[0, 1] > 0.95
    like = judge(of_id("C4-rte"), of_seeds(FIGURE_5["RTE"]), FEW)
    assert (like.outcome, "; correlation between seeds 0.9" in like.reason) == ("reproduced", True)
    assert judge(of_id("C4-rte"), of_seeds(swapped), FEW).outcome == "inconclusive"
    for wrong in (half, np.roll(FIGURE_5["RTE"], 1, axis=0)):
        assert judge(of_id("C4-rte"), of_seeds(wrong), FEW).outcome == "deviates"


# ---------------------------------------------------------------------- seeds


def test_the_published_panel_brings_the_spread_of_one_more_run():
    levels = [Estimand.from_block(np.full((50, 1), value), lambda mean: mean[..., 0]) for value in (0.1, 0.2, 0.3)]
    with_panel = [dataclasses.replace(level, published=1) for level in levels]
    alone, both = (np.diff(estimate(seeds, FEW).interval(0.95)) for seeds in (levels, with_panel))
    assert both / alone == pytest.approx(np.sqrt(1 / 3 + 1) / np.sqrt(1 / 3), rel=1e-6)
    # more seeds do not reduce the variance of the one published run
    assert power(estimate(with_panel, FEW), (0.15, np.inf), 0.95).startswith("more than 1000 seeds")


def test_maps_are_averaged_over_seeds_before_they_are_correlated():
    """Each seed is its panel plus noise of its own, which the mean of four seeds halves."""
    panel, rng = np.arange(12.0).reshape(1, 12), np.random.default_rng(2)
    other = rng.permuted(panel, axis=-1)
    maps = [panel.ravel() + 4 * rng.normal(size=12) for _ in range(4)]
    seeds = [on_rte(np.tile(map, (40, 1)), {"RTE": panel, "MRPC": other}, average=True) for map in maps]
    mean = np.mean(maps, axis=0)
    r = lambda map: np.corrcoef(map, panel.ravel())[0, 1]  # noqa: E731
    together = averaged(seeds, np.stack(maps))
    values = [each.parts[0] for each in together]
    assert np.mean(values) == pytest.approx(r(mean))
    assert r(mean) > np.mean([r(map) for map in maps])
    without = [r((4 * mean - map) / 3) for map in maps]  # the jackknife's standard error
    assert np.std(values, ddof=1) / 2 == pytest.approx(np.sqrt(3 / 4 * np.sum((without - np.mean(without)) ** 2)))
    assert np.mean([each.parts[2] for each in together]) == pytest.approx(
        r(mean) - np.corrcoef(mean, other.ravel())[0, 1]
    )
    (lowered, *_), notes = with_ceiling(seeds)
    ceiling = between_seeds(np.stack(maps))
    assert lowered.parts[0] == pytest.approx(values[0] - ceiling / 2)
    assert notes == [
        f"correlation between seeds {ceiling:.3f}",
        f"mean map's correlation with the panel {r(mean):.3f}",
    ]
    assert seeds[0].published == 0


def test_seeds_that_are_more_like_each_other_than_like_the_figure_do_not_reproduce_it():
    """The correlation with the panel (0.45) exceeds all references, but not half of that between seeds (1.0)."""
    rng = np.random.default_rng(11)
    own = FIGURE_8["RTE"].ravel()
    others = np.stack([panel.ravel() for name, panel in FIGURE_8.items() if name != "RTE"])
    basis = np.linalg.qr(np.vstack([np.ones(144), own, others]).T)[0]
    residual = rng.normal(size=144)
    residual -= basis @ (basis.T @ residual)
    grid = (0.45 * (own - own.mean()) / own.std() + np.sqrt(1 - 0.45**2) * residual / residual.std()).reshape(12, 12)

    def seeds(count):
        blocks = [grid.ravel() + 0.02 * rng.normal(size=(60, 144)) for _ in range(count)]
        return [on_rte(block, FIGURE_8) for block in blocks]

    one, several = seeds(1), seeds(3)
    assert one[0].parts[0] == pytest.approx(0.45, abs=0.01)
    assert one[0].value > 0.1
    assert with_ceiling(one) == (one, [])
    lowered, notes = with_ceiling(several)
    assert notes == ["correlation between seeds 1.000"]
    assert lowered[0].parts == pytest.approx(several[0].parts - [0.5, *[0] * 7], abs=1e-3)
    assert lowered[0].value < 0
    assert between_seeds(np.stack([own, own, -own])) == pytest.approx(-1 / 3)


def test_tasks_that_do_not_differ_hardly_ever_make_a_map_deviate():
    """All tasks have the same true map, so only noise in the published runs determines which panel is nearest."""
    judgements = []
    for world in range(20):
        rng = np.random.default_rng(world)
        truth = np.repeat(rng.normal(size=12), 12) + rng.normal(size=144)
        drawn = [truth + 0.3 * rng.normal(size=144) for _ in range(12)]
        figures = {task: run.reshape(12, 12) for task, run in zip(FIGURE_5, drawn[:7], strict=True)}
        seeds, _ = with_ceiling([on_rte(np.tile(run, (40, 1)), figures) for run in drawn[7:]])
        low, high = estimate(seeds, FEW).interval(0.95)
        judgements.append("reproduced" if low > 0 else "deviates" if high < 0 else "inconclusive")
    assert judgements.count("reproduced") == 0
    assert judgements.count("deviates") <= 1
