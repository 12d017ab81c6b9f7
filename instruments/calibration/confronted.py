"""Assumptions of the simulated model, and checks against measured models in `expected/evidence`."""

import json
import re
from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass
from functools import cache, partial
from pathlib import Path

import numpy as np

from bertsecrets.claims.loading import cases
from bertsecrets.claims.quantities import QUANTITIES
from bertsecrets.claims.requirements import reads_model
from bertsecrets.claims.schema import Case
from bertsecrets.compare.changes import read_verdicts_file
from bertsecrets.errors import NotApplicableError, UserError
from bertsecrets.formats import VerdictData
from bertsecrets.models.initialisations import get_initialisation
from bertsecrets.reading import read_text
from bertsecrets.settings import project_path
from bertsecrets.texts.tasks import TASKS
from bertsecrets.types import Subject
from instruments.calibration import truth
from instruments.calibration.procedures import read_seed
from instruments.calibration.targets import true_value
from instruments.calibration.worlds import MODEL, Setting, SimulatedModel, find_world

FEWEST = 3  # minimum number of seeds for a measured spread
LARGEST_FACTOR = 3.0  # maximum ratio of measured and assumed spreads, as in the worlds `spread-3` and `spread-third`
SIMULATED_SEEDS, SIMULATED_WORLDS = 5, 2
UNLIKELY = 0.005  # probability below which the number of constant seeds on record is unlikely
ANSWERS_BYTES = 2**16
LEARNED = ("minilm", "mpnet")  # models with pretrained weights


@dataclass(frozen=True)
class Assumption:
    """An assumption about what K19 did not publish.

    Args:
        check: The check of the assumption against evidence on record, or `none`.
        why_none: Why nothing checks the assumption, if nothing does.
    """

    text: str
    check: str = "none"
    why_none: str = ""


DEFINITION = "it defines what *as published* means"
_WORST = "the worst head costs other encoders several times as much"
NOT_COMPARABLE = {"worst-head-gain": _WORST, "worst-head-gain-in-sample": _WORST}  # spreads
NOT_RECORDED = "none is recorded"
SPREADS = {  # measures whose assumed spreads over seeds are checked together
    "spreads of scores": ("scores",),
    "spreads of maps": ("attention-change", "special-tokens", "features", "relations", "patterns"),
    "spreads of gains": ("head-ablation", "layer-ablation"),
}
OTHER_ENCODERS = "K19 says it of BERT-base; other encoders may differ"
ASSUMPTIONS = (
    Assumption(
        "Fine-tuned scores vary over seeds as P20's five seeds do. Standard deviations with random weights: 1.6 points "
        "on RTE, 1.1 on MRPC, 1.5 on SST-2, otherwise 1; with a frozen encoder: 2 on RTE, .6 on SST-2, otherwise .5; "
        "of the loss from cased tokenization: 1.9 on RTE, .8 on MRPC, .9 on STS-B, otherwise .3.",
        "spreads of scores",
    ),
    Assumption(
        "Where table 1 has the score of a constant answer, half of the untrained classifiers give one answer to every "
        "row. The other half give a random mixture that is independent of the correct answer. Elsewhere, untrained "
        "classifiers have table 1's score. A trained model for which table 1 has the score of a constant answer gives "
        "this answer on nearly all rows. Some give it on every row: of the models with random weights, a tenth on RTE "
        "and a quarter on MRPC; of those with a frozen encoder, all on MRPC.",
        "constant answers",
    ),
    Assumption(
        "Two seeds give different answers to 13% of the rows on RTE, and to 4 to 8% on other tasks.",
        "answers that differ",
    ),
    Assumption("Disabling a head, or cased tokenization, changes about 1% of the answers.", why_none=NOT_RECORDED),
    Assumption(
        "Standard deviations over seeds of attention maps: of similarity, .012 per layer (.03 in the last two) and .04 "
        "per head; of attention, .008 per layer and .025 per head; of attention to [SEP], .008 for a shift of all "
        "heads below the last two layers; of shares of classes, 2 points (less for rare classes). These values are for "
        "RTE and SST-2; they are 2.5 times as large on MRPC and STS-B, and twice as large elsewhere. Over seeds, the "
        "layers and heads of figures 5 and 6 vary no more than they differ within the task's figure, which shows one "
        "run.",
        "spreads of maps",
    ),
    Assumption(
        "Standard deviations over seeds of gains, in points: of a shift of all heads, .5 on RTE, otherwise .2; of one "
        "head, .5 on MRPC and STS-B, .4 on SST-2; of a layer, 2 on RTE, 1 on MRPC. On other tasks, the value for a "
        "head or layer is half of the standard deviation in figure 8 or 9, but at least .2 for a head and .5 for a "
        "layer. Neither exceeds the standard deviation in its figure.",
        "spreads of gains",
    ),
    Assumption(
        "Three quarters of a head's maps have its class, and 70% of the heads keep their class on another task.",
        "steadiness of classes",
    ),
    Assumption("For the heads that are best at a relation, 90% of the maps are diagonal.", "diagonal heads"),
    Assumption("Cropped maps change .6 times as much as padded ones (figure 5).", "cropped maps"),
    Assumption(
        "Figures 5, 6, 8 and 9 and table 1 are the truth on K19's own validation rows, with the noise of these rows.",
        why_none=DEFINITION,
    ),
    Assumption(
        "Figures 8 and 9 share a baseline: .882 on MRPC, .890 on STS-B, .585 on RTE, elsewhere the median of figure 8.",
        why_none=DEFINITION,
    ),
    Assumption(
        "Cased tokenization costs P20's accuracy minus table 1's; on SST-2, it costs nothing.", why_none=DEFINITION
    ),
    Assumption("Fine-tuning changes the shares of figure 2 as it changes P20's.", why_none=DEFINITION),
    Assumption(
        'In the example sentence, "agitated" attends to "he" with .6, more than any other token, as K19\'s text says.',
        why_none=OTHER_ENCODERS,
    ),
    Assumption(
        "Attention to [SEP] grows by .03 in the last two layers, except on QQP, for which the notebook has both maps.",
        why_none=OTHER_ENCODERS,
    ),
    Assumption(
        "In the last layer, [CLS] attends to punctuation .03 more than to the best other kind on STS-B, RTE and QNLI; "
        "elsewhere, it attends to punctuation half as much as to [SEP].",
        why_none=OTHER_ENCODERS,
    ),
    Assumption(
        "On every task, attention to words, and what it is compared with, is as in the notebook's QQP maps.",
        why_none=OTHER_ENCODERS,
    ),
    Assumption(
        "The two [SEP] tokens of a pair together get twice the attention of the more attended one.",
        why_none=NOT_RECORDED,
    ),
    Assumption(
        "Stripes on tokens other than [CLS] and [SEP] are 8% of the maps: heterogeneous under one reading, vertical "
        "under the other.",
        why_none=OTHER_ENCODERS,
    ),
    Assumption(
        "The classifier errs on the model as it does on one of the annotated encoders that it was not trained on, the "
        "same on every task and before fine-tuning.",
        why_none="the errors are drawn from those on record",
    ),
    Assumption(
        "Given the correct answer, the answers of a constant classifier and of a fine-tuned model are independent.",
        why_none=NOT_RECORDED,
    ),
)


