"""A model in memory is measured with whatever was done to it, and is left unchanged."""

from copy import deepcopy
from functools import partial
from types import MethodType, SimpleNamespace

import numpy as np
import pytest
import torch
from sessions import local_session
from tiny import HEADS
from tokenizers import normalizers
from torch import nn
from torch.nn.utils import parametrize, prune
from transformers import (
    AutoModel,
    AutoModelForMaskedLM,
    AutoModelForSequenceClassification,
    AutoTokenizer,
    BertForSequenceClassification,
    PreTrainedTokenizerFast,
)
from transformers.modeling_utils import ALL_ATTENTION_FUNCTIONS

import bertsecrets as bs
from bertsecrets import UserError
from bertsecrets.models.description import describe


@pytest.fixture
def session(tiny_bert, tiny_glue, quick, tmp_path):
    return local_session(model=tiny_bert, glue=tiny_glue, store=tmp_path / "store")


@pytest.fixture
def model(tiny_bert, session):
    """A random classifier that gives each class to half of the rows."""
    torch.manual_seed(0)
    model = AutoModelForSequenceClassification.from_pretrained(tiny_bert, num_labels=2)
    model.config.id2label = {0: "entailment", 1: "not_entailment"}
    model.config.label2id = {"entailment": 0, "not_entailment": 1}
    with torch.no_grad():
        for weight in model.parameters():
            weight.add_(0.3 * torch.randn_like(weight))
        model.classifier.bias[0] -= np.median(np.subtract(*direct_logits(model, session).T))
    return model


def stored(session):
    return [*session.store.root.glob("measurements/[!.]*")]


def direct_logits(model, session):
    """Return the object's own logits, one example at a time."""
    rows, tokenizer = session.resources.rows.split("RTE", "dev"), AutoTokenizer.from_pretrained(session.model)
    assert rows.sentence2 is not None
    with torch.no_grad():
        return np.array(
            [
                model.eval()(**tokenizer(first, second, return_tensors="pt")).logits[0].float().numpy()
                for first, second in zip(rows.sentence1, rows.sentence2, strict=True)
            ]
        )


def direct_predictions(model, session):
    return direct_logits(model, session).argmax(1).tolist()


# ---------------------------------------------------------------------- changes that are lost if the model is saved


def layer_of(model, number=1):
    return model.base_model.encoder.layer[number]


def hook_the_classifier(model):
    model.classifier.register_forward_hook(lambda module, inputs, output: -output)


