"""The bench on which commands are attacked, and the table of what was tried and what survived."""

import tempfile
from collections import Counter
from collections.abc import Callable, Iterator
from pathlib import Path

import pytest
import yaml
from bench import Bench

from bertsecrets.texts.corpus import write_corpus

Tally = Callable[[str, int, int], None]


@pytest.fixture(scope="module")
def bench(tiny_bert, quick_params, trained) -> Iterator[Bench]:
    """A bench in a folder that other users can read."""
    with tempfile.TemporaryDirectory(prefix="attack-") as name:
        folder = Path(name).resolve()
        folder.chmod(0o755)
        data = yaml.safe_load(quick_params.read_text(encoding="utf-8"))
        data["finetune"]["save_every"] = 1.0e-9  # minutes: training saves its state after every step
        settings = folder / "params.yaml"
        settings.write_text(yaml.safe_dump(data), encoding="utf-8")
        yield Bench(folder, tiny_bert, write_corpus(folder / "glue", 64, 24), settings, trained)


@pytest.fixture
def tally(record_property) -> Tally:
    """A function that notes, for the table at the end, how often a fault was tried and survived."""

    def note(fault: str, tried: int, survived: int) -> None:
        record_property("attack", (fault, tried, survived))

    return note


def pytest_terminal_summary(terminalreporter) -> None:
    tried: Counter[str] = Counter()
    survived: Counter[str] = Counter()
    for outcome in ("passed", "failed"):
        for report in terminalreporter.stats.get(outcome, []):
            for name, value in report.user_properties:
                if name == "attack" and report.when == "call":
                    tried[value[0]] += value[1]
                    survived[value[0]] += value[2]
    if tried:
        terminalreporter.section("attacks")
        for fault, count in tried.items():
            terminalreporter.write_line(f"{fault}: {count} tried, {survived[fault]} survived")
