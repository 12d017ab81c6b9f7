"""Runs on record: what seeds gave before, as the spread over seeds of what is judged next."""

import json
from dataclasses import replace

import numpy as np
import pytest
from measurements import SETTINGS, made_up, needed, of_id, scored

from bertsecrets.claims import record as on_record
from bertsecrets.claims.judge import judge
from bertsecrets.claims.record import record, spread_beforehand
from bertsecrets.errors import UserError


@pytest.fixture
def evidence(tmp_path, monkeypatch):
    """The folder of runs on record, empty."""
    folder = tmp_path / "evidence"
    folder.mkdir()
    monkeypatch.setattr(on_record, "project_path", lambda _: tmp_path)
    on_record.runs_on_record.cache_clear()
    yield folder
    on_record.runs_on_record.cache_clear()


def written(folder, *runs, model="m"):
    """Write runs of a model: (claim, task, values by seed)."""
    rows = [
        {"claim": claim, "task": task, "seeds": list(range(1, len(values) + 1)), "values": [[v] for v in values]}
        for claim, task, values in runs
    ]
    (folder / f"seeds-{model}.json").write_text(json.dumps({"model": model, "precision": "float32", "runs": rows}))


def by_seeds(*right, rows=400):
    """The verdict of as many seeds, each with so many right answers."""
    case = made_up(kind="above", value=50.0, figure={})
    found = [scored([1] * n + [0] * (rows - n), [1] * rows) for n in right]
    seeded = [replace(one, subject=replace(one.subject, seed=seed)) for seed, one in enumerate(found, start=1)]
    return judge(case, [needed("score", one) for one in seeded], SETTINGS)


def test_what_seeds_gave_is_written_and_read_again(evidence):
    data = record("m", [by_seeds(240, 244, 236)])
    (runs,) = data["runs"]
    assert 0.9 < runs.pop("alike") <= 1  # all seeds are right on the same rows but for a few
    values = [[60.0], [61.0], [59.0]]
    assert runs == {"claim": "D9", "task": "rte", "reading": "", "seeds": [1, 2, 3], "values": values, "extreme": None}
    (evidence / "seeds-m.json").write_text(json.dumps(data))
    on_record.runs_on_record.cache_clear()
    assert spread_beforehand(made_up(kind="above", figure={}), "another").std > 0


def test_one_seed_puts_nothing_on_record(evidence):
    with pytest.raises(UserError, match="no verdict rests on several seeds"):
        record("m", [by_seeds(240)])


def test_runs_on_record_make_one_seed_decide(evidence):
    assert by_seeds(260).outcome == "inconclusive"  # 65 %, of this checkpoint alone
    written(evidence, ("D9", "mrpc", [60.0, 61.0, 59.0, 60.5, 59.5]), ("D9", "stsb", [70.0, 71.0, 69.0]))
    on_record.runs_on_record.cache_clear()
    assert by_seeds(260).outcome == "reproduced"
    known = spread_beforehand(made_up(kind="above", figure={}), "another")
    assert known.source == "runs on record (m on mrpc, stsb)"


def test_a_models_own_runs_on_the_task_are_not_counted_twice(evidence):
    written(evidence, ("D9", "rte", [60.0, 61.0, 59.0]))
    case = made_up(kind="above", figure={})
    assert spread_beforehand(case, "m") is None
    assert spread_beforehand(case, "another").std == pytest.approx(1.0, rel=0.4)


def test_a_cited_spread_goes_before_runs_on_record(evidence):
    written(evidence, ("D9", "mrpc", [60.0, 61.0, 59.0]))
    cited = made_up(figure={"published": 60.0, "seed_std": 7.0, "seed_source": "five seeds"})
    assert spread_beforehand(cited, "m").std == 7.0


def test_claims_of_the_same_quantity_stand_in_for_one_without_runs(evidence):
    written(evidence, ("F2", "mrpc", [0.1, 0.12, 0.08]), ("C2", "rte", [50.0, 60.0, 70.0]))
    assert spread_beforehand(of_id("F2-rte-not"), "m").std == pytest.approx(0.02, rel=0.4)
    assert spread_beforehand(of_id("C1-rte"), "m") is None


def test_of_several_parts_the_one_that_decides_gives_the_spread():
    values = ((0.0, 3.0), (2.0, 3.5))
    least = on_record.Runs(claim="E2", task="rte", seeds=(1, 2), values=values, extreme="least")
    most = on_record.Runs(claim="C1", task="rte", seeds=(1, 2), values=values, extreme="most")
    assert (least.std, most.std) == pytest.approx((np.sqrt(2.0), 0.5 / np.sqrt(2)))


def test_a_damaged_record_is_one_clear_line(evidence):
    (evidence / "seeds-m.json").write_text('{"model": "m"}')
    on_record.runs_on_record.cache_clear()
    with pytest.raises(UserError, match=r"seeds-m\.json: .*write it anew with bertsecrets report --record"):
        spread_beforehand(made_up(kind="above", figure={}), "m")
