"""Training in bfloat16: the layers written out by hand, the words that occur, the optimizer's step, whole trainings."""

import warnings

import pytest
import torch
from tiny import CONFIGS, family
from torch import nn
from transformers import AutoModelForSequenceClassification

from bertsecrets.models import finetune as finetuning
from bertsecrets.models import half_training
from bertsecrets.models.encoding import Encoded, encode
from bertsecrets.models.finetune import finetune
from bertsecrets.models.half_layers import BERT, Dropout, HalfEncoder, HalfLayer, Step, factor
from bertsecrets.models.half_training import HalfTraining, OccurringWords
from bertsecrets.models.loading import OpenModel, open_checkpoint, open_classifier
from bertsecrets.models.locations import locate
from bertsecrets.settings import FinetuneParams
from bertsecrets.store.files import file_sha256
from bertsecrets.texts.glue import Split, load_folder
from bertsecrets.texts.tasks import task

pytestmark = pytest.mark.slow

CPU = torch.device("cpu")
SETTINGS = FinetuneParams(
    batch_size=6, epochs=2, learning_rate=1e-3, frozen_learning_rate=1e-2, warmup=0.1, weight_decay=0.01,
    max_gradient_norm=1.0, max_length=64, precision="bfloat16",
)  # fmt: skip
ROWS, LENGTH, WIDTH = 3, 7, 32


class Noted(Dropout):
    """Dropout that keeps what it has drawn."""

    def __init__(self):
        super().__init__(5, 1)
        self.drawn = []

    def draw(self, shape, rate):
        self.drawn.append(super().draw(shape, rate))
        return self.drawn[-1]


def layer_by_autograd(layer: HalfLayer, x, mask, keeps):
    """A layer's output, computed the plain way with the given dropout."""
    module = layer.module
    attention, intermediate = module.attention, module.intermediate
    split = lambda y: y.view(ROWS, LENGTH, layer.heads, -1).transpose(1, 2)  # noqa: E731
    query, key, value = (split(getattr(attention.self, name)(x)) for name in ("query", "key", "value"))
    logits = query @ key.transpose(2, 3) / (WIDTH / layer.heads) ** 0.5
    if mask is not None:
        logits = logits.masked_fill(~mask[:, None, None], float("-inf"))
    dropped = lambda y, i: y if not keeps else y * keeps[i].view(y.shape) * factor(layer.rates[i])  # noqa: E731
    context = (dropped(logits.softmax(-1), 0) @ value).transpose(1, 2).reshape(x.shape)
    y = attention.output.LayerNorm(dropped(attention.output.dense(context), 1) + x)
    z = module.output.dense(nn.functional.gelu(intermediate.dense(y)))
    return module.output.LayerNorm(dropped(z, 2) + y)


def layer_of(dtype) -> HalfLayer:
    [module, *_] = [module for module in family("bert").to(dtype).modules() if HalfLayer.fits(module)]
    return HalfLayer(module, 4, dtype)


@pytest.mark.parametrize("padded", [False, True])
@pytest.mark.parametrize("dropping", [False, True])
def test_output_and_gradients_of_a_layer_equal_autograds(padded, dropping):
    layer = layer_of(torch.float64)
    generator = torch.Generator().manual_seed(1)
    x = torch.randn(ROWS, LENGTH, WIDTH, generator=generator, dtype=torch.float64, requires_grad=True)
    wanted = torch.randn(ROWS, LENGTH, WIDTH, generator=generator, dtype=torch.float64)
    mask = torch.ones(ROWS, LENGTH, dtype=torch.bool) if padded else None
    if mask is not None:
        mask[0, 4:] = mask[2, 6:] = False
    given = Noted() if dropping else None
    output = layer(x, Step(mask, given))
    output.backward(wanted)
    ours = {"x": x.grad} | {weight: grad.clone() for m in layer.matrices() for weight, _, grad in m.twins()}
    ours |= {weight: weight.grad for weight in layer.module.parameters() if weight.grad is not None}
    layer.module.zero_grad()
    x.grad = None
    plain = layer_by_autograd(layer, x, mask, given.drawn if given else None)
    torch.testing.assert_close(output, plain, rtol=0, atol=1e-12)
    plain.backward(wanted)
    torch.testing.assert_close(ours["x"], x.grad, rtol=0, atol=1e-11)
    names = {weight: name for name, weight in layer.module.named_parameters()}
    assert set(names) == set(ours) - {"x"}
    for weight, name in names.items():
        torch.testing.assert_close(ours[weight], weight.grad, rtol=0, atol=1e-10, msg=name)


