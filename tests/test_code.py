"""The code digest of a result changes with code that affects the result, and with nothing else."""

import os
from pathlib import Path

import pytest
import yaml
from calls import started
from edited_package import edited_package, forget

from bertsecrets.errors import UserError
from bertsecrets.measures.registry import get_measure, measure_names
from bertsecrets.provenance import TRAINING_MODULE, differences, made_by
from bertsecrets.settings import project_path
from bertsecrets.store import code

SCORES = "bertsecrets.measures.scores"


@pytest.fixture
def package(tmp_path):
    with edited_package(tmp_path) as copy:
        yield copy


def edit(path: Path, old: str, new: str) -> None:
    text = path.read_text(encoding="utf-8")
    assert old in text
    path.write_text(text.replace(old, new, 1), encoding="utf-8")
    forget()


def digests():
    return code.code_digest(TRAINING_MODULE), code.code_digest(SCORES)


def test_every_measure_and_training_has_its_own_digest():
    modules = {type(get_measure(name)).__module__ for name in measure_names()}
    assert len({code.code_digest(module) for module in (*modules, TRAINING_MODULE)} - {None}) == len(modules) + 1


def test_comments_docstrings_and_layout_do_not_change_a_digest(package):
    before = digests()
    path = package / "models" / "encoding.py"
    edit(path, "def encode(", "# a comment\n\n\ndef encode(")
    edit(path, '    """', '    """Another text. ')
    path.write_text(path.read_text().replace(") -> Encoded:", ") ->    Encoded :", 1))
    forget()
    assert digests() == before
    edit(path, "def encode(", "WIDTH = 3\n\n\ndef encode(")
    assert all(one != other for one, other in zip(digests(), before, strict=True))


# Whether edits change the digests of training and of scores. All modules of one entry are edited together.
EDITS = {
    ("models/training/finetune.py",): (True, False),
    ("models/training/states.py",): (True, False),
    ("models/opening.py",): (True, True),
    ("models/memory.py",): (True, True),
    ("measures/scores.py",): (False, True),
    ("measures/base/measure.py",): (False, True),
    ("texts/metrics.py",): (False, True),
    ("caches.py",): (True, True),
    ("devices.py",): (True, True),
    ("store/measurements.py",): (True, True),
    (
        "measures/special_tokens.py",
        "patterns/classifier.py",
        "ablation/engine.py",
        "report/html.py",
        "claims/judge.py",
        "cli/main.py",
        "store/entries.py",
        "session.py",
    ): (False, False),
}


def test_an_edit_changes_the_digests_of_importing_modules(package):
    before = digests()
    for modules, expected in EDITS.items():
        for module in modules:
            with (package / module).open("a") as file:
                file.write(f"\nNEW = {module!r}\n")
        forget()
        after = digests()
        assert tuple(one != other for one, other in zip(after, before, strict=True)) == expected, modules
        before = after


# Modules that a session imports and that are in no digest, besides `PARTS_WITHOUT_RESULTS`, with the reason.
DRIVING = {
    "session": "passes values to the caches; the keys contain them",
    "open_session": "passes values to the caches; the keys contain them",
    "models.in_memory": "says whether a folder may stand for an object; the keys contain the folder",
    "models.description": "compares an object with its folder",
    "texts.own_tasks": "reads texts and labels; the keys contain their digest",
    "judging": "judges stored numbers",
    "claims": "judges stored numbers",
    "compare": "compares stored numbers",
    "formats": "describes verdicts",
}
# What modules in a digest may import from modules that are not. Other `PARTS_WITHOUT_RESULTS` may be used freely.
BORROWED = {"provenance": {"made_by"}, "settings": {"FinetuneParams", "Params", "project_path"}, "hub": {"Repository"}}
SHOWING = ("options", "report", "cli")


def computing() -> set[str]:
    """Return the modules that compute results: training, and every measure."""
    return {TRAINING_MODULE, *(type(get_measure(name)).__module__ for name in measure_names())}


def all_imports(module: str, seen: set[str]) -> set[str]:
    """Add all modules of the package that a module imports, directly or not, to `seen`, and return it."""
    source = code._source(module)
    if module not in seen and source is not None:
        seen.add(module)
        for name in source.imports:
            if name.startswith("bertsecrets"):
                all_imports(code._home(name), seen)
    return seen


def part(module: str) -> str:
    return module.removeprefix("bertsecrets.")


def test_every_module_between_options_and_results_is_in_a_digest_or_has_a_reason_not_to_be():
    walked: set[str] = set()
    for module in ("bertsecrets.session", *computing()):
        all_imports(module, walked)
    in_digests = set().union(*map(code.digested, computing()))
    assert {"bertsecrets.devices", "bertsecrets.texts.rows", "bertsecrets.ablation.grid"} <= in_digests <= walked
    excused = (*code.PARTS_WITHOUT_RESULTS, *DRIVING)
    left = {part(module) for module in walked - in_digests} - {"bertsecrets"}
    assert [name for name in sorted(left) if not any(f"{name}.".startswith(f"{each}.") for each in excused)] == []
    assert all(any(f"{name}.".startswith(f"{each}.") for name in left) for each in DRIVING)


