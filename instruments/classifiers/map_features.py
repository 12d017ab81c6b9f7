"""Features of sets of maps, for training and evaluation."""

from collections.abc import Sequence

import numpy as np
import torch
from jaxtyping import Float

from bertsecrets.patterns.features.feature_table import feature_names, features
from bertsecrets.patterns.map_stack import MapStack

BATCH = 64  # maps per batch


def feature_table(maps: Sequence[np.ndarray], boundary: Sequence[int]) -> Float[np.ndarray, "maps features"]:
    """Return the features of maps, computed in batches of similar length."""
    table = np.empty((len(maps), len(feature_names())), dtype=np.float32)
    by_length = np.argsort([len(values) for values in maps], kind="stable")
    for start in range(0, len(maps), BATCH):
        places = by_length[start : start + BATCH]
        part = stack_maps([maps[i] for i in places], [boundary[i] for i in places])
        table[places] = features(part).numpy()
    return table


def stack_maps(maps: Sequence[Float[np.ndarray, "_ _"]], boundary: Sequence[int]) -> MapStack:
    """Stack L x L maps of any float type.

    Rows are normalised to sum to 1, to correct for rounding in half precision.

    Args:
        boundary: Index of the second text's first token for each map, or L for inputs with one text.
    """
    lengths = torch.tensor([len(values) for values in maps], dtype=torch.long)
    longest = int(lengths.max()) if len(lengths) else 0
    padded = torch.zeros(len(maps), longest, longest)
    for place, values in zip(padded, maps, strict=True):
        rows = torch.from_numpy(np.asarray(values, dtype=np.float32))
        place[: len(values), : len(values)] = rows / rows.sum(-1, keepdim=True).clamp(min=1e-12)
    return MapStack(padded, lengths, torch.tensor(list(boundary), dtype=torch.long))
