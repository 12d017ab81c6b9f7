"""The report page in a browser: filters, cards, charts, colours, narrow screens, print, accessibility."""

import importlib.util
from pathlib import Path

import pytest
from measurements import SETTINGS
from reported import MODEL, example_maps, verdicts

from bertsecrets.report.findings import Findings, Table
from bertsecrets.report.html import comparison_page
from bertsecrets.report.html import page as report_page
from bertsecrets.report.viewer import Examples

expect = pytest.importorskip("playwright.sync_api", reason="no playwright: pip install playwright").expect
pytestmark = pytest.mark.slow

NARROW = {"width": 400, "height": 800}
GREY = "() => getComputedStyle(document.body).backgroundColor"
WIDER = """() => [...document.querySelectorAll('body *')]
  .filter((part) => part.getBoundingClientRect().right > innerWidth + 1 && !part.closest('.scroll, nav, .unseen'))
  .map((part) => part.outerHTML.slice(0, 80))"""
CELLS = "(table) => [...table.rows].map((row) => [...row.cells].map((cell) => cell.textContent))"

# During printing: the number of collapsed cards, and the number of missing charts.
AS_PRINTED = """() => matchMedia('print').addEventListener('change', (event) => {
  if (event.matches) window.printed = [document.querySelectorAll('.card:not([open])').length,
    [...document.querySelectorAll('.chart')].filter((place) => !place.querySelector('svg')).length];
})"""


@pytest.fixture(scope="module")
def address(tmp_path_factory) -> str:
    """Return the URL of the page as a local file, as users open it."""
    file = tmp_path_factory.mktemp("page") / "report.html"
    command = f"bertsecrets report --model {MODEL} --glue a/rather/long/path/to/glue --html report.html".split()
    examples = Examples([example_maps(), example_maps("sst2")], rows=3)
    file.write_text(report_page({MODEL: verdicts()}, SETTINGS, command=command, examples=examples), encoding="utf-8")
    return file.as_uri()


@pytest.fixture
def visit(browser, address):
    """Return a function that opens the page. The test fails on any console message or external request."""
    pages, problems = [], []

    def start(place: str = "", **options):
        page = browser.new_page(**{"viewport": {"width": 1280, "height": 900}, **options})
        page.on("console", lambda message: problems.append(message.text))
        page.on("pageerror", lambda error: problems.append(str(error)))
        page.on(
            "request", lambda asked: None if asked.url.startswith((address, "blob:")) else problems.append(asked.url)
        )
        page.goto(address + place)
        pages.append(page)
        return page

    yield start
    for page in pages:
        page.close()
    assert problems == []


def shows(page, count: int, selector: str) -> None:
    """Wait until this many elements are visible."""
    expect(page.locator(f"{selector}:visible")).to_have_count(count)


def draw(page, view: str) -> None:
    """Wait until a chart of the attention viewer shows the selected example and head, and reacts to the mouse."""
    page.evaluate("(view) => draw(document.querySelector(`[data-view=${view}]`)).then(() => null)", view)


def has_tooltip(page, text: str) -> None:
    """Wait until a chart has this tooltip."""
    expect(page.locator("#vg-tooltip-element.visible")).to_have_text(text, use_inner_text=True)


def draw_all(page) -> None:
    page.evaluate("() => { document.querySelectorAll('details').forEach((part) => { part.open = true }) }")
    page.evaluate("() => Promise.all([...document.querySelectorAll('.chart')].map(draw)).then(() => null)")


def test_filters_select_claims(visit):
    page = visit()
    said = expect(page.locator("output"))
    said.to_have_text("9 of 9 shown")
    page.locator("select[name=outcome]").select_option("reproduced")
    said.to_have_text("2 of 9 shown")
    shows(page, 2, "tr.claim")
    shows(page, 2, ".card")
    page.locator("select[name=family]").select_option("4.3 Change in attention after fine-tuning")
    said.to_have_text("1 of 9 shown")
    page.get_by_role("button", name="Show all").click()
    said.to_have_text("9 of 9 shown")
    page.locator("select[name=task]").select_option("sst2")
    said.to_have_text("1 of 9 shown")
    shows(page, 1, "tr.claim")
    shows(page, 2, ".matrix thead th")
    shows(page, 0, ".replica-by-task")


