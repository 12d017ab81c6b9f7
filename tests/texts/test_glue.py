"""GLUE: its own file layouts, the hub's tables, errors that name file, line and column, and lossless writing."""

import json
from dataclasses import replace
from pathlib import Path

import pytest
from calls import run, told

from bertsecrets.errors import UserError
from bertsecrets.options import RunOptions
from bertsecrets.texts import glue
from bertsecrets.texts.glue import (
    FETCH_RECORD,
    Source,
    Split,
    as_fetched,
    from_hub_table,
    load_folder,
    other_content,
)
from bertsecrets.texts.glue_folder import as_tsv, write_tasks
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
        with pytest.raises(UserError, match=f"a limit of rows must be at least 1, not {limit}"):
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


# ---------------------------------------------------------------------- tasks written as a GLUE folder


def contents(folder: Path) -> dict[str, bytes]:
    return {str(path.relative_to(folder)): path.read_bytes() for path in folder.rglob("*") if path.is_file()}


@pytest.fixture
def own_glue(tmp_path) -> Path:
    """A GLUE folder with every task, two rows per split, and a file that belongs to no split."""
    for name in TASKS:
        for split in ("train", "dev"):
            write(tmp_path / "own", name, ROWS[name], split=split)
    (tmp_path / "own" / "RTE" / "test.tsv").write_text("index\n")
    return tmp_path / "own"


@pytest.mark.parametrize("name", TASKS)
def test_rows_of_the_hub_are_read_again_as_they_were(own_glue, tmp_path, name):
    split = load_folder(own_glue, task(name), "dev")
    file = tmp_path / "written" / task(name).folder / task(name).dev_file
    file.parent.mkdir(parents=True)
    file.write_text(as_tsv(split), encoding="utf-8", newline="")
    assert load_folder(tmp_path / "written", task(name), "dev").fingerprint == split.fingerprint


def test_files_are_copied_byte_for_byte_and_reproducibly(own_glue, tmp_path):
    source = Source(glue=own_glue, allow_unofficial=True)
    for name in ("one", "two", "two"):  # an earlier one is replaced
        write_tasks(source, [task("rte"), task("mnli")], tmp_path / name)
    files = contents(tmp_path / "one")
    assert files == contents(tmp_path / "two")
    assert set(files) == {"RTE/train.tsv", "RTE/dev.tsv", "MNLI/train.tsv", "MNLI/dev_matched.tsv", FETCH_RECORD}
    assert files["RTE/dev.tsv"] == (own_glue / "RTE" / "dev.tsv").read_bytes()


def test_a_folder_appears_whole_or_not_at_all(own_glue, tmp_path):
    source, output = Source(glue=own_glue, allow_unofficial=True), tmp_path / "output"
    write_tasks(source, [task("rte")], output)
    before = contents(output)
    write(own_glue, "rte", ["0\tOne.\tAn one.\tmaybe"])
    for folder in (output, tmp_path / "new"):
        with pytest.raises(UserError, match="unknown label 'maybe'"):
            write_tasks(source, [task("rte")], folder)
    assert contents(output) == before
    assert not (tmp_path / "new").exists()


def test_a_folder_with_other_files_is_left_alone(own_glue, tmp_path):
    (tmp_path / "mine").mkdir()
    (tmp_path / "mine" / "letter.txt").write_text("dear")
    with pytest.raises(UserError, match=r"contains other files \(letter.txt\)"):
        write_tasks(Source(glue=own_glue, allow_unofficial=True), [task("rte")], tmp_path / "mine")


def test_a_tab_inside_a_text_is_named_with_its_row(own_glue):
    split = replace(load_folder(own_glue, task("sst2"), "dev"), sentence1=["one", "one\ttwo"])
    with pytest.raises(UserError, match="row 2: a text contains a tab or line end, which cannot be written"):
        as_tsv(split)


def test_official_rows_of_the_hub_stay_official_until_they_are_altered(own_glue):
    """Only the digest of the hub's file is published, so `fetch` must record which rows are official."""
    split = load_folder(own_glue, task("rte"), "dev")
    assert "texts or labels differ" in other_content(split)
    record = {"rte": {"dev": {"official": True, "fingerprint": split.fingerprint}}}
    (own_glue / FETCH_RECORD).write_text(json.dumps(record))
    assert other_content(split, as_fetched(own_glue, split)) is None
    write(own_glue, "rte", [ROWS["rte"][0], ROWS["rte"][1].replace("Two", "Too")])
    altered = load_folder(own_glue, task("rte"), "dev")
    assert "texts or labels differ" in other_content(altered, as_fetched(own_glue, altered))
    record["rte"]["dev"]["official"] = False
    (own_glue / FETCH_RECORD).write_text(json.dumps(record))
    assert as_fetched(own_glue, split) is None


def test_the_hub_can_be_asked_for_where_a_folder_is_usual(own_glue, monkeypatch):
    monkeypatch.setenv("BERTSECRETS_GLUE", str(own_glue))
    assert RunOptions().source().glue == own_glue
    assert RunOptions(glue=[Path("hub")]).source().glue is None


# ---------------------------------------------------------------------- command line


def test_a_task_is_fetched_without_a_model(own_glue, tmp_path, capsys):
    arguments = ("fetch", "--task", "rte", "--glue", own_glue, "--output", tmp_path / "rte", "--model", "nobody/none")
    assert "it has 2 rows, but RTE's official train split has 2490" in told(capsys, *arguments)
    said = run(capsys, *arguments, "--allow-unofficial-data")
    assert "RTE dev: 2 rows (unofficial)" in said
    assert (tmp_path / "rte" / "RTE" / "dev.tsv").is_file()


def test_the_digests_of_a_model_change_with_its_weights_and_its_tokenizer_alone(own_bert, tmp_path, capsys):
    arguments = ("fetch", "--model", own_bert, "--digests", tmp_path / "model.json", "--glue", "hub")
    run(capsys, *arguments)
    before = json.loads((tmp_path / "model.json").read_text())["files"]
    assert {"model.safetensors", "config.json", "tokenizer.json"} <= set(before)
    for name in ("notes.txt", "model.safetensors", "tokenizer.json"):
        with (own_bert / name).open("a") as file:
            file.write(" ")
        run(capsys, *arguments)
        after = json.loads((tmp_path / "model.json").read_text())["files"]
        assert {path for path in after if after[path] != before[path]} == {name} - {"notes.txt"}
        before = after


def test_read_and_watched_paths_must_agree(own_glue, own_bert, tmp_path, capsys):
    data = ("fetch", "--task", "rte", "--output", tmp_path / "rte", "--allow-unofficial-data")
    model = ("fetch", "--digests", tmp_path / "model.json")
    pin = Path(__file__)
    for arguments in (
        (*data, "--glue", own_glue, "--watched", pin),
        (*data, "--glue", own_glue, "--watched", own_bert),
        (*data, "--glue", "hub", "--watched", own_glue),
        (*model, "--model", own_bert, "--watched", pin),
        (*model, "--model", "minilm", "--watched", own_bert),
    ):
        assert "use the same folder for both" in told(capsys, *arguments)
    run(capsys, *data, "--glue", own_glue, "--watched", own_glue.parent / "." / own_glue.name)
    run(capsys, *model, "--model", own_bert, "--watched", own_bert)


def test_options_of_fetch_that_do_not_go_together(tmp_path, capsys):
    assert "cannot be combined" in told(capsys, "fetch", "--output", tmp_path / "a", "--digests", tmp_path / "b")
    assert "--watched has no effect" in told(capsys, "fetch", "--watched", tmp_path)
