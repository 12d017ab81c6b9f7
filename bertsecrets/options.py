"""Environment variables that stand in for options which are not given."""

import argparse
import os
from pathlib import Path

GLUE_VARIABLE = "BERTSECRETS_GLUE"
STORE_VARIABLE = "BERTSECRETS_STORE"
FRAMES_VARIABLE = "BERTSECRETS_FRAMES"


def store_folder(options: argparse.Namespace) -> Path:
    """Where checkpoints, measurements and last verdicts are kept."""
    return options.store or path_from(STORE_VARIABLE) or Path("runs")


def glue_folders(options: argparse.Namespace) -> list[Path]:
    """The local GLUE folders, looked into in turn; none where the hub is the source."""
    return options.glue or [Path(name) for name in os.environ.get(GLUE_VARIABLE, "").split(os.pathsep) if name]


def path_from(variable: str) -> Path | None:
    """A path from the environment."""
    return Path(os.environ[variable]) if os.environ.get(variable) else None
