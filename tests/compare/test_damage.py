"""The drift test detects damage to a pinned model and does not flag retraining. The only simplification: a tiny model.

`benchmarks/damage_study.py` does the same with a real model.
"""

import pytest
from damages import save_peaked, study, write_reviews
from sessions import local_session

from bertsecrets.compare.comparison import compare
from bertsecrets.compare.sides import MeasureOnTask
from bertsecrets.report.findings import drift_message
from bertsecrets.settings import load_settings

pytestmark = pytest.mark.slow

SEEDS, NEW = (1, 2, 3, 4, 5), range(6, 16)
WANTED = [MeasureOnTask(name, "sst2") for name in ("scores", "special-tokens", "attention-change")]
LEARNS = {"epochs": 6, "learning_rate": 3e-3, "batch_size": 8}  # every seed reaches 100 % accuracy
MOST = 2  # false alarms in ten at 5 %; three or more have a probability of 1 %
# Damage that must be detected by these measures, compared with the pin or with the checkpoint before the damage.
NOTICED = {
    "two layers swapped": ("itself", ("special-tokens", "attention-change")),
    "a layer's attention uniform": ("itself", ("special-tokens",)),
    "wrong casing": ("itself", ("scores", "special-tokens", "attention-change")),
    "another seed's classifier": ("the pin", ("scores",)),
    "the padding mask lost": ("the pin", ("scores", "special-tokens", "attention-change")),
}
# Damage that may be too small in this model: measures must detect it, or show changes below the smallest effects.
SMALL = ("one head's values zeroed", "a LayerNorm reset", "weights rounded to 8 bits")


@pytest.fixture(scope="module")
def session(tmp_path_factory):
    """A session with a tiny model and data that it can learn."""
    place = tmp_path_factory.mktemp("damage")
    model, glue = save_peaked(place / "model", factor=4.0), write_reviews(place / "glue", 128, 60)
    settings = load_settings()
    settings = settings.model_copy(update={"finetune": settings.finetune.model_copy(update=LEARNS)})
    return local_session(store=place / "runs", model=model, glue=glue, settings=settings)


@pytest.fixture(scope="module")
def pin(session):
    return study.seeds_side(session, "the pin", WANTED, SEEDS)


@pytest.fixture(scope="module")
def found(session, pin, tmp_path_factory):
    """For each damage, comparisons of the damaged checkpoint with the pin and with the undamaged checkpoint."""
    itself = study.seeds_side(session, "itself", WANTED, [1])
    judge, folder = session.settings.judge, tmp_path_factory.mktemp("damaged")
    damaged = study.damaged_sides(session, WANTED, folder)
    return {name: {base.name: compare(base, side, judge) for base in (pin, itself)} for name, side in damaged}


@pytest.mark.parametrize("damage", NOTICED)
def test_damage_drifts_in_the_measures_that_it_affects(found, damage):
    base, measures = NOTICED[damage]
    drifted = {
        measure.wanted.measure: measure for measure in found[damage][base].measures if measure.outcome == "drift"
    }
    assert set(measures) <= drifted.keys()
    assert all("has drifted" in drift_message(measure) for measure in drifted.values())


@pytest.mark.parametrize("damage", SMALL)
def test_small_damage_is_detected_or_shown_to_be_none(found, damage):
    assert {measure.outcome for measure in found[damage]["itself"].measures} <= {"drift", "same"}


def test_every_damage_is_covered(found):
    assert found.keys() == {*NOTICED, *SMALL}


def test_ten_retrainings_raise_at_most_two_alarms(session, pin):
    new = [study.seeds_side(session, f"seed {seed}", WANTED, [seed]) for seed in NEW]
    alarms = [side.name for side in new if compare(pin, side, session.settings.judge).drifted]
    assert len(alarms) <= MOST, alarms


def test_a_study_without_its_pin_ends_with_one_line(capsys, tmp_path):
    assert study.main([str(tmp_path / "gone.yaml"), "--offline", "--store", str(tmp_path)]) == 2
    assert capsys.readouterr().err.startswith("damage_study: cannot read the pin")
