"""Bad settings, claims, sets of heads, attention maps, labels of maps, and weights of the pattern classifier."""

import functools
import io
import json
import shutil
import zipfile

import numpy as np
from bad_input import COMMON, BadInput
from packed import npy
from patterned import pattern_set
from safetensors.numpy import load_file, save_file

from bertsecrets.claims.schema import load_claims
from bertsecrets.patterns.classifier import REPORT, SHIPPED, weights_path
from bertsecrets.settings import project_path
from bertsecrets.store.files import file_sha256
from instruments.annotation.writing import save_set

# ---------------------------------------------------------------------- settings

PARAMS = project_path("params.yaml").read_text(encoding="utf-8")
CHANGES = {
    "a name given twice": ("epochs: 3", "epochs: 3\n  epochs: 4", "duplicate key 'epochs'"),
    "yes for a number": (
        "epochs: 3",
        "epochs: yes",
        "finetune: epochs must be a number or a string",
    ),
    "a billion rows": ("train_rows: 1600", "train_rows: 1000000000", "corpus.train_rows"),
    "an input shorter than its special tokens": ("max_length: 128", "max_length: 2", "max_length"),
    "100 000 lists": ("epochs: 3", "epochs: " + "[" * 100_000, ", line "),
    "100 000 closed lists": ("epochs: 3", f"epochs: {'[' * 100_000}{']' * 100_000}", ", line "),
    "100 000 lists in blocks": ("epochs: 3", f"epochs:\n    {'- ' * 100_000}", ", line "),
    "100 000 mappings": ("epochs: 3", "epochs: " + "{a: " * 100_000, ", line "),
    "Python code": ("epochs: 3", "epochs: !!python/object/apply:os.system ['true']", "not valid YAML"),
}
DOCUMENTS = {
    "empty": ("", "{room}/params.yaml: "),
    "Latin-1": (b"model: caf\xe9\n", "line 1: not UTF-8"),
    "10 MiB": (" " * 10 * 2**20, "is larger than 8 MiB"),
}
SETTINGS = [
    BadInput(
        f"settings: {name}",
        ("corpus", "{room}/corpus"),
        ("{room}/params.yaml", says),
        functools.partial(lambda content, room: room.file("params.yaml", content), content),
        (("BERTSECRETS_PARAMS", "{room}/params.yaml"),),
    )
    for name, (content, says) in {
        **{name: (PARAMS.replace(old, new, 1), says) for name, (old, new, says) in CHANGES.items()},
        **DOCUMENTS,
    }.items()
]
assert all(old in PARAMS for old, _, _ in CHANGES.values())

# ---------------------------------------------------------------------- claims

