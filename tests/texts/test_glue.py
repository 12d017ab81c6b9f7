"""Reading GLUE: its own file layouts, the hub's tables, and errors that name the file, line and column."""

import socket
from dataclasses import replace

import pytest

from bertsecrets.errors import UserError
from bertsecrets.texts import glue
from bertsecrets.texts.glue import Source, Split, from_hub_table, load_folder, load_hub
from bertsecrets.texts.tasks import TASKS, task

# One file per task in GLUE's own layout, and the labels to be read from its rows.
HEADERS = {
    "mrpc": "Quality\t#1 ID\t#2 ID\t#1 String\t#2 String",
    "stsb": "index\tgenre\tfilename\tyear\told_index\tsource1\tsource2\tsentence1\tsentence2\tscore",
    "sst2": "sentence\tlabel",
    "qqp": "id\tqid1\tqid2\tquestion1\tquestion2\tis_duplicate",
    "rte": "index\tsentence1\tsentence2\tlabel",
    "qnli": "index\tquestion\tsentence\tlabel",
    "mnli": "index\tpromptID\tpairID\tgenre\tsentence1_binary_parse\tsentence2_binary_parse\tsentence1_parse"
    "\tsentence2_parse\tsentence1\tsentence2\tlabel1\tgold_label",
}
ROWS = {
    "mrpc": ["1\t12\t13\tOne .\tAn one .", "0\t14\t15\tTwo .\tThree ."],
    "stsb": ["0\tnews\tMSR\t2012\t0\tnone\tnone\tOne.\tAn one.\t5.000", "1\tn\tM\t2012\t1\tn\tn\tTwo.\tThree.\t0.4"],
    "sst2": ["one \t1", "two \t0"],
    "qqp": ["7\t1\t2\tOne?\tAn one?\t1", "8\t3\t4\tTwo?\tThree?\t0"],
    "rte": ["0\tOne.\tAn one.\tentailment", "1\tTwo.\tThree.\tnot_entailment"],
    "qnli": ["0\tOne?\tAn one.\tentailment", "1\tTwo?\tThree.\tnot_entailment"],
    "mnli": [
        "0\t1\t1n\tg\t(a)\t(b)\t(a)\t(b)\tOne.\tAn one.\tneutral\tentailment",
        "1\t1\t1n\tg\t(a)\t(b)\t(a)\t(b)\tTwo.\tThree.\tneutral\tcontradiction",
    ],
}
LABELS = {
    "mrpc": ["equivalent", "not_equivalent"],
    "stsb": [5.0, 0.4],
    "sst2": ["positive", "negative"],
    "qqp": ["duplicate", "not_duplicate"],
    "rte": ["entailment", "not_entailment"],
    "qnli": ["entailment", "not_entailment"],
    "mnli": ["entailment", "contradiction"],
}


def write(glue, name, rows, header=None, end="\n", split="dev", encoding="utf-8"):
    each = task(name)
    folder = glue / each.folder
    folder.mkdir(parents=True, exist_ok=True)
    file = folder / (each.dev_file if split == "dev" else "train.tsv")
    file.write_bytes((end.join([HEADERS[name] if header is None else header, *rows]) + end).encode(encoding))
    return file


@pytest.mark.parametrize("name", TASKS)
def test_glues_own_layout_is_read(tmp_path, name):
    write(tmp_path, name, ROWS[name], **({"end": "\r\n", "encoding": "utf-8-sig"} if name == "mrpc" else {}))
    split = load_folder(tmp_path, task(name), "dev")
    assert split.labels == LABELS[name]
    assert [text.strip(" .?").lower() for text in split.sentence1] == ["one", "two"]
    if name == "sst2":
        assert split.sentence2 is None
    else:
        assert [text.strip(" .?") for text in split.sentence2] == ["An one", "Three"]


def test_a_quotation_mark_is_text(tmp_path):
    write(tmp_path, "rte", ['0\t"One.\tAn "" one.\tentailment', '1\tTwo "\tThree.\tentailment'])
    split = load_folder(tmp_path, task("rte"), "dev")
    assert list(split.sentence1) == ['"One.', 'Two "']
    assert split.sentence2[0] == 'An "" one.'


def test_labels_become_class_numbers_in_the_tasks_order(tmp_path):
    for name, expected in {"rte": [0, 1], "mrpc": [1, 0], "mnli": [0, 2], "stsb": [5.0, 0.4]}.items():
        write(tmp_path, name, ROWS[name])
        assert load_folder(tmp_path, task(name), "dev").targets() == expected


def test_case_and_hyphens_of_a_task_and_its_folder_do_not_matter(tmp_path):
    write(tmp_path, "stsb", ROWS["stsb"]).parent.rename(tmp_path / "stsb")
    for spelling in ("STS-B", "sts-b", "sts_b", "STSB"):
        assert len(load_folder(tmp_path, task(spelling), "dev")) == 2


