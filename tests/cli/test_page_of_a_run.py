"""The page that `report` writes shows attention of a few examples, unless it should not or cannot."""

import shutil

import pytest

from bertsecrets.cli.main import main
from bertsecrets.models.retention import drop_weights

pytestmark = pytest.mark.usefixtures("quick")


@pytest.fixture
def page(shared, tmp_path):
    def make(*more: str) -> str:
        file = tmp_path / "page.html"
        assert main(["report", "--task", "rte", "--claim", "C1", *shared, "--html", str(file), *more]) in (0, 1)
        return file.read_text()

    return make


@pytest.mark.slow
def test_a_page_shows_as_many_examples_as_are_asked_for(page):
    assert [page("--examples", n).count('<option value="0 ') for n in ("0", "2")] == [0, 2]
    assert page().count('<option value="0 ') == 3
    assert 'id="maps"' not in page("--examples", "0")


def test_more_examples_than_are_kept_are_refused(shared, capsys):
    with pytest.raises(SystemExit) as ended:
        main(["report", *shared, "--html", "x.html", "--examples", "7"])
    assert ended.value.code == 2
    assert "argument --examples: 7 is out of range: give 0 to 6" in capsys.readouterr().err


def test_nothing_is_trained_again_for_a_page(page, runs, tmp_path, monkeypatch):
    assert 'id="maps"' in page()
    drop_weights((runs / "checkpoints").glob("[!.]*-pretrained-*"))
    assert 'id="maps"' in page()  # from the store
    for folder in (runs / "measurements").glob("example-maps-*"):
        shutil.rmtree(folder)
    monkeypatch.setattr("bertsecrets.models.training.finetune.finetune", None)
    shown = page()
    assert 'id="maps"' not in shown
    assert "its weights were not kept" in shown


def test_a_page_of_saved_measurements_shows_the_maps_that_were_saved(shared, tmp_path, capsys):
    model = shared[shared.index("--model") + 1]
    for measure in ("attention-change", "example-maps"):
        assert main(["measure", measure, "--task", "rte", *shared, "--save", str(tmp_path / "kept")]) == 0
    words = ["report", "--measurements", str(tmp_path / "kept"), "--model", model, "--claim", "C1"]
    assert main([*words, "--html", str(tmp_path / "page.html")]) in (0, 1)
    assert 'id="maps"' in (tmp_path / "page.html").read_text()
