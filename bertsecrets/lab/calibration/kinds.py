"""The kinds of claims, each with one of the paper's cases and a simulation of its measurements."""

from collections.abc import Callable, Mapping
from dataclasses import dataclass, replace
from functools import cache, partial

import numpy as np
from jaxtyping import Float

from bertsecrets.claims.estimand import Estimand
from bertsecrets.claims.quantities import QUANTITIES
from bertsecrets.claims.quantities.words import LINGUISTIC
from bertsecrets.claims.quantity import Needed
from bertsecrets.claims.readings import under
from bertsecrets.claims.schema import Case, find_case
from bertsecrets.errors import UserError, near_matches
from bertsecrets.lab.calibration.worlds import MODEL, Drawn, Exam, World, crossed, levels, measured, mixed
from bertsecrets.patterns.classes import CLASSES
from bertsecrets.texts.metrics import accuracy, moments, pearson, positive_f1
from bertsecrets.texts.published import published_figures
from bertsecrets.texts.tasks import ALL_TASKS, TASKS
from bertsecrets.types import Measurement, Subject

Draw = Callable[[World, np.random.Generator], Drawn]
RUNS = 5  # seeds that a cited spread comes from
FURTHER = 100  # runs at evenly spaced levels, to compute the expected score on given rows


@dataclass(frozen=True)
class Kind:
    """A kind of claim.

    Args:
        effects: effect sizes by name: `none` (the quantity is at its threshold, or the model is as good as the
            paper's), `half` of the published effect, `published`, and for figures `off` (a worse model) and `nothing`
            (a model that has learned nothing).
        due: whether effects of the published size must be recognised with the task's number of examples.
        conservative: no exact interval exists; the coverage may exceed its nominal value.
        ratios: the relative spreads over seeds to simulate.
    """

    name: str
    case: Case
    draw: Draw
    effects: Mapping[str, float]
    due: bool = False
    conservative: bool = False
    ratios: tuple[float, ...] = (0.0, 0.5, 1.0)

    @property
    def around(self) -> bool:
        """Whether the claim is a published figure."""
        assert self.case.claim.expect is not None
        return self.case.claim.expect.kind == "around"

    @property
    def nothing(self) -> str:
        """The effect for which `reproduced` is false."""
        return "nothing" if self.around else "none"

    @property
    def recognised(self) -> str:
        """The correct outcome if the effect has the published size, or if the model is worse."""
        return "deviates" if self.around else "reproduced"

    def read(self, needed: Mapping[str, Needed]) -> Estimand:
        """Return the quantity of one seed."""
        assert self.case.claim.quantity is not None
        return QUANTITIES[self.case.claim.quantity].read(needed, **self.case.claim.arguments)


# ---------------------------------------------------------------------- means over examples


def growth(world: World, rng: np.random.Generator, scale: float = 0.02) -> Drawn:
    """Attention to [SEP] that grows by the effect in the last two layers through fine-tuning."""
    before = np.full((world.examples, 3, 1), 0.5)
    last = np.array([0, 1, 1])[:, None]
    grown = world.effect + scale * crossed(rng, world)
    by_seed = [
        {
            "after": measured("special-tokens", "rte", seed, {"sep": before + last * of_seed[:, :, None]}),
            "before": measured("special-tokens", "rte", seed, {"sep": before}, "untrained"),
        }
        for seed, of_seed in enumerate(grown, start=1)
    ]
    return Drawn(by_seed, world.effect)


def change(world: World, rng: np.random.Generator, scale: float = 0.03, separation: float = 0.0) -> Drawn:
    """Six layers that change, the last two more than the others by the effect.

    Args:
        separation: how far the fourth layer's similarity is below that of the first three, and the sixth's below the
            fifth's; 0 for ties.
    """
    level = np.array([separation, separation, separation, 0.0, 0.0, -separation])
    level[-2:] -= world.effect
    cosine = 0.5 + level + scale * crossed(rng, world, 6, correlation=0.5)
    by_seed = [
        {"change": measured("attention-change", "rte", seed, {"cosine": of_seed[:, :, None]})}
        for seed, of_seed in enumerate(cosine, start=1)
    ]
    return Drawn(by_seed, -world.effect)


