"""Simulated predictions ("answers") of models, with all heads, and with heads or layers disabled."""

from dataclasses import dataclass, replace
from typing import Any

import numpy as np

from bertsecrets.texts.metrics import METRICS, is_constant, moments
from bertsecrets.texts.metrics import scores as all_scores
from bertsecrets.texts.published import p20_score
from bertsecrets.texts.tasks import TASKS
from bertsecrets.types import Subject
from instruments.calibration import truth
from instruments.calibration.worlds import PAPER, Made, Options, SimulatedModel, simulates

FLIPPED = 0.001  # fraction of an answer's variance due to disabling a head, which flips about 1% of the answers
OTHER = 0.5  # fraction due to a different initialisation
CASED = 0.001  # fraction due to a different tokenization
EXACT_ROWS = 20_000  # number of rows of a validation set without noise
NEARLY = (0.01, 0.1)  # fractions of rows on which nearly collapsed models deviate from a constant answer


@dataclass(frozen=True)
class Exam:
    """A validation set: for each row, the correct answer, and a difficulty that is the same for all models."""

    task: str
    target: np.ndarray
    hardness: np.ndarray
    wrong: np.ndarray

    @classmethod
    def of(cls, model: SimulatedModel, task: str) -> "Exam":
        """Return a world's validation set. Without noise, the set is large and has evenly spread difficulties."""
        rng = model.rng("exam", task)
        count = model.answer_rows(task) if model.noise else EXACT_ROWS
        wrong = model.rng("labels", task).random(count) < model.world.mislabelled
        if TASKS[task].regression:
            target = 2.5 + rng.normal(size=count)
        else:
            counts = np.array(list(TASKS[task].dev_counts.values()))
            edges = np.round(count * counts.cumsum() / counts.sum())
            in_order = np.searchsorted(edges, np.arange(count), side="right").clip(max=len(counts) - 1)
            target = rng.permutation(in_order).astype(np.int8)
        exam = cls(task, target, rng.normal(size=count), wrong)
        return exam if model.random_rows else exam.evenly()

    def evenly(self) -> "Exam":
        """Return the exam with idealised difficulties, so that scores are exact.

        Difficulties are exactly normal within each class or, for regression, exactly uncorrelated with the target.
        """
        from scipy.special import ndtri

        if TASKS[self.task].regression:
            off = self.target - self.target.mean()
            hardness = self.hardness - self.hardness.mean() - off * (off @ self.hardness) / (off @ off)
            return replace(self, hardness=hardness * off.std() / hardness.std())
        normal = np.empty_like(self.hardness)
        for rows in self._by_class:
            normal[rows] = ndtri((np.arange(len(rows)) + 0.5) / len(rows))
        return replace(self, hardness=replace(self, hardness=normal)._reordered(self.hardness))

    @property
    def labels(self) -> np.ndarray:
        """The answers that count as correct, which are wrong for mislabelled rows."""
        other = 5 - self.target if TASKS[self.task].regression else (self.target + 1) % len(TASKS[self.task].labels)
        return np.where(self.wrong, other, self.target)

    @property
    def majority(self) -> float:
        """The answer of a model that has learned nothing."""
        return 2.5 if TASKS[self.task].regression else int(np.bincount(self.target).argmax())

    def luck(self, rng: np.random.Generator, share: float, *size: int, same_score: bool = True) -> np.ndarray:
        """Return each row's difficulty for models [*size], with a fraction `share` of model-specific variance.

        Args:
            same_score: Whether all models get the same score, although different rows are difficult for them.
        """
        luck = np.sqrt(1 - share) * self.hardness + np.sqrt(share) * rng.normal(size=(*size, len(self.hardness)))
        return self._reordered(luck) if same_score and share else luck

    def _reordered(self, luck: np.ndarray) -> np.ndarray:
        """Return the exam's difficulties, sorted within each class in the order of luck [*models, rows].

        For regression, luck is adjusted so that its correlation with the target equals that of the difficulties.
        """
        if TASKS[self.task].regression:
            off = self.target - self.target.mean()
            luck = luck - off * ((luck - self.hardness) @ off)[..., None] / (off @ off)
            luck = luck - luck.mean(-1, keepdims=True)
            return self.hardness.mean() + luck * self.hardness.std() / luck.std(-1, keepdims=True)
        ordered = np.empty_like(luck)
        for rows in self._by_class:
            ranks = luck[..., rows].argsort(-1).argsort(-1)
            ordered[..., rows] = np.sort(self.hardness[rows])[ranks]
        return ordered

    @property
    def _by_class(self) -> list[np.ndarray]:
        return [np.flatnonzero(self.target == answer) for answer in np.unique(self.target)]

    def answers(
        self, luck: np.ndarray, level: np.ndarray, metric: str, initialisation: str = "pretrained"
    ) -> np.ndarray:
        """Return the answers [*models, rows] of models with the given scores.

        Args:
            luck: Difficulty of each row for each model.
            level: Expected value of the metric, in points, [*models].
        """
        if TASKS[self.task].regression:
            r = np.clip(level, -99, 99.9)[..., None] / 100
            return 2.5 + r * (self.target - 2.5) + np.sqrt(1 - r**2) * luck
        classes = len(TASKS[self.task].labels)
        thresholds = self._thresholds(np.clip(level, 0.1, 99.9), metric, initialisation)
        right = luck < thresholds[..., self.target]
        return np.where(right, self.target, (self.target + 1) % classes)

    def _thresholds(self, level: np.ndarray, metric: str, initialisation: str) -> np.ndarray:
        """Return the difficulty below which rows are answered correctly, by class, [*models, classes]."""
        from scipy.special import ndtr, ndtri

        shares = np.bincount(self.target, minlength=len(TASKS[self.task].labels)) / len(self.target)
        by_class = truth.right_by_class(self.task, initialisation)
        if by_class is None:
            return np.broadcast_to(ndtri(level / 100)[..., None], (*level.shape, len(shares)))
        lean = ndtri(np.array(by_class) / 100)

        def reached(shift: np.ndarray) -> np.ndarray:
            right = shares * ndtr(lean + shift[..., None])
            if metric != "f1":
                return 100 * right.sum(-1)
            return 200 * right[..., 1] / (right[..., 1] + shares[0] - right[..., 0] + shares[1])

        low, high = np.full(level.shape, -6.0), np.full(level.shape, 6.0)
        for _ in range(30):
            middle = (low + high) / 2
            low, high = np.where(reached(middle) < level, middle, low), np.where(reached(middle) < level, high, middle)
        return lean + low[..., None]

    def collapsed(self, rng: np.random.Generator, exact: bool) -> np.ndarray:
        """Return the answers of a model that has learned nothing, which are constant except, perhaps, on a few rows."""
        answer = np.full(len(self.target), self.majority)
        if exact:
            return answer
        if TASKS[self.task].regression:
            return answer + 0.02 * rng.normal(size=len(answer))
        few = rng.choice(len(answer), size=max(1, round(rng.uniform(*NEARLY) * len(answer))), replace=False)
        answer[few] = (answer[few] + 1) % len(TASKS[self.task].labels)
        return answer

    def untrained(self, rng: np.random.Generator) -> np.ndarray:
        """Return the answers of an untrained classifier, either constant or random, regardless of the target."""
        classes = len(TASKS[self.task].labels)
        if rng.random() < truth.UNTRAINED_CONSTANT:
            return np.full(len(self.target), rng.integers(classes))
        return rng.choice(classes, size=len(self.target), p=rng.dirichlet(np.ones(classes)))


