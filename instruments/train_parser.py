"""Training of a small tagger and parser on the Penn Treebank sample, for use without a released spaCy pipeline.

Training is deterministic, so the same treebank, spaCy version and seed give the same pipeline. Trained on only about
3500 newspaper sentences, the pipeline is less accurate than released pipelines. `meta.json` records the accuracy on
held-out sentences. Results record which pipeline was used.
"""

import random
from collections.abc import Sequence
from pathlib import Path
from typing import Any

from bertsecrets.errors import UserError, first_line
from bertsecrets.store.files import digest, guarded_writes, whole_folder
from bertsecrets.texts.parsing import OBJECTS, SUBJECTS, spacy_module
from instruments.treebank import Parsed, read_treebank

NAME = "treebank_small"
EPOCHS = 10  # half of the sentences are lower-cased, as in SST-2
HELD_OUT = 0.1  # fraction of test sentences, which come last in file order and therefore from other articles
WIDTH = 96  # width of the shared token vectors
BATCH_WORDS = 800
DROPOUT = 0.15
SEED = 1


def train_pipeline(treebank: Path, folder: Path, *, epochs: int = EPOCHS) -> dict[str, Any]:
    """Train a tagger and a parser, write them to `folder` (for `--spacy FOLDER`), and return the accuracy of both.

    Args:
        treebank: Folder with NLTK's `treebank` and `dependency_treebank`, zipped or not.

    Returns:
        Accuracy on the held-out sentences, as in `meta.json`: `tag_acc`, `dep_uas`, `dep_las`, and precision, recall
        and F of `subject`, `object` and `root` words.

    Raises:
        UserError: If the treebank or spaCy is missing, the treebank is damaged or too small, or `folder` exists.
    """
    spacy = spacy_module()
    if folder.exists():
        raise UserError(f"{folder} already exists: choose a new folder for the pipeline")
    parsed = read_treebank(treebank)
    if len(parsed) < 2:
        raise UserError(f"{treebank} has only one sentence: training and testing need at least 2")
    cut = min(len(parsed) - 1, round(len(parsed) * (1 - HELD_OUT)))
    spacy.util.fix_random_seed(SEED)
    nlp = _blank(spacy)
    train = [(_example(nlp, sentence), _example(nlp, sentence, lower=True)) for sentence in parsed[:cut]]
    try:
        _fit(nlp, train, epochs)
    except ValueError as error:
        raise UserError(f"spaCy cannot be trained on {treebank} ({first_line(error)}): fetch it again") from error
    scores = evaluate(nlp, parsed[cut:])
    nlp.meta.update(
        name=NAME,
        version="1",
        description="Tagger and parser trained on the Penn Treebank sample of NLTK (research use)",
        performance=scores,
        training={
            "sentences": cut,
            "held_out": len(parsed) - cut,
            "epochs": epochs,
            "seed": SEED,
            "spacy": spacy.__version__,
            "treebank": digest([[p.words, p.tags, p.heads, p.labels] for p in parsed]),
        },
    )
    with guarded_writes(folder):
        folder.parent.mkdir(parents=True, exist_ok=True)
        with whole_folder(folder) as temporary:
            nlp.to_disk(temporary)
    return scores


def _blank(spacy: Any) -> Any:
    """Return an English pipeline whose tagger and parser share a small convolutional encoder."""
    nlp = spacy.blank("en")
    embed = {"@architectures": "spacy.HashEmbedCNN.v2", "pretrained_vectors": None, "width": WIDTH, "depth": 4}
    embed |= {"embed_size": 2000, "window_size": 1, "maxout_pieces": 3, "subword_features": True}
    nlp.add_pipe("tok2vec", config={"model": embed})
    listener = {"@architectures": "spacy.Tok2VecListener.v1", "width": WIDTH, "upstream": "*"}
    nlp.add_pipe("tagger", config={"model": {"@architectures": "spacy.Tagger.v2", "tok2vec": listener}})
    parser = {"@architectures": "spacy.TransitionBasedParser.v2", "state_type": "parser", "extra_state_tokens": False}
    parser |= {"hidden_width": 64, "maxout_pieces": 2, "use_upper": True, "nO": None, "tok2vec": listener}
    nlp.add_pipe("parser", config={"model": parser, "min_action_freq": 10})
    return nlp


def _example(nlp: Any, sentence: Parsed, lower: bool = False) -> Any:
    """Return a spaCy example of a sentence, with spaCy's tokens and the treebank's annotations."""
    from spacy.tokens import Doc
    from spacy.training import Example

    words = [word.lower() for word in sentence.words] if lower else sentence.words
    gold = Doc(nlp.vocab, words, sentence.spaces, tags=sentence.tags, heads=sentence.heads, deps=sentence.labels)
    return Example(nlp.make_doc(gold.text), gold)


def _fit(nlp: Any, train: list[tuple[Any, Any]], epochs: int) -> None:
    from spacy.training.batchers import minibatch_by_words

    order = random.Random(SEED)
    optimizer = nlp.initialize(lambda: [example for both in train for example in both])
    for _ in range(epochs):
        order.shuffle(train)
        for batch in minibatch_by_words([order.choice(both) for both in train], size=BATCH_WORDS):
            nlp.update(batch, sgd=optimizer, drop=DROPOUT)


def evaluate(nlp: Any, sentences: Sequence[Parsed]) -> dict[str, Any]:
    """Return a pipeline's accuracy on annotated sentences, with precision, recall and F1 of the relations in K19."""
    from spacy.scorer import PRFScore

    examples = [_example(nlp, sentence) for sentence in sentences]
    general = nlp.evaluate(examples)
    docs = list(nlp.pipe(e.reference.text for e in examples))
    scores: dict[str, Any] = {k: round(float(general[k] or 0), 4) for k in ("tag_acc", "dep_uas", "dep_las")}
    for kind, labels in {"subject": SUBJECTS, "object": OBJECTS, "root": {"ROOT"}}.items():
        predicted = {(n, t.idx) for n, doc in enumerate(docs) for t in doc if t.dep_ in labels}
        true = {(n, t.idx) for n, e in enumerate(examples) for t in e.reference if t.dep_ in labels}
        of = PRFScore()
        of.score_set(predicted, true)
        figures = {"precision": of.precision, "recall": of.recall, "f": of.fscore}
        scores[kind] = {name: round(figure, 4) for name, figure in figures.items()}
    return scores
