"""The example sentences of a FrameNet distribution: the XML folder that NLTK or a user unpacked, or the archive.

The files of lexical units hold 580 MB, nearly all of it in sentences that are too long. So each sentence is cut out
as bytes and parsed only if it is short enough; a file that does not end as it should is still an error.
"""

import html
import re
import tarfile
import xml.etree.ElementTree as ElementTree
import zipfile
from collections.abc import Iterator
from pathlib import Path, PurePosixPath

from bertsecrets.errors import UserError
from bertsecrets.texts.archives import unpacking
from bertsecrets.texts.framenet import Annotation, Chosen, Filters, Frame, FrameSentence, choose, read_jsonl

TEXT = re.compile(rb"<text>(.*?)</text>", re.DOTALL)
FRAME_OF_UNIT = re.compile(rb"<lexUnit\b[^>]*?\bframe=\"([^\"]+)\"", re.DOTALL)
NAMESPACE = re.compile(rb"\sxmlns=\"[^\"]*\"")
NEEDED = 'a FrameNet folder holds "lu" and "frame" with .xml files'
GET = "get it with python -m nltk.downloader -d DIR framenet_v17, then give DIR/corpora/framenet_v17"


def open_frames(path: Path, filters: Filters | None = None) -> Chosen:
    """Return the frame sentences of a `.jsonl` file, a FrameNet folder, or an archive of one.

    Raises:
        UserError: the file is missing, damaged or none of these, or no sentence passes the filters.
    """
    if path.suffix.lower() in {".jsonl", ".json"}:
        return Chosen(read_jsonl(path))
    annotations, frames = read_framenet(path, (filters or Filters()).tokens)
    chosen = choose(annotations, frames, filters)
    if not chosen.sentences:
        raise UserError(
            f"none of the {len(annotations)} short example sentences of {path} passes the filters: {chosen.refused}"
        )
    return chosen


def read_framenet(path: Path, tokens: int = Filters.tokens) -> tuple[list[Annotation], dict[str, Frame]]:
    """Return the annotated sentences of at most `tokens` white-space tokens, by lexical unit, and all frames.

    Raises:
        UserError: the path holds no FrameNet, or a damaged file, which the message names.
    """
    units: list[tuple[int, list[Annotation]]] = []
    frames: dict[str, Frame] = {}
    for name, content in _xml_files(path):
        try:
            if PurePosixPath(name).parent.name == "lu":
                number = re.search(r"\d+", PurePosixPath(name).stem)
                units.append((int(number.group()) if number else 0, list(exemplars(content, tokens))))
            else:
                frame_name, frame = read_frame(content)
                frames[frame_name] = frame
        except (ElementTree.ParseError, ValueError) as error:
            raise UserError(f"{path}: {name} is damaged ({error}): unpack FrameNet again") from error
    if not units or not frames:
        raise UserError(f"no FrameNet in {path}: {NEEDED}; {GET}")
    units.sort(key=lambda unit: unit[0])
    return [annotation for _, annotations in units for annotation in annotations], frames


def exemplars(content: bytes, tokens: int) -> Iterator[Annotation]:
    """Yield the annotations of the short sentences in the file of one lexical unit.

    Args:
        content: the XML file.
        tokens: at most this many white-space tokens per sentence.

    Raises:
        ValueError: the file is incomplete, or not that of a lexical unit.
        ElementTree.ParseError: its XML is broken.
    """
    unit = FRAME_OF_UNIT.search(content)
    if unit is None or not content.rstrip().endswith(b"</lexUnit>"):
        raise ValueError("no complete <lexUnit>")
    frame = html.unescape(unit.group(1).decode("utf-8"))
    for piece in content.split(b"<sentence ")[1:]:
        body, closed, _ = piece.partition(b"</sentence>")
        text = TEXT.search(body)
        if text is None or not closed:
            raise ValueError("a sentence without an end or without <text>")
        if len(text.group(1).decode("utf-8").split()) <= tokens:
            yield from _annotations(ElementTree.fromstring(b"<sentence " + body + closed), frame)


def _annotations(sentence: ElementTree.Element, frame: str) -> Iterator[Annotation]:
    text = sentence.findtext("text") or ""
    for annotated in sentence.iterfind("annotationSet"):
        if annotated.get("status") == "UNANN":
            continue
        targets = [place for _, place in _spans(annotated, "Target", None)]
        if targets:
            yield Annotation(text, frame, tuple(sorted(targets)), tuple(_spans(annotated, "FE", "1")))


def _spans(annotated: ElementTree.Element, layer: str, rank: str | None) -> Iterator[tuple[str, tuple[int, int]]]:
    for element in annotated.iterfind("layer"):
        if element.get("name") == layer and (rank is None or element.get("rank") == rank):
            for label in element.iterfind("label"):
                start, end = label.get("start"), label.get("end")
                if start is not None and end is not None:  # elements that the sentence leaves out have none
                    yield label.get("name", ""), (int(start), int(end) + 1)


def read_frame(content: bytes) -> tuple[str, Frame]:
    """Return a frame's name, its core elements and the members of its core sets.

    Raises:
        ElementTree.ParseError: the XML is broken.
        ValueError: it is not a frame.
    """
    root = ElementTree.fromstring(NAMESPACE.sub(b"", content, count=1))
    if root.tag != "frame" or not root.get("name"):
        raise ValueError("no <frame>")
    core = frozenset(fe.get("name", "") for fe in root.iterfind("FE") if fe.get("coreType") == "Core")
    sets = frozenset(m.get("name", "") for m in root.iterfind("FEcoreSet/memberFE"))
    return root.get("name", ""), Frame(core, sets)


def _xml_files(path: Path) -> Iterator[tuple[str, bytes]]:
    """Yield name and content of the XML files in `lu` and `frame`, at any depth of a folder, zip or tar archive."""
    if not path.exists():
        raise UserError(f"no FrameNet at {path}: {NEEDED}; {GET}")
    with unpacking(path, f"{NEEDED}, or an archive (.zip, .tar.xz) of one"):
        if path.is_dir():
            for folder in sorted(f for kind in ("lu", "frame") for f in path.glob(f"**/{kind}") if f.is_dir()):
                for file in sorted(folder.glob("*.xml")):
                    yield f"{folder.name}/{file.name}", file.read_bytes()
        elif zipfile.is_zipfile(path):
            with zipfile.ZipFile(path) as packed:
                for name in filter(_wanted, packed.namelist()):
                    yield name, packed.read(name)
        else:
            with tarfile.open(path, "r|*") as archive:
                for member in archive:
                    if member.isfile() and _wanted(member.name):
                        content = archive.extractfile(member)
                        yield member.name, content.read() if content else b""


def _wanted(name: str) -> bool:
    return name.endswith(".xml") and PurePosixPath(name).parent.name in {"lu", "frame"}


__all__ = ["Filters", "FrameSentence", "open_frames", "read_framenet"]
