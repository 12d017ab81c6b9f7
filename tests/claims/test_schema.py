"""Contents of `expected/`, and error messages for mistakes in it."""

import re

import pytest

from bertsecrets.claims.expectations import Figure
from bertsecrets.claims.loading import cases, find_cases, load_claims
from bertsecrets.claims.quantities import QUANTITIES
from bertsecrets.claims.schema import Case
from bertsecrets.errors import UserError
from bertsecrets.measures.registry import get_measure
from bertsecrets.report.text import status
from bertsecrets.settings import load_settings, project_path

COUNTS = {"A": 4, "B": 6, "C": 4, "D": 7, "E": 5, "F": 3, "G": 7, "H": 5}
UNPUBLISHED = {"H3"}  # its data
GOOD = """
- id: C1
  source: K19
  statement: s
  measure: attention-change
  quantity: last-two-layers
  expect: {kind: below}
  tasks: {rte: {published: -0.2}}
"""


def expected(tmp_path, text, name="C.yaml"):
    (tmp_path / name).write_text(text, encoding="utf-8")
    return tmp_path


def test_every_claim_of_the_paper_is_listed():
    ids = {claim.id for claim in load_claims()}
    assert ids >= {f"{family}{n}" for family, count in COUNTS.items() for n in range(1, count + 1)} - UNPUBLISHED


def test_case_ids_are_unique_and_name_claim_and_task():
    names = [str(case).lower() for case in cases()]
    assert len(names) == len(set(names))
    for case in cases():
        assert str(case).startswith(f"{case.claim.id}-{case.task}")


def test_only_rte_is_selected_by_its_name():
    for case in cases():
        assert ("rte" in str(case).lower()) == (case.task == "rte")


def test_the_measures_own_claims_read_that_measure_first():
    for case in cases():
        needs = list(QUANTITIES[case.claim.quantity].needs.values())
        assert (needs[0].measure, needs[0].whose) == (case.claim.measure, "own")
        if any(need.whose == "against" for need in needs):
            assert case.claim.against is not None


def test_every_option_exists():
    for claim in load_claims():
        get_measure(claim.measure).check_options(claim.options)


def test_every_task_and_band_makes_sense():
    for case in cases():
        limits = case.band(load_settings().judge.confidence)
        if limits is None:  # it depends on the seed variance, which is not known in advance
            assert isinstance(case.claim.expect, Figure)
            assert case.figure.seed_std is None
            assert not case.claim.seedless
            continue
        low, high = limits
        assert low < high
        if isinstance(case.claim.expect, Figure):
            assert low <= case.figure.published <= high


def test_table_1_is_copied_right():
    """Every score in K19's table 1, entered a second time."""
    columns = {
        "untrained": {"mrpc": 31.6, "stsb": 33.1, "sst2": 49.1, "qqp": 60.9, "rte": 52.7, "qnli": 52.8, "mnli": 31.7},
        "random": {"mrpc": 68.3, "stsb": 2.9, "sst2": 80.5, "qqp": 63.2, "rte": 52.7, "qnli": 49.5, "mnli": 61.0},
        "pretrained": {"mrpc": 82.3, "stsb": 82.7, "sst2": 92.0, "qqp": 78.6, "rte": 64.6, "qnli": 84.4, "mnli": 78.6},
        "untrained-f1": {"mrpc": 0.0, "qqp": 0.0},
        # the blog's reading of the same column
        "frozen": {"mrpc": 31.6, "stsb": 33.1, "sst2": 49.1, "qqp": 60.9, "rte": 52.7, "qnli": 52.8, "mnli": 31.7},
        "frozen-f1": {"mrpc": 0.0, "qqp": 0.0},
        "random-f1": {"mrpc": 81.2, "qqp": 0.0},
        "pretrained-f1": {"mrpc": 87.9, "qqp": 65.2},
    }
    published = {
        claim.variant: {n: f.published for n, f in claim.tasks.items()} for claim in load_claims() if claim.id == "D1"
    }
    assert published == columns


