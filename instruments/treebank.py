"""The Penn Treebank sample as sentences with tags, heads and grammatical relations, to train a small parser.

NLTK distributes the sample in two versions. `treebank` contains constituents with function tags (`NP-SBJ`), and
`dependency_treebank` contains unlabelled dependencies. Together, the two versions give labelled dependencies. The head
of a constituent is its only word that depends on a word outside the constituent, and is labelled with the function tag.
As in released pipelines, auxiliaries depend on their main verb, and labels are `nsubj`, `nsubjpass`, `csubj`,
`csubjpass`, `expl`, `agent`, `dobj`, `dative`, `attr` and `oprd`. All other words are `ROOT`, `aux`, `punct` or `dep`.
"""

import itertools
import re
from collections.abc import Iterator
from dataclasses import dataclass, field, replace
from pathlib import Path, PurePosixPath

from bertsecrets.errors import UserError, excerpt
from bertsecrets.reading import decoded
from instruments.archives import read_members, unpacking

WORD_LIMIT = 1000  # words per sentence; the longest sentence in the sample has 249
TREES, HEADS = "treebank", "dependency_treebank"
BRACKETS = {"-LRB-": "(", "-RRB-": ")", "-LCB-": "{", "-RCB-": "}", "-LSB-": "[", "-RSB-": "]", "``": '"', "''": '"'}
ADVERBIAL = {"TMP", "LOC", "ADV", "DIR", "EXT", "MNR", "PRP", "BNF", "VOC", "CLR", "HLN", "TTL"}
VERBAL = re.compile(r"VB.?|MD|TO")
PUNCTUATION = {",", ".", ":", "``", "''", "-LRB-", "-RRB-"}
BE = {"be", "is", "are", "was", "were", "been", "being", "am", "'s", "'re", "'m", "get", "got", "gets", "getting"}


@dataclass(frozen=True)
class Parsed:
    """A sentence. Word i depends on word `heads[i]` (the root on itself), and a space follows word i if `spaces[i]`.

    During labelling, `heads` and `labels` are modified in place, and the root's head is -1.
    """

    words: list[str]
    spaces: list[bool]
    tags: list[str]
    heads: list[int]
    labels: list[str]


@dataclass
class Node:
    """A constituent with the words from `start` to `stop` (exclusive). Traces have no words and are left out."""

    name: str
    start: int
    stop: int = 0
    children: list["Node"] = field(default_factory=list)
    word: bool = False

    @property
    def category(self) -> str:
        """The category of a constituent, such as `NP` for `NP-SBJ-1`."""
        return re.split(r"[-=]", self.name)[0] or self.name

    @property
    def functions(self) -> set[str]:
        """The functions of a constituent, such as `{"SBJ"}` for `NP-SBJ-1`."""
        return {part for part in re.split(r"[-=]", self.name)[1:] if not part.isdigit()}


def read_treebank(folder: Path) -> list[Parsed]:
    """Return all sentences of NLTK's `treebank` and `dependency_treebank` in `folder` (zipped or not), in file order.

    Raises:
        UserError: If a package is missing, a file is damaged, or the packages have different sentences.
    """
    trees, heads = _members(folder, TREES, ".mrg"), _members(folder, HEADS, ".dp")
    sentences: list[Parsed] = []
    for name in sorted(heads.keys() & trees.keys()):
        try:
            sentences += _sentences(trees[name], heads[name])
        except (ValueError, RecursionError) as error:
            raise UserError(
                f"{folder}: {name} is damaged ({excerpt(error, 150)}): fetch both NLTK packages again"
            ) from error
    if not sentences:
        raise UserError(f"{folder}: no file is in both {TREES} and {HEADS}: fetch both NLTK packages again")
    return sentences


def _sentences(trees: str, heads: str) -> list[Parsed]:
    """Return the sentences of a file, given its content in both packages."""
    columns = [block.split("\n") for block in re.split(r"\n\s*\n", heads.strip()) if block.strip()]
    try:
        constituents = list(read_trees(trees))
    except IndexError as error:
        raise ValueError("brackets that do not match") from error
    if len(columns) != len(constituents):
        raise ValueError(f"{len(constituents)} trees for {len(columns)} sentences")
    return [
        label_sentence(tree, words, [line.split("\t") for line in lines])
        for (tree, words), lines in zip(constituents, columns, strict=True)
    ]


