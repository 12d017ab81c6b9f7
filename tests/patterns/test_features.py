"""Features of attention maps: hand-computed values, and independence of padding and of other maps."""

import numpy as np
import pytest
import torch
from hypothesis import given, settings
from hypothesis import strategies as st

from bertsecrets.patterns.features import reductions
from bertsecrets.patterns.features.feature_table import feature_names, features
from bertsecrets.patterns.features.reductions import BAND_DIAGONALS, Sheared, bands, stack_brightness
from bertsecrets.patterns.features.regions import both_texts, quantiles
from bertsecrets.patterns.map_stack import MapStack
from instruments.annotation.pictures import cell_brightness
from instruments.classifiers.map_features import stack_maps


def named(one: np.ndarray, boundary: int | None = None) -> dict[str, float]:
    values = features(stack_maps([one], [len(one) if boundary is None else boundary]))
    return dict(zip(feature_names(), values[0].tolist(), strict=True))


def random_map(tokens: int, seed: int) -> np.ndarray:
    return np.random.default_rng(seed).dirichlet(np.full(tokens, 0.3), size=tokens)


def test_a_column_on_cls_is_all_special():
    weights = np.zeros((6, 6))
    weights[:, 0] = 1
    feature = named(weights)
    for name in ("cls", "special", "top1", "row_max", "peak_special", "peak_one_column", "column_unbroken"):
        assert feature[name] == pytest.approx(1), name
    for name in ("last_sep", "middle_sep", "band-1", "near", "row_entropy", "column_entropy", "row_information"):
        assert feature[name] == pytest.approx(1 / 6 if name == "band-1" else 0, abs=1e-6), name


def test_shares_of_special_places_by_hand():
    weights = np.tile([0.1, 0.2, 0.3, 0.15, 0.25], (5, 1))
    feature = named(weights, 3)  # [CLS] a [SEP] b [SEP]
    assert [feature[name] for name in ("cls", "middle_sep", "last_sep")] == pytest.approx([0.1, 0.3, 0.25])
    assert feature["special"] == pytest.approx(0.65)
    assert (feature["top1"], feature["top3"], feature["inside_top3"]) == pytest.approx((0.3, 0.75, 0.35))
    assert feature["strong"] == pytest.approx(0.65)  # the special tokens' total, which is more than any single column's
    alone = named(weights)  # one text: the token before the last is not [SEP]
    assert (alone["middle_sep"], alone["last_sep"], alone["two_texts"]) == pytest.approx((0, 0.25, 0))


def test_the_previous_token_is_band_minus_one():
    tokens = 10
    weights = np.eye(tokens, k=-1)
    weights[0, 0] = 1
    feature = named(weights)
    assert feature["band-1"] == pytest.approx(0.9)
    assert feature["band+0"] == pytest.approx(0.1)
    # the first of the 8 inside rows attends to [CLS], which is not an inside token
    assert feature["near"] == pytest.approx(7 / 8)
    assert feature["near_of_inside"] == pytest.approx(1)
    assert feature["previous_of_inside"] == pytest.approx(1)
    assert feature["line_unbroken"] == pytest.approx(1)
    # row 1 attends to position 0, which is special, so it has no inside peak; the others attend one position back
    assert feature["peak_close"] == feature["peak_near"] == pytest.approx(7 / 8)
    assert feature["gap"] == pytest.approx(1 / 8)
    assert feature["slope_light"] > 0.9


def test_a_uniform_map_has_full_entropy_and_no_contrast():
    feature = named(np.full((8, 8), 1 / 8), 4)
    for name in ("row_entropy", "column_entropy", "haze", "column1_light"):
        assert feature[name] == pytest.approx(1, abs=1e-5), name
    for name in ("own_text", "own_density", "corners", "square_over_corner", "row_information"):
        assert feature[name] == pytest.approx(0, abs=1e-5), name