@pytest.mark.parametrize(
    ("name", "found"),
    [
        ("g5", ["G5-qnli", "G5-mnli"]),
        ("C1-rte", ["C1-rte"]),
        ("D4-frozen", ["D4-stsb-frozen", "D4-qnli-frozen"]),
        ("D1-rte-Pretrained", ["D1-rte-pretrained"]),
        ("D1-pretrained-rte", ["D1-rte-pretrained"]),
        ("a2-rte-with-block", ["A2-rte-with-block"]),
        ("D4-STS-B", ["D4-stsb"]),
        ("B4-SST-2-own-by-task", ["B4-sst2-own-by-task"]),
        ("C1-qqp", ["C1-qqp-not"]),
    ],
)
def test_claims_are_found_by_any_name_that_tables_print(name, found):
    assert [str(case) for case in find_cases(name)] == found


def test_an_id_stands_for_all_variants_on_all_tasks_or_on_one():
    assert list(dict.fromkeys(case.claim.name for case in find_cases("c1P"))) == ["C1p", "C1p-not"]
    assert len({case.claim.name for case in find_cases("d1")}) == 8
    assert [str(case) for case in find_cases("D1-rte")] == [
        "D1-rte-untrained", "D1-rte-frozen", "D1-rte-random", "D1-rte-pretrained",
    ]  # fmt: skip


def test_a_letter_selects_its_family_except_claims_on_request():
    names = {case.claim.name for case in find_cases("g")}
    assert names == {claim.name for claim in load_claims() if claim.family == "G" and not claim.on_request}
    assert "G1" in names
    assert "G9" not in {name[:2] for name in names}


def test_every_name_that_is_printed_is_understood():
    """Checked for every claim and its case on the first task; the other cases differ only in the task."""
    for claim in load_claims():
        assert set(map(str, claim.cases)) <= {str(case) for case in find_cases(claim.name)}
        for case in claim.cases[:1]:
            assert find_cases(str(case)) == [case]


@pytest.mark.parametrize(
    ("wrong", "like"), [("C11", "C1"), ("D1-rte-pretraind", "D1-rte-pretrained"), ("D3-all", r"D\d")]
)
def test_an_unknown_claim_is_reported_with_similar_ones(wrong, like):
    with pytest.raises(UserError, match=rf"unknown claim '{wrong}': (did you mean|known:) {like}\b") as error:
        find_cases(wrong)
    assert "\n" not in str(error.value)
    with pytest.raises(UserError, match="unknown claim 'Z0': families are A, B, C, D, E, F, G, H, I, J "):
        find_cases("Z0")


