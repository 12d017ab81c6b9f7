"""Fixtures that many tests share: a tiny BERT, tiny GLUE folders, and run-time checks of every annotated shape."""

import os

os.environ["HF_HUB_OFFLINE"] = "1"
os.environ["TOKENIZERS_PARALLELISM"] = "false"
for variable in (
    "BERTSECRETS_FRAMES",
    "BERTSECRETS_GLUE",
    "BERTSECRETS_STORE",
    "BERTSECRETS_PARAMS",
    "BERTSECRETS_EXPECTED",
):
    os.environ.pop(variable, None)

from jaxtyping import install_import_hook

install_import_hook("bertsecrets", "shapes.check")  # before anything of the package is imported

import gc
import shutil
from pathlib import Path

import hypothesis
import pytest
import torch
import yaml
from tiny import save_bert, save_tokenizer

from bertsecrets import settings as settings
from bertsecrets.texts.corpus import write_corpus

# `make attack` asks for the long form of every attack: many more examples, and others each time.
hypothesis.settings.register_profile("short", derandomize=True, database=None, deadline=None)
hypothesis.settings.register_profile("attack", max_examples=3000, deadline=None, print_blob=True)
hypothesis.settings.load_profile("attack" if os.environ.get("BERTSECRETS_ATTACK") == "long" else "short")

# K19's settings, but for a model that has next to nothing to learn with.
FAST = {"epochs": 1, "learning_rate": 1.0e-3}


# Files that take minutes, the longest first: what starts last should be short, or the other workers wait for it.
LONGEST = (
    "benchmarks/test_benchmarks.py",
    "test_dvc.py",
    "planning/test_run.py",
    "docs/test_adding.py",
    "benchmarks/test_against.py",
    "cli/test_bars.py",
    "attack/test_flips.py",
    "attack/test_kills.py",
    "planning/test_plan.py",
    "models/test_kept.py",
)


def pytest_collection_modifyitems(items: list[pytest.Item]) -> None:
    """Begin with the tests that take longest."""
    places = {Path(__file__).parent / name: place for place, name in enumerate(LONGEST)}
    items.sort(key=lambda item: places.get(item.path, len(places)))


@pytest.fixture(autouse=True)
def same_threads():
    """Whatever number of threads a test asks for, the others compute with their own, which is part of every key."""
    before = torch.get_num_threads()
    yield
    if torch.get_num_threads() != before:
        torch.set_num_threads(before)


@pytest.fixture(scope="module", autouse=True)
def nothing_old_is_collected_again():
    """Every training ends with a collection, which need not look at what earlier modules have imported."""
    gc.collect()
    gc.freeze()


@pytest.fixture(scope="session")
def tiny_bert(tmp_path_factory) -> Path:
    """A BERT of 3 layers x 4 heads with the corpus's words as its vocabulary, as a model folder."""
    return save_bert(tmp_path_factory.mktemp("models") / "tiny-bert")


@pytest.fixture(scope="session")
def tiny_vocabulary(tmp_path_factory):
    """The tiny BERT's tokenizer."""
    return save_tokenizer(tmp_path_factory.mktemp("vocabulary"))


@pytest.fixture(scope="session")
def tiny_glue(tmp_path_factory) -> Path:
    """A GLUE folder whose RTE is the suite's own corpus: 64 training and 24 validation pairs."""
    return write_corpus(tmp_path_factory.mktemp("corpus") / "glue", 64, 24)


@pytest.fixture(scope="session")
def quick_params(tmp_path_factory) -> Path:
    """A settings file that trains for one epoch, fast, and measures one seed."""
    data = yaml.safe_load(settings.project_path("params.yaml").read_text(encoding="utf-8"))
    data["finetune"] |= FAST
    data |= {"seeds": [1], "budget": None}  # tests that add seeds say so
    data["judge"]["resamples"] = 200
    file = tmp_path_factory.mktemp("settings") / "params.yaml"
    file.write_text(yaml.safe_dump(data), encoding="utf-8")
    return file


@pytest.fixture
def quick(quick_params, monkeypatch) -> Path:
    """The quick settings, in force for one test."""
    monkeypatch.setenv("BERTSECRETS_PARAMS", str(quick_params))
    return quick_params


@pytest.fixture
def own_bert(tiny_bert, tmp_path) -> Path:
    """A copy of the tiny BERT that a test may spoil."""
    return Path(shutil.copytree(tiny_bert, tmp_path / "own-bert"))


@pytest.fixture(scope="module")
def runs(tmp_path_factory):
    """One store for the whole file: most tests reuse what the first has trained."""
    return tmp_path_factory.mktemp("store") / "runs"


@pytest.fixture
def shared(runs, tiny_glue, tiny_bert):
    """The options that most commands here share."""
    return [
        *("--model", str(tiny_bert), "--glue", str(tiny_glue), "--store", str(runs), "--device", "cpu"),
        *("--offline", "--allow-unofficial-data"),
    ]


@pytest.fixture
def as_documented(tiny_bert, tiny_glue, quick, tmp_path, monkeypatch):
    """A function that turns a page's Python into what runs here: the tiny model, the suite's own corpus."""
    monkeypatch.chdir(tmp_path)
    monkeypatch.setenv("BERTSECRETS_STORE", str(tmp_path / "runs"))

    def translate(code: str) -> str:
        code = code.replace('"minilm"', repr(str(tiny_bert)))
        return code.replace(
            'glue="./glue_data"', f'glue={str(tiny_glue)!r}, allow_unofficial_data=True, offline=True, device="cpu"'
        )

    return translate


BROWSERS = ("chromium", "chromium-browser", "google-chrome", "google-chrome-stable")


@pytest.fixture(scope="module")
def browser():
    """A Chromium without a window; tests that need it are skipped where none is installed."""
    sync_api = pytest.importorskip("playwright.sync_api", reason="no playwright: pip install playwright")
    path = next((found for name in BROWSERS if (found := shutil.which(name))), None)
    if path is None:
        pytest.skip(f"no browser: install one of {', '.join(BROWSERS)}")
    with sync_api.sync_playwright() as driver:
        opened = driver.chromium.launch(executable_path=path, args=["--no-sandbox"])
        yield opened
        opened.close()
