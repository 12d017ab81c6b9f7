"""Mutants: which faults are inserted into a module, and how tests detect them."""

import subprocess
import sys

import pytest

from bertsecrets.errors import UserError
from instruments.mutants import mutants_in, sampled

SOURCE = """
def share(values, known, ends=3):
    if values.size >= 2 and not known:
        raise ValueError("é, é")
    return {"mean": values[known > 0].mean(0), "size": values[1]}
"""


def changed(mutant) -> str:
    return SOURCE[: mutant.start] + mutant.new + SOURCE[mutant.end :]


def test_every_kind_of_fault_is_inserted_where_its_code_is():
    mutants = mutants_in("m.py", SOURCE)
    dictionary = '{"mean": values[known > 0].mean(0), "size": values[1]}'
    assert {(m.kind, m.old, m.new) for m in mutants if m.kind != "off by one"} == {
        ("condition", "values.size >= 2 and not known", "(values.size >= 2 or not known)"),
        ("comparison", "values.size >= 2", "values.size > 2"),
        ("condition", "not known", "bool(known)"),
        ("dropped check", 'raise ValueError("é, é")', "pass"),
        ("dropped key field", dictionary, "{'mean': values[known > 0].mean(0)}"),
        ("dropped key field", dictionary, "{'size': values[1]}"),
        ("swapped axes", "values[known > 0].mean(0)", "values[known > 0].mean(1)"),
        ("dropped mask", "values[known > 0]", "values"),
        ("comparison", "known > 0", "known >= 0"),
    }
    assert [m.new for m in mutants if m.kind == "off by one"] == ["3", "1", "1", "2"]
    for mutant in mutants:
        compile(changed(mutant), "m.py", "exec")


def test_the_same_seed_chooses_the_same_faults():
    modules = ["bertsecrets/reading.py", "bertsecrets/errors.py"]
    chosen = sampled(modules, 4, seed=1)
    assert [mutant.file for mutant in chosen] == [module for module in modules for _ in range(4)]
    assert sampled(modules[1:], 4, seed=1) == chosen[4:]
    assert sampled(modules, 4, seed=2) != chosen
    with pytest.raises(UserError, match="name files relative to the project"):
        sampled(["reading.py"], 4, seed=1)


@pytest.mark.slow
def test_a_fault_is_detected_only_by_tests_that_cover_it():
    modules = ("bertsecrets/reading.py", "bertsecrets/report/charts.py")
    words = ["--module", *modules, "--count", "1", "--seed", "5", "--tests", "tests/test_reading.py"]
    done = subprocess.run([sys.executable, "-m", "instruments", "mutants", *words], capture_output=True, text=True)
    covered, other, summary = done.stdout.splitlines()
    assert covered.startswith(f"detected  {modules[0]}:")
    assert other.startswith(f"MISSED  {modules[1]}:")
    assert summary == "1 of 2 detected"