def test_blocks_stay_in_their_text():
    weights = np.zeros((10, 10))
    weights[:5, :5] = weights[5:, 5:] = 0.2
    feature = named(weights, 5)
    # inside: tokens 1-3 and 5-8; a uniform map would keep (9 + 16) / 49 of the mass within texts
    assert feature["own_text"] == pytest.approx(1 - 25 / 49)
    assert feature["own_density"] > 5
    names = ("square_lit", "larger_square_over", "square_rest", "far_light", "far_over_corner", "border_step")
    for name in (*names, "own_columns0", "own_columns1", "square_over_corner"):
        assert feature[name] == pytest.approx(1), name
    assert feature["corner_lit"] == pytest.approx(0)
    even = named(np.full((10, 10), 0.1), 5)
    for name in ("larger_square_over", "square_rest", "own_columns0", "far_over_corner", "border_step"):
        assert even[name] == pytest.approx(0, abs=1e-6), name
    assert even["corner_lit"] == even["square_lit"] == 1
    alone = named(weights)  # always 0 for inputs with one text
    assert not any(alone[name] for name in ("own_text", "square_lit", "own_columns0", "far_light", "border_step"))


def test_corners_are_dark_beside_squares_and_not_in_a_smear():
    tokens, boundary = 20, 10
    steps = np.abs(np.subtract.outer(np.arange(tokens), np.arange(tokens)))
    smear = np.exp(-steps / 6)
    of_first = np.arange(tokens) < boundary
    squares = np.where(of_first[:, None] == of_first[None, :], 1.0, 0.01)
    names = ("corner0", "corner1", "corners", "corner0_close", "corner1_close", "corners_close")
    # the smear's rows are normalised, so those at the ends of a text weigh more, and its ratios are not exactly 0
    smeared, squared = (named(each / each.sum(1, keepdims=True), boundary) for each in (smear, squares))
    for name in names:
        assert abs(smeared[name]) < 0.3, name
        # corners have 0.01 times the weight of squares, and the floor is 0.05 times the uniform weight
        assert squared[name] < -2, name
    assert not any(named(squares / squares.sum(1, keepdims=True))[name] for name in names)  # one text has no corners


def test_corners_by_hand():
    """The tokens are [CLS] a b c [SEP] d e f [SEP].

    Of the word pairs across texts, only c and d are at a distance that also occurs within a text.
    """
    weights = np.zeros((9, 9))
    words = [1, 2, 3, 5, 6, 7]
    weights[np.ix_(words, words)] = 0.1
    weights[3, 5], weights[5, 3] = 0.05, 0
    weights[:, 0] = 1 - weights.sum(1)
    feature = named(weights, 5)
    # rows normalised over words: c gives 1/11 to d and 2/11 to the others; d gives 0 to c and 1/5 to the others
    ground = 0.05 / 6
    forward = np.log((1 / 11 + ground) / ((1 / 6 + 1 / 5) / 2 + ground))  # compared with a to c and d to f
    backward = np.log(ground / ((2 / 11 + 1 / 6) / 2 + ground))  # compared with c to a and f to d
    assert (feature["corner0"], feature["corner1"]) == pytest.approx((forward, backward), abs=1e-3)
    assert feature["corners"] == pytest.approx(forward, abs=1e-3)
    assert feature["corners_close"] == 0  # no pair across texts is within a fifth of six words


def test_slopes_tell_a_smear_from_squares():
    """The centre of a row's attention moves with the row in a smear, and stays the same within a square."""
    tokens, boundary = 32, 16
    steps = np.abs(np.subtract.outer(np.arange(tokens), np.arange(tokens)))
    first = np.arange(tokens) < boundary
    smear, square = np.exp(-((steps / 2) ** 2)), np.where(first[:, None] == first[None, :], 1.0, 0.01)
    smeared, squared = (named(each / each.sum(1, keepdims=True), boundary) for each in (smear, square))
    for kind in ("mass", "light"):
        assert smeared[f"slope_{kind}"] > 0.8, kind
        assert smeared[f"follow_{kind}"] > 0.95, kind
        assert abs(squared[f"slope_{kind}"]) < 0.05, kind
    assert smeared["far_light"] < 0.05 < 0.5 < squared["far_light"]
    assert smeared["smear_lit40%"] > 0.9
    assert smeared["smear_top"] == 1


def test_columns_explain_everything_if_rows_are_equal():
    rows = np.random.default_rng(1).dirichlet(np.full(12, 0.5))
    assert named(np.tile(rows, (12, 1)), 6)["columns_explain"] == pytest.approx(1, abs=1e-3)
    assert named(np.eye(12), 6)["columns_explain"] < 0.15


def test_the_longest_gap_in_a_line_is_counted_in_rows():
    weights = np.eye(14)
    weights[4:7, :] = weights[9, :] = np.eye(14)[0]  # three consecutive rows and one other attend only to [CLS]
    assert named(weights, 14)["gap"] == pytest.approx(3 / 12)


