"""Bad inputs around texts: GLUE's files, frame sentences, FrameNet's XML, archives, the treebank."""

import functools
import gzip
import io
import json
import tarfile

from bad_input import COMMON, BadInput
from treebank_sample import HEADS, TREES

# ---------------------------------------------------------------------- GLUE

HEADER = "index\tsentence1\tsentence2\tlabel"
RTE = {
    "empty file": ("", "is empty"),
    "spaces for tabs": (HEADER.replace("\t", " ") + "\n0 a b entailment\n", "line 1: no column 'sentence1'"),
    "column twice": (f"{HEADER}\tlabel\n0\ta\tb\tentailment\tnot_entailment\n", "two columns are called 'label'"),
    "tab inside a text, before the label": (f"{HEADER}\n0\ta\tb\tc\tentailment\n", "is there a tab inside a text"),
    "unknown label": (f"{HEADER}\n0\ta\tb\tyes\n", "unknown label 'yes'; expected one of"),
    "label of a million characters": (f"{HEADER}\n0\ta\tb\t{'x' * 10**6}\n", "unknown label 'xxxx"),
}


def glue(name, content, says, task="rte", file="RTE/dev.tsv", options=COMMON):
    def make(room):
        (room.own_glue() / file).parent.mkdir(exist_ok=True)
        room.file(f"glue/{file}", content)

    command = ("measure", "scores", "--task", task, "--init", "untrained", *options)
    return BadInput(f"GLUE: {name}", command, ("{glue}/" + file, says), make)


