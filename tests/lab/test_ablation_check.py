"""The ablation check and its command distinguish correct ablations of a head from faulty ones."""

import copy
from contextlib import contextmanager

import pytest
import torch
from ablation_models import tiny, tokens
from pages import titled

from bertsecrets.cli.main import main
from bertsecrets.errors import UserError
from bertsecrets.lab.ablation_check import AblationCheck, summary

SIZE, HEADS = 8, 4


def part(head: int) -> slice:
    return slice(head * SIZE, (head + 1) * SIZE)


def attention(model, layer):
    return model.bert.encoder.layer[layer].attention


@contextmanager
def hooked(handle):
    try:
        yield
    finally:
        handle.remove()


def without(output, head, value=0.0):
    changed = output.clone()
    changed[..., part(head)] = value
    return changed


# ---------------------------------------------------------------------- correct ablations


def zeroed_input(model, layer, head):
    dense = attention(model, layer).output.dense
    return hooked(dense.register_forward_pre_hook(lambda _m, args: (without(args[0], head),)))


def zeroed_columns(model, layer, head):
    attention(model, layer).output.dense.weight.data[:, part(head)] = 0


def zeroed_queries(model, layer, head):
    query = attention(model, layer).self.query
    query.weight.data[part(head)] = 0
    query.bias.data[part(head)] = 0
    return model


def one_vector(model, layer, head):
    dense = attention(model, layer).output.dense
    return hooked(dense.register_forward_pre_hook(lambda _m, args: (without(args[0], head, 0.7),)))


def mean_with_padding(model, layer, head):
    def fill(_m, args):
        return (without(args[0], head, args[0][..., part(head)].mean(1, keepdim=True)),)

    return hooked(attention(model, layer).output.dense.register_forward_pre_hook(fill))


def noise(model, layer, head):
    def fill(_m, args):
        return (without(args[0], head, torch.randn(args[0][..., part(head)].shape)),)

    return hooked(attention(model, layer).output.dense.register_forward_pre_hook(fill))


@contextmanager
def failing_at_its_end():
    yield
    raise KeyError


# ---------------------------------------------------------------------- faulty ablations


def sliced_output(model, layer, head):
    dense = attention(model, layer).output.dense
    return hooked(dense.register_forward_hook(lambda _m, _i, output: without(output, head)))


def sliced_after_the_norm(model, layer, head):
    return hooked(attention(model, layer).output.register_forward_hook(lambda _m, _i, output: without(output, head)))


def next_head(model, layer, head):
    return zeroed_input(model, layer, (head + 1) % HEADS)


def next_layer(model, layer, head):
    return zeroed_input(model, (layer + 1) % 3, head)


def nothing(model, layer, head):
    return None


def two_heads(model, layer, head):
    zeroed_columns(model, layer, head)
    zeroed_columns(model, layer, (head + 1) % HEADS)


def later_layers_too(model, layer, head):
    for later in range(layer, 3):
        zeroed_columns(model, later, head)


def the_classifier(model, layer, head):
    model.classifier.weight.data[:, part(head)] = 0


RIGHT = {
    zeroed_input: "zero vectors",
    zeroed_columns: "zero vectors",
    zeroed_queries: "uniform weights over the real tokens",
    one_vector: "one vector for all tokens of all texts, such as a mean",
    mean_with_padding: "one vector for all tokens of a text, but not the mean over its real tokens",
    noise: "other vectors at each token",
}
AFTER = "acts after the output projection"
WRONG = {
    sliced_output: (AFTER, "100.0 % of the change is in dimensions 17 to 24 of the projection's output in layer 2"),
    sliced_after_the_norm: (AFTER, "the output of layer 2 changes, but that of its output projection does not"),
    next_head: ("disables another head", "layer 2 head 4 instead of layer 2 head 3"),
    next_layer: ("disables another head", "layer 3 head 3 instead of layer 2 head 3"),
    nothing: ("has no effect", "all logits are unchanged"),
    two_heads: ("other", "of it is in the subspace of layer 2 head 3"),
    later_layers_too: ("other", "but so do later layers"),
    the_classifier: ("other", "no layer changes, but the logits do"),
}


@pytest.fixture(scope="module")
def check() -> AblationCheck:
    return AblationCheck(tiny("Bert"), tokens((6, 11, 8)))


@pytest.mark.parametrize("function", RIGHT, ids=lambda function: function.__name__)
def test_an_ablation_of_the_head_alone_is_correct(check, function):
    for head in ((0, 0), (1, 2), (2, 3)):
        verdict = check.check(function, head)
        assert (verdict.outcome, verdict.effect) == ("correct", RIGHT[function])


@pytest.mark.parametrize("function", WRONG, ids=lambda function: function.__name__)
def test_each_fault_is_named_with_numbers(check, function):
    outcome, words = WRONG[function]
    verdict = check.check(function, (1, 2))
    assert verdict.outcome == outcome
    assert words in verdict.effect


