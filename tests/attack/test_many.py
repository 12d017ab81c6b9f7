"""Many processes can share a store: all succeed with equal values, and no entry is made twice."""

import re
import shutil
from collections import Counter

import pytest
from bench import Bench
from faults import NIGHTLY, Ended, Fault, content, leftovers

PROCESSES = 8
FEW = ("--limit", "6")


@pytest.fixture
def fresh(bench) -> Bench:
    bench.begin(trained=False)
    return bench


def at_once(bench: Bench, commands, faults=()) -> list[Ended]:
    faults = [*faults, *[Fault()] * (len(commands) - len(faults))]
    running = [bench.start(command, fault) for command, fault in zip(commands, faults, strict=True)]
    return [process.wait() for process in running]


def made(ended: list[Ended], kind: str) -> Counter[str]:
    """Count how often each entry was made (a temporary folder was renamed to it)."""
    renamed = (
        re.search(rf"os\.rename .*/runs/{kind}/([^./']+)'\)$", line) for process in ended for line in process.operations
    )
    return Counter(match[1] for match in renamed if match)


def check(bench: Bench, ended: list[Ended], outputs: list[str], checkpoints: int) -> None:
    """Check that no process failed (some may be killed), outputs are equal, and each checkpoint was trained once."""
    assert [str(process) for process in ended if process.code not in (0, -9)] == []
    values = [content(bench.work / name) for name in outputs]
    assert all(value == values[0] for value in values)
    trained = made(ended, "checkpoints")
    assert (len(trained), set(trained.values())) == (checkpoints, {1})
    assert leftovers(bench.work / "runs") == []


@pytest.mark.slow
def test_many_processes_share_a_fresh_store(fresh):
    measures = ["attention-change", "head-ablation"] * 2
    names = [f"{number}.json" for number in range(len(measures))]
    commands = [
        ["measure", measure, "@subject", *FEW, "--json", f"@{name}"]
        for measure, name in zip(measures, names, strict=True)
    ]
    ended = at_once(fresh, commands)
    for first in range(2):
        check(fresh, ended, names[first::2], checkpoints=1)


@NIGHTLY
def test_many_processes_write_the_same_files(fresh):
    command = ["report", "@subject", *FEW, "--claim", "E1-rte", "--json", "@now.json", "--plots", "@plots.json"]
    ended = at_once(fresh, [command] * PROCESSES)
    check(fresh, ended, ["now.json"], checkpoints=1)
    exported = at_once(fresh, [["finetune", "@subject", "--output", "@model"]] * PROCESSES)
    assert [str(process) for process in exported if process.code not in (0, 1)] == []
    assert leftovers(fresh.work) == []
    names = sorted(path.name for path in (fresh.work / "model").iterdir() if not path.name.startswith("."))
    assert names == ["config.json", "manifest.json", "model.safetensors", "tokenizer.json", "tokenizer_config.json"]


@NIGHTLY
def test_a_killed_lock_holder_is_followed_by_another(fresh):
    """All processes except the last are killed just before they store the checkpoint."""
    lines = fresh.done(["measure", "special-tokens", "@subject", *FEW]).operations
    stored = next(place for place, line in enumerate(lines) if "os.rename" in line and "/runs/checkpoints/" in line)
    fresh.begin(trained=False)
    names = [f"{number}.json" for number in range(PROCESSES)]
    commands = [["measure", "special-tokens", "@subject", *FEW, "--json", f"@{name}"] for name in names]
    ended = at_once(fresh, commands, [Fault(operation=stored)] * (PROCESSES - 1))
    check(fresh, ended, names[-1:], checkpoints=1)
    assert ended[-1].code in (0, 1)


@NIGHTLY
def test_a_damaged_entry_is_made_again_once(fresh):
    names = [f"{number}.json" for number in range(PROCESSES)]
    fresh.done(["measure", "special-tokens", "@subject", *FEW, "--json", "@right.json"])
    shutil.rmtree(fresh.work / "runs" / "measurements")
    weights = next((fresh.work / "runs" / "checkpoints").glob("[!.]*/model.safetensors"))
    data = bytearray(weights.read_bytes())
    data[-1] ^= 1
    weights.write_bytes(data)
    commands = [["measure", "special-tokens", "@subject", *FEW, "--json", f"@{name}"] for name in names]
    check(fresh, at_once(fresh, commands), ["right.json", *names], checkpoints=1)
