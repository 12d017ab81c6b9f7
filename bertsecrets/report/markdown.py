"""Markdown: a summary of a run, a section for a model card, and functions that escape untrusted text.

Text from users, files and other libraries is shown literally. `prose` escapes markup. `code` also prevents GitHub from
turning names into mentions and URLs into links.
"""

import re
from collections.abc import Collection, Iterable, Sequence
from itertools import accumulate

from bertsecrets.claims.verdict import Verdict, data_kind
from bertsecrets.errors import excerpt
from bertsecrets.formats import FAILURES, VerdictsFile
from bertsecrets.report.tables import table
from bertsecrets.report.text import (
    contradicted,
    counts_text,
    grid_legend,
    grid_rows,
    outcome_mark,
    outcome_phrase,
    run_lines,
    seeds_text,
    task_title,
    verdict_row,
)
from bertsecrets.texts.tasks import ALL_TASKS

SUMMARY_BYTES = 1_000_000  # GitHub limits each step's summary to 1 MiB
CELL_CHARACTERS = 600
PAPER_ADDRESS = "https://aclanthology.org/D19-1445"


def prose(words: object, most: int = CELL_CHARACTERS) -> str:
    r"""Escape text so that Markdown shows it literally, on one line.

    >>> prose("a*b* <c> [d](e)")
    'a\\*b\\* \\<c\\> \\[d\\](e)'
    """
    return re.sub(r"([\\`*_\[\]<>~#&$])", r"\\\1", excerpt(words, most))


def code(words: object, most: int = 120) -> str:
    """Return text as a code span, which prevents markup, mentions and links. Backticks and `|` in it are replaced.

    >>> code("@name | `www.example.org`")
    "`@name ¦ 'www.example.org'`"
    """
    return f"`{excerpt(words, most).replace('`', chr(39)).replace('|', '¦').strip() or '-'}`"


def bounded(header: Sequence[str], rows: Iterable[Sequence[str]], most_bytes: int) -> str:
    """Return a table of Markdown cells. If the size limit cuts off rows, a line below the table gives their number."""
    first, rule, *lines = table(header, rows, "markdown").split("\n")
    fitting = sum(size <= most_bytes for size in accumulate(len(line.encode()) + 1 for line in lines))
    more = [f"\nand {len(lines) - fitting} more"] if fitting < len(lines) else []
    return "\n".join([first, rule, *lines[:fitting], *more])


# ---------------------------------------------------------------------- the summary of a run, and a model card


def summary(
    verdicts: Sequence[Verdict], run: VerdictsFile, accepted: Collection[str] = (), *, checkpoint: bool = False
) -> str:
    """Return the summary of a run for `$GITHUB_STEP_SUMMARY`: failures first, then a collapsed list of all verdicts.

    See `html.page` for `accepted` and `checkpoint`.
    """
    failed = [verdict for verdict in verdicts if verdict.outcome in FAILURES]
    failed.sort(key=lambda verdict: (bool(outcome_mark(verdict, accepted)), verdict.outcome == "degenerate"))
    together = run_lines(verdicts, run.settings["judge"]["confidence"])
    parts = [
        f"## K19 claims: {counts_text(verdicts, accepted)}",
        _about(run, checkpoint=checkpoint),
        f"> [!WARNING]\n> incomplete: {prose(run.incomplete)}" if run.incomplete else "",
        "\n".join(f"- {prose(line)}" for line in together),
        _failures(failed, accepted),
        _grid(verdicts),
    ]
    text = "\n\n".join(filter(None, parts)) + "\n\n"
    header = ("claim", "task", "statement", "published", "band", "observed", "verdict")
    room = SUMMARY_BYTES - len(text.encode()) - 1000
    rows = bounded(header, ([prose(cell) for cell in verdict_row(verdict)] for verdict in verdicts), room)
    count = "1 verdict" if len(verdicts) == 1 else f"all {len(verdicts)} verdicts"
    return f"{text}<details><summary>{count}</summary>\n\n{rows}\n\n</details>\n"


