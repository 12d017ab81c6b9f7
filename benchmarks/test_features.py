"""K19 sections 4.4 and 4.5, figures 6 and 7: attention to linguistic features."""

from bertsecrets.report.text import check

MEASURE = "features"


def test_features(case, judged):
    """The claim holds of this model on this task; a failure shows claim, band and observation side by side."""
    check(judged(case))