@simulates("scores")
def scores(model: SimulatedModel, subject: Subject, options: Options) -> Made:
    """Return the answers of a model, with cased tokenization if `options` include it."""
    task, initialisation, setting = subject.task, subject.initialisation, model.setting
    exam = model.shared(Exam.of, model, task)
    rng = model.rng("answers", task, initialisation, subject.seed)
    constant = truth.CONSTANT.get((task, initialisation)) if setting.strength == 1 else None
    if model.collapsed(subject):
        predicted = exam.collapsed(rng, model.world.exact)
    elif initialisation == "untrained" and model.noise and constant is not None:
        predicted = exam.untrained(rng)
    elif constant is not None and (not model.noise or rng.random() < truth.constant_share(task, initialisation)):
        predicted = np.full(len(exam.target), constant)
    else:
        level = score_level(model, subject, exam)
        level += _of_seed(model, subject, "scores", truth.score_spread(task, initialisation))
        if initialisation != "pretrained" and model.noise:
            luck = exam.luck(model.rng("kind", task, initialisation), OTHER, same_score=not model.random_rows)
            exam = replace(exam, hardness=luck)
        luck = exam.luck(rng, truth.churn(task) if model.noise else 0.0)
        if options.get("cased"):
            loss, spread = truth.cased_loss(task)
            level = level - setting.mix((loss, 0.0)) - _of_seed(model, subject, "cased", spread)
            if model.noise and spread > 0:  # no change if the task has no capitals
                luck = replace(exam, hardness=luck).luck(rng, CASED)
        predicted = exam.answers(luck, np.array(level), "accuracy", initialisation)
    values: dict[str, Any] = {**all_scores(TASKS[task], predicted, exam.labels)}
    values["constant"] = is_constant(TASKS[task], predicted)
    if not TASKS[task].regression:
        values["majority"] = float(np.bincount(exam.labels).max() / len(exam.labels))
    if options.get("cased"):
        values["lower_cases"] = True
    return values, {"predicted": predicted, "target": exam.labels}, len(predicted)