def test_in_bfloat16_a_layer_is_that_in_float64_but_for_rounding():
    half, whole = layer_of(torch.bfloat16), layer_of(torch.float64)
    half.module.float()
    x = torch.randn(ROWS, LENGTH, WIDTH, generator=torch.Generator().manual_seed(1))
    given = Noted()
    half_output = half(x.to(torch.bfloat16), Step(None, given))
    given_again = Noted()
    output = whole(x.to(torch.bfloat16).double(), Step(None, given_again))
    assert all(torch.equal(one, other) for one, other in zip(given.drawn, given_again.drawn, strict=True))
    assert (half_output.double() - output).abs().max() < 0.15
    assert (half_output.double() - output).abs().mean() < 0.015


def test_dropout_keeps_its_share_and_depends_on_seed_and_step_alone():
    keep = Dropout(3, 7).draw((1000, 101), 0.1)
    assert keep.unique().tolist() == [0, 1]
    assert abs(keep.double().mean().item() * factor(0.1) - 1) < 0.005
    assert torch.equal(Dropout(3, 7).draw((1000, 101), 0.1), keep)
    for other in (Dropout(3, 8), Dropout(4, 7)):
        assert not torch.equal(other.draw((1000, 101), 0.1), keep)
    assert Dropout(3, 7).draw((5, 5), 0.0) is None


@pytest.mark.parametrize("name", sorted(CONFIGS))
def test_the_layers_of_berts_kin_are_known_and_others_are_left_to_transformers(name):
    model = family(name)
    encoder = HalfEncoder.of(model)
    assert (encoder is not None) == (name in BERT.lower())
    if encoder is not None:
        assert len(encoder.layers) == model.config.num_hidden_layers


def test_a_layer_that_computes_something_else_is_left_to_transformers():
    model = family("bert")
    model.bert.encoder.layer[1].register_forward_hook(lambda module, inputs, output: output * 1.01)
    assert HalfEncoder.of(model) is None


def test_words_that_occur_are_trained_in_the_place_of_all():
    model = family("bert")
    whole = model.get_input_embeddings().weight.detach().clone()
    ids = torch.tensor([[2, 17, 40, 0], [2, 5, 17, 3]])
    expected = model(input_ids=ids).logits
    words = OccurringWords(model, Encoded([[2, 17, 40], [2, 5, 17, 3]], None, 0))
    assert words.rows.tolist() == [0, 2, 3, 5, 17, 40]
    assert torch.equal(model(input_ids=words.numbers(ids)).logits, expected)
    with torch.no_grad():
        model.get_input_embeddings().weight[4] = 7.0
    words.put_back(0.5)
    now = model.get_input_embeddings().weight
    assert (now[17] == 7.0).all()
    assert torch.equal(now[[2, 5, 40]], whole[[2, 5, 40]])
    assert torch.equal(now[[1, 4, 59]], whole[[1, 4, 59]] / 2)


