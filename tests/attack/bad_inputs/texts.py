"""Bad texts: GLUE files, frame sentences, FrameNet folders, archives and treebanks."""

import functools

from bad_input import COMMON, BadInput
from treebank_sample import HEADS, TREES

# ---------------------------------------------------------------------- GLUE

HEADER = "index\tsentence1\tsentence2\tlabel"


def glue(name, content, says, options=COMMON):
    def make(room):
        room.own_glue()
        room.file("glue/RTE/dev.tsv", content)

    command = ("measure", "scores", "--task", "rte", "--init", "untrained", *options)
    return BadInput(f"GLUE: {name}", command, ("{glue}/RTE/dev.tsv", says), make)


GLUE = [
    glue("spaces for tabs", HEADER.replace("\t", " ") + "\n0 a b entailment\n", "line 1: no column 'sentence1'"),
    glue("label of a million characters", f"{HEADER}\n0\ta\tb\t{'x' * 10**6}\n", "unknown label 'xxxx"),
    glue(
        "not the official number of rows",
        f"{HEADER}\n0\ta\tb\tentailment\n",
        "1 rows where RTE's official dev split has 277",
        options=COMMON[:-1],
    ),
    BadInput("GLUE: a task's own folder", ("report", *COMMON, "--glue", "{glue}/RTE"), "give its parent folder"),
]

# ---------------------------------------------------------------------- frames

FRAME_HEADS = ("measure", "frame-heads", "--model", "{model}", "--store", "{store}", "--device", "cpu", "--offline")


def written(file, content):
    return lambda room: room.file(file, content)


def frames(name, file, says, make):
    return BadInput(f"frames: {name}", (*FRAME_HEADS, "--frames", "{room}/" + file), says, make)


JSON_LINES = [
    frames("empty", "frames.jsonl", ("{room}/frames.jsonl", "contains no sentences"), written("frames.jsonl", "")),
    frames("a line cut off", "frames.jsonl", "line 1: not valid JSON", written("frames.jsonl", '{"sentence": "Ann"')),
]

FRAMENET = [
    frames("FrameNet: an empty folder", "fn", "no FrameNet in", lambda room: (room.folder / "fn").mkdir()),
    frames(
        "an archive", "fn.tar.gz", "{room}/fn.tar.gz is neither a JSONL file nor a folder", written("fn.tar.gz", "x")
    ),
]

# ---------------------------------------------------------------------- the treebank

BANK = {"treebank/wsj_1.mrg": TREES, "dependency_treebank/wsj_1.dp": HEADS}


def heads(old, new):
    assert old in HEADS
    return {"dependency_treebank/wsj_1.dp": HEADS.replace(old, new)}


def trees(text):
    return {"treebank/wsj_1.mrg": text}


LONG = {"treebank/wsj_1.mrg": f"(S {'(NN a) ' * 2000})", "dependency_treebank/wsj_1.dp": "a\tNN\t0\n" * 2000}
ONE = {
    "treebank/wsj_1.mrg": TREES.partition("\n( (S (NP-SBJ (PRP He")[0],
    "dependency_treebank/wsj_1.dp": HEADS.partition("\n\n")[0],
}
TREEBANK = {  # by name: files to change or delete (...), and part of the error message
    "nothing": (dict.fromkeys(BANK, ...), "no treebank.zip in"),
    "no common file": ({"treebank/wsj_1.mrg": ..., "treebank/wsj_2.mrg": TREES}, "no file is in both"),
    "a bracket too many": (trees(TREES + ")"), "brackets that do not match"),
    "a tree too many": (trees(TREES * 2), "4 trees for 2 sentences"),
    "a single sentence": (ONE, "has only one sentence"),
    "another word": (trees(TREES.replace("cat", "dog", 1)), "tree and dependencies differ"),
    "a head outside": (heads("cat\tNN\t3", "cat\tNN\t99"), "a row without a tag or a head"),
    "heads in a circle": (heads("cat\tNN\t3", "cat\tNN\t1"), "heads form a cycle"),
    "a sentence of 2000 words": (LONG, "a sentence of more than 1000 words"),
}


def treebank(files, room):
    (room.folder / "bank").mkdir()
    for name, content in {**BANK, **files}.items():
        if content is not ...:
            room.file(f"bank/{name}", content)


TRAIN_PARSER = ("instruments", "train-parser", "{room}/bank", "{room}/out")
PARSER = [
    BadInput(f"treebank: {name}", TRAIN_PARSER, ("{room}/bank", says), functools.partial(treebank, files))
    for name, (files, says) in TREEBANK.items()
]

ROWS = [*GLUE, *JSON_LINES, *FRAMENET, *PARSER]
