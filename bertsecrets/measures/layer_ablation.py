"""A model's score when all heads of a single layer are disabled (K19 section 4.6, figure 9)."""

from collections.abc import Iterator

import numpy as np

from bertsecrets.ablation.gains import gains_of
from bertsecrets.ablation.head_sets import HeadSet, whole_layers
from bertsecrets.measures.base import AblationMeasure, MeasureContext
from bertsecrets.measures.base.ablation_measure import kind_text, published_baseline_text
from bertsecrets.measures.base.figures import Figure, LayerBars, Lines, PaperFigure, Repeats
from bertsecrets.measures.registry import measure
from bertsecrets.texts.published import ABLATION_BASELINES
from bertsecrets.texts.tasks import TASKS
from bertsecrets.types import Measurement


@measure("layer-ablation", title="score with each layer disabled", source="K19 4.6")
class LayerAblation(AblationMeasure):
    """Values: `baseline` and `score` [layer], the task's metric as a fraction.

    Samples: `predicted` [layer, example], `baseline_predicted` and `target` [example].
    """

    axes = ("layer",)
    paper = PaperFigure(
        "9",
        "Scores with one layer disabled",
        "All heads of one layer at a time attend uniformly. Each plot has its own axis.",
    )

    def sets(self, context: MeasureContext, layers: int, heads: int) -> tuple[list[HeadSet], str]:
        """Return one set of heads per layer, containing all heads of the layer."""
        return whole_layers(layers, heads), "layers"

    def figures(self, measurement: Measurement) -> Iterator[Figure]:
        block, gains = gains_of(measurement)
        metric = TASKS[measurement.subject.task].metric
        yield LayerBars(
            f"Change in {metric} (points) when each layer is disabled{kind_text(measurement)}: {{who}}",
            block,
            gains,
            unit="points",
            title=f"baseline {measurement.value('baseline'):.3f}",
        )

    def beside_paper(self, seeds: Repeats) -> Iterator[Figure]:
        theirs, baseline = seeds.published("fig9_layer"), 100 * float(seeds.mean("baseline"))
        if theirs is not None:
            task = seeds.task.name
            caption = f"K19, figure 9: score with each layer disabled ({published_baseline_text(task)})"
            scores = {"K19": 100 * np.array(theirs)}
            yield Lines(caption, scores, seeds.task.metric, from_zero=False, baseline=ABLATION_BASELINES.get(task))
        caption = f"{{who}}: score with each layer disabled (dashed: none disabled, {baseline:.1f})"
        ours = {seeds.first.subject.model: 100 * seeds.mean("score")}
        yield Lines(caption, ours, seeds.task.metric, from_zero=False, baseline=baseline)
