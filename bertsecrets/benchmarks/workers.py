"""pytest-xdist workers: the index of a process, and the transfer of results to the controller."""

import pickle  # nosec B403
from collections.abc import Sequence
from dataclasses import replace
from typing import Any

import pytest

from bertsecrets.claims.verdict import Verdict


def is_worker(config: pytest.Config) -> bool:
    """Return whether this process is a pytest-xdist worker."""
    return hasattr(config, "workerinput")


def worker(config: pytest.Config) -> tuple[int, int]:
    """Return the index of this pytest-xdist worker and the number of workers, or (0, 1) without pytest-xdist."""
    given = getattr(config, "workerinput", None)
    return (int(given["workerid"].removeprefix("gw")), given["workercount"]) if given else (0, 1)


def packed_results(verdicts: list[Verdict], benchmarks: Sequence[Any]) -> bytes:
    """Serialize a worker's verdicts (without samples) and pytest-benchmark entries. `unpacked` restores them."""
    small = [
        replace(verdict, measurements=tuple(replace(each, samples={}) for each in verdict.measurements), error=None)
        for verdict in verdicts
    ]
    return pickle.dumps((small, [benchmark.as_dict() for benchmark in benchmarks]))


def unpacked(packed: bytes) -> tuple[list[Verdict], list["RemoteBenchmark"]]:
    """Return the verdicts and benchmarks of a worker of this run."""
    verdicts, entries = pickle.loads(packed)  # nosec B301  # written by another process of this run
    return verdicts, [RemoteBenchmark(entry) for entry in entries]


class RemoteBenchmark:
    """A benchmark from a pytest-xdist worker, with pytest-benchmark's interface."""

    has_error = False

    def __init__(self, entry: dict[str, Any]):
        self.entry = entry
        self.fullname = entry["fullname"]

    def as_dict(
        self, include_data: bool = True, flat: bool = False, stats: bool = True, cprofile: Any = None
    ) -> dict[str, Any]:
        """Return the benchmark as data."""
        numbers = {name: value for name, value in self.entry["stats"].items() if include_data or name != "data"}
        rest = {name: value for name, value in self.entry.items() if name != "stats"}
        return rest | ((numbers if flat else {"stats": numbers}) if stats else {})
