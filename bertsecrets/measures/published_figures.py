"""Figure 8 of K19 as a measurement, so that claims about this figure are judged like any other claim."""

import numpy as np

from bertsecrets.measures.base import MeasureContext, Resources, Results, SuiteMeasure
from bertsecrets.measures.registry import measure
from bertsecrets.store.files import digest
from bertsecrets.texts.published import published_figures
from bertsecrets.texts.tasks import GLUE_TASKS


@measure("published-figures", title="scores with one head disabled, as K19 published them", source="K19 figure 8")
class PublishedFigures(SuiteMeasure):
    """Values: `tasks`, the names of the tasks.

    Samples: `figure_8` [1, task, layer, head], extracted from the figure's pixels. The metric is F1 for MRPC and QQP,
    Pearson's correlation for STS-B, and accuracy for the other tasks.
    """

    axes = ("task",)

    def fingerprint(self, context: MeasureContext) -> str:
        return digest(published_figures()["fig8_head"])

    def origin(self, resources: Resources) -> str | None:
        return "K19 figure 8"

    def run(self, context: MeasureContext) -> Results:
        grids = published_figures()["fig8_head"]
        scores = np.array([[grids[task.folder] for task in GLUE_TASKS]])
        return {self.name: ({"tasks": [task.name for task in GLUE_TASKS]}, {"figure_8": scores})}, 1
