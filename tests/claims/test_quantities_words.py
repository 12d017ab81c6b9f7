"""Quantities of special tokens, features, relations and vectors, checked by hand; inputs may lack a feature."""

import math

import numpy as np
import pytest
from measurements import estimand, gridded, measured, read, verdict

from bertsecrets.claims.estimand import with_same_selection
from bertsecrets.claims.loading import load_claims
from bertsecrets.claims.quantities.words import LINGUISTIC_FEATURES
from bertsecrets.errors import NotApplicableError
from bertsecrets.measures.features import FIGURE_7_LABELS
from bertsecrets.patterns.classes import CLASSES
from bertsecrets.patterns.readings import READINGS
from bertsecrets.texts.published import published_figures

NAN = math.nan


def special(name, mean, examples=50, spread=0.01, **more):
    """Return attention to special tokens on a task, the same in all heads, with noise over examples."""
    rng = np.random.default_rng(len(name))
    noise = spread * rng.normal(size=(examples, 1, 1)) * np.ones((examples, 2, 3))
    kinds = {"cls": 0.1, "sep": mean, "sep_sum": 2 * mean, **more}
    return gridded("special-tokens", name, **{kind: value + noise - noise.mean() for kind, value in kinds.items()})


# ---------------------------------------------------------------------- [SEP] on one and two sentences


def test_the_lead_of_one_sentence_is_judged_task_by_task_or_as_a_mean():
    tasks = special("sst2", 0.4), (special("rte", 0.2), special("mrpc", 0.3, examples=30))
    lead, of_mean = estimand("sep-lead", *tasks), estimand("sep-lead", *tasks, kind="sep_sum", others="mean")
    assert (lead.parts, lead.extreme) == (pytest.approx([0.4 - 0.2, 0.4 - 0.3]), "least")
    assert (of_mean.value, of_mean.extreme) == (pytest.approx(0.8 - 0.5), None)
    assert lead.notes == ("SST-2 0.400, RTE 0.200, MRPC 0.300",)


def test_one_sentence_against_two():
    more = special("rte", 0.2), special("mrpc", 0.3)
    assert verdict("E2-all", special("sst2", 0.4), more).outcome == "reproduced"
    assert verdict("E2-all", special("sst2", 0.25), more).outcome == "deviates"
    assert verdict("E2-all-sum", special("sst2", 0.3, sep_sum=0.3), more).outcome == "reproduced"
    assert verdict("E2-all-sum", special("sst2", 0.4), more).outcome == "deviates"
    lost = special("sst2", NAN, sep_sum=NAN)
    assert verdict("E2-all", lost, more).outcome == "not applicable"


def test_the_correlation_with_figure_6():
    grid = np.array(published_figures()["fig6_SEP"]["RTE"])
    like, unlike = (gridded("special-tokens", "rte", sep=[each] * 40, cls=[each] * 40) for each in (grid, 1 - grid))
    assert estimand("figure-6-correlation", like, kind="sep").parts[0] == pytest.approx(1)
    assert estimand("figure-6-correlation", like, kind="cls").parts[0] < 0.9
    assert verdict("E5-rte-sep", like).outcome == "reproduced"
    assert verdict("E5-rte-sep", unlike).outcome == "deviates"


# ---------------------------------------------------------------------- growth of attention to features


def features(task_name="rte", **kinds):
    """Return attention by kind of word, with .01 in every head for kinds that are not given."""
    rest = dict.fromkeys(LINGUISTIC_FEATURES, np.full(np.shape(next(iter(kinds.values()))), 0.01))
    return gridded("features", task_name, **rest | kinds)


def test_the_head_that_grows_most_is_chosen_on_one_half_and_judged_on_the_other_both_ways():
    # two heads, four examples; head 1 grows by 1 on even examples and by .25 on odd ones
    after = np.zeros((4, 1, 2))
    after[:, 0, 0], after[:, 0, 1] = [1, 0.25, 1, 0.25], [0.5, 0.5, 0.5, 0.5]
    before = np.zeros_like(after)
    growth = estimand("best-feature-growth", features(noun=after), features(noun=before), kinds=["noun"])
    # even examples select head 1, which grows by .25 on odd ones; odd ones select head 2, which grows by .5
    assert growth.value == pytest.approx((0.25 + 0.5) / 2)
    # for the largest decrease, even examples select head 2 (-.5 on odd ones), and odd ones select head 1 (-1)
    assert growth.notes == (
        "noun in layer 1 head 1 and layer 1 head 2: +0.3750, other words there +0.0000, largest decrease -0.7500, "
        "naive best +0.6250, 4 inputs",
    )
    one_text = features(noun=after)
    one_text.samples["cluster"] = np.array([0, 1, 0, 0])  # three rows share a text, so they are one half
    growth = estimand("best-feature-growth", one_text, features(noun=before), kinds=["noun"])
    # they select head 1 (.75 on average), which grows by .25 on row 2; row 2 selects head 2, which grows by .5
    assert growth.value == pytest.approx((0.25 + 3 * 0.5) / 4)


