"""The verdicts on record follow from the measurements on record, which any clone can judge again with DVC."""

import re
import shutil
import subprocess
import sys
from dataclasses import replace
from pathlib import Path

import pytest
import yaml
from measurements import scored
from pipeline import PROJECT, commit, copied_checkout, environment, in_git, run

from bertsecrets.claims.loading import select_cases
from bertsecrets.cli.judge_run import saved_measurements
from bertsecrets.compare.changes import read_verdicts_file
from bertsecrets.judging import JudgedRun
from bertsecrets.options import RunOptions
from bertsecrets.settings import project_path
from bertsecrets.store.records import RecordedRun, SavedFolder, write_record
from bertsecrets.types import Subject

EVIDENCE, STAGES = PROJECT / "data" / "evidence", "data/evidence/dvc.yaml"
SETS = yaml.safe_load((EVIDENCE / "sets.yaml").read_text(encoding="utf-8"))
REASONS = SETS["not_rejudged"] or {}
DERIVED = ("verdict", "observed", "interval", "band", "by_seed", "p_against", "p_for")  # what claims are judged by
PULL = "dvc pull --remote evidence --recursive data/evidence"


def verdicts_files() -> dict[str, Path]:
    return {file.stem.removeprefix("verdicts-"): file for file in project_path("expected").glob("evidence/verdicts-*")}


def test_each_set_of_verdicts_either_has_its_measurements_on_record_or_a_reason():
    assert sorted([*SETS["rejudged"], *REASONS]) == sorted(verdicts_files())
    assert {file.stem for file in EVIDENCE.glob("*.dvc")} == set(SETS["rejudged"])
    assert all(REASONS.values())


def test_measurements_on_record_are_stored_in_the_repository():
    for file in EVIDENCE.glob("*.dvc"):
        assert {out["remote"] for out in yaml.safe_load(file.read_text())["outs"]} == {"evidence"}, file


def test_both_pipelines_depend_on_all_claims_and_figures():
    """The files are listed because DVC would otherwise make the verdicts in the same folder an input of `verify`."""
    listed = {f"expected/{file.name}" for file in (PROJECT / "expected").iterdir() if file.is_file()}
    verify = yaml.safe_load((PROJECT / "dvc.yaml").read_text())["stages"]["verify"]
    rejudge = yaml.safe_load((PROJECT / STAGES).read_text())["stages"]["rejudge"]["do"]
    for stage in (verify, rejudge):
        assert {dependency for dependency in stage["deps"] if dependency.startswith("expected")} == listed
    assert [dependency for dependency in rejudge["deps"] if not dependency.startswith("expected")] == [
        "data/evidence/${item}"
    ]


@pytest.mark.parametrize("name", SETS["rejudged"])
def test_a_reason_names_seeds_by_their_number_even_if_others_were_replaced(name):
    for verdict in read_verdicts_file(verdicts_files()[name]).verdicts:
        assert {*map(int, re.findall(r"seed (\d+): ", verdict.reason))} <= {*verdict.seeds}, verdict.id


@pytest.mark.slow
@pytest.mark.parametrize("name", SETS["rejudged"])
def test_verdicts_on_record_follow_from_the_measurements(name):
    assert (EVIDENCE / name).is_dir(), f"{name} is not here: {PULL}"
    recorded = {verdict.id: verdict for verdict in read_verdicts_file(verdicts_files()[name]).verdicts}
    saved = saved_measurements(SavedFolder.read(EVIDENCE / name), RunOptions())
    assert saved.run is not None
    judged = JudgedRun(saved, select_cases(saved.run.cases))
    judged.judge()
    assert {str(verdict.case) for verdict in judged.verdicts} == set(recorded)
    for verdict in judged.verdicts:
        again, before = verdict.data.model_dump(mode="json"), recorded[str(verdict.case)].model_dump(mode="json")
        for field in DERIVED:
            assert _close(again[field], before[field]), (str(verdict.case), field, again[field], before[field])


def _close(value: object, other: object) -> bool:
    """Return whether values are equal up to the last digits, which may differ between versions of numpy."""
    if isinstance(value, list | tuple) and isinstance(other, list | tuple):
        return len(value) == len(other) and all(map(_close, value, other))
    return value == pytest.approx(other, rel=1e-9, abs=1e-12) if isinstance(value, float) else value == other


@pytest.mark.parametrize("words", [(), ("..",), ("a", "b")])
def test_only_the_name_of_a_set_is_put_on_record(words):
    done = subprocess.run([sys.executable, ".ci/record", *words], cwd=PROJECT, capture_output=True, text=True)
    assert (done.returncode, "is not the name of a set: name one folder" in done.stdout) == (2, True)


@pytest.mark.slow
def test_a_set_is_put_on_record_by_one_command_and_judged_again_in_any_clone(tmp_path):
    pytest.importorskip("dvc")
    lab, clone = copied_checkout(tmp_path / "lab"), tmp_path / "clone"
    (lab / ".ci").mkdir()
    (lab / "data" / "evidence").mkdir(parents=True)
    for name in (".ci/record", STAGES):
        shutil.copy(PROJECT / name, lab / name)
    (lab / "data/evidence/sets.yaml").write_text("rejudged: []\nnot_rejudged:\n  made-up: lost\n")
    in_git(lab)
    answers = [place % 2 if place % 5 else 1 for place in range(200)]
    scores = [scored([*answers[:seed], 0, *answers[seed + 1 :]], [0, 1] * 100) for seed in (1, 2, 3)]
    scores = [replace(each, subject=Subject("m", "rte", "pretrained", seed)) for seed, each in enumerate(scores, 1)]
    run_facts = RecordedRun(model="m", seeds=3, cases=["D1-rte-pretrained"])
    write_record(lab / "data/evidence/made-up", run_facts, scores)
    command = [sys.executable, ".ci/record", "made-up"]
    subprocess.run(command, cwd=lab, env=environment(lab), check=True)
    assert yaml.safe_load((lab / "data/evidence/sets.yaml").read_text()) == {
        "rejudged": ["made-up"],
        "not_rejudged": None,
    }
    commit(lab)
    subprocess.run(["git", "clone", "--quiet", str(lab), str(clone)], check=True)
    verdicts = clone / "expected/evidence/verdicts-made-up.json"
    judged = verdicts.read_text()
    assert '"id": "D1-rte-pretrained"' in judged
    assert "didn't change, skipping" in run(clone, "repro", "--dry", "--allow-missing", STAGES)
    run(clone, *PULL.split()[1:])
    assert "up to date" in run(clone, "status", STAGES)
    _append(clone / "bertsecrets/claims/judge.py")
    assert "up to date" in run(clone, "status", STAGES)
    _append(clone / "expected/D-scores.yaml")
    assert "modified" in run(clone, "status", STAGES)
    verdicts.unlink()
    run(clone, "repro", STAGES)
    assert [line for line in verdicts.read_text().splitlines() if "observed" in line or "low" in line] == [
        line for line in judged.splitlines() if "observed" in line or "low" in line
    ]
    assert not [stage for stage in upstream_of_verify(clone) if "evidence" in stage]


def _append(path: Path) -> None:
    path.write_text(path.read_text() + "# changed\n")


def upstream_of_verify(folder: Path) -> set[str]:
    """Return the stages that `dvc repro` would run, too, before the pipeline's last one."""
    import networkx
    from dvc.repo import Repo

    with Repo(str(folder)) as repo:
        graph = repo.index.graph
        (verify,) = [stage for stage in graph if getattr(stage, "name", "") == "verify"]
        return {stage.addressing for stage in networkx.descendants(graph, verify)}
