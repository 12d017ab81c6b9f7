"""Bad settings, claims, models, texts, options and outputs: one row per check.

Each gives a one-line error and exit code 2, and leaves the user's files unchanged. Bad inputs of the instruments are in
`tests/instruments/test_refused_inputs.py`; `test_readers.py` corrupts the files that each reader reads at random.
"""

import json
import shutil
from pathlib import Path

import numpy as np
import pytest
from bad_input import COMMON, BadInput, Room, told
from safetensors.numpy import load_file, save_file

from bertsecrets.caches import CheckpointCache, MeasurementCache
from bertsecrets.patterns.classifier import REPORT_FILE, SHIPPED_FOLDER, weights_path
from bertsecrets.settings import project_path
from bertsecrets.store.files import file_sha256

PARAMS = project_path("params.yaml").read_text(encoding="utf-8")
PIN = str(project_path("expected") / "variants" / "minilm-slice.yaml")
MEASURE = ("measure", "scores", "--task", "rte", *COMMON)
SCORES = (*MEASURE, "--init", "untrained")
FINETUNE = ("finetune", "--task", "rte", *COMMON)
PLAN = ("plan", "--task", "rte", *COMMON)
RUN = ("run", "--task", "rte", *COMMON)
CLAIM = ("report", "--task", "rte", "--claim", "E1-rte", *COMMON)
HEADS = ("measure", "head-ablation", "--task", "rte", *COMMON)
FRAMES = ("measure", "frame-heads", "--model", "{model}", "--store", "{store}", "--device", "cpu", "--offline")


def written(name, content):
    return lambda room: room.file(name, content)


# ---------------------------------------------------------------------- settings and claims


def settings(name, says, old=None, new=None, content=None) -> BadInput:
    assert old is None or old in PARAMS
    content = PARAMS.replace(old, new, 1) if old else content
    make = written("params.yaml", content)
    environment = (("BERTSECRETS_PARAMS", "{room}/params.yaml"),)
    return BadInput(f"settings: {name}", ("corpus", "{room}/corpus"), ("{room}/params.yaml", says), make, environment)


SETTINGS = [
    settings("a name given twice", "duplicate key 'epochs'", "epochs: 3", "epochs: 3\n  epochs: 4"),
    settings("yes for a number", "finetune: epochs must be a number or a string", "epochs: 3", "epochs: yes"),
    settings("a billion rows", "corpus.train_rows", "train_rows: 1600", "train_rows: 1000000000"),
    settings("a seed twice", "seeds: contains a seed twice (1, 2, 1)", "seeds: auto", "seeds: [1, 2, 1]"),
    settings("100 000 lists", ", line ", "epochs: 3", "epochs: " + "[" * 100_000),
    settings("Python code", "not valid YAML", "epochs: 3", "epochs: !!python/object/apply:os.system ['true']"),
    settings("Latin-1", "line 1: not UTF-8", content=b"model: caf\xe9\n"),
    settings("10 MiB", "is larger than 8 MiB", content=" " * 10 * 2**20),
]

CLAIM_TEXT = """
- id: D1
  source: K19 table 1
  how: accuracy
  statement: Fine-tuned BERT scores 64.6 on RTE.
  measure: scores
  quantity: score
  expect: {kind: around, sampling: score}
  tasks:
    rte: {published: 64.6, rounding: 0.05}
"""


def claims(name, says, old, new) -> BadInput:
    assert old in CLAIM_TEXT

    def make(room: Room) -> None:
        room.file("expected/D.yaml", CLAIM_TEXT.replace(old, new, 1))

    environment = (("BERTSECRETS_EXPECTED", "{room}/expected"),)
    return BadInput(f"claims: {name}", ("claims",), ("{room}/expected/D.yaml", says), make, environment)


CLAIMS = [
    claims("an unknown entry with a line end", "sau ce", "source:", '"sau\\nce": 1\n  source:'),
    claims("a figure that is not a number", "tasks.rte.published: ", "64.6,", ".nan,"),
]

# ---------------------------------------------------------------------- models and the pattern classifier


def changed(name, change, says, file="config.json") -> BadInput:
    def make(room: Room) -> None:
        data = json.loads((room.own_model() / file).read_text())
        change(data)
        room.file(f"model/{file}", json.dumps(data))

    return BadInput(f"model: {name}", SCORES, ("{model}", says), make)


