"""Every implemented claim of the paper on each of its tasks, as one benchmark each."""

from bertsecrets.report.text import check


def test_claim(case, judged):
    """The claim holds of this model on this task; a failure shows claim, band and observation side by side."""
    check(judged(case))
