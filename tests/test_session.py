"""Measurements are computed once per cache key, and record what they were computed from."""

import pickle
import shutil
import warnings
from concurrent.futures import ThreadPoolExecutor

import numpy as np
import pytest
import yaml
from safetensors.numpy import load_file
from sessions import local_session
from tiny import HEADS, LAYERS, save_bert
from transformers import AutoModelForSequenceClassification, AutoTokenizer, PreTrainedModel
from zoo import save_family

from bertsecrets.claims.loading import find_case
from bertsecrets.errors import NotApplicableError, UserError
from bertsecrets.jobs.plan import plan_of
from bertsecrets.jobs.prepare import run_jobs
from bertsecrets.measures.registry import request
from bertsecrets.session import Session
from bertsecrets.settings import load_settings
from bertsecrets.store.entries import DamagedEntryWarning
from bertsecrets.store.measurements import Shelf, save_to_folder
from bertsecrets.texts.corpus import write_corpus
from bertsecrets.texts.glue import load_folder
from bertsecrets.texts.rows import draw_rows, text_clusters
from bertsecrets.texts.tasks import task
from bertsecrets.types import Subject

pytestmark = pytest.mark.usefixtures("quick")


def opened(store, glue, **more) -> Session:
    return local_session(store=store, glue=glue, **more)


@pytest.fixture
def bench(runs, tiny_glue):
    return opened(runs, tiny_glue)


@pytest.fixture
def subject(tiny_bert):
    return Subject(str(tiny_bert), "rte")


@pytest.fixture
def with_six_examples():
    settings = load_settings()
    return settings.model_copy(update={"attention": settings.attention.model_copy(update={"examples": 6})})


@pytest.fixture(scope="module")
def shared_texts(tmp_path_factory):
    """A GLUE folder whose validation rows come in pairs with the same first sentence."""
    folder = write_corpus(tmp_path_factory.mktemp("paired") / "glue", 8, 6)
    path = folder / "RTE" / "dev.tsv"
    header, *rows = [line.split("\t") for line in path.read_text().splitlines()]
    for one, other in zip(rows[::2], rows[1::2], strict=True):
        other[1] = one[1]
    path.write_text("\n".join("\t".join(row) for row in (header, *rows)) + "\n")
    return folder


@pytest.mark.parametrize("claim", ["C2", "D2", "D1-untrained", "E1", "G1"])
def test_the_rows_of_a_verdict_are_known_before_anything_is_measured(tiny_bert, tiny_glue, tmp_path, claim):
    limits = {"limit": 10, "train_limit": 16, "grid_limit": 6}
    session = opened(tmp_path, tiny_glue, model=tiny_bert, **limits)
    expected = session.rows_of(find_case(claim, "rte"))
    verdict = session.judge(claim, "rte", seeds=1).data
    assert expected == {"limits": verdict.limits, "data": verdict.data} != {"limits": {}, "data": []}


def drawn(glue, number):
    """Return the indices of the rows that a limit selects from RTE's validation set."""
    every = load_folder(glue, task("rte"), "dev")
    return [i for i, first in enumerate(every.sentence1) if first in set(draw_rows(every, number).sentence1)]


def entries(store, kind="measurements"):
    return sorted(p.name for p in (store / kind).glob("*") if p.is_dir())


def test_a_measurement_is_made_once_and_then_stored(bench, subject):
    first = bench.measurement("scores", subject)
    assert (first.measure, first.examples) == ("scores", 24)
    again = bench.measurement("scores", subject)
    assert again.reused
    assert again.values == first.values
    np.testing.assert_array_equal(again.samples["predicted"], first.samples["predicted"])
    assert again.provenance.seconds == first.provenance.seconds
    assert set(first.values) == {"accuracy", "constant", "majority", "entropy"}
    accuracy = (first.samples["predicted"] == first.samples["target"]).mean()
    assert first.values["accuracy"] == pytest.approx(accuracy)


