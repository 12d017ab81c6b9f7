"""A copy of the DVC pipeline whose demo corner is one tiny subject, and DVC run in it as from a shell."""

import os
import shutil
import subprocess
import sys
from pathlib import Path

PROJECT = Path(__file__).resolve().parents[2]


def tiny_checkout(folder: Path, model: Path) -> Path:
    """Copy the pipeline and the code that it depends on into a new folder, and make its demo corner tiny."""
    folder.mkdir()
    for name in ("dvc.yaml", ".dvcignore", "expected", "bertsecrets"):
        source = PROJECT / name
        (shutil.copytree if source.is_dir() else shutil.copy)(source, folder / name)
    text = (PROJECT / "params.yaml").read_text()
    for old, new in (
        ("model: minilm", f"model: {model}"),
        ("initialisations: [pretrained, random, untrained]", "initialisations: [pretrained]"),
        ("train_rows: 800", "train_rows: 32"),
        ("dev_rows: 200", "dev_rows: 16"),
    ):
        assert old in text
        text = text.replace(old, new)
    (folder / "params.yaml").write_text(text)
    return folder


def start(folder: Path, *arguments: str) -> subprocess.Popen[str]:
    """Start DVC in a folder, with the project's own command on the PATH, as a group of processes of its own."""
    commands = folder.parent / "bin"
    commands.mkdir(exist_ok=True)
    script = commands / "bertsecrets"
    script.write_text(f'#!/bin/sh\nexec "{sys.executable}" -m bertsecrets "$@"\n')
    script.chmod(0o755)
    environment = {
        **os.environ,
        "PATH": f"{commands}{os.pathsep}{os.environ['PATH']}",
        "PYTHONPATH": str(folder),
        "BERTSECRETS_PARAMS": str(folder / "params.yaml"),
        "HF_HUB_OFFLINE": "1",
        "DVC_NO_ANALYTICS": "1",
        "PYTHONDONTWRITEBYTECODE": "",  # compiled code beside the source must not count as a change
    }
    return subprocess.Popen(
        [sys.executable, "-m", "dvc", *arguments],
        cwd=folder,
        env=environment,
        stdout=subprocess.PIPE,
        stderr=subprocess.STDOUT,
        text=True,
        start_new_session=True,
    )


def run(folder: Path, *arguments: str) -> str:
    """Run DVC in a folder, which must succeed; returns its output."""
    process = start(folder, *arguments)
    output, _ = process.communicate()
    assert process.returncode == 0, output
    return output
