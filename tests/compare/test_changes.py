"""Changes between two runs' verdicts: the most harmful come first, and no text from a file is active in a comment."""

import json
import math

import pytest
from calls import run, told
from hypothesis import given
from hypothesis import strategies as st
from markdown_it import MarkdownIt
from verdicts import beats, filed

from bertsecrets.compare.changes import Changes, read_verdicts_file
from bertsecrets.formats import VerdictData, VerdictsFile
from bertsecrets.report.findings import change_findings
from bertsecrets.report.markdown import code, prose
from bertsecrets.report.tables import table
from bertsecrets.store.entries import write_json

COMMENT = 65_536  # maximum length of a GitHub comment, in characters
HOSTILE = "@octocat #1 https://evil.example www.evil.example `x` | \\| <img src=x> [a](b) $x$ \u202e a@b.c\n\n# H"


def of(*verdicts: tuple, **facts) -> VerdictsFile:
    """Return a verdicts file with modified copies of a reproduced verdict.

    Args:
        verdicts: Id and changed fields of each verdict.
        facts: Changed fields of the file.
    """
    run = filed([beats("D2-rte", 80, 20)])
    own = [run.verdicts[0].model_copy(update={"id": name, **more}) for name, more in verdicts]
    return run.model_copy(update={"verdicts": own, **facts})


def kinds(old: VerdictsFile, new: VerdictsFile) -> dict[str, str]:
    return {(change.before or change.after).id: change.kind for change in Changes(old, new).verdicts}


def test_equal_runs_have_no_change():
    findings = change_findings(Changes(filed(), filed()))
    assert (findings.title, findings.tables) == ("K19 claims: no change in 8 verdicts", [])


def test_changes_are_listed_with_the_most_harmful_first():
    before = {"A": "deviates", "B": "reproduced", "C": "inconclusive", "D": "reproduced", "E": "reproduced"}
    after = {"A": "reproduced", "B": "inconclusive", "C": "deviates", "D": "deviates", "E": "reproduced"}
    old, new = (of(*((name, {"verdict": outcome}) for name, outcome in side.items())) for side in (before, after))
    findings = change_findings(Changes(old, new))
    assert [row[:4] for row in findings.tables[0].rows] == [
        ["worse", "D", "reproduced", "deviates"],
        ["worse", "C", "inconclusive", "deviates"],
        ["weaker", "B", "reproduced", "inconclusive"],
        ["better", "A", "deviates", "reproduced"],
    ]
    assert findings.title == "K19 claims: 2 worse, 1 weaker, 1 better"


@pytest.mark.parametrize(
    ("old", "new", "kind"),
    [
        ((1, 0, 2), (5, 4, 6), "moved"),
        ((1, 0, 2), (2.5, 0.5, 4), "same"),
        ((1, None, 2), (-9, -9, None), "same"),
        ((0, -50, 1), (9, 8, 60), "moved"),
        ((0, -1, 50), (9, -40, 10), "same"),
        ((9, -40, 10), (20, 19, 21), "moved"),  # it rose, so the lower end is irrelevant
        ((0, -3, 3), (4.9, 0.9, 9), "same"),  # hypot(3, 4) is 5
        ((0, -3, 3), (5.1, 1.1, 9), "moved"),
    ],
)
def test_a_value_moves_if_it_changes_beyond_the_ends_that_face_each_other(old, new, kind):
    sides = (of(("A", {"observed": observed, "interval": (low, high)})) for observed, low, high in (old, new))
    assert kinds(*sides) == {"A": kind}


def test_claims_of_one_run_only_are_new_or_gone():
    old, new = of(("A", {}), ("B", {})), of(("B", {}), ("C", {}))
    assert kinds(old, new) == {"A": "gone", "B": "same", "C": "new"}