@pytest.mark.parametrize("chunk", [100, 2**20])
def test_the_optimizers_step_is_that_of_clipping_and_adamw(monkeypatch, chunk):
    monkeypatch.setattr(half_training, "CHUNK", chunk)
    ours, theirs = family("bert"), family("bert")
    every_word = Encoded([list(range(ours.config.vocab_size))], None, 0)
    training = HalfTraining.of(ours, every_word, 1)
    optimizers = [
        torch.optim.AdamW(model.parameters(), lr=1e-2, weight_decay=0.1, fused=True) for model in (ours, theirs)
    ]
    generator = torch.Generator().manual_seed(2)
    for _ in range(3):
        for own, other in zip(ours.parameters(), theirs.parameters(), strict=True):
            other.grad = torch.randn(other.shape, generator=generator).to(torch.bfloat16).float()
            if own in training.twins:
                training.twins[own][1].copy_(other.grad)
            else:
                own.grad = other.grad.clone()
        expected = nn.utils.clip_grad_norm_(theirs.parameters(), 1.0)
        norm = training.update(optimizers[0], 1.0)
        optimizers[1].step()
        torch.testing.assert_close(norm, expected)
    for own, other in zip(ours.parameters(), theirs.parameters(), strict=True):
        torch.testing.assert_close(own, other, rtol=1e-5, atol=1e-6)
    assert all(torch.equal(half, weight.to(torch.bfloat16)) for weight, (half, _) in training.twins.items())


# ---------------------------------------------------------------------- whole trainings


def train(opened, split, folder, initialisation="pretrained", seed=1, states=None, **changes):
    folder.mkdir(parents=True)
    facts = finetune(
        opened, split, folder, settings=SETTINGS.model_copy(update=changes), initialisation=initialisation, seed=seed,
        device=CPU, states=states,
    )  # fmt: skip
    return facts, opened.model


@pytest.mark.parametrize("name", sorted(CONFIGS))
@pytest.mark.parametrize("initialisation", ["pretrained", "frozen"])
def test_every_family_trains(tiny_vocabulary, tiny_glue, tmp_path, name, initialisation):
    split = load_folder(tiny_glue, task("rte"), "train").head(20)
    losses = {}
    for precision in ("float32", "bfloat16"):
        config = type(CONFIGS[name]).from_dict({**CONFIGS[name].to_dict(), "vocab_size": len(tiny_vocabulary)})
        torch.manual_seed(0)
        opened = OpenModel(AutoModelForSequenceClassification.from_config(config), tiny_vocabulary, "")
        with warnings.catch_warnings():
            warnings.simplefilter("error")
            facts, model = train(opened, split, tmp_path / precision, initialisation, precision=precision, epochs=3)
        assert facts["precision"] == precision
        assert {weight.dtype for weight in model.parameters()} == {torch.float32}
        assert len(model.get_input_embeddings().weight) == len(tiny_vocabulary)
        assert (
            open_checkpoint(tmp_path / precision, task("rte")).model(torch.tensor([[2, 5, 3]])).logits.isfinite().all()
        )
        losses[precision] = torch.tensor(facts["loss"])
    assert (losses["float32"] - losses["bfloat16"]).abs().max() < 0.1


@pytest.mark.parametrize("initialisation", ["pretrained", "random"])
def test_without_dropout_the_loss_curve_is_that_of_float32_but_for_rounding(
    tiny_bert, tiny_glue, tmp_path, initialisation
):
    split = load_folder(tiny_glue, task("rte"), "train")
    curves, weights = {}, {}
    for precision in ("float32", "bfloat16"):
        opened = open_classifier(locate(str(tiny_bert)), task("rte"), initialisation, 3)
        for module in opened.model.modules():
            if isinstance(module, nn.Dropout):
                module.p = 0.0
        facts, model = train(opened, split, tmp_path / precision, initialisation, 3, precision=precision, epochs=4)
        curves[precision] = torch.tensor(facts["loss"])
        weights[precision] = model.get_input_embeddings().weight
    torch.testing.assert_close(curves["bfloat16"], curves["float32"], rtol=0, atol=0.03)
    assert curves["float32"].std() > 0.005
    ids = encode(split, opened.tokenizer, SETTINGS.max_length).input_ids
    unused = sorted({*range(len(opened.tokenizer))} - {0}.union(*ids))  # only weight decay has changed them
    assert len(unused) > 10
    torch.testing.assert_close(weights["bfloat16"][unused], weights["float32"][unused], rtol=1e-5, atol=0)


