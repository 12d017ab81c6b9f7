"""Shared fixtures: a tiny BERT, a tiny GLUE folder and run-time checks of all annotated shapes."""

import os

os.environ["HF_HUB_OFFLINE"] = "1"
os.environ["TOKENIZERS_PARALLELISM"] = "false"
os.environ["BERTSECRETS_JOBS"] = "1"  # tests patch functions in this process, and workers take seconds to start
for variable in ("FRAMES", "GLUE", "STORE", "PARAMS", "EXPECTED"):
    os.environ.pop(f"BERTSECRETS_{variable}", None)

from collections.abc import Callable
from pathlib import Path

from jaxtyping import install_import_hook

ROOT = Path(__file__).parents[1]


def shaped_modules() -> list[str]:
    """Return the modules with annotated shapes; checking all modules would triple the collection time."""
    paths = (path for package in ("bertsecrets", "instruments") for path in (ROOT / package).rglob("*.py"))
    stating = (path for path in paths if "jaxtyping" in path.read_text(encoding="utf-8"))
    return [".".join(path.relative_to(ROOT).with_suffix("").parts) for path in stating]


install_import_hook(shaped_modules(), "shapes.check")  # must run before the package is imported

import gc
import shutil
from functools import partial

import hypothesis
import pytest
import torch
import yaml
from filelock import FileLock
from sessions import local_session
from tiny import save_bert, save_tokenizer

from bertsecrets import settings
from bertsecrets.texts.corpus import write_corpus
from bertsecrets.texts.tasks import TASKS, own_task_names
from bertsecrets.types import Subject

# `make attack` runs the long form of every attack: many more examples, and different ones each time.
hypothesis.settings.register_profile("short", derandomize=True, database=None, deadline=None)
hypothesis.settings.register_profile("attack", max_examples=3000, deadline=None, print_blob=True)
hypothesis.settings.load_profile("attack" if os.environ.get("BERTSECRETS_ATTACK") == "long" else "short")

# Overrides K19's settings, with which a tiny model cannot learn.
FAST = {"epochs": 1, "learning_rate": 1.0e-3, "precision": "float32"}


# Files that take minutes, longest first: a long file that starts last keeps the other workers waiting.
LONGEST = (
    "benchmarks/test_benchmarks.py",
    "test_staleness.py",
    "test_dvc.py",
    "jobs/test_run.py",
    "docs/test_adding.py",
    "compare/test_against.py",
    "attack/test_kills.py",
    "jobs/test_plan.py",
)


def pytest_collection_modifyitems(items: list[pytest.Item]) -> None:
    """Run the slowest files first."""
    places = {Path(__file__).parent / name: place for place, name in enumerate(LONGEST)}
    items.sort(key=lambda item: places.get(item.path, len(places)))


@pytest.fixture(autouse=True)
def same_threads():
    """Restore the number of threads after each test, because it is part of every cache key."""
    before = torch.get_num_threads()
    yield
    if torch.get_num_threads() != before:
        torch.set_num_threads(before)


@pytest.fixture(autouse=True)
def only_glue_tasks():
    """Forget own tasks after each test."""
    yield
    for name in own_task_names():
        del TASKS[name]


@pytest.fixture(scope="module", autouse=True)
def nothing_old_is_collected_again():
    """Exempt existing objects from garbage collection, which runs at the end of every training."""
    gc.collect()
    gc.freeze()


@pytest.fixture(scope="session")
def built(tmp_path_factory) -> Path:
    """A folder shared by all workers; fixtures build its contents once per run, under a lock."""
    base = tmp_path_factory.getbasetemp()
    folder = (base.parent if "PYTEST_XDIST_WORKER" in os.environ else base) / "built"
    folder.mkdir(exist_ok=True)
    return folder


def build_once(path: Path, build: Callable[[Path], object]) -> Path:
    """Build a file or folder unless another worker has built it already."""
    with FileLock(path.with_name(f"{path.name}.lock")):
        done = path.with_name(f"{path.name}.done")
        if not done.exists():
            build(path)
            done.touch()
    return path