def foreign_index(room: Room) -> None:
    folder = room.own_model()
    (folder / "model.safetensors").unlink()
    (folder / "model.safetensors.index.json").write_bytes(b'{"weight_map": {"w": "../w.safetensors"}}')


MODELS = [
    changed("too many layers", lambda data: data.update(num_hidden_layers=10**6), "num_hidden_layers"),
    changed("hidden_size is not a multiple of the heads", lambda data: data.update(hidden_size=30), ""),
    changed("an unknown activation", lambda data: data.update(hidden_act="nope"), "does not know 'nope'"),
    changed("a tokenizer that fails on a text", lambda data: data["model"].update(vocab=["a"]),
            "its tokenizer fails on a short text", "tokenizer.json"),
    changed("model_max_length 0", lambda data: data.update(model_max_length=0), "model_max_length",
            "tokenizer_config.json"),
    changed("an epsilon as text", lambda data: data.update(layer_norm_eps="1e-5"), "(config.json): Validation error "
            "for field 'layer_norm_eps': TypeError: Field 'layer_norm_eps' expected float, got str (value: '1e-5')"),
    changed("an epsilon that is not a number", lambda data: data.update(layer_norm_eps=np.nan), "layer_norm_eps in"),
    changed("names in a list", lambda data: data.update(id2label=["a", "b"]), "id2label in config.json is ['a', 'b']"),
    changed("cross-attention", lambda data: data.update(add_cross_attention=True), "BertLayer(...) should be used as"),
    changed("quantisation", lambda data: data.update(quantization_config={"quant_method": "awq"}), "that is not quan"),
    BadInput("model: weights in another folder", SCORES, ("{model}", "not a file in the same folder"), foreign_index),
    BadInput("model: near matches", (*SCORES, "--model", "minilmm"), "did you mean minilm"),
    BadInput("model: a space", (*SCORES, "--model", "foo bar"), ("'foo bar'", "use the model minilm")),
    BadInput("model: a long name", (*SCORES, "--model", f"./{'x' * 300}"), ("x" * 300, "use the model minilm")),
    BadInput("model: no name", (*SCORES, "--model", "@abc"), ("@abc", "use the model minilm")),
    BadInput("model: no revision", (*SCORES, "--model", "minilm@"), "minilm@ has no revision after the @"),
    BadInput("model: a blank in the environment", ("plan", "--task", "rte", *COMMON[2:]), "the model's name is empty",
             environment=(("BERTSECRETS_MODEL", " "),)),
    BadInput("model: no checkpoint", (*MEASURE, "--checkpoint", "none"), "no checkpoint folder"),
]  # fmt: skip


def classifier(name, says, change) -> BadInput:
    """Return a row with a classifier whose tensors or facts are changed, with the new digest in its report."""

    def make(room: Room) -> None:
        folder = room.folder / "classifier"
        shutil.copytree(SHIPPED_FOLDER, folder)
        weights = weights_path(folder, "stripes")
        tensors = load_file(weights)
        with weights.open("rb") as file:
            size = int.from_bytes(file.read(8), "little")
            facts = json.loads(json.loads(file.read(size))["__metadata__"]["facts"])
        content = change(tensors, facts)
        save_file(tensors, weights, {"facts": content or json.dumps(facts)})
        report = json.loads((folder / REPORT_FILE).read_text())
        report["readings"]["stripes"]["weights_sha256"] = file_sha256(weights)
        room.file(f"classifier/{REPORT_FILE}", json.dumps(report))

    command = ("measure", "pattern-quality", "--store", "{store}", "--offline")
    environment = (("BERTSECRETS_PATTERNS", "{room}/classifier"),)
    return BadInput(f"classifier: {name}", command, ("{room}/classifier/stripes.safetensors", says), make, environment)


def within(name, change):
    return lambda tensors, facts: tensors.update({name: change(tensors[name])})


CLASSIFIER = [
    classifier("facts that are not JSON", "is damaged", lambda tensors, facts: "{"),
    classifier("facts that are a list", "was trained with the features", lambda tensors, facts: "[]"),
    classifier("no depth", "a depth of None", lambda tensors, facts: facts.update(depth=None)),
    classifier("a temperature of zero", "its temperature is 0.0", lambda tensors, facts: facts.update(temperature=0.0)),
    classifier("no trees", "unexpected names or shapes", within("trees.roots", lambda roots: roots[:0])),
    classifier("a node outside", "trees.left has an index out of range",
               within("trees.left", lambda nodes: nodes + 10**6)),
    classifier("nodes with a point", "trees.left has the type",
               within("trees.left", lambda nodes: nodes.astype(np.float32))),
    classifier("NaN", "linear.weight is not finite", within("linear.weight", lambda weight: weight * np.nan)),
]  # fmt: skip

