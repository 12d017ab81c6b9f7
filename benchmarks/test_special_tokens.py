"""K19 section 4.4, figure 6: attention to [CLS] and [SEP]."""

from bertsecrets.report.text import check

MEASURE = "special-tokens"


def test_special_tokens(case, judged):
    """The claim holds of this model on this task; a failure shows claim, band and observation side by side."""
    check(judged(case))
