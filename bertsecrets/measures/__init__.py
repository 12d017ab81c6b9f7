"""One file per experiment; this table says which measures there are and how each is run. It imports none of them."""

from dataclasses import dataclass

from bertsecrets.core import UserError, near_matches

SCORES, ATTENTION, ABLATION = "scores", "attention", "ablation"


@dataclass(frozen=True)
class Measure:
    """What a measure is.

    `kind` is the way it runs: on predictions, in an attention pass, or through the ablation engine. `compares` says
    that the pretrained model is needed beside the subject's. `version` changes when the definition does, so that
    stored results of the old one are not taken for the new. `implemented` is False for the ones still to come.
    """

    name: str
    kind: str
    title: str
    compares: bool = False
    version: int = 1
    implemented: bool = True


MEASURES: dict[str, Measure] = {
    measure.name: measure
    for measure in (
        Measure("scores", SCORES, "scores, majority-class baseline, entropy of predicted classes (K19 3, table 1)"),
        Measure("attention-change", ATTENTION, "cosine of pretrained and fine-tuned maps (K19 4.3)", compares=True),
        Measure("special-tokens", ATTENTION, "attention to [CLS] and [SEP] (K19 4.4)"),
        Measure("frame-heads", ATTENTION, "attention along frame-semantic relations (K19 4.2)", implemented=False),
        Measure("features", ATTENTION, "attention to linguistic features (K19 4.4)", implemented=False),
        Measure("relations", ATTENTION, "token-to-token attention (K19 4.5)", implemented=False),
        Measure("patterns", ATTENTION, "classes of attention maps (K19 4.1)", implemented=False),
        Measure("head-ablation", ABLATION, "score with each head disabled (K19 4.6)", implemented=False),
        Measure("layer-ablation", ABLATION, "score with each layer disabled (K19 4.6)", implemented=False),
    )
}


def fitting(initialisation: str) -> list[str]:
    """The implemented measures that make sense for an initialisation; nothing is compared with itself."""
    return [m.name for m in MEASURES.values() if m.implemented and not (m.compares and initialisation == "untrained")]


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
