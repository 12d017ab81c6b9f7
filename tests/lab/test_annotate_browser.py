"""The annotation page in a real browser: keys label, undo and move, and what is painted is the map."""

import threading
from pathlib import Path

import numpy as np
import pytest
from patterned import pattern_set

from bertsecrets.lab.annotation.colours import colours
from bertsecrets.lab.annotation.server import Server
from bertsecrets.lab.annotation.session import Annotation
from bertsecrets.patterns.map_set import MapSet

pytestmark = pytest.mark.slow

sync_api = pytest.importorskip("playwright.sync_api", reason="no playwright: pip install playwright")
PIXEL = "([x, y]) => [...document.getElementById('map').getContext('2d').getImageData(x, y, 1, 1).data].slice(0, 3)"


@pytest.fixture
def folder(tmp_path) -> Path:
    pattern_set(labelled=False).save(tmp_path / "set")
    return tmp_path / "set"


@pytest.fixture
def visit(browser):
    """Opens a page on an annotator's work; asks for nothing but the server, and fails on any error in the page."""
    ends, problems = [], []

    def start(work: Annotation):
        server = Server(work)
        threading.Thread(target=server.serve_forever, kwargs={"poll_interval": 0.01}, daemon=True).start()
        page = browser.new_page(viewport={"width": 1280, "height": 820})
        page.on("pageerror", lambda error: problems.append(str(error)))
        page.on(
            "request", lambda asked: None if asked.url.startswith((server.url, "data:")) else problems.append(asked.url)
        )
        page.goto(server.url)
        sync_api.expect(page.locator("#where")).not_to_be_empty()
        ends.append((page, server))
        return page, server

    yield start
    for page, server in ends:
        page.close()
        server.shutdown()
        server.server_close()
    assert problems == []


def press(page, key: str, where: str) -> None:
    """Press a key and wait until the page stands where it should."""
    page.keyboard.press(key)
    sync_api.expect(page.locator("#where")).to_have_text(where)


def test_keys_label_undo_and_move(visit, folder):
    work = Annotation.open(folder, "Anna")
    page, _ = visit(work)
    sync_api.expect(page.locator("#where")).to_have_text("map 1 of 10, 0 labelled")
    press(page, "4", "map 2 of 10, 1 labelled")
    press(page, "1", "map 3 of 10, 2 labelled")
    assert [MapSet.load(folder).labels[i] for i in work.order[:3]] == ["block", "vertical", None]
    press(page, "u", "map 2 of 10, 1 labelled")
    press(page, "ArrowLeft", "map 1 of 10, 1 labelled")
    sync_api.expect(page.locator("button.chosen")).to_have_attribute("data-label", "block")
    press(page, "5", "map 2 of 10, 1 labelled")
    press(page, "ArrowRight", "map 3 of 10, 1 labelled")
    page.locator("button[data-label=diagonal]").click()
    sync_api.expect(page.locator("#where")).to_have_text("map 4 of 10, 2 labelled")
    press(page, "n", "map 2 of 10, 2 labelled")
    assert [MapSet.load(folder).labels[i] for i in work.order[:3]] == ["heterogeneous", None, "diagonal"]
    page.keyboard.press("7")
    page.keyboard.press("Control+1")
    sync_api.expect(page.locator("#where")).to_have_text("map 2 of 10, 2 labelled")
    page.reload()
    sync_api.expect(page.locator("#where")).to_have_text("map 2 of 10, 2 labelled")


def test_the_map_is_painted_as_it_is(visit, folder):
    work = Annotation.open(folder)
    page, _ = visit(work)
    each = work.maps[work.order[0]]
    cells, size = colours(each.values), 560 / each.tokens
    for row, column in ((0, 0), (3, 5), (each.tokens - 1, 2), (6, each.tokens - 1)):
        seen = page.evaluate(PIXEL, [int(40 + (column + 0.5) * size), int(30 + (row + 0.5) * size)])
        np.testing.assert_array_equal(seen, cells[row, column])
    assert page.evaluate(PIXEL, [int(40 + 0.5 * size), 22]) == [0x1F, 0x6F, 0xD6]  # the tick above [CLS]
    last = each.separators[-1]
    assert page.evaluate(PIXEL, [int(40 + (last + 0.5) * size), 22]) == [0xD6, 0x27, 0x28]


def test_the_end_shows_agreement_to_the_second_annotator_alone(visit, folder):
    pattern_set().save(folder)
    work = Annotation.open(folder, "Ben", second=5)
    page, _ = visit(work)
    sync_api.expect(page.locator("#who")).to_have_text("Ben, second annotator (blind)")
    for place, i in enumerate(work.order):
        sync_api.expect(page.locator("button.chosen")).to_have_count(0)
        assert "kappa" not in page.locator("#say").inner_text()
        key = 1 + ["vertical", "diagonal", "vertical-diagonal", "block", "heterogeneous"].index(work.maps.labels[i])
        press(page, str(key), f"map {min(place + 2, 5)} of 5, {place + 1} labelled")
    sync_api.expect(page.locator("#say")).to_contain_text("All 5 labelled. Thank you! Cohen's kappa 1.00")


def test_a_problem_is_said_on_the_page_and_nothing_is_lost(visit, folder):
    page, server = visit(Annotation.open(folder))
    press(page, "2", "map 2 of 10, 1 labelled")
    before = MapSet.load(folder).labels
    (folder / "annotations.tsv").write_text((folder / "annotations.tsv").read_text() + "\n")
    page.keyboard.press("3")
    sync_api.expect(page.locator("#say.error")).to_contain_text("was changed by another program")
    assert MapSet.load(folder).labels == before
    server.shutdown()
    server.server_close()
    page.keyboard.press("3")
    sync_api.expect(page.locator("#say.error")).to_contain_text("The server does not answer; earlier labels are saved")
