"""No stale results: after any change between two runs on one store, the second run gives the results of a fresh store.

Each row of `CHANGES` is one change of data, weights, tokenizers, settings, code, libraries or device.
"""

import copy
import gc
import json
import shutil
from collections.abc import Callable, Iterator
from contextlib import ExitStack
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any

import numpy as np
import pytest
import torch
import yaml
from edited_package import edited_package
from tiny import save_bert, save_tokenizer, vocabulary

from bertsecrets import provenance
from bertsecrets.errors import UserError
from bertsecrets.models import opening
from bertsecrets.session import Session
from bertsecrets.settings import Params, project_path
from bertsecrets.texts.corpus import write_corpus
from bertsecrets.types import Measurement

THREADS = torch.get_num_threads()
EXTRA_FILES = ("special_tokens_map.json", "added_tokens.json")


@dataclass
class World:
    """Everything that a run depends on, in one folder, so that a copy can be changed."""

    root: Path
    settings: dict[str, Any]
    options: dict[str, Any] = field(default_factory=dict)
    frames: str = "frames.jsonl"
    checkpoint: str | None = None
    stack: ExitStack = field(default_factory=ExitStack)  # contexts that end with the test

    def path(self, *parts: str) -> Path:
        return self.root.joinpath(*parts)

    def session(self, store: str = "runs") -> Session:
        return Session(
            settings=Params.model_validate(self.settings),
            **{
                "model": str(self.path("model")),
                "glue": self.path("glue"),
                "frames": self.path(self.frames),
                "store": self.path(store),
                "device": "cpu",
                "allow_unofficial_data": True,
                "offline": True,
            }
            | self.options,
        )

    def measure(self, measure: str, store: str = "runs", session: Session | None = None, **options: Any) -> Measurement:
        task = None if measure == "frame-heads" else "rte"
        checkpoint = self.path(self.checkpoint) if self.checkpoint else None
        return (session or self.session(store)).measure(measure, task, checkpoint=checkpoint, **options)


MEASURES = ("scores", "special-tokens", "attention-change", "layer-ablation", "frame-heads", "patterns")


def framenet(folder: Path, verb: str) -> Path:
    """Write a FrameNet with one sentence. Its size does not depend on the verb, which has four letters."""
    text = f"Ada {verb} the old red boat to her friend"
    unit = (
        '<lexUnit frame="Giving"><sentence ID="1"><text>' + text + "</text>"
        '<annotationSet status="MANUAL"><layer name="Target" rank="1"><label start="4" end="7" name="Target"/></layer>'
        '<layer name="FE" rank="1"><label start="28" end="37" name="Recipient"/></layer></annotationSet></sentence>'
        "</lexUnit>"
    )
    frame = (
        '<frame name="Giving"><FE name="Recipient" coreType="Core"/>'
        '<FEcoreSet><memberFE name="Recipient"/></FEcoreSet></frame>'
    )
    for name, content in (("lu/lu1.xml", unit), ("frame/Giving.xml", frame)):
        (folder / name).parent.mkdir(parents=True, exist_ok=True)
        (folder / name).write_text(content, encoding="utf-8")
    return folder


@pytest.fixture(scope="module")
def first(tmp_path_factory) -> World:
    """The world before any change, with everything measured once."""
    gc.freeze()  # keeps the garbage collection after training fast, although many modules are loaded
    root = tmp_path_factory.mktemp("world")
    settings = yaml.safe_load(project_path("params.yaml").read_text(encoding="utf-8"))
    settings["finetune"] |= {"epochs": 1, "batch_size": 4, "learning_rate": 1e-3}
    settings["judge"]["resamples"] = 200
    save_bert(root / "model")
    for name in EXTRA_FILES:
        (root / "model" / name).unlink(missing_ok=True)
    write_corpus(root / "glue", 8, 6)
    sentence = {"sentence": "Ada sold the red boat to Bob", "target": "sold", "core_elements": ["Bob"]}
    (root / "frames.jsonl").write_text(json.dumps(sentence) + "\n", encoding="utf-8")
    framenet(root / "framenet", "sold")
    world = World(root, settings)
    for measure in MEASURES:
        world.measure(measure)
    return world


@pytest.fixture
def world(first, tmp_path) -> Iterator[World]:
    moved = World(Path(shutil.copytree(first.root, tmp_path / "moved")), copy.deepcopy(first.settings))
    with moved.stack:
        yield moved


def same(one: Measurement, other: Measurement) -> bool:
    def equal(a: dict[str, Any], b: dict[str, Any]) -> bool:
        return a.keys() == b.keys() and all(np.array_equal(a[k], b[k], equal_nan=_numbers(a[k])) for k in a)

    return equal(one.values, other.values) and equal(one.samples, other.samples)


