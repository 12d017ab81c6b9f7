"""K19 section 4.1, figures 1 and 2: which classes of attention maps there are, and how many of each."""

from bertsecrets.report.text import check

MEASURE = "patterns"


def test_attention_patterns(case, judged):
    """The claim holds of this model on this task; a failure shows claim, band and observation side by side."""
    check(judged(case))
