"""K19 table 1: what fine-tuning and pre-training each bring."""

from bertsecrets.report.text import check

MEASURE = "scores"


def test_scores(case, judged):
    """The claim holds of this model on this task; a failure shows claim, band and observation side by side."""
    check(judged(case))
