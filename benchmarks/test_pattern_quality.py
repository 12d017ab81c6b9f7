"""K19 section 4.1: how well a classifier tells the classes of attention maps apart, on heads it has not seen."""

from bertsecrets.report.text import check

MEASURE = "pattern-quality"


def test_pattern_quality(case, judged):
    """The claim holds of the suite's classifier; a failure shows claim, band and observation side by side."""
    check(judged(case))