def model_card(verdicts: Sequence[Verdict], run: VerdictsFile, *, checkpoint: bool = False) -> str:
    """Return a section for a model card: what was judged, and a table of the claims that were decided."""
    undecided = [verdict for verdict in verdicts if verdict.outcome in ("inconclusive", "not applicable", None)]
    rows = []
    for verdict in verdicts:
        if verdict not in undecided:
            name, task, statement, published, _, observed, _ = verdict_row(verdict)
            unit = verdict.unit if verdict.observed is not None else ""
            rows.append([f"{statement} ({name})", task, published, f"{observed} {unit}".strip(), verdict.status])
    header = ("claim", "task", "published", "observed", "verdict")
    shown = bounded(header, ([prose(cell) for cell in row] for row in rows), SUMMARY_BYTES // 3)
    others = ", ".join(str(verdict.case) for verdict in undecided)
    confidence = f"{100 * run.settings['judge']['confidence']:g}%"
    return "\n\n".join([
        "## Attention and fine-tuning",
        f"Judged against the claims of [*Revealing the Dark Secrets of BERT*]({PAPER_ADDRESS}): "
        f"{counts_text(verdicts)}.",
        shown if rows else "No claim was decided.",
        *([f"Not decided, or not applicable: {prose(others, 4000)}."] if others else []),
        f"{_about(run, checkpoint=checkpoint)} Intervals are at {confidence} confidence.",
    ]) + "\n"  # fmt: skip


def _about(run: VerdictsFile, *, checkpoint: bool) -> str:
    names = dict.fromkeys(verdict.task for verdict in run.verdicts if verdict.task != ALL_TASKS)
    measured = [verdict for verdict in run.verdicts if verdict.models]
    kinds = {data_kind(verdict.task, official=verdict.official_data) for verdict in measured}
    unofficial = "**unofficial data**" if "unofficial" in kinds else None
    limits = {f"{name} {number}" for verdict in measured for name, number in verdict.limits.items()}
    parts = [
        f"{code(run.model)} on {', '.join(map(task_title, names)) or 'all tasks'}",
        "one checkpoint" if checkpoint else seeds_text(seed for verdict in measured for seed in verdict.seeds),
        unofficial or ("own data" if "own" in kinds else "GLUE's own data"),
        f"**{prose(', '.join(sorted(limits)).replace('_', '-'))}**" if limits else "all rows",
    ]
    commit = f"commit {code(run.commit[:12])}{', modified' if run.modified else ''}, " if run.commit else ""
    made_by = f"bertsecrets {prose(run.software['bertsecrets'])}, {run.made.replace('T', ' ').replace('Z', ' UTC')}"
    return f"{', '.join(parts)}; {commit}{made_by}."


def _failures(failed: Sequence[Verdict], accepted: Collection[str]) -> str:
    if not failed:
        return ""
    rows = []
    for verdict in failed:
        _, _, statement, published, band, observed, _ = verdict_row(verdict)
        why = "; ".join(filter(None, (verdict.reason, contradicted(verdict))))
        paper = published if band in ("", "-") else f"{published}; band {band}"
        claim = f"{code(str(verdict.case))} {outcome_phrase(verdict, accepted)}"
        rows.append([claim, *map(prose, (statement, observed, paper, why))])
    header = ("claim", "statement", "observed", "published", "reason")
    return f"### Claims that do not hold\n\n{bounded(header, rows, SUMMARY_BYTES // 3)}"


def _grid(verdicts: Sequence[Verdict]) -> str:
    """Return a table of claims by tasks with outcomes and observed values, or "" if there is only one task."""
    header, *rows = grid_rows(verdicts)
    if len(header) < 3:
        return ""
    shown = bounded(header, ([prose(cell) for cell in row] for row in rows), SUMMARY_BYTES // 3)
    return f"### Claims by tasks\n\n{shown}\n\n{grid_legend(rows)}"
