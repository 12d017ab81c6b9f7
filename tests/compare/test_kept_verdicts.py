"""Verdicts in the store: each kept whole, read back by claim and model, the last shown by `explain` and `claims`."""

import errno
import json
import os
import re
from dataclasses import replace

import pytest
from calls import started
from measurements import judged, of_id, scored

from bertsecrets.claims.schema import Case, Known
from bertsecrets.cli.main import main
from bertsecrets.errors import UserError
from bertsecrets.report.terminal import claim_table, task_grid, verdict_table
from bertsecrets.report.text import (
    kept_in_words,
    last_ones,
    status,
    verdict_row,
    width_in_words,
)
from bertsecrets.store import verdicts as store
from bertsecrets.store.files import guarded_writes, signed


@pytest.fixture
def verdict():
    """A fine-tuned model that beats the untrained one on 80 of 100 examples by 60 points."""
    pair = [scored([1] * 80 + [0] * 20, [1] * 100), scored([1] * 20 + [0] * 80, [1] * 100)]
    return judged(of_id("D2-rte"), *pair)


def keep_verdict(root, verdict, model):
    return store.keep_verdict(root, verdict.as_json(), model)


def read_verdicts(root, claim, model=None):
    return store.read_verdicts(root, {str(case): case.task for case in claim.cases}, model)


def read_history(root, claim):
    return store.read_history(root, {str(case): case.task for case in claim.cases})


def without_digest(data):
    return {name: value for name, value in data.items() if name != "sha256"}


def test_a_verdict_is_kept_under_claim_task_and_model(tmp_path, verdict):
    path = keep_verdict(tmp_path, verdict, "some/where/tiny-bert")
    assert path.parents[1] == tmp_path / "history"
    assert re.fullmatch("D2-rte-tiny-bert-[0-9a-f]{6}", path.parent.name)
    data = json.loads(path.read_text())
    assert (data["verdict"], data["observed"], data["model"]) == ("reproduced", 60.0, "some/where/tiny-bert")


def test_every_verdict_is_kept_and_the_last_is_shown(tmp_path, verdict):
    for observed in (60.0, 61.0, 60.0):
        keep_verdict(tmp_path, replace(verdict, observed=observed), "one")
    ((first, second, third),) = read_history(tmp_path, verdict.case.claim)
    assert [data["observed"] for data in (first, second, third)] == [60.0, 61.0, 60.0]
    assert read_verdicts(tmp_path, verdict.case.claim) == [third]


def test_a_verdict_given_again_only_counts(tmp_path, verdict):
    path = keep_verdict(tmp_path, verdict, "one")
    kept = json.loads(path.read_text())
    path.write_text(json.dumps(signed({**without_digest(kept), "made": "2026-11-02T00:00:00Z"})))
    again = replace(verdict, measurements=tuple(replace(one, reused=True) for one in verdict.measurements))
    assert keep_verdict(tmp_path, again, "one") == path
    ((data,),) = read_history(tmp_path, verdict.case.claim)
    assert (data["made"], data["times"]) == ("2026-11-02T00:00:00Z", 2)
    assert data["last"] == kept["last"] or data["last"] > kept["last"]
    assert "2026-11-02" not in kept_in_words(data)  # `explain` shows when it was given last
    assert store.keep_verdict(tmp_path, verdict.as_json(), "one", facts={"commit": "abc"}) != path


def test_a_negligible_effect_of_an_earlier_version_is_read_as_a_deviation(tmp_path, verdict):
    path = keep_verdict(tmp_path, verdict, "one")
    old = without_digest(json.loads(path.read_text()))
    path.write_text(json.dumps(signed({**old, "verdict": "negligible"})))
    assert [data["verdict"] for data in read_verdicts(tmp_path, verdict.case.claim)] == ["deviates"]


def test_a_last_verdict_of_an_earlier_version_is_the_first_of_its_series(tmp_path, verdict):
    path = keep_verdict(tmp_path, verdict, "one")
    old = without_digest(json.loads(path.read_text()))
    old = {name: value for name, value in old.items() if name not in ("times", "last")}
    (tmp_path / "verdicts").mkdir()
    earlier = tmp_path / "verdicts" / f"{path.parent.name}.json"
    earlier.write_text(json.dumps(signed({**old, "observed": 50.0})))
    ((first, second),) = read_history(tmp_path, verdict.case.claim)
    assert (first["observed"], second["observed"]) == (50.0, 60.0)
    path.unlink()
    assert [data["observed"] for data in read_verdicts(tmp_path, verdict.case.claim)] == [50.0]
    assert keep_verdict(tmp_path, replace(verdict, observed=50.0), "one").parents[1].name == "history"