def _numbers(value: Any) -> bool:
    return np.asarray(value).dtype.kind == "f"


# ---------------------------------------------------------------------- changes of the world


def settings(section: str, **values: Any) -> Callable[[World, Any], None]:
    return lambda world, _: world.settings[section].update(values)


def options(**values: Any) -> Callable[[World, Any], None]:
    return lambda world, _: world.options.update(values)


def cells(split: str, edit: Callable[[list[str]], list[str]]) -> Callable[[World, Any], None]:
    def change(world: World, _) -> None:
        path = world.path("glue", "RTE", f"{split}.tsv")
        header, row, *rest = path.read_text(encoding="utf-8").splitlines()
        path.write_text("\n".join([header, "\t".join(edit(row.split("\t"))), *rest, ""]), encoding="utf-8")

    return change


def other_label(row: list[str]) -> list[str]:
    return [*row[:3], "entailment" if row[3] == "not_entailment" else "not_entailment"]


def weights(world: World, _) -> None:
    save_bert(world.path("model"), seed=5)
    for name in EXTRA_FILES:
        world.path("model", name).unlink(missing_ok=True)


def config(world: World, _) -> None:
    path = world.path("model", "config.json")
    path.write_text(json.dumps({**json.loads(path.read_text()), "layer_norm_eps": 0.1}))


def tokenizer(edit: Callable[[dict[str, Any]], None], name: str = "tokenizer.json") -> Callable[[World, Any], None]:
    def change(world: World, _) -> None:
        path = world.path("model", name)
        data = json.loads(path.read_text(encoding="utf-8")) if path.exists() else {}
        edit(data)
        path.write_text(json.dumps(data), encoding="utf-8")

    return change


def swap_words(data: dict[str, Any]) -> None:
    vocabulary = data["model"]["vocab"]
    for one, other in (("the", "ada"), ("sold", "boat"), ("a", "e"), ("##a", "##e"), ("##n", "##r")):
        if one in vocabulary and other in vocabulary:
            vocabulary[one], vocabulary[other] = vocabulary[other], vocabulary[one]


def keep_capitals(data: dict[str, Any]) -> None:
    data["do_lower_case"] = False


def no_own_tokenizer(world: World, _) -> None:
    """Measure a checkpoint without a tokenizer, then change the base model's tokenizer."""
    world.session().export_checkpoint(world.session().subject("rte"), world.path("own"))
    for path in world.path("own").iterdir():
        if path.name not in ("config.json", "model.safetensors"):
            path.unlink()
    world.checkpoint = "own"
    world.measure("special-tokens")
    tokenizer(swap_words)(world, _)


def other_framenet(world: World, _) -> None:
    world.frames = "framenet"
    world.measure("frame-heads")
    before = [path.stat().st_size for path in sorted(world.path("framenet").rglob("*.xml"))]
    framenet(world.path("framenet"), "gave")
    assert [path.stat().st_size for path in sorted(world.path("framenet").rglob("*.xml"))] == before


def other_sentence(world: World, _) -> None:
    path = world.path("frames.jsonl")
    path.write_text(path.read_text().replace("red boat", "old boat"))


def moved_separator(world: World, _) -> None:
    """Move U+001F from the end of one cell to the beginning of the next."""
    cells("dev", lambda row: [row[0], "Ada sold boats\x1f", "Bob", row[3]])(world, _)
    world.measure("scores")
    cells("dev", lambda row: [row[0], "Ada sold boats", "\x1fBob", row[3]])(world, _)


def threads(world: World, monkeypatch) -> None:
    torch.set_num_threads(THREADS + 1)


def version_of(name: str) -> Callable[[World, Any], None]:
    def change(world: World, monkeypatch) -> None:
        real = provenance.library_version
        monkeypatch.setattr(provenance, "library_version", lambda n: "0.0.1" if n == name else real(n))

    return change


def code_of(module: str) -> Callable[[World, Any], None]:
    """Return a change that edits the source of a module, as between two processes."""

    def change(world: World, _) -> None:
        package = world.stack.enter_context(edited_package(world.root))
        with (package / module).open("a", encoding="utf-8") as file:
            file.write("\nEDITED = 1\n")

    return change


def variable(name: str, value: str) -> Callable[[World, Any], None]:
    return lambda world, monkeypatch: monkeypatch.setenv(name, value)


def deterministic_cudnn(world: World, monkeypatch) -> None:
    monkeypatch.setattr(torch.backends.cudnn, "deterministic", True)


