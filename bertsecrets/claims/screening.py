"""Checks that determine which seeds are usable for a verdict.

Seeds that collapsed or learned nothing are uninformative about the training procedure, so they are excluded and listed
in the verdict. Claims about the score itself exclude only collapsed seeds, since excluding low scores would select the
better seeds. Duplicate seeds are rejected because they would make the seed variance look too small.
"""

from collections.abc import Sequence
from dataclasses import dataclass
from itertools import combinations
from typing import Any

import numpy as np

from bertsecrets.claims.estimate import FEWEST_SEEDS
from bertsecrets.claims.quantity import OfSeed, all_of, states_of
from bertsecrets.claims.reasons import Cause, Grounds
from bertsecrets.errors import UserError, excerpt
from bertsecrets.measures.registry import get_measure
from bertsecrets.models.initialisations import get_initialisation
from bertsecrets.texts.metrics import if_shuffled
from bertsecrets.texts.tasks import TASKS
from bertsecrets.types import Measurement

GIVEN_SAMPLES = ("target", "errors", "cluster")  # samples that do not come from the subject
ENOUGH_EXAMPLES = 100  # examples; fewer are not enough to detect a model that learned nothing
LEARNED_ERRORS = 1.645  # standard errors above chance that count as having learned (5 %, one-sided)
VARIED_SHARE = 0.05  # minimum fraction of predictions outside the most frequent class for non-constant output
COLLAPSED_SHARE = 0.1  # the same, for seeds that predict no better than chance
ERRORS_PER_FLIP = 50  # errors per differing prediction that indicate a copy; real seeds have far fewer
FEWEST_ERRORS = 25  # with fewer, the predicted classes of two good models may agree by chance
COPY_TOLERANCE = 1e-6  # largest difference of logits, attention or other numbers of a copy


@dataclass(frozen=True)
class Usable:
    """The usable seeds.

    Args:
        by_seed: Measurements of each usable seed.
        notes: Notes for the verdict: the excluded seeds, and the seeds that learned nothing but still count.
        few: Reason for not deciding the claim, if too few seeds learned something.
        problem: Reason why these seeds cannot be judged, if any.
        more: Whether more seeds could solve the problem.
    """

    by_seed: Sequence[OfSeed]
    notes: Sequence[str] = ()
    few: Cause | None = None
    problem: Cause | None = None
    more: bool = False


def usable(by_seed: Sequence[OfSeed]) -> Usable:
    """Return the usable seeds. For each seed, `by_seed` has the named measurements that the claim's quantity needs."""
    used: list[OfSeed] = []
    problems: dict[str, list[str]] = {"left out": [], "counted nevertheless": []}
    for needed in by_seed:
        counts = not (problem := seed_problem(needed, several=len(by_seed) > 1)) or is_result(all_of(needed))
        if counts and not is_result(states_of(needed)):
            counts, problem = False, seed_problem({"scores": states_of(needed)}, several=len(by_seed) > 1)
        used += [needed] if counts else []
        problems["counted nevertheless" if counts else "left out"] += [problem] if problem else []
    notes = [f"{len(seeds)} {what}: {', '.join(seeds)}" for what, seeds in problems.items() if seeds]
    learned = len(used) - len(problems["counted nevertheless"])
    if learned < FEWEST_SEEDS and learned < len(by_seed) - learned:
        reason = Grounds.SEEDS_FAILED if len(by_seed) > 1 else Grounds.SEED_FAILED
        text = ", ".join([*problems["left out"], *problems["counted nevertheless"]])
        cause = reason(failed=len(by_seed) - learned, seeds=len(by_seed), problems=text)
        few = {"few": cause} if learned else {"problem": cause, "more": len(by_seed) < FEWEST_SEEDS}
        return Usable(used, **few)
    for seed, other in combinations(used, 2):
        for first, second in zip(all_of(seed), all_of(other), strict=True):
            if first.subject != second.subject and is_copy(first, second):
                return Usable(used, notes, problem=Grounds.COPIES(first=first.subject, second=second.subject))
    return Usable(used, notes)


def check_same_rows(measurements: Sequence[Measurement]) -> None:
    """Check that all of a case's measurements on a task, and all its checkpoints, have the same rows and settings.

    Different measures are compared only if both measure attention, because only these measures use the same rows.

    Raises:
        UserError: If two measurements or two checkpoints differ.
    """
    known: dict[tuple[str, str, str], tuple[Measurement, Any]] = {}
    for measurement in measurements:
        subject, recorded = measurement.subject, measurement.provenance
        of_attention = get_measure(measurement.measure).section == "attention"
        compared = "attention" if of_attention else measurement.measure
        facts: dict[tuple[str, str], Any] = {
            (compared, "examples"): measurement.examples,
            (compared, "data"): (recorded.data_fingerprint or "unknown")[:12],
            (compared, "limit"): recorded.limit or "all rows",
            **{(compared, f"setting {name}"): value for name, value in measurement.settings.items()},
        }
        if get_initialisation(subject.initialisation).trains:
            facts["", "train_limit"] = recorded.train_limit or "all rows"
            if isinstance(trained := (recorded.training or {}).get("settings"), dict):
                facts |= {("", f"setting {name}"): value for name, value in trained.items()}
        for (of, name), fact in facts.items():
            first, first_fact = known.setdefault((of, name, subject.task), (measurement, fact))
            if fact != first_fact:
                raise UserError(
                    f"{first.measure} of {first.subject} and {measurement.measure} of {subject} differ in {name} "
                    f"({excerpt(first_fact, 60)} and {excerpt(fact, 60)}): measure both in the same way"
                )


