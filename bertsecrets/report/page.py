"""The report as one HTML page that needs nothing beside it: verdicts, figures, provenance."""

from collections.abc import Sequence

import numpy as np
from jinja2 import Environment, PackageLoader, select_autoescape

from bertsecrets.core import Measurement
from bertsecrets.judging import Verdict
from bertsecrets.report.figures import heat_map, layer_curves
from bertsecrets.report.table import count_line, task_title, verdict_row


def page(verdicts: Sequence[Verdict], model: str) -> str:
    """The whole page."""
    environment = Environment(loader=PackageLoader("bertsecrets.report"), autoescape=select_autoescape(default=True))
    measurements = unique([found for verdict in verdicts for found in verdict.measurements])
    return environment.get_template("page.html").render(
        model=model,
        counts=count_line(verdicts),
        rows=[(verdict_row(verdict), verdict) for verdict in verdicts],
        figures=[drawn for found in measurements for drawn in draw(found)],
        measurements=measurements,
        task_title=task_title,
    )


def unique(measurements: Sequence[Measurement]) -> list[Measurement]:
    """Each measurement once, in order."""
    seen: dict[str, Measurement] = {}
    for found in measurements:
        seen.setdefault(f"{found.measure} {found.subject} {sorted(found.options.items())}", found)
    return list(seen.values())


def draw(found: Measurement) -> list[tuple[str, str]]:
    """A measurement's figures: (caption, SVG)."""
    subject = found.subject
    who = f"{subject.model}, {task_title(subject.task)}, {subject.initialisation}, seed {subject.seed}"
    if found.measure == "attention-change":
        form = f"padded to {found.options['padded_to']}" if "padded_to" in found.options else "cropped"
        caption = f"Similarity of each head's attention before and after fine-tuning ({form}): {who} (K19 figure 5)"
        return [(caption, heat_map(found.values["cosine"], form, 0, 1, "cosine similarity"))]
    if found.measure == "special-tokens":
        curves = {
            f"[{name.upper()}]": np.asarray(found.values[name]).mean(1)
            for name in ("cls", "sep")
            if not np.isnan(found.values[name]).all()
        }
        caption = f"Attention to [CLS] and [SEP] by layer, mean over heads: {who} (K19 figure 6)"
        return [(caption, layer_curves(curves, "", "attention received"))]
    return []