def test_the_size_of_a_change_is_relative_to_the_output_of_the_projection(check):
    returned = []
    for change in (nothing, zeroed_columns):
        model, seen = copy.deepcopy(check.classifier.model), []
        change(model, 1, 2)
        attention(model, 1).output.dense.register_forward_hook(lambda _m, _i, output, seen=seen: seen.append(output[0]))
        with torch.no_grad():
            for ids in tokens((6, 11, 8)).input_ids:  # one at a time, without padding
                model(input_ids=torch.tensor([ids]))
        returned.append(torch.cat(seen))
    plain, changed = returned
    share = 100 * float((changed - plain).norm() / plain.norm())
    assert f"({share:.3g} % of its norm)" in check.check(later_layers_too, (1, 2)).effect


def test_the_model_itself_is_never_changed(check):
    before = {name: weight.clone() for name, weight in check.classifier.model.state_dict().items()}
    check.check(zeroed_columns, (0, 1))
    check.check(sliced_output, (0, 1))
    assert all(torch.equal(weight, before[name]) for name, weight in check.classifier.model.state_dict().items())
    assert check.check(nothing, (0, 1)).outcome == "has no effect"


@pytest.mark.parametrize(
    ("family", "projection"),
    [("GPT2", "transformer.h.{}.attn.c_proj"), ("ModernBert", "model.layers.{}.attn.Wo"),
     ("DebertaV2", "deberta.encoder.layer.{}.attention.output.dense"),
     ("DistilBert", "distilbert.transformer.layer.{}.attention.out_lin")],
)  # fmt: skip
def test_other_families_are_checked_too(family, projection):
    check = AblationCheck(tiny(family), tokens((6, 11, 8)))

    def before(model, layer, head):
        module = model.get_submodule(projection.format(layer))
        return hooked(module.register_forward_pre_hook(lambda _m, args: (without(args[0], head), *args[1:])))

    def after(model, layer, head):
        module = model.get_submodule(projection.format(layer))
        return hooked(module.register_forward_hook(lambda _m, _i, output: without(output, head)))

    assert check.check(before, (1, 3)).outcome == "correct"
    assert check.check(after, (1, 3)).outcome == AFTER


def test_the_summary_counts_heads_and_shows_the_first(check):
    verdicts = [check.check(function, head) for function, head in
             [(zeroed_input, (0, 0)), (zeroed_queries, (0, 1)), (zeroed_input, (0, 2)), (nothing, (1, 0))]]  # fmt: skip
    assert summary(verdicts) == [
        "correct: 3 of 4 heads (2 with zero vectors; 1 with uniform weights over the real tokens)",
        "has no effect: 1 of 4 heads (layer 2 head 1: all logits are unchanged)",
    ]
    assert len(check.heads()) == 12


@pytest.mark.parametrize(
    ("function", "message"),
    [
        (lambda model, layer, head: 5, "the function returns int: it should return a context manager"),
        (lambda model, layer, head: 1 / 0, "the function fails on layer 2 head 3: ZeroDivisionError"),
        (lambda model: None, "the function fails on layer 2 head 3: TypeError"),
        (lambda model, layer, head: failing_at_its_end(), "the function fails after layer 2 head 3: KeyError"),
        (
            lambda model, layer, head: setattr(model, "classifier", torch.nn.Linear(3, 3)),
            "the model fails: RuntimeError",
        ),
    ],
)
def test_a_function_that_fails_is_reported(check, function, message):
    with pytest.raises(UserError, match=message):
        check.check(function, (1, 2))


# ---------------------------------------------------------------------- the command


@pytest.fixture
def command(tmp_path, tiny_bert, monkeypatch, capsys):
    """Return a function that runs the command on a tiny model and returns exit code, output and errors.

    The working directory contains the page's module and one that cannot be imported.
    """
    (tmp_path / "my_ablation.py").write_text(titled("lab/check-ablation.md", "my_ablation.py"), encoding="utf-8")
    (tmp_path / "broken_ablation.py").write_text("import nothing_of_this_name")
    monkeypatch.chdir(tmp_path)
    monkeypatch.setenv("TQDM_DISABLE", "1")

    def run(function: str) -> tuple[int, str, str]:
        code = main(["lab", "check-ablation", function, "--model", str(tiny_bert), "--offline"])
        return code, *capsys.readouterr()

    return run


def test_the_command_distinguishes_the_functions_of_its_page(command):
    code, out, _ = command("my_ablation:without_head")
    assert (code, out.split(" (")[0]) == (0, "correct: 12 of 12 heads")
    assert "with zero vectors)" in out
    code, out, _ = command("my_ablation:a_slice_of_the_output")
    assert (code, out.split(" (")[0]) == (1, "acts after the output projection: 12 of 12 heads")
    assert "of the change is in dimensions 1 to 8 of the projection's output in layer 1" in out


@pytest.mark.parametrize(
    ("function", "said"),
    [
        ("my_ablation", "my_ablation is not of the form MODULE:FUNCTION, such as my_ablation:without_head"),
        ("my_ablation:missing", "module my_ablation has no function missing"),
        ("no_such_module_here:f", "cannot import no_such_module_here: ModuleNotFoundError"),
        ("broken_ablation:f", "cannot import broken_ablation: ModuleNotFoundError: No module named 'nothing_of"),
        ("os:getpid", "the function fails on layer 1 head 1: TypeError"),
    ],
)
def test_a_missing_function_is_reported_in_one_line(command, function, said):
    code, out, err = command(function)
    assert (code, out) == (2, "")
    assert err.startswith(f"bertsecrets: {said}")
    assert err.count("\n") == 1
