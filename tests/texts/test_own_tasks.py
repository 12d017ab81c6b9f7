"""Own tasks are read from tables and files, checked row by row, and identified by all that decides results."""

import pickle
import time

import datasets
import numpy as np
import pandas as pd
import pytest

import bertsecrets as bs
from bertsecrets.measures.base.ablation_measure import scored
from bertsecrets.texts.metrics import order_problem
from bertsecrets.texts.own_tasks import read_task_file
from bertsecrets.texts.tasks import GLUE_TASKS, TASKS
from bertsecrets.texts.tasks import task as task_named

ROWS = {
    "a": ["one text", "a second", "a third", "the last"],
    "b": ["x", "y", "z", "w"],
    "y": ["no", "yes", "no", "yes"],
}
FRAME = pd.DataFrame(ROWS)


def task(dev=FRAME, **given):
    return bs.Task(**{"name": "complaints", "dev": dev, "texts": ("a", "b"), "label": "y"} | given)


def test_every_kind_of_table_gives_the_same_rows(tmp_path):
    FRAME.to_csv(tmp_path / "rows.csv", index=False)
    FRAME.to_csv(tmp_path / "rows.tsv", index=False, sep="\t")
    tables = (FRAME, ROWS, datasets.Dataset.from_pandas(FRAME), tmp_path / "rows.csv", str(tmp_path / "rows.tsv"))
    made = [task(table, train=table) for table in tables]
    assert {str(each.fingerprints) for each in made} == {str(made[0].fingerprints)}
    dev = made[0].splits["dev"]
    assert (dev.sentence1, dev.sentence2, dev.labels) == (ROWS["a"], ROWS["b"], ROWS["y"])
    assert dev.targets() == [0, 1, 0, 1]
    assert repr(made[0]) == "<Task complaints: classes no, yes; 4 train and 4 dev rows>"


def test_quoted_fields_may_contain_delimiters_and_line_breaks(tmp_path):
    frame = FRAME.assign(a=['a "quoted", text', "two\nlines", "a\ttab", "plain"])
    for name, delimiter in (("rows.csv", ","), ("rows.tsv", "\t")):
        frame.to_csv(tmp_path / name, index=False, sep=delimiter)
        assert task(tmp_path / name).splits["dev"].sentence1 == list(frame["a"])


@pytest.mark.parametrize(
    ("column", "given", "labels", "targets"),
    [
        ([2, 10, 1, 2], {}, ("1", "2", "10"), [1, 2, 0, 1]),
        ([2.0, 1.0, 1.0, 2.0], {}, ("1", "2"), [1, 0, 0, 1]),
        (np.float32([2, 1, 1, 2]), {}, ("1", "2"), [1, 0, 0, 1]),
        ([True, False, True, True], {}, ("False", "True"), [1, 0, 1, 1]),
        (["b", "a", "c", "a"], {"labels": ["c", "b", "a"]}, ("c", "b", "a"), [1, 2, 0, 2]),
        ([0.5, 2, -1, 1e3], {"metric": "pearson"}, (), [0.5, 2, -1, 1e3]),
    ],
)
def test_labels_have_a_natural_order_unless_one_is_given(column, given, labels, targets):
    made = task(FRAME.assign(y=column), **given)
    assert (made.labels, made.splits["dev"].targets()) == (labels, targets)
    assert made.regression == (not labels)


def test_classes_of_a_dataset_keep_their_order():
    features = datasets.Features({"a": datasets.Value("string"), "y": datasets.ClassLabel(names=["yes", "no"])})
    rows = datasets.Dataset.from_dict({"a": ["x", "y", "z"], "y": [1, 0, -1]}, features=features)
    assert task(rows.select([0, 1]), texts="a").labels == ("yes", "no")
    with pytest.raises(bs.UserError, match="row 3: column 'y' has no value"):
        task(rows, texts="a")