@pytest.mark.parametrize(
    ("text", "line", "message"),
    [
        (GOOD + "  quantiy: score\n", 9, "unknown field 'quantiy': did you mean quantity or unit?"),
        (GOOD.replace("rte:", "rtee:"), 2, "unknown task 'rtee': did you mean rte"),
        (GOOD.replace("id: C1", "id: rte"), 2, "id: expected a letter from A to J and a number"),
        (GOOD.replace("measure: attention-change", "measure: attention"), 2, "unknown measure 'attention'"),
        (GOOD.replace("last-two-layers", "last-two"), 2, "unknown quantity 'last-two'"),
        (GOOD.replace("published: -0.2", "published: high"), 8, "tasks.rte.published: "),
        (GOOD.replace("published: -0.2", "seed_std: 1"), 8, "seed_std needs a source: name it in seed_source"),
        (GOOD.replace("published: -0.2", "doubt: 1"), 8, "doubt needs a source: name it in doubt_source"),
        (GOOD.replace("kind: below", "kind: around").replace("published: -0.2", ""), 2, "needs a published figure"),
        (GOOD + "  over_tasks: all\n", 2, "over_tasks can be used only with an order on several tasks"),
        (GOOD.replace("  expect: {kind: below}\n", ""), 2, "expect: Field required"),
        (GOOD.replace("kind: below", "kind: under"), 7, "does not match any of the expected tags: 'above'"),
        (GOOD.replace("{kind: below}", "\n    kind: below\n    sampling: own"), 9, "expect.below.sampling: Extra"),
        (
            GOOD.replace("published: -0.2", "published: -0.2, constant_answer: true"),
            2,
            "constant_answer, doubt and doubt_of can be used only with",
        ),
        (GOOD + GOOD, 10, "claim C1 is defined twice"),
        (
            GOOD + "  known: [{model: m, task: mrpc, evidence: seen in ten runs}]\n",
            2,
            "on mrpc, but the claim is not about this task",
        ),
        (
            GOOD + "  known: [{model: m, task: rte, evidence: seen in ten runs, version: 2}]\n",
            2,
            "`known` has an outcome for version 2, but the claim's version is only 1: correct one of the two",
        ),
        (GOOD + "  needs_shape: [12, 12]\n  relative: C9\n", 2, "C1: relative: unknown claim 'C9'"),
        (
            GOOD.replace("measure: attention-change", "measure: special-tokens"),
            2,
            "quantity last-two-layers is computed from attention-change",
        ),
        (
            GOOD.replace("attention-change", "scores").replace("last-two-layers", "score-difference"),
            2,
            "quantity score-difference compares two initialisations: give another one as `against`",
        ),
        (GOOD.replace("source: K19", "source: ; K19"), 3, "source: expected a source, such as K19 section 4.3"),
        (GOOD.replace("source: K19", "source: ' '"), 3, "source: expected a source, such as K19 section 4.3"),
        (GOOD.replace("statement: s", "statement: ''"), 4, "statement: expected a sentence"),
        (
            GOOD.replace("attention-change", "weight-pruning")
            .replace("last-two-layers", "pruned-score")
            .replace("expect", "arguments: {share: 0.25}\n  expect"),
            2,
            "arguments of quantity pruned-score: share: Input should be",
        ),
        (GOOD.replace("rte:", "all:"), 2, "last-two-layers is measured on one task: name tasks instead of all"),
        (
            GOOD.replace("attention-change", "special-tokens").replace("last-two-layers", "sep-lead"),
            2,
            "quantity sep-lead is about its own tasks: use only the task all",
        ),
        (GOOD + "  options: {paded_to: 100}\n", 2, "C1: measure attention-change has no option paded_to"),
        (GOOD + "  options: {padded_to: abc}\n", 2, "C1: option padded_to of measure attention-change: "),
        (GOOD + "  options: {padded_to: -1}\n", 2, "C1: option padded_to of measure attention-change: "),
        (GOOD.replace("source: K19", "source: 'K19"), None, "not valid YAML"),
        ("id: C1\n", 1, "expected a list of claims"),
    ],
)
def test_a_mistake_is_named_with_file_and_line(tmp_path, text, line, message):
    with pytest.raises(UserError) as error:
        load_claims(expected(tmp_path, text))
    complaint = str(error.value)
    assert complaint.startswith(f"{tmp_path / 'C.yaml'}, line ")
    assert message in complaint
    assert "\n" not in complaint
    if line is not None:
        assert f", line {line}: " in complaint


def test_an_empty_folder_is_named(tmp_path):
    with pytest.raises(UserError, match="no claims in"):
        load_claims(tmp_path)


def test_another_folder_is_named_by_the_environment(tmp_path, monkeypatch):
    monkeypatch.setenv("BERTSECRETS_EXPECTED", str(expected(tmp_path, GOOD)))
    assert [str(case) for case in cases()] == ["C1-rte"]


OWN = """
- id: C50
  source: our lab
  statement: The first layer changes least.
  measure: attention-change
  quantity: last-two-layers
  expect: {kind: below, value: 0}
  tasks: {rte: {}}
- id: D1
  variant: random
  known: [{model: minilm, task: rte, evidence: seen in the first runs of our lab}]
"""


