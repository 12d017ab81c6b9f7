"""The suite's own warnings are shown as one line each, on the command line and in pytest; others are unchanged."""

from calls import started
from faults import run

WARNS = """
import warnings
from bertsecrets.store.entries import DamagedEntryWarning

def warn(*_anything):
    warnings.warn("a thing is damaged", DamagedEntryWarning)
    warnings.warn("anything else")
"""


def test_on_the_command_line_a_warning_of_the_suite_is_one_line():
    command = "warn.__name__ = 'claims'\nclaims.claims = warn\nmain.main(['claims'])"
    code = f"{WARNS}\nfrom bertsecrets.cli import claims, main\n{command}"
    output, errors = started(code).communicate(timeout=60)
    first, *rest = errors.splitlines()
    assert (output, first) == ("", "bertsecrets: a thing is damaged")
    assert [line for line in rest if "UserWarning: anything else" in line]


def test_in_pytest_a_warning_of_the_suite_is_one_line(tmp_path):
    (tmp_path / "test_it.py").write_text(WARNS + "\ndef test_warns():\n    warn()\n")
    done = run(["pytest", "-p", "bertsecrets.benchmarks.plugin"], tmp_path / "output", cwd=tmp_path)
    lines = done.out.splitlines()
    assert "  bertsecrets: a thing is damaged" in lines, done
    assert not [line for line in lines if "DamagedEntryWarning" in line]
    assert [line for line in lines if "UserWarning: anything else" in line]
