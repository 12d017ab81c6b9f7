"""The wheel is small, contains the claims and settings, and its benchmarks run without a checkout.

The source distribution contains exactly what the wheel is built from.
"""

import os
import re
import subprocess
import sys
import tarfile
import zipfile
from pathlib import Path

import pytest

ROOT = Path(__file__).parents[2]
MOST_BYTES = 4 * 2**20
pytestmark = pytest.mark.slow


def built(target: str, source: Path, folder: Path) -> Path:
    """Build a wheel or a source distribution and return the file."""
    subprocess.run(
        [sys.executable, "-m", "hatchling", "build", "--target", target, "--directory", str(folder)],
        cwd=source,
        check=True,
        capture_output=True,
    )
    (file,) = folder.iterdir()
    return file


@pytest.fixture(scope="module")
def wheel(tmp_path_factory) -> Path:
    return built("wheel", ROOT, tmp_path_factory.mktemp("wheel"))


@pytest.fixture(scope="module")
def installed(wheel, tmp_path_factory) -> Path:
    folder = tmp_path_factory.mktemp("site-packages")
    with zipfile.ZipFile(wheel) as file:
        file.extractall(folder)
    return folder


def outside(installed: Path, cwd: Path, *command: str, **environment: str) -> subprocess.CompletedProcess[str]:
    """Run a Python module in a folder without a checkout, with the wheel's package first on the path."""
    inherited = {name: value for name, value in os.environ.items() if not name.startswith("PYTEST_")}
    return subprocess.run(
        [sys.executable, "-m", *command],
        cwd=cwd,
        env={**inherited, "PYTHONPATH": str(installed), **environment},
        capture_output=True,
        text=True,
        check=False,
    )


def test_the_wheel_is_small_and_contains_neither_instruments_nor_annotated_maps(wheel):
    with zipfile.ZipFile(wheel) as file:
        names = file.namelist()
    assert wheel.stat().st_size <= MOST_BYTES
    assert {name.split("/")[0] for name in names if ".dist-info/" not in name} == {"bertsecrets"}
    assert [name for name in names if name.endswith(".npz")] == []
    assert {re.split("[-/]", name)[0] for name in names} == {"bertsecrets"}
    for needed in (
        "bertsecrets/py.typed",
        "bertsecrets/data/params.yaml",
        "bertsecrets/data/expected/C-change.yaml",
        "bertsecrets/data/expected/statements.csv",
        "bertsecrets/patterns/weights/special.safetensors",
        "bertsecrets/patterns/weights/stripes.safetensors",
        "bertsecrets/report/templates/page.html",
    ):
        assert needed in names


def test_the_source_distribution_builds_the_same_wheel_and_contains_no_tests(wheel, tmp_path):
    with tarfile.open(built("sdist", ROOT, tmp_path / "sdist")) as file:
        file.extractall(tmp_path, filter="data")
    (source,) = tmp_path.glob("bertsecrets-*")
    parts = {path.name for path in source.iterdir()}
    assert parts - {".gitignore", "PKG-INFO", "pyproject.toml", "README.md", "LICENSE"} == {
        "bertsecrets", "expected", "params.yaml"
    }  # fmt: skip
    with zipfile.ZipFile(wheel) as ours, zipfile.ZipFile(built("wheel", source, tmp_path / "wheel")) as theirs:
        assert {name: ours.read(name) for name in ours.namelist()} == {
            name: theirs.read(name) for name in theirs.namelist()
        }


def test_the_installed_benchmarks_run_without_a_checkout(installed, tmp_path, tiny_bert, tiny_glue, quick_params):
    done = outside(
        installed, tmp_path, "pytest", "--pyargs", "bertsecrets.benchmarks", "-k", "D2-rte and not frozen",
        "-p", "no:cacheprovider", "-ra",
        "--model", str(tiny_bert), "--glue", str(tiny_glue), "--store", str(tmp_path / "runs"), "--device", "cpu",
        "--offline", "--allow-unofficial-data", BERTSECRETS_PARAMS=str(quick_params),
    )  # fmt: skip
    assert done.returncode in (0, 1), done.stdout + done.stderr
    assert "1 claim: " in done.stdout
    summary = done.stdout.partition("short test summary info")[2]
    assert re.search(r"^(FAILED|SKIPPED \[1\]|PASSED|XFAIL) benchmarks/test_claims.py:", summary, re.MULTILINE)