def test_a_file_adds_claims_and_outcomes_on_record(tmp_path, monkeypatch):
    ours = load_claims()
    (tmp_path / "own.yaml").write_text(OWN)
    monkeypatch.setenv("BERTSECRETS_EXPECTED", str(tmp_path / "own.yaml"))
    assert [claim.name for claim in load_claims()] == [*(claim.name for claim in ours), "C50"]
    (before,) = (claim for claim in ours if claim.name == "D1-random")
    (after,) = (claim for claim in load_claims() if claim.name == "D1-random")
    assert [known.evidence for known in after.known[len(before.known) :]] == ["seen in the first runs of our lab"]
    assert after.model_copy(update={"known": before.known}) == before


@pytest.mark.parametrize(
    ("change", "message"),
    [
        ("variant: random|variant: rndom", "line 9 adds outcomes to the unknown claim D1-rndom: "),
        ("task: rte, evidence|task: sts, evidence", "line 9: `known` has an outcome on sts"),
        ("known: [|statement: Other.\n  known: [", "line 9: claim D1-random is defined twice"),
        (
            "known: [|known: [{model: minilm, task: rte, status: reproduces, evidence: seen in later runs}, ",
            "line 9: `known` has two outcomes for minilm on rte",
        ),
        (
            "value: 0}|value: -9}\n  smallest_effect: {size: 3, reason: for our reasons}",
            "line 2: smallest_effect is used only if the limit is between 0 and 3",
        ),
        ("{rte: {}}|{rte: {band: [0, 1]}}", "line 2: `band` is computed and must not be given: remove it"),
    ],
)
def test_a_bad_entry_in_a_file_of_ones_own_is_named(tmp_path, monkeypatch, change, message):
    (tmp_path / "own.yaml").write_text(OWN.replace(*change.split("|")))
    monkeypatch.setenv("BERTSECRETS_EXPECTED", str(tmp_path / "own.yaml"))
    with pytest.raises(UserError) as error:
        load_claims()
    assert f"own.yaml, {message}" in str(error.value)
    assert "\n" not in str(error.value)


def test_an_added_outcome_of_a_changed_claim_names_its_version(tmp_path, monkeypatch):
    changed = next(claim for claim in load_claims() if claim.version > 1 and not claim.variant)
    task_name = next(iter(changed.tasks))
    known = f"- id: {changed.id}\n  known: [{{model: m, task: {task_name}, evidence: seen in our lab}}]\n"
    (tmp_path / "own.yaml").write_text(known)
    monkeypatch.setenv("BERTSECRETS_EXPECTED", str(tmp_path / "own.yaml"))
    with pytest.raises(UserError, match=f"line 1: {changed.id} has version {changed.version}: give each outcome the"):
        load_claims()
    (tmp_path / "own.yaml").write_text(known.replace("lab}", f"lab, version: {changed.version}}}"))
    assert "m" in {outcome.model for claim in load_claims() for outcome in claim.known}


@pytest.mark.parametrize(
    ("expect", "figure", "message"),
    [
        ("above}", "published: 646", "task rte: published 646 lies outside [0, 100.0], the range of score: correct it"),
        ("above, value: 600}", "", "task rte: expect.value 600 lies outside [0, 100.0], the range of score"),
        ("above, value: 100}", "", "no score is above 100: correct the limit"),
        ("around}", "published: 60, seed_std: 1.0e+160, seed_source: s", "seed_std 1e+160 lies outside [0, 100.0]"),
        ("around}", "published: 60, rounding: 101", "rounding 101 lies outside [0, 100.0], the possible differ"),
        (
            "around}\n  tolerance: {size: 1.0e+9, reason: for our reasons}",
            "published: 60",
            "tolerance 1e+09 lies outside [0, 100.0], the possible differences in score",
        ),
    ],
)
def test_an_impossible_number_is_refused(tmp_path, expect, figure, message):
    text = GOOD.replace("attention-change", "scores").replace("last-two-layers", "score")
    text = text.replace("below}", expect).replace("published: -0.2", figure)
    with pytest.raises(UserError, match=re.escape(message)) as error:
        load_claims(expected(tmp_path, text))
    assert ", line 2: C1: " in str(error.value)