# ---------------------------------------------------------------------- texts

HEADER = "index\tsentence1\tsentence2\tlabel"


def glue(name, content, says, command=SCORES, **more) -> BadInput:
    def make(room: Room) -> None:
        room.own_glue()
        room.file("glue/RTE/dev.tsv", content)

    return BadInput(f"GLUE: {name}", command, ("{glue}/RTE/dev.tsv", says), make, **more)


def frames(name, file, says, make) -> BadInput:
    return BadInput(f"frames: {name}", (*FRAMES, "--frames", "{room}/" + file), says, make)


OFFICIAL = tuple(word for word in SCORES if word != "--allow-unofficial-data")
TEXTS = [
    glue("spaces for tabs", HEADER.replace("\t", " ") + "\n0 a b entailment\n", "line 1: no column 'sentence1'"),
    glue("an unknown label, before training", f"{HEADER}\n0\ta\tb\t{'x' * 10**6}\n",
         "line 2, column 'label': unknown label 'xxxx", (*MEASURE, "--init", "frozen"), before_measuring=True),
    glue("not the official number of rows", f"{HEADER}\n0\ta\tb\tentailment\n",
         "it has 1 row, but RTE's official dev split has 277", OFFICIAL),
    BadInput("GLUE: a task's own folder", ("report", *COMMON, "--glue", "{glue}/RTE"), "give its parent folder"),
    BadInput("GLUE: no such task in it", ("measure", "scores", "--task", "sst2", *COMMON), "SST-2/"),
    frames("empty", "f.jsonl", ("{room}/f.jsonl", "contains no sentences"), written("f.jsonl", "")),
    frames("a line cut off", "f.jsonl", "line 1: not valid JSON", written("f.jsonl", '{"sentence": "Ann"')),
    frames("a key given twice", "f.jsonl", "line 1: not valid JSON (duplicate key 'sentence')",
           written("f.jsonl", '{"sentence": "Ann", "sentence": "Bob", "target": "Ann", "core_elements": ["Ann"]}')),
    frames("an empty folder", "fn", "no FrameNet in", lambda room: (room.folder / "fn").mkdir()),
    BadInput("frames: an empty folder, for claims that skip it", (*CLAIM, "--frames", "{room}/fn"), "no FrameNet in",
             lambda room: (room.folder / "fn").mkdir()),
    BadInput("frames: a damaged line, for claims that skip it", (*CLAIM, "--frames", "{room}/f.jsonl"),
             "line 1: not valid JSON", written("f.jsonl", "{")),
    frames("an archive", "fn.tar.gz", "{room}/fn.tar.gz is neither a JSONL", written("fn.tar.gz", "x")),
]  # fmt: skip

# ---------------------------------------------------------------------- options


def option(name, command, says, **more) -> BadInput:
    return BadInput(f"option: {name}", command, says, **more)


def pyproject(text, says) -> BadInput:
    make = written("pyproject.toml", f"[tool.bertsecrets]\n{text}\n")
    return BadInput(f"pyproject.toml: {text}", PLAN, says, make)


