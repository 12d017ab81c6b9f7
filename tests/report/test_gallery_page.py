"""The gallery: claims by models on one page, each cell with its verdict and interval, and all pins."""

import json
import re

import pytest
import yaml
from calls import run, told
from verdicts import filed

from bertsecrets import settings
from bertsecrets.claims import record
from bertsecrets.report import gallery

PIN = {
    "format": 1, "model": "m", "reasons": [{"made": "2026-11-22T23:39:19Z", "reason": "the <first> of all"}],
    "weights": "ab" * 32, "tokenizer": "cd" * 32, "device": "CPU", "precision": "float32",
    "official_data": True, "commit": None, "software": {}, "measures": [{
        "measure": "special-tokens", "task": "rte", "initialisation": "pretrained", "seeds": [1, 2, 3], "examples": 277,
        "data": "0", "settings": {}, "quantities": {"cls": {
            "what": "attention to [CLS]", "unit": "attention",
            "mean": [[0.1, 0.3], [0.2, 0.2]], "std": [[0.01, 0.01], [0.01, None]],
        }},
    }],
}  # fmt: skip


@pytest.fixture
def expected(tmp_path):
    folder = tmp_path / "expected"
    (folder / "evidence").mkdir(parents=True)
    (folder / "variants").mkdir()
    (folder / "variants" / "m.yaml").write_text(yaml.safe_dump(PIN))
    for model in ("one/model", "other"):
        run = filed(model=model)
        (folder / "evidence" / f"verdicts-{model[-5:]}.json").write_text(run.model_dump_json())
    return folder


@pytest.fixture(autouse=True)
def _no_runs(request, monkeypatch):
    """No runs on record but those that a test gives, or asks for by `real_runs`."""
    if "real_runs" not in request.fixturenames:
        monkeypatch.setattr(gallery, "runs_on_record", tuple)


@pytest.fixture
def real_runs():
    """The runs that the project has on record."""


def row(page: str, name: str) -> str:
    """The row of a claim on RTE as text, without tags."""
    found = re.search(rf'<tr><th scope="row"><b>{name}</b>[^\n]*<td class="number">RTE</td>.*?</tr>', page, re.S)
    return " ".join(re.sub("<[^>]+>", " ", found[0]).split()) if found else ""


def test_each_cell_has_a_verdict_with_its_interval(expected):
    page = gallery.page(expected, confidence=0.95)
    verdict = next(one for one in filed().verdicts if one.id == "D2-rte")
    low, high = verdict.interval
    said = f"{verdict.verdict} {verdict.observed:.1f} [{low:.1f}, {high:.1f}] points"
    assert row(page, "D2").count(said) == 2
    assert 'title="one/model">model<' in page
    assert "&lt;b&gt;no&lt;/b&gt; rows" in page
    assert "not applicable" in row(page, "G7")


def test_a_claim_that_hangs_on_a_word_shows_every_reading(expected, monkeypatch):
    def runs(reading, *values):
        return record.Runs(claim="A2", task="rte", reading=reading, seeds=(1, 2), values=tuple((v,) for v in values))

    monkeypatch.setattr(
        gallery, "runs_on_record", lambda: (("third", runs("special", 55, 57)), ("third", runs("stripes", 12, 14)))
    )
    shown = row(gallery.page(expected, confidence=0.95), "A2")
    assert "special 56.0 [43.3, 68.7] percent stripes 13.0 [0.294, 25.7] percent" in shown


def test_the_page_needs_nothing_from_elsewhere(expected):
    page = gallery.page(expected, confidence=0.95)
    assert not re.search(r"(?:src|href|url)\s*[=(]|@import|<script", page)


def test_runs_on_record_fill_what_nobody_has_judged_and_give_no_verdict(expected, monkeypatch):
    runs = record.Runs(claim="C2", task="rte", seeds=(1, 2, 3), values=((50.0,), (52.0,), (54.0,)))
    monkeypatch.setattr(gallery, "runs_on_record", lambda: (("third", runs), ("other", runs)))
    page = gallery.page(expected, confidence=0.95)
    cells = row(page, "C2")
    assert cells.count("no verdict 52.0 [47.0, 57.0] percent 3 seeds") == 2
    assert "not judged" in cells
    judged = runs.model_copy(update={"claim": "D2"})
    monkeypatch.setattr(gallery, "runs_on_record", lambda: (("other", judged),))
    assert "no verdict" not in row(gallery.page(expected, confidence=0.95), "D2")


def test_the_newest_verdict_on_a_case_stays(expected, tmp_path):
    newer = filed(model="other").model_copy(update={"made": "2999-01-01T00:00:00Z"})
    verdicts = [one.model_copy(update={"verdict": "deviates"}) for one in newer.verdicts if one.id == "D2-rte"]
    file = tmp_path / "newer.json"
    file.write_text(newer.model_copy(update={"verdicts": verdicts}).model_dump_json())
    before, after = (row(gallery.page(expected, more, confidence=0.95), "D2") for more in ([], [file]))
    assert after.count("deviates") == before.count("deviates") + 1


def test_pins_are_shown_with_their_reason_and_the_spread_of_seeds(expected):
    page = gallery.page(expected, confidence=0.95)
    assert "0.2 ± 0.01 attention" in page
    assert "2026-11-22: the &lt;first&gt; of all" in page


def test_the_command_writes_the_runs_on_record_of_the_project(capsys, real_runs, tmp_path):
    assert "gallery: " in run(capsys, "gallery", "--output", tmp_path / "g.html")
    page = (tmp_path / "g.html").read_text()
    assert "minilm" in page
    assert "reproduced 100.0 [" in row(page, "C2")
    assert "no verdict" not in row(page, "C2")  # what is on record by seed alone gives way to a verdict


def test_what_is_no_file_of_verdicts_or_no_pin_is_one_line(capsys, tmp_path, expected, monkeypatch):
    (tmp_path / "v.json").write_text(json.dumps({"a": 1}))
    assert "holds no verdicts" in told(capsys, "gallery", tmp_path / "v.json", "--output", tmp_path / "g.html")
    (expected / "variants" / "m.yaml").write_text("model: m")
    usual = settings.project_path
    monkeypatch.setattr(settings, "project_path", lambda name: expected if name == "expected" else usual(name))
    assert "m.yaml is not a pin (reasons" in told(capsys, "gallery", "--output", tmp_path / "g.html")
    assert not (tmp_path / "g.html").exists()