def test_different_conditions_of_the_runs_are_listed():
    old = of(("A", {"models": ["m"]}), ("B", {}))
    settings = {**old.settings, "judge": {**old.settings["judge"], "resamples": 100}}
    new = of(
        ("A", {"seeds": [1, 2, 3], "limits": {"limit": 48}, "data": ["abc"], "published": 3.0}), ("B", {}),
        model="other", settings=settings, software={**old.software, "torch": "0.1"}, incomplete="it was interrupted",
    )  # fmt: skip
    changes = Changes(old, new)
    listed = {fact.name: (fact.before, fact.after) for fact in changes.different_conditions}
    assert listed["model"] == ("m", "other")
    assert listed["seeds of 1 claim"] == ("1", "1, 2, 3")
    assert listed["limits of 1 claim"] == ("all rows", "limit 48")
    assert listed["data of 1 claim"] == ("none", "abc")
    assert listed["published figure of 1 claim"][1] == "3"
    assert listed["setting judge.resamples"][1] == "100"
    assert listed["version of torch"][1] == "0.1"
    assert listed["incomplete"] == ("no", "it was interrupted")
    assert [row[0] for row in change_findings(changes).tables[-1].rows] == list(listed)


# ---------------------------------------------------------------------- a comment


def alive(markdown: str) -> list[str]:
    """Return what may be active in Markdown: tokens other than harmless ones, and special strings in plain text.

    Harmless are text, code spans, tables, headings, bold words and lists.
    """
    harmless = ("paragraph", "inline", "heading", "table", "thead", "tbody", "tr", "th", "td", "text", "code_inline")
    harmless += ("strong", "softbreak", "bullet_list", "list_item")
    tokens = MarkdownIt("gfm-like", {"linkify": False}).parse(markdown)
    tokens += [inner for token in tokens for inner in token.children or ()]
    named = [token.type.removesuffix("_open").removesuffix("_close") for token in tokens]
    text = [token.content for token in tokens if token.type == "text"]
    return [name for name in named if name not in harmless] + [
        word for part in text for word in ("@", "#", "://", "www.", "<", "`", "|") if word in part
    ]


def hostile(words: str) -> VerdictsFile:
    texts = {
        name: words
        for name, field in VerdictData.model_fields.items()
        if field.annotation is str and name not in ("id", "verdict")
    }
    own = [(f"{words}{i}", {**texts, "verdict": "deviates", "models": [words], "data": [words]}) for i in range(99)]
    settings = {words: {words: words}, "judge": words}
    return of(*own, model=words, commit=words, made=words, settings=settings, software={words: words}, incomplete=words)


@pytest.mark.parametrize("words", [HOSTILE, "``", "\\|`", "", " ", "x" * 10_000, "<!--", "\0"])
def test_nothing_in_a_file_is_active_in_a_comment(words):
    old = hostile(words)
    worse = [verdict.model_copy(update={"verdict": "reproduced", "seeds": [7], "data": []}) for verdict in old.verdicts]
    for changes in (
        Changes(old.model_copy(update={"verdicts": worse, "model": "m", "settings": {}}), old),
        Changes(of(), old),
        Changes(old, of()),
    ):
        page = change_findings(changes).markdown()
        assert alive(page) == [], page
        assert len(page) < COMMENT
        assert all(line.isprintable() for line in change_findings(changes).text().splitlines())


@given(st.text(alphabet=st.sampled_from("`|\\@#<>[]()!*_~:/w.\n\t a&;$-"), max_size=30))
def test_escaped_text_is_never_markup(words):
    assert alive(table(("a", "b"), [(code(words), f"x {code(words)} y")])) == []
    assert [token for token in alive(f"so {prose(words)}") if len(token) > 4 and token != "www."] == []


# ---------------------------------------------------------------------- the command


def test_two_files_of_verdicts_are_compared(capsys, tmp_path):
    old, new, page, comment = (str(tmp_path / name) for name in ("old.json", "new.json", "c.html", "c.md"))
    write_json(tmp_path / "old.json", filed([beats("D2-rte", 80, 20)]).model_dump(mode="json"))
    worse = filed([beats("D2-rte", 20, 80)]).model_dump(mode="json")
    version = f"{worse['format_version'].partition('.')[0]}.7"
    write_json(tmp_path / "new.json", {"bertsecrets": {**worse, "format_version": version, "later": 1}})
    out = run(capsys, "compare", old, new, "--markdown", comment, "--html", page)
    assert out.startswith("K19 claims: 1 worse\n")
    assert "worse   D2-rte  reproduced  deviates: opposite  30.0 [" in out
    assert "| `worse` | `D2-rte` | `reproduced` | `deviates: opposite` | `30.0 [" in (tmp_path / "c.md").read_text()
    assert "| `On every task, the fine-tuned model scores higher" in (tmp_path / "c.md").read_text()
    assert "On every task" not in out  # a terminal is too narrow
    assert "30.0 [" in (tmp_path / "c.html").read_text()