OPTIONS = [
    option("no command", (), "--help"),
    option("no measure", ("measure",), "--help"),
    option("a word for a number", (*MEASURE, "--limit", "many"), "--help"),
    option("an unknown option", ("claims", "--colour"), ("unknown option --colour", "(see bertsecrets claims --help)")),
    option("a misspelt option", ("report", "--modle=x"), ("did you mean --model", "(see bertsecrets report --help)")),
    option("a misspelt option of an action", ("store", "ls", "--jsn"), ("did you mean --json", "store ls --help)")),
    option("a null byte", ("measure", "scores", "--task", "a\0b"), "word 4 of the command"),
    option("a lone surrogate", ("measure", "scores", "--task", "\udcff"), ("word 4 of the command", "PYTHONUTF8=1")),
    option("an empty path", ("corpus", ""), "the path is empty: give the path of a file or folder"),
    option("a long path", ("report", "--glue", "d/" * 3000), "is too long for a path"),
    option("a long name of a task", ("measure", "scores", "--task", "t" * 5000, *COMMON), "unknown task"),
    option("a task's near matches", ("measure", "scores", "--task", "rtee", *COMMON), "did you mean rte"),
    option("a claim's near matches", ("explain", "C1-rt"), "unknown claim 'C1-rt': did you mean C1-rte"),
    option("wide digits of a limit", (*MEASURE, "--limit", "\u0663"), "is not a whole number"),
    option("a very long seed", (*MEASURE, "--seed", "9" * 5000), "is not a whole number"),
    option("a seed out of range", (*FINETUNE, "--seed", str(2**32)), f"seed {2**32} is out of range"),
    option("too many seeds", (*CLAIM, "--seeds", "100000"), "seeds 100000 is out of range: give 1 to 100"),
    option("a budget without auto", (*CLAIM, "--seeds", "3", "--budget", "1h"), "auto, or leave out `budget`"),
    *(option(f"a budget of {budget!r}", (*CLAIM, "--seeds", "auto", f"--budget={budget}"),
             f"budget {budget!r} is not a duration: give one such as 90s, 20min or 2h")
      for budget in ("20", "0min")),
    option("an unknown precision", (*FINETUNE, "--precision", "float16"), ("unknown precision 'float16'", "bfloat16")),
    option("no jobs", (*RUN, "--jobs", "0"), "jobs 0 is out of range: give 1 to"),
    option("no threads", (*PLAN, "--threads", "0"), "threads 0 is out of range"),
    option("GPUs of this machine", (*RUN, "--gpus", "1"), "--gpus requires --ray: to choose the device"),
    option("no frames to plan with", ("plan", "--claim", "B1", *COMMON), "frame-heads needs the option frames"),
    option("no claim on this task", (*PLAN, "--claim", "G5"), "no claim matches"),
    option("one file for two models", (*CLAIM, "--model", "minilm", "--json", "{room}/v.json"),
           "--json can be used only with a single --model: leave it out"),
    option("a second model missing", (*CLAIM, "--model", "{room}/none"), "no model folder at", before_measuring=True),
    option("more examples than are measured", (*CLAIM, "--html", "x.html", "--examples", "7"),
           "argument --examples: 7 is out of range: give 0 to 6"),
    option("a device without data", (*MEASURE, "--device", "meta"), "device 'meta' is not available"),
    option("no name of a measure's option", (*SCORES, "--option", "="), "NAME=VALUE"),
    option("an unknown option of a measure", (*MEASURE, "--option", "padded-to=50"),
           "measure scores has no option padded_to"),
    option("it is given twice", (*SCORES, "--option", "cased=true", "--option", "cased=false"), "is given twice"),
    option("all measures and no folder", ("measure", "all", "--task", "rte", *COMMON), "--save DIR"),
    option("heads of all measures", ("measure", "all", "--task", "rte", "--save", "k", "--heads", "1.1", *COMMON),
           "option heads cannot be used with `measure all`"),
    option("a seed of saved measurements", ("report", "--seed", "1", *COMMON), "no effect without --measurements"),
    option("no heads", (*HEADS, "--init", "untrained", "--heads= "), "no heads given"),
    option("wide digits", (*HEADS, "--init", "untrained", "--heads=１.１"), "is not a head"),
    option("a head outside, before training", (*HEADS, "--init", "frozen", "--heads", "1.1 9.1"),
           "'9.1' does not exist: the model has layers 1 to 3", before_measuring=True),
    *(option(f"OMP_NUM_THREADS={value}", SCORES, ("OMP_NUM_THREADS", "give 1 to 1024"),
             environment=(("OMP_NUM_THREADS", value),)) for value in ("abc", "2000")),
    option("verdicts and a pin", ("compare", "{room}/v.json", PIN), "give two files of verdicts"),
    *(option(f"{name}={value}", (*PLAN[:3], *more), f"bertsecrets: {name} in the environment: {says}",
             environment=((name, value),)) for name, value, more, says in (
        ("BERTSECRETS_JOBS", "0", COMMON, "jobs 0 is out of range"),
        ("BERTSECRETS_MODEL", "x@", COMMON[2:], "x@ has no revision"),
        ("BERTSECRETS_GLUE", "none", (*COMMON[:2], *COMMON[4:]), "no GLUE folder"),
        ("BERTSECRETS_STORE", "{glue}/RTE/dev.tsv", (*COMMON[:4], *COMMON[6:]), "cannot use the store {glue}"),
        ("BERTSECRETS_FRAMES", "none", COMMON, "none does not exist"),
    )),
    option("an update of no baseline", ("report", *COMMON, "--update-baseline"), "name it with --baseline"),
    option("a baseline missing", ("report", *COMMON, "--baseline", "none.json"), "no baseline none.json"),
    pyproject("glue = []", "glue is empty"),
    pyproject('modle = "x"', "unknown option 'modle' in this table: did you mean model"),
    pyproject("limit = 0", "limit must be at least 1, not 0"),
    pyproject("model = [1", "pyproject.toml: "),
    pyproject("budget = '2h'", "unknown option 'budget' in this table: known: model"),
    pyproject("train-limit = 5\ntrain_limit = 6", "duplicate key 'train_limit'"),
]  # fmt: skip

