"""Maps of a few short examples before and after fine-tuning, and the kinds of tokens that each head attends to.

The attention viewer in the report displays these maps. No claim uses this measure.
"""

from collections.abc import Iterator, Mapping, Sequence
from itertools import zip_longest
from typing import Any, ClassVar

import numpy as np
import torch
from jaxtyping import Bool, Float, Int

from bertsecrets.errors import UserError
from bertsecrets.measures.attention_change import map_cosine
from bertsecrets.measures.base import AttentionMeasure, AttentionRun
from bertsecrets.measures.base.figures import Figure, HeadMap
from bertsecrets.measures.base.observers import of_batch
from bertsecrets.measures.registry import measure
from bertsecrets.models.attention import Maps, Observer
from bertsecrets.models.encoding import Batch
from bertsecrets.settings import Params
from bertsecrets.types import Measurement

SHOWN_EXAMPLES = 6  # examples whose full maps are stored
SHORTEST_PIECES, LONGEST_PIECES = 8, 40  # word-pieces of a displayed example
AVERAGED_EXAMPLES = 100  # examples to average over: enough for two digits, and processed in seconds
TARGET_KINDS = ("[CLS]", "[SEP]", "itself", "previous token", "next token", "rest of the same text", "other text")
SIDES = ("before", "after")  # before and after fine-tuning


@measure("example-maps", title="maps of a few short examples before and after fine-tuning", source="K19 4.3")
class ExampleMaps(AttentionMeasure):
    """Values: `cosine` [layer, head], the mean similarity between the maps before and after fine-tuning; `to_before`
    and `to_after` [layer, head, kind], the mean share of attention to [CLS], [SEP], the token itself, the previous
    token, the next token, the rest of the same text and the other text. A special token belongs to the text before it.
    For the displayed examples, `texts` and `labels` have one entry per example, and `tokens` is one list with the
    tokens of all examples, spelled as in the texts.

    Samples: `cosine` [example, layer, head], `to_before` and `to_after` [example, layer, head, kind]. For the displayed
    examples, `shown` contains the indices, `lengths` contains the numbers of tokens, and `maps_before` and `maps_after`
    contain the maps, which have the shape [shown, layer, head, token, token].

    The displayed examples are the shortest inputs with 8 to 40 word-pieces, alternating between labels. They are
    chosen from at most 100 inputs. The measurement contains text from the data set, so check the licence before
    publishing it.
    """

    compares: ClassVar[bool] = True
    common: ClassVar[bool] = False
    companions: ClassVar[tuple[str, ...]] = ()
    other_axes: ClassVar[Mapping[str, tuple[str, ...]]] = {
        **dict.fromkeys(("to_before", "to_after"), ("layer", "head", "kind")),
        **dict.fromkeys(("texts", "labels"), ("example",)),
        "tokens": ("token",),
    }

    def most(self, settings: Params) -> int | None:
        return min(AVERAGED_EXAMPLES, settings.attention.examples)

    def observer(self, view: AttentionRun) -> Observer:
        rows = view.rows
        shown = short_examples(view.encoded.lengths, rows.labels, rows.task.labels)
        if not shown:
            raise UserError(
                f"none of the {len(rows)} inputs has between {SHORTEST_PIECES} and {LONGEST_PIECES} word pieces"
            )
        return ExampleObserver(view, shown)

    def figures(self, measurement: Measurement) -> Iterator[Figure]:
        cosine = np.asarray(measurement.value("cosine"))
        caption = f"Similarity of each head's maps before and after fine-tuning, {measurement.examples} inputs: {{who}}"
        yield HeadMap(caption, cosine, unit="cosine similarity", low=float(np.nanmin(cosine)))


def short_examples(
    lengths: Int[np.ndarray, " examples"], labels: Sequence[Any], names: Sequence[str], most: int = SHOWN_EXAMPLES
) -> list[int]:
    """Return the indices of the shortest examples within the length limits, alternating between labels.

    >>> short_examples(np.array([9, 3, 8, 12, 10]), ["yes", "no", "yes", "no", "yes"], ["yes", "no"], 3)
    [2, 3, 0]
    """
    order = [int(i) for i in np.argsort(lengths, kind="stable") if SHORTEST_PIECES <= lengths[i] <= LONGEST_PIECES]
    by_label = [[i for i in order if labels[i] == name] for name in names] or [order]
    return [i for turn in zip_longest(*by_label) for i in turn if i is not None][:most]


