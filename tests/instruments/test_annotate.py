"""The annotation page: one file that contains the maps of a set and exports its `annotations.tsv`."""

import base64
import json
import re
import shutil
from pathlib import Path

import numpy as np
import pytest
import scipy.stats
import torch
from calls import told
from patterned import pattern_set, relabelled, save_read

from bertsecrets.errors import UserError
from bertsecrets.patterns.classes import CLASSES
from bertsecrets.patterns.classifier import SHIPPED_FOLDER, PatternClassifier
from bertsecrets.patterns.readings import READINGS
from instruments.__main__ import main
from instruments.annotation.map_set import ANNOTATIONS, PLAIN_WORDS, MapSet
from instruments.annotation.page import GUIDELINES, write_page
from instruments.annotation.pictures import colours, separators, shades
from instruments.annotation.writing import save_set
from instruments.classifiers.crossval import LabelledMaps

PIXEL = "([x, y]) => [...document.getElementById('map').getContext('2d').getImageData(x, y, 1, 1).data].slice(0, 3)"


def data_of(page: Path) -> dict:
    (data,) = re.findall('<script type="application/json" id="data">(.*?)</script>', page.read_text(), re.S)
    return json.loads(data)


def written(maps: MapSet, folder: Path, **how) -> dict:
    write_page(maps, folder / "page.html", **how)
    return data_of(folder / "page.html")


def test_the_page_contains_every_map_once_in_shuffled_order_and_loads_nothing(tmp_path):
    maps = pattern_set(10, labelled=False)
    data = written(maps, tmp_path)
    assert sorted(data["order"]) == list(range(10))
    assert data["order"] != list(range(10))
    for place, shown in zip(data["order"], data["maps"], strict=True):
        each = maps.maps[place]
        cells = np.frombuffer(base64.b64decode(shown["shades"]), dtype=np.uint8).reshape(each.tokens, each.tokens)
        np.testing.assert_array_equal(cells, shades(each.values))
        assert shown["separators"] == list(separators(each))
        assert sum(shown["shares"]) == pytest.approx(1, abs=0.01)
    assert [kind["name"] for kind in data["classes"]] == list(CLASSES) == list(GUIDELINES)
    page = (tmp_path / "page.html").read_text()
    assert not re.search(r"https?://|fetch\(|<link[^>]+href=\"(?!data:)", page)


def test_a_map_name_cannot_end_the_script(tmp_path):
    maps = pattern_set(1)
    object.__setattr__(maps.maps[0], "task", "</script><b>")
    assert written(maps, tmp_path)["rows"][0][2] == "</script><b>"


def test_second_annotators_label_a_subset_that_grows(tmp_path):
    small, large = (written(pattern_set(), tmp_path, second=count) for count in (5, 8))
    assert large["order"][:5] == small["order"]
    assert (small["column"], small["blind"], len(small["maps"])) == (10, True, 5)
    for count in (0, 11):
        with pytest.raises(UserError, match=f"--second {count} of 10 maps: give 1 to 10"):
            written(pattern_set(), tmp_path, second=count)


def test_a_restart_drops_the_labels_of_this_annotator_only(tmp_path):
    maps = relabelled(pattern_set(), {"tiny_3": "block"}, second=True)
    rows = written(maps, tmp_path, second=10, restart=True)["rows"]
    assert {row[10] for row in rows} == {""}
    assert [row[9] for row in rows] == list(maps.labels)


def test_the_command_draws_a_set_and_refuses_invalid_options(tiny_bert, tiny_glue, tmp_path, capsys):
    store = ["--glue", str(tiny_glue), "--store", str(tmp_path / "store"), "--allow-unofficial-data", "--offline"]
    draw = ["--model", str(tiny_bert), "--task", "rte", "--per-task", "0", "--pretrained-per-task", "7", *store]
    folder, page = tmp_path / "set", tmp_path / "page.html"
    assert main(["annotate", str(folder), *draw, "--html", str(page), "--annotator", "Anna"]) == 0
    assert f"{folder}: 7 maps: 7 unlabelled" in capsys.readouterr().out
    assert len(MapSet.load(folder)) == len(data_of(page)["maps"]) == 7
    for arguments, message in [
        ([str(folder), *draw], "already contains a set"),
        ([str(tmp_path / "absent")], "no set of maps in"),
        ([str(tmp_path)], "no maps in"),
        ([str(tmp_path), *draw], "contains other files"),
        ([str(folder / ANNOTATIONS), *draw], "a file exists where a folder is needed"),
        ([str(tmp_path / "new"), *draw[:4], "--per-task", "-1"], "must be 0 or more"),
        ([str(folder), "--html", str(page), "--second", "9"], "--second 9 of 7 maps"),
        ([str(folder), "--restart"], "are for the page"),
        ([str(folder), "--html", str(folder / ANNOTATIONS)], "which is an input of this run"),
    ]:
        assert message in told(capsys, "instruments", "annotate", *arguments)
    assert main(["sheets", str(folder), str(tmp_path / "sheets"), "--count", "5"]) == 0
    assert len((tmp_path / "sheets" / "index.tsv").read_text().splitlines()) == 6


