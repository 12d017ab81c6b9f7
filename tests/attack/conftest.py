"""The fixtures `bench`, a folder in which faults are injected into commands, and `attack`, a command under attack."""

import tempfile
from collections.abc import Iterator
from pathlib import Path

import pytest
import yaml
from bench import Attack, Bench

from bertsecrets.texts.corpus import write_corpus


@pytest.fixture(scope="module")
def bench(tiny_bert, quick_params, trained) -> Iterator[Bench]:
    """A bench in a folder that other users can read."""
    with tempfile.TemporaryDirectory(prefix="attack-") as name:
        folder = Path(name).resolve()
        folder.chmod(0o755)
        data = yaml.safe_load(quick_params.read_text(encoding="utf-8"))
        data["finetune"]["save_every"] = 1.0e-9  # minutes, so training saves its state after every step
        settings = folder / "params.yaml"
        settings.write_text(yaml.safe_dump(data), encoding="utf-8")
        yield Bench(folder, tiny_bert, write_corpus(folder / "glue", 64, 24), settings, trained)


SHORT_RUN = ("--limit", "6")
OUTPUTS = ("--json", "@verdicts.json", "--metrics", "@metrics.json", "--plots", "@plots.json")
PAGE = ("--html", "@report.html")  # takes seconds
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
    "report with a page": (
        [["report", "@subject", *SHORT_RUN, "--claim", "E1-rte", *OUTPUTS, *PAGE]],
        ["report", "@subject", "--claim", "E1-rte", *OUTPUTS, *PAGE],
    ),
}


@pytest.fixture(
    scope="module",
    params=[pytest.param(name, marks=[pytest.mark.slow] * ("page" in name)) for name in COMMANDS],
)
def attack(request, bench) -> Attack:
    first, command = COMMANDS[request.param]
    return Attack.prepare(bench, request.param.replace(" ", "-"), first, command)