@pytest.mark.parametrize(
    ("given", "message"),
    [
        # Tables
        ({"dev": 3}, "^task complaints, dev must be a DataFrame, a Dataset or the path of a CSV or TSV file, not 3"),
        ({"dev": FRAME.groupby("y")}, "^task complaints, dev must be a DataFrame, .* not a DataFrameGroupBy"),
        ({"dev": datasets.Dataset.from_pandas(FRAME).to_iterable_dataset().map(dict)}, "dev must be a DataFrame"),
        ({"dev": "rows.json"}, "^rows.json is neither CSV nor TSV"),
        # Columns
        ({"texts": "text"}, "^task complaints, dev must have one column 'text': its columns are"),
        ({"texts": ("a", "b", "y")}, "^task complaints has 3 text columns, but must have one or two"),
        ({"dev": pd.concat([FRAME, FRAME["a"]], axis=1)}, "must have one column 'a': its columns are"),
        ({"dev": FRAME[:0]}, "^task complaints, dev has no rows"),
        ({"dev": ROWS | {"b": ["x"]}}, "dev has no rows, or its columns differ in length: .*1"),
        ({"dev": ROWS | {"a": None}}, "^task complaints, dev: column 'a' must be a list of values, not None"),
        ({"dev": ROWS | {"y": np.array(5)}}, "^task complaints, dev: column 'y' must be a list of values"),
        ({"dev": ROWS | {"a": "wxyz"}}, "^task complaints, dev: column 'a' must be a list of values, not 'wxyz'"),
        ({"dev": ROWS | {"a": dict.fromkeys("wxyz")}}, "column 'a' must be a list of values, not a dict"),
        # Cells
        ({"dev": FRAME.assign(a=["x", None, "z", "w"])}, "^task complaints, dev, row 2: column 'a' has no value: add"),
        ({"dev": ROWS | {"a": ["x", "y", " \n", "w"]}}, "^task complaints, dev, row 3: column 'a' has no value"),
        ({"dev": ROWS | {"y": ["no", "NaN", "yes", "no"]}}, "row 2: column 'y' has no value"),
        ({"dev": FRAME.assign(b=["x", 3, "z", "w"])}, "^task complaints, dev, row 2: column 'b' must hold text, not 3"),
        ({"dev": ROWS | {"y": ["no", "\ud800"] * 2}}, r"dev, row 2: column 'y' must hold text, not '\\ud800'"),
        ({"dev": ROWS | {"y": [["a"], ["b"]] * 2}}, "row 1: column 'y' must hold text or numbers, not a list of 'a'"),
        ({"dev": ROWS | {"y": [True, 1, False, 0]}}, "row 2: column 'y' must hold true or false, not 1"),
        # Labels
        ({"train": FRAME[:1], "labels": ["no", "x"]}, "dev, row 2: unknown label 'yes': expected one of no, x"),
        ({"train": FRAME.assign(y=["no", "x"] * 2)}, "^task complaints, dev, row 2: unknown label 'yes'"),
        ({"metric": "pearson"}, "^task complaints, dev, row 1: unknown label 'no': expected a number"),
        (
            {"dev": ROWS | {"y": ["1", "\u0663", "3", "4"]}, "metric": "pearson"},
            "row 2: unknown label '\u0663'",
        ),
        ({"dev": FRAME.assign(y=[1, 0.5, 2, 1])}, "^task complaints: labels such as 0.5 are scores, which need"),
        (
            {"dev": FRAME.assign(y="no")},
            "^task complaints has the labels \\('no',\\), but needs two or more, each with only one",
        ),
        ({"dev": ROWS | {"y": ["yes", "yes ", "no", "no"]}}, "has the labels \\('no', 'yes', 'yes '\\), but needs two"),
        ({"dev": ROWS | {"y": ["yes", "Yes", "no", "no"]}}, "has the labels \\('Yes', 'no', 'yes'\\), but needs two"),
        *(
            ({"dev": ROWS | {"y": [*pair, *pair]}}, "has the labels .*, but needs two or more, each with only one")
            for pair in (("a b", "a\u00a0b"), ("caf\u00e9", "cafe\u0301"), ("yes", "y\u200bes"), ("1", "\uff11.0"))
        ),
        *(
            ({"dev": ROWS | {"y": [value, 1, 3, 4]}, "metric": "pearson"}, "row 1: unknown label .*: expected a number")
            for value in (2**1024 - 1, 10**5000, 1e200)
        ),
        ({"train": ROWS | {"y": ["1", "1.0", "0", "1"]}}, "has the labels .*, but needs two or more"),
        # Metrics
        ({"metric": "accurracy"}, "^task complaints: unknown metric 'accurracy': did you mean accuracy"),
        ({"dev": FRAME.assign(y=list("abca")), "metric": "f1"}, "has 3 classes, but the metric f1 needs two"),
        ({"train": FRAME, "dev": ROWS | {"y": ["yes"] * 4}}, "dev: every label is yes: add rows with other labels"),
        ({"train": ROWS | {"y": ["no"] * 4}, "labels": ["no", "yes"]}, "train: every label is no: add"),
        ({"dev": ROWS | {"y": [1, 1, 1, 1 + 1e-9]}, "metric": "pearson"}, "dev: every label is about 1.0: add"),
        # Names
        ({"name": 3}, "^name must be text, not 3"),
        (
            {"name": "my task"},
            "^'my task' cannot be the name of your own task: use at most 60 letters, digits, - and _",
        ),
        *(
            ({"name": name}, "cannot be the name of your own task")
            for name in ("RTE", "skip", "or", "1a", "x" * 61, "From_SEP")
        ),
    ],
)
def test_a_fault_is_one_line_that_names_its_row(given, message):
    with pytest.raises(bs.UserError, match=message) as error:
        task(**given)
    assert "\n" not in str(error.value)