def test_all_seeds_judge_the_growth_of_the_same_head():
    """Over both seeds, head 3 grows most on either half; alone, each seed selects its own head on even inputs."""
    zero = np.zeros((4, 1, 3))

    def seed(own):
        after = zero.copy()
        after[::2, 0, own], after[:, 0, 2] = 0.8, 0.5
        return estimand("best-feature-growth", features(noun=after), features(noun=zero), kinds=["noun"])

    alone = [seed(own) for own in (0, 1)]
    assert [each.parts[0] for each in alone] == pytest.approx([(0 + 0.5) / 2] * 2)
    assert [each.parts[0] for each in with_same_selection(alone)] == pytest.approx([0.5, 0.5])


def test_growth_leaves_out_inputs_without_the_feature():
    after = np.array([0.3, NAN, NAN, 0.1, 0.3, 0.2]).reshape(6, 1, 1)
    before = np.array([0.1, NAN, NAN, 0.0, 0.1, 0.0]).reshape(6, 1, 1)
    noun = np.full((6, 1, 1), 0.5)
    pair = [features(object=after), features(object=before)]
    assert read("best-feature-growth", *pair, kinds=["object"]) == pytest.approx((0.2 + 0.1 + 0.2 + 0.2) / 4)
    pair = [features(noun=noun, object=after), features(noun=noun - 0.4, object=before)]
    assert read("best-feature-growth", *pair, kinds=["noun", "object"]) == pytest.approx(0.175)  # the smaller


def test_growth_counts_as_far_as_it_exceeds_that_of_other_words_and_the_largest_decrease():
    zero = np.zeros((4, 1, 3))
    noun = zero + np.array([0.3, 0.0, -0.1])  # attention increases in head 1 and decreases in head 3
    others = {
        "verb": zero + np.array([0.1, 0, 0]),
        "pronoun": zero + np.array([0.3, 0, 0]),
        "subject": np.full((4, 1, 3), NAN),
    }
    before = features(noun=zero, verb=zero, pronoun=zero, subject=zero, object=zero, negation=zero)
    rest = {"object": zero, "negation": zero}
    growth = estimand("best-feature-growth", features(noun=noun, **others, **rest), before, kinds=["noun"])
    # other words that occur grow by .1, .3, 0 and 0 in head 1
    assert growth.parts == pytest.approx([0.3, 0.3 - 0.1, 0.3 - 0.1])


def test_growth_of_a_published_map_is_that_of_the_notebook():
    maps = published_figures()["notebook_QQP_maps"]
    names = {"noun": "NOUN", "verb": "VERB", "pronoun": "PRON", "subject": "SUBJ", "object": "OBJ", "negation": "NEG"}
    after, before = (
        features(**{kind: np.tile(np.array(maps[name][when], dtype=float), (40, 1, 1)) for kind, name in names.items()})
        for when in ("finetuned", "base")
    )
    (claim,) = (claim for claim in load_claims() if claim.name == "E3")
    assert read("best-feature-growth", after, before, kinds=["noun", "object"]) == pytest.approx(
        claim.tasks["qqp"].published, abs=0.001
    )


def grown(by, present=1.0, examples=200):
    rng = np.random.default_rng(2)
    before = 0.1 + 0.02 * rng.random((examples, 3, 4))
    after = before + 0.01 * rng.normal(size=before.shape)
    after[:, 1, 2] += by
    gone = rng.random(examples) >= present
    before[gone], after[gone] = NAN, NAN
    return features(noun=after, object=after, negation=after), features(noun=before, object=before, negation=before)


