"""Which worker of pytest-xdist a process is."""

import pytest


def worker(config: pytest.Config) -> tuple[int, int]:
    """Return which worker of pytest-xdist this is, from 0, and of how many; the only one where there are none."""
    given = getattr(config, "workerinput", None)
    return (int(given["workerid"].removeprefix("gw")), given["workercount"]) if given else (0, 1)
