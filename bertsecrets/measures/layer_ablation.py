"""The score with all heads of each layer disabled (K19 section 4.6, figure 9)."""

from collections.abc import Iterator

from bertsecrets.ablation.gains import gains_of
from bertsecrets.ablation.head_sets import HeadSet, whole_layers
from bertsecrets.measures.base import AblationMeasure, Run
from bertsecrets.measures.base.ablation import kind_in_words
from bertsecrets.measures.base.figures import Figure, LayerBars
from bertsecrets.measures.registry import measure
from bertsecrets.texts.tasks import TASKS
from bertsecrets.types import Measurement


@measure("layer-ablation", title="score with each layer disabled", source="K19 4.6")
class LayerAblation(AblationMeasure):
    """Values: `baseline` and `score` [layer], fractions of the task's metric.

    Samples: `predicted` [layer, example], `baseline_predicted` and `target` [example].
    """

    def sets(self, run: Run, layers: int, heads: int) -> tuple[list[HeadSet], str]:
        """Return the heads of each layer as one set."""
        return whole_layers(layers, heads), "layers"

    def figures(self, measurement: Measurement) -> Iterator[Figure]:
        """Yield one bar per layer (figure 9)."""
        block, gains = gains_of(measurement)
        metric = TASKS[measurement.subject.task].metric
        yield LayerBars(
            f"What disabling each layer{kind_in_words(measurement)} changes, in points of {metric}: {{who}} "
            "(figure 9 of the paper)",
            block,
            gains,
            unit="points",
            title=f"baseline {measurement.value('baseline'):.3f}",
        )
