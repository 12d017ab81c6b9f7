"""`.ci/run` tests the pinned versions, and the newest ones only if the package index lacks a pinned file."""

import os
import shutil
import subprocess
from pathlib import Path

import pytest
from pages import PROJECT

# What pip prints, and a stub for make: `install` fails with that text unless NEWEST is set.
LACKING = """\
ERROR: Could not find a version that satisfies the requirement numpy==9.9 (from versions: 2.0.0, 2.1.0)
ERROR: No matching distribution found for numpy==9.9
"""
TAMPERED = "ERROR: THESE PACKAGES DO NOT MATCH THE HASHES FROM THE REQUIREMENTS FILE.\n    numpy==2.1.0\n"
UNREACHABLE = f"WARNING: Retrying (Retry(total=0)) after connection broken by 'NewConnectionError'\n{LACKING}"
MAKE = """#!/bin/sh
echo "NEWEST=$NEWEST $*" >> calls
if [ "$1" = install ] && [ -z "$NEWEST" ] && [ -s pip ]; then cat pip >&2; exit 2; fi
[ "$1" = install ] || exit "${TESTS:-0}"
"""


def ci(folder: Path, pip: str, **variables: str) -> tuple[int, str, list[str]]:
    """Run `.ci/run` on stubs; return its exit code, its last line and the calls of make."""
    programs = folder / "programs"
    (folder / ".ci").mkdir()
    programs.mkdir()
    shutil.copy(PROJECT / ".ci" / "run", folder / ".ci")
    (folder / "pip").write_text(pip)
    for name, text in {"make": MAKE, "chromium": "", "python": "", "pytest": ""}.items():
        (programs / name).write_text(text or "#!/bin/sh\n")
        (programs / name).chmod(0o755)
    environment = {"PATH": f"{programs}:{os.environ['PATH']}", "HOME": str(folder), **variables}
    done = subprocess.run([folder / ".ci" / "run"], env=environment, capture_output=True, text=True, check=False)
    return done.returncode, done.stdout.splitlines()[-1], (folder / "calls").read_text().splitlines()


NEWEST = "the newest versions, because the index lacks numpy==9.9"


@pytest.mark.parametrize(
    ("pip", "tests", "last", "versions"),
    [
        ("", "0", "the pinned versions of requirements/", ["", ""]),
        ("", "2", "the pinned versions of requirements/", ["", ""]),  # named after failed tests, too
        (LACKING, "0", NEWEST, ["", "yes", "yes"]),
    ],
)
def test_the_newest_versions_are_tested_if_the_index_lacks_a_pinned_file(tmp_path, pip, tests, last, versions):
    code, said, calls = ci(tmp_path, pip, TESTS=tests)
    assert (code, said) == (int(tests), f"== tested with {last}")
    assert [call.split()[0] for call in calls] == [f"NEWEST={version}" for version in versions]


@pytest.mark.parametrize("pip", [TAMPERED, UNREACHABLE, "ERROR: No space left on device\n"])
def test_any_other_failure_of_the_installation_ends_the_run(pip, tmp_path):
    code, last, calls = ci(tmp_path, pip)
    assert (code, last) == (1, "== tested nothing: the installation failed")
    assert calls == ["NEWEST= install"]
