"""Texts about verdicts and claims for all reports, and the error message of a failing benchmark."""

import os
from collections.abc import Collection, Iterable, Iterator, Sequence

from bertsecrets.claims.band import Ends, format_interval, format_number
from bertsecrets.claims.expectations import Equality, Order
from bertsecrets.claims.figure import Known
from bertsecrets.claims.multiplicity import multiple_testing, over_tasks
from bertsecrets.claims.reasons import Grounds
from bertsecrets.claims.schema import ANY_MODEL, LATER_FAMILIES, Case, Claim
from bertsecrets.claims.verdict import Verdict
from bertsecrets.compare.changes import ends
from bertsecrets.errors import one_line
from bertsecrets.formats import ERROR, FAILURES, OverTasksData, TogetherData, VerdictData
from bertsecrets.models.locations import recorded_name
from bertsecrets.progress import counted
from bertsecrets.report.outcomes import ALWAYS_COUNTED, OUTCOMES, outcome_counts, outcome_label
from bertsecrets.texts.tasks import ALL_TASKS, TASKS

SECTIONS = {  # of K19 and beyond, by the first letter of claim ids
    "A": "4.1 Attention patterns",
    "B": "4.2 Frame-semantic heads",
    "C": "4.3 Change in attention after fine-tuning",
    "D": "4.3 Effects of fine-tuning and of pre-training (table 1)",
    "E": "4.4 Special tokens and linguistic features",
    "F": "4.5 Token-to-token attention",
    "G": "4.6 Disabling heads and layers",
    "H": "The same questions on GPT-2 small",
    "I": "Beyond attention: A Primer in BERTology",
    "J": "Open questions beyond the paper",
}
OWN_SECTION = "Hypotheses of this suite"
SYNTHETIC_NOTE = "the texts are synthetic: these verdicts show that the suite works and say nothing about the paper"
NEXT_STEP = "next, judge your own model on RTE: pytest benchmarks -k rte --model NAME-OR-FOLDER [--glue FOLDER]"
MAX_ANNOTATIONS = 9  # GitHub shows ten errors of a step, and the action adds one
COLLAPSED = {Grounds.SEED_FAILED.code, Grounds.SEEDS_FAILED.code}
ENOUGH_SEEDS = 5  # proposed for claims that lack seeds
UNIT_SYMBOLS = {"percent": "%", "standard deviations": "sd"}  # abbreviations of units
NOT_DECIDABLE = "not decidable"  # shown for a band that contains nearly all values
PAPERS = {  # by the short names used in claims
    "K19": "Kovaleva et al. 2019",
    "P20": "Prasanna et al. 2020",
    "R20": "Rogers et al. 2020",
}


def cite(text: str) -> str:
    """Expand each paper's short name at its first occurrence in a text.

    >>> cite("K19 section 4.2; K19 figure 3")
    'K19 (Kovaleva et al. 2019) section 4.2; K19 figure 3'
    """
    for name, authors in PAPERS.items():
        text = text.replace(name, f"{name} ({authors})", 1)
    return text


def assert_holds(verdict: Verdict) -> None:
    """Raise an AssertionError that describes the verdict if the claim fails."""
    __tracebackhide__ = True
    if verdict.outcome in FAILURES:
        raise AssertionError(describe(verdict))


def describe(verdict: Verdict) -> str:
    """Return a few lines about a verdict: statement, published figure, band, observed value, reason."""
    case = verdict.case
    lines = {
        "claim": f"{case.claim.statement} ({cite(case.claim.source)})",
        "published": show_published(case, verdict.unit),
        "band": show_band(case, verdict.band),
        "observed": verdict.observed_text,
        "because": verdict.reason,
        "": f"this contradicts {verdict.against}" if verdict.against else "",
        "power": verdict.power,
        "remarks": "; ".join(verdict.remarks),
    }
    return "\n".join(
        [f"{case} {outcome_phrase(verdict)}", *(f"  {name:<9} {text}" for name, text in lines.items() if text)]
    )


def show_published(case: Case, unit: str) -> str:
    """Return a published figure with its unit, marked if it equals the score of a constant answer."""
    if case.figure.published is None:
        return "-"
    mark = " (a constant answer)" if case.figure.constant_answer else ""
    return f"{format_number(case.figure.published)} {unit}{mark}"


def band_text(case: Case, confidence: float) -> str:
    """Return a claim's band as text, with the formula for its width and the source of each term."""
    constant = "; a seed also agrees if it gives the same constant answer as the published run"
    return _band_text(case, confidence) + (constant if case.figure.constant_answer else "")


