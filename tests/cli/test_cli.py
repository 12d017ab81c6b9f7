"""The command line: what each command does, and the fixed field names in its JSON."""

import json
import shlex
from unittest.mock import Mock

import pytest
from calls import run
from transformers import AutoTokenizer
from zoo import save_family

from bertsecrets.cli import doctor
from bertsecrets.cli.main import COMMAND_GROUPS, build_parser, main
from bertsecrets.errors import UserError
from bertsecrets.measures.base import needs
from bertsecrets.measures.registry import get_measure, measure_names

pytestmark = pytest.mark.usefixtures("quick")


def test_help_groups_all_commands_and_each_shows_an_example_that_parses(capsys):
    parser = build_parser()
    grouped = [name for names in COMMAND_GROUPS.values() for name in names]
    assert sorted(grouped) == sorted(parser.commands.choices)
    assert len(grouped) == 13
    for name in grouped:
        assert f"\n  {name:<9} {parser.commands.choices[name].description}\n" in parser.format_help()
    for name in grouped:
        with pytest.raises(SystemExit) as stop:
            main([name, "--help"])
        assert stop.value.code == 0
        example = capsys.readouterr().out.rstrip().splitlines()[-1]
        assert example.startswith(f"example: bertsecrets {name}")
        words = shlex.split(example.partition(" > ")[0])[2:]
        assert parser.parse_args(words).command == name


def test_measure_writes_json_with_fixed_names(capsys, shared, tmp_path, tiny_bert):
    file = tmp_path / "scores.json"
    run(capsys, "measure", "scores", "--task", "rte", *shared, "--limit", 5, "--json", file)
    data = json.loads(file.read_text())
    assert list(data)[:5] == ["measure", "model", "task", "examples", "values"]
    assert (data["measure"], data["model"], data["task"], data["examples"]) == ("scores", str(tiny_bert), "rte", 5)
    assert 0 <= data["values"]["accuracy"] <= 1
    assert data["provenance"]["limit"] == 5
    assert data["provenance"]["official_data"] is False


def test_a_checkpoint_needs_no_model_unless_it_is_compared(capsys, shared, tmp_path):
    options = [option for option in shared if option not in ("--model", shared[1])]
    run(capsys, "finetune", "--task", "rte", *shared, "--output", tmp_path / "mine")
    (tmp_path / "mine" / "manifest.json").unlink()
    for measure in ("scores", "special-tokens"):
        out = run(capsys, "measure", measure, "--task", "rte", *options, "--checkpoint", tmp_path / "mine")
        assert json.loads(out)["examples"] == 24
    written = ["--checkpoint", tmp_path / "mine", "--json", tmp_path / "s.json"]
    out = run(capsys, "measure", "scores", "--task", "rte", *options, *written)
    about = f"scores of {tmp_path / 'mine'}, 24 examples (reused from the store)"
    assert out == f"wrote {tmp_path / 's.json'}: {about}\n"


@pytest.mark.slow
def test_everything_measured_here_is_judged_elsewhere(capsys, shared, tmp_path, tiny_bert):
    for init in ("pretrained", "untrained"):
        kept = tmp_path / "kept" / init
        assert f"{kept}: scores of" in run(
            capsys, "measure", "all", "--task", "rte", "--init", init, *shared, "--save", kept
        )
    out = run(
        capsys, "report", "--model", tiny_bert, "--measurements", tmp_path / "kept", "--json", tmp_path / "v.json",
        "--metrics", tmp_path / "m.json", "--plots", tmp_path / "p.json", "--html", tmp_path / "r.html",
    )  # fmt: skip
    verdicts = json.loads((tmp_path / "v.json").read_text())["verdicts"]
    ids = {verdict["id"] for verdict in verdicts}
    assert ids >= {"C1-rte", "C2-rte", "C3-rte", "E1-rte", "D2-rte", "D1-rte-pretrained", "D1-rte-untrained"}
    assert {verdict["task"] for verdict in verdicts} == {"rte"}
    for name in ("id", "published", "band", "observed", "verdict"):
        assert all(name in verdict for verdict in verdicts)
    measured = [verdict for verdict in verdicts if verdict["verdict"] != "not applicable"]
    assert all("unofficial data" in verdict["remarks"] for verdict in measured)
    assert "inconclusive" in {verdict["verdict"] for verdict in verdicts}  # one seed is not enough for a decision
    assert "unofficial data" in " ".join(out.split())
    metrics = json.loads((tmp_path / "m.json").read_text())
    assert sum(metrics["outcomes"].values()) == len(verdicts)
    layers = {row["layer"] for row in json.loads((tmp_path / "p.json").read_text())}
    assert layers == {1, 2, 3}
    assert (tmp_path / "r.html").read_text().count('class="chart"') >= 3


def test_claims_without_a_task_are_selected_as_all(capsys, shared):
    out = run(capsys, "report", "--task", "all", "--claim", "B5", *shared)
    assert "B5-l7h6" in out
    assert "0 reproduced, 0 deviate" in out  # the example needs 12 layers of 12 heads


