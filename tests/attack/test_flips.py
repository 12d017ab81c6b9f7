"""If a byte in any file written by the suite is corrupted, the result is recomputed or refused, but never wrong."""

import random
import shutil
from collections import Counter
from pathlib import Path
from typing import Any

import pytest
from bench import Bench
from faults import LONG, Ended, Fault, content
from treebank_sample import write_treebank

FLIPS = 10 if LONG else 1  # per file; each flip runs a command
FEW = ("--limit", "6")
GRID = ("measure", "head-ablation", "@subject", *FEW, "--json", "@now.json")
FEATURES = ("measure", "features", "@subject", *FEW, "--spacy", "@pipeline", "--json", "@now.json")

THIRD = ("finetune", "@subject", "--seed", 3)

# For each kind of file: a pattern for the files, a pattern for the folders to delete so that they are read, and the
# command that reads them.
KINDS: dict[str, tuple[str, str | None, tuple[Any, ...]]] = {
    "stored checkpoint": (
        "runs/checkpoints/rte-pretrained-1-*/*",
        None,
        ("measure", "scores", "@subject", "--json", "@now.json"),
    ),
    "stored measurement": (
        "runs/measurements/special-tokens*/*",
        None,
        ("report", "@subject", "--claim", "E1-rte", "--json", "@now.json"),
    ),
    "grid": ("runs/grids/*/**/*", "runs/measurements/head-ablation*", GRID),
    "exported checkpoint": (
        "model/*",
        None,
        ("measure", "scores", "@subject", "--checkpoint", "@model", "--json", "@now.json"),
    ),
    "saved measurement": (
        "kept/*/*",
        None,
        ("report", "--model", "@bert", "--measurements", "@kept", "--claim", "E1-rte", "--json", "@now.json"),
    ),
    "state of a training": ("runs/training/**/*", None, (*THIRD, "--output", "@resumed")),
    "parses": ("runs/parses/*", "runs/measurements/features*", FEATURES),
}


@pytest.fixture(scope="module")
def filled(bench) -> Bench:
    """A bench with files of every kind except parses, saved as `all`."""
    bench.begin()
    bench.done(["finetune", "@subject", "--output", "@model"])
    bench.done(["report", "@subject", "--claim", "E1-rte", "--json", "@now.json"])
    bench.done(["measure", "special-tokens", "--checkpoint", "@model", "@subject", "--save", "@kept"])
    bench.done(GRID)
    bench.keep("before")
    lines = bench.done(THIRD).operations
    saved = [place for place, line in enumerate(lines) if "os.rename" in line and "training" in line]
    bench.put_back("before")
    bench.run(THIRD, Fault(operation=saved[0] + 1))  # just after the first saved state
    (bench.work / "now.json").unlink()
    bench.keep("all")
    return bench


@pytest.fixture(scope="module")
def parsed(filled, tmp_path_factory) -> Bench:
    """The bench with a spaCy pipeline and its parses added, saved as `parsed`."""
    pytest.importorskip("spacy")
    from instruments.train_parser import train_pipeline

    filled.put_back("all")
    train_pipeline(write_treebank(tmp_path_factory.mktemp("treebank")), filled.work / "pipeline")
    filled.done(FEATURES)
    filled.keep("parsed")
    return filled


def flip(path: Path, draw: random.Random) -> str:
    data = bytearray(path.read_bytes())
    place = draw.randrange(len(data))
    data[place] ^= draw.randrange(1, 256)
    path.write_bytes(data)
    return f"{path.name}, byte {place} of {len(data)}"


def outcome(ended: Ended, right: bool) -> str:
    """Classify how a command handled a damaged file.

    Args:
        right: Whether the result is correct.
    """
    if "Traceback" in ended.err or ended.code not in (0, 2):
        return "traceback"
    if ended.code == 2:
        return "refused" if ended.refused else "several lines"
    return ("recomputed" if ended.lines or "damaged" in ended.err else "same") if right else "silent"


def check_flips(bench: Bench, kept: str, kind: str) -> None:
    """Flip bytes in all files of one kind, one at a time, and check that the damage is noticed or harmless.

    Args:
        kept: Name of the saved state of the bench.
    """
    files, away, command = KINDS[kind]

    def put_back() -> list[Path]:
        bench.put_back(kept)
        for folder in bench.work.glob(away or "nothing"):
            shutil.rmtree(folder)
        return sorted(path for path in bench.work.glob(files) if path.is_file() and not path.name.startswith("."))

    def result(ended: Ended) -> Any:
        place = bench.work / "now.json" if "@now.json" in command else bench.work / "resumed" / "model.safetensors"
        return content(place) if place.exists() else None

    paths = put_back()
    right = result(bench.done(command))
    draw, outcomes, wrong = random.Random(kind), Counter(), []
    for number in sorted([*range(len(paths))] * FLIPS):
        where = flip(put_back()[number], draw)
        ended = bench.run(command)
        came = outcome(ended, result(ended) == right)
        outcomes[came] += 1
        if came not in ("recomputed", "refused", "same"):
            wrong.append(f"{came}: {where}: {ended}")
    assert wrong == [], outcomes


@pytest.mark.slow
@pytest.mark.parametrize("kind", [kind for kind in KINDS if kind != "parses"])
def test_a_flipped_byte_in_any_file_is_noticed_or_harmless(filled, kind):
    check_flips(filled, "all", kind)


@pytest.mark.slow
def test_a_flipped_byte_in_parses_is_noticed_or_harmless(parsed):
    check_flips(parsed, "parsed", "parses")
