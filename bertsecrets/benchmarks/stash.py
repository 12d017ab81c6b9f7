"""What the parts of the pytest plugin keep in pytest's configuration."""

from typing import TYPE_CHECKING

import pytest

from bertsecrets.claims.verdict import Verdict
from bertsecrets.options import RunOptions

if TYPE_CHECKING:
    from bertsecrets.jobs.plan import Prepared
    from bertsecrets.judging import SeedBudget

VERDICTS = pytest.StashKey[list[Verdict]]()
OPTIONS = pytest.StashKey[RunOptions]()
PREPARED: pytest.StashKey["Prepared"] = pytest.StashKey()
BUDGET: pytest.StashKey["SeedBudget"] = pytest.StashKey()
ENDED = pytest.StashKey[tuple[str, int]]()  # why a worker of pytest-xdist can judge nothing, and the exit code for it
