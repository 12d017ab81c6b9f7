"""No claim can be left out: what is implemented is what pytest collects."""

import os
import re
import subprocess
import sys
from pathlib import Path

import pytest

from bertsecrets.claims.schema import cases

ROOT = Path(__file__).parents[2]
ENVIRONMENT = {name: value for name, value in os.environ.items() if not name.startswith("PYTEST_")}


@pytest.mark.parametrize(
    "where", [["benchmarks"], ["--pyargs", "bertsecrets.benchmarks"]], ids=["checkout", "installed"]
)
def test_every_implemented_claim_is_collected_on_each_of_its_tasks(where, tmp_path):
    done = subprocess.run(
        [sys.executable, "-m", "pytest", *where, "--collect-only", "-q", "-p", "no:cacheprovider"],
        cwd=ROOT if where == ["benchmarks"] else tmp_path,
        env={**ENVIRONMENT, "PYTHONPATH": str(ROOT)},
        capture_output=True,
        text=True,
        check=False,
    )
    assert done.returncode == 0, done.stdout + done.stderr
    collected = re.findall(r"::test_claim\[([^\]]+)\]$", done.stdout, re.M)
    assert sorted(collected) == sorted(str(case) for case in cases() if not case.claim.on_request)
    assert len(collected) == len(set(collected)) > 200