def test_a_damaged_last_verdict_hides_none_before_it(tmp_path, verdict):
    keep_verdict(tmp_path, verdict, "one")
    keep_verdict(tmp_path, replace(verdict, observed=61.0), "one").write_text("{")
    assert [data["observed"] for data in read_verdicts(tmp_path, verdict.case.claim)] == [60.0]


def test_processes_that_give_verdicts_at_once_lose_none(tmp_path, verdict):
    data = {**verdict.as_json(), "task": "rte"}
    code = f"""
    from pathlib import Path
    from bertsecrets.store.verdicts import keep_verdict
    for number in range(10):
        keep_verdict(Path({str(tmp_path)!r}), {data!r} | {{"observed": 1.0 + (number > 4)}}, "one")
    """
    for process in [started(code) for _ in range(3)]:
        assert process.communicate(timeout=120)[1] == ""
    ((*kept,),) = read_history(tmp_path, verdict.case.claim)
    assert sum(data["times"] for data in kept) == 30


def test_verdicts_are_read_by_claim_variant_and_model(tmp_path, verdict):
    paths = [keep_verdict(tmp_path, verdict, model) for model in ("one", "two")]
    claim = verdict.case.claim
    assert [data["model"] for data in read_verdicts(tmp_path, claim)] == ["one", "two"]
    assert [data["model"] for data in read_verdicts(tmp_path, claim, "two")] == ["two"]
    assert read_verdicts(tmp_path, of_id("D2-all-mean").claim) == []
    assert read_verdicts(tmp_path / "none", claim) == []
    paths[0].write_text("{")
    assert [data["model"] for data in read_verdicts(tmp_path, claim)] == ["two"]


def test_verdicts_on_two_models_of_one_last_name_stand_side_by_side(tmp_path, verdict, monkeypatch):
    monkeypatch.chdir(tmp_path)
    for name in ("expA", "expB"):
        (tmp_path / name / "model").mkdir(parents=True)
    paths = {keep_verdict(tmp_path, verdict, f"{name}/model") for name in ("expA", "expB")}
    assert len(paths) == len(read_verdicts(tmp_path, verdict.case.claim)) == 2
    assert keep_verdict(tmp_path, verdict, str(tmp_path / "expA" / "model")) in paths  # the same model


def test_a_limited_run_never_replaces_the_full_verdict(tmp_path, verdict, capsys):
    limited = replace(verdict, outcome="deviates")
    full = [keep_verdict(tmp_path, verdict, "one"), keep_verdict(tmp_path, verdict, "two")]
    assert store.keep_verdict(tmp_path, limited.as_json(), "one", limited=True) not in full
    shown = [(data["model"], data["verdict"], data["limited"]) for data in read_verdicts(tmp_path, verdict.case.claim)]
    assert shown == [("one", "reproduced", False), ("two", "reproduced", False), ("one", "deviates", True)]
    assert main(["explain", "D2", "--store", str(tmp_path)]) == 0
    lines = [line for line in capsys.readouterr().out.splitlines() if "last verdict" in line]
    assert [line.partition(":")[0].strip() for line in lines] == [
        *("last verdict", "last verdict"),
        "last verdict of a limited run",
    ]
    counted = last_ones(read_verdicts(tmp_path, verdict.case.claim))
    assert counted == "last verdicts: 2 reproduced, 1 deviates (limited run)"


def test_a_verdict_that_was_changed_is_not_shown(tmp_path, verdict):
    path = keep_verdict(tmp_path, verdict, "one")
    path.write_text(path.read_text().replace("60.0", "61.0"))
    assert read_verdicts(tmp_path, verdict.case.claim) == []


@pytest.mark.parametrize("number", [errno.EROFS, errno.EACCES])
def test_a_store_that_is_read_only_costs_a_warning_and_no_verdict(tmp_path, verdict, monkeypatch, number):
    def refuse(path, data):
        with guarded_writes(path):
            raise OSError(number, os.strerror(number), str(path))

    monkeypatch.setattr(store, "write_json", refuse)
    with pytest.warns(store.NotKeptWarning, match=r"history cannot be written, so verdicts are not kept$"):
        keep_verdict(tmp_path, verdict, "one")


