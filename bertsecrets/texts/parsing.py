"""Words with character spans, part-of-speech tags and dependency relations, as assigned by a spaCy pipeline.

Any pipeline that assigns Penn tags and has a dependency parser can be used, whether it is installed or in a folder. If
no pipeline is available, `instruments.train_parser` trains a small one. spaCy is an optional dependency, and is
imported only when it is used. Parses are cached on disk under a digest of the texts and the pipeline.
"""

import json
import warnings
from collections.abc import Callable, Sequence
from pathlib import Path
from typing import Any, NamedTuple
from unicodedata import category

from bertsecrets.errors import UserError
from bertsecrets.store.code import code_digest
from bertsecrets.store.files import digest, folder_digest, is_intact, read_json_object, with_digest, write_whole
from bertsecrets.types import Span, slug

NOUNS = frozenset({"NN", "NNP", "NNPS", "NNS"})
PRONOUNS = frozenset({"PRP", "PRP$"})
SUBJECTS = frozenset({"nsubj", "nsubjpass", "csubj", "csubjpass", "agent", "expl"})
OBJECTS = frozenset({"dobj", "iobj", "dative", "attr", "oprd"})
NEGATIONS = frozenset({"neither", "nor", "not", "never", "none", "nothing", "nowhere"})
SPACY_INSTALL = 'pip install "spacy>=3.8.11"'
ACCURACY_SCORES = frozenset({"tag_acc", "dep_uas", "dep_las", "subject", "object"})  # scores recorded in results


class Word(NamedTuple):
    """A word with its text, its position (characters `start` to `stop`), its Penn tag, and its relation to `head`.

    `head` is the index of the word that governs this word. A root is its own head.
    """

    text: str
    start: int
    stop: int
    tag: str
    relation: str
    head: int

    @property
    def span(self) -> Span:
        """The character span of the word."""
        return self.start, self.stop


Parse = tuple[Word, ...]  # the words of a text, in order


def is_negation(word: Word) -> bool:
    """Return whether a word is one of K19's negations, or a contraction that ends in "n't" (with any apostrophe)."""
    text = word.text.lower().replace("\u2019", "'")
    return text in NEGATIONS or text.endswith("n't") or text == "cannot"


def is_punctuation(word: Word) -> bool:
    """Return whether a word is punctuation. Signs that are read aloud as words (`%`, `#`, `&`, `@`) do not count."""
    return bool(word.text) and all(c == "`" or (category(c)[0] == "P" and c not in "%#&@") for c in word.text)


WORD_FEATURES: dict[str, Callable[[Word], bool]] = {
    "noun": lambda word: word.tag in NOUNS,
    "verb": lambda word: word.tag.startswith("VB"),
    "pronoun": lambda word: word.tag in PRONOUNS,
    "subject": lambda word: word.relation in SUBJECTS,
    "object": lambda word: word.relation in OBJECTS,
    "negation": is_negation,
    "punctuation": is_punctuation,
}


def verb_subject_links(words: Parse) -> list[tuple[Span, Span]]:
    """Return the spans of each verb and its active subject (`nsubj`) as pairs, as in K19's code (section 4.5)."""
    governed = [(words[word.head], word) for word in words if word.relation == "nsubj"]
    return [(verb.span, subject.span) for verb, subject in governed if verb.tag.startswith("VB")]


def parse(texts: Sequence[str], pipeline: str, cache: Path) -> list[Parse]:
    """Tag and parse texts with a spaCy pipeline. Repeated texts are parsed once.

    Args:
        pipeline: Name of an installed pipeline, or a pipeline folder.
        cache: Folder in which parses are cached.
    """
    nlp = load_pipeline(pipeline)
    facts = describe(nlp)
    different = list(dict.fromkeys(texts))
    key = digest([code_digest(__name__), facts["fingerprint"], different])
    path = cache / f"{slug(facts['name'])}-{key[:16]}.json"
    sentences = _read_cache(path, len(different))
    if sentences is None:
        sentences = [
            tuple(Word(t.text, t.idx, t.idx + len(t), t.tag_, t.dep_, t.head.i) for t in doc)
            for doc in nlp.pipe(different, batch_size=256)
        ]
        write_whole(path, json.dumps(with_digest({"parses": sentences}), ensure_ascii=False))
    by_text = dict(zip(different, sentences, strict=True))
    return [by_text[text] for text in texts]


def parse_pairs(
    first: Sequence[str], second: Sequence[str] | None, pipeline: str, cache: Path
) -> tuple[list[Parse], list[Parse] | None]:
    """Parse the first text of each example and, for pairs of texts, the second. See `parse` for the arguments."""
    both = parse([*first, *(second or [])], pipeline, cache)
    return both[: len(first)], None if second is None else both[len(first) :]


def spacy_module() -> Any:
    """Import spaCy and return it."""
    try:
        import spacy
    except ImportError as error:
        raise UserError(f"tagging and parsing need spaCy, which is not installed: {SPACY_INSTALL}") from error
    return spacy


def load_pipeline(name: str) -> Any:
    """Load an installed spaCy pipeline or a pipeline folder, excluding components that are not needed."""
    spacy = spacy_module()
    try:
        with warnings.catch_warnings():
            warnings.simplefilter("default")  # only warn about a pipeline for a slightly different spaCy
            nlp = spacy.load(name, exclude=["ner", "lemmatizer", "senter", "textcat"])
    except (OSError, ValueError) as error:
        if Path(name).is_dir():
            raise UserError(f"{name} cannot be opened as a spaCy pipeline: {str(error).splitlines()[0]}") from error
        raise UserError(
            f"spaCy pipeline {name!r} is not installed: run python -m spacy download {name}, "
            "or set the option `spacy` to the name or folder of another pipeline"
        ) from error
    lacking = [part for part in ("tagger", "parser") if part not in nlp.pipe_names]
    if lacking:
        raise UserError(
            f"spaCy pipeline {name!r} has no {' and no '.join(lacking)}: choose a pipeline with a tagger and a parser"
        )
    return nlp


def describe(nlp: Any) -> dict[str, Any]:
    """Return facts about a pipeline to record in results: names, versions, the accuracy that it reports, and a digest.

    If the pipeline was loaded from files, the digest covers all these files, including the weights.
    """
    meta = nlp.meta
    facts = {
        "name": f"{meta['lang']}_{meta['name']}",
        "version": meta["version"],
        "spacy": spacy_module().__version__,
        "training": meta.get("training", {}),
    }
    known = {k: v for k, v in meta.get("performance", {}).items() if k in ACCURACY_SCORES}
    path = getattr(nlp, "path", None)
    files = folder_digest(Path(path)) if path is not None else None
    return {**facts, "accuracy": known, "fingerprint": digest([facts, known, files])}


def _read_cache(path: Path, expected: int) -> list[Parse] | None:
    """Return the cached parses, or None if the file is missing or damaged and texts must be parsed again."""
    data = read_json_object(path)
    try:
        sentences = [tuple(Word(*fields) for fields in words) for words in data["parses"]] if is_intact(data) else []
    except (TypeError, KeyError):
        return None
    return sentences if len(sentences) == expected else None
