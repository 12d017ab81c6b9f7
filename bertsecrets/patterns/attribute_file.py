"""What readers saw on the maps of a set: `attributes.tsv`, with a row for each time that a map was read.

A reading of K19's words (`patterns.readings`) turns these attributes into classes, and the set into a labelled one.
"""

from collections.abc import Mapping, Sequence
from pathlib import Path

from bertsecrets.errors import UserError
from bertsecrets.patterns.map_set import MapSet
from bertsecrets.patterns.readings import FEW, Attributes, Reading, read_class
from bertsecrets.reading import lines_of, read_text

ATTRIBUTES = "attributes.tsv"
NUMBERS = ("special", "other", "faint", "diagonal", "squares", "haze")
COLUMNS = ("name", "reading", *NUMBERS, "carried by")


def read_attributes(folder: Path) -> dict[str, list[Attributes]]:
    """Return what each reader saw on each map that was read, by the map's name, in the order of readings.

    Raises:
        UserError: the file is missing, or a row is wrong; the message names file and line.
    """
    path = folder / ATTRIBUTES
    if not path.exists():
        raise UserError(f"no {ATTRIBUTES} in {folder}: a set that is read for attributes has one beside its maps")
    header, *lines = lines_of(read_text(path))
    if header.split("\t") != list(COLUMNS):
        raise UserError(f"{path}, line 1: expected the columns {', '.join(COLUMNS)}")
    seen: dict[str, list[Attributes]] = {}
    for number, line in enumerate(lines, start=2):
        if not line:
            continue
        row, where = line.split("\t"), f"{path}, line {number}"
        if len(row) != len(COLUMNS):
            raise UserError(f"{where}: {len(row)} columns, where {len(COLUMNS)} were expected")
        name, reading, *numbers, carried_by = row
        if not all(number.isdecimal() and len(number) == 1 for number in numbers):
            raise UserError(f"{where}: expected one digit for each of {', '.join(NUMBERS)}")
        try:
            attributes = Attributes(**dict(zip(NUMBERS, map(int, numbers), strict=True)), carried_by=carried_by)
        except UserError as error:
            raise UserError(f"{where}: {error}") from error
        readings = seen.setdefault(name, [])
        readings.append(attributes)
        if reading != str(len(readings)):
            raise UserError(f"{where}: reading {reading[:20]!r} of {name[:99]!r}, where {len(readings)} was expected")
    return seen


def under(maps: MapSet, seen: Mapping[str, Sequence[Attributes]], reading: Reading, few: int = FEW) -> MapSet:
    """Return the maps that were read, labelled with the class that a reading gives to what each reader saw.

    Args:
        few: how many strong stripes on other tokens are still a few (`read_class`).
    """
    read = maps.take(i for i, one in enumerate(maps) if one.name in seen)
    votes = [[read_class(attributes, reading, few) for attributes in seen[one.name]] for one in read]
    first, second, third = (
        tuple(given[place] if len(given) > place else None for given in votes) for place in range(3)
    )
    return MapSet(read.maps, first, second, third, tuple(tuple(given[3:]) for given in votes))