def test_growth_passes_fails_and_does_not_take_luck_for_growth():
    assert verdict("E3-rte", *grown(0.02)).outcome == "reproduced"
    assert verdict("E3-rte", *grown(0.0)).outcome == "deviates"  # the largest of 12 is positive, but by chance
    assert "naive best +0.0" in verdict("E3-rte", *grown(0.0)).reason
    after, before = grown(0.0)
    shrunk = features(**{kind: sample - 0.05 for kind, sample in after.samples.items()})
    assert verdict("E3-rte", shrunk, before).outcome == "deviates"
    more = features(**{kind: sample + 0.05 for kind, sample in after.samples.items()})
    assert verdict("E3-rte", more, before).outcome == "deviates"  # attention to all words grows
    assert verdict("E3-qnli-negation", *grown(0.05, present=0.3)).outcome == "reproduced"


def test_a_feature_that_no_input_has_decides_nothing():
    judgement = verdict("E3-qnli-negation", *grown(0.05, present=0.0))
    assert (judgement.outcome, judgement.observed, judgement.interval) == ("inconclusive", None, None)
    assert "cannot be computed" in judgement.reason


# ---------------------------------------------------------------------- features other than [CLS] and [SEP]


def test_depth_of_a_feature_is_the_upper_half_of_the_layers_minus_the_lower():
    """Attention to nouns is .1, .2, .4 and .7 in the layers, to verbs .3 everywhere; no input has a pronoun."""
    noun = np.tile(np.array([0.1, 0.2, 0.4, 0.7])[:, None], (40, 1, 2))
    pretrained = features(noun=noun, verb=np.full((40, 4, 2), 0.3), pronoun=np.full((40, 4, 2), NAN))
    assert read("feature-depth", pretrained, kinds=["noun"]) == pytest.approx(0.4)
    both = estimand("feature-depth", pretrained, kinds=["noun", "verb", "pronoun"])
    assert (both.parts.tolist(), both.extreme) == (pytest.approx([0.4, 0]), "least")
    assert "pronoun (in 0 inputs)" in both.notes[1]
    with pytest.raises(NotApplicableError, match="no input has such words"):
        read("feature-depth", pretrained, kinds=["pronoun"])


def heads(**kinds):
    """Return attention by kind of word in 1 x 2 heads, equal in 40 examples; no example has a negation."""
    samples = {kind: np.tile(np.array(each, dtype=float), (40, 1, 1)) for kind, each in kinds.items()}
    rest = {kind: np.full((40, 1, 2), 0.01) for kind in ("verb", "pronoun", "subject", "object")}
    return features("qqp", **{"negation": np.full((40, 1, 2), NAN)} | rest | samples)


def test_features_beside_special_tokens_by_hand():
    attention = heads(cls=[[0.5, 0.1]], sep=[[0.2, 0.6]], noun=[[0.1, 0.2]])
    assert read("feature-ratio", attention) == pytest.approx(0.2 / 0.5)
    note = estimand("feature-ratio", attention).notes[0]
    assert note.startswith("best heads: cls 0.500, sep 0.600, noun 0.200, verb 0.010")
    assert estimand("feature-ratio", attention).notes[1] == "left out: negation (in 0 inputs)"
    assert verdict("E4-qqp", attention).outcome == "reproduced"
    assert verdict("E4-qqp", heads(cls=[[0.5, 0.1]], sep=[[0.2, 0.6]], noun=[[0.3, 0.2]])).outcome == "deviates"
    gone = heads(cls=[[NAN, NAN]], sep=[[0.2, 0.6]], noun=[[0.3, 0.2]])
    assert verdict("E4-qqp", gone).outcome == "not applicable"


def in_inputs(count, of=40):
    """Return a function that repeats each number in `count` of `of` inputs, with NaN in the others."""
    return lambda each: np.where(np.arange(of)[:, None, None] < count, np.array(each, dtype=float), NAN)


def test_a_kind_that_few_inputs_have_decides_nothing_among_kinds():
    """Three inputs with high attention to negations would otherwise make these the most attended kind."""
    three, thirty = (
        features("qqp", cls=always([[0.5, 0.5]]), sep=always([[0.5, 0.5]]), negation=some([[0.4, 0.1]]),
                 **{kind: always([[0.1, 0.1]]) for kind in ("noun", "verb", "pronoun", "subject", "object")})
        for always, some in ((in_inputs(40), in_inputs(3)), (in_inputs(40), in_inputs(30)))
    )  # fmt: skip
    assert [verdict("E4-qqp", attention).outcome for attention in (three, thirty)] == ["reproduced", "deviates"]
    assert "left out: negation (in 3 inputs)" in verdict("E4-qqp", three).reason
    few = features("qqp", **{kind: in_inputs(20, 20)([[0.1, 0.1]]) for kind in ("cls", "sep", *LINGUISTIC_FEATURES)})
    assert "fewer than 30 examples" in verdict("E4-qqp", few).reason


