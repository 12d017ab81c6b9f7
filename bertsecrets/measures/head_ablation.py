"""A model's score when a single head or a given set of heads is disabled (K19 section 4.6, figure 8)."""

from collections.abc import Iterator, Mapping, Sequence
from typing import Any

import numpy as np
from pydantic import field_validator

from bertsecrets.ablation.gains import gains_of
from bertsecrets.ablation.head_sets import HeadSet, label, parse_sets, single_heads
from bertsecrets.measures.base import AblationMeasure, AblationOptions, MeasureContext
from bertsecrets.measures.base.ablation_measure import kind_text, published_baseline_text
from bertsecrets.measures.base.figures import Figure, HeadMap, PaperFigure, RankedHeads, Repeats
from bertsecrets.measures.registry import measure
from bertsecrets.texts.tasks import TASKS
from bertsecrets.types import Measurement


@measure("head-ablation", title="score with each head disabled", source="K19 4.6")
class HeadAblation(AblationMeasure):
    """Values: `baseline` is the task's metric as a fraction, and `score` is the same metric with one head disabled.
    `score` has the axes [layer, head] or, if the option `heads` is set, one number for each set of heads named in
    `sets`. Samples: `predicted` has the axes [set, example]; `baseline_predicted` and `target` have the axis [example].
    """

    axes = ("layer", "head")
    paper = PaperFigure(
        "8", "Scores with one head disabled", "One head at a time attends uniformly. Each map has its own colour scale."
    )

    class Options(AblationOptions):
        """`kind` selects what replaces a disabled head: `uniform`, `zero`, `mean` or `resampled` (with seed `draw`).

        `heads` selects sets of heads, such as `1.2 1.2+7.6 5 all pairs:3 nested:1.2,7.6`. Layers and heads are numbered
        from 1.
        """

        heads: str | None = None

        @field_validator("heads")
        @classmethod
        def _spaced(cls, text: str | None) -> str | None:
            return text and " ".join(text.split())

    def axes_of(self, options: Mapping[str, Any]) -> tuple[str, ...]:
        """Return the axis `set` if sets of heads were given, or else the axes `layer` and `head`."""
        return ("set",) if options.get("heads") is not None else self.axes

    def sets(self, context: MeasureContext, layers: int, heads: int) -> tuple[list[HeadSet], str]:
        """Return the sets given by the option `heads`. By default, return one set for each head."""
        if context.options.heads is not None:
            return parse_sets(context.options.heads, layers, heads), "sets of heads"
        return single_heads(layers, heads), "heads"

    def finish(self, options: Any, values: dict[str, Any], sets: Sequence[HeadSet], shape: tuple[int, int]) -> None:
        """Reshape the scores to [layer, head] or, if sets of heads were given, add the sets' names to the values."""
        if options.heads is not None:
            values["sets"] = [label(heads) for heads in sets]
        else:
            values["score"] = values["score"].reshape(shape)

    def figures(self, measurement: Measurement) -> Iterator[Figure]:
        """Yield a map of gains and a chart of heads ranked by gain, or nothing if sets of heads were given."""
        shape = np.shape(measurement.value("score"))
        if len(shape) != 2:
            return
        block, gains = gains_of(measurement)
        points = gains(block.mean(0)).reshape(shape)
        reach = max(float(np.abs(points).max(initial=0)), 1e-9)
        metric = TASKS[measurement.subject.task].metric
        yield HeadMap(
            f"Change in {metric} (points) when each head is disabled{kind_text(measurement)}: {{who}}",
            points,
            unit="points",
            title=f"baseline {measurement.value('baseline'):.3f}",
            low=-reach,
            high=reach,
            signed=True,
        )
        yield RankedHeads(
            f"Change in {metric} (points) for each disabled head{kind_text(measurement)}, in ascending order, "
            "with 95 % intervals over examples: {who}",
            block,
            gains,
            heads=shape[1],
            unit="points",
        )

    def beside_paper(self, seeds: Repeats) -> Iterator[Figure]:
        """Yield the published and the measured map of scores. If sets of heads were given, yield nothing."""
        ours, baseline = 100 * seeds.mean("score"), 100 * float(seeds.mean("baseline"))
        if ours.ndim != 2:
            return
        if (theirs := seeds.published("fig8_head")) is not None:
            low, high = (100 * end for end in seeds.published("fig8_colorbar"))
            caption = f"K19, figure 8: score with each head disabled ({published_baseline_text(seeds.task.name)})"
            yield HeadMap(caption, 100 * np.array(theirs), seeds.task.metric, low=low, high=high)
        caption = f"{{who}}: score with each head disabled (none disabled: {baseline:.1f})"
        yield HeadMap(caption, ours, seeds.task.metric, low=float(ours.min()), high=float(ours.max()))
