"""K19 section 4.2: the paper's example of a frame-semantic relation."""

MEASURE = "example-sentence"


def test_example_sentence(case, judged):
    """The claim holds of this model on this task; a failure shows claim, band and observation side by side."""
    judged(case).check()