def test_a_claim_about_a_kind_that_few_inputs_have_is_inconclusive():
    rows = {"cls": [0.1] * 40, "sep": [0.3] * 40, "punctuation": [0.4] * 25 + [NAN] * 15}
    assert verdict("F2-mrpc", cls_rows(**rows)).outcome == "reproduced"  # compared only with [CLS]
    of_punctuation = verdict("F2-rte-punctuation", cls_rows(**rows))
    assert (of_punctuation.outcome, "fewer than 30 examples" in of_punctuation.reason) == ("inconclusive", True)


def cls_rows(task_name="mrpc", **kinds):
    """Return the last layer's [CLS] row by kind of token, from values per example that are equal in two heads."""
    samples = {f"cls_row_{kind}": np.stack([each, each], axis=1).astype(float) for kind, each in kinds.items()}
    return measured("features", {}, samples, task_name)


def test_targets_of_the_last_cls_match_manual_computation():
    rows = cls_rows(cls=[0.1, 0.1], sep=[0.5, 0.3], noun=[0.2, NAN], verb=[0.1, 0.15], negation=[NAN, NAN])
    assert read("cls-row-lead", rows) == pytest.approx(0.4 - 0.2)
    assert read("cls-row-lead", rows, kind="verb") == pytest.approx(0.125 - 0.4)
    note = estimand("cls-row-lead", rows).notes[0]
    assert note == "sep 0.400, noun 0.200, verb 0.125, cls 0.100"
    assert estimand("cls-row-lead", rows).parts == pytest.approx([0.3, 0.2, 0.275])  # over [CLS], nouns and verbs


def test_targets_of_the_last_cls_can_pass_and_fail():
    sep = cls_rows(cls=[0.1] * 40, sep=[0.4] * 40, punctuation=[0.2] * 40)
    dot = cls_rows(cls=[0.1] * 40, sep=[0.2] * 40, punctuation=[0.4] * 40)
    assert [verdict("F2-mrpc", each).outcome for each in (sep, dot)] == ["reproduced", "deviates"]
    assert [verdict("F2-rte-not", each).outcome for each in (sep, dot)] == ["deviates", "reproduced"]
    assert [verdict("F2-rte-punctuation", each).outcome for each in (sep, dot)] == ["deviates", "reproduced"]
    with pytest.raises(NotApplicableError, match=r"no \[CLS\]"):
        read("cls-row-lead", measured("features", {}, {"noun": np.ones((2, 1, 1))}))


def test_the_correlation_with_figure_7():
    panel = published_figures()["fig7_CLS_last_layer"]["RTE"]
    rows = {f"cls_row_{ours}": np.tile(panel[theirs], (40, 1)) for ours, theirs in FIGURE_7_LABELS.items()}
    like = measured("features", {"noun": np.ones((12, 12))}, rows)
    unlike = measured("features", {"noun": np.ones((12, 12))}, {name: 1 - row for name, row in rows.items()})
    assert estimand("figure-7-correlation", like).parts[0] == pytest.approx(1)
    assert verdict("F3-rte", like).outcome == "reproduced"
    assert verdict("F3-rte", unlike).outcome == "deviates"
    rows["cls_row_negation"] = np.where(np.arange(40)[:, None] < 3, rows["cls_row_negation"], NAN)
    rare = verdict("F3-rte", measured("features", {"noun": np.ones((12, 12))}, rows))
    assert (rare.outcome, "left out: negation (in 3 inputs)" in rare.reason) == ("reproduced", True)


# ---------------------------------------------------------------------- relation heads


def relations(best, diagonal, lacking=0):
    """Return relation weights and pattern classes of ten heads on eighty inputs.

    Args:
        best: Best head for each relation.
        diagonal: By head, the number of inputs with a diagonal map, and its class. Other maps are vertical.
        lacking: Number of inputs at the start that have no verb.
    """
    weights = {}
    for name, head in zip(("verb_subject", "noun_pronoun", "subject_verb", "pronoun_noun"), best, strict=True):
        weights[name] = np.full((80, 1, 10), 0.1)
        weights[name][:, 0, head] = 0.9
    weights["verb_subject"][:lacking] = NAN
    predicted = np.full((80, 1, 10), CLASSES.index("vertical"))
    for head, (inputs, name) in diagonal.items():
        predicted[:inputs, 0, head] = CLASSES.index(name)
    return gridded("relations", **weights), measured(
        "patterns", {}, {f"{reading}_predicted": predicted for reading in READINGS}
    )


