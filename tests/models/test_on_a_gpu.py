"""Maps, ablation, memory and training on a GPU match those on a CPU. `make gpu` runs these tests on a GPU.

The tests also run on the CPU, so that the tests themselves are checked without a GPU.
"""

from dataclasses import replace

import numpy as np
import pytest
import torch
from safetensors.torch import load_file
from tiny import LAYERS, KeptMaps, family, opened, plain_maps, some_inputs

from bertsecrets.ablation.engine import Engine, ablate
from bertsecrets.ablation.head_sets import BASELINE, single_heads, whole_layers
from bertsecrets.cli.main import main
from bertsecrets.models.attention import Pass
from bertsecrets.models.memory import Budget
from bertsecrets.store.files import read_json

pytestmark = pytest.mark.slow

FAMILIES = ("bert", "roberta", "electra", "albert", "distilbert", "mpnet", "gpt2", "modernbert")
SEGMENTED = {"bert", "electra", "albert"}


@pytest.fixture(params=["cpu", pytest.param("cuda", marks=pytest.mark.gpu)])
def device(request) -> str:
    return request.param


@pytest.mark.parametrize("name", FAMILIES)
def test_maps_equal_those_of_single_examples_on_a_cpu(device, name):
    model, inputs = family(name), some_inputs(segments=name in SEGMENTED)
    expected = [plain_maps(model, inputs, i) for i in range(len(inputs))]
    observer = KeptMaps()
    Pass(opened(model.to(device))).feed(inputs, [observer])
    for (i, layer), maps in observer.maps.items():
        torch.testing.assert_close(maps, expected[i][layer], atol=1e-5, rtol=1e-4)
    assert len(observer.maps) == len(inputs) * LAYERS


@pytest.mark.parametrize("name", ["bert", "roberta", "gpt2"])
@pytest.mark.parametrize("path", ["auto", "general"])
def test_disabling_heads_equals_a_cpu(device, name, path):
    inputs, sets = some_inputs(segments=name == "bert"), [BASELINE, *single_heads(3, 4), *whole_layers(3, 4)]
    expected = ablate(Engine.open(opened(family(name))), inputs, sets)
    engine = Engine.open(opened(family(name)), device)
    if path == "general":
        engine = replace(engine, blocks=None)
    np.testing.assert_allclose(ablate(engine, inputs, sets), expected, rtol=0, atol=1e-5)


def test_the_budget_fits_into_free_memory(device):
    budget = Budget.of(torch.device(device), 768)
    assert budget.tokens > 0
    assert budget.kept > 0


def trained(tiny_bert, tiny_glue, folder, device, init="pretrained", precision="float32"):
    command = [*("finetune", "--task", "rte", "--model", tiny_bert, "--glue", tiny_glue, "--store", folder / "store")]
    command += ["--device", device, "--precision", precision, "--init", init, "--offline", "--allow-unofficial-data"]
    assert main([*map(str, command), "--output", str(folder / "model")]) == 0
    return load_file(folder / "model" / "model.safetensors"), read_json(folder / "model" / "manifest.json")["training"]


@pytest.mark.parametrize("precision", ["float32", pytest.param("bfloat16", marks=pytest.mark.gpu)])
def test_the_same_seed_gives_the_same_weights(device, precision, quick, tiny_bert, tiny_glue, tmp_path):
    first, facts = trained(tiny_bert, tiny_glue, tmp_path / "first", device, precision=precision)
    second, _ = trained(tiny_bert, tiny_glue, tmp_path / "second", device, precision=precision)
    assert {name: tensor.numpy().tobytes() for name, tensor in first.items()} == {
        name: tensor.numpy().tobytes() for name, tensor in second.items()
    }
    assert facts["device"].startswith(device)
    assert facts["precision"] == precision
    assert all(np.isfinite(facts["loss"]))


def test_a_frozen_encoder_is_unchanged(device, quick, tiny_bert, tiny_glue, tmp_path):
    before = load_file(tiny_bert / "model.safetensors")
    after, _ = trained(tiny_bert, tiny_glue, tmp_path, device, "frozen")
    for name in (key for key in before if "encoder" in key):
        assert torch.equal(before[name], after[name]), name


def test_claims_are_judged(device, quick, tiny_bert, tiny_glue, tmp_path):
    command = [*("report", "--task", "rte", "--claim", "C2", "--claim", "E1-rte", "--model", tiny_bert)]
    command += ["--glue", tiny_glue, "--store", tmp_path / "store", "--device", device, "--offline"]
    assert main([*map(str, command), "--allow-unofficial-data", "--json", str(tmp_path / "v.json")]) in (0, 1)
    verdicts = read_json(tmp_path / "v.json")["verdicts"]
    assert {verdict["claim"] for verdict in verdicts} == {"C2", "E1"}
    assert all(verdict["verdict"] in ("reproduced", "deviates", "inconclusive") for verdict in verdicts)
