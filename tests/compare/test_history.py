"""The history of a claim: moves of the observed value beyond the intervals, and what differed between the runs."""

import json
from dataclasses import replace
from pathlib import Path

import pytest
import yaml
from calls import run, told
from hypothesis import given
from hypothesis import strategies as st
from measurements import judged, of_id, scored

from bertsecrets import __version__
from bertsecrets.claims import quantities
from bertsecrets.cli.main import main
from bertsecrets.compare.history import JUDGING, Move, evidence, moves
from bertsecrets.report.findings import history_findings, seed_ranges
from bertsecrets.settings import load_settings
from bertsecrets.store.code import imports
from bertsecrets.store.verdicts import KeptVerdict, keep_verdict

NEW, OTHER = {"a": "2026-11-02T10:00:00Z"}, {"b": "2026-11-09T10:00:00Z"}
FIRST = KeptVerdict(
    id="E1-rte", task="rte", model="minilm", unit="depth", verdict="deviates", reason="", power="", remarks=[],
    made="2026-11-02T10:00:00Z", last="2026-11-04T10:00:00Z", times=3, commit="abc1234" + "0" * 33, modified=False,
    seeds=[1, 2, 3], observed=-0.062, interval=(-0.07, -0.05), band=(0, None),
    software={"bertsecrets": "0.2.0"}, circumstances={"transformers": "5.1"},
)  # fmt: skip
SECOND = {
    "verdict": "inconclusive", "made": "2026-11-09T10:30:00Z", "times": 1, "commit": "def5678" + "0" * 33,
    "modified": True, "observed": -0.021, "interval": (-0.03, 0.01), "circumstances": {"transformers": "5.2"},
}  # fmt: skip


def kept(observed, interval=None, measurements=None, **more) -> KeptVerdict:
    facts = {"software": {}, "circumstances": {}, "commit": None, "band": None}
    given = {"observed": observed, "interval": interval, "measurements": measurements or {}}
    return FIRST.model_copy(update={**facts, **given, **more})


def differing(before: KeptVerdict, after: KeptVerdict) -> list[str]:
    return list(map(str, Move(before, after).differing))


def test_a_change_that_both_intervals_explain_is_not_a_move():
    assert moves([kept(0.0, (-3, 3)), kept(4.9, (0.9, 9), OTHER)]) == []  # hypot(3, 4) is 5
    assert len(moves([kept(0.0, (-3, 3)), kept(5.1, (1.1, 9), OTHER)])) == 1


def test_only_the_ends_that_face_each_other_count():
    wide_above, wide_below = kept(0.0, (-1, 50)), kept(9.0, (-40, 10))
    assert moves([kept(0.0, (-50, 1)), kept(9.0, (8, 60))]) != []
    assert moves([wide_above, wide_below]) == []
    assert moves([wide_below, kept(20.0, (19, 21))]) != []  # a wide lower side does not explain a rise


def test_on_the_same_measurements_any_change_is_a_move():
    (move,) = moves([kept(0.10, (-3, 3), NEW), kept(0.11, (-3, 3), NEW)])
    assert move.same_measurements
    assert moves([kept(0.1 + 0.2, (-3, 3), NEW), kept(0.3, (-3, 3), NEW)]) == []  # a rounding error
    assert moves([kept(0.10, (-3, 3)), kept(0.11, (-3, 3))]) == []  # the measurements are unknown


def test_an_open_interval_explains_every_change_and_no_interval_explains_none():
    assert moves([kept(0.0, (None, None)), kept(99.0, (98, 100))]) == []
    assert moves([kept(0.87), kept(0.88)]) != []


def test_verdicts_without_a_value_are_skipped():
    series = [kept(0.0, (-1, 1)), kept(None), kept(5.0, (4, 6))]
    (move,) = moves(series)
    assert (move.before, move.after) == (series[0], series[2])


@given(st.floats(-1e6, 1e6), st.floats(0, 1e3), st.floats(-1e6, 1e6), st.floats(0, 1e3))
def test_a_move_is_one_in_both_directions(first, doubt, second, other):
    before = kept(first, (first - doubt, first + doubt))
    after = kept(second, (second - other, second + other))
    assert len(moves([before, after])) == len(moves([after, before]))


