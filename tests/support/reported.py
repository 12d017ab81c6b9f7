"""Verdicts for a report page: every outcome, several tasks, and measurements for all of the paper's figures."""

import numpy as np
from measurements import of_id
from verdicts import of_every_outcome

from bertsecrets.claims.verdict import Verdict
from bertsecrets.measures.example_maps import SIDES, TARGET_KINDS
from bertsecrets.measures.patterns import key
from bertsecrets.patterns.classes import CLASSES
from bertsecrets.patterns.readings import READINGS
from bertsecrets.texts.tasks import ALL_TASKS
from bertsecrets.types import Measurement, Provenance, Subject

MODEL = "m"  # as in `measurements`
SHAPE = (2, 3)  # layers, heads
PROVENANCE = Provenance(
    data="RTE/dev.tsv",
    data_fingerprint="0123456789abcdef",
    seconds=1.5,
    made_by={"software": {"torch": "2.13.0"}, "device": "CPU, 1 thread"},
)
GRID = np.array([[0.5, 0.6, 0.55], [0.7, 0.4, 0.55]])


def of(
    measure: str, values, samples=None, task="rte", *, seed=1, initialisation="pretrained", **options
) -> Measurement:
    """Return a measurement of the model, with its provenance."""
    subject = Subject(MODEL, task, initialisation, seed)
    return Measurement(measure, subject, 20, values, samples or {}, options=options, provenance=PROVENANCE)


def ablated(measure: str, score: np.ndarray, seed: int) -> Measurement:
    """Return the scores of a head or layer ablation on RTE."""
    right = [(np.arange(20) < round(20 * share)).astype(int) for share in score.ravel()]
    samples = {"predicted": np.stack(right), "baseline_predicted": np.arange(20) % 2, "target": np.ones(20)}
    return of(measure, {"baseline": 0.5, "score": score}, samples, seed=seed)


def of_figures(seed: int = 1) -> list[Measurement]:
    """Return a measurement for each of the paper's figures, and the scores of table 1."""
    patterns = {"majority": np.array([[0, 1, 2], [3, 4, 0]]), "agreement": np.full(SHAPE, 0.9)}
    patterns |= {f"share_{key(name)}": np.full(SHAPE, 0.2) for name in CLASSES}
    patterns |= {f"corrected_{key(name)}": 0.2 for name in CLASSES}
    under = {f"{reading}_{name}": value for reading in READINGS for name, value in patterns.items()}
    predicted = {f"{reading}_predicted": np.tile(patterns["majority"], (9, 1, 1)) for reading in READINGS}
    weights = np.stack([GRID - 0.1, GRID + 0.1])
    kinds = ("noun", "verb", "cls", "sep")
    scores = {"untrained": (0.53, True), "random": (0.53, True), "pretrained": (0.61, False)}
    return [
        of("patterns", under, predicted, seed=seed),
        of("frame-heads", {"max_weight": GRID}, {"max_weight": weights}, ALL_TASKS, seed=seed),
        of("attention-change", {"cosine": GRID}, {"cosine": weights}, seed=seed),
        of("attention-change", {"cosine": GRID + 0.2}, {"cosine": weights}, seed=seed, padded_to=200),
        of("special-tokens", {"cls": GRID, "sep": GRID / 2, "sep_sum": GRID}, seed=seed),
        of("features", dict.fromkeys(kinds, GRID) | {f"cls_row_{name}": GRID[1] for name in kinds}, seed=seed),
        ablated("head-ablation", GRID, seed),
        ablated("layer-ablation", GRID[:, 0], seed),
        *(
            of("scores", {"accuracy": share, "constant": constant, "majority": 0.53}, seed=seed, initialisation=init)
            for init, (share, constant) in scores.items()
        ),
    ]


WORDS = (["[CLS]", "Ada", "sings", "[SEP]"], ["[CLS]", "No", "</script>", "##s", "[SEP]"])


def example_maps(task: str = "rte") -> Measurement:
    """Return maps of two examples with 4 and 5 tokens: uniform before fine-tuning, all on token `head` afterwards."""
    lengths, size = np.array([len(words) for words in WORDS]), max(map(len, WORDS))
    before, after = np.zeros((2, 2, *SHAPE, size, size), dtype=np.float16)
    for place, length in enumerate(lengths):
        before[place, ..., :length, :length] = 1 / length
        for head in range(SHAPE[1]):
            after[place, :, head, :length, head] = 1.0
    shares = np.zeros((20, *SHAPE, len(TARGET_KINDS)), dtype=np.float32)
    shares[..., 0] = 1.0
    values = {
        "cosine": GRID,
        **{f"to_{side}": shares.mean(0) for side in SIDES},
        "texts": ["Ada sings", "No / </script>s"],
        "labels": ["entailment", "not_entailment"],
        "tokens": [word for words in WORDS for word in words],
    }
    samples = {"shown": np.array([3, 1]), "lengths": lengths, "maps_before": before, "maps_after": after}
    return of("example-maps", values, samples | {f"to_{side}": shares for side in SIDES}, task)


def verdicts() -> list[Verdict]:
    """Return verdicts of every outcome. One uses all measurements of two seeds."""
    whole = Verdict(
        of_id("C1p-rte"),
        "reproduced",
        "[-0.30, -0.10] lies below 0, as claimed",
        observed=-0.2,
        interval=(-0.3, -0.1),
        band=(float("-inf"), 0.0),
        measurements=(*of_figures(1), *of_figures(2)),
        by_seed=((-0.21,), (-0.19,)),
    )
    first = Verdict(
        of_id("A2-rte"),
        "inconclusive",
        "band too wide",
        40.0,
        (30.0, 50.0),
        (20.0, 60.0),
        power="3 more seeds",
    )
    return [first, whole, *of_every_outcome()]
