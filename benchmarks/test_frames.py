"""K19 section 4.2, figure 3: heads that follow frame-semantic relations."""

from bertsecrets.report.text import check

MEASURE = "frame-heads"


def test_frames(case, judged):
    """The claim holds of this model on this task; a failure shows claim, band and observation side by side."""
    check(judged(case))
