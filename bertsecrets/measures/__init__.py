"""One file per experiment; this table says which measures there are and how each is run. It imports none of them."""

from dataclasses import dataclass

from bertsecrets.errors import UserError, near_matches

SCORES, ATTENTION, ABLATION, FRAMES, EXAMPLE = "scores", "attention", "ablation", "frames", "example"
ANNOTATED = "annotated"
ENCODER = (FRAMES, EXAMPLE, ANNOTATED)  # on no task of their own: the encoder alone, or annotated maps
SPACY, CLASSIFIER = "spacy", "classifier"


@dataclass(frozen=True)
class Measure:
    """What a measure is.

    `kind` is the way it runs: on predictions, in an attention pass, through the ablation engine, on frame sentences,
    on the paper's example, or on annotated maps. `needs` names what must be installed besides. `compares` says that the
    pretrained model is needed beside the subject's. `version` changes when the definition does, so that stored results
    of the old one are not taken for the new. `implemented` is False for the ones still to come.
    """

    name: str
    kind: str
    title: str
    compares: bool = False
    version: int = 1
    implemented: bool = True
    needs: str | None = None


MEASURES: dict[str, Measure] = {
    measure.name: measure
    for measure in (
        Measure("scores", SCORES, "scores, majority-class baseline, entropy of predicted classes (K19 3, table 1)"),
        Measure("attention-change", ATTENTION, "cosine of pretrained and fine-tuned maps (K19 4.3)", compares=True),
        Measure("special-tokens", ATTENTION, "attention to [CLS] and [SEP] (K19 4.4)"),
        Measure("frame-heads", FRAMES, "attention from core frame elements to their target (K19 4.2)", version=2),
        Measure("example-sentence", EXAMPLE, "the row of one word in the paper's example (K19 4.2)"),
        Measure("features", ATTENTION, "attention to linguistic features (K19 4.4)", needs=SPACY),
        Measure("relations", ATTENTION, "token-to-token attention (K19 4.5)", needs=SPACY),
        Measure("patterns", ATTENTION, "classes of attention maps (K19 4.1)", version=3, needs=CLASSIFIER),
        Measure(
            "pattern-quality",
            ANNOTATED,
            "macro-F1 of the pattern classifier on held-out heads (K19 4.1)",
            version=2,
            needs=CLASSIFIER,
        ),
        Measure("head-ablation", ABLATION, "score with each head disabled (K19 4.6)"),
        Measure("layer-ablation", ABLATION, "score with each layer disabled (K19 4.6)"),
    )
}


def seedless(name: str) -> bool:
    """Whether a measure looks at the bare encoder, so that no seed can change what it finds."""
    return MEASURES[name].kind in ENCODER


def fitting(initialisation: str) -> list[str]:
    """The measures of predictions and attention that fit an initialisation and need nothing that is not shipped."""
    return [
        m.name
        for m in MEASURES.values()
        if m.implemented
        and m.kind in (SCORES, ATTENTION)
        and m.needs in (None, CLASSIFIER)
        and not (m.compares and initialisation == "untrained")
    ]


def check_measure(name: str) -> Measure:
    """The measure called `name`.

    Raises:
        UserError: no such measure, or one that is not implemented yet.
    """
    if name not in MEASURES:
        raise UserError(f"unknown measure {name!r}: {near_matches(name, MEASURES)}")
    if not MEASURES[name].implemented:
        raise UserError(f"measure {name!r} is not implemented yet")
    return MEASURES[name]
