"""Bad inputs around settings, claims, sets of heads, attention maps and their labels, and the pattern classifier."""

import functools
import io
import json
import shutil
import zipfile

import numpy as np
from bad_input import COMMON, BadInput
from patterned import pattern_set
from safetensors.numpy import load_file, save_file

from bertsecrets.claims.schema import load_claims
from bertsecrets.patterns.classifier import REPORT, SHIPPED, weights_path
from bertsecrets.settings import project_path
from bertsecrets.store.files import file_sha256

# ---------------------------------------------------------------------- settings

PARAMS = project_path("params.yaml").read_text(encoding="utf-8")
CHANGES = {
    "no such name": ("warmup:", "warm_up:", "finetune.warm"),
    "a name given twice": ("epochs: 3", "epochs: 3\n  epochs: 4", "'epochs' is given twice"),
    "a section given twice": ("scores:", "finetune: {}\nscores:", "'finetune' is given twice"),
    "yes for a number": ("epochs: 3", "epochs: yes", "finetune: epochs is neither true nor false"),
    "true among seeds": ("seeds: auto", "seeds: [1, true]", "seeds is neither true nor false"),
    "a word for a number": ("epochs: 3", "epochs: three", "finetune.epochs"),
    "half an epoch": ("epochs: 3", "epochs: 2.5", "finetune.epochs"),
    "no seeds": ("seeds: auto", "seeds: []", "seeds"),
    "a billion resamples": ("resamples: 2000", "resamples: 1000000000", "judge.resamples: Input should be less than"),
    "few resamples": ("resamples: 2000", "resamples: 1", "judge.resamples: Input should be greater than"),
    "certainty": ("confidence: 0.95", "confidence: 1.0", "judge.confidence: Input should be less than 1"),
    "no certainty": ("confidence: 0.95", "confidence: .nan", "judge.confidence"),
    "infinite weight decay": ("weight_decay: 0.01", "weight_decay: .inf", "finetune.weight_decay"),
    "infinite clipping": ("max_gradient_norm: 1.0", "max_gradient_norm: .inf", "finetune.max_gradient_norm"),
    "a seed below zero": ("seed: 2019", "seed: -1", "judge.seed"),
    "a seed too large": ("seed: 2019", "seed: 4294967296", "judge.seed"),
    "a date that is none": ("epochs: 3", "epochs: 2019-99-99", "month must be in"),
    "a billion rows": ("train_rows: 1600", "train_rows: 1000000000", "corpus.train_rows"),
    "an unknown initialisation": ("[pretrained, random, untrained]", "[pretrainde]", "sets.demo.grid.init.0"),
    "a tab": ("  epochs: 3", "\tepochs: 3", "not valid YAML"),
    "Python code": ("epochs: 3", "epochs: !!python/object/apply:os.system ['true']", "not valid YAML"),
    "an unclosed bracket": ("finetune:", "finetune: [", "not valid YAML"),
}
BOMB = "a: &a0 [x, x]\n" + "".join(f"b{n}: &a{n} [{f'*a{n - 1}, ' * 10}]\n" for n in range(1, 10))
DOCUMENTS = {
    "empty": ("", "Input should be"),
    "a list": ("- 1\n", "Input should be"),
    "two documents": (PARAMS + "---\n" + PARAMS, "not valid YAML"),
    "5000 brackets": ("[" * 5000, "nested more than 50 deep"),
    "a million brackets": ("[" * 10**6, "nested more than 50 deep"),
    "500 whole brackets": ("[" * 500 + "]" * 500, "nested more than 50 deep"),
    "a bomb of aliases": (BOMB, "more than 200000 values, with its aliases written out"),
    "an alias of itself": ("model: &a [*a]\n", "an alias stands inside what it names"),
    "an unknown alias": ("model: *a\n", "not valid YAML"),
    "UTF-16": (PARAMS.encode("utf-16"), "not UTF-8"),
    "Latin-1": (b"model: caf\xe9\n", "line 1: not UTF-8"),
    "a null character": ("model: a\0b\n", "not valid YAML"),
    "10 MiB": (" " * 10 * 2**20, "is larger than 8 MiB"),
    "a list as name": ("? [a]\n: 1\n", "params.yaml"),
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
    "an unknown entry": ("how:", "hows:", "hows"),
    "an unknown entry with a line end": ("source:", '"sau\\nce": 1\n  source:', "sau ce"),
    "an entry given twice": ("  measure: scores", "  measure: scores\n  measure: scores", "'measure' is given twice"),
    "an unknown measure": ("measure: scores", "measure: skores", "did you mean scores"),
    "an unknown quantity": ("quantity: score", "quantity: skore", "unknown quantity 'skore'"),
    "an unknown argument": (
        "quantity: score",
        "quantity: score\n  arguments: {size: 3}",
        "arguments of quantity score",
    ),
    "an unknown task": ("rte:", "rtee:", "did you mean rte"),
    "a task that is a number": ("rte:", "7:", "tasks.7"),
    "no tasks": ("    rte: {published: 64.6, rounding: 0.05}", "    {}", "tasks"),
    "a figure that is not a number": ("64.6,", ".nan,", "tasks.rte.published: Input should be a finite number"),
    "an infinite figure": ("64.6,", ".inf,", "tasks.rte.published"),
    "yes for a figure": ("64.6,", "yes,", "published is neither true nor false"),
    "no figure": ("published: 64.6, ", "", "needs a published figure"),
    "a rounding below zero": ("0.05", "-0.05", "tasks.rte.rounding"),
    "a spread below zero": ("0.05", "0.05, seed_std: -1, seed_source: ours", "tasks.rte.seed_std"),
    "a spread without a source": ("0.05", "0.05, seed_std: 1", "seed_std needs its seed_source"),
    "no examples": ("sampling: score", "sampling: score, examples: 0", "expect.examples"),
    "an unknown kind": ("kind: around", "kind: near", "expect.kind"),
    "a wrong id": ("id: D1", "id: 1D", "id"),
    "no id": ("id: D1\n  ", "", "id"),
    "a statement of numbers": ("statement: Fine-tuned BERT scores 64.6 on RTE.", "statement: [1, 2]", "statement"),
    "a shape of one number": ("  measure:", "  needs_shape: [12]\n  measure:", "needs_shape"),
    "a shape below zero": ("  measure:", "  needs_shape: [12, -12]\n  measure:", "needs_shape"),
    "a date that is none": ("K19 table 1", "2019-99-99", "month must be in"),
}
CLAIM_FILES = {
    "empty": ("", "line 1: expected a list of claims"),
    "a mapping": ("id: D1\n", "line 1: expected a list of claims"),
    "a list of numbers": ("- 1\n", "line 1"),
    "the same claim twice": (CLAIM * 2, "claim D1 is defined twice"),
    "5000 brackets": ("- " + "[" * 5000, "nested more than 50 deep"),
    "a bomb of aliases": ("- " + BOMB.replace("\n", "\n  "), "more than 200000 values"),
    "cut off": (CLAIM[:-9], "not valid YAML"),
    "UTF-16": (CLAIM.encode("utf-16"), "not UTF-8"),
}


