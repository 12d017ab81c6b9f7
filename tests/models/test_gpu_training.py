"""How a GPU takes its steps, tried out on a CPU with a recorder that repeats; with a GPU, on that too."""

import re
from contextlib import contextmanager, nullcontext

import numpy as np
import pytest
import torch
from tiny import CONFIGS
from torch import nn
from torch.utils._python_dispatch import TorchDispatchMode
from transformers import AutoModelForSequenceClassification, DataCollatorWithPadding

from bertsecrets.models import gpu_training
from bertsecrets.models.encoding import encode
from bertsecrets.models.finetune import Training
from bertsecrets.models.gpu_training import WARM, Graphs, TextsOnDevice, compiled, layers_of, steps_by_width
from bertsecrets.models.loading import OpenModel, freeze_encoder, open_classifier
from bertsecrets.models.locations import locate
from bertsecrets.models.memory import give_back
from bertsecrets.settings import FinetuneParams
from bertsecrets.texts.glue import Split, load_folder
from bertsecrets.texts.tasks import task

pytestmark = pytest.mark.slow

SETTINGS = FinetuneParams(
    batch_size=6, epochs=3, learning_rate=1e-3, frozen_learning_rate=1e-2, warmup=0.1, weight_decay=0.01,
    max_gradient_norm=1.0, max_length=64, precision="float32",
)  # fmt: skip
READS = ("_local_scalar_dense", "is_nonzero", "nonzero", "masked_select", "unique", "equal", "allclose")
COMPILING = pytest.mark.filterwarnings("ignore:The .grad attribute of a Tensor")  # torch's own look at its inputs
WEIGHTS = {"cpu": 2e-4, "cuda": 5e-3}  # AdamW makes whole steps even of gradients that are nothing but rounding
ON_GPU = pytest.param("cuda", marks=pytest.mark.gpu)


@pytest.fixture(params=["cpu", ON_GPU])
def device(request) -> torch.device:
    return torch.device(request.param)


class Repeating:
    """A recorder for a CPU: its programs do again what they are made of."""

    def __init__(self):
        self.recorded = 0

    def aside(self):
        return nullcontext()

    def record(self, compute):
        self.recorded += 1
        return compute


class Refusing(Repeating):
    """A recorder that cannot record."""

    def record(self, compute):
        raise RuntimeError("operation not permitted\nwhen stream is capturing")


def recorder_for(device):
    return Graphs(device) if device.type == "cuda" else Repeating()


def without_dropout(model):
    for module in model.modules():
        if isinstance(module, nn.Dropout):
            module.p = 0.0
    return model


def training_of(opened, split, device, *, frozen=False, programs=None, dropout=False, settings=SETTINGS, **options):
    if not dropout:
        without_dropout(opened.model)
    if frozen:
        freeze_encoder(opened.model)
    made = Training(
        opened, encode(split, opened.tokenizer, 64), split.targets(), settings, frozen=frozen, seed=1, device=device
    )
    if programs is not None:
        made.use_programs(programs, 16, **options)
    return made


def finished(training):
    """All losses, gradient norms and largest logits of a training, and the weights that it ends with."""
    while training.step < training.steps:
        training.take_step()
    steps = torch.stack(training.unchecked).cpu()
    training.end()
    return steps, {name: weight.detach().cpu() for name, weight in training.model.named_parameters()}


def assert_close(one, other, weights=2e-4):
    torch.testing.assert_close(one[0], other[0], rtol=1e-4, atol=1e-4)
    for name, weight in one[1].items():
        torch.testing.assert_close(weight, other[1][name], rtol=0, atol=weights, msg=name)


@pytest.fixture
def split(tiny_glue):
    return load_folder(tiny_glue, task("rte"), "train").head(40)


@pytest.fixture
def opened(tiny_bert):
    return lambda name="rte": open_classifier(locate(str(tiny_bert)), task(name), attention="sdpa")


# ---------------------------------------------------------------------- batches


