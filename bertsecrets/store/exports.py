"""Checkpoints outside the store, as `finetune --output` and DVC leave them: checked by their manifest when opened."""

import json
from pathlib import Path
from typing import Any

from bertsecrets.errors import UserError
from bertsecrets.store.entries import damage
from bertsecrets.store.files import MANIFEST

# What manifests of this suite have; with four of these, one is taken for its own, so that none passes for foreign
# because it is damaged.
OURS = frozenset({"kind", "name", "key", "settings", "files", "sha256", "subject", "training"})


def checked_manifest(folder: Path) -> dict[str, Any]:
    """Return the manifest of a checkpoint that this suite made, after comparing all files with it.

    Empty for a folder that has none, or that of another tool.

    Raises:
        UserError: the manifest is damaged, or a file does not match it.
    """
    manifest = read_own_manifest(folder)
    problem = damage(folder) if manifest else None
    if problem and "sha256" not in manifest and "settings" in manifest:
        problem = "its manifest is from an earlier version"
    if problem:
        raise _refused(folder, problem.removeprefix(f"{folder / MANIFEST}: ").partition(": delete")[0])
    return manifest


def read_own_manifest(folder: Path) -> dict[str, Any]:
    """Return the manifest of a checkpoint that this suite made; empty for a folder that has none, or another tool's.

    Raises:
        UserError: it cannot be read as JSON, or is not an object.
    """
    try:
        manifest = json.loads((folder / MANIFEST).read_text(encoding="utf-8"))
    except FileNotFoundError:
        return {}
    except OSError as error:
        raise UserError(f"cannot read {folder / MANIFEST}: {error.strerror}") from error
    except (ValueError, RecursionError) as error:
        raise _refused(folder, f"{MANIFEST} is not valid JSON") from error
    if not isinstance(manifest, dict):
        raise _refused(folder, f"{MANIFEST} is not a JSON object")
    return manifest if len(OURS & manifest.keys()) >= 4 else {}


def _refused(folder: Path, problem: str) -> UserError:
    return UserError(
        f"{folder} is not as it was written ({problem}): make it again, or delete its {MANIFEST} if it was changed on "
        "purpose"
    )