CLAIM = """
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
CLAIM_CHANGES = {
    "an unknown entry with a line end": ("source:", '"sau\\nce": 1\n  source:', "sau ce"),
    "an unknown argument": (
        "quantity: score",
        "quantity: score\n  arguments: {size: 3}",
        "arguments of quantity score",
    ),
    "a figure that is not a number": ("64.6,", ".nan,", "tasks.rte.published: "),
}


def claims(content, room):
    room.file("expected/D.yaml", content)
    load_claims.cache_clear()


CLAIMS = [
    BadInput(
        f"claims: {name}",
        ("claims",),
        ("{room}/expected/D.yaml", says),
        functools.partial(claims, CLAIM.replace(old, new, 1)),
        (("BERTSECRETS_EXPECTED", "{room}/expected"),),
    )
    for name, (old, new, says) in CLAIM_CHANGES.items()
]
assert all(old in CLAIM for old, _, _ in CLAIM_CHANGES.values())

# ---------------------------------------------------------------------- sets of heads

HEADS = {
    "": "no heads given",
    "1.5": "with heads 1 to 4",
    "0.1": "'0.1' does not exist",
    "１.１": "is not a head",
}
SETS_OF_HEADS = [
    BadInput(
        f"heads: {text[:20]!r} of {len(text)}",
        ("measure", "head-ablation", "--task", "rte", "--init", "untrained", *COMMON, f"--heads={text or ' '}"),
        says,
    )
    for text, says in HEADS.items()
]

# ---------------------------------------------------------------------- P20's maps


SQUARE = np.full((3, 3), 1 / 3, dtype=np.float32)


def p20(labels, array, room):
    room.file("p20/raw/labels.txt", labels)
    room.file("p20/raw/maps/0001.npy", array)


IMPORT = ("instruments", "import-patterns", "{room}/p20", "{room}/set")
PICKLE = npy(np.array([[{}]], dtype=object), allow_pickle=True)
MAPS = [
    BadInput("P20: a pickle", IMPORT, "line 1: 0001.npy", functools.partial(p20, "vertical = 1\n", PICKLE)),
    BadInput("P20: no equals sign", IMPORT, "line 1: no '='", functools.partial(p20, "vertical 1\n", npy(SQUARE))),
]

# ---------------------------------------------------------------------- sets of maps


def rewritten_maps(change, room):
    """Save a set of maps after `change` has modified its arrays in place, or with the bytes that `change` returns."""
    save_set(pattern_set(10), room.folder / "set")
    path = room.folder / "set" / "maps-0001.npz"
    with np.load(path) as file:
        arrays = dict(file)
    content = change(arrays)
    path.write_bytes(content if isinstance(content, bytes) else npz(arrays))


def npz(arrays) -> bytes:
    file = io.BytesIO()
    np.savez(file, **arrays)
    return file.getvalue()


NPZ = {
    "no values": lambda arrays: arrays.__delitem__("values"),
    "names that are numbers": lambda arrays: arrays.update(names=np.arange(10)),
    "tokens below zero": lambda arrays: arrays.update(tokens=-arrays["tokens"]),
    "tokens of billions": lambda arrays: arrays.update(tokens=arrays["tokens"] + 2**30),
    "a table of names": lambda arrays: arrays.update(names=arrays["names"][None]),
    "values too few": lambda arrays: arrays.update(values=arrays["values"][:-1]),
    "values that are not numbers": lambda arrays: arrays.update(values=arrays["values"] * np.nan),
    "one name twice": lambda arrays: arrays.update(names=arrays["names"][[0, 0, *range(2, 10)]]),
}


def bomb(room):
    """Save a set whose values unpack to 513 MiB of zeros."""
    save_set(pattern_set(10), room.folder / "set")
    with zipfile.ZipFile(room.folder / "set" / "maps-0001.npz", "w", zipfile.ZIP_DEFLATED) as archive:
        with archive.open("values.npy", "w", force_zip64=True) as member:
            for _ in range(513):
                member.write(bytes(2**20))


SHEETS = ("instruments", "sheets", "{room}/set", "{room}/out")
SETS = [
    BadInput(
        f"maps: {name}",
        SHEETS,
        "{room}/set/maps-0001.npz is damaged (",
        functools.partial(rewritten_maps, change),
    )
    for name, change in NPZ.items()
]
SETS.append(BadInput("maps: a bomb", SHEETS, "values.npy unpacks to more than 512 MiB", bomb, slow=True))

# ---------------------------------------------------------------------- the pattern classifier


def corrupted(change, room):
    """Write a classifier with changed tensors or facts, and update the digest in its report."""
    folder = room.folder / "classifier"
    shutil.copytree(SHIPPED, folder)
    weights = weights_path(folder, "stripes")
    tensors = load_file(weights)
    with weights.open("rb") as file:
        size = int.from_bytes(file.read(8), "little")
        facts = json.loads(json.loads(file.read(size))["__metadata__"]["facts"])
    content = change(tensors, facts)
    if isinstance(content, bytes):
        weights.write_bytes(content)
    else:
        save_file(tensors, weights, {"facts": content or json.dumps(facts)})
    report = json.loads((folder / REPORT).read_text())
    report["readings"]["stripes"]["weights_sha256"] = file_sha256(weights)
    room.file(f"classifier/{REPORT}", json.dumps(report))


def within(name, change):
    return lambda tensors, facts: tensors.update({name: change(tensors[name])})


WEIGHT_CHANGES = {
    "facts that are not JSON": (lambda tensors, facts: "{", "is damaged"),
    "facts that are a list": (lambda tensors, facts: "[]", "was trained with the features"),
    "no depth": (lambda tensors, facts: json.dumps({**facts, "depth": None}), "a depth of None"),
    "a temperature of zero": (lambda tensors, facts: facts.update(temperature=0.0), "its temperature is 0.0"),
    "a tensor missing": (lambda tensors, facts: tensors.__delitem__("linear.bias"), "unexpected names or shapes"),
    "no trees": (within("trees.roots", lambda roots: roots[:0]), "unexpected names or shapes"),
    "a node outside": (within("trees.left", lambda nodes: nodes + 10**6), "trees.left has an index out of range"),
    "a feature outside": (
        within("trees.feature", lambda nodes: nodes + 1000),
        "trees.feature has an index out of range",
    ),
    "nodes with a point": (within("trees.left", lambda nodes: nodes.astype(np.float32)), "trees.left has the type"),
    "NaN": (within("linear.weight", lambda weight: weight * np.nan), "linear.weight is not finite"),
}


CLASSIFIER = [
    BadInput(
        f"classifier: {name}",
        ("measure", "pattern-quality", "--store", "{store}", "--offline"),
        ("{room}/classifier/stripes.safetensors", says),
        functools.partial(corrupted, change),
        (("BERTSECRETS_PATTERNS", "{room}/classifier"),),
    )
    for name, (change, says) in WEIGHT_CHANGES.items()
]

ROWS = [*SETTINGS, *CLAIMS, *SETS_OF_HEADS, *MAPS, *SETS, *CLASSIFIER]