def test_a_filter_selects_one_of_several_models(browser, tmp_path):
    file = tmp_path / "report.html"
    file.write_text(report_page({MODEL: verdicts(), "./b": verdicts()[:2]}, SETTINGS), encoding="utf-8")
    page = browser.new_page()
    page.goto(file.as_uri())
    said = expect(page.locator("output"))
    said.to_have_text("11 of 11 shown")
    columns = page.locator(".matrix thead th:visible").count()
    page.locator("select[name=model]").select_option("./b")
    said.to_have_text("2 of 11 shown")
    for selector in ("tr.claim", ".card", ".matrix thead th"):
        shows(page, 2, selector)
    page.get_by_role("button", name="Show all").click()
    said.to_have_text("11 of 11 shown")
    shows(page, columns, ".matrix thead th")


def test_a_cell_opens_its_card_by_mouse_and_by_keyboard(visit):
    page = visit()
    page.locator('a.cell[href="#C1p-rte"]').click()
    card = page.locator("#C1p-rte")
    card.locator(".body").wait_for(state="visible")
    expect(card.locator(".chart svg text", has_text="seeds")).to_have_count(1)
    page.locator('a.cell[href="#A2-rte"]').focus()
    page.keyboard.press("Enter")
    page.locator("#A2-rte .body").wait_for(state="visible")
    expect(page.locator("#A2-rte > summary")).to_be_focused()
    page.keyboard.press("Enter")
    page.locator("#A2-rte .body").wait_for(state="hidden")


def test_every_chart_is_drawn_has_tooltips_and_is_saved_as_svg_and_as_csv(visit):
    page = visit()
    draw_all(page)
    charts = page.locator(".chart")
    assert charts.count() > 20
    assert page.locator(".chart svg").count() == charts.count()
    cell = page.locator("#figure-5 .panels .chart").nth(2).locator(".mark-rect path").nth(3)
    cell.hover()
    has_tooltip(page, "layer 2 head 1 cosine similarity 0.7")

    figure = page.locator("#figure-5 figure").nth(2)
    saved = {}
    for kind in ("SVG", "CSV"):
        with page.expect_download() as download:
            figure.get_by_role("button", name=f"Save {kind}").click()
        saved[kind] = Path(download.value.path()).read_text(encoding="utf-8")
    assert saved["SVG"].startswith("<svg")
    assert saved["CSV"].splitlines()[:2] == ['"layer","head 1","head 2","head 3"', '"1","0.5","0.6","0.55"']


def weights(page, side: str) -> list[list[str]]:
    """Return the data table of one of the attention viewer's maps."""
    figure = page.locator("#attention figure", has=page.locator(f"[data-view={side}]"))
    return figure.locator("table").evaluate(CELLS)


def test_a_head_is_chosen_by_keyboard_and_on_the_map_of_heads(visit):
    page = visit("#attention")
    description = expect(page.locator("#attention .found"))
    description.to_contain_text("Layer 2, head 2 of m on RTE, seed 1")  # the head that has changed most
    description.to_contain_text("a mean similarity of 0.4")
    page.locator("select[name=head]").focus()
    page.keyboard.press("ArrowDown")
    description.to_contain_text("Layer 2, head 3")
    assert page.locator("#attention figcaption").all_inner_texts()[:2] == [
        "Pretrained: layer 2, head 3",
        "Fine-tuned: layer 2, head 3",
    ]
    header, first, *_ = weights(page, "after")
    assert (header, first) == (["from, to", "[CLS]", "Ada", "sings", "[SEP]"], ["[CLS]", "0", "0", "1", "0"])
    uniform = [float(cell) for cell in weights(page, "before")[1][1:]]
    assert uniform == pytest.approx([0.25] * 4, abs=0.005)  # stored as a byte
    draw(page, "heads")
    page.locator("[data-view=heads] .mark-rect path").first.click()
    description.to_contain_text("Layer 1, head 1")
    expect(page.locator("select[name=layer]")).to_have_value("0")
    expect(page.locator("[data-view=after] svg")).to_have_count(1)