def test_sheets_show_the_unlabelled_maps_that_are_hardest_to_classify(tmp_path, capsys):
    maps = pattern_set(30)
    save_read(maps.take(range(20)), tmp_path / "read")
    save_set(maps, tmp_path / "set")
    shutil.copy(tmp_path / "read" / PLAIN_WORDS, tmp_path / "set")
    assert main(["sheets", str(tmp_path / "set"), str(tmp_path / "sheets"), "--unsure", "4"]) == 0
    _, *rows = (tmp_path / "sheets" / "index.tsv").read_text().splitlines()
    shown = {row.split("\t")[2] for row in rows}
    unread = maps.take(range(20, 30))
    table = torch.from_numpy(LabelledMaps.of(unread).table)
    classifiers = [PatternClassifier.load(SHIPPED_FOLDER, reading) for reading in READINGS]
    doubts = [scipy.stats.entropy(classifier.of_features(table).numpy(), axis=1) for classifier in classifiers]
    hardest = np.argsort(-np.mean(doubts, axis=0))[:4]
    assert shown == {unread.maps[place].name for place in hardest}
    line = told(capsys, "instruments", "sheets", tmp_path / "set", tmp_path / "more", "--unsure", 11)
    assert "give 1 to 10, the number of maps without readers' labels" in line


# ---------------------------------------------------------------------- in a browser


@pytest.fixture
def visit(browser, tmp_path):
    """Return a function that opens a set's page; fail if the page has an error or requests anything else."""
    pages, problems = [], []

    def start(maps: MapSet, **how):
        write_page(maps, tmp_path / "page.html", **how)
        address = (tmp_path / "page.html").as_uri()
        page = browser.new_page(viewport={"width": 1280, "height": 820})
        page.on("pageerror", lambda error: problems.append(str(error)))
        page.on(
            "request",
            lambda asked: None if asked.url.startswith((address, "data:", "blob:")) else problems.append(asked.url),
        )
        page.goto(address)
        pages.append(page)
        return page

    yield start
    for page in pages:
        page.close()
    assert problems == []


def says(page, where: str, part: str = "#where") -> None:
    """Wait until an element of the page shows a text."""
    from playwright.sync_api import expect  # an optional package, checked by the fixture `browser`

    expect(page.locator(part)).to_have_text(where)


def press(page, key: str, where: str) -> None:
    """Press a key and wait until the page shows the given position."""
    page.keyboard.press(key)
    says(page, where)


def downloaded(page, folder: Path) -> MapSet:
    """Replace a set's annotations with those downloaded from the page, and return the set."""
    with page.expect_download() as download:
        page.keyboard.press("d")
    download.value.save_as(folder / ANNOTATIONS)
    return MapSet.load(folder)


@pytest.mark.slow
def test_keys_label_undo_and_navigate_and_labels_survive_a_reload(visit, tmp_path):
    maps = pattern_set(labelled=False)
    save_set(maps, tmp_path / "set")
    page = visit(maps, annotator="Anna")
    order = data_of(tmp_path / "page.html")["order"]
    says(page, "map 1 of 10, 0 labelled")
    press(page, "4", "map 2 of 10, 1 labelled")
    press(page, "1", "map 3 of 10, 2 labelled")
    press(page, "u", "map 2 of 10, 1 labelled")
    press(page, "ArrowLeft", "map 1 of 10, 1 labelled")
    says(page, "block", "button.chosen span")
    press(page, "5", "map 2 of 10, 1 labelled")
    press(page, "ArrowRight", "map 3 of 10, 1 labelled")
    page.locator("button[data-label=diagonal]").click()
    says(page, "map 4 of 10, 2 labelled")
    press(page, "n", "map 2 of 10, 2 labelled")
    press(page, "7", "map 2 of 10, 2 labelled")
    press(page, "Control+1", "map 2 of 10, 2 labelled")
    page.reload()
    says(page, "map 2 of 10, 2 labelled")
    labelled = downloaded(page, tmp_path / "set")
    assert [labelled.labels[i] for i in order] == ["heterogeneous", None, "diagonal", *[None] * 7]
    assert [each.name for each in labelled] == [each.name for each in maps]


@pytest.mark.slow
def test_the_canvas_shows_the_cells_of_the_map(visit, tmp_path):
    maps = pattern_set()
    page = visit(maps, restart=True)
    each = maps.maps[data_of(tmp_path / "page.html")["order"][0]]
    cells, size = colours(each.values), 560 / each.tokens
    for row, column in ((0, 0), (3, 5), (each.tokens - 1, 2), (6, each.tokens - 1)):
        seen = page.evaluate(PIXEL, [int(40 + (column + 0.5) * size), int(30 + (row + 0.5) * size)])
        np.testing.assert_array_equal(seen, cells[row, column])
    assert page.evaluate(PIXEL, [int(40 + 0.5 * size), 22]) == [0x1F, 0x6F, 0xD6]  # the tick above [CLS]
    last = separators(each)[-1]
    assert page.evaluate(PIXEL, [int(40 + (last + 0.5) * size), 22]) == [0xD6, 0x27, 0x28]


@pytest.mark.slow
def test_the_second_annotator_is_blind_and_the_first_labels_stay(visit, tmp_path, capsys):
    maps = pattern_set()
    save_set(maps, tmp_path / "set")
    page = visit(maps, annotator="Ben", second=5)
    says(page, "Ben (blind)", "#who")
    order = data_of(tmp_path / "page.html")["order"]
    for place, i in enumerate(order):
        assert page.locator("button.chosen").count() == 0  # `says` or `press` has waited for this map
        press(page, str(1 + CLASSES.index(maps.labels[i])), f"map {min(place + 2, 5)} of 5, {place + 1} labelled")
    says(page, "All 5 labelled. Download them, and replace the set's annotations.tsv.", "#say")
    labelled = downloaded(page, tmp_path / "set")
    assert labelled.labels == maps.labels
    assert list(labelled.of_annotator(1)) == [maps.labels[i] if i in order else None for i in range(10)]
    assert main(["annotate", str(tmp_path / "set")]) == 0
    assert "Cohen's kappa 1.00" in capsys.readouterr().out
