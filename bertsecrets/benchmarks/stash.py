"""What the parts of the pytest plugin keep in pytest's configuration."""

from typing import TYPE_CHECKING

import pytest

from bertsecrets.claims.verdict import Verdict
from bertsecrets.options import RunOptions

if TYPE_CHECKING:
    from bertsecrets.judging import SeedBudget
    from bertsecrets.session import Session

VERDICTS = pytest.StashKey[list[Verdict]]()
OPTIONS = pytest.StashKey[RunOptions]()
SESSION: pytest.StashKey["Session"] = pytest.StashKey()
BUDGET: pytest.StashKey["SeedBudget"] = pytest.StashKey()
ENDED = pytest.StashKey[tuple[str, int]]()  # why a worker of pytest-xdist can judge nothing, and the exit code for it