def _band_text(case: Case, confidence: float) -> str:
    expect, figure = case.claim.expect, case.figure
    limits = case.band(confidence)
    if limits is None:
        return "a prediction interval from the spread of the measured seeds, since no spread is published"
    if isinstance(expect, Equality | Order):
        kind = "an equality" if isinstance(expect, Equality) else "an order"
        return f"{format_interval(limits)} (the claim is {kind}, so the whole interval must lie in this range)"
    if not expect.decidable(limits, case.unit):
        return f"{NOT_DECIDABLE}: {format_interval(limits)} covers more than half of all possible values"
    parts, spread = [], figure.cited_spread
    if expect.sampling == "own":
        parts.append("the sampling error due to different examples")
    if spread is not None:
        parts.append(f"a standard deviation of {format_number(spread.std)} ({spread.source})")
    if figure.doubt is not None:
        parts.append(f"a standard error of {format_number(figure.doubt)} ({figure.doubt_source})")
    published = format_number(figure.published)
    text = f"{published} +- {format_number(figure.rounding)} rounding"
    if parts:
        text = f"the {confidence:.0%} prediction interval around {published}, from {' and '.join(parts)}"
        text += f", plus {format_number(figure.rounding)} for rounding" if figure.rounding else ""
    if case.stated_tolerance is not None:
        text += f"; a difference beyond the tolerance of {format_number(case.tolerance)} deviates or is inconclusive"
    elif case.tolerance + figure.rounding >= (limits[1] - limits[0]) / 2 > 0:
        text += f", but at least the tolerance of {format_number(case.tolerance)}"
    if spread is None:
        seeds = "" if case.claim.seedless else " with many seeds (wider with few seeds)"
        return f"{format_interval(limits)}{seeds}: {text}"
    return f"about {format_interval(limits)}, depending on the spread of the measured seeds: {text}"


def show_band(case: Case, limits: Ends | None) -> str:
    """Return a verdict's band, or a note that no value could decide the claim."""
    decidable = limits is None or case.claim.expect.decidable(limits, case.unit)
    return format_interval(limits) if decidable else NOT_DECIDABLE


def verdict_row(verdict: Verdict) -> list[str]:
    """Return a verdict as a row of cells: id, task, statement, published figure, band, observed value, outcome."""
    case = verdict.case
    outcome = "; ".join(filter(None, (outcome_phrase(verdict), contradicted(verdict))))
    remarks = f" ({'; '.join(verdict.remarks)})" if verdict.remarks else ""
    return [
        case.claim.name,
        task_title(case.task),
        case.claim.statement,
        show_published(case, verdict.unit),
        show_band(case, verdict.band),
        verdict.observed_text,
        outcome + remarks,
    ]


def outcome_mark(verdict: Verdict, accepted: Collection[str] = ()) -> str:
    """Return why a failing verdict does not fail the run ("accepted", "known" or "expected"); "" for other verdicts."""
    if str(verdict.case) in accepted:
        return "accepted"
    if not verdict.known_deviation:
        return ""
    return "known" if any(map(verdict.case.observed_deviation, verdict.models)) else "expected"


def outcome_phrase(verdict: Verdict, accepted: Collection[str] = ()) -> str:
    """Return the outcome, followed by a brief reason. Known deviations and accepted verdicts are marked."""
    mark = outcome_mark(verdict, accepted)
    return f"{outcome_words(verdict)} ({mark})" if mark else outcome_words(verdict)


def outcome_words(verdict: Verdict | VerdictData) -> str:
    """Return the outcome, followed by a brief reason."""
    status = verdict.status if isinstance(verdict, Verdict) else verdict.verdict or ERROR
    return f"{status}: {verdict.brief}" if verdict.brief else status


def contradicted(verdict: Verdict) -> str:
    """Return a note such as "contradicts the paper's figure" for a deviation, or "" for other verdicts."""
    return f"contradicts {verdict.against}" if verdict.against else ""