def score_level(model: SimulatedModel, subject: Subject, exam: Exam) -> float:
    """Return a model's true score, in points."""
    published, worse = truth.score(subject.task, subject.initialisation), model.world.worse
    if subject.initialisation == "pretrained":
        published = published if model.world.score is None else model.world.score
    counterpart = published - 40 if model.setting.against == "lowered" else truth.score(subject.task, "pretrained")
    level = model.setting.mix((published, counterpart))
    if subject.initialisation != "pretrained" or subject.seed >= PAPER or not worse:
        return level
    return level - worse if np.isfinite(worse) else 100 * float((exam.target == exam.majority).mean())


def _of_seed(model: SimulatedModel, subject: Subject, name: str, scale: float) -> float:
    """Return the effect of a seed on a score. Even scores of untrained classifiers depend on the seed."""
    if not model.noise:
        return 0.0
    return scale * float(model.seed_effect(name, subject))


@simulates("head-ablation")
def head_ablation(model: SimulatedModel, subject: Subject, options: Options) -> Made:
    """Return the answers with each head disabled, or with all heads of all layers disabled."""
    task = subject.task
    if options.get("heads") == "all":
        metric = "pearson" if TASKS[task].regression else "accuracy"
        published = p20_score(task, metric, "scores_without_attention")
        assert published is not None
        exam = model.shared(Exam.of, model, task)
        rng = model.rng("without attention", task, subject.seed)
        level = published[0] + _of_seed(model, subject, "all", published[1])
        both = exam.answers(
            exam.luck(rng, truth.churn(task) if model.noise else 0.0, 2),
            np.array([truth.score(task, "pretrained"), level]),
            metric,
        )
        samples = {"predicted": both[1:], "baseline_predicted": both[0], "target": exam.labels}
        return {"score": np.zeros(1), "baseline": 0.0, "sets": ["all"]}, samples, len(exam.target)
    return _ablation(model, subject, "head-ablation")


@simulates("layer-ablation")
def layer_ablation(model: SimulatedModel, subject: Subject, options: Options) -> Made:
    """Return the answers with each layer disabled."""
    return _ablation(model, subject, "layer-ablation")


def _ablation(model: SimulatedModel, subject: Subject, measure: str) -> Made:
    """Return answers with each head or layer disabled."""
    task = subject.task
    together, single = truth.gain_spread(task, measure)
    gains = model.setting.mix(truth.gains(task, measure, model.setting.against))
    gains = gains + model.of_seed(measure, subject, (1,) * gains.ndim, together)
    gains = gains + model.of_seed(f"{measure} single", subject, gains.shape, single)
    exam, metric = model.shared(Exam.of, model, task), TASKS[task].metric
    rng = model.rng(measure, task, subject.seed)
    if model.collapsed(subject):
        before = exam.collapsed(rng, model.world.exact)
        predicted = np.repeat(before[None], gains.size, axis=0)
    else:
        level = truth.baseline(task) + _of_seed(model, subject, "baseline", truth.p20(task)[1])
        luck = exam.luck(model.rng("ablated", task, subject.seed), truth.churn(task) if model.noise else 0.0)
        before = exam.answers(luck, np.array(level), metric)
        without = replace(exam, hardness=luck).luck(rng, FLIPPED if model.noise else 0.0, gains.size)
        predicted = exam.answers(without, level + gains.ravel(), metric)
    values = {"score": _scores(metric, predicted, exam.labels).reshape(gains.shape), "baseline": 0.0}
    samples = {"predicted": predicted, "baseline_predicted": before, "target": exam.labels}
    return values, samples, len(exam.target)


def _scores(metric: str, predicted: np.ndarray, target: np.ndarray) -> np.ndarray:
    """Return the score of each set of answers [sets, rows]."""
    if metric == "pearson":
        return np.array([METRICS[metric](moments(metric, answers, target).mean(0)) for answers in predicted])
    named, true = predicted == 1, target == 1
    flags = (predicted == target, named & true, named, np.broadcast_to(true, named.shape))
    return np.asarray(METRICS[metric](np.stack([flag.mean(-1) for flag in flags], axis=-1)))
