"""K19 section 4.2: the paper's example of a frame-semantic relation."""

from bertsecrets.report.text import check

MEASURE = "example-sentence"


def test_example_sentence(case, judged):
    """The claim holds of this model on this task; a failure shows claim, band and observation side by side."""
    check(judged(case))
