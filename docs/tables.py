"""Tables of the documentation that are generated from code and evidence. `make tables` renews them in the pages,
and the JSON Schema of verdicts.

To add a table, write its marker on a line of its own: `<!-- table: claims A -->`, `<!-- table: observed minilm G -->`.
The table is inserted below, followed by an end marker.
"""

import inspect
import json
import math
import re
from collections.abc import Callable, Iterable, Mapping
from functools import partial
from pathlib import Path
from statistics import fmean
from typing import Any

import yaml

from bertsecrets.claims.band import format_interval, format_number
from bertsecrets.claims.expectations import Equality, Figure
from bertsecrets.claims.loading import cases, find_case, load_claims
from bertsecrets.claims.prospects import prospect
from bertsecrets.claims.prospects import prospects as all_prospects
from bertsecrets.claims.quantities import QUANTITIES
from bertsecrets.claims.quantities.ablation_gains import ABLATION_KINDS
from bertsecrets.claims.quantity import Need
from bertsecrets.claims.reasons import Grounds
from bertsecrets.claims.schema import Case, Claim
from bertsecrets.cli.main import build_parser
from bertsecrets.compare.changes import read_verdicts_file
from bertsecrets.formats import MAJOR_VERSION, PASSES, VerdictData, VerdictsFile, json_schema
from bertsecrets.measures.base import AttentionMeasure
from bertsecrets.measures.registry import get_measure, measure_names
from bertsecrets.options import PARSING
from bertsecrets.report.explanation import statements as all_statements
from bertsecrets.report.tables import table
from bertsecrets.report.text import outcome_words
from bertsecrets.settings import project_path
from bertsecrets.texts.tasks import ALL_TASKS, TASKS
from instruments.__main__ import build_parser as build_instruments
from instruments.calibration import rates_table
from instruments.calibration.confronted import ASSUMPTIONS, CHECKS
from instruments.calibration.false_verdicts import FalseVerdicts
from instruments.calibration.procedures import PROCEDURES
from instruments.calibration.rates_table import shares_text

DOCS = Path(__file__).parent
PAGES = (DOCS.parent / "README.md", *sorted(DOCS.rglob("*.md")))
RANDOM_MODEL = "./bert-base-random"  # in expected/evidence
END = "<!-- end -->"
_table = partial(table, form="markdown")
VERSIONS = {str(case): case.claim.version for case in cases()}
MARKER = r"<!-- table: (?P<name>\w+)(?P<arguments>(?: [\w-]+)*) -->"
PLACE = re.compile(rf"^(?P<marker>{MARKER})(?:\n(?:(?!<!-- table: ).*\n)*?{END})?$", re.M)


def renewed(page: str) -> str:
    """Return a page with all its tables generated again.

    Raises:
        KeyError: If a table does not exist.
    """

    def filled(match: re.Match[str]) -> str:
        made = TABLES[match["name"]](*match["arguments"].split())
        return f"{match['marker']}\n\n{made.strip()}\n\n{END}"

    return PLACE.sub(filled, page)


def measures() -> str:
    """Return a section for every measure: its definition, requirements, options and values."""
    return "\n".join(_measure(name) for name in sorted(measure_names()))


def _measure(name: str) -> str:
    measure = get_measure(name)
    needs = [_first_line(need) for need in measure.needs]
    if measure.compares:
        needs.append("The pretrained model, for comparison with the subject's checkpoint.")
    shared = AttentionMeasure.Options
    shares = issubclass(measure.Options, shared)
    own = [f"`{field}`" for field in measure.Options.model_fields if not (shares and field in shared.model_fields)]
    options = ", ".join([*(["those of attention measures"] if shares else []), *own])
    facts = [
        f"Measures: {measure.title} ({measure.source}).",
        "Runs on: "
        + ("a task" if measure.on_task else "the bare encoder" if measure.reads_model else "the suite itself")
        + "." + (" Part of `measure all`." if measure.common else ""),
        *([f"Needs: {' '.join(needs)}"] if needs else []),
        *([f"Options: {options}. {inspect.getdoc(measure.Options) if own else ''}"] if options else []),
        *inspect.cleandoc(type(measure).__doc__ or "").split("\n\n"),
    ]  # fmt: skip
    return f"### {name}\n\n" + "\n".join(f"- {' '.join(fact.split())}" for fact in facts) + "\n"


