"""K19 section 4.3, figure 5: which layers and heads change in fine-tuning."""

from bertsecrets.report.text import check

MEASURE = "attention-change"


def test_attention_change(case, judged):
    """The claim holds of this model on this task; a failure shows claim, band and observation side by side."""
    check(judged(case))