def test_qqp_rows_that_lack_fields_are_left_out(tmp_path):
    write(tmp_path, "qqp", [ROWS["qqp"][0], "9\t5\t6\tBroken", ROWS["qqp"][1]])
    assert load_folder(tmp_path, task("qqp"), "dev").labels == LABELS["qqp"]


@pytest.mark.parametrize(
    ("name", "rows", "header", "message"),
    [
        ("rte", ["0\tOne.\tAn one."], "index\tsentence1\tsentence2", "line 1: no column 'label'"),
        ("mnli", [ROWS["mnli"][0], ROWS["mnli"][1][:-13] + "-"], None, "line 3, column 'gold_label': unknown label"),
        ("stsb", [ROWS["stsb"][0][:-5] + "5.001"], None, "line 2, column 'score': '5.001' is not a score between 0"),
        ("stsb", [ROWS["stsb"][0][:-5] + "0_3"], None, "'0_3' is not a score"),  # valid for Python's float
        ("rte", [ROWS["rte"][0], "1\tTwo."], None, "line 3 has 2 fields, but the header has 4: the columns from"),
        ("rte", ["0\tOne.\tAn\tone.\tentailment"], None, "line 2 has 5 fields, but the header has 4: is there a tab"),
        ("rte", ["0\ta\tb\tc\td"], "index\tsentence1\tsentence2\tsentence1\tlabel", "two columns are called"),
        ("rte", [], None, "has no rows after its header"),
        ("rte", [], "", "is empty"),
    ],
)
def test_bad_files_are_named_with_line_and_column(tmp_path, name, rows, header, message):
    file = write(tmp_path, name, rows, header)
    with pytest.raises(UserError) as error:
        load_folder(tmp_path, task(name), "dev")
    assert str(error.value).startswith(str(file))
    assert message in str(error.value)
    assert "\n" not in str(error.value)


def test_a_missing_folder_or_file_is_named(tmp_path):
    with pytest.raises(UserError, match=r"no GLUE folder at .*none: give the folder that contains files such as RTE"):
        load_folder(tmp_path / "none", task("rte"), "dev")
    write(tmp_path, "rte", ROWS["rte"])
    with pytest.raises(UserError, match=r"no RTE/train\.tsv in .*: RTE needs this file"):
        load_folder(tmp_path, task("rte"), "train")
    assert "RTE/train.tsv" in Source(tmp_path).missing(task("rte"))
    write(tmp_path, "rte", ROWS["rte"], split="train")
    assert Source(tmp_path).missing(task("rte")) is None


def test_wrong_row_counts_are_refused_unless_allowed_and_then_marked(tmp_path):
    file = write(tmp_path, "rte", ROWS["rte"])
    with pytest.raises(UserError) as error:
        Source(tmp_path).split(task("rte"), "dev")
    assert str(error.value).startswith(f"{file}: it has 2 rows, but RTE's official dev split has 277")
    assert "allow_unofficial_data" in str(error.value)
    assert not Source(tmp_path, allow_unofficial=True).split(task("rte"), "dev").official


def test_a_split_is_official_with_the_counts_and_the_content_of_glues_own(tmp_path, monkeypatch):
    rows = ["0\ta\tb\tentailment"] * 146 + ["0\ta\tb\tnot_entailment"] * 131
    file = write(tmp_path, "rte", rows)
    made = load_folder(tmp_path, task("rte"), "dev")
    monkeypatch.setitem(glue.FINGERPRINTS, ("rte", "dev"), made.fingerprint)
    assert Source(tmp_path).split(task("rte"), "dev").official
    for changed, says in (
        (["0\ta\tb \tentailment", *rows[1:]], "its texts or labels differ from RTE's official dev split"),
        ([*rows[:-1], rows[0]], "it has 147 rows with the label entailment, but RTE's"),
    ):
        write(tmp_path, "rte", changed)
        with pytest.raises(UserError, match=f"^{file}: {says}.*allow_unofficial_data"):
            Source(tmp_path).split(task("rte"), "dev")
        assert not Source(tmp_path, allow_unofficial=True).split(task("rte"), "dev").official


def some_split(rows=5):
    texts = [f"s{i}" for i in range(rows)]
    return Split(task("rte"), "dev", texts, texts[::-1], ["entailment"] * rows, "here", True)


def test_head_takes_the_first_rows_in_file_order():
    head = some_split().head(2)
    assert (head.sentence1, head.sentence2, len(head.labels)) == (["s0", "s1"], ["s4", "s3"], 2)
    assert some_split().head(None) == some_split().head(5) == some_split().head(99) == some_split()
    for limit in (0, -3):
        with pytest.raises(UserError, match="the limit must be at least 1"):
            some_split().head(limit)