def other_classifier(world: World, monkeypatch) -> None:
    from bertsecrets.patterns.classifier import FOLDER_VARIABLE, REPORT_FILE, chosen_folder

    folder = Path(shutil.copytree(chosen_folder(), world.path("classifier")))
    report = json.loads((folder / REPORT_FILE).read_text(encoding="utf-8"))
    rows = report["readings"]["stripes"]["held_out"]
    report["readings"]["stripes"]["held_out"] = rows[: len(rows) // 2]
    (folder / REPORT_FILE).write_text(json.dumps(report), encoding="utf-8")
    monkeypatch.setenv(FOLDER_VARIABLE, str(folder))


# For each change: the measure that depends on it, and a function that makes it.
CHANGES: dict[str, tuple[str, Callable[[World, Any], None]]] = {
    "epochs": ("scores", settings("finetune", epochs=2)),
    "length of scored inputs": ("scores", settings("scores", max_length=12)),
    "length of read maps": ("special-tokens", settings("attention", max_length=12)),
    "examples of read maps": ("special-tokens", settings("attention", examples=3)),
    "--limit": ("scores", options(limit=4)),
    "--train-limit": ("scores", options(train_limit=4)),
    "--grid-limit": ("layer-ablation", options(grid_limit=4)),
    "weights": ("scores", weights),
    "weights of the encoder": ("frame-heads", weights),
    "weights that attention is compared with": ("attention-change", weights),
    "config": ("special-tokens", config),
    "a text of dev": ("special-tokens", cells("dev", lambda row: [row[0], "Ada sold it", *row[2:]])),
    "a label of dev": ("scores", cells("dev", other_label)),
    "a text of train": ("scores", cells("train", lambda row: [row[0], "Ada sold it", *row[2:]])),
    "a label of train": ("scores", cells("train", other_label)),
    "U+001F moved to another cell": ("scores", moved_separator),
    "a frame sentence": ("frame-heads", other_sentence),
    "FrameNet's words, of equal size": ("frame-heads", other_framenet),
    "capitals of the tokenizer": ("special-tokens", tokenizer(keep_capitals, "tokenizer_config.json")),
    "words of the tokenizer": ("special-tokens", tokenizer(swap_words)),
    "words of the encoder's tokenizer": ("frame-heads", tokenizer(swap_words)),
    "map of special tokens": (
        "special-tokens",
        tokenizer(lambda data: data.update(sep_token="ada"), "special_tokens_map.json"),
    ),
    "tokenizer of the base of a checkpoint without one": ("special-tokens", no_own_tokenizer),
    "record of the classifier of patterns": ("patterns", other_classifier),
    "threads": ("special-tokens", threads),
    "instructions of oneDNN": ("special-tokens", variable("ONEDNN_MAX_CPU_ISA", "SSE41")),
    "reproducible MKL": ("frame-heads", variable("MKL_CBWR", "COMPATIBLE")),
    "kernels of OpenBLAS": ("patterns", variable("OPENBLAS_CORETYPE", "Prescott")),
    "TF32": ("scores", variable("NVIDIA_TF32_OVERRIDE", "0")),
    "deterministic cuDNN": ("scores", deterministic_cudnn),
    "version of torch": ("special-tokens", version_of("torch")),
    "version of transformers": ("frame-heads", version_of("transformers")),
    "version of tokenizers": ("scores", version_of("tokenizers")),
    "version of numpy": ("layer-ablation", version_of("numpy")),
    "code of the measure": ("special-tokens", code_of("measures/special_tokens.py")),
    "code of ablation": ("layer-ablation", code_of("ablation/engine.py")),
    "code of patterns": ("patterns", code_of("patterns/classifier.py")),
    "code that reads maps": ("frame-heads", code_of("models/attention.py")),
    "code that reads rows": ("attention-change", code_of("texts/rows.py")),
    "code of the training": ("scores", code_of("models/training/loop.py")),
    "code that chooses device and precision": ("scores", code_of("devices.py")),
    "code that calls training and measures": ("frame-heads", code_of("caches.py")),
    "code that stores measurements": ("special-tokens", code_of("store/measurements.py")),
}


# Changes that affect the same part of a cache key as a change in the fast tests.
SIMILAR = {
    "length of scored inputs",
    "examples of read maps",
    "--train-limit",
    "weights of the encoder",
    "weights that attention is compared with",
    "a label of dev",
    "a text of train",
    "words of the encoder's tokenizer",
    "FrameNet's words, of equal size",
    "threads",
    "reproducible MKL",
    "kernels of OpenBLAS",
    "TF32",
    "version of tokenizers",
    "version of numpy",
    "code of ablation",
    "code of patterns",
    "code that reads maps",
    "code that reads rows",
    "code that stores measurements",
}


@pytest.mark.filterwarnings("ignore:.*but tokenizer.json splits it")  # after changes of the other tokenizer files
@pytest.mark.parametrize(
    "change", [pytest.param(name, marks=[pytest.mark.slow] if name in SIMILAR else []) for name in CHANGES]
)
def test_a_change_is_never_answered_from_the_store(world, monkeypatch, change):
    measure, apply = CHANGES[change]
    before = world.measure(measure)
    assert before.reused  # the copied world finds its entries in its new location
    apply(world, monkeypatch)
    try:
        now = world.measure(measure)
        assert not now.reused
        assert same(now, world.measure(measure, store="fresh"))
    finally:
        monkeypatch.undo()
        torch.set_num_threads(THREADS)


@pytest.mark.parametrize(
    "change",
    [
        "a text of dev",
        "a label of train",
        "a frame sentence",
        pytest.param("weights", marks=pytest.mark.slow),
        pytest.param("a label of dev", marks=pytest.mark.slow),
        pytest.param("config", marks=pytest.mark.slow),
        pytest.param("words of the tokenizer", marks=pytest.mark.slow),
        pytest.param("weights of the encoder", marks=pytest.mark.slow),
    ],
)
def test_a_long_session_notices_changes_of_its_files(world, monkeypatch, change):
    measure, apply = CHANGES[change]
    session = world.session()
    assert world.measure(measure, session=session).reused
    apply(world, monkeypatch)
    now = world.measure(measure, session=session)
    assert not now.reused
    assert same(now, world.measure(measure, store="fresh"))


@pytest.mark.parametrize("name", ["MKL_NUM_THREADS", "MKL_VERBOSE", "ONEDNN_VERBOSE", "TORCH_HOME", "OMP_PROC_BIND"])
def test_variables_that_change_no_number_are_in_no_key(world, monkeypatch, name):
    monkeypatch.setenv(name, "1")
    assert world.measure("frame-heads").reused


@pytest.mark.parametrize("measure", ["frame-heads", "patterns"])
def test_judge_settings_are_not_part_of_any_key(world, measure):
    world.settings["judge"].update(seed=999, resamples=999)
    again = world.measure(measure)
    assert again.reused
    assert same(again, world.measure(measure, store="fresh"))


def test_weights_replaced_during_training_are_refused(world, monkeypatch):
    _replacing(world, monkeypatch, reads=3)  # the first two check the model with each attention kernel
    world.options["train_limit"] = 5
    with pytest.raises(UserError, match="model changed while in use, so nothing was stored"):
        world.measure("scores")
    assert len(list(world.path("runs", "checkpoints").glob("[!.]*"))) == 1


def test_weights_replaced_during_a_measurement_are_refused(world, monkeypatch):
    world.checkpoint = "own"
    world.session().export_checkpoint(world.session().subject("rte"), world.path("own"))
    world.path("own", "manifest.json").unlink()
    before = len(list(world.path("runs", "measurements").glob("[!.]*")))
    _replacing(world, monkeypatch, "own", reads=3)  # as above
    world.settings["scores"]["max_length"] = 20
    with pytest.raises(UserError, match="own changed while in use, so nothing was stored"):
        world.measure("scores")
    assert len(list(world.path("runs", "measurements").glob("[!.]*"))) == before


def _replacing(world: World, monkeypatch, folder: str = "model", reads: int = 1) -> None:
    """Replace a model's weights as soon as they have been read `reads` times."""
    read, left = opening._load_weights, iter(range(reads - 1))

    def replace(*arguments, **options):
        loaded = read(*arguments, **options)
        if next(left, None) is not None:
            return loaded
        other = save_bert(world.path("other"), seed=7)
        shutil.copy(other / "model.safetensors", world.path(folder, "model.safetensors"))
        return loaded

    monkeypatch.setattr(opening, "_load_weights", replace)


def test_official_data_are_those_measured_and_trained_on(world):
    """An untrained checkpoint does not depend on the rows of the run that first created it."""
    demo = world.session().checkpoint(world.session().subject("rte", "untrained"))
    manifest = json.loads((demo / "manifest.json").read_text())
    assert (manifest["data"], manifest["train_limit"]) == (None, None)
    measured = world.session().measure("scores", "rte", init="untrained")
    assert not measured.provenance.official_data  # the six rows of this world


def test_a_second_tokenizer_file_counts_whatever_its_name(tmp_path):
    from bertsecrets.models.locations import ModelRef

    save_tokenizer(tmp_path, vocabulary())
    seen = {ModelRef.in_folder(tmp_path).tokenizer()}
    for name in (
        "spiece.model",
        "sentencepiece.bpe.model",
        "vocab.txt",
        "added_tokens.json",
        "merges.txt",
        "source.spm",
    ):
        (tmp_path / name).write_text("x")
        seen.add(ModelRef.in_folder(tmp_path).tokenizer())
    (tmp_path / "merges.txt").rename(tmp_path / "dict.txt")  # the same content under another name
    seen.add(ModelRef.in_folder(tmp_path).tokenizer())
    assert len(seen) == 8
