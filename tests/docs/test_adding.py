"""End-to-end tests of the examples in extend.md, measures.md and families.md, in a copy of the suite.

Each test adds exactly the files named on its page and compares their number with the table in extend.md.
"""

import filecmp
import json
import os
import re
import shutil
import subprocess
import sys
from collections.abc import Sequence
from pathlib import Path

import numpy as np
import pytest
from calls import run
from pages import PROJECT, blocks, titled
from sessions import local_session
from tiny import LAYERS, save_tokenizer

pytestmark = pytest.mark.slow

ENVIRONMENT = {name: value for name, value in os.environ.items() if not name.startswith("PYTEST_")}
PARTS = (
    *("bertsecrets", "expected", "params.yaml"),
    *("benchmarks/conftest.py", "benchmarks/test_claims.py"),
)
# Runs the commands given as JSON, each [program, words, allowed exit codes], and prints their outputs as JSON.
RUN = """
import contextlib, io, json, sys
from bertsecrets.cli.main import main
def run(program, words):
    if program == "python":
        return exec(words[0], {"__name__": "__main__"}) or 0
    if program == "pytest":
        import pytest
        return pytest.main([*words, "-W", "ignore::pytest.PytestAssertRewriteWarning"])
    return main(words)
outputs = []
for program, words, codes in json.loads(sys.argv[1]):
    with contextlib.redirect_stdout(io.StringIO()) as out, contextlib.redirect_stderr(out):
        code = run(program, words)
    assert code in codes, (program, words, code, out.getvalue())
    outputs.append(out.getvalue())
print(json.dumps(outputs))
"""


class Checkout:
    """A copy of the suite in which a test may add and change files."""

    def __init__(self, root: Path, options: list[str], params: Path):
        self.root, self.options = root, options
        for name in PARTS:
            source, target = PROJECT / name, root / name
            target.parent.mkdir(parents=True, exist_ok=True)
            if source.is_dir():
                # Copy compiled modules to avoid recompilation, but not those that are still being written.
                shutil.copytree(source, target, ignore=shutil.ignore_patterns("*.pyc.*"))
            else:
                shutil.copy(source, target)
        self.environment = {**ENVIRONMENT, "PYTHONPATH": str(root), "BERTSECRETS_PARAMS": str(params)}

    def add(self, page: str, name: str) -> None:
        """Write a file as shown on a page; if the file already exists, append the block to it."""
        with (self.root / name).open("a", encoding="utf-8") as file:
            file.write(("\n" if file.tell() else "") + titled(page, name))

    def replace(self, name: str, pattern: str, new: str) -> None:
        path = self.root / name
        text, count = re.subn(pattern, lambda _: new, path.read_text(encoding="utf-8"), flags=re.M)
        assert count == 1
        path.write_text(text, encoding="utf-8")

    @property
    def touched(self) -> list[str]:
        """The names of all files that differ from the suite's."""
        here = (path.relative_to(self.root) for path in self.root.rglob("*") if path.is_file())
        suite = (
            path for path in here if path.parts[0] in ("bertsecrets", "expected", "benchmarks", "tests", "params.yaml")
        )
        return sorted(
            str(path)
            for path in suite
            if "__pycache__" not in path.parts
            and not ((PROJECT / path).exists() and filecmp.cmp(self.root / path, PROJECT / path, shallow=False))
        )

    def run(self, *several: Sequence[object], code: int = 0) -> list[str]:
        """Run commands in the copy and return their outputs.

        All commands run in one process, because importing takes most of the time. `bertsecrets ...` runs on the tiny
        model, `pytest ...` runs unchanged, and `python CODE` executes the code. All must exit with 0, except that
        `report` may also exit with 1 (the claim deviates) and that the last command must exit with `code`, if given.
        """
        calls = []
        for program, *words in several:
            offline = self.options if program == "bertsecrets" and words[0] != "explain" else []
            calls.append((program, [*map(str, words), *offline], [0, 1] if words[0] == "report" else [0]))
        calls[-1][2][:] = [code] if code else calls[-1][2]
        command = [sys.executable, "-c", RUN, json.dumps(calls)]
        done = subprocess.run(command, cwd=self.root, env=self.environment, capture_output=True, text=True)
        assert done.returncode == 0, done.stdout + done.stderr
        return json.loads(done.stdout.splitlines()[-1])

    def json(self, name: str):
        return json.loads((self.root / name).read_text(encoding="utf-8"))

    @property
    def verdicts(self) -> dict[str, dict]:
        return {verdict["id"]: verdict for verdict in self.json("verdicts.json")["verdicts"]}


