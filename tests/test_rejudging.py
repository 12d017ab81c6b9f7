"""A record of a run's measurements is judged as the run was, whatever the claims, the measures and the seeds."""

import json
import warnings
from collections.abc import Callable
from dataclasses import replace
from functools import partial
from pathlib import Path
from typing import Any

import pytest
from calls import command, run, told
from measurements import scored
from sessions import local_session
from treebank_sample import write_treebank

from bertsecrets.claims.loading import cases, select_cases
from bertsecrets.cli.judge_run import saved_measurements
from bertsecrets.judging import JudgedRun
from bertsecrets.measures.scores import Scores
from bertsecrets.options import RunOptions
from bertsecrets.session import Session
from bertsecrets.store.records import RecordedCause, RecordedRun, SavedFolder, write_record
from bertsecrets.texts.corpus import write_corpus, write_frames
from bertsecrets.texts.tasks import TASKS
from bertsecrets.types import AUTO, Measurement, Subject

pytestmark = pytest.mark.usefixtures("quick", "same_threads")
EVERY_CLAIM = sorted({case.claim.id for case in cases()})
OVER_TASKS = ("C1", "D1-pretrained", "D2", "E1", "E2", "A2-all-rank")


@pytest.fixture(scope="module")
def glue(tmp_path_factory) -> Path:
    """The corpus as RTE, and its texts as MRPC and SST-2."""
    folder = write_corpus(tmp_path_factory.mktemp("corpus") / "glue", 48, 40)
    for name in ("mrpc", "sst2"):
        task = TASKS[name]
        columns = {task.sentence1: 1, task.sentence2: 2}
        (folder / task.folder).mkdir()
        for file in ("train.tsv", "dev.tsv"):
            rows = [line.split("\t") for line in (folder / "RTE" / file).read_text().splitlines()]
            texts = [[title, *(row[place] for row in rows[1:])] for title, place in columns.items() if title]
            labels = [task.label, *(str(number % 2) for number in range(len(rows) - 1))]
            lines = ["\t".join(cells) for cells in zip(*texts, labels, strict=True)]
            (folder / task.folder / file).write_text("\n".join(lines) + "\n")
    return folder


@pytest.fixture(scope="module")
def parser(tmp_path_factory) -> str:
    pytest.importorskip("spacy")
    from instruments.train_parser import train_pipeline

    folder = write_treebank(tmp_path_factory.mktemp("treebank"))
    with warnings.catch_warnings():
        warnings.simplefilter("ignore")  # spaCy warns about training on two sentences
        train_pipeline(folder, folder / "pipeline", epochs=2)
    return str(folder / "pipeline")


@pytest.fixture
def session(tiny_bert, glue, tmp_path) -> Callable[..., Session]:
    return partial(local_session, model=tiny_bert, glue=[glue], store=tmp_path / "runs")


def judged(run: JudgedRun) -> dict[str, dict[str, Any]]:
    """Judge a run, and return all that its verdicts say except that measurements come from the store."""
    run.judge(lambda line: None)
    assert run.ended is None
    verdicts = {str(verdict.case): verdict.as_json() for verdict in run.verdicts}
    for verdict in verdicts.values():
        verdict["remarks"] = [remark for remark in verdict["remarks"] if remark != "measurements reused"]
        del verdict["reused"]
    return verdicts


def judged_again(folder: Path) -> dict[str, dict[str, Any]]:
    saved = saved_measurements(SavedFolder.read(folder), RunOptions())
    assert saved.run is not None
    return judged(JudgedRun(saved, select_cases(saved.run.cases)))


@pytest.mark.slow
def test_every_claim_is_judged_again_as_it_was(session, parser, tmp_path):
    """Measurements of words, frames and all ways to train, claims that do not apply, seeds that learned nothing."""
    with_everything = session(seeds=2, spacy=parser, frames=write_frames(tmp_path, 40))
    live = JudgedRun(with_everything, select_cases(EVERY_CLAIM, ["rte"]))
    verdicts = judged(live)
    live.save(tmp_path / "kept")
    assert judged_again(tmp_path / "kept") == verdicts
    assert {name[0] for name, verdict in verdicts.items() if verdict["observed"] is not None} >= {*"ABCDEFGIJ"}
    assert "other-shape" in {verdict["reason_code"] for verdict in verdicts.values()}
    assert any(len(verdict["seeds"]) < 2 for verdict in verdicts.values() if verdict["verdict"] == "inconclusive")


