"""The features of single maps of different lengths, computed in stacks that need little padding."""

from collections.abc import Sequence

import numpy as np
from jaxtyping import Float

from bertsecrets.patterns.features.table import feature_names, features
from bertsecrets.patterns.map_stack import MapStack, by_length


def feature_table(maps: Sequence[np.ndarray], boundary: Sequence[int]) -> Float[np.ndarray, "maps features"]:
    """Return the features of single maps, computed in stacks of similar length."""
    table = np.empty((len(maps), len(feature_names())), dtype=np.float32)
    for places in by_length([len(values) for values in maps]):
        part = MapStack.of([maps[i] for i in places], [boundary[i] for i in places])
        table[places] = features(part).numpy()
    return table