def report(*claims: str, task: str = "rte") -> tuple[str, ...]:
    """Return the command that judges claims and writes `verdicts.json` and `report.html`."""
    named = [word for claim in claims for word in ("--claim", claim)]
    return ("bertsecrets", "report", *named, "--task", task, "--json", "verdicts.json", "--html", "report.html")


def collect(chosen: str) -> tuple[str, ...]:
    return ("pytest", "benchmarks", "-k", chosen, "--collect-only", "-q", "-p", "no:cacheprovider")


def listed(output: str) -> list[str]:
    return re.findall(r"\[([^\]]+)\]$", output, re.M)


@pytest.fixture
def checkout(tmp_path, tiny_bert, tiny_glue, quick_params) -> Checkout:
    options = [
        *("--model", str(tiny_bert), "--glue", str(tiny_glue), "--store", str(tmp_path / "runs"), "--device", "cpu"),
        *("--offline", "--allow-unofficial-data"),
    ]
    return Checkout(tmp_path / "checkout", options, quick_params)


def files_said(row: str) -> str:
    """Return the number of files that extend.md states for an extension."""
    overview = (PROJECT / "docs" / "extend.md").read_text(encoding="utf-8")
    (files,) = re.findall(rf"^\| [^|]*{row}[^|]* \| ([^|]+) \|", overview, re.M)
    return files.split(":")[0]


def test_a_claim_on_an_existing_quantity_is_one_entry_and_a_quantity_is_one_function(checkout):
    checkout.add("extend.md", "expected/C-change.yaml")
    assert checkout.touched == ["expected/C-change.yaml"]
    assert files_said("on an existing quantity") == "1"
    checkout.add("measures.md", "bertsecrets/claims/quantities/change_depth.py")
    checkout.add("measures.md", "expected/C-change.yaml")
    assert len(checkout.touched) == 2
    assert files_said("a quantity\\]") == "2"
    measure = ("bertsecrets", "measure", "attention-change", "--task", "rte", "--json", "change.json")
    explain = ("bertsecrets", "explain", "C5")
    explained, collected, *_ = checkout.run(explain, collect("C5 or C6"), report("C5", "C6"), measure)
    assert "nine heads in ten" in explained
    assert listed(collected) == ["C5-mrpc", "C5-rte", "C6-rte"]
    share, depth = (checkout.verdicts[f"{claim}-rte"] for claim in ("C5", "C6"))
    assert share["verdict"] in ("reproduced", "deviates", "inconclusive")
    assert 0 <= share["observed"] <= 100
    cosine = np.array(checkout.json("change.json")["values"]["cosine"])
    assert depth["observed"] == cosine.mean(1).argmin() / (LAYERS - 1)


def test_the_band_that_the_page_on_claims_shows_is_computed(tmp_path):
    from bertsecrets.claims.loading import load_claims

    page = next(b for b in blocks(PROJECT / "docs/extend.md") if b.language == "yaml" and "id: D9" in b.text)
    (tmp_path / "D.yaml").write_text(page.text)
    ((case,),) = (claim.cases for claim in load_claims(tmp_path))
    half = 2.7764 * 2.772 + 0.05  # Student's t for P20's five seeds x standard deviation, plus rounding to a tenth
    assert case.band(0.95) == pytest.approx((64.6 - half, 64.6 + half), abs=1e-3)