def test_each_difference_is_named_once_and_facts_known_on_one_side_only_are_left_out():
    before = kept(
        0.0, commit="a" * 40, software={"bertsecrets": "0.2.0", "numpy": "2.3", "python": "3.11.7"},
        circumstances={"transformers": "5.1", "numpy": "2.3", "weights": "abc", "confidence of the judge": 0.95},
    )  # fmt: skip
    after = kept(
        1.0, commit="a" * 40, modified=True, band=(0, None),
        software={"bertsecrets": "0.3.0", "numpy": "2.4", "python": "3.11.7"},
        circumstances={"transformers": "5.2", "numpy": "2.4", "weights": "abc", "confidence of the judge": 0.9},
    )  # fmt: skip
    assert differing(before, after) == [
        "commit aaaaaaa -> aaaaaaa (modified)", "bertsecrets 0.2.0 -> 0.3.0", "transformers 5.1 -> 5.2",
        "numpy 2.3 -> 2.4", "confidence of the judge 0.95 -> 0.9",
    ]  # fmt: skip
    assert differing(kept(0.0), after) == []
    before, after = (kept(0.0, software={"numpy": now}, circumstances={"numpy": "2.3"}) for now in ("2.3", "2.4"))
    assert differing(before, after) == ["numpy of the judge 2.3 -> 2.4"]


def test_the_code_of_the_judge_includes_that_of_the_quantities():
    names = {path.stem for path in Path(quantities.__path__[0]).glob("*.py")} - {"__init__"}
    assert {name.rpartition(".")[2] for name in JUDGING} >= names != set()
    assert "bertsecrets.claims.judge:judge" in imports("bertsecrets.claims.sequential")


@pytest.mark.usefixtures("quick")
def test_a_verdict_is_stored_with_its_evidence(capsys, shared, quick, tmp_path, monkeypatch):
    room = ("--store", tmp_path / "runs")
    report = list(map(str, ("report", "--task", "rte", "--claim", "D1-pretrained", *shared, *room)))
    for _ in range(2):
        main(report)
    settings = yaml.safe_load(quick.read_text())
    settings["judge"]["confidence"] = 0.9
    (tmp_path / "params.yaml").write_text(yaml.safe_dump(settings))
    monkeypatch.setenv("BERTSECRETS_PARAMS", str(tmp_path / "params.yaml"))
    main(report)
    capsys.readouterr()
    (series,) = json.loads(run(capsys, "history", "D1", "--json", *room))
    first, second = series["verdicts"]
    assert first["times"] == 2
    assert first["software"]["bertsecrets"] == __version__
    assert set(first["circumstances"]) >= {
        *("weights", "tokenizer", "torch", "transformers", "learning_rate of training", "code of scores"),
        *("data of scores on rte", "device of training", "claim", "code of the judge", "limit", "train limit"),
    }
    assert first["measurements"] == second["measurements"] != {}
    assert differing(KeptVerdict(**first), KeptVerdict(**second))[0] == "confidence of the judge 0.95 -> 0.9"


def test_evidence_lists_different_devices_and_changes_with_the_claim():
    case, settings = of_id("D2-rte"), load_settings()
    one = scored([1, 0], [1, 1])
    one, two = (
        replace(one, provenance=replace(one.provenance, made_by={"code": "c" * 64, "device": device}))
        for device in ("CPU AVX512, 1 thread", "NVIDIA H200")
    )
    known = evidence(case, [one, two], settings, {"weights": "e" * 64, "tokenizer": None})["circumstances"]
    assert known["device of scores"] == ["CPU AVX512, 1 thread", "NVIDIA H200"]
    assert (known["weights"], known["train limit"]) == ("e" * 12, "none")
    assert "learning_rate of training" not in known  # nothing was trained
    changed = replace(case, claim=case.claim.model_copy(update={"statement": "Another."}))
    other = evidence(changed, [one], settings, {})["circumstances"]
    assert other["claim"] != known["claim"]
    assert other["code of the judge"] == known["code of the judge"]