# ---------------------------------------------------------------------- outputs


def output(name, words, says, make=lambda room: None) -> BadInput:
    return BadInput(f"output: {name}", words, says, make, before_measuring=True)


NOWHERE = ("--store", "/proc/store", "--output", "{room}/pin.yaml")


def loop(room: Room) -> None:
    (room.folder / "loop").symlink_to("loop")


OUTPUTS = [
    output("--html and --json to one file", (*CLAIM, "--html", "{room}/x", "--json", "{room}/./x"), "two outputs to"),
    output("--html to a folder", (*CLAIM, "--html", "{room}"), "it is a folder, not a file"),
    output("--html below a file", (*CLAIM, "--html", "{glue}/RTE/dev.tsv/out"), "cannot write {glue}/RTE/dev.tsv/out"),
    output("--html to a full device", (*CLAIM, "--html", "/dev/full"), "cannot write /dev/full"),
    output("--json in a missing folder", (*CLAIM, "--json", "{room}/none/x"), "the folder {room}/none does not exist"),
    output("--json of a measure in one", (*SCORES, "--json", "{room}/none/x"), "the folder {room}/none does not exist"),
    output(
        "--json of a comparison",
        ("compare", "a", "b", "--json", "{room}/none/x"),
        "the folder {room}/none does not exist",
    ),
    output("--json in a loop of links", (*SCORES, "--json", "loop"), "cannot write loop", loop),
    output("--save to a file", (*SCORES, "--save", "{room}/x"), "cannot write {room}/x", written("x", "mine")),
    output("--save to no place", (*SCORES, "--save", "/proc/saved"), "cannot write /proc/saved"),
    output("--output to no place", (*FINETUNE, "--output", "/proc/model"), "cannot write /proc/model"),
    output("--output to a file", (*FINETUNE, "--output", "{room}/x"), "a file exists where", written("x", "mine")),
    output(
        "--output to a folder of the user",
        (*FINETUNE, "--output", "{room}"),
        "choose a new folder",
        written("x", "mine"),
    ),
    output("--store to no place", (*SCORES, "--store", "/proc/store"), "cannot write /proc/store"),
    output("--store of a report", (*CLAIM, "--store", "/proc/store"), "cannot write /proc/store"),
    BadInput(
        "output: --store of a pin",
        ("pin", "--reason", "x", "--seeds", "2", *COMMON, *NOWHERE, "--threads", "1"),
        "cannot write /proc/store",
        environment=(("BERTSECRETS_JOBS", "2"),),
    ),
    output("--store to a file", (*SCORES, "--store", "{room}/x"), "a file exists where a folder", written("x", "mine")),
]

ROWS = [*SETTINGS, *CLAIMS, *MODELS, *CLASSIFIER, *TEXTS, *OPTIONS, *OUTPUTS]


@pytest.fixture(scope="module")
def store(tmp_path_factory) -> Path:
    return tmp_path_factory.mktemp("store") / "runs"


@pytest.mark.usefixtures("quick")
@pytest.mark.parametrize("bad", ROWS, ids=str)
def test_a_bad_input_is_one_line(bad, tmp_path, tiny_bert, tiny_glue, store, monkeypatch):
    if "/dev/full" in bad.command and not Path("/dev/full").exists():
        pytest.skip("needs a device that is full")
    if bad.before_measuring:
        monkeypatch.setattr(CheckpointCache, "get", lambda *_: pytest.fail("trained first"))
        monkeypatch.setattr(MeasurementCache, "_made", lambda *_: pytest.fail("measured first"))
    told(bad, Room(tmp_path, tiny_bert, tiny_glue, store), monkeypatch)
