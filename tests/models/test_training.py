"""The training loop equals transformers' Trainer bit for bit in float32; losses in bfloat16 are close."""

import copy
import math
import warnings

import pytest
import torch
from tiny import CONFIGS, FINETUNE, fast_tier, open_family, refused
from trainer_reference import train_with_trainer
from transformers import AutoModelForSequenceClassification

from bertsecrets.errors import UserError
from bertsecrets.models import memory
from bertsecrets.models.initialisations import freeze_encoder
from bertsecrets.models.locations import locate
from bertsecrets.models.opening import open_classifier
from bertsecrets.models.training.finetune import finetune
from bertsecrets.models.training.loop import Training
from bertsecrets.texts.glue import Split, load_folder
from bertsecrets.texts.tasks import task

CPU = torch.device("cpu")


def both_ways(opened, split, tmp_path, initialisation="pretrained", seed=1, **changes):
    """Return losses and model of the suite's training and of the Trainer's, starting from the same weights."""
    settings = FINETUNE.model_copy(update=changes)
    ours = opened()
    (tmp_path / "ours").mkdir()
    facts = finetune(
        ours, split, tmp_path / "ours", settings=settings, initialisation=initialisation, seed=seed, device=CPU
    )
    theirs = opened()
    with warnings.catch_warnings():
        warnings.simplefilter("ignore")  # warnings of the Trainer itself
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
    assert open_classifier(locate(str(tiny_bert)), task("stsb")).model.config.problem_type == "regression"


@pytest.mark.parametrize("name", fast_tier(sorted(CONFIGS), "bert", "gpt2", "modernbert"))
def test_every_family_equals_the_trainers(tiny_vocabulary, tiny_glue, tmp_path, name):
    split = load_folder(tiny_glue, task("rte"), "train").head(20)

    assert_equal(*both_ways(lambda: open_family(name, tiny_vocabulary), split, tmp_path, epochs=3))


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
        classifier, folder = open_family(name, tokenizer), tmp_path / str(len(weights))
        folder.mkdir()
        finetune(classifier, split, folder, settings=FINETUNE, initialisation="pretrained", seed=1, device=CPU)
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
        (tmp_path / precision).mkdir()
        settings = FINETUNE.model_copy(update={"precision": precision, "epochs": 4})
        facts = finetune(
            opened, split, tmp_path / precision, settings=settings, initialisation=initialisation, seed=1, device=CPU
        )
        assert facts["precision"] == precision
        assert {weight.dtype for weight in opened.model.parameters()} == {torch.float32}
        losses[precision] = torch.tensor(facts["loss"])
    assert losses["float32"].std() > 0.005
    torch.testing.assert_close(losses["bfloat16"], losses["float32"], rtol=0, atol=0.1)


# ---------------------------------------------------------------------- rows, memory, divergence


def train(model, split, folder, task_name="rte", initialisation="pretrained", **changes):
    folder.mkdir(exist_ok=True)
    return finetune(
        open_classifier(locate(str(model)), task(task_name), initialisation, 1), split, folder,
        settings=FINETUNE.model_copy(update=changes), initialisation=initialisation, seed=1, device=CPU,
    )  # fmt: skip


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
    facts = train(tiny_bert, split, tmp_path / "x")
    assert facts["steps"] == 2 * -(-len(texts) // 6)
    assert all(0 <= loss < 5 for loss in facts["loss"])


def test_too_little_memory_for_training_is_refused_before_the_first_step(tiny_bert, tiny_glue, tmp_path, monkeypatch):
    split = load_folder(tiny_glue, task("rte"), "train")
    free = memory.available_bytes()
    monkeypatch.setattr(memory, "available_bytes", lambda: free)
    train(tiny_bert, split.head(6), tmp_path / "fits")
    monkeypatch.setattr(memory, "available_bytes", lambda: 1_000_000)  # enough for opening the model
    with pytest.raises(UserError, match=r"^fine-tuning needs about [\d.]+ MB of memory, but only 1 MB is free: reduce"):
        train(tiny_bert, split, tmp_path / "x", batch_size=64)
    assert not list((tmp_path / "x").iterdir())


@pytest.mark.parametrize("raised", [MemoryError(), RuntimeError("[enforce fail] : can't allocate memory: 4 bytes")])
def test_running_out_of_memory_in_training_is_one_line(tiny_bert, tiny_glue, tmp_path, monkeypatch, raised):
    def fail(self):
        raise raised

    monkeypatch.setattr(Training, "take_step", fail)
    with refused(r"^fine-tuning ran out of memory \(it needs about [\d.]+ MB\): end"):
        train(tiny_bert, load_folder(tiny_glue, task("rte"), "train"), tmp_path / "x")


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
    facts = train(tiny_bert, split, tmp_path / "x", learning_rate=0.1)
    assert all(math.isfinite(loss) for loss in facts["loss"])
    with pytest.raises(UserError, match=r"diverged at step \d+ of 22 \(\w.*\) at learning rate .*\(1e\+30\)"):
        train(tiny_bert, split, tmp_path / "y", learning_rate=1e30)
    with pytest.raises(UserError, match=r"reduce finetune\.frozen_learning_rate \(1e\+38\)"):
        train(tiny_bert, split, tmp_path / "z", initialisation="frozen", frozen_learning_rate=1e38)
    assert not list((tmp_path / "y").iterdir())
