"""Anisotropy: the mean cosine similarity between the vectors of random words, by layer (Ethayarajh 2019; claims I2).

Rows are randomly split into pairs. Every word-piece of one row is compared with every word-piece of the other row, and
the cosines are averaged for each pair of rows. Special tokens are excluded. On average, this mean cosine is 0 if the
vectors are distributed isotropically. Ethayarajh samples word-pieces uniformly. Here, all pairs of rows have the same
weight, so word-pieces in short rows have more influence. `centred` is computed after subtracting the mean vector over
all word-pieces. The pairs are the same before and after fine-tuning, so claim I9 can compare the two models.
"""

from collections.abc import Callable, Iterator, Sequence
from typing import Any

import numpy as np
import torch
from jaxtyping import Float, Int

from bertsecrets.errors import NotApplicableError, UserError
from bertsecrets.measures.base import Measure, MeasureContext, Results
from bertsecrets.measures.base.figures import Figure, Lines
from bertsecrets.measures.base.observers import marked, mean_over_present
from bertsecrets.measures.base.probe import probe_inputs
from bertsecrets.measures.registry import measure
from bertsecrets.models.encoding import Batch, Encoded, batches, encode, special_ids
from bertsecrets.models.opening import OpenModel
from bertsecrets.progress import progress
from bertsecrets.types import Measurement

PAIRING_SEED = 2019  # for pairing rows
States = Float[torch.Tensor, "states rows tokens width"]


@measure("anisotropy", title="cosine of random words' vectors", source="Ethayarajh 2019", version=2)
class Anisotropy(Measure):
    """Values: `cosine` and `centred` [state]. State 0 contains the embeddings, and state n contains the output of layer
    n.

    Samples: `cosine` and `centred` [example, state]; `same_class` [example], 1 if both rows of a pair have the same
    label, 0 if not, and NaN for regression. The values of a pair are stored in its first row. All other rows are NaN.
    """

    section = "attention"
    axes = ("state",)

    def check_model(self, classifier: OpenModel) -> None:
        """Check that the model returns the hidden states of every layer."""
        batch = next(batches(probe_inputs(classifier)))
        with torch.no_grad():
            hidden_states(classifier, batch)

    def run(self, context: MeasureContext) -> Results:
        """Compute the hidden states twice, first to find the mean and then to subtract it."""
        opened, rows = context.open(self.kernel), self.rows(context)
        encoded = encode(rows, opened.tokenizer, opened.fit(context.resources.settings.attention.max_length))
        with progress(f"vectors of {context.measured}", 2 * len(encoded), "example") as shown:
            directions, mean = row_directions(opened, encoded, advance=shown.advance)
            centred, _ = row_directions(opened, encoded, mean, advance=shown.advance)
        pairs = random_pairs(len(encoded))
        samples = {"cosine": paired(directions, pairs), "centred": paired(centred, pairs)}
        means = mean_over_present(samples)
        values = {name: means[name] for name in samples}
        samples["same_class"] = same_class(rows.targets(), pairs, regression=context.task.regression)
        return {self.name: (values, samples)}, len(encoded)

    def figures(self, measurement: Measurement) -> Iterator[Figure]:
        """Yield the chart of the cosine by layer, with and without centring. The embeddings are left out."""
        names = {"not centred": "cosine", "centred": "centred"}
        curves = {title: np.asarray(measurement.value(name))[1:] for title, name in names.items()}
        yield Lines("Mean cosine of random words' vectors by layer: {who}", curves, unit="cosine")


def random_pairs(rows: int) -> Int[np.ndarray, "pairs 2"]:
    """Return a random division of the rows into pairs. With an odd number of rows, one row is left out."""
    if rows < 2:
        raise UserError("at least two rows are needed to form random pairs: measure more rows")
    return np.random.default_rng(PAIRING_SEED).permutation(rows)[: rows // 2 * 2].reshape(-1, 2)


def paired(
    directions: Float[np.ndarray, "examples states width"], pairs: Int[np.ndarray, "pairs 2"]
) -> Float[np.ndarray, "examples states"]:
    """Return the cosine of each pair for each hidden state, in the first row of the pair. All other rows are NaN."""
    cosines = np.full(directions.shape[:2], np.nan, dtype=np.float32)
    cosines[pairs[:, 0]] = (directions[pairs[:, 0]] * directions[pairs[:, 1]]).sum(-1)
    return cosines


def same_class(
    labels: Sequence[float], pairs: Int[np.ndarray, "pairs 2"], *, regression: bool
) -> Float[np.ndarray, " examples"]:
    """Return 1 for each pair of rows with equal labels, and 0 for all other pairs.

    Each number is stored in the first row of its pair. All other rows are NaN. For regression, all rows are NaN.

    >>> same_class([1, 0, 0], np.array([[0, 2]]), regression=False).tolist()
    [0.0, nan, nan]
    """
    same, numbers = np.full(len(labels), np.nan), np.asarray(labels)
    if not regression:
        same[pairs[:, 0]] = numbers[pairs[:, 0]] == numbers[pairs[:, 1]]
    return same


def row_directions(
    opened: OpenModel,
    encoded: Encoded,
    less: Float[torch.Tensor, "states width"] | None = None,
    advance: Callable[[float], Any] = lambda more: None,
) -> tuple[Float[np.ndarray, "examples states width"], Float[torch.Tensor, "states width"]]:
    """Return each row's mean unit vector, and the mean vector over all rows.

    The dot product of two rows' mean unit vectors is the mean cosine over all pairs of their word-pieces. If the mean
    vector of each hidden state is given (`less`), it is subtracted from all vectors before normalisation.
    """
    device, ids = next(opened.model.parameters()).device, special_ids(opened.tokenizer)
    directions: list[np.ndarray] = []
    order: list[int] = []
    total, count = torch.zeros((), device=device), 0
    for batch in batches(encoded):
        here = batch.to(device)
        words = marked(here, ids)["other"]
        states = hidden_states(opened, here)
        if less is not None:
            states = states - less[:, None, None]
        marks = words[None, :, :, None]
        units = torch.nn.functional.normalize(states, dim=-1) * marks
        of_rows = units.sum(2) / words.sum(1)[None, :, None]  # 0 / 0 is NaN
        directions.extend(of_rows.transpose(0, 1).cpu().numpy())
        order.extend(batch.indices)
        total = total + (states * marks).sum((1, 2))
        count += int(words.sum())
        advance(len(batch.indices))
    return np.stack(directions)[np.argsort(order)], total / max(count, 1)


def hidden_states(opened: OpenModel, batch: Batch) -> States:
    """Return the embeddings and the output of every layer."""
    if getattr(opened.model.config, "is_encoder_decoder", False):
        raise NotApplicableError("it is an encoder-decoder, with two stacks of layers")
    hidden = opened.model(**batch.inputs(), output_hidden_states=True).hidden_states
    if hidden is None or len(hidden) != opened.layers + 1 or len({state.shape for state in hidden}) > 1:
        raise NotApplicableError("its embeddings and layers have outputs of different sizes")
    states = torch.stack([state.float() for state in hidden])
    if not torch.isfinite(states[:, batch.mask]).all():
        raise UserError("a hidden state is not finite: the model's training has diverged, so train it again")
    return states