def bent(tokens: int) -> np.ndarray:
    """Return a map with a line that departs from the main diagonal by up to three columns, and returns to it."""
    weights = np.full((tokens, tokens), 0.001)
    for row in range(tokens):
        weights[row, min(tokens - 1, row + min(3, row // 4, (tokens - 1 - row) // 4))] = 1
    return weights / weights.sum(1, keepdims=True)


def test_a_line_that_bends_is_followed():
    feature, straight = named(bent(40)), named(np.eye(40))
    assert [feature[f"seam_{name}"] for name in ("light", "quarter", "lit", "pink", "share")] == pytest.approx([1] * 5)
    assert feature["seam_gap"] == 0
    assert feature["seam_top"] == 1
    assert feature["seam_moves"] == pytest.approx(6 / 37)  # three columns out, three back, among 38 words
    assert feature["seam_over"] > 0.9
    assert straight["seam_light"] == pytest.approx(1)
    assert straight["seam_moves"] == straight["seam_off"] == 0


def test_the_seam_has_gaps_where_the_line_has():
    weights = np.eye(22)
    weights[8:13] = np.eye(22)[0]  # five of the 20 words attend only to [CLS]
    feature = named(weights)
    assert feature["seam_gap"] == pytest.approx(5 / 20)
    assert feature["seam_lit"] == pytest.approx(15 / 20)


def test_the_seam_is_the_best_of_all_paths():
    """Compared with an exhaustive search over all paths of a small map."""
    tokens, words = 8, 6
    weights = random_map(tokens, 5)
    light = stack_brightness(stack_maps([weights], [tokens]))[0, 1:-1, 1:-1].double().numpy()
    reach = 2  # a quarter of six words, at least two

    def walk(row: int, offset: int, taken: list[int]) -> tuple[float, list[int]]:
        column = row + offset
        here = light[row, column] if 0 <= column < words else -0.5
        if row == words - 1:
            return here, [*taken, offset]
        ahead = [
            (score - 0.05 * abs(turn), path)
            for turn in (-1, 0, 1)
            if abs(offset + turn) <= reach
            for score, path in [walk(row + 1, offset + turn, [*taken, offset])]
        ]
        best = max(ahead, key=lambda each: each[0])
        return here + best[0], best[1]

    _, path = max((walk(0, offset, []) for offset in range(-reach, reach + 1)), key=lambda each: each[0])
    value = [light[i, i + o] if 0 <= i + o < words else 0.0 for i, o in enumerate(path)]
    feature = named(weights)
    assert feature["seam_light"] == pytest.approx(np.mean(value), abs=1e-5)
    assert feature["seam_half"] == pytest.approx(np.median(value), abs=1e-5)
    assert feature["seam_moves"] == pytest.approx(np.abs(np.diff(path)).mean(), abs=1e-6)
    assert feature["seam_off"] == pytest.approx(np.abs(path).mean() / words, abs=1e-6)


def test_rows_that_give_words_nothing_neither_follow_nor_peak():
    """Half of the rows attend only to [CLS]. The others attend along the diagonal, so their centres lie on a line."""
    tokens = 24
    weights = np.eye(tokens)
    weights[1::2] = np.eye(tokens)[0]
    feature = named(weights)
    assert feature["follow_light"] == feature["slope_light"] == pytest.approx(1)
    assert feature["peak_near"] == feature["ridge1_top"] == pytest.approx(0.5, abs=0.05)
    assert feature["seam_top"] == pytest.approx(0.5, abs=0.05)


def test_quantiles_are_numpys():
    rng = np.random.default_rng(0)
    table, over = rng.random((5, 9)).astype(np.float32), rng.random((5, 9)) < 0.6
    over[4] = False
    shares = (0.25, 0.5)
    for share, quantile in zip(
        shares, quantiles(torch.from_numpy(table), torch.from_numpy(over), *shares), strict=True
    ):
        expected = [np.quantile(row[here], share) for row, here in zip(table[:4], over[:4], strict=True)]
        assert quantile.tolist() == pytest.approx([*expected, 0])


@pytest.mark.parametrize("tokens", [1, 3, 7, 20])
def test_bands_are_numpys_diagonals(tokens):
    maps = torch.rand(2, tokens, tokens)
    for weights, diagonals in zip(maps.numpy(), bands(maps).numpy(), strict=True):
        for offset in range(-BAND_DIAGONALS, BAND_DIAGONALS + 1):
            expected = [weights[i, i + offset] if 0 <= i + offset < tokens else 0 for i in range(tokens)]
            np.testing.assert_array_equal(diagonals[BAND_DIAGONALS + offset], expected)


def test_sums_of_diagonals_are_numpys_traces():
    """Sums are by the text of rows and columns, and do not depend on earlier contents of the buffer."""
    maps = torch.rand(3, 9, 9)
    texts = both_texts(MapStack(maps, torch.tensor([9, 8, 9]), torch.tensor([5, 4, 9]))).float()
    room = Sheared(3, 9, maps.device)
    room.sums(torch.rand(3, 9, 9), texts, texts)
    traces = room.sums(maps, texts, texts).numpy()
    for weights, marks, sums in zip(maps.numpy(), texts.numpy(), traces, strict=True):
        for rows in (0, 1):
            for columns in (0, 1):
                part = weights * marks[rows][:, None] * marks[columns]
                expected = [np.trace(part, offset) for offset in range(-8, 9)]
                np.testing.assert_allclose(sums[rows, columns], expected, rtol=1e-5)


@given(st.integers(2, 30), st.integers(0, 1000))
@settings(max_examples=15, deadline=None)
def test_brightness_is_that_of_displayed_maps(tokens, seed):
    weights = random_map(tokens, seed).astype(np.float32)
    ours = stack_brightness(stack_maps([weights, random_map(31, seed)], [tokens, 31]))[0, :tokens, :tokens].numpy()
    np.testing.assert_allclose(ours, cell_brightness(weights), atol=1e-3)


@given(st.lists(st.tuples(st.integers(1, 24), st.integers(0, 9)), min_size=1, max_size=6), st.integers(1, 9))
@settings(max_examples=15, deadline=None)
def test_padding_and_company_change_no_feature(sizes, wider):
    """A map has the same features alone, in a batch with any other maps, and with more padding."""
    maps = [random_map(tokens, seed) for tokens, seed in sizes]
    edges = [1 + seed % len(weights) for weights, (_, seed) in zip(maps, sizes, strict=True)]
    stack = stack_maps(maps, edges)
    alone = torch.cat([features(stack_maps([weights], [edge])) for weights, edge in zip(maps, edges, strict=True)])
    torch.testing.assert_close(features(stack), alone, rtol=1e-4, atol=1e-4)
    padded = torch.nn.functional.pad(stack.maps, (0, wider, 0, wider))
    torch.testing.assert_close(features(MapStack(padded, stack.lengths, stack.boundary)), alone, rtol=1e-4, atol=1e-4)
    assert torch.isfinite(alone).all()


@pytest.mark.parametrize("cells", [1, 500])
def test_how_many_maps_are_read_together_changes_no_feature(monkeypatch, cells):
    """Maps are processed one or a few at a time; each batch is cropped to its longest map."""
    sizes = [22, 3, 9, 1, 15, 9, 2, 30, 12]
    stack = stack_maps([random_map(tokens, tokens) for tokens in sizes], [1 + tokens // 2 for tokens in sizes])
    whole = features(stack)
    monkeypatch.setattr(reductions, "BATCH_CELLS", cells)
    monkeypatch.setattr(reductions, "DIAGONAL_BATCH_CELLS", cells)
    torch.testing.assert_close(features(stack), whole, rtol=1e-5, atol=1e-5)


def test_stacks_are_cut_to_the_longest_map_of_each_part():
    sizes = [2, 2, 3, 5, 5]
    stack = stack_maps([random_map(tokens, 1) for tokens in sizes], sizes)
    parts = list(stack.cut(50))
    assert [(part.start, part.stop) for part, _ in parts] == [(0, 3), (3, 5)]
    for part, short in parts:
        longest = sizes[part.stop - 1]
        assert short.lengths.tolist() == short.boundary.tolist() == sizes[part]
        assert short.maps.equal(stack.maps[part, :longest, :longest])
        assert not stack.maps[part, longest:].any()
    assert [part.stop - part.start for part, _ in stack.cut(1)] == [1] * 5  # at least one map per part
    assert list(stack_maps([], []).cut(50)) == []


def test_no_maps_have_no_features():
    assert features(stack_maps([], [])).shape == (0, len(feature_names()))