def _members(folder: Path, package: str, suffix: str) -> dict[str, str]:
    """Return a package's files as text, keyed by stem, from `<package>.zip` or the folder `<package>`."""
    packed, unpacked = folder / f"{package}.zip", folder / package
    source = packed if packed.is_file() else unpacked
    with unpacking(source, "fetch it again"):
        if source == unpacked and not unpacked.is_dir():
            raise UserError(
                f"no {package}.zip in {folder}: get it with python -m nltk.downloader -d DIR {TREES} {HEADS} "
                "and give DIR/corpora"
            )
        return {
            PurePosixPath(name).stem: decoded(content, f"{folder}: {name}").replace("\r\n", "\n")
            for name, content in read_members(source, lambda name: name.endswith(suffix))
        }


def read_trees(text: str) -> Iterator[tuple[Node, list[str]]]:
    """Yield the bracketed trees of a file with their words, without traces (`-NONE-`) and trace-only constituents.

    Raises:
        IndexError: If the brackets do not match.
    """
    stack: list[Node] = []
    words: list[str] = []
    moved: dict[str, str] = {}  # maps a trace's index to the function of the word moved from there
    tokens = re.findall(r"\(|\)|[^\s()]+", text)
    for place, token in enumerate(tokens):
        if token == "(":  # nosec B105
            name = tokens[place + 1] if tokens[place + 1] not in "()" else ""
            stack.append(Node(name, len(words)))
        elif token == ")":  # nosec B105
            node = stack.pop()
            node.stop = len(words)
            if stack and node.stop > node.start:
                stack[-1].children.append(node)
            elif not stack:
                _name_moved(node, moved)
                yield node, words
                words, moved = [], {}
        elif tokens[place - 1] != "(":
            stack[-1].word = True
            if stack[-1].name != "-NONE-":
                words.append(token)
            elif token.startswith("*T*-"):
                moved[token[4:]] = _role(stack[-2], stack[-3])


def _role(trace: Node, parent: Node) -> str:
    """Return the function of the word moved from a trace: `SBJ`, `OBJ`, or "" for all other functions."""
    if "SBJ" in trace.functions:
        return "SBJ"
    plain = trace.category == "NP" and parent.category == "VP" and not trace.functions & (ADVERBIAL | {"PRD"})
    return "OBJ" if plain else ""


def _name_moved(node: Node, moved: dict[str, str]) -> None:
    """Give relative and question words the function of their trace, so that `WHNP-1` becomes `WHNP-SBJ-1`."""
    index = node.name.rpartition("-")[2]
    if node.category == "WHNP" and moved.get(index):
        node.name = f"WHNP-{moved[index]}-{index}"
    for child in node.children:
        _name_moved(child, moved)


def label_sentence(tree: Node, words: list[str], columns: list[list[str]]) -> Parsed:
    """Return a sentence with labelled dependencies, given its constituents and unlabelled dependencies.

    Args:
        words: Words of the tree, without traces.
        columns: Word, tag and head (from 1, 0 for the root) of each word.

    Raises:
        ValueError: If tree and columns have different words, a row has no tag or no valid head, heads form a cycle, or
            the sentence is too long.
    """
    beginning = repr(" ".join(words[:6])[:60])
    if len(words) > WORD_LIMIT:
        raise ValueError(f"a sentence of more than {WORD_LIMIT} words at {beginning}")
    if words != [column[0] for column in columns]:
        raise ValueError(f"tree and dependencies differ at {beginning}")
    numbers = {str(place): place - 1 for place in range(len(words) + 1)}
    if any(len(column) < 3 or column[2] not in numbers for column in columns):
        raise ValueError(f"a row without a tag or a head at {beginning}")
    tags = [column[1] for column in columns]
    labels = ["punct" if tag in PUNCTUATION else "dep" for tag in tags]
    draft = Parsed(words, spacing(words), tags, [numbers[column[2]] for column in columns], labels)
    if not _rooted(draft.heads):
        raise ValueError(f"heads form a cycle at {beginning}")
    _lift_main_verbs(tree, draft)
    _label(tree, None, draft)
    heads = [head if head >= 0 else i for i, head in enumerate(draft.heads)]
    labels = ["ROOT" if head == i else label for i, (head, label) in enumerate(zip(heads, draft.labels, strict=True))]
    surface = [BRACKETS.get(word, word.replace("\\/", "/")) for word in words]
    return replace(draft, words=surface, heads=heads, labels=labels)


