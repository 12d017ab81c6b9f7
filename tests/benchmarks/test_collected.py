"""pytest collects every claim, so that none can be left out."""

import re

import pytest
from faults import PROJECT, run

from bertsecrets.claims.loading import cases

OTHER = """
import pytest

@pytest.mark.parametrize("case", [1])
def test_other(case):
    assert case == 1
"""


@pytest.mark.parametrize(
    "where",
    [["benchmarks"], pytest.param(["--pyargs", "bertsecrets.benchmarks"], marks=pytest.mark.slow)],
    ids=["checkout", "installed"],
)
def test_every_claim_is_collected_on_each_of_its_tasks(where, tmp_path):
    words = ["pytest", *where, "--collect-only", "-q", "-p", "no:cacheprovider"]
    done = run(words, tmp_path, cwd=PROJECT if where == ["benchmarks"] else tmp_path)
    assert done.code == 0, done.out + done.err
    collected = re.findall(r"::test_claim\[([^\]]+)\]$", done.out, re.M)
    assert sorted(collected) == sorted(str(case) for case in cases() if case.claim.by_default)
    assert len(collected) == len(set(collected)) > 200
    assert "left out" not in done.out


def test_a_test_elsewhere_may_have_an_argument_named_case(tmp_path):
    (tmp_path / "test_other.py").write_text(OTHER)
    words = ["pytest", tmp_path, "-p", "bertsecrets.benchmarks.plugin", "-p", "no:cacheprovider"]
    done = run(words, tmp_path, cwd=tmp_path)
    assert (done.code, "1 passed" in done.out) == (0, True), done.out + done.err


def test_benchmarks_without_pytest_benchmark_are_refused_in_one_line(tmp_path):
    done = run(["pytest", "benchmarks", "--collect-only", "-p", "no:benchmark"], tmp_path, cwd=PROJECT)
    assert done.code == 2
    assert "the benchmarks need the plugin pytest-benchmark: leave out -p no:benchmark" in done.out + done.err
    assert "Traceback" not in done.out + done.err
