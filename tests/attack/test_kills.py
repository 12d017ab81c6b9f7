"""A killed command leaves no partial files and loses no data. Run again, it gives the results of an undisturbed run."""

import shutil
from itertools import chain

import pytest
from bench import Attack, some
from faults import LONG, Fault

SHORT_RUN = ("--limit", "6")
OUTPUTS = ("--json", "@verdicts.json", "--metrics", "@metrics.json", "--plots", "@plots.json")
PAGE = ("--html", "@report.html")  # takes seconds
SLOW = ("report with a page", "annotate", "sheets")
DRAW = ("--per-task", 4, "--pretrained-per-task", 2)

# Setup commands, and the command under attack. If it replaces files, setup creates older ones with different content.
COMMANDS = {
    "corpus": ([], ["corpus", "@glue", "--train-rows", 12, "--dev-rows", 6]),
    "finetune": (
        [["finetune", "@subject", "--output", "@model"]],
        ["finetune", "@subject", "--seed", 3, "--output", "@model"],
    ),
    "measure": (
        [["measure", "special-tokens", "@subject", *SHORT_RUN, "--save", "@kept", "--json", "@values.json"]],
        ["measure", "special-tokens", "@subject", "--save", "@kept", "--json", "@values.json"],
    ),
    "grid": ([], ["measure", "head-ablation", "@subject", *SHORT_RUN, "--json", "@heads.json"]),
    "report": (
        [["report", "@subject", *SHORT_RUN, "--claim", "E1-rte", *OUTPUTS]],
        ["report", "@subject", "--claim", "E1-rte", *OUTPUTS],
    ),
    "report with a page": (
        [["report", "@subject", *SHORT_RUN, "--claim", "E1-rte", *OUTPUTS, *PAGE]],
        ["report", "@subject", "--claim", "E1-rte", *OUTPUTS, *PAGE],
    ),
    "annotate": ([], ["instruments", "annotate", "@maps", "@subject", *DRAW]),
    "sheets": (
        [["instruments", "annotate", "@maps", "@subject", *DRAW]],
        ["instruments", "sheets", "@maps", "@pictures"],
    ),
}


@pytest.fixture(
    scope="module", params=[pytest.param(name, marks=[pytest.mark.slow] * (name in SLOW)) for name in COMMANDS]
)
def attack(request, bench) -> Attack:
    first, command = COMMANDS[request.param]
    return Attack.prepare(bench, request.param.replace(" ", "-"), first, command)


@pytest.fixture(scope="module")
def from_nothing(bench) -> Attack:
    """A report that starts with an empty store, so it trains the model first."""
    command = ["report", "@subject", "--claim", "E1-rte", *OUTPUTS]
    return Attack.prepare(bench, "from-nothing", [], command, trained=False)


def test_a_command_killed_while_writing_loses_nothing(attack):
    """The command is killed just after opening its last file, which is still empty."""
    assert attack.problems(Fault(operation=attack.last_opened + 1)) == []


@pytest.mark.slow
@pytest.mark.parametrize("killed", ["between files", "within a file"])
def test_a_command_killed_at_any_change_of_files_loses_nothing(attack, killed):
    places = some(range(attack.operations), 4, attack.name)
    sizes = [3000, *((100, 1000, 10_000, 30_000, 100_000) if LONG else ())]
    faults = (
        [Fault(operation=place) for place in places] if killed == "between files" else [Fault(cut=n) for n in sizes]
    )
    assert list(chain.from_iterable(map(attack.problems, faults))) == []


@pytest.mark.slow
def test_a_report_killed_before_it_has_a_checkpoint_loses_nothing(from_nothing):
    places = some(range(from_nothing.operations), 4, from_nothing.name)
    assert list(chain.from_iterable(from_nothing.problems(Fault(operation=place)) for place in places)) == []


@pytest.mark.slow
def test_killed_when_a_training_has_just_ended(bench):
    """The next run finds the checkpoint, and deletes the training state, which is no longer needed."""
    command = ["finetune", "@subject", "--seed", 4]
    bench.work.mkdir(exist_ok=True)
    lines = bench.done(command).operations
    shutil.rmtree(bench.work / "runs")
    stored = max(place for place, line in enumerate(lines) if "os.rename" in line and "/runs/checkpoints/" in line)
    assert bench.run(command, Fault(operation=stored + 2)).killed
    assert list(bench.work.glob("runs/training/*/*"))
    bench.done(command)
    assert list(bench.work.glob("runs/training/*")) == []
