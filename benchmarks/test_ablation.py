"""K19 section 4.6, figure 8: what switching off each head does to the score."""

from bertsecrets.report.text import check

MEASURE = "head-ablation"


def test_ablation(case, judged):
    """The claim holds of this model on this task; a failure shows claim, band and observation side by side."""
    check(judged(case))