def test_a_full_disk_is_an_error_all_the_same(tmp_path, verdict, monkeypatch):
    def refuse(path, data):
        with guarded_writes(path):
            raise OSError(errno.ENOSPC, "full", str(path))

    monkeypatch.setattr(store, "write_json", refuse)
    with pytest.raises(UserError, match="no space left"):
        keep_verdict(tmp_path, verdict, "one")


def test_a_kept_verdict_in_a_line(tmp_path, verdict):
    keep_verdict(tmp_path, verdict, "one")
    (data,) = read_verdicts(tmp_path, verdict.case.claim)
    line = kept_in_words(data)
    assert line.startswith("one on RTE, 20")
    assert "seeds 1: reproduced, observed 60.0 [" in line
    assert line.endswith("lies beyond the limit")  # what is decided needs no more seeds


def test_explain_and_claims_show_the_last_verdicts(tmp_path, verdict, capsys):
    keep_verdict(tmp_path, verdict, "one")
    assert main(["explain", "D2", "--store", str(tmp_path)]) == 0
    assert "last verdict: one on RTE" in capsys.readouterr().out
    assert main(["claims", "--store", str(tmp_path)]) == 0
    assert "last verdicts: 1" in capsys.readouterr().out


def test_explain_says_where_a_bands_width_comes_from():
    # 2.776 * 2.77 + .05 = 7.7
    assert width_in_words(of_id("D1-rte-pretrained"), 0.95) == (
        "[56.9, 72.3] with many seeds, wider with few: 64.6 +- a spread of 2.77 (P20, five seeds) and 0.05 rounding"
    )
    assert width_in_words(of_id("B5-all-l7h6"), 0.95) == "[0.865, 0.875]: 0.87 +- 0.005 rounding"
    assert width_in_words(of_id("G5-qnli"), 0.95).startswith(
        "a prediction interval from the spread of the measured seeds"
    )
    assert width_in_words(of_id("G1-rte"), 0.95).startswith("> 0, an order")


def test_a_band_that_holds_nearly_everything_is_not_shown(capsys):
    assert width_in_words(of_id("D1-mrpc-untrained-f1"), 0.95) == "not decidable"
    verdict = judged(of_id("D1-qqp-untrained-f1"), scored([1, 0] * 50, [1] * 100, "qqp"))
    assert (verdict.outcome, verdict.power) == ("inconclusive", "")
    assert verdict.reason.startswith("not decidable: ")
    assert verdict_row(verdict)[4] == "not decidable"
    assert main(["explain", "D1"]) == 0
    assert "-112.8" not in capsys.readouterr().out


def test_what_is_on_record_of_a_claim():
    claim = of_id("D2-rte").claim
    seen = (
        Known(model="m", task="rte", evidence="seen in ten runs", status="reproduces"),
        Known(model="m", task="mrpc", evidence="seen in ten runs"),
    )
    known = claim.model_copy(update={"known": seen})
    assert status(claim) == "unknown"
    assert status(known) == "reproduces: m on RTE; deviates: m on MRPC"
    assert Case(known, "mrpc").known_deviation("m") is not None
    assert Case(known, "rte").known_deviation("m") is None  # what reproduces is not expected to fail
    assert "reproduces: m on RTE" in " ".join(claim_table([known]).split())


def test_a_published_constant_answer_is_marked():
    case = of_id("D1-rte-untrained")
    verdict = judged(case, scored([1] * 53 + [0] * 47, [1] * 100))
    assert verdict_row(verdict)[3] == "52.7 points (a constant answer)"
    assert verdict.as_json()["published_constant_answer"] is True
    assert "(a constant answer)" not in verdict_row(judged(of_id("D1-rte-pretrained"), scored([1], [1])))[3]


def test_several_tasks_stand_side_by_side():
    right, wrong = [1] * 100, [0] * 100
    tuned, plain = (scored(said, right, name) for said, name in ((right, "rte"), (wrong, "rte")))
    other = [scored(said, right, "sst2") for said in (wrong, right)]
    verdicts = [judged(of_id("D2-rte"), tuned, plain), judged(of_id("D2-sst2"), *other)]
    grid = task_grid(verdicts).splitlines()
    assert grid[0].split() == ["id", "SST-2", "RTE"]
    assert grid[2].split() == ["D2", "✗", "-100.0", "✓", "100.0"]
    assert grid[-1] == "✓ reproduced, ✗ deviates"
    assert "\n".join(grid) in verdict_table(verdicts)
    assert all(len(line) <= 80 for line in grid)
    assert task_grid(verdicts[:1]) == ""  # one task has its table
