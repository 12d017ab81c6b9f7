"""The report as a self-contained HTML page with verdicts, charts and provenance, and fragments for notebooks."""

import functools
import shlex
from collections.abc import Callable, Collection, Iterable, Mapping, Sequence
from itertools import groupby
from typing import Any

from bertsecrets import __version__
from bertsecrets.claims.verdict import Verdict, data_kind
from bertsecrets.errors import from_extra
from bertsecrets.progress import counted
from bertsecrets.provenance import run_facts
from bertsecrets.report.cards import FOLDED_OUTCOME, RERUN_COMMAND, cards_of, columns, matrix
from bertsecrets.report.charts import CHART_CONFIG, draw, strip_spec, svg
from bertsecrets.report.findings import Findings
from bertsecrets.report.json import unique
from bertsecrets.report.outcomes import OUTCOMES, tally
from bertsecrets.report.replicas import figures_of, other_figures, paper_figures, table_1
from bertsecrets.report.tables import table
from bertsecrets.report.text import (
    cite,
    contradicted,
    count_line,
    in_sections,
    outcome_phrase,
    run_lines,
    section_title,
    seeds_text,
    show_band,
    show_published,
    task_title,
    verdict_row,
)
from bertsecrets.report.viewer import EXAMPLES_RULE, SIDE_TITLES, Examples, viewer_data, viewer_specs
from bertsecrets.settings import JudgeParams, load_settings
from bertsecrets.texts.tasks import ALL_TASKS
from bertsecrets.types import Measurement

with from_extra("jinja2"):
    from jinja2 import Environment, PackageLoader, select_autoescape
    from jinja2.utils import htmlsafe_json_dumps
    from markupsafe import Markup

NO_EXAMPLES = Examples()
PAGE_BYTES = 5_000_000  # maximum bytes of a page with maps of examples
VIEWER_BYTES = 20_000  # bytes of the viewer itself


def page(
    runs: Mapping[str, Sequence[Verdict]],
    settings: JudgeParams,
    *,
    note: str = "",
    advice: Sequence[str] = (),
    command: Sequence[str] = (),
    rerun: Sequence[str] = RERUN_COMMAND,
    examples: Examples = NO_EXAMPLES,
    checkpoint: bool = False,
    accepted: Collection[str] = (),
) -> str:
    """Return a page with verdicts, and with the paper's figures next to charts of our measurements.

    Args:
        runs: Verdicts by model. Models are named as the user named them.
        settings: Settings for intervals in charts and for statistics of the run.
        note: Why the page is incomplete; empty if it is complete.
        advice: Lines that say how undecided claims could be decided.
        command: The command line that made the page, as a list of arguments.
        rerun: The start of the command line that judges a claim again. `--claim` and, if there are several models,
            `--model` are appended to it.
        checkpoint: Whether the run judged a single checkpoint that the suite did not train.
        accepted: Names of the cases for which a baseline accepts a failing verdict.
    """
    verdicts = [verdict for of_model in runs.values() for verdict in of_model]
    measurements = unique([measurement for verdict in verdicts for measurement in verdict.measurements])
    cards = cards_of(runs, rerun, checkpoint=checkpoint, accepted=accepted)
    rows = sorted(matrix(cards), key=lambda row: in_sections(row.claim))
    render = functools.partial(
        _render,
        "page.html",
        models=list(runs),
        note=note,
        command=[shlex.quote(word) for word in command],
        facts=run_facts(),
        version=__version__,
        confidence=f"{100 * settings.confidence:g}",
        tasks=list(
            dict.fromkeys(task_title(verdict.case.task) for verdict in verdicts if verdict.case.task != ALL_TASKS)
        ),
        seeds=seeds_text(seed for verdict in verdicts for seed in verdict.seeds),
        checkpoint=checkpoint,
        made_up=any(measurement.provenance.made_up_data for measurement in measurements),
        collapsed=[verdict for verdict in verdicts if verdict.outcome == "degenerate"],
        counted=counted,
        unofficial=[measurement for measurement in measurements if _data_kind(measurement) == "unofficial"],
        own=[measurement for measurement in measurements if _data_kind(measurement) == "own"],
        limits=sorted({limit for verdict in verdicts for limit in verdict.data.limits.items()}),
        sentences={model: count_line(of_model, accepted) for model, of_model in runs.items()},
        tally=tally([verdict.status for verdict in verdicts]),
        columns=columns(rows),
        sections={title: [*own] for title, own in groupby(rows, lambda row: section_title(row.claim))},
        aside=[card for card in cards if card.verdict.outcome == FOLDED_OUTCOME],
        together={model: run_lines(of_model, settings.confidence) for model, of_model in runs.items()},
        advice=[line for line in advice if line],
        figures=paper_figures(measurements, settings),
        others=other_figures(measurements, settings),
        table_1=table_1(measurements),
        measurements=measurements,
        made_by=_made_by(measurements),
    )

    if not examples.measurements:
        return _with_maps(render, [], examples.problems)
    maps = viewer_data(examples, PAGE_BYTES - len(_with_maps(render, [], []).encode()) - VIEWER_BYTES)
    too_large = [] if maps else ["any example: the page would be too large"]
    return _with_maps(render, maps, [*examples.problems, *too_large])