def test_the_best_heads_are_diagonal_where_most_of_their_maps_are():
    plain = {3: (80, "diagonal"), 4: (76, "vertical-diagonal"), 5: (8, "diagonal")}
    one_off = relations((3, 4, 3, 5), plain)
    assert read("relation-heads-diagonal", *one_off) == pytest.approx(95)
    assert read("relation-heads-diagonal", *one_off, relations=("subject_verb", "pronoun_noun")) == pytest.approx(10)
    assert verdict("F1-rte", *one_off).outcome == "reproduced"
    off = verdict("F1-rte-reverse", *one_off)
    assert off.outcome == "deviates"
    assert "pronoun_noun: layer 1 head 6, 10 % of its maps diagonal" in off.reason
    assert verdict("F1-rte", *relations((3, 4, 3, 3), plain, lacking=48)).outcome == "reproduced"
    assert verdict("F1-rte", *relations((3, 5, 3, 3), plain | {5: (40, "diagonal")})).outcome == "inconclusive"
    assert verdict("F1-rte", *relations((3, 4, 3, 3), plain, lacking=80)).outcome == "inconclusive"


# ---------------------------------------------------------------------- geometry of vectors (claims I9)

PAIRS = 120


def vectors(centred, same=None, initialisation="pretrained"):
    """Return a measurement with these cosines [pair, layer] in every other row, after a column for the embeddings."""
    sample = np.full((2 * PAIRS, 1 + centred.shape[1]), np.nan)
    sample[::2, 0], sample[::2, 1:] = 0.9, centred
    marks = np.full(2 * PAIRS, np.nan)
    if same is not None:
        marks[::2] = same
    return measured("anisotropy", {}, {"centred": sample, "same_class": marks}, initialisation=initialisation)


@pytest.fixture
def cosines():
    return np.random.default_rng(5).normal(size=(PAIRS, 4))


def test_the_lower_half_of_the_layers_is_compared_with_the_upper_half():
    by_layer = np.array([0.9, 0.8, 0.5, 0.2])
    change = gridded("attention-change", cosine=np.tile(by_layer[:, None], (40, 1, 3)))
    assert read("upper-half-change", change) == pytest.approx(0.85 - 0.35)
    assert verdict("I9-rte", change).outcome == "reproduced"
    upside_down = gridded("attention-change", cosine=np.tile(by_layer[::-1, None], (40, 1, 3)))
    assert verdict("I9-rte", upside_down).outcome == "deviates"
    with pytest.raises(NotApplicableError, match="cannot be split into halves"):
        read("upper-half-change", gridded("attention-change", cosine=np.ones((40, 1, 3))))


def test_geometry_is_kept_if_pairs_keep_their_cosines_up_to_a_linear_change(cosines):
    before, noise = vectors(cosines, initialisation="untrained"), np.random.default_rng(6).normal(size=cosines.shape)
    assert read("geometry-correlation", vectors(0.1 + 0.3 * cosines), before) == pytest.approx(1)
    moved = cosines + [9, 9, 1, 0] * noise  # only the upper two of four layers count
    upper = [np.corrcoef(moved[:, layer], cosines[:, layer])[0, 1] for layer in (2, 3)]
    assert read("geometry-correlation", vectors(moved), before) == pytest.approx(np.mean(upper))
    assert verdict("I9-rte-geometry", vectors(moved), before).outcome == "reproduced"
    assert verdict("I9-rte-geometry", vectors(noise), before).outcome == "deviates"


def test_classes_separate_if_cosines_fall_more_between_than_within_classes(cosines):
    same = np.arange(PAIRS) % 2
    before = vectors(0.01 * cosines, same, "untrained")
    separated = 0.01 * cosines + [0, 0, 0, 1] * np.where(same, 0.3, -0.2)[:, None]
    growth = estimand("class-separation-growth", vectors(separated, same), before)
    assert growth.value == pytest.approx(0.5)
    assert growth.notes == ("cosines within classes change by +0.300, between classes by -0.200",)
    assert verdict("I9-rte-classes", vectors(separated, same), before).outcome == "reproduced"
    assert verdict("I9-rte-classes", vectors(0.01 * cosines, same), vectors(separated, same)).outcome == "deviates"


def test_scores_are_no_classes(cosines):
    with pytest.raises(NotApplicableError, match="regression task, so it has no classes"):
        read("class-separation-growth", vectors(cosines), vectors(cosines))