@pytest.mark.parametrize(
    ("text", "message"),
    [
        ('a,b,y\n"x\ny",z,no\nx,y,\n', "line 4: column 'y' has no value"),
        ("a,b,y\nx,y,no,z\n", "line 2 has 4 instead of 3 fields"),
        ('a,b,y\nx,"y,no\n', "line 2: unexpected end of data: an open quotation mark or"),
        ("a,a,y\nx,y,no\n", "rows.csv: the first line must name the columns, and each"),
        ("", "rows.csv: the first line must name the columns"),
    ],
)
def test_a_fault_of_a_file_names_its_line(tmp_path, text, message):
    (tmp_path / "rows.csv").write_text(text)
    with pytest.raises(bs.UserError, match=message):
        task(tmp_path / "rows.csv")


def test_quotation_marks_that_swallow_rows_of_a_tsv_file_are_noticed(tmp_path):
    (tmp_path / "rows.tsv").write_text('a\tb\ty\n"It\tx\tno\nb\ty\tyes\nhe said"\tz\tno\nd\tw\tyes\n')
    with pytest.raises(bs.UserError, match="line 4: quotation marks merge 3 rows"):
        task(tmp_path / "rows.tsv")


def test_numbers_in_a_file_have_the_order_of_numbers(tmp_path):
    (tmp_path / "rows.csv").write_text("a,b,y\nx,y,10.0\nx,y,2.0\nx,y,1.0\n")
    assert task(tmp_path / "rows.csv").labels == ("1.0", "2.0", "10.0")


def test_the_task_file_can_be_named_by_text(tmp_path):
    FRAME.to_csv(tmp_path / "dev.csv", index=False)
    assert task("dev.csv", file=str(tmp_path / "task.yaml")) == task()


TASK_FILE = "name: complaints\ntrain: train.csv\ndev: dev.csv\ntexts: [a, b]\nlabel: y\nmetric: f1\nlabels: [no, yes]\n"


def test_a_task_file_gives_the_same_task(tmp_path):
    for name in ("train.csv", "dev.csv"):
        FRAME.to_csv(tmp_path / name, index=False)
    (tmp_path / "task.yaml").write_text(TASK_FILE)
    made = read_task_file(tmp_path / "task.yaml")
    assert made == task(train=FRAME, metric="f1", labels=["no", "yes"])


