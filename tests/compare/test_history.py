"""Steps in the history of a claim: found where the intervals do not explain a change, and told with what differed."""

from dataclasses import replace
from pathlib import Path

from hypothesis import given
from hypothesis import strategies as st
from measurements import of_id, scored

from bertsecrets.claims import quantities
from bertsecrets.code import imports
from bertsecrets.compare.history import JUDGING, differing, evidence, steps
from bertsecrets.settings import load_settings
from bertsecrets.types import Provenance

NEW, OTHER = {"a": "2026-11-02T10:00:00Z"}, {"b": "2026-11-09T10:00:00Z"}


def kept(observed, interval=None, measurements=None, **more):
    """A verdict as the store has it."""
    return {
        "observed": observed, "interval": interval, "measurements": measurements or {}, "seeds": [1],
        "software": {}, "circumstances": {}, "band": None, **more,
    }  # fmt: skip


def test_a_change_that_both_intervals_explain_is_no_step():
    assert steps([kept(0.0, (-3, 3)), kept(4.9, (0.9, 9), OTHER)]) == []  # 3 and 4 make 5
    (step,) = steps([kept(0.0, (-3, 3)), kept(5.1, (1.1, 9), OTHER)])
    assert (step.change, step.noise, step.same) == (5.1, 5.0, False)


def test_only_the_ends_that_face_each_other_count():
    wide_above, wide_below = kept(0.0, (-1, 50)), kept(9.0, (-40, 10))
    assert steps([kept(0.0, (-50, 1)), kept(9.0, (8, 60))]) != []
    assert steps([wide_above, wide_below]) == []
    assert steps([wide_below, kept(20.0, (19, 21))]) != []  # downward doubt does not explain a rise


def test_on_the_same_measurements_any_change_is_the_judges():
    (step,) = steps([kept(0.10, (-3, 3), NEW), kept(0.11, (-3, 3), NEW)])
    assert (step.same, step.noise) == (True, 0.0)
    assert steps([kept(0.1 + 0.2, (-3, 3), NEW), kept(0.3, (-3, 3), NEW)]) == []  # rounding
    assert steps([kept(0.10, (-3, 3)), kept(0.11, (-3, 3))]) == []  # of which nothing is known


def test_an_open_interval_explains_everything_and_none_explains_nothing():
    assert steps([kept(0.0, (None, None)), kept(99.0, (98, 100))]) == []
    assert steps([kept(0.87), kept(0.88)]) != []


def test_verdicts_without_a_value_are_passed_over():
    series = [kept(0.0, (-1, 1)), kept(None), kept(5.0, (4, 6))]
    (step,) = steps(series)
    assert (step.before, step.after) == (series[0], series[2])


@given(st.floats(-1e6, 1e6), st.floats(0, 1e3), st.floats(-1e6, 1e6), st.floats(0, 1e3))
def test_a_step_is_one_in_both_directions(first, doubt, second, other):
    before = kept(first, (first - doubt, first + doubt))
    after = kept(second, (second - other, second + other))
    assert len(steps([before, after])) == len(steps([after, before]))


def test_what_differs_is_named_once_and_what_only_one_side_knows_is_not():
    before = kept(
        0.0, commit="a" * 40, software={"bertsecrets": "0.2.0", "numpy": "2.3", "python": "3.11.7"},
        circumstances={"transformers": "5.1", "numpy": "2.3", "weights": "abc", "confidence of the judge": 0.95},
    )  # fmt: skip
    after = kept(
        1.0, commit="a" * 40, modified=True, band=[0, None],
        software={"bertsecrets": "0.3.0", "numpy": "2.4", "python": "3.11.7"},
        circumstances={"transformers": "5.2", "numpy": "2.4", "weights": "abc", "confidence of the judge": 0.9},
    )  # fmt: skip
    assert differing(before, after) == [
        "commit aaaaaaa -> aaaaaaa (modified)", "bertsecrets 0.2.0 -> 0.3.0", "transformers 5.1 -> 5.2",
        "numpy 2.3 -> 2.4", "confidence of the judge 0.95 -> 0.9",
    ]  # fmt: skip
    earlier = {"observed": 0.0, "interval": None, "measurements": {}, "seeds": [1]}
    assert differing(earlier, after) == []


def test_the_judge_at_work_is_told_from_the_code_that_measured():
    before, after = (kept(0.0, software={"numpy": now}, circumstances={"numpy": "2.3"}) for now in ("2.3", "2.4"))
    assert differing(before, after) == ["numpy of the judge 2.3 -> 2.4"]


def test_the_code_of_the_judge_is_that_of_the_quantities_too():
    names = {path.stem for path in Path(quantities.__path__[0]).glob("*.py")} - {"__init__"}
    assert {name.rpartition(".")[2] for name in JUDGING} >= names != set()
    assert "bertsecrets.claims.judge:judge" in imports("bertsecrets.claims.plan")


def test_evidence_names_measurements_data_settings_versions_and_the_claim():
    case, settings = of_id("D2-rte"), load_settings()
    made_by = {"code": "c" * 64, "software": {"torch": "2.12.0"}, "device": "CPU AVX512, 1 thread"}
    provenance = Provenance(made="2026-11-02T10:00:00Z", data_fingerprint="d" * 64, limit=40, made_by=made_by)
    one = replace(
        scored([1, 0], [1, 1]), origin="runs/measurements/scores-m", provenance=provenance, settings={"max_length": 128}
    )
    two = replace(one, provenance=replace(provenance, made_by=made_by | {"device": "NVIDIA H200"}), origin="")
    found = evidence(case, [one, two], settings, {"weights": "e" * 64, "tokenizer": None})
    assert found["measurements"] == {"scores-m": "2026-11-02T10:00:00Z"}
    known = found["circumstances"]
    assert {name: known[name] for name in ("weights", "torch", "limit", "train limit", "max_length of scores")} == {
        "weights": "e" * 12, "torch": "2.12.0", "limit": 40, "train limit": "none", "max_length of scores": 128,
    }  # fmt: skip
    assert known["device of scores"] == ["CPU AVX512, 1 thread", "NVIDIA H200"]
    assert known["data of scores on rte"] == "d" * 12
    assert known["confidence of the judge"] == settings.judge.confidence
    assert "learning_rate of training" not in known  # nothing was trained
    changed = case.claim.model_copy(update={"statement": "Another."})
    other = evidence(replace(case, claim=changed), [one], settings, {})["circumstances"]
    assert other["claim"] != known["claim"]
    assert other["code of the judge"] == known["code of the judge"]
