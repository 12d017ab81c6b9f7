"""What changed between two runs: worst first, nothing else, and nothing in a file comes alive on the page."""

import json

import pytest
from calls import run, told
from hypothesis import given
from hypothesis import strategies as st
from markdown_it import MarkdownIt
from verdicts import beats, filed

from bertsecrets.formats import VerdictData, VerdictsFile
from bertsecrets.report.changes import MOST_ROWS, as_lines, as_markdown, changes, read_verdicts_file
from bertsecrets.report.markdown import code, prose, table
from bertsecrets.store.entries import write_json

COMMENT = 65_536  # characters that GitHub takes
HOSTILE = "@octocat #1 https://evil.example www.evil.example `x` | \\| <img src=x> [a](b) $x$ \u202e a@b.c\n\n# H"


def of(*verdicts: tuple, **facts) -> VerdictsFile:
    """A run of verdicts, each with changes to one that holds."""
    run = filed([beats("D2-rte", 80, 20)])
    own = [run.verdicts[0].model_copy(update={"id": name, **more}) for name, more in verdicts]
    return run.model_copy(update={"verdicts": own, **facts})


def value(observed, low, high):
    return {"observed": observed, "interval": (low, high)}


def test_equal_runs_changed_in_nothing():
    run = filed()
    found = changes(run, run)
    assert list(as_lines(found)) == ["nothing changed in 7 verdicts"]
    assert "nothing changed in 7 verdicts" in as_markdown(found)


def test_outcomes_come_worst_first():
    before = {"A": "deviates", "B": "reproduced", "C": "inconclusive", "D": "reproduced", "E": "reproduced"}
    after = {"A": "reproduced", "B": "inconclusive", "C": "deviates", "D": "deviates", "E": "reproduced"}
    old, new = (of(*((name, {"verdict": outcome}) for name, outcome in side.items())) for side in (before, after))
    found = changes(old, new)
    assert [pair[1].id for pair in found.outcomes] == ["D", "C", "B", "A"]
    assert found.headline == "4 outcomes changed (3 for the worse)"


def test_a_value_moved_only_if_each_lies_outside_the_others_interval():
    old = of(("A", value(1, 0, 2)), ("B", value(1, 0, 2)), ("C", value(1, 0, 2)), ("D", value(1, None, 2)))
    new = of(("A", value(5, 4, 6)), ("B", value(2.5, 0.5, 4)), ("C", value(1.5, 1, 2)), ("D", value(-9, -9, None)))
    assert [pair[0].id for pair in changes(old, new).moved] == ["A"]


def test_claims_that_appear_or_go_are_named():
    found = changes(of(("A", {}), ("B", {})), of(("B", {}), ("C", {})))
    assert ([one.id for one in found.appeared], [one.id for one in found.gone]) == (["C"], ["A"])
    assert found.headline == "1 claim appeared, 1 claim went"


def test_what_is_not_like_with_like_is_said():
    old = of(("A", {"models": ["m"]}), ("B", {}))
    settings = {**old.settings, "judge": {**old.settings["judge"], "resamples": 100}}
    new = of(
        ("A", {"seeds": [1, 2, 3], "limits": {"limit": 48}, "data": ["abc"], "published": 3.0}), ("B", {}),
        model="other", settings=settings, software={**old.software, "torch": "0.1"}, incomplete="it was interrupted",
    )  # fmt: skip
    unlike = {name: (was, now) for name, was, now in changes(old, new).unlike}
    assert unlike["model"] == ("m", "other")
    assert unlike["seeds of 1 claim"] == ("seed 1", "seeds 1 to 3")
    assert unlike["limits of 1 claim"] == ("all rows", "limit 48")
    assert unlike["data of 1 claim"] == ("none", "abc")
    assert unlike["published of 1 claim"][1] == "3"
    assert unlike["setting judge.resamples"][1] == "100"
    assert unlike["version of torch"][1] == "0.1"
    assert unlike["incomplete"] == ("no", "it was interrupted")
    assert "**Not like with like**" in as_markdown(changes(old, new))
    assert "not like with like:" in list(as_lines(changes(old, new)))


# ---------------------------------------------------------------------- nothing comes alive


def alive(markdown: str) -> list[str]:
    """What a page has besides text, code spans, tables, headings, bold words and folds."""
    harmless = ("paragraph", "inline", "heading", "table", "thead", "tbody", "tr", "th", "td", "text", "code_inline")
    harmless += ("strong", "softbreak")
    tokens = MarkdownIt("gfm-like", {"linkify": False}).parse(markdown)
    tokens += [inner for token in tokens for inner in token.children or ()]
    named = [token.type.removesuffix("_open").removesuffix("_close") for token in tokens]
    text = [token.content for token in tokens if token.type == "text"]
    return [name for name in named if name not in harmless] + [
        word for part in text for word in ("@", "#", "://", "www.", "<", "`", "|") if word in part
    ]


