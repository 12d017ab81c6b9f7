"""Training equals transformers' Trainer bit for bit in float32, also if a frozen encoder encodes each text once."""

import copy
import math
import warnings
from functools import partial

import pytest
import torch
from tiny import CONFIGS, FINETUNE, fast_tier, open_family, refused, train
from trainer_reference import train_with_trainer
from transformers import AutoModelForSequenceClassification, DistilBertForSequenceClassification
from transformers.modeling_outputs import SequenceClassifierOutput
from zoo import save_family

from bertsecrets.errors import UserError
from bertsecrets.models import memory
from bertsecrets.models.encoding import Encoded, batches, encode
from bertsecrets.models.initialisations import freeze_encoder
from bertsecrets.models.locations import locate
from bertsecrets.models.opening import OpenModel, open_classifier
from bertsecrets.models.training.loop import Training
from bertsecrets.models.training.texts import EncodedTexts, reading_of
from bertsecrets.texts.glue import Split, load_folder
from bertsecrets.texts.tasks import task


def assert_equals_the_trainers(opened, split, tmp_path, initialisation="pretrained", seed=1, **changes):
    """Compare losses and model of the suite's training and of the Trainer's, starting from the same weights."""
    ours, theirs = opened(), opened()
    losses = train(ours, split, tmp_path / "ours", initialisation, seed, **changes)["loss"]
    options = {"settings": FINETUNE.model_copy(update=changes), "initialisation": initialisation, "seed": seed}
    with warnings.catch_warnings():
        warnings.simplefilter("ignore")  # warnings of the Trainer itself
        expected, other = train_with_trainer(theirs, split, tmp_path / "theirs", **options)
    assert losses == expected
    for (name, weight), (_, same) in zip(ours.model.named_parameters(), other.named_parameters(), strict=True):
        assert torch.equal(weight, same), name
    assert ours.model.config.to_dict() == other.config.to_dict()


@pytest.mark.parametrize(
    ("initialisation", "changes"),
    [
        ("pretrained", {}),
        ("random", {"warmup": 0.0, "batch_size": 64}),
        ("frozen", {"epochs": 3}),
        ("pretrained", {"max_gradient_norm": 0.01, "weight_decay": 0.5, "warmup": 1.0}),
    ],
)
def test_training_equals_the_trainers_bit_for_bit(tiny_bert, tiny_glue, tmp_path, initialisation, changes):
    split = load_folder(tiny_glue, task("rte"), "train")
    ref = locate(str(tiny_bert))
    assert_equals_the_trainers(
        lambda: open_classifier(ref, task("rte"), initialisation, 3), split, tmp_path, initialisation, 3, **changes
    )


def test_a_regression_equals_the_trainers(tiny_bert, tmp_path):
    texts = ["ada sold two books", "ada sold nine books and two keys", "leo lost two keys"] * 6
    split = Split(task("stsb"), "train", texts, texts[::-1], [0.5, 2.5, 4.75] * 6, "here", False)
    opened = partial(open_classifier, locate(str(tiny_bert)), task("stsb"))
    assert_equals_the_trainers(opened, split, tmp_path)
    assert opened().model.config.problem_type == "regression"


@pytest.mark.parametrize("name", fast_tier(sorted(CONFIGS), "bert", "gpt2", "modernbert"))
def test_every_family_equals_the_trainers(tiny_vocabulary, tiny_glue, tmp_path, name):
    split = load_folder(tiny_glue, task("rte"), "train").head(20)
    assert_equals_the_trainers(lambda: open_family(name, tiny_vocabulary), split, tmp_path, epochs=3)


@pytest.mark.parametrize(
    "setting",
    [
        pytest.param({"padding_side": "left"}, id="left"),
        pytest.param({"model_input_names": ["input_ids", "token_type_ids"]}, id="no mask"),
    ],
)
@pytest.mark.parametrize("name", fast_tier(sorted(CONFIGS), "bert", "gpt2"))
def test_how_a_tokenizer_pads_does_not_change_training(tiny_vocabulary, tiny_glue, tmp_path, name, setting):
    split = load_folder(tiny_glue, task("rte"), "train").head(20)
    unusual = copy.deepcopy(tiny_vocabulary)
    for attribute, value in setting.items():
        setattr(unusual, attribute, value)
    weights = []
    for tokenizer in (tiny_vocabulary, unusual):
        classifier = open_family(name, tokenizer)
        train(classifier, split, tmp_path / "x")
        weights.append(classifier.model.state_dict())
    assert all(torch.equal(weight, weights[1][key]) for key, weight in weights[0].items())