def claims(content, room):
    room.file("expected/D.yaml", content)
    load_claims.cache_clear()


CLAIMS = [
    BadInput(
        f"claims: {name}",
        ("claims",),
        ("{room}/expected/D.yaml", says),
        functools.partial(claims, content),
        (("BERTSECRETS_EXPECTED", "{room}/expected"),),
    )
    for name, (content, says) in {
        **{name: (CLAIM.replace(old, new, 1), says) for name, (old, new, says) in CLAIM_CHANGES.items()},
        **CLAIM_FILES,
    }.items()
]
assert all(old in CLAIM for old, _, _ in CLAIM_CHANGES.values())

# ---------------------------------------------------------------------- sets of heads

HEADS = {
    "": "no heads named", "1.": "'1.' is not a head", ".1": "'.1' is not a head", "1.2.3": "'1.2.3' is not a head",
    "1,2": "'1,2' is not a head", "-1.1": "is not a head", "1.-1": "is not a head", "1e1": "'1e1' is not a head",
    "0.1": "'0.1' is not in this model", "1.0": "'1.0' is not in this model", "4.1": "it has layers 1 to 3",
    "1.5": "and heads 1 to 4 in each", "9" * 5000: "999' is not a head", "1." + "9" * 5000: "is not a head",
    "٣": "'٣' is not a head", "１.１": "is not a head", "1+": "'' is not a head", "+": "'' is not a head",
    "pairs": "'pairs' is not a head", "pairs:": "is not a set of heads", "pairs:1.2": "is not a set of heads",
    "pairs:9": "'9' is not in this model", "pairs:" + "9" * 5000: "is not a head", "nested:": "'' is not a head",
    "nested:1.1,,2": "'' is not a head", "heads:1": "'heads:1' is not a set of heads",
    "x" * 5000: "xxx' is not a head", "1.1 1.2 1.x": "'1.x' is not a head", "pairs:１": "is not a head",
}  # fmt: skip
SETS_OF_HEADS = [
    BadInput(
        f"heads: {text[:20]!r} of {len(text)}",
        ("measure", "head-ablation", "--task", "rte", "--init", "untrained", *COMMON, f"--heads={text or ' '}"),
        says,
    )
    for text, says in HEADS.items()
]

