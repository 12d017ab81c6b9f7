"""Two short examples that test whether an architecture can be measured at all."""

from collections.abc import Iterable

import numpy as np
import torch

from bertsecrets.errors import NotApplicableError
from bertsecrets.models.attention import Maps, Pass
from bertsecrets.models.encoding import Batch, Encoded, tokenize
from bertsecrets.models.opening import OpenModel

FIRST = ("A few words.", "He was becoming agitated, and she asked him to wait for a while.")
SECOND = ("They are few.", "No.")
SEES_NOTHING_LATER = "its tokens do not attend to later ones"


class Ahead:
    """Observer of one model: the largest weight of a token for a later one."""

    pairs = False
    most = 0.0

    def update(self, batch: Batch, layer: int, maps: Maps, other: Maps | None) -> None:
        """See one layer of one batch."""
        self.most = max(self.most, float(torch.triu(maps, 1).max()))

    def compute(self) -> tuple[dict[str, np.ndarray], dict[str, np.ndarray]]:
        """Return nothing: what was seen is in `most`."""
        return {}, {}


def probe_inputs(model: OpenModel) -> Encoded:
    """Return two examples of different lengths, so that one of them is padded."""
    return tokenize(model.tokenizer, FIRST, SECOND, model.fit(64))[0]


def check_attention(model: OpenModel) -> bool:
    """Return whether tokens attend to later ones, after a check that the maps are those that the model computes with.

    Raises:
        UserError: they cannot be read, or are not.
    """
    ahead = Ahead()
    Pass(model).feed(probe_inputs(model), [ahead])
    return ahead.most > 0


def check_present(model: OpenModel, tokens: Iterable[int | None], name: str) -> None:
    """Check that one of the tokens occurs in a model's inputs.

    Args:
        name: of the tokens, for the message.

    Raises:
        NotApplicableError: none does.
    """
    here = {token for ids in probe_inputs(model).input_ids for token in ids}
    if not here & {*tokens}:
        raise NotApplicableError(f"its tokenizer puts no {name} into its inputs")