def test_companions_of_a_measure_are_stored_in_the_same_pass(bench, subject, runs):
    for folder in [*runs.glob("measurements/attention-change-*"), *runs.glob("measurements/special-tokens-*")]:
        shutil.rmtree(folder)
    change = bench.measurement("attention-change", subject)
    assert not change.reused
    assert np.shape(change.values["cosine"]) == (LAYERS, HEADS)
    assert change.samples["cosine"].shape == (24, LAYERS, HEADS)
    assert 0 < np.min(change.values["cosine"]) < 1
    assert sum(name.startswith("special-tokens-rte-pretrained-1-") for name in entries(runs)) == 1
    again = bench.measurement("attention-change", subject)
    assert (again.reused, again.provenance) == (True, change.provenance)
    special = bench.measurement("special-tokens", subject)
    assert special.reused
    assert np.min(special.values["sep_sum"] - special.values["sep"]) >= 0


def test_padded_maps_are_a_separate_measurement(bench, subject):
    cropped = bench.measurement("attention-change", subject)
    padded = bench.measurement("attention-change", subject, padded_to=60)
    assert padded.options == {"padded_to": 60}
    assert not np.array_equal(padded.values["cosine"], cropped.values["cosine"])
    assert bench.measurement("attention-change", subject, padded_to=60).reused


def test_a_limit_changes_key_and_provenance(bench, subject, runs, tiny_glue):
    whole = bench.measurement("scores", subject)
    few = opened(runs, tiny_glue, limit=10)
    cut = few.measurement("scores", subject)
    assert (cut.examples, cut.provenance.limit, whole.provenance.limit) == (10, 10, None)
    np.testing.assert_array_equal(cut.samples["target"], whole.samples["target"][drawn(tiny_glue, 10)])
    assert cut.provenance.checkpoint == whole.provenance.checkpoint
    assert not whole.provenance.official_data


def test_rows_of_a_smaller_limit_are_among_those_of_a_larger_one(bench, subject, runs, tiny_glue, with_six_examples):
    """`attention.examples` and the limits take the first rows of the same random order."""
    every = bench.measurement("special-tokens", subject).samples["cls"]
    for options, rows in ({}, 6), ({"limit": 10}, 6), ({"limit": 4}, 4):
        limited = opened(runs, tiny_glue, **options, settings=with_six_examples).measurement("special-tokens", subject)
        np.testing.assert_allclose(limited.samples["cls"], every[drawn(tiny_glue, rows)], atol=1e-6)
        assert limited.provenance.limit == (4 if rows == 4 else None)  # a limit of 10 excludes none of the six


def test_rows_first_reads_the_first_rows(bench, subject, runs, tiny_glue, with_six_examples):
    """The measurement is separate, and its companions are not stored as if their rows were drawn randomly."""
    six = opened(runs, tiny_glue, settings=with_six_examples)
    other = Subject(subject.model, "rte", "untrained", 4)
    before = len(entries(runs))
    first = six.measurement("special-tokens", other, rows="first")
    assert len(entries(runs)) == before + 1
    every = bench.measurement("special-tokens", other)
    assert (first.options, first.examples, first.provenance.limit) == ({"rows": "first"}, 6, None)
    np.testing.assert_allclose(first.samples["cls"], every.samples["cls"][:6], atol=1e-6)
    assert not np.allclose(first.samples["cls"], six.measurement("special-tokens", other).samples["cls"], atol=1e-6)
    with pytest.raises(UserError, match="rows"):
        six.measurement("special-tokens", other, rows="last")


@pytest.mark.parametrize("measure", ["scores", "attention-change"])
def test_samples_have_a_cluster_for_rows_that_share_a_text(measure, runs, tiny_bert, shared_texts):
    few = opened(runs, shared_texts, limit=4)
    init = "pretrained" if measure == "attention-change" else "untrained"
    measurement = few.measurement(measure, Subject(str(tiny_bert), "rte", init))
    rows = few.resources.rows.split("rte", "dev")
    assert len(set(rows.sentence1)) < len(rows) == measurement.examples
    assert measurement.samples["cluster"].dtype == np.int64
    np.testing.assert_array_equal(measurement.samples["cluster"], text_clusters(rows))