def hostile(words: str) -> VerdictsFile:
    """A run in which every text is the same."""
    texts = {
        name: words
        for name, field in VerdictData.model_fields.items()
        if field.annotation is str and name not in ("id", "verdict")
    }
    own = [(f"{words}{i}", {**texts, "verdict": "deviates", "models": [words], "data": [words]}) for i in range(99)]
    settings = {words: {words: words}, "judge": words}
    return of(*own, model=words, commit=words, made=words, settings=settings, software={words: words}, incomplete=words)


@pytest.mark.parametrize("words", [HOSTILE, "`", "``", "|", "\\", "\\|`", "", " ", "x" * 10_000, "<!--", "\0"])
def test_nothing_from_a_file_comes_alive_in_a_comment(words):
    old = hostile(words)
    worse = [one.model_copy(update={"verdict": "reproduced", "seeds": [7], "data": []}) for one in old.verdicts]
    for found in (
        changes(old.model_copy(update={"verdicts": worse, "model": "m", "settings": {}}), old),
        changes(of(), old),
        changes(old, of()),
    ):
        page = as_markdown(found)
        assert alive(page) == [], page
        assert len(page) < COMMENT
        assert all(line.isprintable() for line in as_lines(found))
    assert f"and {99 - MOST_ROWS} more" in page


@given(st.text(alphabet=st.sampled_from("`|\\@#<>[]()!*_~:/w.\n\t a&;$-"), max_size=30))
def test_words_stay_words(words):
    assert alive(table(("a", "b"), [(code(words), f"x {code(words)} y")])) == []
    assert [token for token in alive(f"so {prose(words)}") if len(token) > 4 and token != "www."] == []


# ---------------------------------------------------------------------- the command


def test_two_files_are_compared(capsys, tmp_path):
    write_json(tmp_path / "old.json", filed([beats("D2-rte", 80, 20)]).model_dump(mode="json"))
    worse = filed([beats("D2-rte", 20, 80)]).model_dump(mode="json")
    write_json(tmp_path / "new.json", {"benchmarks": [], "bertsecrets": {**worse, "format_version": "2.7", "later": 1}})
    out = run(capsys, "compare", tmp_path / "old.json", tmp_path / "new.json", "--markdown", tmp_path / "c.md")
    assert "D2-rte: reproduced, now deviates; 60.0 [" in out
    assert "| `D2-rte` | reproduced | **deviates** | `60.0 [" in (tmp_path / "c.md").read_text()


def test_a_file_of_version_1_is_read_with_the_outcomes_of_version_2(tmp_path):
    old = filed([beats("D2-rte", 20, 80), beats("D2-sst2", 20, 80), beats("D2-qnli", 80, 20)]).model_dump(mode="json")
    for one, outcome in zip(old["verdicts"], ("negligible", "not measured", "reproduced"), strict=True):
        one["verdict"] = outcome
        del one["error"]
    write_json(tmp_path / "old.json", {**old, "format_version": "1.1"})
    run_ = read_verdicts_file(tmp_path / "old.json")
    assert [one.verdict for one in run_.verdicts] == ["deviates", None, "reproduced"]
    assert [one.error for one in run_.verdicts] == [None, old["verdicts"][1]["reason"], None]


def test_what_is_no_file_of_verdicts_is_refused_in_one_line(capsys, tmp_path):
    good = filed([beats("D2-rte", 80, 20)]).model_dump(mode="json")
    write_json(tmp_path / "good.json", good)
    files = {
        "{": "is not valid JSON",
        "[]": "holds no verdicts",
        '{"verdicts": []}': "holds no verdicts",
        "[" * 100_000: "is not valid JSON",
        json.dumps(
            {**good, "format_version": "3.0"}
        ): "is in version 3.0 of the format, and this bertsecrets reads 2.0",
        json.dumps({**good, "format_version": None}): "is in version None of the format",
        json.dumps({**good, "verdicts": [{**good["verdicts"][0], "verdict": "passed"}]}): "verdicts.0.verdict: ",
        json.dumps({**good, "verdicts": good["verdicts"] * 2}): "has two verdicts on D2-rte",
        json.dumps({**good, "model": 7}): "model: ",
        " " * (17 * 2**20): "is larger than 16 MiB",
    }
    for text, said in files.items():
        (tmp_path / "bad.json").write_text(text)
        for pair in (("good.json", "bad.json"), ("bad.json", "good.json")):
            line = told(capsys, "compare", *(tmp_path / name for name in pair))
            assert said in line
    assert "No such file" in told(capsys, "compare", tmp_path / "none.json", tmp_path / "good.json")


def test_a_file_read_is_the_run_that_was_written(tmp_path):
    run = filed()
    write_json(tmp_path / "v.json", run.model_dump(mode="json"))
    assert read_verdicts_file(tmp_path / "v.json") == VerdictsFile.model_validate(run.model_dump(mode="json"))