# ---------------------------------------------------------------------- P20's maps


def npy(values, **how) -> bytes:
    file = io.BytesIO()
    np.save(file, values, **how)
    return file.getvalue()


SQUARE = np.full((3, 3), 1 / 3, dtype=np.float32)
GOOD = npy(SQUARE)


def header(text: str, data: bytes = SQUARE.tobytes()) -> bytes:
    """Return an .npy file with any text as its header."""
    line = text.encode().ljust(117) + b"\n"
    return b"\x93NUMPY\x01\x00" + len(line).to_bytes(2, "little") + line + data


ARRAYS = {
    "empty": b"",
    "a text": b"attention",
    "cut inside the header": GOOD[:40],
    "cut inside the values": GOOD[:-4],
    "bytes after the values": GOOD + b"\0",
    "a pickle": npy(np.array([[{}]], dtype=object), allow_pickle=True),
    "an .npz in disguise": (lambda file: (np.savez(file, SQUARE), file.getvalue())[1])(io.BytesIO()),
    "a header of brackets": header("(" * 100),
    "a header that is no Python": header("{'descr': '<f4', 'fortran_order': False, 'shape': (3, 3"),
    "a header with an open text": header("{'descr': '''<f4"),
    "a header without a shape": header("{'descr': '<f4', 'fortran_order': False}"),
    "a shape below zero": header("{'descr': '<f4', 'fortran_order': False, 'shape': (-3, -3)}"),
    "a shape of 10^40": header(f"{{'descr': '<f4', 'fortran_order': False, 'shape': (1{'0' * 40}, 3)}}"),
    "a shape of terabytes": header("{'descr': '<f4', 'fortran_order': False, 'shape': (1000000, 1000000)}"),
    "a shape of nothing times much": header("{'descr': '<f4', 'fortran_order': True, 'shape': (0, 10000000000)}", b""),
    "an unknown type": header("{'descr': '<q9', 'fortran_order': False, 'shape': (3, 3)}"),
    "code as a type": header("{'descr': exit(), 'fortran_order': False, 'shape': (3, 3)}"),
    "texts of no length": header("{'descr': '<U0', 'fortran_order': False, 'shape': (1000000, 1000000)}", b""),
    "one number": npy(np.float32(1)),
    "a vector": npy(SQUARE[0]),
    "not square": npy(SQUARE[:2]),
    "three dimensions": npy(SQUARE[None]),
    "nothing": npy(np.zeros((0, 0), np.float32)),
    "texts": npy(np.full((3, 3), "a")),
    "truth values": npy(SQUARE > 0),
    "complex numbers": npy(SQUARE.astype(np.complex64)),
    "dates": npy(np.full((3, 3), "2019-01-01", dtype="datetime64[D]")),
    "records": npy(np.zeros((3, 3), dtype=[("a", "f4")])),
    "NaN": npy(SQUARE * np.nan),
    "infinite": npy(SQUARE * np.inf),
    "below zero": npy(-SQUARE),
    "1e300": npy(np.full((3, 3), 1e300)),
}  # fmt: skip
LABELS = {
    "no equals sign": ("vertical 1\n", "labels.txt, line 1: no '='"),
    "an unknown label": ("swirl = 1\n", "labels.txt, line 1: unknown label 'swirl'"),
    "no label": (" = 1\n", "labels.txt, line 1: unknown label ''"),
    "a name twice": ("vertical = 1, 1\n", "'0001' is named twice"),
    "a map that is missing": ("vertical = 1\nblock = 2\n", "labels.txt, line 2: 0002.npy is missing"),
    "no names": ("vertical =\n", "names no maps"),
    "empty": ("", "names no maps"),
    "a name of 5000 characters": ("vertical = " + "x" * 5000, "cannot be the name of a map"),
    "a name with a tab": ("vertical = a\tb\n", "cannot be the name of a map"),
    "another folder's name": ("vertical = ../0001\n", ".npy is missing"),
    "Latin-1": (b"vertical = 1\nblock = \xe9\n", "labels.txt, line 2: not UTF-8"),
    "UTF-16": ("vertical = 1\n".encode("utf-16"), "not UTF-8"),
}


