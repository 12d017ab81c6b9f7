"""Measures of a model's score on a task while some of its heads are disabled (K19 section 4.6, figures 8 and 9).

By default, a disabled head attends uniformly to the L tokens of the input (without padding), with weight 1/L. The
option `kind` selects other kinds of ablation (`bertsecrets.ablation.kinds`). Predictions are stored for every set of
heads and every example, so that paired tests and confidence intervals can be computed.

In bfloat16, a few predictions differ from those in float32. To count the differences, a sample of predictions is
computed in both precisions.
"""

import hashlib
from abc import abstractmethod
from collections.abc import Sequence
from pathlib import Path
from typing import Any, ClassVar

import numpy as np
import torch
from jaxtyping import Shaped
from pydantic import Field, field_validator
from pydantic_core import PydanticCustomError

from bertsecrets.ablation.engine import Engine, ablate
from bertsecrets.ablation.grid import Grid
from bertsecrets.ablation.head_sets import BASELINE, HeadSet
from bertsecrets.ablation.kinds import UNIFORM, Ablation, Kind
from bertsecrets.measures.base.measure import Measure, MeasureContext, MeasureOptions, Result, Results, Section
from bertsecrets.measures.base.probe import probe_inputs
from bertsecrets.models.encoding import Encoded, check_finite, encode
from bertsecrets.models.opening import OpenModel
from bertsecrets.progress import progress
from bertsecrets.store.files import digest
from bertsecrets.texts.glue import Split
from bertsecrets.texts.metrics import decide, has_collapsed, order_problem, score
from bertsecrets.texts.published import ABLATION_BASELINES
from bertsecrets.texts.tasks import TASKS, Task
from bertsecrets.types import Measurement, Precision

CHECKED_ROWS = 32  # the first examples, whose predictions are also computed in float32 for every set of heads
SCORE_TOLERANCE_POINTS = 0.1  # in points; similarity scores that differ by more count as different


class AblationOptions(MeasureOptions):
    """`kind` selects what replaces a disabled head: `uniform`, `zero`, `mean` or `resampled` (with seed `draw`)."""

    kind: Kind = "uniform"
    draw: int = Field(default=1, ge=1)

    @field_validator("draw")
    @classmethod
    def _drawn(cls, draw: int, checked: Any) -> int:
        if draw != 1 and checked.data.get("kind") != "resampled":
            raise PydanticCustomError("draw", "it applies only to kind=resampled")
        return draw


class RemovalMeasure(Measure):
    """A measure that scores both the intact model and the model with some heads or weights removed."""

    section: ClassVar[Section | None] = "scores"

    def degenerate(self, measurement: Measurement) -> str | None:
        """Return why the effect of the removal cannot be judged from the predictions, or None if it can."""
        baseline = measurement.sample("baseline_predicted")
        if not (np.isfinite(baseline).all() and np.isfinite(measurement.sample("predicted")).all()):
            return "some predictions are not finite"
        if len(baseline) < 2 or measurement.subject.initialisation not in ("pretrained", "frozen"):
            return None
        task = TASKS[measurement.subject.task]
        if has_collapsed(task, baseline, measurement.sample("target")):
            return "gives every example the same answer"
        fine_tuned = measurement.subject.initialisation == "pretrained"
        return order_problem(task, baseline, measurement.sample("target")) if fine_tuned else None


class HeadRemovalMeasure(RemovalMeasure):
    """A measure that scores a model after removing sets of heads. It uses a limited number of rows."""

    def rows(self, context: MeasureContext) -> Split:
        """Return the validation rows up to the limit `grid_limit`."""
        return context.resources.rows.split(context.subject.task, "dev", context.resources.rows.grid_limit)


class AblationMeasure(HeadRemovalMeasure):
    """A measure that scores a model with one set of heads disabled at a time. Several processes can share the work."""

    Options = AblationOptions
    shared: ClassVar[bool] = True

    @abstractmethod
    def sets(self, context: MeasureContext, layers: int, heads: int) -> tuple[list[HeadSet], str]:
        """Return the sets of heads to disable, and a plural noun that describes them in the progress bar."""

    def finish(self, options: Any, values: dict[str, Any], sets: Sequence[HeadSet], shape: tuple[int, int]) -> None:
        """Convert the values in place to the form that this measure stores: by default, one score per set of heads."""
        return

    def check_model(self, classifier: OpenModel) -> None:
        """Check that the model's heads can be disabled."""
        Engine.open(classifier).check_longest(probe_inputs(classifier))

    def inputs(self, context: MeasureContext) -> dict[str, Any]:
        """Return the inputs of the cache key, including the precision of the forward passes."""
        return super().inputs(context) | {"precision": context.resources.grid_precision}

    def remarks(self, measurement: Measurement) -> list[str]:
        """If heads were disabled in bfloat16, return a remark on how many predictions differ from those in float32."""
        values = measurement.values
        if "sampled" not in values:
            return []
        counts = f"{int(values['sample_differs'])} of {int(values['sampled'])}"
        return [f"heads were disabled in bfloat16: {counts} sampled predictions differ from those in float32"]

    def run(self, context: MeasureContext) -> Results:
        """Score the model on the rows with each set of heads disabled."""
        opened = context.open(self.kernel)
        rows = self.rows(context)
        encoded = encode(rows, opened.tokenizer, opened.fit(context.resources.settings.scores.max_length))
        shape = (opened.layers, opened.heads)
        sets, called = self.sets(context, *shape)
        ablation = Ablation(context.options.kind, context.options.draw)
        values, samples = set_ablation(
            opened,
            encoded,
            context.task,
            rows.targets(),
            sets,
            device=context.resources.device,
            folder=context.grid,
            about={"measure": self.name, "made_by": self.made_by(context.resources.device)},
            title=f"disabling {called}" + ("" if ablation == UNIFORM else f" ({ablation.kind})"),
            ablation=ablation,
            precision=context.resources.grid_precision,
        )
        self.finish(context.options, values, sets, shape)
        return {self.name: (values, samples)}, len(encoded)


