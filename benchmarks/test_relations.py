"""K19 section 4.5: attention from word to word along a relation."""

from bertsecrets.report.text import check

MEASURE = "relations"


def test_relations(case, judged):
    """The claim holds of this model on this task; a failure shows claim, band and observation side by side."""
    check(judged(case))
