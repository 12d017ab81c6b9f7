"""Every architecture family, compared on single examples with a plain reference that shares no code with the suite."""

import functools
import shutil

import matrix
import numpy as np
import pytest
import torch
from ablation_reference import logits_from_mean_values, plain_logits
from sweep import MEASURES, PAGE, TRAININGS, exact, failures, run
from tiny import KeptMaps, alone, fast_tier, plain_maps, train
from transformers import AutoConfig, AutoModelForSequenceClassification
from zoo import FAMILIES, FURTHER, HEADS, LAYERS, save_family

from bertsecrets.ablation.engine import Engine, ablate
from bertsecrets.errors import NotApplicableError
from bertsecrets.measures.special_tokens import SpecialTokenObserver
from bertsecrets.models.attention import Pass
from bertsecrets.models.configuration import open_tokenizer
from bertsecrets.models.encoding import Encoded, predict, special_ids, tokenize
from bertsecrets.models.locations import locate
from bertsecrets.models.opening import OpenModel, open_classifier, open_encoder
from bertsecrets.texts.glue import load_folder
from bertsecrets.texts.tasks import task

WITHOUT_MAPS = {
    "longformer": "only to a window and to a few global tokens",
    "squeezebert": "logits instead of attention weights",
    "funnel": "its layers pool tokens",
    "bart": "encoder-decoder",
    "t5": "encoder-decoder",
}
WITHOUT_ANSWERS = {
    "xlnet": "classifies from the last token",
    "fnet": "the padding after them",
    "convbert": "padding after them",
}
WITH_MAPS = [family for family in FAMILIES if family not in {**WITHOUT_MAPS, **WITHOUT_ANSWERS}]
THROUGH_THE_INTERFACE = {"modernbert", "eurobert", "nomic_bert", "gpt2", "llama", "qwen2"}  # causal, windowed, fused
NOT_IN_TEST_ENGINE = [
    *("xlm-roberta", "camembert", "modernbert", "eurobert"),
    *("nomic_bert", "gpt2", "llama", "qwen2"),
]
REPRESENTATIVE = ("bert", "albert", "distilbert", "mpnet", "deberta", "modernbert", "gpt2")
EACH_WITH_MAPS = pytest.mark.parametrize("family", fast_tier(WITH_MAPS, *REPRESENTATIVE))
EACH_THAT_ANSWERS = pytest.mark.parametrize("family", fast_tier([*WITH_MAPS, *WITHOUT_MAPS], *REPRESENTATIVE, "t5"))
SETS = [
    *(frozenset({head}) for head in ((0, 0), (1, 3), (2, 1))),
    frozenset(),
    frozenset((1, head) for head in range(HEADS)),
    frozenset({(0, 1), (1, 0), (1, 2), (2, 3)}),
]
TEXTS = ["The driver sold the old piano on Monday .", "She never came .", "The baker , who was late , bought it ."]
PAIRS = ["Somebody sold it .", "He was late , and they were not .", "No ."]


@pytest.fixture(scope="module")
def folders(tmp_path_factory):
    root = tmp_path_factory.mktemp("zoo")
    return functools.cache(lambda family: save_family(family, root / family))


@pytest.fixture
def classifier(folders, family) -> OpenModel:
    return open_classifier(locate(str(folders(family))), task("rte"))


@pytest.fixture
def encoded(classifier) -> Encoded:
    return tokenize(classifier.tokenizer, TEXTS, PAIRS, 64)[0]


@EACH_WITH_MAPS
def test_maps_in_padded_batches_equal_those_of_single_examples(classifier, encoded):
    kept = KeptMaps()
    special = SpecialTokenObserver(len(encoded), LAYERS, HEADS, special_ids(classifier.tokenizer))
    Pass(classifier).feed(encoded, [kept, special])
    _, paid = special.compute()
    for i, ids in enumerate(encoded.input_ids):
        plain, length = plain_maps(classifier.model, encoded, i).numpy(), len(ids)
        np.testing.assert_allclose(np.stack([kept.maps[i, layer] for layer in range(LAYERS)]), plain, atol=1e-5)
        for role, token in special_ids(classifier.tokenizer).items():
            places = [place for place, here in enumerate(ids) if here == token]
            columns = plain.sum(2)[:, :, places] / length
            if places:
                np.testing.assert_allclose(paid[role][i], columns.max(-1), atol=1e-5)
            else:
                assert np.isnan(paid[role][i]).all()


@pytest.mark.parametrize("family", fast_tier(NOT_IN_TEST_ENGINE, "modernbert"))
def test_any_heads_disabled_equal_the_plain_way(classifier, encoded, family):
    plain = plain_logits if family in THROUGH_THE_INTERFACE else logits_from_mean_values
    expected = plain(classifier.model, encoded, SETS)
    assert np.abs(expected - expected[3]).max((1, 2))[[i for i, heads in enumerate(SETS) if heads]].min() > 1e-6
    np.testing.assert_allclose(ablate(Engine.open(classifier), encoded, SETS), expected, rtol=0, atol=1e-5)


