"""`bertsecrets history`: the verdicts on a claim, by any of the names that verdicts carry."""

import json
import subprocess
import sys
from dataclasses import replace

import pytest
import yaml
from calls import run, told
from measurements import judged, of_id, scored

from bertsecrets import __version__
from bertsecrets.cli.main import main
from bertsecrets.compare.history import differing
from bertsecrets.store.verdicts import keep_verdict


@pytest.fixture
def store(tmp_path):
    """A store with two verdicts of one model, a limited one of it, and one of another model."""
    pair = [scored([1] * 80 + [0] * 20, [1] * 100), scored([1] * 20 + [0] * 80, [1] * 100)]
    verdict = judged(of_id("D2-rte"), *pair)
    for observed, commit in ((60.0, "a" * 40), (20.0, "b" * 40)):
        data = replace(verdict, observed=observed, interval=(observed - 5, observed + 5)).as_json()
        keep_verdict(tmp_path, data, "one", facts={"commit": commit, "modified": False})
    keep_verdict(tmp_path, verdict.as_json(), "one", limited=True)
    keep_verdict(tmp_path, verdict.as_json(), "two")
    return tmp_path


@pytest.mark.parametrize("name", ["D2", "d2-rte"])
def test_a_history_is_found_by_the_names_that_verdicts_carry(capsys, store, name):
    said = run(capsys, "history", name, "--store", store)
    headings = [line for line in said.splitlines() if line.startswith("D2-rte on RTE")]
    assert headings == [
        "D2-rte on RTE, one, in points",
        "D2-rte on RTE, two, in points",
        "D2-rte on RTE, one, on a part of the rows, in points",
    ]
    assert "aaaaaaa" in said
    assert ": 60.0 to 20.0; commit aaaaaaa -> bbbbbbb" in said
    assert said.splitlines()[-1].startswith("drawn: ")


def test_a_history_is_narrowed_to_a_model_and_a_task(capsys, store):
    assert run(capsys, "history", "D2", "--model", "two", "--task", "RTE", "--store", store).count("D2-rte on") == 1
    line = told(capsys, "history", "D2", "--model", "three", "--store", store)
    assert line.endswith(f"no verdict on D2 by three in {store}: it has those of one, two")
    assert "no verdict on D2 on mrpc in" in told(capsys, "history", "D2", "--task", "mrpc", "--store", store)
    assert "unknown task" in told(capsys, "history", "D2", "--task", "nothing", "--store", store)
    assert "unknown claim 'Z9'" in told(capsys, "history", "Z9", "--store", store)
    assert "judge it first" in told(capsys, "history", "C1", "--store", store / "none")


def test_a_history_as_data_has_verdicts_and_steps(capsys, store):
    series = json.loads(run(capsys, "history", "D2", "--model", "one", "--json", "--store", store))
    assert [len(one["verdicts"]) for one in series] == [2, 1]
    (step,) = series[0]["steps"]
    assert (step["change"], step["same"], step["differing"]) == (-40.0, False, ["commit aaaaaaa -> bbbbbbb"])


def test_a_history_needs_no_torch(store):
    code = (
        f"import sys; from bertsecrets.cli.main import main; main(['history', 'D2', '--store', {str(store)!r}]);"
        "heavy = {'torch', 'transformers', 'scipy', 'altair'} & sys.modules.keys();"
        "sys.exit(f'imported {sorted(heavy)}' if heavy else 0)"
    )
    done = subprocess.run([sys.executable, "-c", code], capture_output=True, text=True, check=False)
    assert (done.returncode, done.stderr) == (0, "")


def test_what_a_verdict_rests_on_is_kept_with_it(capsys, shared, quick, tmp_path, monkeypatch):
    room = ("--store", tmp_path / "runs")
    chosen = ("report", "--task", "rte", "--claim", "D1-pretrained", *shared, *room)
    run(capsys, *chosen, code=main_code(capsys, *chosen))
    (once,) = json.loads(run(capsys, "history", "D1", "--json", *room))
    settings = yaml.safe_load(quick.read_text())
    settings["judge"]["confidence"] = 0.9
    (tmp_path / "params.yaml").write_text(yaml.safe_dump(settings))
    monkeypatch.setenv("BERTSECRETS_PARAMS", str(tmp_path / "params.yaml"))
    main_code(capsys, *chosen)
    (series,) = json.loads(run(capsys, "history", "D1", "--json", *room))
    first, second = series["verdicts"]
    assert once["verdicts"] == [first]  # it was given twice, and counted
    assert first["times"] == 2
    assert first["software"]["bertsecrets"] == __version__
    assert set(first["circumstances"]) >= {
        *("weights", "tokenizer", "torch", "transformers", "learning_rate of training", "code of scores"),
        *("data of scores on rte", "device of training", "claim", "code of the judge", "limit", "train limit"),
    }
    assert first["measurements"] == second["measurements"] != {}
    assert differing(first, second)[0] == "confidence of the judge 0.95 -> 0.9"


def main_code(capsys, *arguments) -> int:
    """The exit code of a command, whatever it says."""
    code = main([str(argument) for argument in arguments])
    capsys.readouterr()
    return code