def test_explain_prints_all_fields_of_a_claim(capsys):
    out = run(capsys, "explain", "c1P")
    assert "C1p: The last two layers change most, with maps padded" in out
    assert "  it says: The last two layers change most, except on QQP\n  judged: as said, cropped and padded" in out
    assert "  MRPC, STS-B, SST-2, RTE, QNLI, MNLI-m: band < 0" in out
    assert "  RTE: published -0.251" in out
    assert "  judged: differs: within half a point" in run(capsys, "explain", "B4")
    assert "[0.2065, 0.2115]" in run(capsys, "explain", "B2-l7h6")
    assert "-0.0;" not in run(capsys, "explain", "D5")
    assert run(capsys, "explain", "D1").count("source: K19 (Kovaleva et al. 2019) table 1") == 8
    assert "vertical as in: blog: vertical is attention to a single token" in run(capsys, "explain", "A4-rte-half")
    assert "vertical as in: section 4.1: vertical is mainly" in run(capsys, "explain", "A2-rte")
    assert "vertical as in" not in run(capsys, "explain", "A4-rte-special-tokens")


def test_doctor_lists_what_is_available_and_what_is_missing(capsys, shared, tiny_glue, tiny_bert):
    out = run(capsys, "doctor", *shared)
    words = len(AutoTokenizer.from_pretrained(tiny_bert))
    assert f"model {tiny_bert}: found, 3 layers x 4 heads, vocabulary of {words}, " in out
    assert "examples truncated to 128 tokens (model maximum: 256), 0.0% [UNK] in 24 rows of RTE" in out
    assert "GLUE RTE: found" in out
    assert "GLUE MRPC: missing; no MRPC/train.tsv" in out
    for word in ("torch", "device: CPU", "memory:", "stored checkpoints:", "extra dvc:", "extra ray:"):
        assert word in out


def test_doctor_lists_an_extra_as_missing_unless_it_is_complete(capsys, monkeypatch, tmp_path):
    for modules, line in (["json"], "extra report: installed"), (["json", "no_such_module"], "extra report: missing; "):
        monkeypatch.setitem(doctor.EXTRA_MODULES, "report", modules)
        assert line in run(capsys, "doctor", "--store", tmp_path, "--offline")


def test_doctor_lists_the_measures_that_apply_to_a_model_and_why_others_do_not(capsys, shared, tmp_path):
    out = run(capsys, "doctor", *shared)
    assert {line for line in out.splitlines() if line.startswith("measure ")} == {
        f"measure {name}: supported" for name in measure_names() if get_measure(name).reads_model
    }
    out = run(capsys, "doctor", *shared, "--model", save_family("longformer", tmp_path / "longformer"))
    assert "measure scores: supported" in out
    why = "each token attends only to a window and to a few global tokens"
    assert f"measure patterns: not applicable; the attention of Longformer cannot be read: {why}" in out
    assert (
        f"head-ablation: not applicable; heads of LongformerForSequenceClassification cannot be disabled: {why}" in out
    )
    out = run(capsys, "doctor", *shared, "--model", save_family("xlnet", tmp_path / "xlnet"))
    assert "xlnet: none; XLNet cannot be measured: it classifies from the last token" in out


@pytest.mark.parametrize(
    ("options", "lines"),
    [
        (
            ("--device", "cuda:77", "--store", __file__),
            (
                "frames: missing; frame-heads needs the option frames",
                "device: missing; device 'cuda:77' is not available",
                f"store: missing; {__file__} is a file where a folder is needed",
            ),
        ),
        (
            ("--glue", "nowhere", "--store", f"{__file__}/deep"),
            (
                "GLUE: missing; no GLUE folder at nowhere: give the folder that contains files such as RTE/dev.tsv",
                f"store: missing; {__file__} is a file where a folder is needed",
            ),
        ),
    ],
)
def test_doctor_reports_what_is_missing_and_continues(capsys, monkeypatch, shared, options, lines):
    pipeline = "spaCy pipeline 'en_core_web_sm' is not installed: run python -m spacy download en_core_web_sm"
    monkeypatch.setattr(needs, "load_pipeline", Mock(side_effect=UserError(pipeline)))
    needs._described.cache_clear()
    out = run(capsys, "doctor", *shared, *options)
    assert [line for line in lines if f"\n{line}" not in out] == []
    assert f"\nspaCy pipeline en_core_web_sm: missing; {pipeline}" in out
    assert "extra spacy:" in out
    assert "GLUE RTE: found" in out


def test_doctor_works_without_any_data(capsys, tmp_path):
    out = run(capsys, "doctor", "--store", tmp_path / "none" / "deep", "--offline")
    assert "model google-bert/bert-base-uncased: missing" in out
    assert "stored checkpoints: 0" in out


def test_fetch_checks_model_and_task(capsys, shared):
    out = run(capsys, "fetch", "--task", "rte", *shared)
    assert "RTE train: 64 rows (unofficial)" in out
    assert "RTE dev: 24 rows (unofficial)" in out