def test_modules_in_a_digest_take_nothing_that_computes_from_modules_outside():
    for module in set().union(*map(code.digested, computing())) - set(code.ALWAYS_DIGESTED):
        for imported in code._source(module).imports:
            owner, _, name = part(imported).partition(":")
            assert owner.partition(".")[0] not in SHOWING, module
            assert name in BORROWED.get(owner, {name}), module


# Stages of dvc.yaml: the modules that compute their outputs.
STAGES = {
    "finetune": {TRAINING_MODULE},
    "measure": {type(get_measure(name)).__module__ for name in measure_names() if get_measure(name).common},
    "words": {"bertsecrets.measures.features", "bertsecrets.measures.relations"},
    "frames": {"bertsecrets.measures.frame_heads"},
}
# Code that passes values which are in the cache keys: DVC has no keys, so its stages depend on it.
PASSING = {"bertsecrets/session.py", "bertsecrets/settings.py"}


@pytest.mark.parametrize("stage", STAGES)
def test_stages_of_the_pipeline_depend_on_the_code_in_the_digests(stage):
    definition = yaml.safe_load(project_path("dvc.yaml").read_text(encoding="utf-8"))["stages"][stage]
    depends = {dep for dep in definition.get("do", definition)["deps"] if dep.startswith("bertsecrets/")}
    in_digests = set().union(*map(code.digested, STAGES[stage]))
    files = {f"{module.replace('.', '/')}.py" for module in in_digests if code._path(module).name != "__init__.py"}
    covering = {file: {dep for dep in depends if file == dep or file.startswith(f"{dep}/")} for file in files}
    assert [file for file, by in covering.items() if not by] == []
    assert depends - set().union(*covering.values()) == PASSING


def test_imports_inside_functions_and_through_packages_count(tmp_path, monkeypatch):
    folder = tmp_path / "plugged"
    folder.mkdir()
    (folder / "__init__.py").write_text("from .inner import helper\nfrom plugged.also import other\n")
    (folder / "measure.py").write_text("def run():\n    from plugged import helper\n    return helper()\n")
    (folder / "inner.py").write_text("from bertsecrets.texts import metrics\ndef helper():\n    return 1\n")
    (folder / "also.py").write_text("other = 1\n")
    (folder / "unused.py").write_text("other = 1\n")
    monkeypatch.syspath_prepend(str(tmp_path))
    forget()
    before = code.code_digest("plugged.measure")
    assert "scipy" in code.imports("plugged.measure")  # imported by texts/metrics.py
    edit(folder / "unused.py", "1", "2")
    assert code.code_digest("plugged.measure") == before
    for file in ("inner.py", "also.py"):  # the import of a package runs all of its imports
        edit(folder / file, "1", "2")
        before, after = code.code_digest("plugged.measure"), before
        assert before != after
    forget()


def test_a_module_without_source_has_no_digest():
    assert code.code_digest("__main__x") is None
    assert made_by("no_such_module", None) == {"code": None, "software": {}, "device": None}


def test_the_digest_is_the_same_in_every_process_and_place(package):
    process = started(
        f"from bertsecrets.store.code import code_digest; print(code_digest({TRAINING_MODULE!r}))",
        PYTHONPATH=str(package.parent),
        PYTHONHASHSEED="5",
    )
    output, errors = process.communicate()
    assert output.strip() == code.code_digest(TRAINING_MODULE), errors


def test_code_edited_while_it_runs_is_refused(package, monkeypatch):
    path = package / "models" / "training" / "finetune.py"
    monkeypatch.setattr(code, "START_MTIMES", {path: path.stat().st_mtime_ns})
    assert code.code_digest(TRAINING_MODULE)
    os.utime(path, ns=(0, 0))
    forget()
    with pytest.raises(UserError, match=r"finetune\.py was edited while this process was running: start the process"):
        code.code_digest(TRAINING_MODULE)


def test_only_versions_of_imported_libraries_count():
    assert set(made_by(TRAINING_MODULE, None)["software"]) == {"numpy", "tokenizers", "torch", "transformers"}
    of_scores = set(made_by(SCORES, None)["software"])
    assert {"torch", "transformers", "tokenizers", "numpy", "scipy"} <= of_scores
    assert "scikit-learn" not in made_by("bertsecrets.measures.special_tokens", None)["software"]
    assert "scikit-learn" not in get_measure("pattern-quality").made_by(None)["software"]


def test_differences_name_code_versions_and_device():
    made = {"code": "a", "software": {"torch": "2.12.0", "numpy": "2"}, "device": "CPU AVX2, 1 thread"}
    assert differences(made, made) == []
    now = {"code": "b", "software": {"torch": "2.13.0", "numpy": "2"}, "device": "CPU AVX512, 2 threads"}
    assert differences(made, now) == [
        "made by other code",
        "made with torch 2.12.0, not 2.13.0",
        "made on CPU AVX2, 1 thread, not on CPU AVX512, 2 threads",
    ]
