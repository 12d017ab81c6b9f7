"""Full disks, file size limits and read-only stores give one-line errors, without partial files or data loss."""

import os
import shutil
import subprocess
from collections.abc import Iterator
from contextlib import contextmanager
from itertools import chain
from pathlib import Path

import pytest
from bench import Bench, different
from faults import NIGHTLY, Fault, contents, half, leftovers

pytestmark = pytest.mark.slow
FEW = ("--limit", "6")


@NIGHTLY
def test_a_file_that_may_not_grow_is_one_line(attack):
    sizes = (3000, 5000, 10_000, 30_000, 60_000, 90_000)
    assert list(chain.from_iterable(attack.problems(Fault(largest=size)) for size in sizes)) == []


@NIGHTLY
def test_a_full_disk_is_one_line_and_the_same_command_succeeds_with_room_again(attack):
    bench = attack.bench
    before, full = bench.folder / attack.name, bench.folder / "full"
    used = sum(path.stat().st_size for path in before.rglob("*") if path.is_file())
    shutil.rmtree(bench.work, ignore_errors=True)
    bench.work.mkdir()
    with mounted(bench.work, "-t", "tmpfs", "-o", f"size={2 * used + 1_000_000}", "tmpfs"):
        shutil.copytree(before, bench.work, dirs_exist_ok=True)
        state = os.statvfs(bench.work)
        (bench.work / "filling").write_bytes(bytes(state.f_bavail * state.f_frsize - 20_000))
        ended = bench.run(attack.command)
        assert ended.refused or ended.code in (0, 1), str(ended)
        (bench.work / "filling").unlink()
        shutil.copytree(bench.work, full)
    bench.work.rmdir()
    full.rename(bench.work)
    assert half(contents(bench.work), attack.before, attack.after) == []
    bench.done(attack.command)
    assert different(contents(bench.work), attack.after) == []
    assert leftovers(bench.work) == []


@contextmanager
def mounted(folder: Path, *what: str) -> Iterator[None]:
    command = ["mount", *what, str(folder)]
    if not shutil.which("mount") or subprocess.run(command, capture_output=True).returncode != 0:
        pytest.skip("only root may mount a disk")
    try:
        yield
    finally:
        subprocess.run(["umount", str(folder)], check=True)


# ---------------------------------------------------------------------- a read-only store


@pytest.fixture(scope="module")
def filled(bench) -> Bench:
    """A bench whose store contains checkpoints, measurements and verdicts, saved as `filled`."""
    bench.begin()
    bench.done(["report", "@subject", *FEW, "--claim", "E1-rte", "--claim", "C3", "--json", "@right.json"])
    bench.keep("filled")
    return bench


READING = {
    "measure": ["measure", "special-tokens", "@subject", *FEW],
    "report": ["report", "@subject", *FEW, "--claim", "E1-rte", "--claim", "C3"],
}


@pytest.mark.parametrize("name", READING)
def test_a_store_that_can_only_be_read_is_read(filled, name):
    filled.put_back("filled")
    expected = filled.done(READING[name]).out
    before = contents(filled.work)
    with mounted(filled.work, "--bind", "-o", "ro", str(filled.work)):
        ended = filled.run(READING[name])
    assert ended.code in (0, 1), str(ended)
    assert ended.out == expected
    assert contents(filled.work) == before


def test_missing_entries_of_such_a_store_are_reported_in_one_line(filled):
    filled.put_back("filled")
    with mounted(filled.work, "--bind", "-o", "ro", str(filled.work)):
        ended = filled.run(["measure", "scores", "@subject"])
    assert ended.refused, str(ended)