def quantities() -> str:
    """Return a row for every quantity: unit, required measures, arguments, value."""
    rows = [
        (
            f"`{quantity.name}`",
            quantity.unit,
            "; ".join(_need(need) for need in quantity.needs.values()),
            ", ".join(f"`{name}`" for name in quantity.arguments.model_fields) or "-",
            re.sub(r"^Return,? ", "", _first_line(quantity.function)).rstrip("."),
        )
        for quantity in sorted(QUANTITIES.values(), key=lambda one: one.name)
    ]
    return _table(("quantity", "unit", "reads", "arguments", "value"), rows)


def prospects() -> str:
    """Return the simulated verdicts on every case for a model as published."""
    rows = [
        (
            f"`{name}`" + (" (contradicted by the paper's own figures)" if one.contradicted else ""),
            *(shares_text(one.outcomes.get(procedure, {})) for procedure in PROCEDURES),
            "[{:.0f}, {:.0f}]".format(*(100 * end for end in one.interval(PASSES))),
            f"{one.seeds:.1f}",
            str(one.worlds),
            f"{one.examples:,}" if one.examples else "",
            one.made,
        )
        for name, one in all_prospects().cases.items()
    ]
    seeds = (f"`--seeds {name}`" for name in PROCEDURES)
    return _table(("case", *seeds, "R of auto, 95 %", "seeds", "worlds", "rows", "made"), rows)


def errors() -> str:
    """Return a row for each simulated claim and world with its rates of false verdicts."""
    rates = map(FalseVerdicts.from_json, _evidence("error-rates")["rates"])
    return rates_table.error_table([*rates], "markdown")


def assumptions() -> str:
    """Return a row for each assumption of the simulation, with what confronts it with evidence."""
    rows = [(of.text, of.check if of.check in CHECKS else f"no evidence: {of.why_none}") for of in ASSUMPTIONS]
    return _table(("assumption", "checked"), rows)


def headlines() -> str:
    """Return, by task, how often cases are reproduced for a model as published."""
    return rates_table.headlines(all_prospects().cases, "markdown")


def _need(need: Need) -> str:
    whose = {"own": "", "against": " of the model that the claim compares with"}.get(need.whose, f" ({need.whose})")
    where = f" on {TASKS[need.task].title}" if need.task and need.task != ALL_TASKS else ""
    several = f" on {len(need.tasks)} tasks" if need.tasks else ""
    options = "".join(f" with `{name}={value}`" for name, value in need.options.items())
    return f"`{need.measure}`{whose}{where}{several}{options}"


def reasons() -> str:
    """Return a row for every reason of a verdict: its code, what tables say, and its text."""
    rows = [(f"`{grounds.code}`", grounds.brief, grounds.text) for grounds in Grounds]
    return _table(("`reason_code`", "`brief`", "`reason`"), rows)


def statements(section: str) -> str:
    """Return a row for every statement of the sources in a section of the page."""
    own = [row for row in all_statements() if row["section"] == section]
    rows = [(row["statement"], row["claims"], row["judged"]) for row in own]
    return _table(("statement", "claim", "as said, or why not"), rows)


def claims(family: str) -> str:
    """Return a row for every claim of a family: statement, quantity, expectation, published figures."""
    rows = [
        (claim.name, claim.statement, f"`{claim.quantity}`", _expected(claim), _published(claim))
        for claim in load_claims()
        if claim.id.startswith(family)
    ]
    return _table(("claim", "statement", "quantity", "must be", "published"), rows)


def _expected(claim: Claim) -> str:
    if isinstance(claim.expect, Figure):
        return "within the band"
    if isinstance(claim.expect, Equality):
        return f"{format_number(claim.expect.value)}, up to the smallest effect of interest"
    return f"{'>' if claim.expect.kind == 'above' else '<'} {format_number(claim.expect.value)}"


def _published(claim: Claim) -> str:
    figures = [
        (f"{TASKS[name].title} " if name in TASKS else "") + format_number(figure.published)
        for name, figure in claim.tasks.items()
        if figure.published is not None
    ]
    return ", ".join(figures) or "the order only"


def options() -> str:
    """Return a row for every option of a run: command line, Python keyword, meaning."""
    rows = []
    for name, parsing in PARSING.items():
        value = parsing.get("metavar", "NAME" if parsing.get("action") != "store_true" else "")
        rows.append((f"`--{name.replace('_', '-')} {value}`".replace(" `", "`"), f"`{name}`", parsing["help"]))
    return _table(("option", "keyword in Python", "meaning"), rows)


def models(task: str) -> str:
    """Return a row for every claim on a task with a verdict on record, and a column for every model.

    The column *as published* shows how often a model as published would pass.
    """
    known = _newest()
    shown = [case for case in cases() if case.task == task and any(str(case) in own for own in known.values())]
    rows = [
        (case.claim.name, _as_published(case), *(_verdict(verdicts.get(str(case))) for verdicts in known.values()))
        for case in shown
    ]
    return _table(("claim", "as published", *known), rows) + _caption(known, shown)


