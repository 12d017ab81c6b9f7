"""Attention of each head to [CLS] and [SEP] (K19 section 4.4, figure 6).

The attention received by a token is its column sum divided by the number of rows L. If an input has two [SEP] tokens,
the larger of the two values is used, as in K19. The sum of both values is also stored as a control for claim E2,
because two [SEP] tokens may share the attention that a single [SEP] would receive.
"""

from collections.abc import Iterator

import numpy as np
import torch

from bertsecrets.measures.base import AttentionMeasure, AttentionRun
from bertsecrets.measures.base.figures import Figure, Lines, PaperFigure, Repeats, published_and_measured
from bertsecrets.measures.base.observers import SampleObserver, marked, max_over, received
from bertsecrets.measures.base.probe import check_special_tokens
from bertsecrets.measures.registry import measure
from bertsecrets.models.attention import Maps, Observer
from bertsecrets.models.encoding import Batch
from bertsecrets.models.opening import OpenModel
from bertsecrets.types import Measurement


class SpecialTokenObserver(SampleObserver):
    """Observer of one model. It stores the attention that [CLS] and [SEP] receive, with shape [example, layer, head].

    `ids` maps `cls` and `sep` to token ids, or to None if the tokenizer lacks the token. NaN is stored for inputs
    without the token.
    """

    def __init__(self, examples: int, layers: int, heads: int, ids: dict[str, int | None]):
        super().__init__(examples, layers, heads, ("cls", "sep", "sep_sum", "brightest"), counts=False)
        self.ids = ids

    def update(self, batch: Batch, layer: int, maps: Maps, other: Maps | None) -> None:
        columns, marks = received(maps, batch), marked(batch, self.ids)
        cls, sep = marks["cls"], marks["sep"]
        for kind, largest in zip(("cls", "sep"), max_over(columns, torch.stack([cls, sep])), strict=True):
            self.record(kind, batch, layer, largest)
        summed = (columns * sep[:, None]).sum(-1).masked_fill(~sep.any(-1, keepdim=True), torch.nan)
        self.record("sep_sum", batch, layer, summed)
        if any(token is not None for token in self.ids.values()):
            brightest = columns.masked_fill(~batch.mask[:, None], -1).argmax(-1)
            on_special = (cls | sep)[:, None].expand_as(columns).gather(-1, brightest[..., None])[..., 0]
            on_special = torch.where(columns.isnan().any(-1), torch.nan, on_special.float())
            self.record("brightest", batch, layer, on_special)


@measure("special-tokens", title="attention to [CLS] and [SEP]", source="K19 4.4")
class SpecialTokens(AttentionMeasure):
    """Values of shape [layer, head]: `cls` and `sep`, the attention received by [CLS] and [SEP]; `sep_sum`, the sum of
    the attention received by all [SEP] tokens; and `brightest`, the fraction of inputs in which the most attended token
    is [CLS] or [SEP].

    Samples: the values for each input, under the same names and of shape [example, layer, head].
    """

    curves = ("cls", "sep")
    paper = PaperFigure(
        "6",
        "Attention to [SEP] and [CLS]",
        "How much attention the special tokens receive from each head, averaged over inputs.",
    )

    def observer(self, view: AttentionRun) -> Observer:
        return SpecialTokenObserver(*view.shape, view.special_ids)

    def check_model(self, classifier: OpenModel) -> None:
        check_special_tokens(classifier)
        super().check_model(classifier)

    def figures(self, measurement: Measurement) -> Iterator[Figure]:
        """Yield the chart of attention to [CLS] and [SEP] by layer. Tokens that the model lacks are left out."""
        curves = {
            f"[{name.upper()}]": np.asarray(measurement.value(name)).mean(1)
            for name in ("cls", "sep")
            if not np.isnan(measurement.value(name)).all()
        }
        if curves:
            caption = "Attention to [CLS] and [SEP] by layer, mean over heads: {who}"
            yield Lines(caption, curves, unit="attention received")

    def beside_paper(self, seeds: Repeats) -> Iterator[Figure]:
        """Yield published and measured maps for [CLS] and for [SEP]. Tokens that the model lacks are left out."""
        for name in ("sep", "cls"):
            ours, token = seeds.mean(name), f"attention to [{name.upper()}]"
            if not np.isnan(ours).all():
                theirs = seeds.published(f"fig6_{name.upper()}")
                captions = (f"K19, figure 6, {token}", f"{{who}}: {token}")
                yield from published_and_measured(theirs, ours, "attention received", captions)