@cache
def on_record() -> Mapping[tuple[str, str], VerdictData]:
    """Return the newest verdict on each model and case in `expected/evidence`."""
    files = (project_path("expected") / "evidence").glob("verdicts-*.json")
    runs = sorted((read_verdicts_file(Path(file)) for file in files), key=lambda run: run.made)
    return {(run.model, verdict.id): verdict for run in runs for verdict in run.verdicts}


@cache
def spread_ratios(*measures: str) -> list[tuple[str, float]]:
    """Return (quantity, ratio) for every simulated case of some measures with several seeds of a pretrained model.

    The ratio is the measured spread over seeds, divided by the spread of the simulated model as published.
    """
    every = [case for case in cases() if case.claim.family in "ACDEFG" and not case.claim.on_request]
    every = [case for case in every if next(iter(QUANTITIES[case.claim.quantity].needs.values())).measure in measures]
    comparable = {str(case): case for case in every if case.claim.quantity not in NOT_COMPARABLE and reads_model(case)}
    worlds = [SimulatedModel(find_world("as-published"), Setting(), 1, place) for place in range(SIMULATED_WORLDS)]
    ratios = []
    for (model, name), verdict in on_record().items():
        if model not in LEARNED or name not in comparable or len(verdict.by_seed) < FEWEST:
            continue
        measured = _spread(np.array(verdict.by_seed, dtype=float))
        if measured and (simulated := over_seeds(comparable[name], worlds)):
            ratios.append((comparable[name].claim.quantity, measured / simulated))
    return ratios


def over_seeds(case: Case, worlds: Sequence[SimulatedModel]) -> float | None:
    """Return the spread over seeds of a model in some worlds, or None if it cannot be computed or is 0."""
    squares = []
    for model in worlds:
        try:
            parts = [read_seed(case, model, seed).parts for seed in range(1, SIMULATED_SEEDS + 1)]
        except (NotApplicableError, UserError):
            return None
        squares.append((_spread(np.array(parts)) or 0.0) ** 2)
    return float(np.sqrt(np.mean(squares))) or None


def _spread(by_seed: np.ndarray) -> float | None:
    """Return the root mean square over parts of the standard deviation over seeds, or None if it is 0 or unknown."""
    spread = float(np.sqrt(np.mean(by_seed.var(0, ddof=1))))
    return spread if np.isfinite(spread) and spread > 0 else None


# ---------------------------------------------------------------------- checks