@pytest.mark.parametrize("name", ["rte", "stsb"])
def test_a_batch_is_what_the_collator_makes(opened, split, device, name):
    classifier = opened()
    encoded = encode(split, classifier.tokenizer, 64)
    targets = split.targets() if name == "rte" else [0.5, 2.5] * 20
    texts = TextsOnDevice(encoded, targets, device, multiple=16, segment_padding=7)
    classifier.tokenizer._pad_token_type_id = 7
    collate = DataCollatorWithPadding(classifier.tokenizer, pad_to_multiple_of=16)
    assert len(set(texts.widths)) > 1
    for rows in ([3, 1, 4], [39], [7, 7]):
        expected = collate(
            [
                {
                    "input_ids": encoded.input_ids[i],
                    "token_type_ids": encoded.segments[i],
                    "labels": targets[i],
                }
                for i in rows
            ]
        )
        batch = texts.batch(torch.tensor(rows, device=device), int(texts.widths[rows].max()))
        assert batch.keys() == expected.keys()
        for key, tensor in batch.items():
            assert torch.equal(tensor.cpu(), expected[key]), key
            assert tensor.dtype == expected[key].dtype


def test_how_often_each_width_comes():
    assert steps_by_width(np.array([32] * 9 + [64] * 3), size=3, epochs=2) == {32: 6, 64: 2}
    assert steps_by_width(np.array([32] * 2 + [64] * 3), size=3, epochs=1) == {64: 1}  # the last, smaller one is rare
    assert steps_by_width(np.array([32]), size=3, epochs=1) == {}


# ---------------------------------------------------------------------- programs


@pytest.mark.parametrize("frozen", [False, True])
def test_programs_train_as_single_kernels_do(opened, split, device, frozen):
    programs = recorder_for(device)
    ours = training_of(opened(), split, device, frozen=frozen, programs=programs)
    widths = set(ours.on_gpu.widths)
    assert (widths == {1}) if frozen else (len(widths) > 1)
    steps = finished(ours)
    plain = finished(training_of(opened(), split, device, frozen=frozen))
    assert_close(steps, plain, WEIGHTS[device.type])
    assert steps[0][:, 0].std() > 0.005


def test_a_regression_trains_by_programs_too(opened, device):
    texts = ["ada sold two books", "ada sold nine books and two keys", "leo lost two keys"] * 10
    split = Split(task("stsb"), "train", texts, texts[::-1], [0.5, 2.5, 4.75] * 10, "here", False)
    ours = finished(training_of(opened("stsb"), split, device, programs=recorder_for(device)))
    assert_close(ours, finished(training_of(opened("stsb"), split, device)), WEIGHTS[device.type])


def test_each_shape_is_recorded_once_and_the_smaller_batch_never(opened, split):
    training = training_of(opened(), split, torch.device("cpu"), programs=Repeating())
    shapes = []
    compute = training.on_gpu.compute
    training.on_gpu.compute = lambda rows, width: shapes.append((len(rows), width)) or compute(rows, width)
    while training.step < training.steps:
        training.take_step()
    often = {width for size, width in shapes if size == 6 and shapes.count((size, width)) > WARM}
    assert set(training.on_gpu.programs) == often
    assert often
    assert training.on_gpu.recorder.recorded == len(often)
    assert sum(size == 4 for size, _ in shapes) == SETTINGS.epochs
    assert training.on_gpu.described == "CUDA graphs"


@pytest.mark.parametrize("name", sorted({*CONFIGS} - {"mpnet"}))  # without SDPA; it reads its mask until it is recorded
@pytest.mark.parametrize("frozen", [False, True])
def test_no_family_asks_the_device_for_numbers_within_a_step(tiny_vocabulary, split, name, frozen):
    config = type(CONFIGS[name]).from_dict({**CONFIGS[name].to_dict(), "vocab_size": len(tiny_vocabulary)})
    losses = {}
    for programs in (None, Repeating()):
        torch.manual_seed(0)
        model = AutoModelForSequenceClassification.from_config(config, attn_implementation="sdpa")
        device = torch.device("cpu")
        training = training_of(OpenModel(model, tiny_vocabulary, ""), split, device, frozen=frozen, programs=programs)
        if programs is not None:
            training.on_gpu.compute = nothing_read()(training.on_gpu.compute)
        for _ in range(2 * training.per_epoch):
            training.take_step()
        losses[programs is None] = torch.stack(training.unchecked)
        training.end()
        assert model.config._attn_implementation == "sdpa"
    torch.testing.assert_close(losses[True], losses[False], rtol=1e-4, atol=1e-4)


