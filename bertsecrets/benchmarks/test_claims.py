"""One benchmark per claim and task."""

from bertsecrets.benchmarks import check_started
from bertsecrets.report.text import assert_holds

pytest_generate_tests = check_started


def test_claim(judged):
    """The claim holds for this model on this task. A failure shows the claim, the band and the observed value."""
    assert_holds(judged())
