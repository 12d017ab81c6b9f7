"""Make a model folder of BERT-base's shape with random weights: `random_bert.py FOLDER`.

It has BERT's vocabulary, by way of MiniLM's tokenizer. It is good for measuring speed, and for nothing else.
"""

import sys
from pathlib import Path

import torch
from transformers import AutoTokenizer, BertConfig, BertForMaskedLM

from bertsecrets.models.locations import locate
from bertsecrets.store.files import whole_folder


def main(folder: Path) -> None:
    """Make the folder, completely or not at all."""
    folder.parent.mkdir(parents=True, exist_ok=True)
    torch.manual_seed(2019)
    with whole_folder(folder) as temporary:
        BertForMaskedLM(BertConfig()).save_pretrained(temporary)
        AutoTokenizer.from_pretrained(locate("minilm").path).save_pretrained(temporary)


if __name__ == "__main__":
    main(Path(sys.argv[1]))
