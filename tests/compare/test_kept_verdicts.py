"""Stored verdicts: none is lost, and they are read by claim and model, and shown by `explain` and `claims`."""

import errno
import json
import os
import re
from dataclasses import replace

import pytest
from calls import run, started
from measurements import of_id
from verdicts import beats

from bertsecrets.errors import UserError
from bertsecrets.report.text import kept_line, last_ones
from bertsecrets.store import verdicts as store
from bertsecrets.store.files import guarded_writes, signed


@pytest.fixture
def verdict():
    """A verdict on a fine-tuned model with an accuracy of 80 %, 30 points above a constant answer."""
    return beats("D2-rte", 80, 20)


@pytest.fixture
def keep(tmp_path, verdict):
    return lambda model="one", limited=False, **changed: store.keep_verdict(
        tmp_path, replace(verdict, **changed).as_json(), model, limited=limited
    )


@pytest.fixture
def kept(tmp_path, verdict):
    return lambda model=None: store.read_verdicts(tmp_path, verdict.case.claim.case_ids, model)


@pytest.fixture
def history(tmp_path, verdict):
    return lambda: [
        [verdict.observed for verdict in series] for series in store.read_history(tmp_path, verdict.case.claim.case_ids)
    ]


def rewritten(path, **changed):
    """Rewrite a verdict with changed fields and a new digest. None removes a field that earlier versions lacked."""
    changed["sha256"] = None
    data = {name: value for name, value in json.loads(path.read_text()).items() if name not in changed}
    path.write_text(json.dumps(signed(data | {name: value for name, value in changed.items() if value is not None})))
    return path


def test_a_verdict_is_kept_under_claim_task_and_model(tmp_path, keep):
    path = keep("some/where/tiny-bert")
    assert path.parents[1] == tmp_path / "history"
    assert re.fullmatch("D2-rte-tiny-bert-[0-9a-f]{6}", path.parent.name)
    data = json.loads(path.read_text())
    assert (data["verdict"], data["observed"], data["model"]) == (
        "reproduced",
        pytest.approx(30.0),
        "some/where/tiny-bert",
    )


def test_every_verdict_is_kept_and_the_last_is_shown(keep, kept, history):
    for observed in (60.0, 61.0, 60.0):
        keep(observed=observed)
    assert history() == [[60.0, 61.0, 60.0]]
    assert [verdict.observed for verdict in kept()] == [60.0]


def test_a_repeated_verdict_is_counted(tmp_path, verdict, keep, kept):
    path = rewritten(keep(), made="2026-11-02T00:00:00Z")
    again = tuple(replace(measurement, reused=True) for measurement in verdict.measurements)
    assert keep(measurements=again) == path
    (repeated,) = kept()
    assert (repeated.made, repeated.times) == ("2026-11-02T00:00:00Z", 2)
    assert repeated.last > repeated.made
    assert "2026-11-02" not in kept_line(repeated)  # `explain` shows the date of the last repetition
    assert store.keep_verdict(tmp_path, verdict.as_json(), "one", facts={"made": "", "commit": "abc"}) != path


def test_verdicts_of_format_version_1_are_read(keep, kept):
    rewritten(keep(), times=None, last=None, verdict="negligible")
    assert [(verdict.times, verdict.verdict) for verdict in kept()] == [(1, "deviates")]


def test_damaged_and_changed_verdicts_are_skipped(keep, history):
    keep(observed=60.0)
    keep(observed=61.0).write_text("{")
    path = keep(observed=62.0)
    path.write_text(path.read_text().replace("62.0", "63.0"))
    assert history() == [[60.0]]


def test_processes_that_keep_verdicts_at_once_lose_none(tmp_path, verdict, history):
    code = f"""
    from pathlib import Path
    from bertsecrets.store.verdicts import keep_verdict
    for number in range(10):
        keep_verdict(Path({str(tmp_path)!r}), {verdict.as_json()!r} | {{"observed": 1.0 + (number > 4)}}, "one")
    """
    for process in [started(code) for _ in range(3)]:
        assert process.communicate(timeout=120)[1] == ""
    ((*verdicts,),) = store.read_history(tmp_path, verdict.case.claim.case_ids)
    assert sum(verdict.times for verdict in verdicts) == 30


def test_verdicts_are_read_by_claim_and_model(tmp_path, keep, kept):
    for model in ("one", "two"):
        keep(model)
    assert [verdict.model for verdict in kept()] == ["one", "two"]
    assert [verdict.model for verdict in kept("two")] == ["two"]
    assert store.read_verdicts(tmp_path, of_id("D2-all-mean").claim.case_ids) == []
    assert store.read_verdicts(tmp_path / "none", of_id("D2-rte").claim.case_ids) == []


def test_models_of_the_same_name_have_their_own_series(tmp_path, keep, kept, monkeypatch):
    monkeypatch.chdir(tmp_path)
    for name in ("expA", "expB"):
        (tmp_path / name / "model").mkdir(parents=True)
    paths = {keep(f"{name}/model") for name in ("expA", "expB")}
    assert len(paths) == len(kept()) == 2
    assert keep(str(tmp_path / "expA" / "model")) in paths


def test_a_limited_run_does_not_replace_the_full_verdict(tmp_path, keep, kept, capsys):
    for model in ("one", "two"):
        keep(model)
    keep(limited=True, outcome="deviates")
    shown = [(verdict.model, verdict.verdict, verdict.limited) for verdict in kept()]
    assert shown == [("one", "reproduced", False), ("two", "reproduced", False), ("one", "deviates", True)]
    assert last_ones(kept()) == "last verdicts: 2 reproduced, 1 deviates (limited run)"
    lines = [line for line in run(capsys, "explain", "D2", "--store", tmp_path).splitlines() if "last verdict" in line]
    assert [line.partition(":")[0].strip() for line in lines] == [
        *("last verdict", "last verdict"),
        "last verdict of a limited run",
    ]
    assert "last verdicts: 2" in run(capsys, "claims", "--store", tmp_path)


@pytest.mark.parametrize("number", [errno.EROFS, errno.EACCES, errno.ENOSPC])
def test_a_read_only_store_costs_a_warning_and_a_full_disk_is_an_error(keep, monkeypatch, number):
    def refuse(path, data):
        with guarded_writes(path):
            raise OSError(number, os.strerror(number), str(path))

    monkeypatch.setattr(store, "write_json", refuse)
    if number == errno.ENOSPC:
        with pytest.raises(UserError, match="no space left"):
            keep()
    else:
        with pytest.warns(store.NotKeptWarning, match="verdicts are not saved$"):
            keep()
