"""Procedures and their verdicts. A procedure defines how many seeds of a simulated model the judge sees."""

from collections.abc import Callable, Iterator, Mapping, Sequence
from contextlib import contextmanager
from dataclasses import replace
from functools import cache, wraps
from typing import Any

from bertsecrets.claims import estimate as estimates
from bertsecrets.claims.bootstrap import column_means
from bertsecrets.claims.estimand import Estimand, with_same_selection
from bertsecrets.claims.estimate import estimate
from bertsecrets.claims.expectations import Figure
from bertsecrets.claims.judge import judge, until_replaced
from bertsecrets.claims.quantities import QUANTITIES
from bertsecrets.claims.quantities.likeness import with_ceiling
from bertsecrets.claims.quantity import REGISTERED_QUANTITIES, STATE, Needed
from bertsecrets.claims.requirements import measure_case
from bertsecrets.claims.schema import Case
from bertsecrets.claims.sequential import ANALYSES, MOST_REPLACED, interim_confidence, one_sided
from bertsecrets.claims.verdict import Verdict
from bertsecrets.settings import JudgeParams
from instruments.calibration import answers, maps  # noqa: F401  # they register what they simulate
from instruments.calibration.worlds import MODEL, PAPER, SimulatedModel, represented

PROCEDURES = ("auto", "3", "5")
CACHED_DRAWS = 24_000_000  # maximum per block (190 MB), enough for 500 resamples of the largest task


def judged(case: Case, model: SimulatedModel, settings: JudgeParams) -> dict[str, Verdict]:
    """Return each procedure's verdict on a case in one world, as reached by a run with `--seeds`."""
    if model.world.truth == "one-more-run":
        case = with_paper(case, model)

    @cache
    def after(seeds: int) -> Verdict:
        return judge(case, simulated_seeds(case, model, seeds), settings, details=False)

    with as_represented():
        fixed = {name: of_fixed_number(after, int(name)) for name in PROCEDURES if name != "auto"}
        return {"auto": in_sequence(after, most_seeds(case)), **fixed}


def in_sequence(after: Callable[[int], Verdict], most: int) -> Verdict:
    """Return the first verdict that is not open, or the last verdict if all are (see `judge.judge_in_sequence`).

    Analyses with two seeds are skipped, because two seeds decide nothing that one seed does not.
    """
    for seeds in (1, *range(ANALYSES[0], most + 1)):
        if seeds > most or not (verdict := after(seeds)).open:
            break
    return verdict


def of_fixed_number(after: Callable[[int], Verdict], wanted: int) -> Verdict:
    """Return the verdict for a fixed number of seeds, replacing seeds that learned nothing, unless all did."""
    measured = wanted
    while until_replaced(after(measured), wanted, measured).open:
        measured += 1
    return after(measured)


def most_seeds(case: Case) -> int:
    """Return the largest number of seeds that a procedure may use."""
    return 1 if case.claim.seedless else ANALYSES[-1] + MOST_REPLACED


def simulated_seeds(case: Case, model: SimulatedModel, seeds: int) -> Sequence[Mapping[str, Needed]]:
    """Return the measurements of a case for seeds 1 to `seeds`, or for a single seed if seeds have no effect on it."""
    by_seed = measure_case(model, case, MODEL, range(1, min(seeds, most_seeds(case)) + 1))
    if model.world.collapsed:
        return by_seed
    # even without an effect on the quantity, the scores may be good
    return [{name: needed for name, needed in by_need.items() if name != STATE} for by_need in by_seed]


def with_paper(case: Case, model: SimulatedModel) -> Case:
    """Replace a case's published value by the value of another run, or by a draw from its uncertainty."""
    figure, expect = case.figure, case.claim.expect
    if figure.published is None or not isinstance(expect, Figure):
        return case
    if figure.doubt is None:
        whole = SimulatedModel(replace(model.world, examples=None, collapsed=0), model.setting, model.seed, model.place)
        published = read_seed(case, whole, PAPER).value
    else:
        published = figure.published + figure.doubt * float(model.rng("paper").standard_t(figure.doubt_degrees))
    tasks = {case.task: figure.model_copy(update={"published": published})}
    return Case(case.claim.model_copy(update={"tasks": tasks}), case.task)


def read_seed(case: Case, model: SimulatedModel, seed: int = 1) -> Estimand:
    """Return a case's estimand on one seed."""
    return _read(case, measure_case(model, case, MODEL, [seed])[0])


def _read(case: Case, needed: Mapping[str, Needed]) -> Estimand:
    return QUANTITIES[case.claim.quantity].read(needed, **case.claim.arguments)


def examples_interval(
    case: Case, by_seed: Sequence[Mapping[str, Needed]], settings: JudgeParams
) -> tuple[float, float]:
    """Return the interval that is due to examples alone, at the confidence of `auto`.

    More examples narrow this interval, but not the parts due to seeds and to the pattern classifier's errors.
    """
    estimands = [represented(without_annotated(_read(case, needed))) for needed in by_seed]
    within = QUANTITIES[case.claim.quantity].within(case.task)
    observed = estimate(with_ceiling(with_same_selection(estimands))[0], settings, seedless=True, within=within)
    level = one_sided(settings.confidence)
    return observed.interval(level if case.claim.seedless else interim_confidence(level))


def without_annotated(estimand: Estimand) -> Estimand:
    """Return the estimand with a constant error of the pattern classifier: its mean over the annotated heads."""
    if not estimand.drawn:
        return estimand
    blocks = zip(estimand.blocks, estimand.drawn, strict=True)
    fixed = tuple(block if drawn is None else column_means(block) for block, drawn in blocks)
    return replace(estimand, blocks=fixed, drawn=())


@contextmanager
def as_represented() -> Iterator[None]:
    """Make all quantities resample as many rows as their simulated answers represent, and cache the draws of rows."""
    originals, most = dict(REGISTERED_QUANTITIES), estimates.CACHED_DRAWS
    try:
        for name, quantity in originals.items():
            REGISTERED_QUANTITIES[name] = replace(quantity, function=_representing(quantity.function))
        estimates.CACHED_DRAWS = CACHED_DRAWS
        yield
    finally:
        REGISTERED_QUANTITIES.update(originals)
        estimates.CACHED_DRAWS = most


def _representing(function: Callable[..., Estimand]) -> Callable[..., Estimand]:
    @wraps(function)
    def read(*given: Any, **more: Any) -> Estimand:
        return represented(function(*given, **more))

    return read