@pytest.mark.slow
def test_claims_over_tasks_and_added_seeds_are_judged_again_as_they_were(session, tmp_path):
    live = JudgedRun(session(seeds=AUTO), select_cases(OVER_TASKS, ["rte", "mrpc", "sst2"]))
    verdicts = judged(live)
    live.save(tmp_path / "kept")
    assert judged_again(tmp_path / "kept") == verdicts
    numbers = {len(verdict["seeds"]) for name, verdict in verdicts.items() if "E2-all" in name or name == "C1-sst2"}
    assert len(numbers) == 2  # seeds that were added for other claims do not count


def of_seed(seed: int, *, learned: bool) -> Measurement:
    target = [0, 1] * 100
    answers = [answer if place % 5 else 1 - answer for place, answer in enumerate(target)] if learned else [1] * 200
    answers[seed] = 1 - answers[seed] if learned else 1
    return replace(scored(answers, target), subject=Subject("m", "rte", "pretrained", seed))


@pytest.mark.parametrize(("wanted", "counted"), [(2, [1, 3]), (3, [1, 3, 4]), ([1, 2, 4], [1, 4]), (AUTO, [1, 3, 4])])
def test_recorded_seeds_replace_those_that_learned_nothing_as_in_the_run(tmp_path, wanted, counted):
    scores = [of_seed(seed, learned=seed != 2) for seed in (1, 2, 3, 4, 5)]
    write_record(tmp_path, RecordedRun(model="m", seeds=wanted, cases=["D1-rte-pretrained"]), scores)
    assert judged_again(tmp_path)["D1-rte-pretrained"]["seeds"] == counted


def test_the_command_line_saves_and_judges_records(capsys, shared, tmp_path):
    options = ["--task", "rte", "--claim", "E1", "--claim", "D1-untrained", "--seeds", 2]
    run(capsys, "report", *shared, *options, "--save", tmp_path / "kept", "--json", tmp_path / "live.json")
    run(capsys, "report", "--measurements", tmp_path / "kept", "--json", tmp_path / "again.json")
    live, again = (json.loads((tmp_path / f"{name}.json").read_text()) for name in ("live", "again"))
    assert [(v["id"], v["seeds"], v["interval"]) for v in live["verdicts"]] == [
        (v["id"], v["seeds"], v["interval"]) for v in again["verdicts"]
    ]
    assert again["measured"] == live["measured"]
    assert again["measured"]["commits"] == [live["commit"]]
    assert again["measured"]["training_seconds"] >= 0
    run(capsys, "report", "--measurements", tmp_path / "kept", "--save", tmp_path / "copy", "--seeds", 2)
    assert (tmp_path / "copy/record.zip").read_bytes() == (tmp_path / "kept/record.zip").read_bytes()
    run(capsys, "report", "--measurements", tmp_path / "kept", "--claim", "D1", "--json", tmp_path / "one.json")
    of_claim = {verdict["claim"] for verdict in json.loads((tmp_path / "one.json").read_text())["verdicts"]}
    assert of_claim == {"D1"}


def test_a_run_that_ends_early_keeps_the_earlier_record(capsys, shared, tmp_path, monkeypatch):
    options = ["--task", "rte", "--claim", "D1-untrained", "--claim", "C4", "--save", tmp_path / "kept"]
    run(capsys, "report", *shared, *options, "--seeds", 2)
    complete = (tmp_path / "kept/record.zip").read_bytes()

    def interrupted(*_):
        raise KeyboardInterrupt

    monkeypatch.setattr(Scores, "run", interrupted)
    assert command([str(word) for word in ("report", *shared, *options, "--seeds", 3)]) == 130
    assert f"no record was written to {tmp_path / 'kept'}, because the run is incomplete" in capsys.readouterr().err
    assert (tmp_path / "kept/record.zip").read_bytes() == complete


