"""A user-defined model class from families.md, installed as a separate package."""

import importlib
import json
import re
import sys
from pathlib import Path

import numpy as np
import pytest
from faults import run
from pages import titled
from sessions import local_session
from tiny import HEADS, LAYERS, save_bert

from bertsecrets.errors import UserError
from bertsecrets.models import families
from bertsecrets.models.configuration import open_config
from bertsecrets.models.locations import ModelRef

pytestmark = pytest.mark.slow

NAME = "families.md"


@pytest.fixture
def package(tmp_path) -> Path:
    """A folder with the page's module and the entry point metadata that pip would write."""
    folder = tmp_path / "site"
    (folder / "mean_bert-1.0.dist-info").mkdir(parents=True)
    (folder / "mean_bert.py").write_text(titled(NAME, "mean_bert.py"), encoding="utf-8")
    (folder / "mean_bert-1.0.dist-info" / "METADATA").write_text("Name: mean-bert\nVersion: 1.0\n")
    entry = titled(NAME, "pyproject.toml").replace("project.entry-points.", "").replace('"', "")
    (folder / "mean_bert-1.0.dist-info" / "entry_points.txt").write_text(entry)
    return folder


@pytest.fixture
def model(tmp_path) -> Path:
    folder = save_bert(tmp_path / "model")
    config = json.loads((folder / "config.json").read_text())
    (folder / "config.json").write_text(json.dumps({**config, "model_type": "mean-bert"}))
    return folder


def test_a_family_of_an_installed_package_is_trained_and_measured(package, model, tiny_glue, quick_params, tmp_path):
    def command(*words):
        options = ("--model", model, "--glue", tiny_glue, "--store", tmp_path / "runs", "--device", "cpu", "--offline")
        environment = {"PYTHONPATH": str(package), "BERTSECRETS_PARAMS": str(quick_params)}
        ended = run([*words, *options], tmp_path / "output", **environment)
        assert ended.code == 0, ended
        return ended.out

    def values(measure):
        file = tmp_path / f"{measure}.json"
        command("measure", measure, "--task", "rte", "--allow-unofficial-data", "--json", file)
        return json.loads(file.read_text())["values"]

    out = command("doctor")
    answers = dict(re.findall(r"^measure ([a-z-]+): (supported|not applicable)", out, re.M))
    assert {"scores", "attention-change", "patterns", "head-ablation", "weight-pruning", "anisotropy"} <= answers.keys()
    assert {name for name, answer in answers.items() if answer != "supported"} == set(), out
    scores, change, layers = map(values, ("scores", "attention-change", "layer-ablation"))
    assert np.shape(change["cosine"]) == (LAYERS, HEADS)
    assert layers["baseline"] == pytest.approx(scores["accuracy"])


def test_without_the_package_the_model_is_unknown(model):
    with pytest.raises(UserError, match="mean-bert"):
        open_config(ModelRef.in_folder(model))


@pytest.fixture
def registered(package, monkeypatch):
    monkeypatch.syspath_prepend(package)
    monkeypatch.setattr(families, "_OWN", {})
    from mean_bert import FAMILY
    from transformers import CONFIG_MAPPING, MODEL_FOR_SEQUENCE_CLASSIFICATION_MAPPING, MODEL_MAPPING

    families.register_family(FAMILY)
    yield FAMILY
    CONFIG_MAPPING._extra_content.clear()
    for mapping in (MODEL_MAPPING, MODEL_FOR_SEQUENCE_CLASSIFICATION_MAPPING):
        mapping._extra_content.clear()
    del sys.modules["mean_bert"]


def test_an_edit_of_the_classes_is_another_model(registered, package, model):
    before = ModelRef.in_folder(model).identity()
    assert before == ModelRef.in_folder(model).identity()
    with (package / "mean_bert.py").open("a") as file:
        file.write("EDITED = 1\n")
    assert ModelRef.in_folder(model).identity() == before  # the process still runs the former code
    del sys.modules["mean_bert"]
    families.register_family(importlib.import_module("mean_bert").FAMILY)
    assert ModelRef.in_folder(model).identity() != before


def test_a_model_of_such_a_class_in_memory_is_measured(registered, tiny_bert, tiny_glue, quick, tmp_path):
    import torch

    config = registered.config.from_pretrained(tiny_bert, num_labels=2)
    torch.manual_seed(0)
    model = registered.classifier(config)
    session = local_session(model=tiny_bert, glue=tiny_glue, store=tmp_path / "runs")
    original = session.measure("special-tokens", task="rte", checkpoint=model)
    assert original.values["cls"].shape == (LAYERS, HEADS)
    assert session.measure("special-tokens", task="rte", checkpoint=model).reused
    with torch.no_grad():
        model.bert.encoder.layer[0].attention.self.query.weight.mul_(9)
    other = session.measure("special-tokens", task="rte", checkpoint=model)
    assert not other.reused
    assert np.abs(other.values["cls"] - original.values["cls"])[0].max() > 0


def test_an_invalid_family_is_named(package, model, monkeypatch):
    monkeypatch.syspath_prepend(package)
    entries = package / "mean_bert-1.0.dist-info" / "entry_points.txt"
    for value, message in (
        ("mean_bert:MeanBert", "is not a Family whose configuration has model_type 'mean-bert'"),
        ("mean_bert:NONE", "cannot be imported"),
    ):
        entries.write_text(f"[bertsecrets.families]\nmean-bert = {value}\n")
        families._offered.cache_clear()  # as in a new process
        with pytest.raises(UserError, match=f"entry point mean-bert = {value} of bertsecrets.families {message}"):
            open_config(ModelRef.in_folder(model))


def test_a_name_that_transformers_has_is_refused():
    from transformers import BertConfig, BertForSequenceClassification, BertModel

    with pytest.raises(UserError, match="transformers already has an architecture 'bert'"):
        families.register_family(families.Family(BertConfig, BertModel, BertForSequenceClassification))