def test_a_measure_is_one_class_and_with_a_quantity_and_an_entry_it_is_judged(checkout, as_documented):
    checkout.add("measures.md", "bertsecrets/measures/attention_entropy.py")
    assert checkout.touched == ["bertsecrets/measures/attention_entropy.py"]
    assert files_said("a measure\\]") == "1"
    checkout.add("measures.md", "bertsecrets/claims/quantities/entropy.py")
    checkout.add("measures.md", "expected/E-tokens.yaml")
    assert len(checkout.touched) == 3
    assert files_said("a measure that a claim judges") == "3"
    (checkout.root / "tests" / "measures").mkdir(parents=True)
    checkout.add("measures.md", "tests/measures/test_attention_entropy.py")
    (code,) = (b.text for b in blocks(PROJECT / "docs/measures.md") if b.language == "python" and not b.title)
    tests = ("pytest", "tests", "-q", "-p", "no:cacheprovider", "-p", "no:benchmark")
    measure = ("bertsecrets", "measure", "attention-entropy", "--task", "rte", "--json", "entropy.json")
    commands = (measure, collect("E9"), report("E9"), tests, ("python", as_documented(code)))
    *_, collected, _, tested, judged, refused = checkout.run(*commands, (*measure, "--option", "padded_to=40"), code=2)
    entropy = np.array(checkout.json("entropy.json")["values"]["entropy"])
    assert entropy.shape == (LAYERS, 4)
    assert 0 < entropy.min() < entropy.max() < np.log2(60)
    assert "available options: rows" in refused
    assert listed(collected) == ["E9-rte"]
    verdict, growth = checkout.verdicts["E9-rte"], entropy.mean(1)
    assert verdict["observed"] == pytest.approx(growth[-1] - growth[0], abs=1e-6)
    assert "Entropy of each head" in (checkout.root / "report.html").read_text()
    assert "1 passed" in tested
    assert judged.split()[-2:] == [verdict["verdict"], str(verdict["observed"])]


@pytest.fixture
def own_measure():
    """Register the page's measure, defined outside the package, for one test."""
    from bertsecrets.measures import registry

    names: dict[str, object] = {"__name__": "own_measure"}
    exec(titled("measures.md", "bertsecrets/measures/attention_entropy.py"), names)
    yield names
    del registry._MEASURES["attention-entropy"]


def test_a_measure_from_outside_the_package_works_like_any_other(own_measure, tiny_bert, tiny_glue, quick, tmp_path):
    session = local_session(model=tiny_bert, glue=tiny_glue, store=tmp_path)
    measurement = session.measure("attention-entropy", task="rte", init="untrained")
    assert measurement.values["entropy"].shape == (LAYERS, 4)
    again = session.measure("attention-entropy", task="rte", init="untrained")
    assert not again.reused  # it has no source file, so its code cannot be part of a cache key
    assert (again.values["entropy"] == measurement.values["entropy"]).all()
    assert not [path for path in (tmp_path / "measurements").glob("*") if path.is_dir()]


def test_a_family_opens_by_itself_even_if_it_counts_positions_otherwise(checkout, tmp_path):
    import torch
    from transformers import RobertaPreLayerNormConfig, RobertaPreLayerNormForSequenceClassification

    model = tmp_path / "prelayernorm"
    tokenizer = save_tokenizer(model)
    torch.manual_seed(0)
    config = RobertaPreLayerNormConfig(
        vocab_size=len(tokenizer), hidden_size=32, num_hidden_layers=2, num_attention_heads=4, intermediate_size=48,
        max_position_embeddings=12, pad_token_id=tokenizer.pad_token_id,
    )  # fmt: skip
    RobertaPreLayerNormForSequenceClassification(config).save_pretrained(model)
    checkout.options[1] = str(model)
    checkout.run(
        ("bertsecrets", "measure", "special-tokens", "--task", "rte", "--init", "untrained", "--json", "m.json")
    )
    assert checkout.touched == []
    assert files_said("a model family") == "0"
    assert np.shape(checkout.json("m.json")["values"]["cls"]) == (2, 4)