def test_claims_whose_measurements_a_record_lacks_are_named(capsys, tmp_path):
    recorded = RecordedRun(model="m", seeds=[1, 2, 4], cases=["D1-rte-pretrained", "D1-rte-frozen"])
    write_record(tmp_path, recorded, [of_seed(seed, learned=True) for seed in (1, 2, 4)])
    out = run(capsys, "report", "--measurements", tmp_path, code=1)
    assert "1 claim skipped (D1-rte-frozen): its measurements were not saved" in out


@pytest.mark.parametrize("options", [["--seeds", 4], ["--seeds", 4, "--baseline", "{folder}/accepted.json"]])
def test_claims_that_do_not_apply_pass_no_run_whose_other_claims_lack_measurements(capsys, tmp_path, options):
    shape = {"layers": 12, "heads": 12, "has": "the model has 2 x 2", "instead": ""}
    causes = {"D1-rte-frozen": RecordedCause(grounds="OTHER_SHAPE", facts=shape)}
    recorded = RecordedRun(model="m", seeds=3, cases=["D1-rte-pretrained", *causes], not_applicable=causes)
    write_record(tmp_path / "kept", recorded, [of_seed(seed, learned=True) for seed in (1, 2, 3)])
    judged = ["report", "--measurements", tmp_path / "kept"]
    run(capsys, *judged, "--baseline", tmp_path / "accepted.json", "--update-baseline")
    line = told(capsys, *judged, *(str(option).format(folder=tmp_path) for option in options))
    assert "which has m (seeds 1 2 3): choose one of these models and some of its seeds" in line


@pytest.mark.parametrize("facts", [{"wanted": "BERT"}, {}])
def test_a_recorded_reason_that_lacks_facts_is_refused_in_one_line(capsys, tmp_path, facts):
    causes = {"D1-rte-frozen": RecordedCause(grounds="OTHER_ARCHITECTURE", facts=facts)}
    recorded = RecordedRun(model="m", seeds=[1], cases=["D1-rte-pretrained", *causes], not_applicable=causes)
    write_record(tmp_path, recorded, [of_seed(1, learned=True)])
    line = told(capsys, "report", "--measurements", tmp_path)
    assert "reason why D1-rte-frozen does not apply is damaged: save the run again" in line


def test_any_of_a_records_seeds_can_be_judged_alone(capsys, tmp_path):
    recorded = RecordedRun(model="m", seeds=5, cases=["D1-rte-pretrained"])
    write_record(tmp_path / "kept", recorded, [of_seed(seed, learned=True) for seed in (1, 2, 3, 4, 5)])
    words = [word for seed in (2, 3, 5) for word in ("--seed", seed)]
    run(capsys, "report", "--measurements", tmp_path / "kept", *words, "--json", tmp_path / "some.json", code=1)
    (verdict,) = json.loads((tmp_path / "some.json").read_text())["verdicts"]
    assert verdict["seeds"] == [2, 3, 5]


def test_a_record_is_judged_on_its_own_model_whatever_the_default(capsys, tmp_path, monkeypatch):
    recorded = RecordedRun(model="m", seeds=3, cases=["D1-rte-pretrained"])
    write_record(tmp_path / "kept", recorded, [of_seed(seed, learned=True) for seed in (1, 2, 3)])
    monkeypatch.setenv("BERTSECRETS_MODEL", "minilm")
    run(capsys, "report", "--measurements", tmp_path / "kept", "--json", tmp_path / "again.json", code=1)
    assert json.loads((tmp_path / "again.json").read_text())["model"] == "m"


@pytest.mark.parametrize(
    ("options", "message"),
    [
        (["--save", "{folder}/file/x"], "cannot write"),
        (["--save", "{folder}/x", "--checkpoint", "{folder}"], "--save has no effect with --checkpoint: leave it out"),
        (
            ["--save", "{folder}/x", "--model", "a", "--model", "b"],
            "--save can be used only with a single --model: leave it out",
        ),
    ],
)
def test_records_that_cannot_be_saved_are_refused_before_anything_is_measured(capsys, tmp_path, options, message):
    (tmp_path / "file").touch()
    words = [option.format(folder=tmp_path) for option in options]
    assert message in told(capsys, "report", "--task", "rte", "--store", tmp_path / "runs", *words)
    assert not (tmp_path / "runs").exists()
