"""Two sentences in the formats of NLTK's treebank sample: as trees, and as heads."""

import zipfile
from pathlib import Path

TREES = """
( (S (NP-SBJ-1 (DT The) (NN cat) )
     (VP (VBD was) (VP (VBN seen) (NP (-NONE- *-1) )
        (PP (IN by) (NP-LGS (NP (NNS mice) ) (SBAR (WHNP-2 (WP who) )
           (S (NP-SBJ (-NONE- *T*-2) ) (VP (MD will) (VP (VB give) (NP (PRP him) ) (NP (NN milk) )
              (NP-TMP (NN today) ))))))))) (. .) ))
( (S (NP-SBJ (PRP He) ) (VP (VBZ is) (RB n't) (NP-PRD (DT a) (NN cat) )) (. .) ))
"""
HEADS = """The\tDT\t2
cat\tNN\t3
was\tVBD\t0
seen\tVBN\t3
by\tIN\t4
mice\tNNS\t5
who\tWP\t6
will\tMD\t7
give\tVB\t8
him\tPRP\t9
milk\tNN\t9
today\tNN\t9
.\t.\t3

He\tPRP\t2
is\tVBZ\t0
n't\tRB\t2
a\tDT\t5
cat\tNN\t2
.\t.\t2
"""


def write_treebank(folder: Path) -> Path:
    """Write the two sentences as zip files in the layout of NLTK's two packages."""
    for name, file, text in (("treebank", "combined/a.mrg", TREES), ("dependency_treebank", "a.dp", HEADS)):
        with zipfile.ZipFile(folder / f"{name}.zip", "w") as archive:
            archive.writestr(f"{name}/{file}", text)
    return folder