@pytest.fixture(scope="session")
def tiny_bert(built) -> Path:
    """Model folder of a BERT with 3 layers x 4 heads and the corpus's words as its vocabulary.

    Its weights are large enough that examples get different answers, even with an untrained classifier.
    """
    return build_once(built / "tiny-bert", partial(save_bert, initializer_range=0.5))


@pytest.fixture(scope="session")
def tiny_vocabulary(tmp_path_factory):
    return save_tokenizer(tmp_path_factory.mktemp("vocabulary"))


@pytest.fixture(scope="session")
def tiny_glue(built) -> Path:
    """A GLUE folder whose RTE is the suite's own corpus: 64 training and 24 validation pairs."""
    return build_once(built / "glue", lambda folder: write_corpus(folder, 64, 24))


@pytest.fixture(scope="session")
def quick_params(built) -> Path:
    """A settings file for one epoch of fast training and one seed."""

    def build(file: Path) -> None:
        data = yaml.safe_load(settings.project_path("params.yaml").read_text(encoding="utf-8"))
        data["finetune"] |= FAST
        data |= {"seeds": [1], "budget": None}  # tests that add seeds override these
        data["judge"]["resamples"] = 200
        file.write_text(yaml.safe_dump(data), encoding="utf-8")

    return build_once(built / "params.yaml", build)


@pytest.fixture(scope="session")
def trained(built, tiny_bert, tiny_glue, quick_params) -> Path:
    """A store with tiny BERT checkpoints on RTE (three initialisations, two seeds) and their most used measurements.

    Tests use copies (`runs`), which they may damage.
    """

    def build(store: Path) -> None:
        with pytest.MonkeyPatch.context() as patch:
            patch.setenv("BERTSECRETS_PARAMS", str(quick_params))
            session = local_session(store=store, glue=tiny_glue)
            for init in ("pretrained", "random", "untrained"):
                for seed in (1, 2):
                    subject = Subject(str(tiny_bert), "rte", init, seed)
                    for measure in ("scores", "special-tokens"):
                        session.measurement(measure, subject)
            for measure in ("attention-change", "head-ablation"):
                session.measurement(measure, Subject(str(tiny_bert), "rte", "pretrained", 1))

    return build_once(built / "runs", build)


@pytest.fixture
def quick(quick_params, monkeypatch) -> Path:
    monkeypatch.setenv("BERTSECRETS_PARAMS", str(quick_params))
    return quick_params


@pytest.fixture
def own_bert(tiny_bert, tmp_path) -> Path:
    return Path(shutil.copytree(tiny_bert, tmp_path / "own-bert"))


@pytest.fixture(scope="module")
def runs(trained, tmp_path_factory) -> Path:
    """A copy of `trained`, shared by all tests of a file."""
    return Path(shutil.copytree(trained, tmp_path_factory.mktemp("store") / "runs"))


@pytest.fixture
def shared(runs, tiny_glue, tiny_bert):
    return [
        *("--model", str(tiny_bert), "--glue", str(tiny_glue), "--store", str(runs), "--device", "cpu"),
        *("--offline", "--allow-unofficial-data"),
    ]


@pytest.fixture
def as_documented(tiny_bert, tiny_glue, quick, tmp_path, monkeypatch):
    """Return a function that adapts a page's Python to the tiny model and the suite's own corpus."""
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
    """A headless Chromium; tests that need it are skipped if none is installed."""
    sync_api = pytest.importorskip("playwright.sync_api", reason="no playwright: pip install playwright")
    path = next((executable for name in BROWSERS if (executable := shutil.which(name))), None)
    if path is None:
        pytest.skip(f"no browser: install one of {', '.join(BROWSERS)}")
    with sync_api.sync_playwright() as driver:
        sync_api.expect.set_options(timeout=30_000)  # milliseconds, the same as the default for actions
        opened = driver.chromium.launch(executable_path=path, args=["--no-sandbox"], timeout=120_000)
        yield opened
        opened.close()