@contextmanager
def nothing_read():
    """Fail where a tensor's numbers decide what is computed next, for which a GPU would have to be waited for."""

    class Reads(TorchDispatchMode):
        def __torch_dispatch__(self, function, types, args=(), kwargs=None):
            name = function.overloadpacket.__name__
            reads = name in READS
            if name in ("index", "index_put", "index_put_", "_index_put_impl_"):
                reads = any(index is not None and index.dtype == torch.bool for index in args[1])
            assert not reads, f"{name} waits for the device"
            return function(*args, **(kwargs or {}))

    with Reads():
        yield


def test_a_read_would_be_noticed():
    for read in (lambda x: x.item(), lambda x: bool(x.all()), lambda x: x[x > 0], lambda x: x.nonzero()):
        with pytest.raises(AssertionError, match="waits for the device"), nothing_read():
            read(torch.ones(()) if read(torch.ones(1)) == 1 else torch.ones(3))


def test_what_cannot_be_recorded_goes_on_kernel_by_kernel_and_says_so(opened, split, capsys):
    device = torch.device("cpu")
    training = training_of(opened(), split, device, programs=Refusing())
    ours = finished(training)
    assert training.on_gpu.described == "kernel by kernel"
    assert_close(ours, finished(training_of(opened(), split, device)))
    lines = capsys.readouterr().err.splitlines()
    assert lines == ["steps are not recorded as CUDA graphs: operation not permitted when stream is capturing"]


def test_a_stopped_training_goes_on_with_programs(opened, split):
    device = torch.device("cpu")  # on which equal sums are equal
    made = lambda: training_of(opened(), split, device, programs=Repeating(), dropout=True)  # noqa: E731
    begun = made()
    for _ in range(9):
        begun.take_step()
    state = begun.state(0.0)
    whole, expected = finished(made())
    continued = made()
    continued.restore(state)
    steps, weights = finished(continued)
    assert torch.equal(steps, whole[9:])
    assert all(torch.equal(weight, expected[name]) for name, weight in weights.items())


# ---------------------------------------------------------------------- compiled layers


class Compiler:
    """A backend of torch.compile that compiles nothing, and counts."""

    def __init__(self):
        self.graphs = 0

    def __call__(self, graph, inputs):
        self.graphs += 1
        return graph.forward


@COMPILING
def test_one_program_serves_all_layers_and_models(opened, split):
    compiler, losses = Compiler(), []
    inputs = {"input_ids": torch.randint(5, 50, (6, 16)), "attention_mask": torch.ones(6, 16, dtype=torch.long)}
    models = [without_dropout(opened().model).train() for _ in range(2)]
    with torch.no_grad():
        for weight in models[1].parameters():
            weight.mul_(1.5)
    for model in models:
        expected = model(**inputs).logits
        with compiled(layers_of(model), compiler):
            ours = model(**inputs).logits
        torch.testing.assert_close(ours, expected)
        assert "forward" not in vars(layers_of(model)[0])
        losses.append(ours)
    assert not torch.allclose(*losses)
    assert compiler.graphs == 1
    with compiled(layers_of(models[0]), compiler):
        models[0](**{name: tensor.repeat(1, 2) for name, tensor in inputs.items()})
    assert compiler.graphs == 2


@COMPILING
def test_shapes_that_come_often_are_compiled_and_train_as_ever(opened, split, monkeypatch):
    device, compiler = torch.device("cpu"), Compiler()
    settings = SETTINGS.model_copy(update={"batch_size": 2})
    rare = training_of(opened(), split, device, programs=Repeating(), backend=compiler, settings=settings)
    often = steps_by_width(rare.on_gpu.widths, 2, 3)
    assert not rare.on_gpu.compiling
    monkeypatch.setattr(gpu_training, "COMPILED_FROM", max(often.values()))
    for _ in range(2):  # the second seed or task of a process compiles nothing
        training = training_of(opened(), split, device, programs=Repeating(), backend=compiler, settings=settings)
        assert len(training.on_gpu.compiling) == 1 < len(often)
        ours = finished(training)
        assert compiler.graphs == 1
    assert training.on_gpu.described == "CUDA graphs, compiled layers"
    assert_close(ours, finished(training_of(opened(), split, device, settings=settings)))


