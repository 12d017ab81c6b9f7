"""The sweep over families: each measure equals a naive reference, or is refused in one line."""

import pytest
from sweep import MEASURES, PAGE, TRAININGS, exact, failures, run
from zoo import FURTHER

EVERYTHING = {*TRAININGS, *MEASURES}
EXACT = {  # by unusual family: the training runs and measures that match the reference exactly
    "openai-gpt": EVERYTHING,  # its blocks return lists
    "gemma2": EVERYTHING,  # its logits are capped, which SDPA does not support
    "mixtral": EVERYTHING,  # its experts are stacked in one tensor
    "longformer": {*TRAININGS, "scores", "anisotropy", "weight-pruning"},  # its classifier adds global attention
    "roformer-rotary-value": EVERYTHING,
    "big_bird-sparse": EVERYTHING,
    "perceiver": {"pretrained", "scores", "weight-pruning"},
    "falcon-alibi": {*TRAININGS},  # eager attention and SDPA differ
    **dict.fromkeys(("canine", "reformer", "tapas", "nystromformer", "xmod-no-language", "gte-segments"), ()),
}


@pytest.mark.slow
@pytest.mark.parametrize("family", EXACT)
def test_a_family_is_measured_exactly_or_refused(family):
    outcomes = run([family])
    assert not failures(outcomes)
    assert {name for name, (outcome, _) in outcomes[family].items() if outcome == "exact"} == {*EXACT[family]}
    if family in FURTHER:
        (row,) = (
            line for line in PAGE.read_text("utf-8").splitlines() if line.startswith(f"| {exact(outcomes[family])} |")
        )
        assert family in row.split("|")[2].strip().split(", ")
