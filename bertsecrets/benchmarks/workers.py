"""Workers of pytest-xdist: which one a process is, and how their results reach the controller."""

import pickle  # nosec B403
from collections.abc import Sequence
from dataclasses import replace
from typing import Any

import pytest

from bertsecrets.claims.verdict import Verdict


def worker(config: pytest.Config) -> tuple[int, int]:
    """Return the index of this worker of pytest-xdist and the number of workers; (0, 1) without pytest-xdist."""
    given = getattr(config, "workerinput", None)
    return (int(given["workerid"].removeprefix("gw")), given["workercount"]) if given else (0, 1)


def packed_results(verdicts: list[Verdict], benchmarks: Sequence[Any]) -> bytes:
    """Return a worker's verdicts and pytest-benchmark's entries, for `unpacked` in the controller."""
    return pickle.dumps((_without_samples(verdicts), [benchmark.as_dict() for benchmark in benchmarks]))


def unpacked(packed: bytes) -> tuple[list[Verdict], list["TimedElsewhere"]]:
    """Return the verdicts and benchmarks of a worker of this run."""
    verdicts, entries = pickle.loads(packed)  # nosec B301  # written by a process of this run
    return verdicts, [TimedElsewhere(entry) for entry in entries]


def _without_samples(verdicts: list[Verdict]) -> list[Verdict]:
    """Return verdicts without the samples of their measurements, which the table does not show."""
    return [
        replace(one, measurements=tuple(replace(m, samples={}) for m in one.measurements), error=None)
        for one in verdicts
    ]


class TimedElsewhere:
    """A benchmark of a worker of pytest-xdist, as pytest-benchmark writes its own."""

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
