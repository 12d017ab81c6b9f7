"""Names of classes in config.json: in either map, in any order and spelling, and refused if they are unclear."""

import json

import pytest
import torch
from tiny import save_bert, settings

import bertsecrets as bs
from bertsecrets.errors import UserError
from bertsecrets.models.class_names import classes_in_order
from bertsecrets.models.opening import open_checkpoint
from bertsecrets.texts.tasks import TASKS, task

RTE = task("rte")


def in_order(folder, known=RTE, **maps):
    """Return the classes that a config.json with these maps names."""
    (folder / "config.json").write_text(json.dumps(maps))
    return classes_in_order(folder, known)


SWAPPED = [
    {"id2label": {"0": "not_entailment", "1": "entailment"}},
    {"label2id": {"not_entailment": 0, "entailment": 1}},
    {"id2label": {"0": "LABEL_0", "1": "LABEL_1"}, "label2id": {"not_entailment": 0, "entailment": 1}},
    {"id2label": {"0": None, "1": "entailment"}, "label2id": {"Not Entailment": 0}},
    {"id2label": {"1": "ENTAILMENT", "0": "NotEntailment"}},
    {"id2label": {"0": "non-entailment", "1": "entails"}},
]


@pytest.mark.parametrize("maps", SWAPPED)
def test_names_are_read_from_either_map(tmp_path, maps):
    assert in_order(tmp_path, **maps) == ["not_entailment", "entailment"]


@pytest.mark.parametrize(
    "maps", [{}, {"id2label": None}, {"id2label": {"0": "0", "1": "1"}}, {"label2id": {"label 0": 0, "Class_1": 1}}]
)
def test_numbers_are_no_names(tmp_path, maps):
    assert in_order(tmp_path, **maps) is None


def test_outputs_are_put_in_the_order_of_the_task(tmp_path):
    folder, outputs = save_bert(tmp_path / "base", num_labels=3), []
    names = {"contradictory": 0, "Entailment": 1, "NEUTRAL": 2}
    for label2id in (None, names):
        settings(folder, "config.json", id2label={"0": "LABEL_0", "1": "LABEL_1", "2": "LABEL_2"}, label2id=label2id)
        last = open_checkpoint(folder, task("mnli")).model.classifier
        outputs.append(last.weight.detach())
    assert torch.equal(outputs[1], outputs[0][[1, 2, 0]])


REFUSED = [
    ({"id2label": {"1": "entailment", "2": "not_entailment"}}, "gives the class 'not_entailment' the number 2"),
    ({"id2label": {"0": "LABEL_1", "1": "LABEL_0"}}, "gives output 0 the name 'LABEL_1'"),
    ({"id2label": {"0": None, "1": None}}, "has no name for output 0"),
    ({"id2label": {"0": "entailment"}}, "has no name for output 1"),
    ({"id2label": {"0": "entailment", "1": "Entails"}}, "gives output 1 the name 'Entails'"),
    ({"id2label": {"0": "yes", "1": "no"}}, "gives output 0 the name 'yes'"),
    ({"label2id": {"entailment": True, "not_entailment": False}}, "gives the class 'entailment' the number True"),
    (
        SWAPPED[0] | {"label2id": {"entailment": 0, "not_entailment": 1}},
        "gives output 0 the name 'entailment and not_entailment'",
    ),
]


@pytest.mark.parametrize(("maps", "problem"), REFUSED)
def test_unclear_names_are_refused_with_those_of_the_task(tmp_path, maps, problem):
    with pytest.raises(UserError, match=problem) as error:
        in_order(tmp_path, **maps)
    assert str(error.value).endswith('in id2label, such as {"0": "entailment", "1": "not_entailment"}')


@pytest.mark.parametrize(
    "labels",
    [["0", "4"], ["-1", "1"], ["0", "2", "4"], ["1", "0"], ["0", "zero"], ["None", "b"], ["LABEL_1", "LABEL_0"]],
)
def test_names_of_own_classes_may_be_numbers(tmp_path, labels):
    own = bs.Task("own", dev={"text": labels, "label": labels}, labels=labels)
    for order in (labels, labels[::-1]):
        for maps in ({"id2label": dict(enumerate(order))}, {"label2id": {name: i for i, name in enumerate(order)}}):
            assert in_order(tmp_path, own, **maps) == order


def test_the_sign_of_a_number_is_part_of_a_name():
    assert bs.Task("own", dev={"text": ["a", "b"], "label": [-1, 0]}).class_named("1") is None


@pytest.mark.parametrize("name", TASKS)
def test_every_class_is_known_by_its_own_name_only(name):
    labels = TASKS[name].labels
    assert [TASKS[name].class_named(label.replace("_", " ").upper()) for label in labels] == list(labels)
    assert TASKS[name].class_named("acceptable") is None


def test_synonyms_of_classes():
    assert [task("sst2").class_named(name) for name in ("NEG", "pos")] == ["negative", "positive"]
    assert [task("qqp").class_named(name) for name in ("duplicates", "no-duplicate")] == ["duplicate", "not_duplicate"]
    assert task("mrpc").class_named("not paraphrase") == "not_equivalent"
    assert task("mnli").class_named("not_entailment") is None