def test_a_training_limit_is_recorded_also_for_exported_checkpoints(bench, subject, runs, tiny_glue, tmp_path):
    less = opened(runs, tiny_glue, train_limit=16)
    limited = less.measurement("scores", subject)
    assert limited.provenance.train_limit == 16
    assert limited.provenance.checkpoint != bench.measurement("scores", subject).provenance.checkpoint
    folder = less.export_checkpoint(subject, tmp_path / "exported")
    assert bench.measurement("scores", subject, folder).provenance.train_limit == 16


def test_settings_of_a_measure_are_part_of_its_key_alone(bench, subject, runs, tiny_glue, quick, monkeypatch, tmp_path):
    before = bench.measurement("scores", subject).provenance.checkpoint
    data = yaml.safe_load(quick.read_text())
    data["scores"]["max_length"] = 20
    (tmp_path / "p.yaml").write_text(yaml.safe_dump(data))
    monkeypatch.setenv("BERTSECRETS_PARAMS", str(tmp_path / "p.yaml"))
    shorter = opened(runs, tiny_glue).measurement("scores", subject)
    assert shorter.settings == {"max_length": 20}
    assert shorter.provenance.checkpoint == before  # scoring settings do not affect training


def test_every_initialisation_and_seed_has_its_own_checkpoint(bench, subject):
    starts = [(init, seed) for init in ("pretrained", "random", "untrained") for seed in (1, 2)]
    assert len({bench.checkpoint(Subject(subject.model, "rte", *start)).name for start in starts}) == 6


def test_an_exported_checkpoint_without_manifest_gives_the_same_values(bench, subject, tmp_path):
    own = bench.measurement("scores", subject)
    folder = bench.export_checkpoint(subject, tmp_path / "mine")
    (folder / "manifest.json").unlink()
    exported = bench.measurement("scores", subject, folder)
    assert exported.values == own.values
    assert (exported.provenance.training, exported.provenance.train_limit) == (None, None)
    change = bench.measurement("attention-change", subject, folder)
    np.testing.assert_allclose(change.values["cosine"], bench.measurement("attention-change", subject).values["cosine"])


def test_a_damaged_measurement_is_made_again(bench, subject, runs):
    bench.measurement("scores", subject)
    for file in (runs / "measurements").glob("scores-rte-pretrained-1-*/measurement.json"):
        file.write_text(file.read_text() + " ")
    with pytest.warns(DamagedEntryWarning, match=r"measurement\.json has changed"):
        repeated = bench.measurement("scores", subject)
    assert not repeated.reused
    with warnings.catch_warnings():
        warnings.simplefilter("error")
        assert bench.measurement("scores", subject).reused


def test_saved_measurements_are_read_without_model_or_data(bench, subject, tmp_path):
    measurement = bench.measurement("scores", subject)
    saved = save_to_folder(measurement, tmp_path / "kept" / "a")
    assert save_to_folder(measurement, tmp_path / "kept" / "a") == saved
    assert saved.stat().st_mode & 0o777 == 0o755
    padded = save_to_folder(bench.measurement("attention-change", subject, padded_to=60), tmp_path / "kept" / "a")
    assert padded.name.startswith(f"attention-change-{subject}-")
    assert padded.name.endswith("-padded_to-60")
    shelf = Shelf.read(tmp_path / "kept")
    assert len(shelf.measurements) == 2
    assert shelf.measurement("scores", subject).values == measurement.values
    assert shelf.measurement("attention-change", subject, padded_to=60).reused
    assert shelf.find("attention-change", subject, {"padded_to": 60}).origin == str(padded)
    assert shelf.find("attention-change", subject, {}) is None
    with pytest.raises(UserError, match="measure attention-change was not saved for "):
        shelf.measurement("attention-change", subject)
    with pytest.raises(UserError, match="no measurements were found in"):
        Shelf.read(tmp_path / "none")


def test_a_grid_limit_applies_only_to_ablations_and_changes_their_key(runs, tiny_glue, tiny_bert):
    few = opened(runs, tiny_glue, grid_limit=6)
    subject = Subject(str(tiny_bert), "rte", "untrained")
    grid = few.measurement("layer-ablation", subject)
    assert grid.examples == len(grid.samples["target"]) == 6
    assert grid.provenance.limit == 6
    assert few.measurement("scores", subject).provenance.limit is None
    all_rows = opened(runs, tiny_glue)
    assert all_rows.measurement("layer-ablation", subject).examples == 24