def hook_a_head(model):
    def silence(module, inputs):
        return (inputs[0] * (torch.arange(inputs[0].shape[-1]) >= inputs[0].shape[-1] // HEADS),)

    layer_of(model).attention.output.dense.register_forward_pre_hook(silence)


def scale_queries(model):
    layer_of(model).attention.self.query.register_forward_hook(lambda module, inputs, output: 4 * output)


def patch_forward(model):
    original = model.forward

    def forward(self, *args, **kwargs):
        output = original(*args, **kwargs)
        output.logits = output.logits.flip(-1)
        return output

    model.forward = MethodType(forward, model)


def patch_an_inner_forward(model, layer=2):
    output = layer_of(model, layer).output
    original = output.forward
    output.forward = lambda hidden, residual: original(hidden, 3 * residual)


class OtherLinear(nn.Linear):
    def forward(self, hidden):
        return -super().forward(hidden)


def replace_a_linear(model):
    old = model.bert.pooler.dense
    model.bert.pooler.dense = OtherLinear(old.in_features, old.out_features)
    model.bert.pooler.dense.load_state_dict(old.state_dict())


def give_another_class(model):
    class Flipped(BertForSequenceClassification):
        def forward(self, *args, **kwargs):
            output = super().forward(*args, **kwargs)
            output.logits = -output.logits
            return output

    model.__class__ = Flipped


class LowRank(nn.Module):
    """LoRA around a linear module."""

    def __init__(self, inner):
        super().__init__()
        self.inner = inner
        self.update = nn.Parameter(torch.randn(inner.out_features, inner.in_features))

    def forward(self, hidden):
        return self.inner(hidden) + nn.functional.linear(hidden, self.update)


def wrap_a_linear(model):
    layer_of(model).attention.self.value = LowRank(layer_of(model).attention.self.value)


def change_the_epsilon(model):
    layer_of(model).output.LayerNorm.eps = 5.0


def change_positions(model):
    model.bert.embeddings.position_ids[:, 4:] = 3


def limit_norms(model):
    model.bert.embeddings.word_embeddings.max_norm = 1.0


def drop_a_layer(model):
    model.bert.encoder.layer = model.bert.encoder.layer[:1]


def deepen_the_classifier(model):
    size = model.config.hidden_size
    model.classifier = nn.Sequential(nn.Linear(size, size), nn.Tanh(), nn.Linear(size, 2))


def return_tuples(model):
    model.config.return_dict = False
    patch_an_inner_forward(model)


def share_a_hooked_layer(model):
    model.bert.encoder.layer[1] = model.bert.encoder.layer[0]
    patch_an_inner_forward(model, layer=0)


CHANGES = (
    *(hook_the_classifier, hook_a_head, patch_forward, patch_an_inner_forward, replace_a_linear, give_another_class),
    *(wrap_a_linear, change_the_epsilon, change_positions, limit_norms, drop_a_layer, deepen_the_classifier),
    *(return_tuples, share_a_hooked_layer),
)


@pytest.mark.parametrize("change", CHANGES)
def test_whatever_saving_loses_is_measured_and_not_stored(session, model, change):
    plain = direct_predictions(model, session)
    torch.manual_seed(1)
    change(model)
    tuples, model.config.return_dict = model.config.return_dict, True
    direct = direct_predictions(deepcopy(model), session)
    model.config.return_dict = tuples
    measured = session.measure("scores", task="rte", checkpoint=model)
    assert measured.samples["predicted"].tolist() == direct
    assert not stored(session)
    assert measured.provenance.weights is None
    assert direct != plain


def test_a_hook_that_acts_on_few_inputs_counts(session, model):
    rows, tokenizer = session.resources.rows.split("RTE", "dev"), AutoTokenizer.from_pretrained(session.model)
    compared, *others = tokenizer(rows.sentence1, rows.sentence2)["input_ids"]
    word = next(token for row in others for token in row if token not in compared)
    plain, seen = direct_predictions(model, session), {}

    def look(module, inputs, options):
        ids = options["input_ids"] if "input_ids" in options else inputs[0]
        seen["rows"] = ids.eq(word).any(1, keepdim=True)

    model.bert.register_forward_pre_hook(look, with_kwargs=True)
    model.classifier.register_forward_hook(lambda _, inputs, output: torch.where(seen["rows"], -output, output))
    direct = direct_predictions(model, session)
    assert direct != plain
    assert session.measure("scores", task="rte", checkpoint=model).samples["predicted"].tolist() == direct
    assert not stored(session)


def test_attention_of_an_adapted_model_equals_that_of_the_merged_model(session, model):
    merged = deepcopy(model)
    wrap_a_linear(model)
    with torch.no_grad():
        layer_of(merged).attention.self.value.weight.add_(layer_of(model).attention.self.value.update)
    adapted, plain = (session.measure("special-tokens", task="rte", checkpoint=each) for each in (model, merged))
    np.testing.assert_allclose(adapted.value("sep"), plain.value("sep"), atol=1e-6)


def test_a_model_with_its_own_head_needs_no_pretrained_model(session, model, tiny_bert, tiny_glue, tmp_path):
    plain = session.measure("special-tokens", task="rte", checkpoint=model).value("sep")
    deepen_the_classifier(model)
    tokenizer = AutoTokenizer.from_pretrained(tiny_bert)
    given = {"checkpoint": model, "tokenizer": tokenizer, "checkpoint_task": "rte"}
    alone = local_session(**given, glue=tiny_glue, store=tmp_path / "alone")
    np.testing.assert_allclose(alone.measure("special-tokens").value("sep"), plain, atol=1e-6)


def test_a_model_that_fails_in_training_mode_is_measured(session, model):
    plain = direct_predictions(model, session)
    for layer in model.bert.encoder.layer:
        layer.attention.self.dropout = nn.Identity()  # transformers reads the attribute `p` in training mode
    assert session.measure("scores", task="rte", checkpoint=model).samples["predicted"].tolist() == plain


def test_a_backward_hook_changes_gradients(session, model):
    plain = session.measure("attention-gradients", task="rte", checkpoint=model).value("other")
    layer_of(model).register_full_backward_hook(
        lambda module, gradients, _: tuple(None if each is None else 3 * each for each in gradients)
    )
    hooked = session.measure("attention-gradients", task="rte", checkpoint=model).value("other")
    assert np.allclose(np.asarray(hooked)[0], 3 * np.asarray(plain)[0], rtol=1e-4)
    assert len(stored(session)) == 1


def built(model):
    new = BertForSequenceClassification(model.config)
    new.load_state_dict(model.state_dict())
    return new


def frozen(model):
    return model.requires_grad_(False).train()


def without_dropout(model):
    for module in model.modules():
        if isinstance(module, nn.Dropout):
            module.p = 0.0
    return model


def with_a_shared_weight(model):
    own = layer_of(model).attention.self
    own.key.weight = own.query.weight
    return model


def checkpointed(model):
    getattr(model, "activation_checkpointing_enable", model.gradient_checkpointing_enable)()
    model.enable_input_require_grads()
    return model


def recorded(model):
    model.set_attn_implementation("eager")
    model(torch.tensor([[2, 5, 3]]), output_attentions=True, output_hidden_states=True)
    assert any(module._forward_hooks for module in model.modules())  # of transformers, and without effect
    return model


UNCHANGED = {
    "built": built,
    "frozen": frozen,
    "without dropout": without_dropout,
    "eager": lambda model: model.set_attn_implementation("eager") or model,
    "tuples": lambda model: setattr(model.config, "return_dict", False) or model,
    "shared weight": with_a_shared_weight,
    "resized": lambda model: model.resize_token_embeddings(model.config.vocab_size) and model,
    "checkpointed": checkpointed,
    "recorded": recorded,
}


@pytest.mark.parametrize("make", UNCHANGED.values(), ids=UNCHANGED)
def test_results_are_stored_if_saving_loses_nothing(session, model, make):
    model = make(model)
    measured = session.measure("scores", task="rte", checkpoint=model)
    model.config.return_dict = True
    assert measured.samples["predicted"].tolist() == direct_predictions(model, session)
    assert len(stored(session)) == 1


def test_maps_are_those_of_the_changed_object(session, model):
    def cls():
        return session.measure("special-tokens", task="rte", checkpoint=model).values["cls"]

    before = cls()
    patch_an_inner_forward(model)  # of the last layer, after its maps
    assert np.array_equal(before, cls())
    scale_queries(model)
    moved = np.abs(cls() - before).max(1)
    assert moved[0] == 0
    assert moved[1] > 0


def test_disabling_a_head_that_a_hook_has_silenced_changes_nothing(session, model):
    options = {"heads": "2.1 2.2", "kind": "zero"}
    plain = session.measure("head-ablation", task="rte", checkpoint=model, **options)
    hook_a_head(model)
    hooked = session.measure("head-ablation", task="rte", checkpoint=model, **options)
    assert plain.values.keys() == hooked.values.keys()
    assert hooked.values["score"][0] == hooked.values["baseline"]


# ---------------------------------------------------------------------- wherever a model or a checkpoint goes


def direct_maps(model, tokenizer, *texts):
    """Return the attention of all heads, [layer, head, token, token], from a plain forward pass."""
    model.set_attn_implementation("eager")
    with torch.no_grad():
        outputs = model.eval()(**tokenizer(*texts, return_tensors="pt"), output_attentions=True)
    return torch.cat(outputs.attentions).double().numpy()


def direct_cosines(model, session):
    """Return each head's mean cosine between an object's maps and those of the pretrained model, by plain PyTorch."""
    rows, tokenizer = session.resources.rows.split("rte", "dev"), AutoTokenizer.from_pretrained(session.options.model)
    base = AutoModel.from_pretrained(session.options.model)
    cosines = []
    for texts in zip(rows.sentence1, rows.sentence2, strict=True):
        own, pretrained = (direct_maps(each, tokenizer, *texts) for each in (model, base))
        norms = [np.linalg.norm(maps, axis=(2, 3)) for maps in (own, pretrained)]
        cosines.append((own * pretrained).sum((2, 3)) / (norms[0] * norms[1]))
    return np.mean(cosines, axis=0)


def test_a_changed_checkpoint_is_judged_on_the_numbers_of_plain_pytorch(session, model):
    scale_queries(model)
    expected = direct_cosines(model, session)
    own = bs.Session(session.options, checkpoint=model, checkpoint_task="RTE")
    for verdict in (
        session.judge("C1", "rte", checkpoint=model),
        own.judge("C1"),
        *session.judge_all("RTE", "C1", checkpoint=model),
        *own.judge_all(claims="C1"),
    ):
        assert str(verdict.case) == "C1-rte"
        assert np.abs(verdict.measurements[0].values["cosine"] - expected).max() < 1e-6
        assert verdict.measurements[0].provenance.weights is None
    assert not stored(session)
    assert own.model == "BertForSequenceClassification-in-memory"


def test_a_head_of_a_changed_object_is_shown_as_plain_pytorch_computes_it(model, tiny_bert):
    tokenizer, text = AutoTokenizer.from_pretrained(tiny_bert), "ada sold two books"
    scale_queries(model)
    tokens, shown = bs.head_map(model, text, layer=2, head=3, tokenizer=tokenizer)
    assert np.abs(shown - direct_maps(model, tokenizer, text)[1, 2]).max() < 1e-6
    assert tokens == ["[CLS]", *text.split(), "[SEP]"]
    chart = bs.show_head(model, text, layer=2, head=3, tokenizer=tokenizer)
    assert "BertForSequenceClassification, layer 2, head 3" in str(chart.to_dict())
    with pytest.raises(UserError, match="^a model in memory needs its tokenizer"):
        bs.head_map(model, text)


@pytest.mark.parametrize("encoder", [AutoModel, AutoModelForMaskedLM])
def test_an_unchanged_model_in_memory_is_fine_tuned_like_its_folder(session, tiny_bert, tmp_path, encoder):
    model, tokenizer = encoder.from_pretrained(tiny_bert), AutoTokenizer.from_pretrained(tiny_bert)
    for each in (model, tokenizer):
        each.save_pretrained(tmp_path / "saved")
    own = bs.Session(session.options, model=model, tokenizer=tokenizer)
    verdict, expected = own.judge("C1", "rte"), bs.Session(session.options, model=tmp_path / "saved").judge("C1", "rte")
    assert expected.reused
    assert verdict.observed == expected.observed
    assert verdict.measurements[0].subject.model == own.model == f"{type(model).__name__}-in-memory"


def test_a_model_with_hooks_is_measured_but_not_fine_tuned(session, tiny_bert):
    model = AutoModel.from_pretrained(tiny_bert)
    scale_queries(model)
    own = bs.Session(session.options, model=model, tokenizer=AutoTokenizer.from_pretrained(tiny_bert))
    plain, hooked = (each.measure("example-sentence") for each in (session, own))
    assert plain.values.keys() == hooked.values.keys()
    assert any(not np.array_equal(value, hooked.values[name]) for name, value in plain.values.items())
    assert own.judge("C1", "rte").outcome == "not applicable"
    with pytest.raises(UserError, match="^BertModel-in-memory cannot be fine-tuned .* would lose _forward_hooks of"):
        own.checkpoint(own.subject("rte"))


def test_a_change_after_the_session_was_opened_is_noticed(session, model):
    own = bs.Session(session.options, checkpoint=model, checkpoint_task="rte")
    first = own.measure("scores", "rte").values
    assert own.measure("scores", "rte").values == first
    with torch.no_grad():
        model.bert.pooler.dense.weight.add_(1)
    with pytest.raises(UserError, match=r"has changed since .* \(weight of bert.pooler.dense\): open a new"):
        own.measure("scores", "rte")


def with_tied_layers(model):
    model.encoder.layer[1] = model.encoder.layer[0]
    return model


def test_each_change_after_the_session_was_opened_is_noticed(session, model):
    hook_the_classifier(model)
    own = bs.Session(session.options, checkpoint=model, checkpoint_task="rte")
    held = own._objects["checkpoint"]

    def check(place):
        with (
            pytest.raises(UserError, match=rf"has changed since it was given to this session \({place}"),
            held.measured(),
        ):
            pass
        held._state = describe(model, trains=False)

    for change, place in (
        (change_the_epsilon, "eps of bert.encoder.layer.1.output.LayerNorm"),
        (lambda model: setattr(layer_of(model).attention.self, "scaling", 3.0), "scaling of"),
        (change_positions, "position_ids of bert.embeddings"),
        (lambda model: setattr(layer_of(model), "feed_forward_chunk", abs), "feed_forward_chunk of"),
        (lambda model: setattr(model.config, "id2label", {0: "b", 1: "a"}), "config.id2label of"),
        (lambda model: layer_of(model).register_full_backward_hook(lambda *_: None), "_backward_hooks of"),
        (hook_the_classifier, "_forward_hooks of classifier"),
    ):
        change(model)
        check(place)
    with held.measured():
        pass


def test_a_session_always_measures_what_the_code_of_an_object_computes_now(session, model):
    state = SimpleNamespace(factor=1)
    model.classifier.register_forward_hook(lambda module, inputs, output: state.factor * output)
    own = bs.Session(session.options, checkpoint=model, checkpoint_task="rte")
    for state.factor in (1, -1):
        for predicted in (
            own.measure("scores", "rte").samples["predicted"],
            own.judge("D1-pretrained").measurements[0].samples["predicted"],
        ):
            assert predicted.tolist() == direct_predictions(model, session)


class Silent(dict):
    def items(self):
        raise RuntimeError

    __repr__ = items


UNUSUAL = {
    "sparse": lambda model: torch.eye(2).to_sparse(),
    "silent": lambda model: Silent(),
    "deep": lambda model: eval("[" * 90 + "]" * 90),
    "itself": lambda model: [model],
    "foreign": lambda model: nn.ModuleList([model]),
}


@pytest.mark.parametrize("kind", UNUSUAL)
def test_an_object_may_hold_values_that_cannot_be_described(session, model, kind):
    model.classifier.register_forward_hook(lambda module, inputs, output: -output if module.held else output)
    model.classifier.held = [UNUSUAL[kind](model)]
    measured = session.measure("scores", task="rte", checkpoint=model)
    assert measured.samples["predicted"].tolist() == direct_predictions(model, session)
    assert not stored(session)


@pytest.mark.parametrize(
    ("make", "place"),
    [
        (frozen, "training of weight of embeddings.word_embeddings"),
        (without_dropout, "p of embeddings.dropout"),
        (lambda model: model.embeddings.word_embeddings.weight.register_hook(abs) and model, "training of weight"),
        (with_a_shared_weight, "training of weight of encoder.layer.1.attention.self.key"),
        (with_tied_layers, "layer_idx of encoder.layer.1"),
    ],
)
def test_an_encoder_that_trains_differently_from_its_saved_form_is_not_trained(session, tiny_bert, make, place):
    model = make(AutoModel.from_pretrained(tiny_bert))
    own = bs.Session(session.options, model=model, tokenizer=AutoTokenizer.from_pretrained(tiny_bert))
    with pytest.raises(UserError, match=f"cannot be fine-tuned from its saved form, .* would lose {place}"):
        own.checkpoint(own.subject("rte"))


def test_training_does_not_need_enabled_gradients(session):
    with torch.no_grad():
        measured = session.measure("scores", task="rte")
    assert not measured.reused


def test_a_tokenizer_that_saving_changes_is_refused(session, model, tiny_bert):
    tokenizer = AutoTokenizer.from_pretrained(tiny_bert)
    changed = AutoTokenizer.from_pretrained(tiny_bert)
    backend = changed.backend_tokenizer
    backend.normalizer = normalizers.Sequence([backend.normalizer, normalizers.Replace("a", "e")])
    general = PreTrainedTokenizerFast(
        tokenizer_object=backend, cls_token="[CLS]", sep_token="[SEP]", pad_token="[PAD]", unk_token="[UNK]"
    )
    wrapped = AutoTokenizer.from_pretrained(tiny_bert)
    wrapped._encode_plus = partial(wrapped._encode_plus, add_special_tokens=False)
    for accepted in (tokenizer, general):
        bs.Session(session.options, checkpoint=model, tokenizer=accepted, checkpoint_task="rte")
    for refused in (changed, wrapped):
        with pytest.raises(UserError, match="^the tokenizer in memory .* would encode texts differently"):
            bs.Session(session.options, checkpoint=model, tokenizer=refused, checkpoint_task="rte")


def test_a_tokenizer_is_for_models_in_memory(session, tiny_bert):
    with pytest.raises(UserError, match="^the option `tokenizer` has no effect unless the model is in memory"):
        bs.Session(session.options, tokenizer=AutoTokenizer.from_pretrained(tiny_bert))


# ---------------------------------------------------------------------- objects that need no special care


def test_the_saved_weights_stand_for_an_unchanged_object(session, model, tmp_path):
    model.save_pretrained(tmp_path / "saved")
    AutoTokenizer.from_pretrained(session.model).save_pretrained(tmp_path / "saved")
    own = session.measure("scores", task="rte", checkpoint=model)
    folder = session.measure("scores", task="rte", checkpoint=tmp_path / "saved")
    assert np.array_equal(own.samples["predicted"], folder.samples["predicted"])
    assert folder.reused
    assert len(stored(session)) == 1


def test_an_object_in_half_precision_is_measured_in_float32(session, model):
    model.to(torch.bfloat16)
    measured = session.measure("scores", task="rte", checkpoint=model)
    assert len(stored(session)) == 1
    assert model.dtype == torch.bfloat16
    assert measured.samples["predicted"].tolist() == direct_predictions(model.float(), session)


# ---------------------------------------------------------------------- what is left behind


def test_the_object_is_left_as_it_was(session, model):
    handle = model.classifier.register_forward_hook(lambda module, inputs, output: -output)
    model.train()
    model.bert.embeddings.word_embeddings.weight.requires_grad_(False)
    model.classifier.weight.grad = torch.ones_like(model.classifier.weight)
    tensors = {name: (weight, weight.data_ptr()) for name, weight in model.named_parameters()}
    values = {name: value.clone() for name, value in model.state_dict().items()}
    config, names = model.config.to_dict(), [name for name, module in model.named_modules() if module.training]
    kernel = model.config._attn_implementation
    for measure in ("scores", "attention-gradients", "weight-pruning", "special-tokens"):
        session.measure(measure, task="rte", checkpoint=model)
    for name, weight in model.named_parameters():
        assert weight is tensors[name][0]
        assert weight.data_ptr() == tensors[name][1]
        assert weight.requires_grad == (name != "bert.embeddings.word_embeddings.weight")
    assert all(torch.equal(values[name], value) for name, value in model.state_dict().items())
    assert torch.equal(model.classifier.weight.grad, torch.ones_like(model.classifier.weight))
    assert model.bert.pooler.dense.weight.grad is None
    assert [name for name, module in model.named_modules() if module.training] == names
    assert (model.config.to_dict(), model.config._attn_implementation) == (config, kernel)
    assert sum(len(module._forward_hooks) for module in model.modules()) == 1
    handle.remove()
    assert not model.classifier._forward_hooks


# ---------------------------------------------------------------------- refusals


def with_classes_in_another_order(model):
    hook_the_classifier(model)
    model.config.id2label = {0: "not_entailment", 1: "entailment"}
    model.config.label2id = {"not_entailment": 0, "entailment": 1}
    return model


def with_own_attention(model):
    own = ALL_ATTENTION_FUNCTIONS["sdpa"]
    ALL_ATTENTION_FUNCTIONS["own"] = lambda *inputs, **settings: own(*inputs, **settings)
    model.set_attn_implementation("own")
    return model


def compile_a_layer(model):
    model.bert.encoder.layer[1] = torch.compile(model.bert.encoder.layer[1], backend="eager")
    return model


@pytest.mark.filterwarnings("ignore::DeprecationWarning", "ignore::UserWarning:torch.*")
@pytest.mark.parametrize(
    ("make", "message"),
    [
        (nn.DataParallel, "DataParallel wraps a model: give the model itself"),
        (lambda model: torch.compile(model, backend="eager"), "OptimizedModule wraps a model: give the model itself"),
        (
            lambda model: parametrize.register_parametrization(model.classifier, "weight", nn.Identity()) and model,
            "classifier computes its weight from other tensors",
        ),
        (lambda model: prune.identity(model.bert.pooler.dense, "weight") and model, "dense computes its weight from"),
        (lambda model: torch.ao.quantization.quantize_dynamic(model, {nn.Linear}, dtype=torch.qint8), "is quantised"),
        (compile_a_layer, r"bert\.encoder\.layer\.1 is compiled, which hides its layers: give the model as it"),
        (lambda model: model.to("meta"), "does not hold floating-point numbers"),
        (lambda model: model.bert, "the model in memory is an encoder without a trained classifier"),
        (lambda model: nn.Linear(2, 2), "not as Linear"),
        (lambda model: 3, "not 3"),
        (
            lambda model: model.resize_token_embeddings(1000, mean_resizing=False) and model,
            "has embeddings for 1000 tokens, but the tokenizer of .* has 147 tokens: save",
        ),
        (with_classes_in_another_order, r"would lose _forward_hooks of classifier\. Its classes must be in the order"),
        (
            lambda model: model.classifier.register_forward_hook(lambda *given: torch.randn_like(given[2])) and model,
            "computes different numbers each time",
        ),
        (with_own_attention, "uses an attention function that is not part of transformers"),
        (lambda model: AutoModelForMaskedLM.from_config(model.config), "shape .* instead of one per class"),
    ],
)
def test_an_object_that_cannot_be_measured_is_refused_in_one_line(session, model, make, message):
    with pytest.raises(UserError, match=message) as error:
        session.measure("scores", task="rte", checkpoint=make(model))
    assert "\n" not in str(error.value)
    assert "in-memory" not in str(error.value)
