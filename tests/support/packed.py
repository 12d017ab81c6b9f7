"""Files packed in memory: arrays, tar and zip archives."""

import io
import tarfile
import zipfile
from collections.abc import Mapping
from typing import Any

import numpy as np


def npy(values: Any, **how: Any) -> bytes:
    file = io.BytesIO()
    np.save(file, values, **how)
    return file.getvalue()


def tarred(files: Mapping[str, bytes], kind: int = tarfile.PAX_FORMAT) -> bytes:
    packed = io.BytesIO()
    with tarfile.open(fileobj=packed, mode="w", format=kind) as archive:
        for name, content in files.items():
            member = tarfile.TarInfo(name)
            member.size = len(content)
            archive.addfile(member, io.BytesIO(content))
    return packed.getvalue()


def zipped(files: Mapping[str, bytes]) -> bytes:
    packed = io.BytesIO()
    with zipfile.ZipFile(packed, "w", zipfile.ZIP_DEFLATED) as archive:
        for name, content in files.items():
            archive.writestr(name, content)
    return packed.getvalue()
