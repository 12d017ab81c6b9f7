"""Every implemented claim of the paper on each of its tasks, as one benchmark each."""

from bertsecrets.report.text import check


def test_claim(judged):
    """The claim holds for this model on this task; a failure shows claim, band and observation."""
    check(judged())
