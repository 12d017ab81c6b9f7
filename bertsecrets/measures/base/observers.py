"""Functions and observers that several measures share.

They compute the attention that tokens receive, maximum weights, and means over examples.
"""

from collections.abc import Iterable, Mapping

import numpy as np
import torch
from jaxtyping import Bool, Float

from bertsecrets.models.alignment import Alignment, Marks, TokenPairs
from bertsecrets.models.attention import Maps
from bertsecrets.models.encoding import Batch
from bertsecrets.texts.parsing import Parse
from bertsecrets.types import Measurement


def received(maps: Maps, batch: Batch) -> Float[torch.Tensor, "rows heads tokens"]:
    """Return the attention received by each token: column sums divided by L, the number of tokens without padding."""
    return maps.sum(2) / batch.lengths[:, None, None]


def marked(batch: Batch, ids: Mapping[str, int | None]) -> dict[str, Bool[torch.Tensor, "rows tokens"]]:
    """Return masks of [CLS] tokens, [SEP] tokens, and all other tokens except padding, given `encoding.special_ids`."""
    none = torch.zeros_like(batch.mask)
    cls, sep = (
        none if (token := ids[kind]) is None else (batch.input_ids == token) & batch.mask for kind in ("cls", "sep")
    )
    return {"cls": cls, "sep": sep, "other": batch.mask & ~cls & ~sep}


def max_over(
    columns: Float[torch.Tensor, "rows heads tokens"], marks: Bool[torch.Tensor, "kinds rows tokens"]
) -> Float[torch.Tensor, "kinds rows heads"]:
    """Return the largest value over the tokens of each kind, by row and head, or NaN for rows without such tokens."""
    largest = torch.where(marks[:, :, None, :], columns, -torch.inf).amax(-1)
    return torch.where(marks.any(-1)[:, :, None], largest, torch.nan)


def of_batch(marks: Bool[np.ndarray, "kinds examples tokens"], batch: Batch) -> Bool[torch.Tensor, "kinds rows width"]:
    """Return the masks of a batch's examples, cropped or padded to the width of the batch."""
    width = batch.input_ids.shape[1]
    here = torch.from_numpy(marks[:, batch.indices, :width])
    return torch.nn.functional.pad(here, (0, width - here.shape[-1]))


def max_weight(maps: Maps, batch: Batch, pairs: TokenPairs) -> Float[torch.Tensor, "rows heads"]:
    """Return, for each row and head, the maximum weight over the row's token pairs, or NaN if the row has none."""
    rows, source, target = (torch.from_numpy(part).to(maps.device) for part in pairs.of_rows(batch.indices))
    weights = maps[rows, :, source, target]
    empty = torch.full(maps.shape[:2], torch.nan, dtype=maps.dtype, device=maps.device)
    return empty.scatter_reduce(0, rows[:, None].expand_as(weights), weights, "amax", include_self=False)


class SampleObserver:
    """Base class for observers of one model. For each name, they store one value per example, layer and head.

    Values are NaN for examples that lack the observed feature. If `counts` is set, `compute` also returns the number of
    examples with the feature.
    """

    pairs = False

    def __init__(self, examples: int, layers: int, heads: int, names: Iterable[str], *, counts: bool = True):
        self.counts = counts
        shape = (examples, layers, heads)
        self.samples: dict[str, np.ndarray] = {name: np.full(shape, np.nan, dtype=np.float32) for name in names}

    def record(self, name: str, batch: Batch, layer: int, numbers: Float[torch.Tensor, "rows heads"]) -> None:
        """Store the values for one layer of one batch."""
        self.samples[name][batch.indices, layer] = numbers.cpu().numpy()

    def compute(self) -> tuple[dict[str, np.ndarray], dict[str, np.ndarray]]:
        """Return the means over examples, of shape [layer, head], and the samples, of shape [example, layer, head]."""
        means = mean_over_present(self.samples)
        return means if self.counts else {name: means[name] for name in self.samples}, dict(self.samples)


class PairObserver(SampleObserver):
    """Observer of one model. It stores the maximum weight over each relation's token pairs, [example, layer, head]."""

    def __init__(self, examples: int, layers: int, heads: int, relations: Mapping[str, TokenPairs]):
        super().__init__(examples, layers, heads, relations)
        self.relations = dict(relations)

    def update(self, batch: Batch, layer: int, maps: Maps, other: Maps | None) -> None:
        for name, pairs in self.relations.items():
            self.record(name, batch, layer, max_weight(maps, batch, pairs))


def mean_over_present(samples: Mapping[str, np.ndarray]) -> dict[str, np.ndarray]:
    """Return the mean of each sample, ignoring NaN. `<name>_examples` is the number of examples that are not NaN.

    >>> values = mean_over_present({"noun": np.array([[0.5], [np.nan]])})
    >>> values["noun"].tolist(), int(values["noun_examples"])
    ([0.5], 1)
    """
    values: dict[str, np.ndarray] = {}
    for name, sample in samples.items():
        present = ~np.isnan(sample)
        count = present.sum(0)
        total = np.where(present, sample, 0).sum(0, dtype=np.float64)
        values[name] = np.divide(total, count, out=np.full(total.shape, np.nan), where=count > 0)
        values[f"{name}_examples"] = np.asarray(int(present.reshape(len(sample), -1).any(1).sum()))
    return values


def heads_without_numbers(measurement: Measurement) -> str | None:
    """Return a message if, for any example, only some heads have a value. Otherwise, return None.

    Examples in which all heads lack a value are ignored: they may not contain what is measured, such as a pronoun.
    """
    for name, sample in measurement.samples.items():
        if sample.dtype.kind == "f" and sample.ndim == 3:
            absent = ~np.isfinite(sample)
            heads = np.argwhere(absent[~absent.all((1, 2))].any(0)) + 1
            if len(heads):
                others = len(heads) - 1
                more = f" and {others} other head{'s' if others > 1 else ''}" if others else ""
                return f"no values for head {heads[0, 1]} of layer {heads[0, 0]}{more} ({name})"
    return None


def mark_words(alignment: Alignment, wanted, first: list[Parse], second: list[Parse] | None = None) -> Marks:
    """Return a mask [example, token] of the tokens of all words for which `wanted` returns True."""
    parts = enumerate((first, second or ()))
    marks = [alignment.mark([[w.span for w in words if wanted(w)] for words in parses], part) for part, parses in parts]
    return marks[0] | marks[1]