def _as_published(case: Case) -> str:
    """Return the share of simulated runs in which a case passes if the model is as published; "-" if not simulated."""
    recorded = prospect(case)
    if recorded is None or recorded.share("not applicable") == 1:
        return "-"
    return "contradicted" if recorded.contradicted else f"{100 * recorded.share(*PASSES):.0f} %"


def observed(model: str, family: str) -> str:
    """Return a row for every claim of a family with a verdict on a model, and a column for every task.

    Raises:
        KeyError: If no verdict on the model is on record.
    """
    verdicts = _newest()[model]
    known = [case for case in cases() if case.claim.family == family and str(case) in verdicts]
    columns = [name for name in (ALL_TASKS, *TASKS) if any(case.task == name for case in known)]
    rows: dict[str, list[str]] = {}
    for case in known:
        row = rows.setdefault(case.claim.name, [case.claim.name, case.unit, *("" for _ in columns)])
        row[2 + columns.index(case.task)] = _verdict(verdicts[str(case)])
    header = ("claim", "unit", *(TASKS[name].title if name in TASKS else "" for name in columns))
    return _table(header, rows.values()) + _caption([model], known)


def random_column() -> str:
    """Return a row per task with K19's score of BERT-base trained from random weights, and the scores on record."""
    known, rows = _newest().get(RANDOM_MODEL, {}), []
    for name in ("rte", "mrpc", "stsb", "sst2"):
        case, counts = find_case("D1-random", name), [*TASKS[name].dev_counts.values()]
        constant = "-" if TASKS[name].regression else f"{100 * max(counts) / sum(counts):.1f}"
        cells = ["not run", "", ""]
        if (verdict := known.get(str(case))) is not None:
            by_seed = ", ".join(f"{scores[0]:.1f}" for scores in verdict.by_seed)
            cells = [_value(verdict), by_seed, outcome_words(verdict)]
        rows.append((TASKS[name].title, f"{case.figure.published:.1f}", constant, *cells))
    header = ("task", "K19, table 1", "most frequent class", "our mean [90% interval]", "our seeds", "verdict")
    return _table(header, rows)


def _caption(models: Iterable[str], shown: Iterable[Case]) -> str:
    """Return which sets of verdicts can be judged again from measurements on record, and why others cannot."""
    newest = {(run.model, verdict.id): name for name, run in _runs().items() for verdict in run.verdicts}
    names = dict.fromkeys(newest.get((model, str(case))) for case in shown for model in models)
    sets = yaml.safe_load((DOCS.parent / "data" / "evidence" / "sets.yaml").read_text(encoding="utf-8"))
    again, by_reason = [], {}
    for name in sorted(filter(None, names)):
        of_kind = again if name in sets["rejudged"] else by_reason.setdefault(sets["not_rejudged"][name], [])
        of_kind.append(f"`{name}`")
    others = "; ".join(f"{', '.join(own)} ({reason})" for reason, own in by_reason.items())
    on_record = "[measurements on record](../dvc.md#measurements-on-record)"
    lines = [f"Judged from {on_record}: {', '.join(again)}."] if again else []
    lines += [f"Not re-judgeable: {others}."] if others else []
    return f"\n\n*{' '.join(lines)}*"


def _newest() -> dict[str, dict[str, VerdictData]]:
    """Return the newest verdict in `expected/evidence` on each case, by model."""
    known: dict[str, dict[str, VerdictData]] = {}
    for run in _runs().values():
        known.setdefault(run.model, {}).update({verdict.id: verdict for verdict in run.verdicts})
    return known


def _runs() -> dict[str, VerdictsFile]:
    """Return the runs in `expected/evidence` by the names of their sets, those with the newest measurements last."""
    files = project_path("expected").glob("evidence/verdicts-*.json")
    runs = {file.stem.removeprefix("verdicts-"): read_verdicts_file(file) for file in files}
    return dict(sorted(runs.items(), key=lambda named: named[1].measured.last if named[1].measured else named[1].made))


def _verdict(verdict: VerdictData | None) -> str:
    if verdict is None:
        return "-"
    seeds = f"{len(verdict.seeds)} seed{'' if len(verdict.seeds) == 1 else 's'}" if verdict.seeds else ""
    limits = [remark for remark in verdict.remarks if "limit" in remark]
    value = "" if verdict.observed is None else _value(verdict)
    made, now = verdict.claim_version or 1, VERSIONS.get(verdict.id, 1)
    version = f"version {made}, now {now}" if made < now else ""
    return "; ".join(filter(None, (outcome_words(verdict), value, ", ".join([seeds, *limits]), version)))