def annotations(verdicts: Iterable[Verdict]) -> Iterator[str]:
    """Yield a GitHub Actions annotation for each failing verdict, or for as many as GitHub shows in one step.

    Outside GitHub Actions, yield nothing.
    """
    failing = list(verdicts) if os.environ.get("GITHUB_ACTIONS") == "true" else []
    shown = failing if len(failing) <= MAX_ANNOTATIONS else failing[: MAX_ANNOTATIONS - 1]
    for verdict in shown:
        case, band = verdict.case, show_band(verdict.case, verdict.band)
        numbers = {
            "Observed": f"{verdict.observed_text} {verdict.unit}" if verdict.observed is not None else "",
            "the claim holds in": band if band not in ("", "-") else "",
            "published": show_published(case, verdict.unit) if case.figure.published is not None else "",
        }
        facts = ", ".join(f"{name} {fact}" for name, fact in numbers.items() if fact)
        text = f"{case.claim.statement} {facts}{': ' if facts else ''}{verdict.reason}"
        yield f"::error title={case} {outcome_phrase(verdict)}::{one_line(text).replace('%', '%25')}"
    if len(failing) > len(shown):
        yield f"::error title=bertsecrets::{len(failing) - len(shown)} more claims fail: see the job summary"


def section_title(claim: Claim) -> str:
    """Return the title of the section of K19 that a claim tests or, for claims beyond K19, a title of this suite."""
    of_this_suite = claim.beyond_k19 and claim.family not in LATER_FAMILIES
    return OWN_SECTION if of_this_suite else SECTIONS.get(claim.family, claim.family)


def in_sections(claim: Claim) -> tuple[bool, bool, str]:
    """Return the sort key of a claim: K19's claims come first, then this suite's own, then those of later work."""
    return claim.beyond_k19, claim.family in LATER_FAMILIES, claim.family


def task_title(name: str) -> str:
    """Return the usual spelling of a task's name.

    >>> task_title("stsb")
    'STS-B'
    """
    return name if name == ALL_TASKS else TASKS[name].title


def grid_rows(verdicts: Sequence[Verdict], *, words: bool = True) -> list[list[str]]:
    """Return a grid of claims by tasks with each verdict's symbol and observed value. The first row is the header.

    The grid leaves out claims about all tasks together, and cases that were not judged. If `words` is True, it says how
    claims deviate and why they are inconclusive.
    """
    cells: dict[str, dict[str, str]] = {}
    for verdict in verdicts:
        claim, name = verdict.case.claim, verdict.case.task
        if name in TASKS and verdict.outcome not in ("not applicable", None):
            why = verdict.brief if words and verdict.outcome in ("deviates", "inconclusive") else ""
            cell = f"{OUTCOMES[verdict.status].sign} {format_number(verdict.observed)}"
            cells.setdefault(claim.name, {})[name] = f"{cell} ({why})" if why else cell
    names = [name for name in TASKS if any(name in row for row in cells.values())]
    rows = [[claim, *(row.get(name, "") for name in names)] for claim, row in cells.items()]
    return [["id", *map(task_title, names)], *rows]


def grid_legend(rows: Sequence[Sequence[str]]) -> str:
    """Return a legend for the symbols in a grid."""
    signs = {cell[:1] for row in rows for cell in row[1:]}
    return ", ".join(outcome_label(outcome) for outcome, shown in OUTCOMES.items() if shown.sign in signs)


def count_line(verdicts: Sequence[Verdict], accepted: Collection[str] = ()) -> str:
    """Return one line with the number of claims per outcome."""
    number, text = sum(verdict.counted for verdict in verdicts), counts_text(verdicts, accepted)
    return f"{counted(number, 'claim')}: {text}" if number else text


def counts_text(verdicts: Sequence[Verdict], accepted: Collection[str] = ()) -> str:
    """Return the number of claims per outcome, with the numbers of known, expected and accepted deviations.

    K19's claims, claims beyond K19 and claims that are not about a model are counted separately.
    """
    own = [verdict for verdict in verdicts if verdict.counted]
    groups = {
        "not about a model": [verdict for verdict in verdicts if not verdict.about_model],
        "beyond K19": [verdict for verdict in verdicts if verdict.about_model and not verdict.counted],
    }
    others = [
        f"{counted(len(group), 'claim')} {what}: {_counts(group, accepted, always=())}"
        for what, group in groups.items()
        if group
    ]
    return "; ".join([_counts(own, accepted), *others] if own or not others else others)


def _counts(verdicts: Sequence[Verdict], accepted: Collection[str], always: Collection[str] = ALWAYS_COUNTED) -> str:
    statuses = [verdict.status for verdict in verdicts]
    marks = [outcome_mark(verdict, accepted) for verdict in verdicts if verdict.status == "deviates"]
    return outcome_counts(statuses, marks, always)


