"""What a run shows and checks before training: jobs, estimated time and model; errors are reported first."""

import json
import re
import shutil

import pytest
from calls import told
from zoo import save_family

from bertsecrets.caches import CheckpointCache
from bertsecrets.cli.main import main
from bertsecrets.errors import MisreadError
from bertsecrets.jobs.estimates import FROM_STEPS, Record, estimate_jobs
from bertsecrets.jobs.plan import plan_of
from bertsecrets.jobs.preflight import checked
from bertsecrets.measures.head_statistics import HeadStatistics
from bertsecrets.session import Session
from bertsecrets.types import Request, Subject

pytestmark = pytest.mark.usefixtures("quick")
CLAIM = ("report", "--task", "rte", "--claim", "E1")


@pytest.fixture
def session(tiny_bert, tiny_glue, tmp_path) -> Session:
    return Session(
        model=str(tiny_bert), glue=tiny_glue, store=tmp_path / "new", device="cpu", offline=True,
        allow_unofficial_data=True,
    )  # fmt: skip


def test_a_run_first_shows_trainings_duration_and_model(capsys, shared, tmp_path):
    words = [*CLAIM, *shared, "--store", tmp_path / "new", "--limit", 8, "--train-limit", 6]
    main([str(word) for word in words])
    lines = capsys.readouterr().err.splitlines()
    place = next(number for number, line in enumerate(lines) if " to train, " in line)
    block = lines[place + 1 : place + 4]
    assert block[0].startswith("  claims: ")
    assert re.fullmatch(r"  time: about \d+ s \(estimated from training steps\)", block[1])
    assert block[2].startswith("  model: 3 layers x 4 heads, vocabulary of ")
    assert block[2].endswith("[UNK] in 8 rows of RTE")


def test_times_without_a_record_are_scaled_from_training_steps(session):
    subject, frozen = (Subject(session.model, "rte", init) for init in ("pretrained", "frozen"))
    planned = plan_of([Request("scores", subject), Request("scores", frozen)])
    trial = Record(Request(None, subject), seconds=8.0, examples=16)  # half a second per example
    seconds = {each.request: each.seconds for each in estimate_jobs(session, planned, trial)}
    assert seconds[Request(None, subject)] == pytest.approx(64 / 2)  # one epoch of 64 rows
    assert seconds[Request(None, frozen)] == pytest.approx(64 / 2 * 0.6)  # without a backward pass
    assert seconds[Request("scores", subject)] == pytest.approx(24 / 2 * 0.6)  # 24 validation rows


def test_the_time_of_an_ablation_grows_with_its_sets_of_heads(session):
    subject = Subject(session.model, "rte")
    heads = [Request("head-ablation", subject, (("heads", text),)) for text in ("1.2", "pairs:1", "all nested:1,2")]
    trial = Record(Request(None, subject), seconds=8.0, examples=16)
    seconds = {each.request: each.seconds for each in estimate_jobs(session, plan_of(heads), trial)}
    one, six, nine = map(seconds.get, heads)
    assert (six / one, nine / one) == pytest.approx(((1 + 6 / 2) / 1.5, (1 + 9 / 2) / 1.5))


def test_a_frozen_encoder_is_timed_as_well(session):
    planned = plan_of([Request("scores", Subject(session.model, "rte", "frozen"))])
    possible, trial = checked(session, planned)
    assert {estimate.basis for estimate in estimate_jobs(session, possible, trial)} == {FROM_STEPS}


def test_a_timed_training_step_leaves_the_training_as_it_is(session):
    subject = Subject(session.model, "rte")
    _, trial = checked(session, plan_of([Request("scores", subject)]))
    assert trial is not None
    assert trial.seconds > 0
    assert not session.store.root.exists()
    weights = [session.checkpoint(subject) / "model.safetensors"]
    session.store.root.rename(session.store.root.with_name("first"))
    weights[0] = session.store.root.with_name("first") / weights[0].relative_to(session.store.root)
    weights.append(session.checkpoint(subject) / "model.safetensors")
    assert weights[0].read_bytes() == weights[1].read_bytes()


