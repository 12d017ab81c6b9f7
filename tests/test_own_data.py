"""Own tasks and own models are judged like GLUE's: from Python, from the command line and in several processes."""

import json
import re

import numpy as np
import pandas as pd
import pytest
import torch
from calls import run, told
from faults import PROCESSES, pytest_benchmarks
from transformers import AutoModel, AutoModelForSequenceClassification, AutoTokenizer

import bertsecrets as bs
from bertsecrets.claims.loading import cases
from bertsecrets.jobs import pool
from bertsecrets.texts import corpus
from bertsecrets.texts.tasks import GLUE_TASKS, TASKS

pytestmark = pytest.mark.usefixtures("quick")


def frame(rows: int, seed: int) -> pd.DataFrame:
    """Return pairs of texts whose first words tell the class."""
    draw = np.random.default_rng(seed)
    texts = [" ".join(draw.choice(corpus.THINGS, 3)) for _ in range(2 * rows)]
    upheld = draw.integers(0, 2, rows)
    firsts = [f"{'ada sold' if each else 'leo lost'} {text}" for each, text in zip(upheld, texts, strict=False)]
    return pd.DataFrame({"title": firsts, "text": texts[rows:], "upheld": upheld, "stars": draw.integers(1, 6, rows)})


TRAIN, DEV = frame(48, 1), frame(20, 2)


def complaints(name: str = "complaints", **given) -> bs.Task:
    return bs.Task(**{"name": name, "train": TRAIN, "dev": DEV, "texts": ("title", "text"), "label": "upheld"} | given)


def open_session(tiny_bert, tmp_path, *tasks, **given) -> bs.Session:
    return bs.Session(
        **{"model": tiny_bert, "tasks": tasks, "store": tmp_path / "runs", "offline": True, "seeds": 1} | given
    )


def test_twelve_lines_from_a_data_frame_and_a_module_to_a_verdict_and_a_figure(tiny_bert, tmp_path, monkeypatch):
    monkeypatch.chdir(tmp_path)
    model, tokenizer = AutoModel.from_pretrained(tiny_bert), AutoTokenizer.from_pretrained(tiny_bert)
    table = pd.concat([TRAIN, DEV])
    # ---
    train, dev = table[:48], table[48:]
    task = bs.Task("complaints", train=train, dev=dev, texts=("title", "text"), label="upheld")
    session = bs.Session(model=model, tokenizer=tokenizer, tasks=[task])
    verdict = session.judge("C1", seeds=2)
    print(verdict.outcome, verdict.reason)
    chart = bs.show_head(model, "ada sold two books", layer=2, head=3, tokenizer=tokenizer)
    # ---
    assert str(verdict.case) == "C1-complaints"
    assert verdict.observed is not None
    assert verdict.measurements[0].examples == len(dev)
    assert "BertModel, layer 2, head 3" in str(chart.to_dict())


@pytest.mark.parametrize(
    "given",
    [
        {"metric": "f1"},
        {"label": "stars", "texts": "title"},
        {"label": "stars", "metric": "pearson"},
    ],
)
def test_every_general_claim_is_judged_or_not_applicable(tiny_bert, tmp_path, given):
    session = open_session(tiny_bert, tmp_path, complaints(**given), limit=12)
    slow = {"G9", "H1", "J1", "J2", "J3"}
    named = {case.claim.id for case in cases() if case.task == "complaints"} - slow
    verdicts = session.judge_all(claims=sorted(named))
    assert [verdict.reason for verdict in verdicts if verdict.outcome is None] == []
    of_task = {str(verdict.case): verdict for verdict in verdicts if verdict.case.task == "complaints"}
    assert {"C1-complaints", "C2-complaints", "C3-complaints", "D2-complaints", "D3-complaints", "E1-complaints"} <= {
        *of_task
    }
    assert {"G1-complaints", "G3-complaints", "I1-complaints"} <= {*of_task}
    without = {name for name, verdict in of_task.items() if "published figures" in verdict.reason}
    assert {"A2-complaints", "C4-complaints", "D1-complaints-random", "E5-complaints-cls", "G7-complaints"} <= without
    assert {of_task[name].outcome for name in without} == {"not applicable"}
    assert not {"C1-complaints-not", "D4-complaints", "D4-complaints-reverse", "G4-complaints"} & {*of_task}
    assert ("D5-complaints" in of_task) == (given.get("metric") != "pearson")  # which K19 does not state for scores
    assert ("A3-complaints" in of_task) == (given.get("texts") is None)  # which needs two texts
    assert verdicts._repr_html_()