def frames(world: World, rng: np.random.Generator, scale: float = 0.15, tied: int = 1, share: float = 1.0) -> Drawn:
    """Frame heads of a bare encoder: two heads lead over `tied` others; the rest are far below.

    Args:
        share: the effect as a share of that lead.
    """
    weights = np.full(144, 0.05)
    weights[6 * 12 + 5], weights[1] = 0.209, 0.201  # layer 7 head 6, layer 1 head 2
    weights[60 : 60 + tied] = 0.201 - world.effect / share
    seen = weights + scale * np.sqrt(weights / 0.2) * rng.normal(size=(world.examples, 144))
    return Drawn(
        [{"frames": measured("frame-heads", ALL_TASKS, 1, _frame_samples(seen.reshape(-1, 12, 12)), "untrained")}],
        world.effect,
    )


def _frame_samples(weights: Float[np.ndarray, "sentences layers heads"]) -> dict[str, np.ndarray]:
    names = ("max_weight", "max_weight_zipped", "max_weight_reverse", "max_weight_zipped_reverse")
    return dict.fromkeys(names, weights)


def ratio(world: World, rng: np.random.Generator, scale: float = 0.05) -> Drawn:
    """Attention to features relative to [SEP]: the best head for nouns against the best one for [SEP]."""
    kinds = ("cls", "sep", "noun", "verb", "pronoun", "subject", "object", "negation")
    limit, heads = 0.5, 4
    level = np.full((len(kinds), heads), 0.05)
    level[0, 0], level[1, 1], level[2, 2] = 0.7, 0.5, 0.5 * (limit - world.effect)
    seen = level.ravel() + scale * crossed(rng, world, level.size)
    seen = seen.reshape(world.seeds, world.examples, len(kinds), 2, heads // 2)
    by_seed = [
        {"features": measured("features", "rte", seed, {kind: of_seed[:, i] for i, kind in enumerate(kinds)})}
        for seed, of_seed in enumerate(seen, start=1)
    ]
    return Drawn(by_seed, _expected_ratio(replace(world, examples=0, seeds=0), scale, limit))


@cache
def _expected_ratio(world: World, scale: float, limit: float) -> float:
    moved = scale * world.ratio * np.random.default_rng(0).normal(size=(200_000, 2))
    return float(((0.5 * (limit - world.effect) + moved[:, 0]) / (0.5 + moved[:, 1])).mean())


def best_growth(world: World, rng: np.random.Generator, scale: float = 0.1) -> Drawn:
    """Attention to nouns and objects that grows by the effect in one of six heads only, and to no other words."""
    heads = 6
    by_kind = {}
    for kind in ("noun", "object"):
        grown = scale * crossed(rng, world, heads, common=True)
        grown[:, :, 2] += world.effect
        by_kind[kind] = grown.reshape(world.seeds, world.examples, 2, heads // 2)
    nothing = dict.fromkeys(LINGUISTIC, np.zeros((world.examples, 2, heads // 2)))
    by_seed = [
        {
            "after": measured(
                "features", "rte", seed + 1, nothing | {kind: grown[seed] for kind, grown in by_kind.items()}
            ),
            "before": measured("features", "rte", seed + 1, nothing, "untrained"),
        }
        for seed in range(world.seeds)
    ]
    return Drawn(by_seed, 0.0 if world.effect == 0 else None)


def whole_figure(world: World, rng: np.random.Generator, scale: float = 0.1) -> Drawn:
    """A map of all heads between two panels of figure 5: midway without an effect, the task's own at effect 0.5."""
    seen = _between_panels(world.effect) + scale * crossed(rng, world, 144, correlation=0.3)
    by_seed = [
        {"change": measured("attention-change", "rte", seed, {"cosine": of_seed.reshape(-1, 12, 12)})}
        for seed, of_seed in enumerate(seen, start=1)
    ]
    return Drawn(by_seed, _expected_likeness(world.effect, scale * world.ratio))


@cache
def _between_panels(effect: float) -> Float[np.ndarray, " heads"]:
    """Return a mixture of RTE's panel, with weight 0.5 plus the effect, and QNLI's."""
    own, other = (np.array(published_figures()["fig5_cosine"][name]).ravel() for name in ("RTE", "QNLI"))
    ours, theirs = ((panel - panel.mean()) / panel.std() for panel in (own, other))
    return own.mean() + own.std() * ((0.5 + effect) * ours + (0.5 - effect) * theirs)


@cache
def _expected_likeness(effect: float, moved: float) -> float:
    """Return the quantity's mean over many seeds that each shift every head."""
    level = _between_panels(effect)
    maps = level + moved * np.random.default_rng(0).normal(size=(4000, 144))
    found = measured("attention-change", "rte", 1, {"cosine": level.reshape(1, 12, 12)})
    likeness = QUANTITIES["figure-5-correlation"].read({"change": found})
    return float(np.mean(likeness.statistic(maps), axis=0).min())


def shares(world: World, rng: np.random.Generator, scale: float = 0.05, of_head: float = 0.2) -> Drawn:
    """A class's share, below one half by the effect, as a classifier with errors on some heads estimates it.

    Args:
        of_head: the standard deviation over heads of its errors.
    """
    chosen, annotated, heads = CLASSES.index("heterogeneous"), 360, 72
    truth = 0.5 - world.effect / 100
    errors = of_head * rng.normal(size=(annotated, 1)) + 0.05
    own_error = (of_head * rng.normal(size=heads) + 0.05).mean()  # of this model's heads, whatever the seed
    seen = truth - own_error + scale * crossed(rng, world)[:, :, 0]

    def spread_out(values: np.ndarray) -> np.ndarray:
        rest = np.repeat(values[..., None], len(CLASSES), axis=-1) / (1 - len(CLASSES))
        rest[..., chosen] = values
        return rest

    by_seed = []
    for seed, of_seed in enumerate(seen, start=1):
        expected = spread_out(of_seed) + np.where(np.arange(len(CLASSES)) == chosen, 0, 1 / (len(CLASSES) - 1))
        samples = {
            "special_predicted": np.zeros((world.examples, 6, 12), dtype=np.int8),
            "special_expected": expected,
            "special_errors": spread_out(errors[:, 0]),
        }
        by_seed.append({"patterns": measured("patterns", "rte", seed, samples)})
    return Drawn(by_seed, 100 * truth)


# ---------------------------------------------------------------------- scores


METRIC = {"accuracy": accuracy, "f1": positive_f1, "pearson": pearson}


def score_gap(
    world: World, rng: np.random.Generator, task: str = "rte", base: float = 52.7, spread: float = 2.77
) -> Drawn:
    """Scores of pretrained and random weights on the same rows, which differ by the effect."""
    count = world.seeds + RUNS
    exam = Exam.drawn(rng, world.examples, 50)
    other = Exam(mixed(exam.hardness, rng.normal(size=world.examples), 0.5), exam.target)
    ours = exam.answers(exam.luck(rng, count), levels(rng, base + world.effect, spread * world.ratio, count))
    theirs = other.answers(other.luck(rng, count), levels(rng, base, spread * world.ratio, count))
    runs = [
        {
            "own": measured("scores", task, seed, {"predicted": a, "target": exam.target}),
            "other": measured("scores", task, seed, {"predicted": b, "target": exam.target}, "random"),
        }
        for seed, (a, b) in enumerate(zip(ours, theirs, strict=True), start=1)
    ]
    return Drawn(runs[: world.seeds], world.effect, runs[world.seeds :])


def figure(
    world: World,
    rng: np.random.Generator,
    task: str = "rte",
    metric: str = "accuracy",
    level: float = 64.6,
    spread: float = 2.77,
    positive: float = 52.7,
) -> Drawn:
    """A published score: one more run on the same validation set, of a model that is better by the effect.

    Args:
        level: the paper's score: accuracy, or a correlation.
        positive: percentage of class 1.
    """
    from scipy.special import ndtri

    rows = max(world.examples, TASKS[task].dev_rows)
    exam = Exam.drawn(rng, rows, positive)
    target = 2.5 + rng.normal(size=rows) if metric == "pearson" else exam.target

    def runs(found: np.ndarray) -> np.ndarray:
        luck = exam.luck(rng, len(found))
        if metric != "pearson":
            return exam.answers(luck, found)
        r = np.clip(found, 1, 99)[:, None] / 100
        return 2.5 + r * (target - 2.5) + np.sqrt(1 - r**2) * luck

    def needed(predicted: np.ndarray, seed: int, only: int = rows) -> Mapping[str, Needed]:
        samples = {"predicted": predicted[:only], "target": target[:only]}
        kind = "pearson" if metric == "pearson" else "accuracy"
        return {"scores": measured("scores", task, seed, samples, values={kind: 0.0})}

    spread, lower = spread * world.ratio, level - world.effect
    evenly = lower + spread * ndtri((np.arange(FURTHER) + 0.5) / FURTHER)
    ours, paper = runs(levels(rng, lower, spread, world.seeds)), runs(levels(rng, level, spread, RUNS + 1))
    terms = np.stack([moments(metric, predicted, target).mean(0) for predicted in runs(evenly)])
    return Drawn(
        [needed(predicted, seed, world.examples) for seed, predicted in enumerate(ours, start=1)],
        100 * float(np.mean(METRIC[metric](terms))),
        [needed(predicted, 100 + seed) for seed, predicted in enumerate(paper[1:])],
        needed(paper[0], 99),
    )


# ---------------------------------------------------------------------- disabled heads

FLIPPED = 0.01  # share of an answer's variance that losing a head changes: about 4 % of the answers flip


def ablated(
    world: World, rng: np.random.Generator, gains: Float[np.ndarray, "*sets"], measure: str, level: float
) -> list[Mapping[str, Needed]]:
    """Return the predictions with each of some heads disabled, per seed; a seed shifts all gains equally."""
    exam = Exam.drawn(rng, world.examples, 52.7)
    scores = levels(rng, level, 2.77 * world.ratio, world.seeds)
    moved, lucks = world.ratio * rng.normal(size=world.seeds), exam.luck(rng, world.seeds)
    found: list[Mapping[str, Needed]] = []
    for seed, (score, luck) in enumerate(zip(scores, lucks, strict=True), start=1):
        without = mixed(luck, rng.normal(size=(gains.size, world.examples)), FLIPPED)
        samples = {
            "predicted": exam.answers(without, score + moved[seed - 1] + gains.ravel()),
            "baseline_predicted": exam.answers(luck[None], np.array([score]))[0],
            "target": exam.target,
        }
        right = 100 * (samples["predicted"] == exam.target).mean(1).reshape(gains.shape)
        subject = Subject(MODEL, "rte", "pretrained", seed)
        found.append({"ablation": Measurement(measure, subject, world.examples, {"score": right}, samples)})
    return found


def best_head(world: World, rng: np.random.Generator) -> Drawn:
    """Twelve heads: disabling one of them raises the score by the effect, disabling the others changes nothing."""
    gains = np.zeros((2, 6))
    gains[1, 1] = world.effect
    return Drawn(ablated(world, rng, gains, "head-ablation", 64.6), 0.0 if world.effect == 0 else None)


def mean_of_heads(world: World, rng: np.random.Generator) -> Drawn:
    """Twelve heads: disabling any of them raises the score by the effect."""
    return Drawn(ablated(world, rng, np.full((2, 6), world.effect), "head-ablation", 64.6), world.effect)


def first_layer(world: World, rng: np.random.Generator) -> Drawn:
    """Layers, of which disabling the first raises the score by the effect."""
    return Drawn(ablated(world, rng, np.array([world.effect]), "layer-ablation", 58.5), world.effect)


def lesser_of_two(world: World, rng: np.random.Generator) -> Drawn:
    """Two heads whose loss costs as much as the claim allows, or less by the effect."""
    limit = -0.5
    runs = ablated(world, rng, np.full((1, 2), limit + world.effect), "head-ablation", 64.6)
    sentences = _frame_samples(np.full((1, 1, 2), 0.2))
    frames = measured("frame-heads", ALL_TASKS, 1, sentences, "untrained")
    return Drawn([{**run, "frames": frames} for run in runs], limit + world.effect)


# ---------------------------------------------------------------------- all kinds


@cache
def kinds() -> Mapping[str, Kind]:
    """Return the kinds of claims by name."""
    gap_on_mrpc = partial(score_gap, task="mrpc", base=68.3, spread=0.77)
    on_mrpc = partial(figure, task="mrpc", level=82.3, spread=0.77, positive=68.3)
    on_stsb = partial(figure, task="stsb", metric="pearson", level=82.7, spread=0.44)
    seedless = partial(Kind, ratios=(0.0,))
    separated, percentile = partial(change, separation=0.2), partial(frames, tied=2, share=0.43)

    def orders(published: float, half: bool = False) -> dict[str, float]:
        return {"none": 0, **({"half": published / 2} if half else {}), "published": published}

    found = [
        Kind("attention", find_case("C3-rte"), growth, orders(0.07), due=True),
        Kind("layers that tie", find_case("C1-rte"), change, orders(0.25), due=True, conservative=True),
        Kind("layers", find_case("C1-rte"), separated, orders(0.25), due=True, conservative=True),
        Kind("score difference", find_case("D3-rte"), score_gap, orders(11.9, half=True), due=True),
        Kind("score difference (MRPC)", find_case("D3-mrpc"), gap_on_mrpc, orders(14, half=True), due=True),
        Kind("score figure", find_case("D1-rte-pretrained"), figure, {"none": 0, "nothing": 11.9}, due=True),
        Kind("score figure (MRPC)", find_case("D1-mrpc-pretrained"), on_mrpc, {"none": 0, "off": 6}, due=True),
        Kind("F1 figure", find_case("D1-mrpc-pretrained-f1"), partial(on_mrpc, metric="f1"), {"none": 0, "off": 6}),
        Kind("correlation figure", find_case("D1-stsb-pretrained"), on_stsb, {"none": 0, "off": 6}),
        Kind("share of patterns", under(find_case("A4-rte-half"), "special"), shares, orders(15, half=True), due=True),
        Kind("best head", find_case("G1-mrpc"), best_head, orders(1.2)),
        Kind("mean of heads", find_case("G2-rte"), mean_of_heads, orders(1.2)),
        Kind("first layer", find_case("G4-rte"), first_layer, orders(3.2, half=True)),
        Kind("lesser of two heads", find_case("B4-rte-own"), lesser_of_two, orders(0.5), conservative=True),
        Kind("ratio", find_case("E4-rte"), ratio, orders(0.18), conservative=True),
        Kind("growth of the best head", find_case("E3-rte"), best_growth, orders(0.053), conservative=True),
        Kind("whole figure", find_case("C4-rte"), whole_figure, orders(0.5), conservative=True),
        seedless("order of frame heads", find_case("B1-all"), frames, orders(0.071, half=True), conservative=True),
        seedless("frame heads over a percentile", find_case("B3-all"), percentile, orders(0.031), conservative=True),
    ]
    return {kind.name: kind for kind in found}


def find_kinds(names: list[str] | None) -> list[Kind]:
    """Return the kinds of these names, or all.

    Raises:
        UserError: a kind is unknown.
    """
    for name in names or ():
        if name not in kinds():
            raise UserError(f"unknown kind of claim {name!r}: {near_matches(name, kinds())}")
    return [kinds()[name] for name in names or kinds()]
