"""Write the bands of claims into `expected/`, where readers see them next to the published values."""

from collections.abc import Iterator
from pathlib import Path

import yaml

from bertsecrets.claims.expectations import Equality, Figure
from bertsecrets.claims.loading import load_claims
from bertsecrets.claims.schema import Case, Claim
from bertsecrets.errors import UserError
from bertsecrets.reading import YAML_LIMIT, read_text, read_yaml
from bertsecrets.settings import load_settings

FROM_SEEDS = "from the measured seeds"  # band of a published value whose source reports no spread over seeds
Edit = tuple[int, int, str]  # start and end of the characters to replace, and their replacement


def with_bands(file: Path) -> str:
    """Return the text of a file of claims after updating all bands in it."""
    text = read_text(file, YAML_LIMIT)
    root, data = read_yaml(text)
    assert root is not None
    claims, edits = {claim.name: claim for claim in load_claims(file.parent)}, list[Edit]()
    for entry, node in zip(data, root.value, strict=True):
        claim = claims["-".join(filter(None, (entry["id"], entry.get("variant"))))]
        edits += _of_figures(claim, node) if isinstance(claim.expect, Figure) else [_of_claim(claim, node, text)]
    for start, end, new in sorted(edits, reverse=True):
        text = text[:start] + new + text[end:]
    return text


def _of_figures(claim: Claim, entry: yaml.MappingNode) -> Iterator[Edit]:
    """Yield the bands of published values, for the mean over many seeds, with four significant digits."""
    tasks = _value(entry, "tasks")
    assert isinstance(tasks, yaml.MappingNode)
    for key, figure in tasks.value:
        limits = Case(claim, key.value).band(load_settings().judge.confidence)
        shown = FROM_SEEDS if limits is None else "[{:.4g}, {:.4g}]".format(*limits)
        if (written := _value(figure, "band")) is not None:
            yield written.start_mark.index, written.end_mark.index, shown
        else:
            if not figure.flow_style:
                raise UserError(f"{claim.name}: write the figure of {key.value} in braces, such as {{published: 64.6}}")
            place = figure.end_mark.index - 1
            yield place, place, f"{', ' if figure.value else ''}band: {shown}"


def _of_claim(claim: Claim, entry: yaml.MappingNode, text: str) -> Edit:
    """Return the limit of an order or an equality, together with the smallest effect of interest if it is used."""
    assert not isinstance(claim.expect, Figure)
    size = claim.cases[0].smallest_effect[0]
    used = isinstance(claim.expect, Equality) or claim.expect.judges(size)
    shown = f"{{{claim.expect.kind}: {claim.expect.value:g}{f', smallest_effect: {size:g}' if used else ''}}}"
    if (written := _value(entry, "band")) is not None:
        return written.start_mark.index, written.end_mark.index, shown
    expect = _value(entry, "expect")
    assert expect is not None
    line = (text + "\n").index("\n", expect.end_mark.index - 1)
    return line, line, f"\n  band: {shown}"


def _value(node: yaml.Node, name: str) -> yaml.Node | None:
    assert isinstance(node, yaml.MappingNode)
    return next((value for key, value in node.value if key.value == name), None)