def test_a_fingerprint_follows_texts_labels_and_order_only():
    split = some_split()
    others = [
        split.head(4),
        replace(split, name="train"),
        replace(split, sentence2=split.sentence1),
        replace(split, labels=["not_entailment"] * 5),
        replace(split, sentence1=split.sentence2, sentence2=split.sentence1),
        replace(split.head(1), sentence1=["a\x1fb"], sentence2=["c"]),
        replace(split.head(1), sentence1=["a"], sentence2=["b\x1fc"]),
    ]
    assert len({split.fingerprint, *(other.fingerprint for other in others)}) == 8
    assert replace(split, origin="there", official=False).fingerprint == split.fingerprint


def hub_table(columns, names):
    import datasets

    label = datasets.ClassLabel(names=names) if names else datasets.Value("float32")
    text = {column: datasets.Value("string") for column in columns if column != "label"}
    return datasets.Dataset.from_dict(columns, features=datasets.Features({**text, "label": label}))


def test_the_hubs_labels_are_taken_by_name_whatever_their_order(tmp_path):
    columns = {"sentence1": ["One.", "Two."], "sentence2": ["An one.", "Three."], "label": [1, 0]}
    split = from_hub_table(task("rte"), "dev", hub_table(columns, ["not_entailment", "entailment"]))
    assert split.labels == ["entailment", "not_entailment"]
    assert split.targets() == [0, 1]
    write(tmp_path, "rte", ROWS["rte"])
    assert split.fingerprint == load_folder(tmp_path, task("rte"), "dev").fingerprint
    with pytest.raises(UserError, match=r"the labels of .* are .*, not "):
        from_hub_table(task("rte"), "dev", hub_table(columns, ["no", "yes"]))


def test_the_hub_has_its_own_column_names():
    columns = {"premise": ["One."], "hypothesis": ["An one."], "label": [0]}
    split = from_hub_table(task("mnli"), "dev", hub_table(columns, ["entailment", "neutral", "contradiction"]))
    assert (split.sentence1, split.sentence2, split.labels) == (["One."], ["An one."], ["entailment"])
    single = hub_table({"sentence": ["fine "], "label": [1]}, ["negative", "positive"])
    assert from_hub_table(task("sst2"), "dev", single).sentence2 is None


def test_the_hubs_scores_equal_the_files_though_stored_in_float32(tmp_path):
    columns = {"sentence1": ["One.", "Two."], "sentence2": ["An one.", "Three."], "label": [5.0, 0.4]}
    split = from_hub_table(task("stsb"), "dev", hub_table(columns, None))
    assert split.labels == [5.0, 0.4]
    write(tmp_path, "stsb", ROWS["stsb"])
    assert split.fingerprint == load_folder(tmp_path, task("stsb"), "dev").fingerprint


def test_offline_mode_makes_no_request(monkeypatch):
    def refuse(*_):
        raise AssertionError("the network was touched")

    monkeypatch.setattr(socket.socket, "connect", refuse)
    monkeypatch.setattr(socket, "getaddrinfo", refuse)
    with pytest.raises(UserError, match=r"is not cached, and offline mode .*a local GLUE folder"):
        load_hub(task("rte"), "dev", offline=True)


def test_a_second_folder_provides_only_missing_files(tmp_path):
    one, two = tmp_path / "one", tmp_path / "two"
    here = write(one, "rte", ROWS["rte"])
    write(two, "rte", ROWS["rte"][:1])
    there = write(two, "rte", ROWS["rte"][:1], split="train")
    source = Source(one, allow_unofficial=True, fallbacks=(two,))
    assert source.missing(task("rte")) is None
    assert source.split(task("rte"), "dev").origin == str(here)
    assert source.split(task("rte"), "train").origin == str(there)
    assert str(one) in source.missing(task("mrpc"))


def test_a_split_without_a_known_fingerprint_has_the_official_size(tmp_path, monkeypatch):
    def written(text: str, count: int = 3) -> None:
        write(tmp_path, "qqp", [f"{n}\t1\t2\t{text}\tb\t1" for n in range(count)])

    monkeypatch.setattr(glue, "official_problem", lambda split: None)
    monkeypatch.setitem(glue.TEXT_BYTES, ("qqp", "dev"), 3 * 10)
    written('say "é" ')
    assert Source(tmp_path).split(task("qqp"), "dev").official
    for changed in ('"say ""é"" "', "say &quot;é&quot; ", 'say "é"', 'say "e" '):
        written(changed)
        with pytest.raises(UserError, match="bytes, but the texts of QQP's official dev split have"):
            Source(tmp_path).split(task("qqp"), "dev")
        assert not Source(tmp_path, allow_unofficial=True).split(task("qqp"), "dev").official


def test_a_text_as_long_as_a_file_is_refused(tmp_path):
    file = write(tmp_path, "rte", [*ROWS["rte"], f"0\t{'a' * 100_001}\tb\tentailment"])
    with pytest.raises(UserError, match=f"^{file}, line 4: a text has more than 100000 characters"):
        Source(tmp_path, allow_unofficial=True).split(task("rte"), "dev")
