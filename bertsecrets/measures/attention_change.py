"""How fine-tuning changes each head's attention (K19, Kovaleva et al. 2019, section 4.3, figure 5).

For each head and input, the map of the pretrained model and the map of the fine-tuned model are flattened and compared
by cosine similarity, which is then averaged over examples. Maps are cropped to the tokens without padding, unless
`padded_to` is set to reproduce K19's padding.
"""

from collections.abc import Iterator
from typing import Any, ClassVar

import numpy as np
import torch
from jaxtyping import Float
from pydantic import PositiveInt

from bertsecrets.measures.base import AttentionMeasure, AttentionRun
from bertsecrets.measures.base.figures import Figure, HeadMap, PaperFigure, Repeats
from bertsecrets.measures.base.observers import SampleObserver, heads_without_numbers
from bertsecrets.measures.registry import measure
from bertsecrets.models.attention import Maps, Observer
from bertsecrets.models.encoding import Batch
from bertsecrets.models.layers import weight_cosine
from bertsecrets.settings import Params
from bertsecrets.types import Measurement

UNRELATED_COSINE = 0.5  # cosine of weights; about 0 for independent models, and above 0.9 after usual fine-tuning
# Larger cosines are indistinguishable from 1 in float32, because the weights differ by less than about 0.04 %.
UNCHANGED_COSINE = 1 - 1e-7


def map_cosine(one: Maps, other: Maps) -> Float[torch.Tensor, "rows heads"]:
    """Return, for each row and head, the cosine similarity of two maps. Entries that are 0 in both maps have no effect.

    The cosine is computed from the difference between the maps, so that equal maps give exactly 1 and small changes are
    not lost to rounding.

    >>> map_cosine(torch.ones(1, 1, 2, 2), torch.ones(1, 1, 2, 2))
    tensor([[1.]])
    """
    a, b = one.flatten(2), other.flatten(2)
    length_a, length_b = torch.linalg.vector_norm(a, dim=-1), torch.linalg.vector_norm(b, dim=-1)
    distance = torch.linalg.vector_norm(a - b, dim=-1)
    return 1 - (distance.square() - (length_a - length_b).square()) / (2 * length_a * length_b)


class CosineObserver(SampleObserver):
    """Observer that stores the cosine between the maps of two models for each example, [example, layer, head]."""

    pairs = True

    def __init__(self, examples: int, layers: int, heads: int, weights_cosine: float = 1.0):
        super().__init__(examples, layers, heads, ["cosine"], counts=False)
        self.weights_cosine = weights_cosine

    def update(self, batch: Batch, layer: int, maps: Maps, other: Maps | None) -> None:
        assert other is not None
        self.record("cosine", batch, layer, map_cosine(maps, other))

    def compute(self) -> tuple[dict[str, np.ndarray], dict[str, np.ndarray]]:
        values, samples = super().compute()
        return values | {"weights_cosine": np.asarray(self.weights_cosine)}, samples


@measure("attention-change", title="cosine of pretrained and fine-tuned maps", source="K19 4.3")
class AttentionChange(AttentionMeasure):
    """Values: `cosine` [layer, head], the mean over examples, and `weights_cosine`, the mean cosine between the weight
    matrices that both models have. Samples: `cosine` [example, layer, head].
    """

    class Options(AttentionMeasure.Options):
        """`padded_to` pads every input to this number of tokens and includes the padding in the maps. K19 uses 200."""

        padded_to: PositiveInt | None = None

    compares: ClassVar[bool] = True
    curves = ("cosine",)
    paper = PaperFigure(
        "5",
        "How much fine-tuning changes each head",
        "Similarity of each head's maps before and after fine-tuning. 1 means unchanged; dark means changed.",
    )

    def variants(self, settings: Params) -> list[dict[str, Any]]:
        """Return the options for both variants: maps without padding, and maps padded as in the paper's figure 5."""
        return [{}, {"padded_to": settings.attention.max_length}]

    def degenerate(self, measurement: Measurement) -> str | None:
        """Return a message if some heads lack values or if training changed none of the maps, else None.

        Unchanged maps do not show where attention changes, but they would trivially satisfy claim C2 (most maps change
        little). The maps of a frozen encoder are always unchanged.
        """
        cosine = np.asarray(measurement.value("cosine"))
        if not np.isfinite(cosine).all():
            return heads_without_numbers(measurement) or "some similarities are not finite"
        unchanged = (cosine > UNCHANGED_COSINE).all()
        return "its attention maps equal the pretrained model's: training changed none of them" if unchanged else None

    def observer(self, view: AttentionRun) -> Observer:
        assert view.twin is not None
        return CosineObserver(*view.shape, weight_cosine(view.tuned.model, view.twin.model))

    def remarks(self, measurement: Measurement) -> list[str]:
        """Return a remark if the checkpoint was probably trained from another model."""
        cosine = float(measurement.values.get("weights_cosine", 1.0))
        if measurement.subject.initialisation != "pretrained" or cosine >= UNRELATED_COSINE:
            return []
        name = measurement.subject.model
        return [f"probably not fine-tuned from {name}: the mean cosine of the models' weight matrices is {cosine:.2f}"]

    def beside_paper(self, seeds: Repeats) -> Iterator[Figure]:
        padded_to = seeds.first.options.get("padded_to")
        form = "cropped to the real tokens" if padded_to is None else f"padded to {padded_to} tokens"
        theirs, unit = seeds.published("fig5_cosine"), "cosine similarity"
        if theirs is not None:
            yield HeadMap("K19, figure 5: maps padded to 200 tokens", np.array(theirs), unit)
        yield HeadMap(f"{{who}}: maps {form}", seeds.mean("cosine"), unit)
