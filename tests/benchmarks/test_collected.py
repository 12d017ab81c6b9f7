"""pytest collects every claim, so that none can be left out."""

import re

import pytest
from faults import pytest_benchmarks

from bertsecrets.claims.loading import cases


@pytest.mark.parametrize("where", ["checkout", "installed"])
def test_every_claim_is_collected_on_each_of_its_tasks(run, where, tmp_path):
    if where == "checkout":
        code, output = pytest_benchmarks("--collect-only", "-q", output=tmp_path)
    else:
        code, output = run("--pyargs", "bertsecrets.benchmarks", "--collect-only", "-q")
    assert code == 0, output
    collected = re.findall(r"::test_claim\[([^\]]+)\]$", output, re.M)
    assert sorted(collected) == sorted(str(case) for case in cases() if case.claim.by_default)
    assert len(collected) == len(set(collected)) > 200
    assert "left out" not in output


def test_a_test_elsewhere_may_have_an_argument_named_case(run, tmp_path):
    text = "import pytest\n\n@pytest.mark.parametrize('case', [1])\ndef test_other(case):\n    assert case == 1\n"
    (tmp_path / "test_other.py").write_text(text)
    code, output = run("-p", "bertsecrets.benchmarks.plugin")
    assert (code, "1 passed" in output) == (0, True), output


def test_benchmarks_without_pytest_benchmark_are_refused_in_one_line(tmp_path):
    code, output = pytest_benchmarks("--collect-only", "-p", "no:benchmark", output=tmp_path)
    assert code == 2
    assert "the benchmarks need the plugin pytest-benchmark: leave out -p no:benchmark" in output
    assert "Traceback" not in output
