"""The example notebook runs, and its saved outputs are of the same kinds as the new ones."""

import re
import shutil

import nbformat
import pytest
from nbclient import NotebookClient
from pages import DOCS, PROJECT

pytestmark = pytest.mark.slow

NOTEBOOK = DOCS / "example.ipynb"


def kinds(notebook) -> dict[str, list]:
    """Return the type, formats and kinds of drawn elements of each cell's outputs.

    Progress messages are ignored.
    """
    shown = {}
    for cell in notebook.cells:
        outputs = [output for output in cell.get("outputs", []) if output.output_type != "stream"]
        shown[cell.id] = [
            (output.output_type, {form: elements(text) for form, text in output.get("data", {}).items()})
            for output in outputs
        ]
    return shown


def elements(text: str) -> set[str]:
    return set(re.findall(r"<(svg|canvas|script|img|table)\b", text))


@pytest.fixture
def ran(tiny_bert, tiny_glue, quick_params, tmp_path, monkeypatch):
    shutil.copytree(tiny_glue, tmp_path / "glue_data")
    for name, value in {"PARAMS": quick_params, "STORE": tmp_path / "runs"}.items():
        monkeypatch.setenv(f"BERTSECRETS_{name}", str(value))
    monkeypatch.setenv("PYTHONPATH", str(PROJECT))
    notebook = nbformat.read(NOTEBOOK, as_version=4)
    for cell in notebook.cells:
        cell.source = cell.source.replace('"minilm"', repr(str(tiny_bert)))
    resources = {"metadata": {"path": str(tmp_path)}}
    return NotebookClient(notebook, timeout=600, kernel_name="python3", resources=resources).execute()


def test_the_notebook_reproduces_its_saved_output(ran):
    shown = nbformat.read(NOTEBOOK, as_version=4)
    assert kinds(ran) == kinds(shown)
    assert [cell.id for cell in shown.cells if kinds(shown)[cell.id]] == ["change", "layers", "claim"]


def test_the_notebook_names_no_place_of_a_machine():
    text = NOTEBOOK.read_text(encoding="utf-8")
    assert re.findall(r"(?<![\w.<])/(?:home|root|tmp|Users|work|mnt|opt|var)\b[^\"\\<]*", text) == []
