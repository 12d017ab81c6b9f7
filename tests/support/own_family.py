"""A family whose classifier computes its logits by one of several heads."""

import torch
from torch import nn
from transformers import BertConfig, BertModel, BertPreTrainedModel
from transformers.modeling_outputs import SequenceClassifierOutput


class OwnConfig(BertConfig):
    model_type = "own-bert"


class OwnBert(BertModel):
    config_class = OwnConfig


class OwnClassifier(BertPreTrainedModel):
    """Classifies by `head`, and accepts only the arguments that it needs."""

    config_class = OwnConfig

    def __init__(self, config):
        super().__init__(config)
        self.bert = OwnBert(config, add_pooling_layer=False)
        self.classifier = nn.Linear(config.hidden_size, 1 if config.head == "one output" else config.num_labels)
        self.bias = nn.Parameter(torch.tensor([2.0, -2.0][: config.num_labels]))
        self.pooling = nn.Linear(config.hidden_size, 1) if config.head == "pooling" else None
        self.post_init()

    def forward(self, input_ids, attention_mask=None, token_type_ids=None, labels=None):
        states = self.bert(input_ids, attention_mask, token_type_ids).last_hidden_state
        logits = self.classifier(states[:, 0])
        if self.config.head == "bias":
            logits = logits + self.bias
        if self.config.head == "pooling":
            logits = self.classifier((states * self.pooling(states).softmax(1)).sum(1))
        if self.config.head == "not a number":
            logits = logits * float("nan")
        if self.config.head == "random":
            logits = logits + torch.rand(1)
        loss = None if labels is None or self.config.head == "no loss" else logits.square().sum()
        return SequenceClassifierOutput(loss=loss, logits=logits)
