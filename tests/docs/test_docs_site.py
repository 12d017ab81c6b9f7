"""The documentation site builds without warnings, documents the API and loads no external resources."""

import os
import re
import subprocess
import sys
from html.parser import HTMLParser
from pathlib import Path

import pytest
from pages import DOCS, PROJECT

import bertsecrets

pytestmark = pytest.mark.slow

for package in ("mkdocs", "material", "mkdocstrings_handlers.python"):
    pytest.importorskip(package, reason='the site needs pip install "bertsecrets[docs]"', exc_type=ImportError)


@pytest.fixture(scope="module")
def site(tmp_path_factory) -> Path:
    folder = tmp_path_factory.mktemp("site")
    done = subprocess.run(
        [sys.executable, "-m", "mkdocs", "build", "--strict", "--site-dir", str(folder)],
        cwd=PROJECT,
        env={**os.environ, "PYTHONPATH": str(PROJECT), "NO_MKDOCS_2_WARNING": "1"},
        capture_output=True,
        text=True,
        check=False,
    )
    assert done.returncode == 0, done.stdout + done.stderr
    return folder


class Loaded(HTMLParser):
    """Collects the resources that a browser loads for a page (scripts, style sheets, images), but not its links."""

    def __init__(self, page: Path):
        super().__init__()
        self.addresses: list[str] = []
        self.feed(page.read_text(encoding="utf-8"))

    def handle_starttag(self, tag, attrs):
        given = dict(attrs)
        name = {"link": "href", "object": "data"}.get(tag, "src")
        if tag != "a" and given.get(name) and given.get("rel") not in ("canonical", "next", "prev"):
            self.addresses.append(given[name])


def test_every_page_is_there_and_loads_nothing_from_outside(site):
    for source in DOCS.rglob("*.md"):
        page = site / source.relative_to(DOCS).with_suffix(".html")
        loaded = Loaded(page).addresses
        assert len(loaded) > 3
        assert [address for address in loaded if re.match(r"(https?:)?//", address)] == [], page
        assert [a for a in loaded if not (page.parent / a.split("?")[0].split("#")[0]).resolve().exists()] == [], page
    for sheet in site.rglob("*.css"):
        assert re.findall(r"url\(\s*[\"']?(?:https?:)?//|@import", sheet.read_text(encoding="utf-8")) == [], sheet


def test_the_api_page_has_every_public_name(site):
    page = (site / "python.html").read_text(encoding="utf-8")
    assert [name for name in bertsecrets.__all__ if f'id="bertsecrets.{name}"' not in page] == []