@pytest.mark.parametrize(
    ("change", "message"),
    [
        ("batch_size: 32|batch_size: 0", "finetune.batch_size: "),
        ("warmup: 0.1|warmups: 0.1", "finetune.warmup"),
        ("learning_rate: 5.0e-5|learning_rate: .nan", "finetune.learning_rate: "),
        ("finetune:|finetune: [", "is not valid YAML"),
        ("seeds: auto|seeds: []", "seeds"),
        ("seeds: auto|seeds: [1, -1]", "seeds.1: "),
        ("budget: 20min|budget: 20 minutes", "budget: '20 minutes' is not a duration: give one such as 90s"),
        ("confidence: 0.95|confidence: 2019-99-99", "line 1: a value cannot be read"),
    ],
)
def test_a_mistake_in_the_settings_is_named(tmp_path, monkeypatch, change, message):
    old, new = change.split("|")
    text = project_path("params.yaml").read_text(encoding="utf-8")
    assert old in text
    (tmp_path / "params.yaml").write_text(text.replace(old, new, 1), encoding="utf-8")
    monkeypatch.setenv("BERTSECRETS_PARAMS", str(tmp_path / "params.yaml"))
    with pytest.raises(UserError, match=re.escape(message)) as error:
        load_settings()
    assert "\n" not in str(error.value)
    monkeypatch.setenv("BERTSECRETS_PARAMS", str(tmp_path / "none.yaml"))
    with pytest.raises(UserError, match="cannot read the settings"):
        load_settings()


def test_how_often_a_training_is_saved_is_part_of_no_key():
    settings = load_settings().finetune
    other = settings.model_copy(update={"save_every": 60.0})
    assert other != settings
    assert other.model_dump() == settings.model_dump()


def test_the_projects_settings_are_k19s():
    finetuning = load_settings().finetune
    read = finetuning.batch_size, finetuning.epochs, finetuning.learning_rate, finetuning.warmup, finetuning.max_length
    assert read == (32, 3, 5e-5, 0.1, 128)
    assert (load_settings().attention.examples, load_settings().attention.max_length) == (1000, 200)


def test_a_deviation_may_be_of_any_model(tmp_path):
    evidence = "{model: any, task: rte, evidence: seen whatever the model}"
    (tmp_path / "c.yaml").write_text(GOOD + f"  known: [{evidence}]\n")
    (claim,) = load_claims(tmp_path)
    assert all(Case(claim, "rte").known_deviation(model) is not None for model in ("minilm", "gpt2"))
    assert "any model on RTE" in status(claim, "minilm")


def test_shape_independent_variants_require_no_shape():
    by_name = {claim.name: claim for claim in load_claims()}
    relative = {name: claim.relative for name, claim in by_name.items() if claim.relative}
    assert relative == {
        "B1": "B3-gap", "B3": "B3-gap", "B4": "B4-own", "B4-by-task": "B4-own-by-task",
        "B7": "B7-own", "E1-crossing": "E1", "G6": "G6-pair", "I4-count": "I4",
        "J4": "J4-own",
    }  # fmt: skip
    assert all(by_name[name].needs_shape is None for name in relative.values())


def test_seeds_make_no_difference_to_the_encoder_of_an_untrained_model():
    """Only its random classifier differs between seeds."""
    bare = {claim.name for claim in load_claims() if claim.seedless}
    assert {"I2", "I2-rises", "B1"} <= bare
    assert not {"I2-after", "C3", "D1-untrained"} & bare


def test_claims_are_read_again_if_a_file_changes(tmp_path):
    assert load_claims(expected(tmp_path, GOOD))[0].statement == "s"
    assert load_claims(expected(tmp_path, GOOD.replace("statement: s", "statement: t")))[0].statement == "t"