def test_figures_that_version_2_called_reproduced_are_compatible(tmp_path):
    """Its figures have `p_against`, but no `p_for`; claims about existence have only `p_for`."""
    rates = {"figure": (0.4, None), "order": (1.0, 0.001), "existence": (None, 0.001), "few": (None, None)}
    run = filed([beats("D2-rte", 80, 20)]).model_dump(mode="json")
    verdicts = [
        {**run["verdicts"][0], "id": name, "p_against": against, "p_for": in_favour}
        for name, (against, in_favour) in rates.items()
    ]
    write_json(tmp_path / "old.json", {**run, "format_version": "2.1", "verdicts": verdicts})
    read = read_verdicts_file(tmp_path / "old.json")
    assert read.format_version == "3.0"
    for verdict in read.verdicts:
        expected = "compatible" if verdict.id == "figure" else "reproduced"
        assert verdict.verdict == expected


@pytest.mark.parametrize("damage", [{"verdicts": 1}, {"verdicts": ["x"]}, {"format_version": 2}])
def test_damaged_files_of_version_2_are_refused_in_one_line(capsys, tmp_path, damage):
    run = filed([beats("D2-rte", 80, 20)]).model_dump(mode="json")
    write_json(tmp_path / "old.json", {**run, "format_version": "2.1", **damage})
    assert "old.json" in told(capsys, "compare", tmp_path / "old.json", tmp_path / "old.json")


@pytest.mark.parametrize("rows", [{"limits": {"limit": 48}}, {"data": ["abc"]}])
def test_runs_on_different_rows_are_refused(capsys, tmp_path, rows):
    for name, facts in (("old.json", {}), ("new.json", rows)):
        verdicts = of(("D2-rte", {"data": ["123"], "verdict": "deviates", **facts}))
        write_json(tmp_path / name, verdicts.model_dump(mode="json"))
    old, new = tmp_path / "old.json", tmp_path / "new.json"
    line = told(capsys, "compare", old, new)
    assert f"{old} and {new} were measured on different rows ({next(iter(rows))} of D2-rte: " in line


def test_a_worse_verdict_fails_on_request(capsys, tmp_path):
    for name, right in (("good.json", 80), ("bad.json", 20)):
        write_json(tmp_path / name, filed([beats("D2-rte", right, 100 - right)]).model_dump(mode="json"))
    good, bad = tmp_path / "good.json", tmp_path / "bad.json"
    run(capsys, "compare", good, bad, "--fail-on", "worse", code=1)
    run(capsys, "compare", bad, good, "--fail-on", "worse", code=0)
    error = of(("D2-rte", {"verdict": None, "reason": "no space left"})).model_dump(mode="json")
    write_json(tmp_path / "error.json", error)
    line = told(capsys, "compare", good, tmp_path / "error.json", "--fail-on", "worse")
    assert "error.json: D2-rte ended in an error (no space left): judge this claim again" in line
    assert "--fail-on applies only to files of verdicts" in told(capsys, "compare", "m", "n", "--fail-on", "worse")


def test_other_files_are_refused_in_one_line(capsys, tmp_path):
    good = filed([beats("D2-rte", 80, 20)]).model_dump(mode="json")
    write_json(tmp_path / "good.json", good)
    files = {
        "{": "is not valid JSON",
        "[]": "has no verdicts",
        json.dumps(
            {**good, "format_version": "1.0"}
        ): "uses version 1.0 of the format, but this version of bertsecrets reads only versions 2 and 3",
        json.dumps({**good, "verdicts": [{**good["verdicts"][0], "verdict": "passed"}]}): "verdicts.0.verdict: ",
        json.dumps({**good, "verdicts": good["verdicts"] * 2}): "contains two verdicts for D2-rte",
        json.dumps({**good, "verdicts": [{**good["verdicts"][0], "observed": math.inf}]}): "contains NaN or",
        " " * (17 * 2**20): "is larger than 16 MiB",
    }
    for text, said in files.items():
        (tmp_path / "bad.json").write_text(text)
        for pair in (("good.json", "bad.json"), ("bad.json", "good.json")):
            line = told(capsys, "compare", *(tmp_path / name for name in pair))
            assert said in line
    assert "No such file" in told(capsys, "compare", tmp_path / "none.json", tmp_path / "good.json")
