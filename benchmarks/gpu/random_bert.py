"""Create a model folder with the shape of BERT-base and random weights: `random_bert.py FOLDER`.

It has BERT's vocabulary, from MiniLM's tokenizer, and is only useful for speed measurements.
"""

import sys
from pathlib import Path

import torch
from transformers import AutoTokenizer, BertConfig, BertForMaskedLM

from bertsecrets.models.locations import locate
from bertsecrets.store.files import whole_folder


def main(folder: Path) -> None:
    """Create the folder atomically."""
    folder.parent.mkdir(parents=True, exist_ok=True)
    torch.manual_seed(2019)
    with whole_folder(folder) as temporary:
        BertForMaskedLM(BertConfig()).save_pretrained(temporary)
        AutoTokenizer.from_pretrained(locate("minilm").path).save_pretrained(temporary)


if __name__ == "__main__":
    main(Path(sys.argv[1]))
