"""P20's results as data, and claims that refer to them instead of repeating the numbers."""

import math

import pytest
from measurements import made_up

from bertsecrets.claims.loading import cases, find_case, load_claims
from bertsecrets.errors import UserError
from bertsecrets.patterns.shares import reader_spread, shipped_reader_shares
from bertsecrets.report.explanation import claim_lines
from bertsecrets.report.text import band_text
from bertsecrets.texts.published import p20, p20_score, p20_shares
from bertsecrets.texts.tasks import TASKS

# Typed next to table 1 before P20's results were a data file: mean and standard deviation over five seeds, in points.
TYPED = {
    ("mrpc", "accuracy"): (83.92, 0.77), ("mrpc", "f1"): (88.68, 0.60), ("stsb", "pearson"): (88.65, 0.44),
    ("sst2", "accuracy"): (92.57, 0.30), ("qqp", "accuracy"): (90.92, 0.20), ("qqp", "f1"): (87.83, 0.26),
    ("rte", "accuracy"): (63.25, 2.77), ("qnli", "accuracy"): (91.53, 0.11), ("mnli", "accuracy"): (84.48, 0.19),
}  # fmt: skip
REFERRING = """
- id: D2
  source: K19
  statement: s
  measure: scores
  quantity: score-difference
  against: untrained
  expect: {kind: above}
  seeds_of: [P20, D1-untrained]
  tasks: {rte: {published: 11.9}}
- id: D1
  variant: untrained
  source: K19
  statement: s
  measure: scores
  quantity: score
  expect: {kind: above}
  tasks: {rte: {published: 52.7, rounding: 0.05, seed_std: 2.7, seed_source: ours}, qnli: {}}
"""


def figure(name: str, task: str):
    return find_case(name, task).figure


def loaded(tmp_path, text):
    (tmp_path / "D.yaml").write_text(text, encoding="utf-8")
    return load_claims(tmp_path)


# ---------------------------------------------------------------------- the data


def test_p20_has_no_score_that_it_did_not_report():
    assert p20_score("rte", "f1") is None
    assert p20_score("all", "accuracy") is None


def test_p20s_shares_of_patterns_are_those_of_all_heads():
    for name in TASKS:
        assert sum(p20_shares(name).values()) == pytest.approx(100, abs=0.25)


def test_p20s_surviving_heads_are_of_twelve_layers_and_heads_on_each_seed():
    for name in TASKS:
        by_seed = p20()["surviving_heads"][name]
        assert list(by_seed) == [str(seed) for seed in p20()["seeds"]]
        for grid in by_seed.values():
            assert [len(row) for row in grid] == [12] * 12
            assert set("".join(grid)) == {"0", "1"}
    # CLAIMS.md gives the range over seeds
    left = [sum(map(int, "".join(grid))) for grid in p20()["surviving_heads"]["rte"].values()]
    assert (min(left), max(left)) == (18, 74)


# ---------------------------------------------------------------------- references


def test_spreads_and_second_sources_are_those_that_were_typed():
    for (task, metric), (mean, std) in TYPED.items():
        own = figure("D1-pretrained-f1" if metric == "f1" else "D1-pretrained", task)
        assert own.seed_std == pytest.approx(std, abs=0.006)
        assert (own.seed_degrees, own.seed_source) == (4, "P20, five seeds")
        assert own.second_value == pytest.approx(mean, abs=0.006)
        assert own.second == f"P20, five seeds: {mean:.2f} +- {std:.2f}"


@pytest.mark.parametrize(
    ("task", "typed"),
    {"mrpc": 18.4, "stsb": 7.0, "sst2": 0.97, "qqp": 13.2, "rte": 3.87, "qnli": 0.55, "mnli": 1.81}.items(),
)
def test_the_spread_of_a_gap_is_that_of_both_sides(task, typed):
    assert figure("D2", task).seed_std == pytest.approx(typed, abs=0.02)


def test_the_spread_of_a_mean_over_tasks_is_made_of_theirs():
    assert figure("D2-mean", "all").seed_std == pytest.approx(3.4, abs=0.05)
    assert figure("D2-mean-f1", "all").seed_std == pytest.approx(7.1, abs=0.05)
    of_tasks = [figure("D2", task).seed_std for task in TASKS]
    assert figure("D2-mean", "all").seed_std == pytest.approx(math.hypot(*of_tasks) / 7)