SCORES = {
    "not a number": ("nan", "'nan' is not a score"),
    "an underscore, which Python reads": ("0_3", "'0_3' is not a score"),
}
GLUE = [glue(name, content, says) for name, (content, says) in RTE.items()] + [
    glue(f"score {name}", f"sentence1\tsentence2\tscore\na\tb\t{code}\n", says, "stsb", "STS-B/dev.tsv")
    for name, (code, says) in SCORES.items()
]
GLUE += [
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


def record(**changes) -> str:
    plain = {"sentence": "Ann was softly humming .", "target": "humming", "core_elements": ["Ann"]}
    return json.dumps({name: value for name, value in {**plain, **changes}.items() if value is not ...})


JSONL = {
    "empty": ("", "holds no sentences"),
    "the second line cut off": (record() + "\n" + record()[:-9], "line 2: not valid JSON"),
    "elements as text": (record(core_elements="Ann"), "an entry is missing, empty or not a text"),
    "a target elsewhere": (record(target="singing"), "target 'singing' is not in the sentence"),
    "a word of 200 000 characters": (
        record(sentence="a" * 200_000 + " humming Ann"),
        "a sentence of 200012 characters with 1 core elements: give at most",
    ),
    "10 000 elements": (record(core_elements=["Ann"] * 10_000), "with 10000 core elements: give at most"),
}


def written(file, content):
    """Return a function that writes a file of the room; content that is expensive to make may be a function."""
    return lambda room: room.file(file, content() if callable(content) else content)


def frames(name, file, says, make):
    return BadInput(f"frames: {name}", (*FRAME_HEADS, "--frames", "{room}/" + file), says, make)


JSON_LINES = [
    frames(name, "frames.jsonl", ("{room}/frames.jsonl", says), written("frames.jsonl", content))
    for name, (content, says) in JSONL.items()
]

# ---------------------------------------------------------------------- FrameNet

FRAME = (
    '<?xml version="1.0" encoding="UTF-8"?>\n<frame name="Humming" ID="7">'
    '<FE name="Hummer" coreType="Core"/><FEcoreSet><memberFE name="Hummer"/></FEcoreSet></frame>'
)
SENTENCE = (
    '<sentence ID="1"><text>Ann was softly humming .</text><annotationSet status="MANUAL">'
    '<layer rank="1" name="FE"><label name="Hummer" start="0" end="2"/></layer>'
    '<layer rank="1" name="Target"><label name="Target" start="15" end="21"/></layer></annotationSet></sentence>'
)
UNIT = f'<?xml version="1.0"?><lexUnit name="hum.v" frame="Humming"><subCorpus>{SENTENCE}</subCorpus></lexUnit>'
FILES = {"fn/frame/Humming.xml": FRAME, "fn/lu/lu1.xml": UNIT}
LAUGHS = "".join(f'<!ENTITY l{n} "{f"&l{n - 1};" * 10}">' for n in range(1, 10))
FRAMES = {
    "a billion laughs": (
        FRAME.replace("<frame ", f'<!DOCTYPE frame [<!ENTITY l0 "ha">{LAUGHS}]><frame ').replace("Core", "&l9;", 1),
        "document type",
    ),
    "100 000 elements in one another": (FRAME.replace("<FE ", "<a>" * 100_000 + "<FE "), "is damaged"),
}
UNITS = {
    "an empty text": (UNIT.replace("Ann was softly humming .", ""), "a sentence without words"),
    "no text": (UNIT.replace("text>", "texts>"), "without <text>"),
    "a label beyond the text": (UNIT.replace('"21"', '"2100"'), "a label at characters 15 to 2100"),
}


def unpacked(files, room):
    for name, content in {**FILES, **files}.items():
        room.file(name, content)


FRAMENET = [
    frames(f"FrameNet: {file}: {name}", "fn", ("{room}/fn", says), functools.partial(unpacked, {path: content}))
    for file, path, cases in (("frame", "fn/frame/Humming.xml", FRAMES), ("unit", "fn/lu/lu1.xml", UNITS))
    for name, (content, says) in cases.items()
] + [
    frames("FrameNet: two in one folder", "", "holds two FrameNets", lambda room: unpacked(
        {"other/lu/lu1.xml": UNIT, "other/frame/Humming.xml": FRAME}, room)),
    frames("FrameNet: frames only", "fn", "no FrameNet in", lambda room: room.file("fn/frame/Humming.xml", FRAME)),
]  # fmt: skip

# ---------------------------------------------------------------------- archives


def tarred(files, **facts) -> bytes:
    """Return a tar archive of texts; `facts` change the last member's header."""
    packed = io.BytesIO()
    with tarfile.open(fileobj=packed, mode="w") as archive:
        for number, (name, content) in enumerate(files.items(), start=1):
            data = content.encode()
            member = tarfile.TarInfo(name)
            member.size = len(data)
            for fact, value in facts.items() if number == len(files) else ():
                setattr(member, fact, value)
            archive.addfile(member, io.BytesIO(data))
    return packed.getvalue()


PLAIN = tarred(FILES)
SECOND = PLAIN.index(b"fn/lu/lu1.xml")  # the header of the second member
PACKED = {
    "a header of zeros inside": ("fn.tar", lambda: PLAIN[:SECOND] + bytes(512) + PLAIN[SECOND + 512 :], "its end"),
    "gzip with a wrong checksum": ("fn.tar.gz", lambda: gzip.compress(PLAIN)[:-8] + bytes(8), "cannot be read ("),
    "a tar with a file twice": ("fn.tar", lambda: tarred({**FILES, "x": UNIT}, name="fn/lu/lu1.xml"), "twice"),
    "a unit as a link": ("fn.tar", lambda: tarred(FILES, type=tarfile.SYMTYPE, linkname="x", size=0), "no FrameNet"),
}  # fmt: skip


ARCHIVES = [
    frames(f"archive: {name}", file, ("{room}/" + file, says), written(file, make))
    for name, (file, make, says) in PACKED.items()
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
TREEBANK = {  # by name: what differs from two good files, a part of the line
    "nothing": (dict.fromkeys(BANK, ...), "no treebank.zip in"),
    "no common file": ({"treebank/wsj_1.mrg": ..., "treebank/wsj_2.mrg": TREES}, "no file is in both"),
    "a bracket too many": (trees(TREES + ")"), "brackets that do not match"),
    "a tree too many": (trees(TREES * 2), "4 trees for 2 sentences"),
    "a single sentence": (ONE, "holds a single sentence"),
    "another word": (trees(TREES.replace("cat", "dog", 1)), "tree and dependencies differ"),
    "a head outside": (heads("cat\tNN\t3", "cat\tNN\t99"), "a row without a tag or a head"),
    "heads in a circle": (heads("cat\tNN\t3", "cat\tNN\t1"), "heads in a circle"),
    "a sentence of 2000 words": (LONG, "a sentence of more than 1000 words"),
}


def treebank(files, room):
    (room.folder / "bank").mkdir()
    for name, content in {**BANK, **files}.items():
        if content is not ...:
            room.file(f"bank/{name}", content)


TRAIN_PARSER = ("lab", "train-parser", "{room}/bank", "{room}/out")
PARSER = [
    BadInput(f"treebank: {name}", TRAIN_PARSER, ("{room}/bank", says), functools.partial(treebank, files))
    for name, (files, says) in TREEBANK.items()
]

ROWS = [*GLUE, *JSON_LINES, *FRAMENET, *ARCHIVES, *PARSER]