def test_another_example_has_maps_of_its_own_tokens(visit):
    page = visit("#attention")
    draw(page, "after")
    page.locator("select[name=example]").select_option(label="No / </script>s")
    expect(page.locator("#attention .sentence")).to_contain_text("No / </script>s")
    draw(page, "after")
    expect(page.locator("[data-view=after] svg text", has_text="</script>")).to_have_count(2)  # on both axes
    assert weights(page, "after")[0][1:] == ["[CLS]", "No", "</script>", "##s", "[SEP]"]
    cell = page.locator("[data-view=after] .mark-rect path").nth(1)
    cell.hover()
    has_tooltip(page, "from [CLS] to No weight 1")


def test_colours_follow_the_system_and_the_switch(visit):
    light = visit(color_scheme="light")
    dark = visit(color_scheme="dark")
    colours = {name: page.evaluate(GREY) for name, page in (("light", light), ("dark", dark))}
    assert colours["light"] != colours["dark"]
    light.get_by_role("button", name="Change to dark colours").click()
    expect(light.locator("body")).to_have_css("background-color", colours["dark"])
    light.get_by_role("button", name="Change to light colours").click()
    expect(light.locator("body")).to_have_css("background-color", colours["light"])


def test_a_narrow_screen_needs_no_horizontal_scrolling(visit):
    page = visit(viewport=NARROW)
    draw_all(page)
    assert page.evaluate(WIDER) == []
    assert page.evaluate("() => document.documentElement.scrollWidth") == 400


def test_all_visible_figures_are_drawn_without_scrolling(visit):
    page = visit()
    missing = """() => [...document.querySelectorAll('.chart')]
      .filter((place) => place.checkVisibility() && !place.querySelector('svg')).length"""
    page.wait_for_function(f"({missing})() === 0")
    assert page.locator(".chart svg").count() > 0


def test_print_unfolds_everything_and_draws_every_chart(visit):
    page = visit()
    page.evaluate(AS_PRINTED)
    pdf = page.pdf(format="A4")
    assert pdf.startswith(b"%PDF")
    assert page.evaluate("() => window.printed") == [0, 0]
    page.emulate_media(media="print")
    shows(page, 0, "nav")
    shows(page, 0, ".filters")


@pytest.mark.parametrize(("colours", "rules"), [("light", None), ("dark", ["color-contrast"])])
def test_the_page_is_accessible(visit, colours, rules):
    spec = importlib.util.find_spec("axe_playwright_python")
    if spec is None or spec.origin is None:
        pytest.skip("no axe: pip install axe-playwright-python")
    page = visit(color_scheme=colours)
    draw_all(page)
    page.evaluate((Path(spec.origin).parent / "axe.min.js").read_text(encoding="utf-8"))
    options = {"resultTypes": ["violations"], **({"runOnly": rules} if rules else {})}
    faults = page.evaluate("(options) => axe.run({ exclude: ['.chart > *'] }, options)", options)["violations"]
    assert [f"{fault['impact']}: {fault['id']}: {fault['nodes'][0]['html'][:120]}" for fault in faults] == []


def test_a_comparison_on_a_narrow_screen_shows_every_cell_with_its_heading(browser):
    header, row = ("task", "measure", "drifted", "outcome"), ("RTE", "special-tokens", "25", "drift " * 40)
    findings = Findings("drift in 1 of 5 measures", "from a to b", [Table(header, [row])])
    page = browser.new_page(viewport=NARROW)
    page.set_content(comparison_page(findings))
    cells = page.locator("tbody td")
    assert cells.evaluate_all("cells => cells.map(cell => getComputedStyle(cell, '::before').content)") == [
        f'"{name}"' for name in header
    ]
    assert max(cells.evaluate_all("cells => cells.map(cell => cell.getBoundingClientRect().right)")) <= 400
    page.close()