@pytest.mark.parametrize("name", fast_tier(sorted(CONFIGS), "bert", "distilbert"))
@pytest.mark.parametrize("initialisation", ["pretrained", "frozen"])
def test_losses_in_bfloat16_are_close_to_those_in_float32(tiny_vocabulary, tiny_glue, tmp_path, name, initialisation):
    split = load_folder(tiny_glue, task("rte"), "train").head(20)
    losses = {}
    for precision in ("float32", "bfloat16"):
        opened = open_family(name, tiny_vocabulary)
        for module in opened.model.modules():
            if isinstance(module, torch.nn.Dropout):
                module.p = 0.0
        facts = train(opened, split, tmp_path / "x", initialisation, precision=precision, epochs=4)
        assert facts["precision"] == precision
        assert {weight.dtype for weight in opened.model.parameters()} == {torch.float32}
        losses[precision] = torch.tensor(facts["loss"])
    assert losses["float32"].std() > 0.005
    torch.testing.assert_close(losses["bfloat16"], losses["float32"], rtol=0, atol=0.1)


# ---------------------------------------------------------------------- rows, memory, divergence


def open_new(model, initialisation="pretrained"):
    return open_classifier(locate(str(model)), task("rte"), initialisation, 1)


@pytest.mark.parametrize(
    ("texts", "labels"),
    [
        (["ada sold two books"], ["entailment"]),  # one row
        (["ada sold two books", "leo lost two keys"] * 5, ["entailment"] * 10),  # one class
        ([""] * 7, ["entailment", "not_entailment"] * 3 + ["entailment"]),  # empty texts
    ],
)
def test_unusual_rows_can_be_trained_on(tiny_bert, tmp_path, texts, labels):
    split = Split(task("rte"), "train", texts, texts[::-1], labels, "here", False)
    facts = train(open_new(tiny_bert), split, tmp_path / "x")
    assert facts["steps"] == 2 * -(-len(texts) // 6)
    assert all(0 <= loss < 5 for loss in facts["loss"])


def test_too_little_memory_for_training_is_refused_before_the_first_step(tiny_bert, tiny_glue, tmp_path, monkeypatch):
    split = load_folder(tiny_glue, task("rte"), "train")
    free = memory.available_bytes()
    monkeypatch.setattr(memory, "available_bytes", lambda: free)
    train(open_new(tiny_bert), split.head(6), tmp_path / "fits")
    monkeypatch.setattr(memory, "available_bytes", lambda: 1_000_000)  # enough for opening the model
    with pytest.raises(UserError, match=r"^fine-tuning needs about [\d.]+ MB of memory, but only 1 MB is free: reduce"):
        train(open_new(tiny_bert), split, tmp_path / "x", batch_size=64)
    assert not list((tmp_path / "x").iterdir())


@pytest.mark.parametrize("raised", [MemoryError(), RuntimeError("[enforce fail] : can't allocate memory: 4 bytes")])
def test_running_out_of_memory_in_training_is_one_line(tiny_bert, tiny_glue, tmp_path, monkeypatch, raised):
    def fail(self):
        raise raised

    monkeypatch.setattr(Training, "take_step", fail)
    with refused(r"^fine-tuning ran out of memory \(it needs about [\d.]+ MB\): end"):
        train(open_new(tiny_bert), load_folder(tiny_glue, task("rte"), "train"), tmp_path / "x")


def test_a_larger_model_or_batch_needs_more_memory():
    model = AutoModelForSequenceClassification.from_config(CONFIGS["bert"])
    needed = memory.training_bytes(model, 8, 32)
    assert memory.training_bytes(model, 16, 32) > needed
    assert memory.training_bytes(model, 8, 64) > 2 * needed - memory.training_bytes(model, 0, 0)
    assert memory.training_bytes(model, 0, 0) == 12 * sum(weight.numel() for weight in model.parameters())
    freeze_encoder(model)
    assert memory.training_bytes(model, 8, 32) == 12 * sum(weight.numel() for weight in model.classifier.parameters())


def test_a_training_that_diverges_is_refused(tiny_bert, tiny_glue, tmp_path):
    split = load_folder(tiny_glue, task("rte"), "train")
    facts = train(open_new(tiny_bert), split, tmp_path / "x", learning_rate=0.1)
    assert all(math.isfinite(loss) for loss in facts["loss"])
    with pytest.raises(UserError, match=r"diverged at step \d+ of 22 \(\w.*\) at learning rate .*\(1e\+30\)"):
        train(open_new(tiny_bert), split, tmp_path / "y", learning_rate=1e30)
    with pytest.raises(UserError, match=r"reduce finetune\.frozen_learning_rate \(1e\+38\)"):
        train(open_new(tiny_bert, "frozen"), split, tmp_path / "z", "frozen", frozen_learning_rate=1e38)
    assert not list((tmp_path / "y").iterdir())


# ---------------------------------------------------------------------- a frozen encoder encodes each text once


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


def take_steps(classifier, encoded):
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
    losses, weights, calls = take_steps(classifier, encoded)
    monkeypatch.setattr(EncodedTexts, "for_classifier", classmethod(lambda cls, *_, **__: None))
    other_losses, others, other_calls = take_steps(opened(name), encoded)
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
        learnt[dropout] = take_steps(OpenModel(model, tiny_vocabulary, ""), encoded)[0].tolist()
    assert learnt[0.0] == learnt[0.5]
    assert learnt[0.0][0] != learnt[0.0][-1]