@pytest.mark.parametrize("family", fast_tier(["gpt2", "qwen2"], "gpt2"))
def test_the_token_that_ends_a_text_stands_before_the_first_and_between_two(folders, family, tmp_path):
    folder = shutil.copytree(folders(family), tmp_path / family)
    for _ in range(2):  # the second time with a saved tokenizer
        tokenizer = open_tokenizer(locate(str(folder)))
        end = tokenizer.eos_token_id
        one, two = (tokenizer(*texts)["input_ids"] for texts in (["No ."], ["No .", "He was late ."]))
        assert one[0] == end
        assert one.count(end) == 1
        assert [two[0], two[len(one)]] == [end, end]
        assert two[: len(one)] == one
        assert two.count(end) == 2
        tokenizer.save_pretrained(folder)


@EACH_THAT_ANSWERS
def test_answers_and_segments_equal_those_of_single_examples(classifier, encoded):
    for i, logits in enumerate(predict(classifier.model, encoded)):
        with torch.no_grad():
            expected = classifier.model(**alone(encoded, i)).logits[0]
        np.testing.assert_allclose(logits, expected, atol=1e-5)


@EACH_THAT_ANSWERS
def test_random_weights_are_drawn_as_the_architecture_draws_them(folders, family):
    ref = locate(str(folders(family)))
    drawn = open_classifier(ref, task("rte"), "random", seed=5).model
    pad = drawn.config.pad_token_id
    config = AutoConfig.from_pretrained(folders(family), num_labels=2, pad_token_id=pad)
    torch.manual_seed(5)
    plain = AutoModelForSequenceClassification.from_config(config).state_dict()
    assert plain.keys() == drawn.state_dict().keys()
    assert all(torch.equal(plain[name], weight) for name, weight in drawn.state_dict().items())
    saved = open_classifier(ref, task("rte")).model.base_model.state_dict()
    matrices = {name: weight for name, weight in drawn.base_model.state_dict().items() if weight.dim() == 2}
    assert not any(torch.equal(saved[name], weight) for name, weight in matrices.items() if weight.is_floating_point())


@EACH_THAT_ANSWERS
def test_training_on_a_frozen_encoder_changes_the_classifier_alone(classifier, tiny_glue, tmp_path):
    before = {name: weight.clone() for name, weight in classifier.model.state_dict().items()}
    rows = load_folder(tiny_glue, task("rte"), "train").head(8)
    train(classifier, rows, tmp_path, "frozen", epochs=1)
    prefix = f"{classifier.model.base_model_prefix}."
    changed = {name for name, weight in classifier.model.state_dict().items() if not torch.equal(weight, before[name])}
    assert changed
    assert not any(name.startswith(prefix) for name in changed)


@pytest.mark.parametrize("family", fast_tier(WITHOUT_MAPS, "t5"))
def test_families_without_maps_are_refused_by_name(folders, classifier, encoded, family):
    for refused in (
        lambda: Pass(classifier).feed(encoded, [SpecialTokenObserver(3, LAYERS, HEADS, {})]),
        lambda: Engine.open(classifier),
        lambda: open_encoder(locate(str(folders(family)))),
    ):
        with pytest.raises(NotApplicableError, match=WITHOUT_MAPS[family]) as error:
            refused()
        assert family.replace("_", "") in str(error.value).lower()


@pytest.mark.parametrize("family", fast_tier(WITHOUT_ANSWERS, "xlnet"))
def test_families_that_cannot_answer_padded_inputs_are_refused_by_name(folders, family):
    with pytest.raises(NotApplicableError, match=f"(?i){family} cannot be measured: .*{WITHOUT_ANSWERS[family]}"):
        open_classifier(locate(str(folders(family))), task("rte"))


@pytest.mark.slow
def test_the_page_shows_the_possible_measures_of_each_family(folders):
    assert matrix.table({family: folders(family) for family in FAMILIES}) in PAGE.read_text(encoding="utf-8")


# ---------------------------------------------------------------------- the sweep over further families


EVERYTHING = {*TRAININGS, *MEASURES}
EXACT = {  # by unusual family: the training runs and measures that match the reference exactly
    "openai-gpt": EVERYTHING,  # its blocks return lists
    "gemma2": EVERYTHING,  # its logits are capped, which SDPA does not support
    "mixtral": EVERYTHING,  # its experts are stacked in one tensor
    "longformer": {*TRAININGS, "scores", "anisotropy", "weight-pruning"},  # its classifier adds global attention
    "roformer-rotary-value": EVERYTHING,
    "big_bird-sparse": EVERYTHING,
    "perceiver": {"pretrained", "scores", "weight-pruning"},
    "falcon-alibi": {*TRAININGS},  # eager attention and SDPA differ
    **dict.fromkeys(("canine", "reformer", "tapas", "nystromformer", "xmod-no-language", "gte-segments"), ()),
}


@pytest.mark.slow
@pytest.mark.parametrize("family", EXACT)
def test_a_family_is_measured_exactly_or_refused(family):
    outcomes = run([family])
    assert not failures(outcomes)
    assert {name for name, (outcome, _) in outcomes[family].items() if outcome == "exact"} == {*EXACT[family]}
    if family in FURTHER:
        (row,) = (
            line for line in PAGE.read_text("utf-8").splitlines() if line.startswith(f"| {exact(outcomes[family])} |")
        )
        assert family in row.split("|")[2].strip().split(", ")
