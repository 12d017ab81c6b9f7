"""A grid of head sets survives interruptions, and several processes can share it without computing a set twice."""

import json
import os
import shutil
import signal
from pathlib import Path

import numpy as np
import pytest
from faults import LIMIT, PROCESSES
from hypothesis import given
from hypothesis import strategies as st

from bertsecrets.ablation import grid as grids
from bertsecrets.ablation.grid import Grid
from bertsecrets.ablation.head_sets import BASELINE, head_pairs, label, nested, parse_sets, single_heads, whole_layers
from bertsecrets.errors import UserError

SETS = [BASELINE, *single_heads(3, 4)]

EXPECTED = [[0, 0], *([1, place] for place in range(12))]


def work(folder: Path, log: Path, dies_at: int | None = None, together=None) -> None:
    """Fill a grid, and log the computed sets with one line per portion.

    Args:
        dies_at: Number of logged portions after which the process kills itself.
        together: Barrier to wait for in the first portion.
    """

    def compute(sets, progress):
        computed = log.read_text().splitlines()
        if len(computed) == dies_at:
            os.kill(os.getpid(), signal.SIGKILL)
        if together is not None and not computed:
            together.wait(LIMIT)  # until each process has a portion
        log.write_text("".join(f"{line}\n" for line in [*computed, " ".join(map(label, sets))]))
        return np.array([[len(heads), sum(layer * 4 + head for layer, head in heads)] for heads in sets])

    log.touch()
    grid = Grid.open(folder, SETS, layers=3, size=2, about={"model": "none"})
    assert grid.fill(compute).tolist() == EXPECTED


def start(*arguments):
    process = PROCESSES.Process(target=work, args=arguments)
    process.start()
    return process


def test_a_killed_run_resumes_at_the_next_unfinished_portion(tmp_path):
    first, second = tmp_path / "first", tmp_path / "second"
    killed = start(tmp_path / "grid", first, 3)
    killed.join(LIMIT)
    assert killed.exitcode == -signal.SIGKILL
    work(tmp_path / "grid", second)
    done, rest = (log.read_text().split() for log in (first, second))
    assert len(done) == 6
    assert sorted(done + rest) == sorted(map(label, SETS))


def test_two_processes_share_a_grid_and_compute_no_set_twice(tmp_path):
    logs, barrier = [tmp_path / "first", tmp_path / "second"], PROCESSES.Barrier(2)
    workers = [start(tmp_path / "grid", log, None, barrier) for log in logs]
    for worker in workers:
        worker.join(LIMIT)
    assert [worker.exitcode for worker in workers] == [0, 0]
    shares = [log.read_text().split() for log in logs]
    assert all(shares)
    assert sorted(shares[0] + shares[1]) == sorted(map(label, SETS))


def count(sets, progress):
    """Return the number of heads in each set."""
    progress(float(len(sets)))
    return np.array([len(heads) for heads in sets], dtype=np.int8)


def noting(computed):
    """Return a function like `count` that also appends the sets to `computed`."""

    def compute(sets, progress):
        computed.extend(sets)
        return count(sets, progress)

    return compute


@pytest.mark.parametrize("name", ["grid.json", "portion-0001/predicted.npz", "portion-0001/manifest.json"])
def test_a_change_of_any_byte_of_a_grid_is_detected_and_recomputed(tmp_path, name):
    sets = [*nested([(2, 0), (0, 1), (1, 3)]), *whole_layers(3, 4)]
    seen: list[float] = []
    right = Grid.open(tmp_path, sets, layers=3, size=2, about={"a": 1}).fill(count, seen.append).tolist()
    assert (right, sum(seen)) == ([1, 2, 3, 4, 4, 4], 6)
    file = tmp_path / name
    whole = file.read_bytes()
    for place in range(0, len(whole), 1 + len(whole) // 40):
        file.write_bytes(whole[:place] + bytes([whole[place] ^ 0x21]) + whole[place + 1 :])
        computed: list = []
        assert Grid.open(tmp_path, sets, layers=3, size=2, about={"a": 1}).fill(noting(computed)).tolist() == right
        assert len(computed) == (0 if name == "grid.json" else 2)
    assert json.loads((tmp_path / "grid.json").read_text())["about"] == {"a": 1}


def test_a_portion_of_another_grid_is_ignored(tmp_path):
    for about in ("one", "two"):
        Grid.open(tmp_path / about, SETS, layers=3, size=2, about={"weights": about}).fill(count)
    shutil.rmtree(tmp_path / "one" / "portion-0000")
    (tmp_path / "two" / "portion-0000").rename(tmp_path / "one" / "portion-0000")
    computed: list = []
    Grid.open(tmp_path / "one", SETS, layers=3, size=2, about={"weights": "one"}).fill(noting(computed))
    assert len(computed) == 2


def test_a_portion_that_another_process_finishes_just_before_it_is_locked_is_read(tmp_path, monkeypatch):
    lock = grids.held_now

    def late(path):
        monkeypatch.setattr(grids, "held_now", lock)
        Grid.open(tmp_path, SETS, layers=3, size=2, about={}).fill(count)  # as if in another process
        return lock(path)

    monkeypatch.setattr(grids, "held_now", late)
    computed: list = []
    counts = Grid.open(tmp_path, SETS, layers=3, size=2, about={}).fill(noting(computed))
    assert counts.tolist() == [len(heads) for heads in SETS]
    assert computed == []


def test_a_folder_with_another_grid_is_refused(tmp_path):
    Grid.open(tmp_path, SETS, layers=3, size=2, about={"weights": "one"})
    for sets, about in ((SETS, {"weights": "other"}), (SETS[1:], {"weights": "one"})):
        with pytest.raises(UserError, match="contains a different grid"):
            Grid.open(tmp_path, sets, layers=3, size=2, about=about)


@given(st.lists(st.frozensets(st.tuples(st.integers(0, 11), st.integers(0, 11)), min_size=1), min_size=1))
def test_labels_can_be_parsed(sets):
    assert parse_sets(" ".join(map(label, sets)), 12, 12) == list(dict.fromkeys(sets))


def test_pairs_and_nested_sets_have_a_short_form():
    assert parse_sets("pairs:2", 3, 4) == head_pairs(1, 4)
    assert parse_sets("nested:3.4,1,3.4", 3, 2 * 2) == nested([(2, 3), (0, 0), (0, 1), (0, 2), (0, 3)])
    assert len(parse_sets("1.1 pairs:1 1.1+1.2", 2, 3)) == 4


@pytest.mark.parametrize(
    "text",
    ["", "0.1", "13", "1.13", "1.", "first", "1.2,3.4", "-1.2", "pairs:", "pairs:13", "pairs:1.2", "nested:", "all:1"],
)
def test_text_that_names_no_head_is_refused(text):
    with pytest.raises(UserError, match="layer"):
        parse_sets(text, 12, 12)


def test_the_usual_sets_have_the_expected_sizes():
    assert len(single_heads(12, 12)) == len(set(single_heads(12, 12))) == 144
    assert [len(heads) for heads in whole_layers(2, 5)] == [5, 5]
    assert len(head_pairs(3, 12)) == 66
    assert nested([(1, 0), (0, 2)]) == [frozenset({(1, 0)}), frozenset({(1, 0), (0, 2)})]
