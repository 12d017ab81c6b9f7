"""Records return the bits that were saved, in fewer bytes, and damage is reported in one line."""

import zipfile
from dataclasses import replace

import numpy as np
import pytest
from hypothesis import given
from hypothesis import strategies as st
from hypothesis.extra import numpy as arrays
from measurements import measured

from bertsecrets.errors import UserError
from bertsecrets.store.measurements import save_to_folder
from bertsecrets.store.records import RecordedRun, SavedFolder, decode, encode, read_record, write_record
from bertsecrets.types import Subject

RUN = RecordedRun(model="m", seeds="auto", cases=["D1-rte-untrained"])
RNG = np.random.default_rng(1)
NUMBERS = st.sampled_from(["f2", "f4", "f8", "i1", "i2", "i4", "i8", "u1", "u8", "b1"]).flatmap(
    lambda name: arrays.arrays(name, arrays.array_shapes(min_dims=0, max_dims=3, min_side=0, max_side=20))
)
SAMPLES = {
    "few": np.tile([0.0, np.nan, 1.0], 50).astype("f4").reshape(50, 3),
    "bits": RNG.integers(0, 2, (300, 6)),
    "weights": RNG.random((50, 3, 4), dtype="f4").astype("f8"),
    "same": RNG.random((50, 3, 4), dtype="f4"),
}


@given(NUMBERS)
def test_samples_are_decoded_to_the_bit(array):
    decoded = decode(*encode(array))
    assert (decoded.dtype, decoded.shape, decoded.tobytes()) == (array.dtype, array.shape, array.tobytes())


@pytest.mark.parametrize(("name", "most"), [("few", 12 + 150), ("bits", 2 + 225), ("weights", 4 * 600)])
def test_samples_take_no_more_bytes_than_their_distinct_values_need(name, most):
    assert len(encode(SAMPLES[name])[1]) <= most


def scores(seed=1, model="m", **samples):
    made = measured("scores", {"accuracy": np.nan, "by_layer": np.arange(3.0)}, samples or SAMPLES)
    return replace(made, subject=Subject(model, "rte", "untrained", seed))


def test_a_record_returns_its_measurements_and_holds_equal_samples_once(tmp_path):
    noise = RNG.random(5000, dtype="f4")
    alone, both = (write_record(tmp_path / str(n), RUN, [scores(seed, x=noise) for seed in range(n)]) for n in (1, 2))
    assert both.stat().st_size < alone.stat().st_size + 1000
    run, (first, second) = read_record(both)
    assert (run, first.subject.seed, second.subject.seed) == (RUN, 0, 1)
    assert first.as_json()["values"]["by_layer"] == [0.0, 1.0, 2.0]
    assert first.values["accuracy"] is None  # as in all JSON
    assert second.samples["x"].tobytes() == noise.tobytes()


def test_records_and_single_measurements_in_a_folder_are_read_together(tmp_path):
    write_record(tmp_path / "a", RUN, [scores(1)])
    write_record(tmp_path / "b", RUN.model_copy(update={"cases": ["D2-rte"]}), [scores(1), scores(2)])
    write_record(tmp_path / ".hidden", RUN, [scores(9)])
    save_to_folder(scores(3), tmp_path)
    saved = SavedFolder.read(tmp_path)
    assert saved.shelf.seeds() == {"m": [1, 2, 3]}
    assert saved.run_of(None).cases == ["D1-rte-untrained", "D2-rte"]
    assert saved.run_of("x") is None
    write_record(tmp_path / "c", RUN.model_copy(update={"model": "n"}), [scores(1, "n")])
    with pytest.raises(UserError, match=r"the recorded runs used several models \(m, n\): specify the model"):
        SavedFolder.read(tmp_path).run_of(None)
    assert SavedFolder.read(tmp_path).run_of("n").model == "n"
    write_record(tmp_path / "c", RUN.model_copy(update={"seeds": 5}), [scores(1)])
    with pytest.raises(UserError, match=r'runs have different seeds \("auto", 5\): specify the seeds to judge'):
        SavedFolder.read(tmp_path).run_of("m")
    assert SavedFolder.read(tmp_path).run_of("m", 3) is not None
    write_record(tmp_path / "d", RUN, [scores(1, x=np.arange(9))])
    with pytest.raises(UserError, match=r"contain different results for scores of m-rte-untrained-s1: judge them"):
        SavedFolder.read(tmp_path)


def test_damage_is_reported_in_one_line(tmp_path):
    path = write_record(tmp_path, RUN, [scores()])
    whole, damaged = path.read_bytes(), 0
    for place in range(0, len(whole), 7):
        path.write_bytes(whole[:place] + bytes([whole[place] ^ 0x55]) + whole[place + 1 :])
        try:
            read_record(path)
        except UserError as error:
            assert str(error).startswith(f"{path} is damaged or from another version (")  # noqa: PT017
            damaged += 1
    assert damaged > len(whole) / 14  # the rest are dates and the like
    for size in range(0, len(whole), 50):
        path.write_bytes(whole[:size])
        with pytest.raises(UserError, match="is damaged or from another version"):
            read_record(path)


def test_a_changed_sample_is_noticed_even_if_it_can_be_decoded(tmp_path):
    path = write_record(tmp_path, RUN, [scores(right=np.arange(40) % 2)])
    with zipfile.ZipFile(path) as archive:
        members = {name: archive.read(name) for name in archive.namelist()}
    with zipfile.ZipFile(path, "w") as archive:
        for name, data in members.items():
            archive.writestr(name, data if name == "record.json" else data[:-1] + bytes([data[-1] ^ 1]))
    with pytest.raises(UserError, match=r"is damaged or from another version \([0-9a-f]{16} has been changed\)"):
        read_record(path)


@pytest.mark.parametrize(
    ("written", "edited"),
    [
        ('"layouts": {', '"layouts": [], "was": {'),
        ('"training": null', '"training": {"steps": 3, "seconds": "long"}'),
        ('"training": null', '"training": {"steps": 3}'),
        ('"made_by": {}', '"made_by": {"software": ["torch"]}'),
        ('"checkpoint_made_by": null', '"checkpoint_made_by": {"device": ["CPU"]}'),
    ],
)
def test_a_malformed_description_is_reported_in_one_line(tmp_path, written, edited):
    path = write_record(tmp_path, RUN, [scores()])
    with zipfile.ZipFile(path) as archive:
        members = {name: archive.read(name) for name in archive.namelist()}
    assert written.encode() in members["record.json"]
    with zipfile.ZipFile(path, "w") as archive:
        for name, data in members.items():
            archive.writestr(name, data.replace(written.encode(), edited.encode()))
    with pytest.raises(UserError, match="is damaged or from another version"):
        read_record(path)