def seeds_text(seeds: Iterable[int]) -> str:
    """Return seeds as text.

    >>> seeds_text([1, 2, 3]), seeds_text([4]), seeds_text([1, 5])
    ('seeds 1 to 3', 'seed 4', 'seeds 1, 5')
    """
    ordered = sorted(set(seeds))
    if len(ordered) > 2 and ordered[-1] - ordered[0] == len(ordered) - 1:
        return f"seeds {ordered[0]} to {ordered[-1]}"
    return f"{'seed' if len(ordered) == 1 else 'seeds'} {', '.join(map(str, ordered)) or 'none'}"


def run_lines(verdicts: Sequence[Verdict], confidence: float) -> list[str]:
    """Return lines about the entire run: results over several tasks, false alarms, limited training, synthetic data."""
    of_tasks = [_over_tasks_line(result, confidence) for result in over_tasks(verdicts, confidence)]
    rest = _multiple_testing_lines(multiple_testing(verdicts, confidence))
    synthetic = any(measured.provenance.made_up_data for verdict in verdicts for measured in verdict.measurements)
    about_data = [SYNTHETIC_NOTE, NEXT_STEP] if synthetic else []
    return [*of_tasks, *rest, *_few_training_rows_lines(verdicts), *about_data]


def lacks_seeds(verdict: Verdict) -> bool:
    """Return whether more seeds may decide a claim."""
    return verdict.open and len(verdict.seeds) < ENOUGH_SEEDS and _collapsed_after(verdict) is None


def _collapsed_after(verdict: Verdict) -> int | None:
    """Return the limit on training rows if the model collapsed, else None. More seeds may not help such a model."""
    return verdict.data.limits.get("train_limit") if verdict.reason_code in COLLAPSED else None


def _few_training_rows_lines(verdicts: Sequence[Verdict]) -> list[str]:
    """If a model learned nothing because it had too few training rows, return a line about the claims it affects."""
    rows = [limit for verdict in verdicts if (limit := _collapsed_after(verdict)) is not None]
    learned = f"the model learned nothing from {counted(max(rows, default=0), 'training row')}, so raise --train-limit"
    return [f"{counted(len(rows), 'claim')} degenerate: {learned}"] if rows else []


def _over_tasks_line(result: OverTasksData, confidence: float) -> str:
    return (
        f"{result.claim} on {result.speaks_of}: {result.verdict}; holds on at least {result.holds_on_at_least} of "
        f"{result.judged} judged tasks, fails on at least {result.fails_on_at_least} "
        f"({_percent(confidence)} confidence)"
    )


def _multiple_testing_lines(result: TogetherData) -> Iterator[str]:
    if result.judged < 2:  # nothing to correct for
        return
    alarms = format_number(result.false_alarms)
    line = f"if every claim held exactly at its limit, up to {alarms} of {result.judged} would deviate by chance"
    deviations = len(result.surviving) + len(result.not_surviving)
    if deviations:
        remain = "remains" if deviations == 1 else "remain"
        line += (
            f"; {len(result.surviving)} of {counted(deviations, 'deviation')} {remain} after correction "
            f"(false discovery rate {_percent(result.false_discovery_rate)}): {', '.join(result.surviving) or 'none'}"
        )
    yield line + (f"; these do not: {', '.join(result.not_surviving)}" if result.not_surviving else "")


def _percent(share: float) -> str:
    return f"{100 * share:.3g} %"


def status(claim: Claim, model: str | None = None) -> str:
    """Return the known outcomes of a claim as text, with their models and tasks; "" if there are none."""
    parts = []
    for word, title in {"reproduces": "reproduces", "deviates": "deviates", "expected": "expected to deviate"}.items():
        of_word = [known for known in claim.known if known.status == word]
        seen = [known for known in of_word if model is None or known.model in (recorded_name(model), ANY_MODEL)]
        names = (
            f"{model_name(known.model)} on {task_title(known.task)}{known_version(claim, known)}" for known in seen
        )
        if seen:
            parts.append(f"{claim.expect.passes if word == 'reproduces' else title}: {', '.join(names)}")
    return "; ".join(parts)


def model_name(name: str) -> str:
    """Return the name of a known outcome's model for display."""
    return "any model" if name == ANY_MODEL else name


def known_version(claim: Claim, known: Known) -> str:
    """Return a note with both versions if an outcome was recorded for another version of the claim, otherwise ""."""
    return "" if known.version == claim.version else f" (version {known.version}, now {claim.version})"


def observed_value(verdict: VerdictData) -> str:
    """Return the observed value of a verdict with its interval."""
    interval = ends(verdict.interval)
    return format_number(verdict.observed) + (f" {format_interval(interval)}" if interval else "")
