"""K19 section 4.6, figure 9: what switching off each layer does to the score."""

from bertsecrets.report.text import check

MEASURE = "layer-ablation"


def test_layer_ablation(case, judged):
    """The claim holds of this model on this task; a failure shows claim, band and observation side by side."""
    check(judged(case))