# ---------------------------------------------------------------------- the command


def test_a_move_is_marked_in_the_table_and_described_in_a_line():
    title, about, _, header, _, first, second, _, line = history_findings(
        [FIRST, FIRST.model_copy(update=SECOND)]
    ).text().splitlines()  # fmt: skip
    assert (title, about) == ("E1-rte on RTE, minilm", "2 verdicts, in depth")
    assert header.split() == ["date", "commit", "seeds", "observed", "band", "verdict"]
    assert first.endswith("  deviates, 3 times, last 2026-11-04")
    assert second.endswith("  -0.021 [-0.030, 0.010]   > 0   inconclusive, moved")
    assert line == (
        "moved between 2026-11-02 10:00 (abc1234) and 2026-11-09 10:30 (def5678+): -0.062 -> -0.021; "
        "commit abc1234 -> def5678 (modified), transformers 5.1 -> 5.2"
    )
    same = {"measurements": NEW}
    move_line = history_findings([FIRST.model_copy(update=same), FIRST.model_copy(update=SECOND | same)]).lines[-1]
    assert "; same measurements, so the judge has changed; commit " in move_line


def test_a_verdict_without_value_interval_commit_and_band_has_a_row():
    bare = kept(None, seeds=[])
    assert history_findings([bare]).tables[0].rows[0][1:5] == ["-", "-", "-", "-"]


def test_seeds_are_shown_as_ranges():
    assert [seed_ranges(seeds) for seeds in ([], [5], [1, 2], [1, 3, 4, 5, 9])] == ["-", "5", "1-2", "1, 3-5, 9"]


@pytest.fixture
def store(tmp_path):
    """A store with two verdicts on one model, a verdict on it from a limited run, and one on another model."""
    pair = [scored([1] * 80 + [0] * 20, [1] * 100), scored([1] * 20 + [0] * 80, [1] * 100)]
    verdict = judged(of_id("D2-rte"), *pair)
    for observed, commit in ((60.0, "a" * 40), (20.0, "b" * 40)):
        data = replace(verdict, observed=observed, interval=(observed - 5, observed + 5)).as_json()
        keep_verdict(tmp_path, data, "one", facts={"commit": commit, "modified": False})
    keep_verdict(tmp_path, verdict.as_json(), "one", limited=True)
    keep_verdict(tmp_path, verdict.as_json(), "two")
    return tmp_path


@pytest.mark.parametrize("name", ["D2", "d2-rte"])
def test_a_history_is_found_by_every_name_of_a_claim(capsys, store, name):
    said = run(capsys, "history", name, "--store", store)
    assert [line for line in said.splitlines() if line.startswith("D2-rte on RTE")] == [
        "D2-rte on RTE, one",
        "D2-rte on RTE, two",
        "D2-rte on RTE, one, on part of the rows",
    ]
    assert ": 60.0 -> 20.0; commit aaaaaaa -> bbbbbbb" in said


def test_a_history_is_narrowed_to_a_model_and_a_task(capsys, store):
    assert run(capsys, "history", "D2", "--model", "two", "--task", "RTE", "--store", store).count("D2-rte on") == 1
    line = told(capsys, "history", "D2", "--model", "three", "--store", store)
    assert line.endswith(f"no verdict on D2 for three in {store}, which has verdicts for one, two")
    assert "no verdict on D2 on mrpc in" in told(capsys, "history", "D2", "--task", "mrpc", "--store", store)
    assert "unknown task" in told(capsys, "history", "D2", "--task", "nothing", "--store", store)
    assert "unknown claim 'Z9'" in told(capsys, "history", "Z9", "--store", store)
    assert "judge it first" in told(capsys, "history", "C1", "--store", store / "none")


def test_a_history_as_data_has_verdicts_and_moves(capsys, store):
    series = json.loads(run(capsys, "history", "D2", "--model", "one", "--json", "--store", store))
    assert [len(entry["verdicts"]) for entry in series] == [2, 1]
    (move,) = series[0]["moves"]
    assert (move["after"]["observed"], move["differing"]) == (20.0, ["commit aaaaaaa -> bbbbbbb"])
