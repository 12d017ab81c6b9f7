"""Read example sentences from a FrameNet distribution that NLTK or the user has unpacked.

The lexical unit files take up 580 MB, mostly for sentences that are too long. For speed, files are split into sentences
while they are still bytes, and only sentences that are short enough are parsed. A truncated file is still an error.
"""

import html
import re
import xml.etree.ElementTree as ElementTree  # nosec B405
from collections.abc import Iterator
from pathlib import Path

from bertsecrets.errors import UserError, excerpt
from bertsecrets.reading import read_bytes
from bertsecrets.store.files import files_below
from bertsecrets.texts.framenet import SENTENCE_TOKENS, Annotation, FrameSentence, choose, read_jsonl

FRAME_OF_UNIT = re.compile(rb"\sframe=\"([^\"]+)\"")
XML_FILE_BYTES = 64 * 2**20  # maximum size of an XML file; the largest one has 2 MB
NAMESPACE = re.compile(rb"\sxmlns=\"[^\"]*\"")
JSON_SUFFIXES = (".jsonl", ".json")
FRAMENET_LAYOUT = 'a FrameNet folder holds the folders "lu" and "frame" with .xml files'
FRAMENET_ADVICE = "get it with python -m nltk.downloader -d DIR framenet_v17, then give DIR/corpora/framenet_v17"


def check_frames(path: Path, *, read: bool) -> None:
    """Check that a `.jsonl` file or a FrameNet folder exists.

    Args:
        read: Whether to also check the content: all lines of a `.jsonl` file, or the layout of a FrameNet folder.

    Raises:
        UserError: If the path does not exist, or if `read` is True and the content is not valid.
    """
    if not path.exists():
        raise UserError(f"{path} does not exist: the option `frames` needs a JSONL file or a FrameNet folder")
    if read and path.suffix.lower() in JSON_SUFFIXES:
        read_jsonl(path)
    elif read:
        _xml_files(path)


def open_frames(path: Path) -> list[FrameSentence]:
    """Return the sentences in a `.jsonl` file, or the sentences selected from a FrameNet folder."""
    if path.suffix.lower() in JSON_SUFFIXES:
        return read_jsonl(path)
    annotations, core_sets = read_framenet(path)
    sentences, refused = choose(annotations, core_sets)
    if not sentences:
        reasons = ", ".join(f"{count} x {reason}" for reason, count in refused.items())
        raise UserError(
            f"none of the {len(annotations)} short example sentences in {path} passes the filters. Reasons: {reasons}"
        )
    return sentences


def read_framenet(path: Path) -> tuple[list[Annotation], dict[str, frozenset[str]]]:
    """Return the annotations of short sentences, sorted by lexical unit, and a dict of each frame's core elements."""
    units: list[tuple[int, list[Annotation]]] = []
    core_sets: dict[str, frozenset[str]] = {}
    for file in _xml_files(path):
        content = read_bytes(file, XML_FILE_BYTES)
        try:
            if file.parent.name == "lu":
                number = re.search(r"\d+", file.stem)
                units.append((int(number.group()) if number else 0, list(exemplars(content))))
            else:
                core_sets.update([read_frame(content)])
        except (ElementTree.ParseError, ValueError, LookupError) as error:  # LookupError means an unknown encoding
            name, reason = excerpt(file.relative_to(path.parent).as_posix(), 100), excerpt(error, 150)
            raise UserError(f"{path}: {name} is damaged ({reason}): unpack FrameNet again") from error
    units.sort(key=lambda unit: unit[0])
    return [annotation for _, annotations in units for annotation in annotations], core_sets