def seed_problem(needed: OfSeed, *, several: bool = True) -> str:
    """Describe the first of a seed's subjects that collapsed or learned nothing; return "" if none did.

    If there are `several` seeds, name the seed. If its subjects differ in task or initialisation, name these as well.
    """
    subjects = [measurement.subject for measurement in all_of(needed)]
    initialisations, tasks = {subject.initialisation for subject in subjects}, {subject.task for subject in subjects}
    for measurement in all_of(needed):
        problem = get_measure(measurement.measure).degenerate(measurement) or not_learned(measurement)
        if problem:
            own = measurement.subject
            where = [f"seed {own.seed}"] if several else []
            where += [get_initialisation(own.initialisation).label] if len(initialisations) > 1 else []
            where += [TASKS[own.task].title] if len(tasks) > 1 else []
            return f"{', '.join(where)} ({problem})" if where else problem
    return ""


def is_result(measurements: Sequence[Measurement]) -> bool:
    """Return whether a seed counts even if it learned nothing, because only scores are judged and its outputs vary."""
    return all(
        measurement.measure == "scores"
        and not get_measure("scores").degenerate(measurement)
        and (not not_learned(measurement) or _varied(measurement.samples["predicted"], COLLAPSED_SHARE))
        for measurement in measurements
    )


def not_learned(measurement: Measurement) -> str:
    """Return a message if a fine-tuned model predicts no better than chance. Otherwise, the message is empty.

    Accuracy must be `LEARNED_ERRORS` standard errors above its expected value for shuffled predictions. A correlation
    must be `LEARNED_ERRORS` standard errors above 0. The check is skipped for small samples, for models that are not
    fine-tuned from pretrained weights, and for modified inputs.
    """
    samples = measurement.samples
    predicted, target = samples.get("baseline_predicted", samples.get("predicted")), samples.get("target")
    tuned = measurement.subject.initialisation == "pretrained"
    if predicted is None or target is None or not tuned or has_modified_inputs(measurement):
        return ""
    if len(target) < ENOUGH_EXAMPLES or predicted.shape != target.shape or np.ptp(target) == 0:
        return ""
    if TASKS[measurement.subject.task].regression:
        varied = np.ptp(predicted) > 0
        learned = varied and np.corrcoef(predicted, target)[0, 1] > LEARNED_ERRORS / np.sqrt(len(target))
    else:
        expected, error = if_shuffled(np.eye(TASKS[measurement.subject.task].outputs), predicted, target)
        learned = (predicted == target).sum() - 0.5 > expected + LEARNED_ERRORS * error
    return "" if learned else "has learned nothing: its predictions are no better than chance"


def has_modified_inputs(measurement: Measurement) -> bool:
    """Return whether the model was measured on modified inputs or with heads disabled."""
    return any(measurement.options.get(name) for name in ("cased", "shuffle", "heads"))


def is_copy(measurement: Measurement, other: Measurement) -> bool:
    """Return whether two trained subjects are too similar to come from independent training runs.

    Predicted classes are compared only if they vary and contain enough errors: two collapsed seeds, or two good models,
    may agree. Runs on a frozen encoder can be very similar, so they are rejected only if their numbers are identical.
    Runs on modified inputs, such as cased text for an uncased vocabulary, may agree and are never rejected.
    """
    initialisation = get_initialisation(measurement.subject.initialisation)
    if not initialisation.trains or has_modified_inputs(measurement):
        return False
    names = [name for name in measurement.samples if name not in GIVEN_SAMPLES and name in other.samples]
    pairs = [(measurement.samples[name], other.samples[name]) for name in names]
    real = [pair for pair in pairs if pair[0].dtype.kind == "f"]
    dust = COPY_TOLERANCE if initialisation.trains_encoder else 0.0
    if real:
        return all(np.allclose(first, second, rtol=0, atol=dust, equal_nan=True) for first, second in real)
    target = measurement.samples.get("target")
    if target is None or not any(_varied(first) and _varied(second) for first, second in pairs):
        return False
    errors = sum(int((first != target).sum()) for first, _ in pairs)
    flips = sum(int((first != second).sum()) for first, second in pairs)
    allowed = max(1, errors // ERRORS_PER_FLIP) if initialisation.trains_encoder else 0
    return errors >= FEWEST_ERRORS and flips <= allowed


def _varied(answers: np.ndarray, least: float = VARIED_SHARE) -> bool:
    _, counts = np.unique(answers, return_counts=True)
    return bool(1 - counts.max() / answers.size > least)