def test_no_figure_of_the_paper_is_shown_beside_own_data(tiny_bert, tmp_path):
    task = complaints()
    session = open_session(tiny_bert, tmp_path, task)
    for measure in ("attention-change", "special-tokens", "head-ablation", "layer-ablation", "patterns"):
        shown = session.measure(measure, task="Complaints")._repr_html_()
        assert "complaints" in shown
        assert "<svg" in shown
        assert "K19, figure" not in shown


def test_a_claim_is_about_the_only_task_of_a_session(tiny_bert, tiny_glue, tmp_path):
    session = open_session(tiny_bert, tmp_path, complaints(), glue=tiny_glue, allow_unofficial_data=True)
    assert str(session.judge("C1").case) == "C1-complaints"
    assert str(session.judge("C1", "rte").case) == "C1-rte"
    assert {verdict.case.task for verdict in session.judge_all(claims="C1")} == {"complaints"}
    assert {verdict.case.task for verdict in session.judge_all("RTE", claims="C1")} == {"rte"}
    other = open_session(tiny_bert, tmp_path, glue=tiny_glue, allow_unofficial_data=True)
    assert {verdict.case.task for verdict in other.judge_all(claims="C2")} <= {task.name for task in GLUE_TASKS}
    with pytest.raises(bs.MissingError, match="^complaints is not a task of this session"):
        other.judge("C1", "complaints")


def test_another_definition_of_a_name_is_noticed_and_stored_apart(tiny_bert, tmp_path):
    before = open_session(tiny_bert, tmp_path, complaints())
    first = before.measure("scores", "complaints", init="untrained")
    assert open_session(tiny_bert, tmp_path, complaints()).measure("scores", "complaints", init="untrained").reused
    assert before.measure("scores", "complaints", init="untrained").reused
    for changed in ({"labels": ["1", "0"]}, {"metric": "f1"}, {"dev": DEV[1:]}, {"label": "stars"}):
        session = open_session(tiny_bert, tmp_path, complaints(**changed))
        assert not session.measure("scores", "complaints", init="untrained").reused, changed
    assert first.values.keys() == {"accuracy", "constant", "majority", "entropy"}
    with pytest.raises(bs.UserError, match="is not a task of this session, or was redefined: open"):
        before.measure("scores", "complaints", init="untrained")


def test_wrong_tasks_are_one_line(tiny_bert, tmp_path):
    with pytest.raises(bs.UserError, match="^two of your own tasks have the same name: complaints, complaints"):
        open_session(tiny_bert, tmp_path, complaints(), complaints(metric="f1"))
    with pytest.raises(bs.UserError, match="complaints has no training rows: give the task training data"):
        open_session(tiny_bert, tmp_path, complaints(train=None)).judge("C1")


@pytest.mark.parametrize("names", [("0", "4"), ("../a", "b" * 300)], ids=["numbers", "no names of files"])
def test_a_model_of_any_classes_is_trained_and_measured(tiny_bert, tmp_path, names):
    train, dev = (rows.assign(upheld=rows["upheld"].map(dict(enumerate(names)))) for rows in (TRAIN, DEV))
    session = open_session(tiny_bert, tmp_path, complaints(train=train, dev=dev))
    assert session.measure("scores", "complaints").examples == len(DEV)
    (entry,) = (tmp_path / "runs" / "checkpoints").glob("[!.]*")
    assert entry.name.startswith("complaints-pretrained-1-")


def test_classes_of_a_checkpoint_are_matched_by_name(tiny_bert, tmp_path):
    words = {0: "rejected", 1: "upheld"}
    named = complaints(train=None, dev=DEV.assign(upheld=DEV["upheld"].map(words)), labels=[*words.values()])
    model = AutoModelForSequenceClassification.from_pretrained(tiny_bert, num_labels=2)
    accuracies = []
    for names in (words, {0: "Upheld", 1: "REJECTED"}):
        model.config.id2label, model.config.label2id = names, {name: number for number, name in names.items()}
        session = open_session(tiny_bert, tmp_path, named, checkpoint=model, seeds=None)
        accuracies.append(session.measure("scores", "complaints").values["accuracy"])
        assert session.judge("D5").case.task == "complaints"  # the session has only one task
    assert sum(accuracies) == 1
    model.config.id2label = {0: "good", 1: "bad"}
    with pytest.raises(
        bs.UserError, match="if the checkpoint was trained on complaints, give the class of each output in id2label"
    ):
        open_session(tiny_bert, tmp_path, named, checkpoint=model, seeds=None)