def exemplars(content: bytes) -> Iterator[Annotation]:
    """Yield the annotations of short sentences, given the content of a lexical unit file."""
    _, begun, rest = content.partition(b"<lexUnit")
    unit = FRAME_OF_UNIT.search(rest.partition(b">")[0])
    if not begun or unit is None or not content.rstrip().endswith(b"</lexUnit>"):
        raise ValueError("no complete <lexUnit>")
    frame = html.unescape(unit.group(1).decode("utf-8"))
    for piece in content.split(b"<sentence ")[1:]:
        body, closed, _ = piece.partition(b"</sentence>")
        text, ended, _ = body.partition(b"<text>")[2].partition(b"</text>")
        if not ended or not closed:
            raise ValueError("a sentence is incomplete or has no <text>")
        if len(text.decode("utf-8").split()) <= SENTENCE_TOKENS:
            yield from _annotations(parse_xml(b"<sentence " + body + closed), frame)


def _annotations(sentence: ElementTree.Element, frame: str) -> Iterator[Annotation]:
    text = sentence.findtext("text") or ""
    if not text.strip():
        raise ValueError("a sentence without words")
    for annotated in sentence.iterfind("annotationSet"):
        if annotated.get("status") == "UNANN":
            continue
        targets = [place for _, place in _spans(annotated, "Target", None)]
        elements = list(_spans(annotated, "FE", "1"))
        for start, end in (*targets, *(place for _, place in elements)):
            if not 0 <= start < end <= len(text):
                raise ValueError(
                    f"a label spans characters {start} to {end - 1} of a sentence with {len(text)} characters"
                )
        if targets:
            yield Annotation(text, frame, tuple(sorted(targets)), tuple(elements))


def _spans(annotated: ElementTree.Element, layer: str, rank: str | None) -> Iterator[tuple[str, tuple[int, int]]]:
    for element in annotated.iterfind("layer"):
        if element.get("name") == layer and (rank is None or element.get("rank") == rank):
            for label in element.iterfind("label"):
                start, end = label.get("start"), label.get("end")
                if start is not None and end is not None:  # elements that the sentence omits have no position
                    yield label.get("name", ""), (int(start), int(end) + 1)


def read_frame(content: bytes) -> tuple[str, frozenset[str]]:
    """Return the name of a frame and the members of its core sets, given the content of the frame's file."""
    root = parse_xml(NAMESPACE.sub(b"", content, count=1))
    if root.tag != "frame" or not root.get("name"):
        raise ValueError("no <frame>")
    return root.get("name", ""), frozenset(m.get("name", "") for m in root.iterfind("FEcoreSet/memberFE"))


class _WithoutEntities(ElementTree.TreeBuilder):
    def doctype(self, name: str, pubid: str | None, system: str | None) -> None:
        raise ValueError("it has a document type, which may declare entities")


def parse_xml(content: bytes) -> ElementTree.Element:
    """Return the root of an XML document. Reject a DOCTYPE, because it could declare entities."""
    return ElementTree.fromstring(content, ElementTree.XMLParser(target=_WithoutEntities()))  # nosec B314


def _xml_files(path: Path) -> list[Path]:
    """Return all visible XML files in folders named `lu` or `frame`, at any depth below `path`."""
    if not path.exists():
        raise UserError(f"no FrameNet at {path}: {FRAMENET_LAYOUT}; {FRAMENET_ADVICE}")
    if not path.is_dir():
        raise UserError(f"{path} is neither a JSONL file nor a folder: if it is an archive of FrameNet, unpack it")
    visible = [file for file in files_below(path, "[!.]*.xml") if file.parent.name in ("lu", "frame")]
    files = sorted(visible, key=lambda file: (file.parent, file.name))
    homes = sorted({str(file.parent.parent.relative_to(path.parent)) for file in files})
    if len(homes) > 1:
        raise UserError(f"{path} contains two FrameNet folders, {excerpt(' and '.join(homes[:2]))}: give one of them")
    if {file.parent.name for file in files} != {"lu", "frame"}:
        raise UserError(f"no FrameNet in {path}: {FRAMENET_LAYOUT}; {FRAMENET_ADVICE}")
    return files