def test_a_regression_trains(tiny_bert, tmp_path):
    texts = ["ada sold two books", "ada sold nine books and two keys", "leo lost two keys"] * 6
    split = Split(task("stsb"), "train", texts, texts[::-1], [0.5, 2.5, 4.75] * 6, "here", False)
    opened = lambda: open_classifier(locate(str(tiny_bert)), task("stsb"))  # noqa: E731
    half, _ = train(opened(), split, tmp_path / "half", epochs=10)
    full, _ = train(opened(), split, tmp_path / "full", epochs=10, precision="float32")
    assert half["loss"][-1] < half["loss"][0] / 2
    assert half["loss"][0] == pytest.approx(full["loss"][0], rel=0.05)


def test_the_same_seed_gives_the_same_weights_and_another_one_others(tiny_bert, tiny_glue, tmp_path):
    split = load_folder(tiny_glue, task("rte"), "train").head(20)
    digests = []
    for place, seed in (("a", 1), ("b", 1), ("c", 2)):
        train(open_classifier(locate(str(tiny_bert)), task("rte")), split, tmp_path / place, seed=seed)
        digests.append(file_sha256(tmp_path / place / "model.safetensors"))
    assert digests[0] == digests[1] != digests[2]


def test_only_a_gpu_in_bfloat16_is_given_few_shapes():
    cuda = torch.device("cuda")
    assert finetuning.length_multiple(cuda, "bfloat16", 128) == 32
    assert finetuning.length_multiple(cuda, "bfloat16", 100) is None  # the model has no more positions
    assert finetuning.length_multiple(cuda, "float32", 128) is None
    assert finetuning.length_multiple(CPU, "bfloat16", 128) is None


@pytest.mark.parametrize("device", ["cpu", pytest.param("cuda", marks=pytest.mark.gpu)])
def test_padding_to_few_shapes_changes_no_loss_but_by_rounding(tiny_bert, tiny_glue, monkeypatch, device):
    split, losses = load_folder(tiny_glue, task("rte"), "train").head(12), []
    for multiple in (None, 32):
        monkeypatch.setattr(finetuning, "length_multiple", lambda *_, multiple=multiple: multiple)
        opened = open_classifier(locate(str(tiny_bert)), task("rte"))
        for module in opened.model.modules():
            if isinstance(module, nn.Dropout):
                module.p = 0.0
        training = finetuning.Training(
            opened, encode(split, opened.tokenizer, 64), split.targets(), SETTINGS, frozen=False, seed=1,
            device=torch.device(device),
        )  # fmt: skip
        for _ in range(4):
            training.take_step()
        losses.append(training.total.item())
    assert losses[0] == pytest.approx(losses[1], abs=0.02)


class Stop(Exception):
    """The end of a training that is not to be finished."""


@pytest.mark.parametrize("stop", [1, 6, 8])
def test_a_training_that_was_stopped_ends_with_the_same_weights(tiny_bert, tiny_glue, tmp_path, monkeypatch, stop):
    split = load_folder(tiny_glue, task("rte"), "train").head(31)
    opened = lambda: open_classifier(locate(str(tiny_bert)), task("rte"))  # noqa: E731
    whole, _ = train(opened(), split, tmp_path / "whole")
    take_step = finetuning.Training.take_step

    def step_or_stop(self):
        if self.step == stop:
            raise Stop
        take_step(self)

    with monkeypatch.context() as patch:
        patch.setattr(finetuning, "SAVING_SHARE", float("inf"))
        patch.setattr(finetuning.Training, "take_step", step_or_stop)
        with pytest.raises(Stop):
            train(opened(), split, tmp_path / "begun", states=tmp_path / "states", save_every=1e-9)
    assert [path.name for path in (tmp_path / "states").iterdir()] == [f"step-{stop:09d}"]
    continued, _ = train(opened(), split, tmp_path / "continued", states=tmp_path / "states")
    assert continued["loss"] == whole["loss"]
    digests = [file_sha256(tmp_path / name / "model.safetensors") for name in ("whole", "continued")]
    assert digests[0] == digests[1]