# ---------------------------------------------------------------------- errors before the announcement


@pytest.fixture
def untrained(monkeypatch):
    monkeypatch.setattr(CheckpointCache, "get", lambda *_: pytest.fail("trained first"))


@pytest.mark.usefixtures("untrained")
@pytest.mark.parametrize("command", [CLAIM, ("measure", "scores", "--task", "rte")])
@pytest.mark.parametrize("damage", ["weights", "layers", "vocabulary", "rows"])
def test_what_cannot_be_trained_is_refused_before_it_is_announced(
    capsys, shared, own_bert, tiny_glue, tmp_path, command, damage
):
    glue = shutil.copytree(tiny_glue, tmp_path / "glue")
    if damage == "weights":
        file = own_bert / "model.safetensors"
        file.write_bytes(file.read_bytes()[:-100])
    elif damage == "layers":
        config = json.loads((own_bert / "config.json").read_text())
        (own_bert / "config.json").write_text(json.dumps({**config, "num_hidden_layers": 2}))
    elif damage == "vocabulary":
        (own_bert / "tokenizer.json").unlink()
    else:
        (glue / "RTE" / "train.tsv").write_text("index\tsentence1\tsentence2\tlabel\n0\ta\tb\tperhaps\n")
    given = [*shared[4:], "--model", own_bert, "--glue", glue, "--store", tmp_path / "new"]
    told(capsys, *command, *given)  # asserts that the error is a single line
    assert not (tmp_path / "new").exists()


@pytest.mark.usefixtures("untrained")
@pytest.mark.parametrize("command", [CLAIM, ("measure", "scores", "--task", "rte")])
def test_too_little_memory_is_refused_before_the_training_is_announced(capsys, shared, tmp_path, command, monkeypatch):
    monkeypatch.setattr("bertsecrets.models.memory.available_bytes", lambda: 10**6)
    line = told(capsys, *command, *shared, "--store", tmp_path / "new")
    assert "of memory, 1 MB are free" in line


def test_one_damaged_task_leaves_the_others(session, tiny_glue, tmp_path):
    glue = shutil.copytree(tiny_glue, tmp_path / "glue")
    shutil.copytree(glue / "RTE", glue / "QNLI")
    both = Session(session.options, glue=glue)
    planned = plan_of(Request("scores", Subject(session.model, name)) for name in ("qnli", "rte"))
    left, _ = checked(both, planned)
    assert {job.subject.task for job in left} == {"rte"}


def test_one_damaged_task_leaves_what_a_stored_checkpoint_can_give(session, tiny_glue, tmp_path):
    glue = shutil.copytree(tiny_glue, tmp_path / "glue")
    shutil.copytree(glue / "RTE", glue / "QNLI")
    both = Session(session.options, glue=glue)
    both.checkpoint(Subject(session.model, "rte"))
    planned = plan_of(Request("scores", Subject(session.model, name)) for name in ("qnli", "rte"))
    left, _ = checked(both, planned)
    assert {job.subject.task for job in left} == {"rte"}


def test_a_measurement_that_is_refused_leaves_those_of_the_same_pass(session, monkeypatch):
    def misread(*_):
        raise MisreadError("other maps")

    monkeypatch.setattr(HeadStatistics, "check_model", misread)
    planned = plan_of(Request(name, Subject(session.model, "rte")) for name in ("head-statistics", "special-tokens"))
    left, _ = checked(session, planned)
    assert [job.measure for job in left] == [None, "special-tokens"]


@pytest.mark.parametrize("family", ["xlnet", "fnet", "tapas"])
def test_a_model_to_which_no_claim_applies_ends_no_run(tmp_path, tiny_glue, family):
    session = Session(
        model=str(save_family(family, tmp_path / family)), glue=tiny_glue, store=tmp_path / "new", device="cpu",
        allow_unofficial_data=True,
    )  # fmt: skip
    planned = plan_of([Request("scores", Subject(session.model, "rte"))])
    assert checked(session, planned) == (planned, None)
