"""The annotation page, a self-contained HTML file with all maps of a set.

Labels stay in the browser until the annotator downloads them as `annotations.tsv`, to replace the set's file.
"""

import base64
import json
from pathlib import Path
from typing import Any

import numpy as np

from bertsecrets.errors import UserError
from bertsecrets.patterns.classes import CLASSES
from bertsecrets.store.files import write_whole
from instruments.annotation.map_set import COLUMNS, LABELS, MapSet, PatternMap, fingerprint
from instruments.annotation.pictures import FULL_BAR, column_shares, palette, separators, shades
from instruments.annotation.writing import annotation_rows

TEMPLATE = Path(__file__).parent / "page.html"
DATA = "@DATA@"  # placeholder in the template
ORDER_SEED = 2019  # seed for the order of maps and for the second annotator's subset
GUIDELINES = {
    "vertical": "A column's bar reaches the line, or one to five plain columns run through; no diagonal line.",
    "diagonal": "A line along the main diagonal over most of its length; no column's bar reaches the line.",
    "vertical-diagonal": "Both: a plain diagonal line, and a column whose bar reaches the line.",
    "block": "Two lit squares, one per text; both other corners are clearly darker.",
    "heterogeneous": "None of these: scattered cells, many or broken columns, even haze.",
}


def write_page(
    maps: MapSet, file: Path, *, annotator: str = "", second: int | None = None, restart: bool = False
) -> None:
    """Write the page on which an annotator labels a set.

    The second annotator labels a random subset in a different order and cannot see the first annotator's labels.

    Args:
        annotator: Annotator's name, used in the name of the downloaded file.
        second: Number of maps for the second annotator, or None for the first annotator, who labels all maps.
        restart: Whether to discard this annotator's earlier labels.

    Raises:
        UserError: If the number of maps is out of range, or the file cannot be written.
    """
    if second is not None and not 1 <= second <= len(maps):
        raise UserError(f"--second {second} of {len(maps)} maps: give 1 to {len(maps)}")
    order = np.random.default_rng([ORDER_SEED, int(second is not None)]).permutation(len(maps))[:second].tolist()
    column = COLUMNS.index(LABELS[0] if second is None else LABELS[1])
    rows = [list(row) for row in annotation_rows(maps)]
    for row in rows if restart else []:
        row[column] = ""
    data = {
        "key": f"bertsecrets {fingerprint(MapSet(maps.maps))[:16]} {column} {annotator} {restart}",
        "annotator": annotator or ("first annotator" if second is None else "second annotator"),
        "file": f"annotations-{annotator}.tsv" if annotator else "annotations.tsv",
        "blind": second is not None,
        "columns": COLUMNS,
        "column": column,
        "rows": rows,
        "order": order,
        "maps": [_shown(maps.maps[place]) for place in order],
        "classes": [
            {"name": name, "key": str(number), "guideline": GUIDELINES[name]}
            for number, name in enumerate(CLASSES, start=1)
        ],
        "palette": palette(),
        "full_bar": FULL_BAR,
    }
    inlined = json.dumps(data, separators=(",", ":")).replace("<", "\\u003c")  # no map name can close the script
    write_whole(file, TEMPLATE.read_text(encoding="utf-8").replace(DATA, inlined))


def _shown(shown: PatternMap) -> dict[str, Any]:
    """Return a map as data, with shades (base64, row by row), column weights and positions of separators."""
    shares, special = column_shares(shown)
    return {
        "tokens": shown.tokens,
        "separators": separators(shown),
        "shades": base64.b64encode(shades(shown.values).tobytes()).decode(),
        "shares": np.round(shares, 4).tolist(),
        "special_share": round(special, 4),
    }
