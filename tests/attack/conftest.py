"""The fixture `bench`: a folder in which faults are injected into commands."""

import tempfile
from collections.abc import Iterator
from pathlib import Path

import pytest
import yaml
from bench import Bench

from bertsecrets.texts.corpus import write_corpus


@pytest.fixture(scope="module")
def bench(tiny_bert, quick_params, trained) -> Iterator[Bench]:
    """A bench in a folder that other users can read."""
    with tempfile.TemporaryDirectory(prefix="attack-") as name:
        folder = Path(name).resolve()
        folder.chmod(0o755)
        data = yaml.safe_load(quick_params.read_text(encoding="utf-8"))
        data["finetune"]["save_every"] = 1.0e-9  # minutes, so training saves its state after every step
        settings = folder / "params.yaml"
        settings.write_text(yaml.safe_dump(data), encoding="utf-8")
        yield Bench(folder, tiny_bert, write_corpus(folder / "glue", 64, 24), settings, trained)