# ---------------------------------------------------------------------- the command line


@pytest.fixture
def given(tiny_bert, tmp_path):
    """Return options with a task file, which has relative paths."""
    (tmp_path / "data").mkdir()
    TRAIN.to_csv(tmp_path / "data" / "train.csv", index=False)
    DEV.to_csv(tmp_path / "data" / "dev.tsv", index=False, sep="\t")
    lines = ["name: complaints", "train: train.csv", "dev: dev.tsv", "texts: [title, text]", "label: upheld"]
    (tmp_path / "data" / "task.yaml").write_text("\n".join(lines))
    return [
        *("--model", tiny_bert, "--task-file", tmp_path / "data" / "task.yaml", "--store", tmp_path / "runs"),
        *("--device", "cpu", "--offline"),
    ]


def test_claims_about_own_tasks_are_listed_and_explained(given, capsys):
    assert "unknown claim 'C1-complaints'" in told(capsys, "explain", "C1-complaints")
    task_file = given[2:4]
    listed = run(capsys, "claims", *task_file, "--family", "D")
    assert "complaints" in listed
    assert "D2-mean" not in listed  # it is about all of GLUE
    explained = run(capsys, "explain", "C1", *task_file)
    assert "\n  complaints: no published figure" in explained
    assert "\n  RTE: " not in explained


def test_commands_take_task_files_and_jobs_run_in_parallel(given, tmp_path, capsys, tiny_bert, monkeypatch):
    monkeypatch.setattr(pool, "SPAWN_CONTEXT", PROCESSES)
    monkeypatch.setenv("OMP_NUM_THREADS", "1")
    torch.set_num_threads(1)
    words = [*given, "--claim", "C1", "--claim", "A2", "--seeds", 2]
    shown = run(capsys, "run", *words, "--jobs", 2, "--json", tmp_path / "verdicts.json")
    assert "C1" in shown
    verdicts = {verdict["id"]: verdict for verdict in json.loads((tmp_path / "verdicts.json").read_text())["verdicts"]}
    assert verdicts["C1-complaints"]["seeds"] == [1, 2]
    assert verdicts["A2-complaints"]["verdict"] == "not applicable"
    python = open_session(tiny_bert, tmp_path, complaints(), seeds=2, device="cpu").judge("C1")
    assert python.reused
    assert python.observed == verdicts["C1-complaints"]["observed"]
    run(capsys, "report", *words, "--html", tmp_path / "page.html", "--markdown", tmp_path / "summary.md")
    page = (tmp_path / "page.html").read_text()
    assert ", own data, " in (tmp_path / "summary.md").read_text()
    assert "<dt>Data</dt><dd>your own</dd>" in page
    assert "nofficial data" not in "".join([page, shown, *verdicts["C1-complaints"]["remarks"]])
    assert "complaints" in page
    assert not re.search("K19, figure [0-9]", page)
    assert "--task-file" in run(capsys, "plan", *words, "--seeds", 3, "--shell")
    assert "task complaints: found, <Task complaints: classes 0, 1; 48 train and 20 dev rows>" in run(
        capsys, "doctor", *given
    )
    measured = run(capsys, "measure", "attention-change", *given, "--task", "complaints")
    assert json.loads(measured)["task"] == "complaints"
    del TASKS["complaints"]
    run(capsys, "measure", "scores", *given, "--task", "complaints", "--save", tmp_path / "saved")
    del TASKS["complaints"]
    assert "unknown task 'complaints'" in told(
        capsys, "compare", tmp_path / "saved", tmp_path / "saved", *given[:2], "--offline"
    )


def test_faults_of_a_task_file_are_one_line(given, tmp_path, capsys):
    file = tmp_path / "data" / "dev.tsv"
    file.write_text(file.read_text().replace("\t1\t", "\t7\t", 1))
    told_line = told(capsys, "report", *given)
    assert re.search(r"dev.tsv, line [0-9]+: unknown label '7': expected one of 0, 1$", told_line)
    assert "nowhere.yaml: No such file" in told(capsys, "doctor", "--task-file", "nowhere.yaml")


def test_a_benchmark_run_collects_the_claims_on_own_tasks(given, tmp_path):
    code, output = pytest_benchmarks(*given, "--collect-only", "-q", "-k", "C1 or G9", output=tmp_path)
    assert code == 0, output
    names = re.findall(r"test_claim\[(.*)\]", output)
    assert names == ["C1-complaints", "C1p-complaints"]