def test_degrees_of_freedom_are_welchs_between_sources_and_not_added_within_one(tmp_path):
    first, _ = loaded(tmp_path, REFERRING)
    variances = 2.772**2, 2.7**2
    expected = sum(variances) ** 2 / sum(variance**2 / 4 for variance in variances)
    assert first.tasks["rte"].seed_degrees == pytest.approx(expected)
    first, _ = loaded(tmp_path, REFERRING.replace("D1-untrained]", "P20]"))
    assert first.tasks["rte"].seed_std == pytest.approx(2.772 * math.sqrt(2))
    assert first.tasks["rte"].seed_degrees == 4


@pytest.mark.parametrize(
    ("change", "message"),
    [
        ("D1-untrained]|D1-untraned]", "line 2: D2: unknown reference 'D1-untraned': did you mean D1-untrained"),
        ("P20, |P21, ", "line 2: D2: unknown reference 'P21': did you mean P20"),
        ("{rte: {published: 11.9}}|{mnli: {published: 46.9}}", "D1-untrained is not about mnli"),
        ("{rte: {published: 11.9}}|{qnli: {published: 31.6}}", "D1-untrained has no seed_std on qnli"),
        ("11.9}|11.9, seed_std: 1, seed_source: x}", "task rte states seed_std itself, but the claim also takes"),
        ("  seeds_of|  published: D1-untrained\n  seeds_of", "task rte states published itself"),
        ("  seeds_of|  second: P19\n  seeds_of", "line 9: second: "),
        (
            "measure: scores\n  quantity: score-difference|measure: special-tokens\n  quantity: depth-gap",
            "P20 has no depth-gap on rte",
        ),
    ],
)  # fmt: skip
def test_a_wrong_reference_is_one_line_with_its_place(tmp_path, change, message):
    old, new = change.split("|")
    assert old in REFERRING
    with pytest.raises(UserError) as error:
        loaded(tmp_path, REFERRING.replace(old, new, 1))
    assert message in str(error.value)
    assert str(error.value).startswith(f"{tmp_path / 'D.yaml'}, line ")
    assert "\n" not in str(error.value)


def test_a_figure_may_be_the_difference_of_two(tmp_path):
    text = REFERRING.replace("{published: 11.9}", "{}").replace(
        "  seeds_of", "  published: P20 - D1-untrained\n  seeds_of"
    )
    first, _ = loaded(tmp_path, text)
    assert (first.tasks["rte"].published, first.tasks["rte"].rounding) == pytest.approx((63.249 - 52.7, 0.05))


def test_a_reader_of_explain_sees_the_numbers():
    (claim,) = (candidate for candidate in load_claims() if candidate.name == "D1-pretrained")
    (line,) = (line for line in claim_lines(claim.cases, 0.95) if line.startswith("  RTE"))
    assert "2.77 (P20, five seeds)" in line
    assert "P20, five seeds: 63.25 +- 2.77" in line


# ---------------------------------------------------------------------- doubt


def test_the_doubt_of_a_figure_takes_the_place_of_one_more_run():
    of_figure = {"published": 60.0, "doubt": 3.0, "doubt_degrees": 4, "doubt_source": "two sources"}
    case = made_up(figure=of_figure)
    assert case.band(0.95) == pytest.approx((60 - 2.776 * 3, 60 + 2.776 * 3), abs=0.01)
    assert "from a standard error of 3 (two sources)" in band_text(case, 0.95)


def test_the_doubt_of_shares_is_how_far_readers_differ():
    """The doubt is for one more reader's share, compared with the mean of two readers.

    The labels of these two readers train the classifier.
    """
    shares = shipped_reader_shares("special")
    for case in [each for each in cases() if each.claim.measure == "patterns"]:
        assert case.figure.cited_spread is None
    for claim, classes in (("A2", ["heterogeneous"]), ("A2-with-block", ["heterogeneous", "block"])):
        std, degrees = reader_spread(shares, classes)
        doubt = figure(claim, "rte").doubt
        assert (doubt, figure(claim, "rte").doubt_degrees) == (pytest.approx(100 * std * math.sqrt(1.5)), degrees)


def test_models_trained_from_random_weights_do_not_use_the_spread_of_pretrained_ones():
    for case in [each for each in cases() if each.claim.measure == "scores"]:
        if "random" in (case.claim.initialisation, case.claim.against):
            assert case.figure.cited_spread is None, case
