"""Permissions in a store: files are open to those to whom their folder is, whatever the umask of who wrote them."""

import os
import stat
from collections.abc import Iterator
from contextlib import suppress
from pathlib import Path

FOLDER, FILE = 0o755, 0o644  # and in addition whoever may write the folder above


def file_mode(folder: Path) -> int:
    """Return the mode of a file in `folder`: readable by all who can reach it, writable by those who may add files.

    In a folder like /tmp, where all may add files but none may change those of others, only its owner may write it.
    """
    mode = folder.stat().st_mode
    writers = 0 if mode & stat.S_ISVTX else stat.S_IWGRP | stat.S_IWOTH
    return FILE | mode & writers


def folder_mode(folder: Path) -> int:
    """Return the mode of a folder in `folder`, as `file_mode`."""
    return FOLDER | file_mode(folder)


def open_up(tree: Path) -> None:
    """Give a new folder, and everything in it, the modes that belong to the folder that holds it."""
    of_file, of_folder = file_mode(tree.parent), folder_mode(tree.parent)
    for path in (tree, *tree.rglob("*")):
        if not path.is_symlink():
            _change(path, of_folder if path.is_dir() else of_file)


def make_folders(folder: Path) -> None:
    """Make a folder and those above it that are missing; each is open to those to whom the one above is.

    The topmost has the mode that the umask gives it, unless the folder above is one that several people write.
    """
    missing = list(_missing(folder))
    folder.mkdir(parents=True, exist_ok=True)
    for made in reversed(missing):
        if made != missing[-1] or file_mode(made.parent) != FILE:
            _change(made, folder_mode(made.parent))


def _missing(folder: Path) -> Iterator[Path]:
    for place in (folder, *folder.parents):
        if place.exists():
            return
        yield place


def _change(path: Path, mode: int) -> None:
    now = stat.S_IMODE(path.stat().st_mode)
    wanted = now & stat.S_ISGID | mode  # which hands on the group of a shared folder
    if now != wanted:
        with suppress(PermissionError):  # it belongs to somebody else
            os.chmod(path, wanted)