def p20(labels, array, room):
    room.file("p20/raw/labels.txt", labels)
    room.file("p20/raw/maps/0001.npy", array)


IMPORT = ("import-patterns", "{room}/p20", "{room}/set")
MAPS = [
    BadInput(f"P20: {name}", IMPORT, "labels.txt, line 1: 0001.npy", functools.partial(p20, "vertical = 1\n", array))
    for name, array in ARRAYS.items()
] + [
    BadInput(f"P20 labels: {name}", IMPORT, ("{room}/p20", says), functools.partial(p20, labels, GOOD))
    for name, (labels, says) in LABELS.items()
]

# ---------------------------------------------------------------------- sets of maps

ROW = "vertical_0\tmodel\trte\tfine-tuned\t1\t1\t0\t12\t7\t"
TSV = {  # by name: a text of annotations.tsv, what stands in its place, a part of the line
    "another header": ("name\t", "nom\t", "line 1: expected the tab-separated columns"),
    "a field too many": ("\tfine-tuned\t", "\tfine-tuned\t\t", "line 2: 14 fields where 13 were expected"),
    "an unknown state": ("fine-tuned", "tuned", "line 2: unknown state 'tuned'"),
    "an unknown label": ("\tvertical\t", "\tswirl\t", "unknown label 'swirl'"),
    "two labels in one column": ("\tvertical\t", "\tvertical block\t", "unknown label 'vertical block'"),
    "5000 digits": ("\t1\t", "\t" + "9" * 5000 + "\t", "is not a whole number"),
    "digits of another script": ("\t1\t", "\t٣\t", "'٣' is not a whole number"),
    "a number below zero": ("\t1\t", "\t-1\t", "'-1' is not a whole number"),
    "other tokens": ("\t12\t", "\t13\t", "13 tokens, but its map has 12"),
    "a boundary outside": ("\t7\t", "\t77\t", "boundary 77 is outside 1 to 12"),
}


def changed_rows(old, new, room):
    pattern_set(10).save(room.folder / "set")
    path = room.folder / "set" / "annotations.tsv"
    text = path.read_text()
    assert old in text
    path.write_text(text.replace(old, new, 1))


def rewritten_maps(change, room):
    pattern_set(10).save(room.folder / "set")
    path = room.folder / "set" / "maps-0001.npz"
    with np.load(path) as file:
        arrays = dict(file)
    content = change(arrays)
    path.write_bytes(content if isinstance(content, bytes) else npz(arrays))


def npz(arrays) -> bytes:
    file = io.BytesIO()
    np.savez(file, **arrays)
    return file.getvalue()


def marked(local: int, value: int, arrays) -> bytes:
    """Return an .npz with a byte of every member's two headers changed; that of the directory lies 2 further on."""
    data = bytearray(npz(arrays))
    for mark, place in ((b"PK\x03\x04", local), (b"PK\x01\x02", local + 2)):
        start = 0
        while (start := data.find(mark, start)) >= 0:
            data[start + place] |= value
            start += 4
    return bytes(data)


NPZ = {
    "empty": lambda arrays: b"",
    "a text": lambda arrays: b"maps",
    "an .npy in disguise": lambda arrays: npy(arrays["values"]),
    "cut off": lambda arrays: npz(arrays)[:-30],
    "encrypted": functools.partial(marked, 6, 1),
    "an unknown compression": functools.partial(marked, 8, 99),
    "no values": lambda arrays: (arrays.pop("values"), None)[1],
    "names that are numbers": lambda arrays: arrays.update(names=np.arange(10)),
    "tokens that are numbers with a point": lambda arrays: arrays.update(tokens=arrays["tokens"] * 1.0),
    "tokens below zero": lambda arrays: arrays.update(tokens=-arrays["tokens"]),
    "tokens of billions": lambda arrays: arrays.update(tokens=arrays["tokens"] + 2**30),
    "one map of tokens": lambda arrays: arrays.update(tokens=arrays["tokens"][:1]),
    "a table of names": lambda arrays: arrays.update(names=arrays["names"][None]),
    "values that are texts": lambda arrays: arrays.update(values=arrays["values"].astype(str)),
    "values too few": lambda arrays: arrays.update(values=arrays["values"][:-1]),
    "values of 1e300": lambda arrays: arrays.update(values=np.full(1440, 1e300)),
    "values that are not numbers": lambda arrays: arrays.update(values=arrays["values"] * np.nan),
    "values below zero": lambda arrays: arrays.update(values=-arrays["values"]),
    "one name twice": lambda arrays: arrays.update(names=arrays["names"][[0, 0, *range(2, 10)]]),
}


