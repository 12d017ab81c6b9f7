"""Killed at any moment, a command leaves nothing half and loses nothing; run again, it ends as if nothing had been."""

import random
import shutil
from itertools import chain

import pytest
from bench import Attack, some
from faults import LONG, Fault

SHORT_RUN = ("--limit", "6")
OUTPUTS = ("--json", "@verdicts.json", "--html", "@report.html", "--metrics", "@metrics.json", "--plots", "@plots.json")
DRAW = ("--per-task", 4, "--pretrained-per-task", 2, "--draw-only")

# What comes first, and the command that is attacked, over older results of another content where it replaces any.
COMMANDS = {
    "corpus": ([], ["corpus", "@glue", "--train-rows", 12, "--dev-rows", 6]),
    "finetune": (
        [["finetune", "@subject", "--output", "@model"]],
        ["finetune", "@subject", "--seed", 2, "--output", "@model"],
    ),
    "measure": (
        [["measure", "special-tokens", "@subject", *SHORT_RUN, "--save", "@kept", "--json", "@values.json"]],
        ["measure", "special-tokens", "@subject", "--save", "@kept", "--json", "@values.json"],
    ),
    "grid": (
        [["measure", "scores", "@subject", *SHORT_RUN]],
        ["measure", "head-ablation", "@subject", *SHORT_RUN, "--json", "@heads.json"],
    ),
    "report": (
        [
            ["report", "@subject", *SHORT_RUN, "--claim", "E1", *OUTPUTS],
            ["measure", "special-tokens", "@subject"],
        ],
        ["report", "@subject", "--claim", "E1", *OUTPUTS],
    ),
    "report from an empty store": ([], ["report", "@subject", "--claim", "E1", *OUTPUTS[:2]]),
    "annotate": (
        [["finetune", "@subject"], ["finetune", "@subject", "--init", "untrained"]],
        ["annotate", "@maps", "@subject", *DRAW],
    ),
    "sheets": (
        [["annotate", "@maps", "@subject", *DRAW]],
        ["sheets", "@maps", "@pictures"],
    ),
}


@pytest.fixture(scope="module", params=COMMANDS)
def attack(request, bench) -> Attack:
    first, command = COMMANDS[request.param]
    return Attack.prepare(bench, request.param.replace(" ", "-"), first, command)


def test_killed_before_a_change_of_files(attack, tally):
    places = some(range(attack.operations), 4, attack.name)
    problems = [attack.problems(Fault(operation=place)) for place in places]
    tally(f"killed at a file operation: {attack.name}", len(places), problems.count([]))
    assert list(chain(*problems)) == []


def test_killed_when_a_training_has_just_ended(bench):
    """The next run finds the checkpoint, and clears away the state that the training would have gone on from."""
    command = ["finetune", "@subject", "--seed", 4]
    bench.work.mkdir(exist_ok=True)
    lines = bench.done(command).operations
    shutil.rmtree(bench.work / "runs")
    stored = max(place for place, line in enumerate(lines) if "os.rename" in line and "/runs/checkpoints/" in line)
    assert bench.run(command, Fault(operation=stored + 2)).killed
    assert list(bench.work.glob("runs/training/*/*"))
    bench.done(command)
    assert list(bench.work.glob("runs/training/*")) == []


def test_killed_within_a_file(attack, tally):
    sizes = [3000, *((100, 1000, 10_000, 30_000, 100_000) if LONG else ())]
    problems = [attack.problems(Fault(cut=size)) for size in sizes]
    tally(f"killed within a file: {attack.name}", len(sizes), problems.count([]))
    assert list(chain(*problems)) == []


def test_killed_at_a_random_moment(attack, tally):
    draw = random.Random(attack.name)
    moments = [draw.uniform(0.02, 1.2) for _ in range(24 if LONG else 1)]
    problems = [attack.problems(Fault(seconds=moment)) for moment in moments]
    tally(f"killed at a random moment: {attack.name}", len(moments), problems.count([]))
    assert list(chain(*problems)) == []