@COMPILING
def test_layers_that_cannot_be_compiled_are_computed_as_ever_and_a_line_says_so(opened, split, monkeypatch, capsys):
    monkeypatch.setattr(gpu_training, "COMPILED_FROM", 1)

    def refuse(graph, inputs):
        raise OSError("no compiler\nis installed")

    device = torch.device("cpu")
    training = training_of(opened(), split, device, programs=Repeating(), backend=refuse)
    ours = finished(training)
    assert training.on_gpu.described == "CUDA graphs"
    assert_close(ours, finished(training_of(opened(), split, device)))
    (line,) = capsys.readouterr().err.splitlines()
    assert re.match(r"layers are not compiled: .*no compiler", line)


# ---------------------------------------------------------------------- on a GPU


def in_bfloat16(opened, split, **options):
    settings = SETTINGS.model_copy(update={"precision": "bfloat16", "batch_size": 2})
    return training_of(opened(), split, torch.device("cuda"), settings=settings, **options)


def until_recorded(training):
    """Take steps until all shapes of full batches have a program."""
    widths = set(training.on_gpu.widths)
    for _ in range(100):
        training.take_step()
        if training.on_gpu.recorded == widths:
            return
    raise AssertionError(f"{training.on_gpu.recorded} of {widths} are recorded")


@pytest.mark.gpu
def test_in_bfloat16_a_gpu_takes_programs_whose_losses_are_those_of_single_kernels(opened, split):
    training = in_bfloat16(opened, split)
    ours = finished(training)
    assert training.on_gpu.described == "CUDA graphs"
    plain = in_bfloat16(opened, split)
    plain.on_gpu.recording = False
    single = finished(plain)
    torch.testing.assert_close(ours[0], single[0], rtol=0, atol=0.02)


@pytest.mark.gpu
def test_every_start_of_a_graph_draws_other_dropout(opened, split):
    training = in_bfloat16(opened, split, dropout=True)
    until_recorded(training)
    rows = training.order[:2]
    losses = [training.on_gpu.take(rows, 0.0)[0].item() for _ in range(4)]  # at rate 0 no weight changes
    assert len(set(losses)) == 4
    still = in_bfloat16(opened, split)
    until_recorded(still)
    assert len({still.on_gpu.take(rows, 0.0)[0].item() for _ in range(4)}) == 1


@pytest.mark.gpu
@pytest.mark.parametrize("recording", [True, False])
def test_the_host_waits_for_nothing_in_a_step(opened, split, recording):
    training = in_bfloat16(opened, split.head(39), dropout=True)  # the last batch is smaller
    if recording:
        until_recorded(training)
    else:
        training.on_gpu.recording = False
        for _ in range(3):
            training.take_step()
    before = training.step
    torch.cuda.set_sync_debug_mode("error")  # a step that waits raises
    try:
        for _ in range(2 * training.per_epoch):
            training.take_step()
    finally:
        torch.cuda.set_sync_debug_mode("default")
    assert training.step == before + 2 * training.per_epoch


@pytest.mark.gpu
def test_dropout_goes_on_after_a_recording_that_failed(opened, split, capsys):
    training = in_bfloat16(opened, split, dropout=True)
    compute = training.on_gpu.compute

    def reading(rows, width):
        found = compute(rows, width)
        if torch.cuda.is_current_stream_capturing():
            found[0].item()
        return found

    training.on_gpu.compute = reading
    ours, _ = finished(training)
    assert "steps are not recorded as CUDA graphs" in capsys.readouterr().err
    whole = in_bfloat16(opened, split, dropout=True)
    whole.on_gpu.recording = False
    torch.testing.assert_close(ours, finished(whole)[0], rtol=0, atol=0.02)


@pytest.mark.gpu
@pytest.mark.filterwarnings("ignore")  # of torch's compiler, about itself
def test_compiled_layers_within_graphs_train_as_single_kernels_do(opened, split, monkeypatch):
    plain = finished(in_bfloat16(opened, split))
    monkeypatch.setattr(gpu_training, "COMPILED_FROM", 1)
    training = in_bfloat16(opened, split)
    ours = finished(training)
    assert training.on_gpu.described == "CUDA graphs, compiled layers"
    torch.testing.assert_close(ours[0], plain[0], rtol=0, atol=0.02)


@pytest.mark.gpu
def test_the_memory_of_graphs_is_given_back_at_the_end(opened, split):
    training = in_bfloat16(opened, split)
    until_recorded(training)
    give_back()
    held = torch.cuda.memory_reserved()
    training.end()
    give_back()
    assert torch.cuda.memory_reserved() < held
