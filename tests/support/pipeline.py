"""A copy of the DVC pipeline that runs one tiny subject, and functions to run DVC in it as from a shell."""

import os
import shutil
import subprocess
import sys
from pathlib import Path

import yaml

from bertsecrets.texts.corpus import write_corpus

PROJECT = Path(__file__).resolve().parents[2]
NAMES = (
    *("dvc.yaml", "params.yaml", "requirements"),
    *(".dvcignore", ".gitignore", "expected", "bertsecrets"),
)


def copied_checkout(folder: Path) -> Path:
    folder.mkdir()
    for name in NAMES:
        source = PROJECT / name
        (shutil.copytree if source.is_dir() else shutil.copy)(source, folder / name)
    return folder


def tiny_checkout(folder: Path, model: Path) -> Path:
    """Copy the pipeline into a new folder, and make it run one tiny subject on the suite's own corpus."""
    copied_checkout(folder)
    corpus = folder / "my-glue"
    write_corpus(corpus, 32, 16)
    params = yaml.safe_load((folder / "params.yaml").read_text())
    params["pipeline"] |= {
        "model": str(model),
        "model_files": str(model),
        "glue": str(corpus),
        "glue_files": str(corpus),
        "grid": {"task": ["rte"], "init": ["pretrained"], "seed": [1]},
        "options": {"data": {"allow-unofficial-data": True}, "finetune": {}, "measure": {}},
    }
    (folder / "params.yaml").write_text(yaml.safe_dump(params, sort_keys=False))
    return folder


def in_git(folder: Path) -> Path:
    """Turn a folder into a git repository with the project's DVC settings, and commit everything."""
    (folder / ".dvc").mkdir()
    for name in ("config", ".gitignore"):
        shutil.copy(PROJECT / ".dvc" / name, folder / ".dvc" / name)
    git(folder, "init", "--quiet")
    git(folder, "config", "user.name", "Test")
    git(folder, "config", "user.email", "test@localhost")
    commit(folder)
    return folder


def commit(folder: Path) -> None:
    git(folder, "add", ".")
    git(folder, "commit", "--quiet", "--message", "State")


def git(folder: Path, *arguments: str) -> None:
    subprocess.run(["git", *arguments], cwd=folder, check=True)


def environment(folder: Path) -> dict[str, str]:
    """Return a shell environment in which `python` is this interpreter, with the folder's own code and settings."""
    commands = folder.parent / "bin"
    commands.mkdir(exist_ok=True)
    script = commands / "python"
    script.write_text(f'#!/bin/sh\nexec "{sys.executable}" "$@"\n')
    script.chmod(0o755)
    return {
        **os.environ,
        "PATH": f"{commands}{os.pathsep}{os.environ['PATH']}",
        "PYTHONPATH": "",  # `python -m` finds the folder's own code first
        "HF_HUB_OFFLINE": "1",
        "DVC_NO_ANALYTICS": "1",
        "PYTHONDONTWRITEBYTECODE": "",  # compiled code next to the source must not count as a change
    }


def start(folder: Path, *arguments: str) -> subprocess.Popen[str]:
    """Start DVC in a folder as from a shell, in a separate process group."""
    return subprocess.Popen(
        [sys.executable, "-m", "dvc", *arguments],
        cwd=folder,
        env=environment(folder),
        stdout=subprocess.PIPE,
        stderr=subprocess.STDOUT,
        text=True,
        start_new_session=True,
    )


def run(folder: Path, *arguments: str) -> str:
    """Run DVC in a folder, assert that it succeeds, and return its output."""
    process = start(folder, *arguments)
    output, _ = process.communicate()
    assert process.returncode == 0, output
    return output
