"""Every implemented claim of the paper on each of its tasks, as one benchmark each."""


def test_claim(case, judged):
    """The claim holds of this model on this task; a failure shows claim, band and observation side by side."""
    judged(case)
