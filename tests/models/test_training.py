"""The training loop: what transformers' Trainer does, bit for bit."""

import warnings

import pytest
import torch
from tiny import CONFIGS
from trainer_reference import train_with_trainer
from transformers import AutoModelForSequenceClassification

from bertsecrets.models.finetune import finetune
from bertsecrets.models.loading import OpenModel, open_classifier
from bertsecrets.models.locations import locate
from bertsecrets.settings import FinetuneParams
from bertsecrets.texts.glue import Split, load_folder
from bertsecrets.texts.tasks import task

CPU = torch.device("cpu")
SETTINGS = FinetuneParams(
    batch_size=6, epochs=2, learning_rate=1e-3, frozen_learning_rate=1e-2, warmup=0.1, weight_decay=0.01,
    max_gradient_norm=1.0, max_length=64,
)  # fmt: skip


def both_ways(opened, split, tmp_path, initialisation="pretrained", seed=1, **changes):
    """The losses and weights of the suite's training and of the Trainer's, of models opened anew."""
    settings = SETTINGS.model_copy(update=changes)
    ours = opened()
    (tmp_path / "ours").mkdir()
    facts = finetune(
        ours, split, tmp_path / "ours", settings=settings, initialisation=initialisation, seed=seed, device=CPU
    )
    theirs = opened()
    with warnings.catch_warnings():
        warnings.simplefilter("ignore")  # the Trainer's own
        losses, model = train_with_trainer(
            theirs, split, tmp_path / "theirs", settings=settings, initialisation=initialisation, seed=seed
        )
    return facts["loss"], ours.model, losses, model


def assert_equal(losses, model, other_losses, other):
    assert losses == other_losses
    for (name, weight), (_, expected) in zip(model.named_parameters(), other.named_parameters(), strict=True):
        assert torch.equal(weight, expected), name
    assert model.config.to_dict() == other.config.to_dict()


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
    assert_equal(
        *both_ways(
            lambda: open_classifier(locate(str(tiny_bert)), task("rte"), initialisation, 3),
            split, tmp_path, initialisation, 3, **changes,
        )
    )  # fmt: skip


def test_a_regression_equals_the_trainers(tiny_bert, tmp_path):
    texts = ["ada sold two books", "ada sold nine books and two keys", "leo lost two keys"] * 6
    split = Split(task("stsb"), "train", texts, texts[::-1], [0.5, 2.5, 4.75] * 6, "here", False)
    assert_equal(*both_ways(lambda: open_classifier(locate(str(tiny_bert)), task("stsb")), split, tmp_path))


@pytest.mark.parametrize("name", sorted(CONFIGS))
def test_every_family_equals_the_trainers(tiny_vocabulary, tiny_glue, tmp_path, name):
    split = load_folder(tiny_glue, task("rte"), "train").head(20)

    def opened():
        config = type(CONFIGS[name]).from_dict({**CONFIGS[name].to_dict(), "vocab_size": len(tiny_vocabulary)})
        torch.manual_seed(0)
        return OpenModel(AutoModelForSequenceClassification.from_config(config), tiny_vocabulary, "")

    assert_equal(*both_ways(opened, split, tmp_path, epochs=3))