def _spreads_of(*measures: str) -> list[str]:
    """Return the quantities of some measures whose assumed spread is off by more than `LARGEST_FACTOR`."""
    logs: dict[str, list[float]] = {}
    for quantity, ratio in spread_ratios(*measures):
        logs.setdefault(quantity, []).append(float(np.log(ratio)))
    factors = {name: float(np.exp(np.mean(of))) for name, of in logs.items()}
    most = LARGEST_FACTOR
    return [f"{name}: {factor:.2f} times" for name, factor in factors.items() if not 1 / most < factor < most]


def _constant_answers() -> list[str]:
    """Return the cells of table 1 for which the number of constant seeds on record is unlikely under the assumption."""
    from scipy.special import bdtr, bdtrc

    found = []
    for (task, initialisation), (constant, seeds) in constant_seeds().items():
        share = truth.constant_share(task, initialisation)
        few, many = float(bdtr(constant, seeds, share)), float(bdtrc(constant - 1, seeds, share)) if constant else 1.0
        if min(few, many) < UNLIKELY:
            found.append(f"{initialisation} on {task}: {constant} of {seeds} seeds, assumed {share:.0%}")
    return found


def constant_seeds() -> dict[tuple[str, str], tuple[int, int]]:
    """Return how many recorded seeds give a constant answer, and their total, by task and initialisation.

    If a file does not say how many of a claim's seeds do, those that score like a constant answer are counted.
    """
    counted: dict[tuple[str, str], tuple[int, int]] = {}
    for (_, name), verdict in on_record().items():
        initialisation = name.rpartition("-")[2]
        if not name.startswith("D1-") or initialisation not in ("untrained", "random", "frozen"):
            continue
        if TASKS[verdict.task].regression or verdict.published is None or not verdict.by_seed:
            continue
        counts = np.array(list(TASKS[verdict.task].dev_counts.values()))
        scores = np.array(verdict.by_seed, dtype=float)[:, :1]
        alike = int(np.isclose(scores, 100 * counts / counts.sum(), atol=1e-6).any(1).sum())
        labels = (f"({get_initialisation(initialisation).label})", f"predictor ({initialisation})")  # now and earlier
        remarks = [each for each in verdict.remarks if each.startswith("constant ") and each.endswith(labels)]
        numbers = [int(stated[1]) if (stated := re.search(r"on (\d+) of", each)) else alike for each in remarks]
        constant, seeds = counted.get((verdict.task, initialisation), (0, 0))
        counted[verdict.task, initialisation] = constant + sum(numbers), seeds + len(scores)
    return counted


def _differing_answers() -> list[str]:
    """Return the tasks on which two recorded seeds differ in far more or far fewer answers than two simulated seeds."""
    file = project_path("expected") / "evidence" / "answers-minilm.json"
    found = []
    for task, record in json.loads(read_text(file, ANSWERS_BYTES))["tasks"].items():
        model = SimulatedModel(find_world("as-published"), Setting(), 1, 0)
        subjects = (Subject(MODEL, task, "pretrained", seed) for seed in (1, 2))
        one, other = (model.measurement("scores", subject).sample("predicted") for subject in subjects)
        simulated = float((one != other).mean())
        if not 1 / 2 < record["differ"] / simulated < 2:
            found.append(f"{task}: {record['differ']:.1%} of the answers differ, simulated {simulated:.1%}")
    return found


def _values(name: str, off: float) -> list[str]:
    """Return a message if a claim's value differs from the simulated value on average over models and tasks."""
    own = {str(case): case for case in cases() if case.claim.name == name}
    gaps = [
        verdict.observed - value
        for (model, case), verdict in on_record().items()
        if model in LEARNED and case in own and verdict.observed is not None
        if (value := true_value(own[case], Setting())) is not None
    ]
    mean = float(np.mean(gaps))
    return [f"{name}: {mean:+.1f} on average"] if abs(mean) > off else []


def _cropped_maps() -> list[str]:
    """Return a message if the last two layers' lead without padding, relative to padded maps, is not as assumed."""
    ratios = [
        verdict.observed / padded.observed
        for (model, name), verdict in on_record().items()
        if model == "minilm" and name.startswith("C1-") and verdict.observed
        if (padded := on_record().get((model, name.replace("C1-", "C1p-")))) and padded.observed
    ]
    mean = float(np.mean(ratios))
    return [] if abs(mean - truth.CROPPED) < 0.1 else [f"{mean:.2f} times"]


CHECKS: Mapping[str, Callable[[], list[str]]] = {
    **{name: partial(_spreads_of, *measures) for name, measures in SPREADS.items()},
    "constant answers": _constant_answers,
    "answers that differ": _differing_answers,
    "steadiness of classes": lambda: _values("A3-across-examples", 10),
    "diagonal heads": lambda: _values("F1", 15),
    "cropped maps": _cropped_maps,
}