TASKS_OF_THE_MEAN = """
import numpy as np
from bertsecrets.claims.quantities import QUANTITIES
from bertsecrets.texts.metrics import score
from bertsecrets.texts.tasks import TASKS
from sklearn.metrics import matthews_corrcoef
target, predicted = np.random.default_rng(0).integers(2, size=(2, 50))
predicted[:20] = target[:20]
assert abs(score("matthews", predicted, target) - matthews_corrcoef(target, predicted)) < 1e-12
assert score("matthews", np.ones(50), target) == 0
needs = QUANTITIES["mean-score-difference"].needs.values()
seven = ("mrpc", "stsb", "sst2", "qqp", "rte", "qnli", "mnli")
assert "cola" in TASKS and all(need.tasks == seven for need in needs)
assert [need.tasks for need in QUANTITIES["same-class-across-tasks"].needs.values()] == [seven]
one, two = QUANTITIES["sep-lead"].needs.values()
assert (one.task, two.tasks) == ("sst2", ("mrpc", "stsb", "qqp", "rte", "qnli", "mnli"))
from bertsecrets.claims.requirements import required_measurements
from bertsecrets.claims.loading import cases
class Everything:
    def missing(self, measure, task_name):
        return None
    def measurement(self, measure, subject, **options): ...
    def shape(self, model): ...
tasks = {str(case): {wanted.task for wanted in required_measurements(Everything(), case)} for case in cases()}
assert tasks["D2-all-mean"] == tasks["A3-all-across-tasks"] == tasks["E2-all"] == set(seven)
"""


def test_an_eighth_task_takes_its_entry_and_its_metric_and_moves_no_published_mean(checkout, tmp_path, capsys):
    before = run(capsys, "explain", "D2")
    checkout.add("extend.md", "bertsecrets/texts/tasks.py")
    metrics = "bertsecrets/texts/metrics.py"
    checkout.replace(metrics, r"^METRICS: .*\n", titled("extend.md", metrics))
    assert checkout.touched == ["bertsecrets/texts/metrics.py", "bertsecrets/texts/tasks.py"]
    assert files_said("a public task") == "1; 2 with a metric of its own"

    folder = tmp_path / "acceptable" / "CoLA"
    folder.mkdir(parents=True)
    for name, rows in (("train", 64), ("dev", 24)):
        lines = [
            f"g\t{i % 3 and 1}\t\tthe {'nurse sold' if i % 3 else 'sold nurse'} {i % 7} letters" for i in range(rows)
        ]
        (folder / f"{name}.tsv").write_text("source\tlabel\tmark\tsentence\n" + "\n".join(lines) + "\n")
    checkout.options[3] = str(folder.parent)
    checkout.add("extend.md", "expected/D-scores.yaml")
    measure = ("bertsecrets", "measure", "scores", "--task", "cola", "--save", "kept", "--json", "scores.json")
    ablate = ("bertsecrets", "measure", "layer-ablation", "--task", "cola", "--json", "layers.json")
    *_, after, _ = checkout.run(
        measure, ablate, report("D9", task="cola"), ("bertsecrets", "explain", "D2"), ("python", TASKS_OF_THE_MEAN)
    )
    scores = checkout.json("scores.json")
    assert set(scores["values"]) == {"accuracy", "matthews", "constant", "majority", "entropy"}
    (samples,) = (np.load(path) for path in (checkout.root / "kept").rglob("*.npz"))
    from sklearn.metrics import matthews_corrcoef

    assert scores["values"]["matthews"] == pytest.approx(matthews_corrcoef(samples["target"], samples["predicted"]))
    assert checkout.json("layers.json")["values"]["baseline"] == pytest.approx(scores["values"]["matthews"])
    right = samples["target"] == samples["predicted"]
    majority = max(np.mean(samples["target"] == 1), np.mean(samples["target"] == 0))
    assert checkout.verdicts["D9-cola"]["observed"] == pytest.approx(100 * (right.mean() - majority))
    assert after == before