def _with_maps(render: Callable[..., str], maps: Sequence[dict[str, Any]], problems: Sequence[str]) -> str:
    charts: dict[str, Any] = {"strip": strip_spec(), **(viewer_specs() if maps else {})}

    def place(chart: Any) -> str:
        """Add a chart to the page's data, and return the name of its placeholder."""
        name = f"c{len(charts)}"
        charts[name] = chart
        return name

    return render(maps=maps, map_problems=problems, chart=place, drawn=lambda: _json(charts))


def _json(data: Any) -> Markup:
    """Return data as JSON that is safe inside a script element."""
    return htmlsafe_json_dumps(data, separators=(",", ":"), allow_nan=False)


@functools.cache
def _vega() -> Markup:
    """Return the script that draws charts: Vega, Vega-Lite and vega-embed with their dependencies."""
    with from_extra("vl-convert-python"):
        import vl_convert

    return Markup(vl_convert.javascript_bundle("window.vegaEmbed = vegaEmbed;").replace("</script", "<\\/script"))  # nosec B704  # the library's code


def _made_by(measurements: Sequence[Measurement]) -> tuple[list[str], list[list[str]]]:
    rows = []
    for measurement in measurements:
        facts, training = measurement.provenance, measurement.provenance.training or {}
        software = ", ".join(f"{name} {version}" for name, version in facts.made_by.get("software", {}).items())
        precision = f"trained in {training['precision']}" if training.get("steps") else ""
        rows.append([
            " ".join([measurement.measure, *(f"{name} {value}" for name, value in measurement.options.items())]),
            str(measurement.subject),
            str(measurement.examples),
            "\n".join(f"{name} {shown}" for name, shown in _scalars(measurement)),
            f"{facts.data or ''}{_unofficial(measurement)}",
            "; ".join(filter(None, (software, facts.made_by.get("device"), precision))),
            str(facts.seconds),
        ])  # fmt: skip
    return ["measure", "subject", "examples", "values", "data", "software and device", "seconds"], rows


def _data_kind(measurement: Measurement) -> str:
    return data_kind(measurement.subject.task, official=measurement.provenance.official_data)


def _unofficial(measurement: Measurement) -> str:
    return " (unofficial)" if _data_kind(measurement) == "unofficial" else ""


def _scalars(measurement: Measurement) -> list[tuple[str, str]]:
    return [
        (name, f"{value:.4g}" if isinstance(value, float) else str(value))
        for name, value in measurement.values.items()
        if isinstance(value, bool | int | float)
    ]


# ---------------------------------------------------------------------- other pages, and pieces for notebooks


def measurement_part(measurement: Measurement) -> str:
    """Return a measurement as an HTML fragment with its values, charts and provenance."""
    facts = measurement.provenance
    device = facts.made_by.get("device") or ""
    return _render(
        "notebook.html",
        name=measurement.measure,
        about=f"of {measurement.subject}{' (reused from the store)' if measurement.reused else ''}",
        header=("value", ""),
        rows=[("examples", measurement.examples), *_scalars(measurement)],
        notes=[f"{facts.data}{_unofficial(measurement)}; {device}; {facts.seconds} s"],
        charts=figures_of([measurement], load_settings().judge),
    )


def verdict_part(verdict: Verdict) -> str:
    """Return a verdict as an HTML fragment with its row, its reason, and charts of its measurements."""
    name, task, statement, *numbers, _ = verdict_row(verdict)
    return _render(
        "notebook.html",
        name=name,
        about=f"on {task}: {outcome_phrase(verdict)}. {statement} ({cite(verdict.case.claim.source)})",
        header=("published", "band", "observed"),
        rows=[numbers],
        notes=[verdict.reason, contradicted(verdict), verdict.power, "; ".join(verdict.remarks)],
        charts=figures_of(unique(verdict.measurements), load_settings().judge),
    )


def comparison_page(findings: Findings) -> str:
    """Return the page of a comparison."""
    settings = load_settings().judge
    charts = [draw(figure, settings, figure.caption) for figure in findings.figures]
    return _render("comparison.html", findings=findings, charts=charts)


def _table(header: Sequence[object], rows: Iterable[Sequence[object]]) -> Markup:
    return Markup(table(header, rows, "html"))  # nosec B704  # cells are escaped


def _svg(spec: dict[str, Any]) -> Markup:
    return Markup(svg(spec))  # nosec B704  # drawn by Vega, which escapes texts


@functools.cache
def _environment() -> Environment:
    environment = Environment(loader=PackageLoader("bertsecrets.report"), autoescape=select_autoescape(default=True))
    environment.globals.update(
        outcomes=OUTCOMES,
        map_names=SIDE_TITLES,
        map_rule=EXAMPLES_RULE,
        config=CHART_CONFIG,
        json=_json,
        vega=_vega,
        svg=_svg,
        table=_table,
        task_title=task_title,
        cite=cite,
        contradicted=contradicted,
        show_published=show_published,
        show_band=show_band,
    )
    return environment


def _render(template: str, **shown: Any) -> str:
    return _environment().get_template(template).render(**shown)
