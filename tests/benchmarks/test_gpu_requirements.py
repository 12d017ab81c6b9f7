"""The requirements of `make gpu`: missing packages come from a folder of wheels, and unneeded ones are not imported."""

import os
import shutil
import subprocess
import sys
import zipfile
from pathlib import Path

import pytest

ROOT = Path(__file__).parents[2]
GPU = ROOT / "benchmarks" / "gpu"
pytestmark = pytest.mark.slow


def wheel(folder, name, version):
    folder.mkdir(exist_ok=True)
    with zipfile.ZipFile(folder / f"{name}-{version}-py3-none-any.whl", "w") as file:
        file.writestr(f"{name}.py", f"version = {version!r}\n")
        file.writestr(
            f"{name}-{version}.dist-info/METADATA", f"Metadata-Version: 2.1\nName: {name}\nVersion: {version}\n"
        )
        file.writestr(
            f"{name}-{version}.dist-info/WHEEL", "Wheel-Version: 1.0\nRoot-Is-Purelib: true\nTag: py3-none-any\n"
        )
        file.writestr(f"{name}-{version}.dist-info/RECORD", "")


def test_missing_requirements_are_one_line_and_come_from_a_folder_of_wheels(tmp_path):
    own = '[project]\nname = "own"\ndependencies = ["pytest", "own-need>=2"]\n'
    own += "[project.optional-dependencies]\ngpu = ['own[more]']\nmore = ['own-other', 'torch>=999']\n"
    (tmp_path / "pyproject.toml").write_text(own)
    provide = f"""
import sys
from pathlib import Path
sys.path[:0] = [{str(GPU)!r}, {str(ROOT)!r}]
from environment import provide
from bertsecrets.errors import UserError
here = Path({str(tmp_path)!r})
try:
    provide(here / "wheels", here / "site", here)
except UserError as error:
    print(error)
else:
    import own_need, own_other, subprocess
    print(own_need.version)
    subprocess.run([sys.executable, "-c", "import own_need"], check=True)
"""

    def provided():
        return subprocess.run([sys.executable, "-c", provide], capture_output=True, text=True, check=True).stdout

    message = provided()
    assert message.startswith(
        "missing here: torch (a build for this GPU's CUDA), own-need>=2, own-other: install them, or "
    )
    assert message.count("\n") == 1
    (tmp_path / "pyproject.toml").write_text(own.replace(", 'torch>=999'", ""))
    wheel(tmp_path / "wheels", "own_other", "1.0")
    wheel(tmp_path / "wheels", "own_need", "1.0")
    assert provided().startswith("missing here: own-need>=2: install them, or ")
    (tmp_path / "wheels" / "own_need-1.0-py3-none-any.whl").unlink()
    wheel(tmp_path / "wheels", "own_need", "2.5")
    for _ in range(2):
        assert provided() == "2.5\n"


@pytest.mark.parametrize(
    ("mark", "unopened"),
    [("gpu", ""), ("not slow", "import pytest\npytestmark = pytest.mark.slow\n")],
    ids=["gpu", "not slow"],
)
def test_files_in_which_a_mark_deselects_everything_are_not_opened(tmp_path, mark, unopened):
    """They may import packages that a machine with a GPU lacks."""
    (tmp_path / "test_a.py").write_text(unopened + "import nothing_of_this_name\n")
    shutil.copy(ROOT / "conftest.py", tmp_path / "conftest.py")
    tests = "@pytest.mark.gpu\ndef test_one(): pass\n\n@pytest.mark.slow\ndef test_two(): pass\n"
    (tmp_path / "test_b.py").write_text(f"import pytest\n{tests}")
    words = ["-q", "-p", "no:cacheprovider", "-m", mark, "--collect-only", "-c", os.devnull, "--rootdir", tmp_path]
    line = [sys.executable, "-m", "pytest", *map(str, words), str(tmp_path)]
    environment = {name: value for name, value in os.environ.items() if not name.startswith("PYTEST_")}
    done = subprocess.run(line, capture_output=True, text=True, env=environment, cwd=tmp_path)
    assert (done.returncode, "1/2 tests collected (1 deselected)" in done.stdout) == (0, True), done.stdout