def scored(
    task: Task, predicted: Sequence[np.ndarray], targets: Sequence[float] | np.ndarray
) -> tuple[dict[str, Any], dict[str, np.ndarray]]:
    """Return the values and samples of stepwise pruning, scored by accuracy or Pearson's correlation.

    The first predictions are those of the unpruned model. The others are the predictions after each step.
    """
    target, metric = np.asarray(targets), "pearson" if task.regression else "accuracy"
    baseline, *scores = (score(metric, answers, target) for answers in predicted)
    unpruned, *steps = (answers.astype(_answer_type(task)) for answers in predicted)
    samples = {"predicted": np.stack(steps), "baseline_predicted": unpruned, "target": target}
    return {"baseline": baseline, "score": np.array(scores)}, samples


def published_baseline_text(task_name: str) -> str:
    """Return text for a caption: K19's score for the intact model, or a note that K19 published no such score."""
    baseline = ABLATION_BASELINES.get(task_name)
    return "no baseline published" if baseline is None else f"none disabled: {baseline:.1f}"


def kind_text(measurement: Measurement) -> str:
    """Return the kind of ablation as text for captions, or an empty string for K19's uniform attention."""
    kind = measurement.options.get("kind", UNIFORM.kind)
    return "" if kind == UNIFORM.kind else f" ({kind} vectors)"


def set_ablation(
    opened: OpenModel,
    encoded: Encoded,
    task: Task,
    targets: Sequence[float] | Sequence[int] | np.ndarray,
    sets: Sequence[HeadSet],
    *,
    device: torch.device | str = "cpu",
    folder: Path | None = None,
    about: dict[str, Any] | None = None,
    title: str | None = None,
    ablation: Ablation = UNIFORM,
    precision: Precision = "float32",
) -> Result:
    """Return the score with each set of heads disabled.

    Args:
        folder: Folder in which predictions are stored during the computation. Interrupted runs resume from these
            predictions, and several processes can share the folder.
        about: Further facts on which the predictions depend, as JSON data. Weights, inputs, task and ablation need not
            be included.
        title: Title of the progress bar. If None, no bar is shown.
        ablation: Kind of ablation. Replacement vectors are computed from the rows of `encoded`.
        precision: Precision of the forward passes. With bfloat16, the model is converted in place.

    Returns:
        Values: `baseline` and `score` [set], the task's metric as a fraction. Samples: `predicted` [set, example],
        `baseline_predicted` and `target` [example]; class indices are integers, and scores are float32. If `precision`
        is bfloat16, some predictions are also computed in float32 for comparison. The value `sampled` is the number of
        these predictions, and `sample_differs` is the number of those that differ.
    """
    everything = [BASELINE, *sets]
    engine = Engine.open(opened, device, ablation=ablation)
    instead = engine.instead(encoded)

    def compute(portion, advance=None, rows=encoded) -> Shaped[np.ndarray, "sets examples"]:
        logits = ablate(engine, rows, portion, instead=instead, progress=advance)
        check_finite(torch.from_numpy(logits))
        return np.stack([decide(task, of_set) for of_set in logits]).astype(_answer_type(task))

    if precision == "bfloat16":
        exact = compute(everything, rows=encoded.head(CHECKED_ROWS))
        engine.check_longest(encoded)
        scale = float(np.abs(ablate(engine, encoded.head(CHECKED_ROWS), [BASELINE], instead=instead)).max())
        opened.model.to(torch.bfloat16)
        engine = Engine.open(opened, device, ablation, scale)
        instead = engine.instead(encoded)
    with progress(title, len(everything), "set") as shown:
        if folder is None:
            predicted = compute(everything, shown.advance)
        else:
            facts = {
                "weights": weights_digest(opened),
                "task": task.name,
                "inputs": digest(encoded.input_ids),
                "ablation": [ablation.kind, ablation.draw],
                **(about or {}),
            }
            grid = Grid.open(folder, everything, layers=opened.layers, size=opened.heads, about=facts)
            predicted = grid.fill(compute, shown.advance)
    truth = np.asarray(targets)
    scores = np.array([score(task.metric, of_set, truth) for of_set in predicted])
    values: dict[str, Any] = {"baseline": float(scores[0]), "score": scores[1:]}
    if precision == "bfloat16":
        tolerance = SCORE_TOLERANCE_POINTS if task.regression else 0
        differ = np.abs(exact.astype(np.float32) - predicted[:, :CHECKED_ROWS]) > tolerance
        values |= {"sampled": differ.size, "sample_differs": int(differ.sum())}
    return values, {"predicted": predicted[1:], "baseline_predicted": predicted[0], "target": truth}


def _answer_type(task: Task) -> np.dtype:
    """Return the type of stored predictions: a float or, for up to 128 classes, an integer of 8 bits."""
    return np.dtype(np.float32) if task.regression else np.min_scalar_type(-task.outputs)


def weights_digest(opened: OpenModel) -> str:
    """Return a SHA-256 hex digest of the values and the precision of all weights, including new classifier heads."""
    sha = hashlib.sha256()
    for name, tensor in sorted(opened.model.state_dict().items()):
        sha.update(f"{name} {tensor.dtype} {tuple(tensor.shape)}".encode())
        sha.update(tensor.detach().cpu().contiguous().flatten().view(torch.uint8).numpy())
    return sha.hexdigest()