class ExampleObserver:
    """Observer of two models. It stores full maps for some examples, and summaries for all examples."""

    pairs = True

    def __init__(self, view: AttentionRun, shown: Sequence[int]):
        self.view, self.shown, rows = view, list(shown), view.rows
        self.texts = list(zip(rows.sentence1, rows.sentence2 or [""] * len(rows), strict=True))
        examples, layers, heads = view.shape
        self.lengths = view.encoded.lengths[self.shown]
        size = int(self.lengths.max())
        self.maps = {side: np.zeros((len(shown), layers, heads, size, size), dtype=np.float16) for side in SIDES}
        self.to = {side: np.full((*view.shape, len(TARGET_KINDS)), np.nan, dtype=np.float32) for side in SIDES}
        self.cosine = np.full((examples, layers, heads), np.nan, dtype=np.float32)
        first, self.sep = view.special_ids["cls"], view.special_ids["sep"]
        starts = view.alignment.tokens(view.encoded.input_ids, first)
        self.cls = starts & (starts.cumsum(1) == 1) if first == self.sep else starts  # GPT-2 has one token for both
        self.second = np.maximum.accumulate(view.alignment.part, axis=1) > 0

    def update(self, batch: Batch, layer: int, maps: Maps, other: Maps | None) -> None:
        assert other is not None
        self.cosine[batch.indices, layer] = map_cosine(maps, other).cpu().numpy()
        kinds = list(self._kinds(batch))
        for side, seen in zip(SIDES, (other, maps), strict=True):
            for place, kind in enumerate(kinds):
                share = (seen * kind[:, None]).sum((2, 3)) / batch.lengths[:, None]
                self.to[side][batch.indices, layer, :, place] = share.cpu().numpy()
            for place, row in np.argwhere(np.equal.outer(self.shown, batch.indices)):
                cropped = (slice(None), slice(self.lengths[place]), slice(self.lengths[place]))
                self.maps[side][place, layer][cropped] = seen[row][cropped].cpu().numpy()

    def _kinds(self, batch: Batch) -> Iterator[Bool[torch.Tensor, "rows tokens tokens"]]:
        """Yield a mask of token pairs for each of `TARGET_KINDS`, without the pairs of earlier kinds."""
        device, size = batch.mask.device, batch.input_ids.shape[1]
        cls, second = (of_batch(marks[None], batch)[0].to(device) for marks in (self.cls, self.second))
        sep = torch.zeros_like(cls) if self.sep is None else (batch.input_ids == self.sep) & batch.mask & ~cls
        step = torch.arange(size, device=device)[None] - torch.arange(size, device=device)[:, None]
        same = second[:, :, None] == second[:, None]
        masks = (cls[:, None], sep[:, None], step == 0, step == -1, step == 1, same, ~same)
        left = batch.mask[:, :, None] & batch.mask[:, None]
        for kind in masks:
            yield left & kind
            left = left & ~kind

    def compute(self) -> tuple[dict[str, Any], dict[str, np.ndarray]]:
        averaged = {"cosine": self.cosine, **{f"to_{side}": shares for side, shares in self.to.items()}}
        means: dict[str, Float[np.ndarray, "layers heads *rest"]] = {
            name: sample.mean(0, dtype=np.float64) for name, sample in averaged.items()
        }
        words: dict[str, list[str]] = {
            "texts": [" / ".join(filter(None, map(str.strip, self.texts[i]))) for i in self.shown],
            "labels": [str(self.view.rows.labels[i]) for i in self.shown],
            "tokens": [word for i in self.shown for word in self._words(i)],
        }
        maps = {f"maps_{side}": maps for side, maps in self.maps.items()}
        return {**means, **words}, {**averaged, "shown": np.array(self.shown), "lengths": self.lengths, **maps}

    def _words(self, example: int) -> Iterator[str]:
        """Yield the tokens of an example as spelled in its texts. Tokens that continue a word have the prefix `##`."""
        texts, alignment = self.texts[example], self.view.alignment
        names = self.view.tokenizer.convert_ids_to_tokens(list(self.view.encoded.input_ids[example]))
        before = (-1, 0)
        for name, part, (start, stop) in zip(names, alignment.part[example], alignment.offsets[example], strict=False):
            text = "" if part < 0 else texts[part][start:stop]
            goes_on = bool(text) and before == (part, start) and text[0].isalnum() and texts[part][start - 1].isalnum()
            before = (int(part), int(stop))
            yield f"{'##' if goes_on else ''}{text.strip() or name}"
