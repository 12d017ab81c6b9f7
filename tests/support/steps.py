"""The workflows, and their steps run as on a runner: with bash, in a separate folder."""

import json
import subprocess
import sys
from collections.abc import Mapping
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any

import yaml
from pages import PROJECT

WORKFLOWS = sorted((PROJECT / ".github" / "workflows").glob("*.yml"))
# A stub for a program: logs its arguments, creates the files that its options name, and exits with a given code.
STAND_IN = """#!{python}
import json, os, sys
with open(os.environ["CALLS"], "a") as calls:
    calls.write(json.dumps([os.path.basename(sys.argv[0]), *sys.argv[1:]]) + "\\n")
for option, name in zip(sys.argv, sys.argv[1:]):
    if option in ("--json", "--html", "--markdown", "--junitxml"):
        verdicts = {{"verdicts": [{{"id": "C1-rte"}}, {{"id": "D2-rte-frozen"}}]}}
        open(name, "w").write(json.dumps(verdicts) if option == "--json" else "made by " + option)
sys.exit(int(os.environ.get("ENDS_WITH", 0)))
"""


@dataclass
class Ran:
    """The results of a step: its exit code, output and summary, and the programs that it called."""

    code: int
    output: str
    folder: Path
    calls: list[list[str]] = field(default_factory=list)

    @property
    def summary(self) -> str:
        return (self.folder / "summary").read_text()

    def of(self, program: str) -> list[list[str]]:
        return [call[1:] for call in self.calls if call[0] == program]


def workflow(path: Path) -> dict[Any, Any]:
    """Return a workflow as data, with its triggers under `on`, which YAML parses as True."""
    read = yaml.safe_load(path.read_text(encoding="utf-8"))
    return {"on" if key is True else key: value for key, value in read.items()}


def step(name: str, title: str) -> dict[str, Any]:
    """Return the step with this title in a workflow (`tests.yml`) or an action (`judge`)."""
    if name.endswith(".yml"):
        steps = [
            candidate
            for job in workflow(PROJECT / ".github" / "workflows" / name)["jobs"].values()
            for candidate in job["steps"]
        ]
    else:
        steps = workflow(PROJECT / ".github" / "actions" / name / "action.yml")["runs"]["steps"]
    (chosen,) = (candidate for candidate in steps if candidate.get("name") == title)
    return chosen


def run_step(script: str, environment: Mapping[str, str], folder: Path, ends_with: int = 0) -> Ran:
    """Run a step's commands with stubs for `bertsecrets` and `pytest`.

    Args:
        ends_with: Exit code of the stubs.
    """
    programs, checkout = folder / "programs", folder / "checkout"
    for made in (programs, checkout):
        made.mkdir()
    for name in ("bertsecrets", "pytest"):
        (programs / name).write_text(STAND_IN.format(python=sys.executable))
        (programs / name).chmod(0o755)
    (programs / "python").symlink_to(sys.executable)
    for name in ("summary", "calls", "output"):
        (folder / name).write_text("")
    given = {
        "PATH": f"{programs}:/usr/bin:/bin",
        "HOME": str(folder / "home"),
        "GITHUB_STEP_SUMMARY": str(folder / "summary"),
        "GITHUB_OUTPUT": str(folder / "output"),
        "RUNNER_TEMP": str(folder),
        "CALLS": str(folder / "calls"),
        "ENDS_WITH": str(ends_with),
        **environment,
    }
    shell = ["bash", "--noprofile", "--norc", "-eo", "pipefail", "-c", script]
    done = subprocess.run(shell, cwd=checkout, env=given, capture_output=True, text=True, check=False)
    calls = [json.loads(line) for line in (folder / "calls").read_text().splitlines()]
    return Ran(done.returncode, done.stdout + done.stderr, folder, calls)
