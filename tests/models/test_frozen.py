"""A frozen encoder encodes each text once; the classifier learns the same as with the whole model at every step."""

import pytest
import torch
from tiny import CONFIGS, FINETUNE, open_family
from transformers import DistilBertForSequenceClassification
from transformers.modeling_outputs import SequenceClassifierOutput
from zoo import save_family

from bertsecrets.models.encoding import Encoded, batches, encode
from bertsecrets.models.initialisations import freeze_encoder
from bertsecrets.models.locations import locate
from bertsecrets.models.opening import OpenModel, open_classifier
from bertsecrets.models.training.loop import Training
from bertsecrets.models.training.texts import EncodedTexts, reading_of
from bertsecrets.texts.glue import load_folder
from bertsecrets.texts.tasks import task

CPU = torch.device("cpu")


@pytest.fixture
def opened(tiny_vocabulary, tmp_path):
    """Return a function that opens a tiny model with a frozen encoder, always with the same weights."""

    def open_frozen(name):
        if name == "longformer":  # its classifier adds global attention
            folder = tmp_path / "longformer"
            classifier = open_classifier(locate(str(save_family(name, folder))), task("rte"))
        else:
            classifier = open_family(name, tiny_vocabulary)
        freeze_encoder(classifier.model)
        return classifier

    return open_frozen


def train(classifier, encoded):
    """Train, and return the losses, the trained weights, and how often the encoder was run by the steps."""
    training, calls = Training(classifier, encoded, [0, 1] * 10, FINETUNE, seed=1, device=CPU), []
    classifier.model.get_input_embeddings().register_forward_hook(lambda *_: calls.append(1))
    for _ in range(training.steps):
        training.take_step()
    losses = torch.stack(training.unchecked)[:, 0]
    return losses, {name: weight.detach() for name, weight in training.weights.items()}, len(calls)


@pytest.mark.parametrize("name", [*CONFIGS, "longformer"])
def test_encoding_once_gives_the_same_training_as_encoding_at_every_step(opened, tiny_glue, monkeypatch, name):
    classifier = opened(name)
    encoded = encode(load_folder(tiny_glue, task("rte"), "train").head(20), classifier.tokenizer, 64)
    assert len(list(batches(encoded))) == 1
    losses, weights, calls = train(classifier, encoded)
    monkeypatch.setattr(EncodedTexts, "for_classifier", classmethod(lambda cls, *_, **__: None))
    other_losses, others, other_calls = train(opened(name), encoded)
    assert calls == 0
    assert other_calls >= 8
    torch.testing.assert_close(losses, other_losses, rtol=1e-5, atol=0)
    torch.testing.assert_close(weights, others, rtol=1e-4, atol=1e-5)


def test_the_token_that_is_read_is_probed_on_texts_of_all_lengths(opened):
    """GPT-2's classifier reads the last token, which in one-token texts is also the first."""
    classifier = opened("gpt2")
    encoded = Encoded([[5]] * 300 + [[5, 6, 7]] * 3, None, 0)
    texts = EncodedTexts.for_classifier(classifier.model, encoded, CPU, half=False)
    assert texts.reading.place == "last"


class Averaging(DistilBertForSequenceClassification):
    def forward(self, input_ids=None, attention_mask=None, labels=None, **_):
        weights = (attention_mask / attention_mask.sum(1, keepdim=True))[..., None]
        logits = self.classifier((weights * self.distilbert(input_ids, attention_mask=attention_mask)[0]).sum(1))
        loss = None if labels is None else torch.nn.functional.cross_entropy(logits, labels)
        return SequenceClassifierOutput(loss=loss, logits=logits)


def test_a_classifier_that_reads_every_token_trains_without_the_encoders_dropout(tiny_vocabulary, tiny_glue):
    encoded = encode(load_folder(tiny_glue, task("rte"), "train").head(20), tiny_vocabulary, 64)
    learnt = {}
    for dropout in (0.0, 0.5):
        config = {**CONFIGS["distilbert"].to_dict(), "vocab_size": len(tiny_vocabulary)}
        torch.manual_seed(0)
        model = Averaging(type(CONFIGS["distilbert"]).from_dict({**config, "dropout": dropout}))
        freeze_encoder(model)
        assert reading_of(model.eval(), next(batches(encoded))) is None
        learnt[dropout] = train(OpenModel(model, tiny_vocabulary, ""), encoded)[0].tolist()
    assert learnt[0.0] == learnt[0.5]
    assert learnt[0.0][0] != learnt[0.0][-1]
