"""The matrix of families and measures, determined by trying each measure on a tiny model of each family.

`PYTHONPATH=.:tests/support python tests/support/matrix.py` prints it as in docs/families.md.
"""

import tempfile
from collections.abc import Iterable
from pathlib import Path

import torch
from zoo import FAMILIES, save_family

from bertsecrets.measures.base.probe import refusals
from bertsecrets.models.locations import locate
from bertsecrets.models.opening import open_classifier
from bertsecrets.texts.tasks import task

NAMES = {
    "bert": "BERT",
    "ernie": "ERNIE",
    "roberta": "RoBERTa",
    "xlm-roberta": "XLM-R",
    "camembert": "CamemBERT",
    "electra": "ELECTRA",
    "albert": "ALBERT",
    "distilbert": "DistilBERT",
    "mpnet": "MPNet",
    "deberta": "DeBERTa",
    "deberta-v2": "DeBERTa v2, v3",
    "big_bird": "BigBird",
    "roformer": "RoFormer",
    "rembert": "RemBERT",
    "mobilebert": "MobileBERT",
    "modernbert": "ModernBERT",
    "eurobert": "EuroBERT",
    "nomic_bert": "NomicBERT",
    "longformer": "Longformer",
    "squeezebert": "SqueezeBERT",
    "convbert": "ConvBERT",
    "funnel": "Funnel",
    "xlnet": "XLNet",
    "fnet": "FNet",
    "bart": "BART",
    "t5": "T5",
    "gpt2": "GPT-2",
    "llama": "Llama",
    "qwen2": "Qwen2",
}
COLUMNS = {
    "scores": ["scores"],
    "attention": [
        *("attention-change", "patterns", "features", "relations", "frame-heads", "head-statistics"),
        *("surface-words", "example-maps"),
    ],
    "special tokens": ["special-tokens"],
    "example sentence": ["example-sentence"],
    "ablation": ["head-ablation", "layer-ablation"],
    "head pruning": ["head-pruning"],
    "weight pruning": ["weight-pruning"],
    "gradients": ["attention-gradients"],
    "vectors": ["anisotropy"],
}


def refused(folder: Path) -> dict[str, str]:
    """Return why measures are not possible on a model, by measure. Possible measures are omitted."""
    return {name: why for name, why in refusals(locate(str(folder))).items() if why is not None}


def segments_count(folder: Path) -> bool:
    """Return whether a model's output depends on which of two texts a token belongs to."""
    model = open_classifier(locate(str(folder)), task("rte")).model
    ids = torch.tensor([[8, 9, 10, 11, 12, model.config.eos_token_id]])  # T5 and BART need the last one
    with torch.no_grad():
        try:
            one, two = (model(input_ids=ids, token_type_ids=(ids > last).long()).logits for last in (10, ids.max()))
        except (TypeError, IndexError):  # an argument or a segment that the model does not have
            return False
    return not torch.equal(one, two)


def row(family: str, folder: Path) -> str:
    why = refused(folder)
    reasons = list(dict.fromkeys(text.partition(": ")[2] or text for text in why.values()))
    cells = []
    for measures in COLUMNS.values():
        kinds = {name in why for name in measures}
        assert len(kinds) == 1, f"{measures} of {family} differ"
        cells.append("-" if kinds.pop() else "yes")
    segments = "yes" if "yes" in cells and segments_count(folder) else "-"
    return f"| {' | '.join([NAMES[family], *cells, segments, '; '.join(reasons)])} |"


def table(folders: dict[str, Path]) -> str:
    heads = ["family", *COLUMNS, "segments", "why not"]
    return "\n".join(lines(heads, [row(family, folder) for family, folder in folders.items()]))


def lines(heads: Iterable[str], rows: Iterable[str]) -> list[str]:
    names = [*heads]
    return [f"| {' | '.join(names)} |", f"|{'---|' * len(names)}", *rows]


if __name__ == "__main__":
    with tempfile.TemporaryDirectory() as root:
        print(table({family: save_family(family, Path(root) / family) for family in FAMILIES}))