def test_an_impossible_measure_is_refused_before_training(tmp_path, tiny_glue):
    model = save_family("longformer", tmp_path / "longformer")
    bench = opened(tmp_path / "store", tiny_glue, model=str(model))
    for measure in ("special-tokens", "attention-change", "head-ablation"):
        with pytest.raises(NotApplicableError, match="Longformer|longformer"):
            bench.measurement(measure, bench.subject("rte"))
    assert not list((tmp_path / "store").glob("checkpoints/*"))
    assert bench.measurement("scores", bench.subject("rte")).value("accuracy") >= 0


def test_threads_train_the_same_models_one_after_another(tiny_bert, tiny_glue, tmp_path):
    def trained(seed, store):
        session = opened(tmp_path / store, tiny_glue, model=tiny_bert)
        return load_file(session.checkpoint(session.subject("rte", seed=seed)) / "model.safetensors")

    alone, tie_weights = [trained(seed, "alone") for seed in (1, 2)], PreTrainedModel.tie_weights
    with ThreadPoolExecutor() as pool:
        together = [*pool.map(trained, (1, 2), ("one", "other"))]
    for expected, weights in zip(alone, together, strict=True):
        assert all((weights[name] == expected[name]).all() for name in expected)
    assert PreTrainedModel.tie_weights is tie_weights


def test_threads_measure_an_object_one_after_another(tiny_bert, tiny_glue, tmp_path):
    model = AutoModelForSequenceClassification.from_pretrained(tiny_bert)
    model.register_forward_pre_hook(lambda module, inputs: None)  # so that the object itself is measured
    session = opened(
        tmp_path, tiny_glue, checkpoint=model, checkpoint_task="rte", tokenizer=AutoTokenizer.from_pretrained(tiny_bert)
    )
    with ThreadPoolExecutor() as pool:
        scores = [*pool.map(lambda _: session.measure("scores").samples["predicted"].tolist(), range(2))]
    assert scores == [session.measure("scores").samples["predicted"].tolist()] * 2


def test_relative_paths_start_where_the_session_was_opened(tiny_glue, tmp_path, monkeypatch):
    for place, spread in (("here", 0.5), ("there", 0.1)):
        folder = save_bert(tmp_path / place / "model", initializer_range=spread)
        made = opened(tmp_path / place / "made", tiny_glue, model=folder)
        made.export_checkpoint(made.subject("rte", "untrained"), tmp_path / place / "tuned")
        (tmp_path / place / "glue").symlink_to(tiny_glue)
    folder = tmp_path / "here"
    monkeypatch.chdir(folder)
    session = opened("runs", "glue", model="model", limit=4)
    tuned = opened("runs", "glue", model="model", checkpoint="tuned", checkpoint_task="rte", limit=4)
    monkeypatch.chdir(tmp_path / "there")
    untrained, given = session.measure("special-tokens", "rte", init="untrained"), tuned.measure("special-tokens")
    assert not (tmp_path / "there" / "runs").exists()
    assert (untrained.subject.model, given.subject.model) == ("model", "tuned")
    same = opened(tmp_path / "other", tiny_glue, model=folder / "model", limit=4)
    np.testing.assert_array_equal(
        same.measure("special-tokens", "rte", init="untrained").values["sep"], untrained.values["sep"]
    )
    np.testing.assert_array_equal(
        same.measure("special-tokens", "rte", checkpoint=folder / "tuned").values["sep"], given.values["sep"]
    )
    assert session.judge("D2", "rte", checkpoint=folder / "tuned").data.data
    session.jobs = 2
    subjects = [session.subject("rte", "untrained", seed) for seed in (2, 3)]
    run_jobs(session, plan_of([request("special-tokens", subject, {}) for subject in subjects]))
    assert not (tmp_path / "there" / "runs").exists()
    assert len([*(folder / "runs/measurements").glob("special-tokens-rte-untrained-*")]) == 3


def test_a_session_cannot_be_pickled(bench):
    with pytest.raises(TypeError, match="a session cannot be sent to another process: send its options"):
        pickle.dumps(bench)
    assert pickle.loads(pickle.dumps(bench.options)) == bench.options