def no_return(change):
    """Changes of the arrays return nothing; whole files return bytes."""
    return lambda arrays: content if isinstance(content := change(arrays), bytes) else None


def bomb(room):
    """A set whose values unpack to 513 MiB of zeros."""
    pattern_set(10).save(room.folder / "set")
    with zipfile.ZipFile(room.folder / "set" / "maps-0001.npz", "w", zipfile.ZIP_DEFLATED) as archive:
        with archive.open("values.npy", "w", force_zip64=True) as member:
            for _ in range(513):
                member.write(bytes(2**20))


SHEETS = ("sheets", "{room}/set", "{room}/out")
SETS = [
    BadInput(f"annotations: {name}", SHEETS, ("annotations.tsv", says), functools.partial(changed_rows, old, new))
    for name, (old, new, says) in TSV.items()
] + [
    BadInput(
        f"maps: {name}",
        SHEETS,
        "{room}/set/maps-0001.npz is damaged (",
        functools.partial(rewritten_maps, no_return(change)),
    )
    for name, change in NPZ.items()
]
SETS.append(BadInput("maps: a bomb", SHEETS, "values.npy unpacks to more than 512 MiB", bomb))

# ---------------------------------------------------------------------- the pattern classifier


def spoilt(change, room):
    """Change the classifier's tensors or facts, and let the report name the changed file."""
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
    "empty": (lambda tensors, facts: b"", "is damaged"),
    "a pickle": (lambda tensors, facts: b"\x80\x04N.", "is damaged"),
    "facts that are a list": (lambda tensors, facts: "[]", "was trained on other features"),
    "facts that are not JSON": (lambda tensors, facts: "{", "is damaged"),
    "other features": (lambda tensors, facts: facts.update(features="x"), "was trained on other features"),
    "no depth": (lambda tensors, facts: json.dumps({**facts, "depth": None}), "a depth of None"),
    "a depth of billions": (lambda tensors, facts: facts.update(depth=10**12), "a depth of 1000000000000"),
    "a temperature of zero": (lambda tensors, facts: facts.update(temperature=0.0), "its temperature is 0.0"),
    "a temperature in words": (lambda tensors, facts: facts.update(temperature="hot"), "its temperature is hot"),
    "a tensor too many": (lambda tensors, facts: tensors.update(extra=SQUARE), "other names or shapes"),
    "a tensor missing": (lambda tensors, facts: tensors.pop("linear.bias") * 0, "other names or shapes"),
    "fewer nodes": (within("trees.left", lambda nodes: nodes[:-1]), "other names or shapes"),
    "no trees": (within("trees.roots", lambda roots: roots[:0]), "other names or shapes"),
    "a node outside": (within("trees.left", lambda nodes: nodes + 10**6), "trees.left points outside"),
    "a feature outside": (within("trees.feature", lambda nodes: nodes + 1000), "trees.feature points outside"),
    "a node below zero": (within("trees.right", lambda nodes: nodes - 1), "trees.right points outside"),
    "nodes with a point": (within("trees.left", lambda nodes: nodes.astype(np.float32)), "trees.left has the type"),
    "NaN": (within("linear.weight", lambda weight: weight * np.nan), "linear.weight is not finite"),
}


def without_tensor(change):
    return lambda tensors, facts: content if isinstance(content := change(tensors, facts), bytes | str) else None


CLASSIFIER = [
    BadInput(
        f"classifier: {name}",
        ("measure", "patterns", "--task", "rte", "--init", "untrained", *COMMON),
        ("{room}/classifier/stripes.safetensors", says),
        functools.partial(spoilt, without_tensor(change)),
        (("BERTSECRETS_PATTERNS", "{room}/classifier"),),
    )
    for name, (change, says) in WEIGHT_CHANGES.items()
]

ROWS = [*SETTINGS, *CLAIMS, *SETS_OF_HEADS, *MAPS, *SETS, *CLASSIFIER]
