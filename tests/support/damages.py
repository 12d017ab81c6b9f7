"""A tiny model to damage, and data that it can learn. The damages come from `benchmarks/damage_study.py`."""

import json
import random
from pathlib import Path

import torch
from pages import program
from tiny import pieces, save_bert

# A separate vocabulary, so that what the tiny model learns does not depend on the suite's corpus.
_TEXT = """
ada after although apples as at baker before boats books bought bruno buy carla chairs clocks coats delight deniz dinner
eight emma everyone farid farmer find five found four friday gardener greta harbour hugo in ines island it jonas judge
keys kira lamps last leo letters lisbon lose lost maps market monday near neighbours never nine nobody noon nurse old on
oslo paint painted painter pilot rained recall repair repaired river sell seven six sold spring surprised tailor the
three to town two week were which
"""
WORDS = _TEXT.split()


study = program("benchmarks/damage_study.py")


def save_peaked(folder: Path, seed: int = 0, *, as_model: bool = True, factor: float = 10.0) -> Path:
    """Save a tiny BERT in which every head, layer and norm matters, as a model to fine-tune or as a checkpoint.

    Args:
        factor: Scale of the weight matrices. At larger scales, maps have higher peaks, and the model learns less.
    """
    save_bert(folder, seed=seed, words=pieces(WORDS))
    generator = torch.Generator().manual_seed(seed)
    with study.weights_of(folder) as weights:
        for name, tensor in weights.items():
            if "LayerNorm" in name:
                tensor += 0.3 * torch.randn(tensor.shape, generator=generator)
            elif tensor.ndim == 2 and not name.startswith("classifier"):
                tensor *= factor
    if as_model:
        config = json.loads((folder / "config.json").read_text())
        config["architectures"] = ["BertModel"]
        (folder / "config.json").write_text(json.dumps(config))
    return folder


def write_reviews(folder: Path, train: int, dev: int) -> Path:
    """Write a GLUE folder with an SST-2 that can be learned: the capitalised first word determines the class."""
    draw = random.Random(5)
    words = [word for word in WORDS if len(word) > 4]
    good, bad, rest = words[:6], words[6:12], words[12:]

    def line() -> str:
        label = draw.randrange(2)
        first = draw.choice(good if label else bad).capitalize()
        return f"{' '.join([first, *draw.choices(rest, k=draw.randrange(3, 12))])}\t{label}"

    (folder / "SST-2").mkdir(parents=True)
    for name, rows in (("train", train), ("dev", dev)):
        lines = "\n".join(["sentence\tlabel", *(line() for _ in range(rows))])
        (folder / "SST-2" / f"{name}.tsv").write_text(lines + "\n", encoding="utf-8")
    return folder