def _value(verdict: VerdictData) -> str:
    shown = format_number(verdict.observed)
    if verdict.interval is None:
        return shown
    low, high = verdict.interval
    return f"{shown} {format_interval((-math.inf if low is None else low, math.inf if high is None else high))}"


def kinds(model: str, task: str) -> str:
    """Return a row for every claim on gains under all kinds of ablation (G9): the mean over seeds under each kind."""
    known = _newest()[model]
    rows = [
        (case.claim.name, *(format_number(fmean(gains)) for gains in zip(*known[str(case)].by_seed, strict=True)))
        for case in cases()
        if case.claim.id == "G9" and case.task == task and case.unit == "points"
    ]
    return _table(("gain in points", *ABLATION_KINDS), rows)


def damages() -> str:
    """Return a row for every kind of damage: what drifts from the undamaged checkpoint, and from the pin."""
    damages = _evidence("damages-minilm-rte")["damages"]
    rows = [(name, *(_drifted(found[base]) for base in ("itself", "the pin"))) for name, found in damages.items()]
    return _table(("damage", "compared with the undamaged checkpoint", "compared with the pin of five seeds"), rows)


def _drifted(outcomes: Mapping[str, str]) -> str:
    """Return the measures that drift, with the number of numbers if they were compared."""
    drifted = {name: how.removeprefix("drift: ") for name, how in outcomes.items() if how.startswith("drift: ")}
    shown = (f"{name} {how if re.match(r'[0-9]+ of [0-9]+$', how) else '(refused)'}" for name, how in drifted.items())
    return ", ".join(shown) or "-"


def fields() -> str:
    """Return a row for every field of a verdict as data."""
    rows = [(f"`{name}`", field.description or "") for name, field in VerdictData.model_fields.items()]
    return _table(("field", "meaning"), rows)


def commands() -> str:
    """Return a row for every command: name and description."""
    return _commands("bertsecrets", build_parser())


def instruments() -> str:
    """Return a row for every command of the instruments: name and description."""
    return _commands("python -m instruments", build_instruments())


def _commands(program: str, parser: Any) -> str:
    rows = [(f"`{program} {action.dest}`", action.help) for action in parser.commands._choices_actions]
    return _table(("command", "what it does"), rows)


def _first_line(of: object) -> str:
    return (inspect.getdoc(of) or "").split("\n")[0]


def ratios(name: str = "speed") -> str:
    """Return a row for every recorded ratio of the speed benchmarks, by default those on a CPU."""
    rows = [
        (
            row["what"],
            f"{row['ratio']:.2f}",
            *("" if row[key] is None else f"{row[key]:.3g}" for key in ("goal", "limit")),
        )
        for row in _evidence(name)["ratios"]
    ]
    return _table(("operation, compared with", "ratio", "goal", "counted"), rows)


def growth() -> str:
    """Return a row for every size at which the cost of disabling all heads was measured."""
    rows = [
        (
            axis,
            str(point["value"]),
            *(f"{value:.2f}" for value in (point["ours"], point["plain"], point["plain"] / point["ours"])),
        )
        for axis, points in _evidence("speed")["growth"].items()
        for point in points
    ]
    return _table(("axis", "size", "engine (s)", "one pass per head (s)", "ratio"), rows)


def machine(name: str = "speed") -> str:
    """Return the machine, versions and date of the recorded speed benchmarks, by default those on a CPU."""
    speed = _evidence(name)
    versions = ", ".join(f"{name} {version}" for name, version in speed["software"].items())
    where = f"{speed['processor']}, threads: {speed['threads']}, {versions}"
    return f"Measured on {speed['made'][:10]}: {where}."


def _evidence(name: str) -> dict[str, Any]:
    return json.loads((project_path("expected") / "evidence" / f"{name}.json").read_text())


TABLES: dict[str, Callable[..., str]] = {
    made.__name__: made
    for made in (
        *(measures, quantities, prospects, headlines, errors, assumptions, reasons, statements, claims, options),
        *(commands, instruments, fields, models, observed, random_column, kinds, damages, ratios, growth, machine),
    )
}

if __name__ == "__main__":
    for path in PAGES:
        path.write_text(renewed(path.read_text(encoding="utf-8")), encoding="utf-8")
    schema = json.dumps(json_schema(), indent=1, ensure_ascii=False)
    (DOCS / "schema" / f"verdicts-{MAJOR_VERSION}.json").write_text(f"{schema}\n", encoding="utf-8")