def _rooted(heads: list[int]) -> bool:
    """Return whether every chain of heads ends at the root (-1)."""
    reached = {-1}
    while further := {word for word, head in enumerate(heads) if head in reached} - reached:
        reached |= further
    return len(reached) > len(heads)


def head_of(node: Node, heads: list[int]) -> int | None:
    """Return a constituent's only word that depends on a word outside, or None if there are several."""
    outside = [i for i in range(node.start, node.stop) if not node.start <= heads[i] < node.stop]
    return outside[0] if len(outside) == 1 else None


def _lift_main_verbs(node: Node, draft: Parsed) -> None:
    """Reverse `will -> join` to `join -> will` and `who -> study` to `study -> who`, innermost constituents first."""
    for child in node.children:
        _lift_main_verbs(child, draft)
    if node.category == "VP":
        upper = [c for c in node.children if c.word and VERBAL.fullmatch(draft.tags[c.start])]
        lower = [c for c in node.children if c.category == "VP" and not c.word]
    elif node.category == "SBAR":
        upper = [c for c in node.children if c.category == "WHNP"]
        lower = [c for c in node.children if c.category in {"S", "SQ", "SINV"}]
    else:
        return
    if len(upper) != 1 or len(lower) != 1:
        return
    heads = draft.heads
    above, main = head_of(upper[0], heads), head_of(lower[0], heads)
    if above is None or main is None or heads[main] != above:
        return
    within = range(upper[0].start, upper[0].stop)
    heads[main] = heads[above]
    heads[:] = [main if head == above and i not in within else head for i, head in enumerate(heads)]
    heads[above] = main
    if node.category == "VP":
        draft.labels[above] = "aux"


def _label(node: Node, parent: Node | None, draft: Parsed) -> None:
    """Label the heads of a constituent and of all nested constituents."""
    head = head_of(node, draft.heads)
    if parent is not None and head is not None:
        relation = _relation(node, parent, head, draft)
        if relation:
            draft.labels[head] = relation
    for child in node.children:
        _label(child, node, draft)


def _relation(node: Node, parent: Node, head: int, draft: Parsed) -> str | None:
    """Return the label of a constituent's head word, based on function tag and position, or None if unknown."""
    tags, heads = draft.tags, draft.heads
    functions, nominal = node.functions, node.category in {"NP", "QP", "WHNP", "UCP", "NX"}
    if "SBJ" in functions:
        if tags[head] == "EX":
            return "expl"
        passive = "pass" if _is_passive(heads[head], draft) else ""
        return ("nsubj" if nominal else "csubj") + passive
    if node.category == "PP" and any("LGS" in child.functions for child in node.children):
        return "agent"
    if node.word or not nominal or functions & ADVERBIAL:
        return None
    if "OBJ" in functions:
        return "dobj"
    if "PRD" in functions:
        return "attr" if parent.category in {"VP", "SQ", "SINV"} else "oprd"
    if parent.category != "VP" or heads[head] < 0 or not tags[heads[head]].startswith("VB"):
        return None
    later = [c for c in parent.children if c.start >= node.stop and c.category == "NP" and not c.functions & ADVERBIAL]
    return "dative" if "DTV" in functions or (later and "PRD" not in later[0].functions) else "dobj"


def _is_passive(verb: int, draft: Parsed) -> bool:
    """Return whether a word is a past participle with a form of `be` or `get` as auxiliary."""
    if verb < 0 or draft.tags[verb] != "VBN":
        return False
    auxiliaries = [draft.words[i].lower() for i, h in enumerate(draft.heads) if h == verb and draft.labels[i] == "aux"]
    return any(word in BE for word in auxiliaries)


def spacing(words: list[str]) -> list[bool]:
    """Return whether a space follows each word in running text, with none before `,` or `n't` or inside quotes.

    >>> spacing(["I", "do", "n't", "."])
    [True, False, False, False]
    """
    joins_left = re.compile(r"[,.;:?!%]|''|-R[RCS]B-|n't|'(s|re|ve|ll|d|m)?|\.\.\.", re.IGNORECASE)
    joins_right = {"``", "-LRB-", "-LCB-", "-LSB-", "$", "#"}
    after = [
        not joins_left.fullmatch(following) and word not in joins_right for word, following in itertools.pairwise(words)
    ]
    return [*after, False]