@pytest.mark.parametrize(
    ("text", "message"),
    [
        (TASK_FILE.replace("label:", "lable:"), "task.yaml: unknown field 'lable': did you mean label"),
        (TASK_FILE.replace("dev: dev.csv\n", ""), "task.yaml has no field dev: the fields name and dev"),
        (TASK_FILE.replace("dev.csv", "none.csv"), "cannot read .*none.csv"),
        (TASK_FILE.replace("[a, b]", "&a [*a]"), "task.yaml, line 4: .* found unconstructable recursive node"),
        ("name: [", "task.yaml, line 2: this is not valid YAML"),
        ("- name", "task.yaml has no field"),
        (TASK_FILE.replace("train.csv", "~"), "task.yaml: the field train is empty: give a value, or remove the field"),
        (TASK_FILE.replace("label: y", "label: [y]"), "task.yaml: label must be text, not a list of 'y'$"),
    ],
)
def test_a_fault_of_a_task_file_is_one_line(tmp_path, text, message):
    FRAME.to_csv(tmp_path / "train.csv", index=False)
    (tmp_path / "task.yaml").write_text(text)
    with pytest.raises(bs.UserError, match=message) as error:
        read_task_file(tmp_path / "task.yaml")
    assert "\n" not in str(error.value)


def test_labels_may_be_listed_as_numbers_or_as_text():
    numbers = FRAME.assign(y=[1, 0, 1, 0])
    assert task(dev=numbers, labels=[1, 0]) == task(dev=numbers, labels=["1", "0"])
    with pytest.raises(bs.UserError, match="^labels must be"):
        task(dev=numbers, labels=[1, None])


def test_the_identity_covers_rows_labels_and_metric():
    whole = task(train=FRAME)
    others = [
        task(train=FRAME, name="grumbles"),
        task(train=FRAME, metric="f1"),
        task(train=FRAME, labels=["yes", "no"]),
        task(train=FRAME[:3]),
        task(train=FRAME, dev=FRAME.assign(a=["one text ", *ROWS["a"][1:]])),
        task(train=FRAME, texts="a"),
    ]
    assert pickle.loads(pickle.dumps(whole)) == whole == task(train=FRAME)
    assert len({str(each.fingerprints) for each in (whole, *others)}) == len(others) + 1
    assert all(each != whole for each in others)


def test_names_of_classes_in_a_checkpoint_match_whatever_their_spelling():
    made = task(FRAME.assign(y=["Not upheld", "upheld", "1 star", "2 stars"]))
    spellings = {"NOT_UPHELD": "Not upheld", "upheld": "upheld", "1-Star": "1 star", "3 stars": None}
    assert {name: made.class_named(name) for name in spellings} == spellings
    assert task(FRAME.assign(y=["neg", "pos"] * 2)).class_named("Positive") == "pos"


def test_an_own_name_takes_precedence_over_a_spelling_of_a_glue_task(monkeypatch):
    assert task_named("sst").name == "sst2"
    monkeypatch.setitem(TASKS, "sst", task(name="SST"))
    assert task_named("sst").own


def test_glue_tasks_are_identified_by_their_names_alone():
    assert [each.identity for each in GLUE_TASKS] == [*TASKS][: len(GLUE_TASKS)]
    with pytest.raises(bs.UserError, match="^unknown task 'complaints': known: mrpc, .* .for a task of your own,"):
        TASKS["complaints"]


def test_many_rows_are_read_in_seconds():
    frame = pd.concat([FRAME] * 12_500)
    began = time.process_time()
    assert task(train=frame, dev=frame).train_rows == 50_000
    assert time.process_time() - began < 10


def test_the_order_of_many_classes_is_checked_at_once():
    many = task(pd.DataFrame({"a": ["x"] * 240, "b": ["y"] * 240, "y": [*range(12)] * 20}))
    target = np.array(many.splits["dev"].targets())
    assert order_problem(many, target, target) is None
    problem = order_problem(many, (target + 1) % 12, target)
    assert problem is not None
    expected = "worse than chance: 0.0 % of the predictions are right, but 100.0 % would be right if the classes 0, 1,"
    assert problem.startswith(expected)


def test_predictions_of_many_classes_are_stored_without_overflow():
    many = task(pd.DataFrame({"a": ["x"] * 150, "b": ["y"] * 150, "y": range(150)}))
    target = np.array(many.splits["dev"].targets())
    values, samples = scored(many, [target, target], target)
    assert values["baseline"] == 1
    assert samples["baseline_predicted"].tolist() == samples["predicted"][0].tolist() == target.tolist()
