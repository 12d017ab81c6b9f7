"""The Python API: `import bertsecrets as bs`."""

import inspect
import re

import numpy as np
import pandas as pd
import pytest
from tiny import HEADS, LAYERS, save_bert

import bertsecrets as bs
from bertsecrets.measures.registry import get_measure, measure_names

TABLE = pd.DataFrame({"text": ["a"] * 80})

pytestmark = pytest.mark.usefixtures("quick")


@pytest.fixture
def session(runs, tiny_bert, tiny_glue) -> bs.Session:
    return bs.Session(model=str(tiny_bert), glue=tiny_glue, store=runs, offline=True, allow_unofficial_data=True)


def test_every_public_name_is_importable():
    assert all(getattr(bs, name) is not None for name in bs.__all__)
    assert set(bs.__all__) <= set(dir(bs))
    with pytest.raises(AttributeError, match="no attribute 'Sesion'"):
        bs.Sesion  # noqa: B018


def test_a_measurement_has_its_values_and_shows_itself_with_its_figure(session):
    change = session.measure("attention-change", task="RTE")
    assert np.shape(change.values["cosine"]) == (LAYERS, HEADS)
    shown = change._repr_html_()
    assert "<svg" in shown
    assert "attention-change" in shown
    assert session.measure("attention-change", task="rte").reused


def test_options_of_a_measure_are_keywords_and_checked(session):
    padded = session.measure("attention-change", task="rte", padded_to=40)
    assert padded.options == {"padded_to": 40}
    with pytest.raises(bs.UserError, match="has no option padded; available options: rows, .*padded_to"):
        session.measure("attention-change", task="rte", padded=40)
    with pytest.raises(bs.UserError, match="option padded_to of measure attention-change: "):
        session.measure("attention-change", task="rte", padded_to=0)


def test_measures_require_a_task_only_if_they_use_one(session):
    row = session.measure("example-sentence")
    assert row.subject.task == "all"
    with pytest.raises(bs.UserError, match="measure scores needs a task: choose one of mrpc"):
        session.measure("scores")
    with pytest.raises(bs.UserError, match="example-sentence uses no task .*: leave out task, init and seed"):
        session.measure("example-sentence", task="rte")
    with pytest.raises(bs.UserError, match="pattern-quality uses no model: leave out checkpoint"):
        session.measure("pattern-quality", checkpoint="here")
    with pytest.raises(bs.UserError, match="attention-change compares a trained model with the pretrained one"):
        session.measure("attention-change", task="rte", init="untrained")
    with pytest.raises(bs.UserError, match="unknown initialisation 'pretrain': did you mean pretrained"):
        session.measure("scores", task="rte", init="pretrain")
    with pytest.raises(bs.UserError, match="unknown measure 'score': did you mean scores"):
        session.measure("score", task="rte")


def test_a_verdict_is_judged_on_the_seeds_asked_for_and_shown(session):
    verdict = session.judge("C1", task="rte", seeds=2)
    assert verdict.outcome in ("reproduced", "deviates", "inconclusive", "degenerate")
    assert verdict.as_json()["seeds"] == [1, 2]
    shown = verdict._repr_html_()
    assert "<svg" in shown
    assert verdict.outcome in shown
    assert "The last two layers change most." in shown


def test_a_claim_that_could_be_several_is_not_guessed(session):
    with pytest.raises(bs.UserError, match="C1 could mean C1-mrpc, C1-stsb"):
        session.judge("C1")
    with pytest.raises(bs.UserError, match="D1 could mean D1-rte-untrained, D1-rte-frozen, D1-rte-random"):
        session.judge("D1", task="rte")
    with pytest.raises(bs.UserError, match="G4 is not about mrpc: its cases are G4-rte"):
        session.judge("G4", task="mrpc")
    with pytest.raises(bs.UserError, match="unknown claim 'Z1'"):
        session.judge("Z1")
    assert str(session.judge("d1-untrained", task="rte").case) == "D1-rte-untrained"


def test_missing_inputs_are_reported_before_training(session, runs, tiny_bert, tiny_glue):
    with pytest.raises(bs.MissingError, match="needs the option frames:"):
        session.judge("B1")
    with pytest.raises(bs.UserError, match="^seeds must be at least 1, not 0"):
        session.judge("C1", task="rte", seeds=0)
    trained = bs.Session(checkpoint=tiny_bert, checkpoint_task="rte", glue=tiny_glue, store=runs)
    with pytest.raises(bs.UserError, match="^the option `seeds` has no effect on a trained checkpoint"):
        trained.judge("C1", task="rte", seeds=2)


def test_the_task_of_a_checkpoint_is_asked_for_once(session, runs, tiny_bert, tiny_glue, caplog):
    folder = session.checkpoint(session.subject("rte"))
    own = bs.Session(session.options, checkpoint=folder, checkpoint_task="RTE")
    assert own.measure("scores").values == session.measure("scores", "rte").values
    assert str(own.judge("D1-pretrained").case) == "D1-rte-pretrained"
    verdicts = own.judge_all(claims=["C1", "D2", "E1"])
    assert {verdict.case.task for verdict in verdicts} == {"rte"}
    assert "skipped" not in caplog.text
    assert [v.observed for v in session.judge_all("RTE", ["C1"], checkpoint=folder)] == [own.judge("C1").observed]
    assert str(session.judge_all("RTE", ["C1"], seeds=2)[0].case) == "C1-rte"


@pytest.mark.parametrize(
    ("option", "message"),
    [
        ({"limit": 0}, "^limit must be at least 1, not 0"),
        ({"seeds": 0}, "^seeds must be at least 1, not 0"),
        ({"modle": "minilm"}, "^unknown option 'modle': did you mean model"),
        ({"glue": "nowhere"}, "no GLUE folder at nowhere"),
        ({"frames": "nowhere"}, "nowhere does not exist"),
        ({"device": "tpu"}, "device 'tpu' is not available"),
        ({"limit": "5"}, "^limit must be a whole number, not '5'"),
        ({"train_limit": True}, "^train_limit must be a whole number, not True"),
        ({"seeds": 1.5}, "^seeds must be an integer or auto, not 1.5"),
        ({"glue": [None, 3]}, "^glue must be a name or path, not 3"),
        ({"precision": 32}, "^precision must be text, not 32"),
        ({"model": ""}, "the model's name is empty"),
        ({"keep_checkpoints": "nonne"}, "unknown keep_checkpoints 'nonne': did you mean none"),
        (
            {"checkpoint": "x", "checkpoint_task": "rte", "keep_checkpoints": "none"},
            "option `keep_checkpoints` has no effect on a trained checkpoint",
        ),
        ({"offline": "no"}, "^offline must be true or false, not 'no'"),
        ({"model": TABLE}, "^model must be a name or path, not a DataFrame$"),
        ({"tokenizer": TABLE}, "^tokenizer must be a transformers tokenizer, not a DataFrame$"),
    ],
)
def test_impossible_options_are_refused_at_once(option, message):
    with pytest.raises(bs.UserError, match=message):
        bs.Session(**option)


@pytest.mark.parametrize(
    ("call", "message"),
    [
        (lambda session: session.judge_all(claims=[]), "^`claims` is empty: name claims or families"),
        (lambda session: session.judge_all(claims=["C1", 3]), "collection of text or text, not a list of 'C1', 3$"),
        (lambda session: session.judge_all(claims=pd.Series(["Z7"])), "^unknown claim 'Z7'"),
        (lambda session: session.measure("scores", "rte", checkpoint=""), "^checkpoint is empty: give a path"),
        (
            lambda session: session.measure("attention-change", "rte", padded_to=True),
            "must be a number or a name, not True",
        ),
        (lambda session: session.subject("rte", seed=np.int64(-1)), "^seed -1 is out of range"),
        (lambda session: bs.RunOptions(seeds=" auto"), "^seeds must be a whole number or auto, not ' auto'"),
        (lambda session: bs.head_map("minilm", "\ud800"), "^text must be text, not"),
        (lambda session: bs.load_claims("/nowhere"), "^no claims in /nowhere, which does not exist"),
    ],
)
def test_arguments_of_another_type_are_one_line(session, call, message):
    with pytest.raises(bs.UserError, match=message):
        call(session)


METHODS = ("__init__", "subject", "measure", "judge", "judge_all")
PUBLIC = {f"Session.{name}": getattr(bs.Session, name) for name in METHODS}
PUBLIC |= {name: getattr(bs, name) for name in ("head_map", "show_head", "load_claims", "register_family")}
VALID = {"measure": "scores", "claim": "C1", "model": "minilm", "text": "Some words.", "task_name": "rte"}


@pytest.mark.parametrize(
    ("name", "argument"),
    [
        (name, argument)
        for name, function in PUBLIC.items()
        for argument, parameter in inspect.signature(function).parameters.items()
        if argument != "self" and parameter.kind is not inspect.Parameter.VAR_KEYWORD
    ],
)
def test_every_argument_of_every_public_function_refuses_another_type(name, argument):
    function = PUBLIC[name]
    required = [
        each.name
        for each in inspect.signature(function).parameters.values()
        if each.default is each.empty and each.name in VALID
    ]
    for value in (object(), 2.5j):
        arguments = {each: VALID[each] for each in required} | {argument: value}
        with pytest.raises(bs.UserError, match=f"^{argument} must be ") as error:
            function(*([object()] if name.startswith("Session.") else []), **arguments)
        assert "\n" not in str(error.value)


def test_every_public_function_that_users_call_is_checked():
    decorators = {"measure", "quantity"}  # they register classes and functions when a module is imported
    functions = {name for name in bs.__all__ if inspect.isfunction(getattr(bs, name))} - decorators
    assert functions - {"list_measures"} <= PUBLIC.keys()


def test_a_checkpoint_is_compared_with_a_base_of_its_own_size_only(session, tmp_path, trained, tiny_bert, tiny_glue):
    deep = save_bert(tmp_path / "deep", num_hidden_layers=5)
    with pytest.raises(bs.UserError, match="cannot be compared with .*: its num_hidden_layers is 5 instead of 3"):
        session.measure("attention-change", "rte", checkpoint=deep)
    small = save_bert(tmp_path / "small", hidden_size=16, intermediate_size=24)
    message = "its hidden_size is 16 instead of 32"
    with pytest.raises(bs.UserError, match=message):
        session.measure("attention-change", "rte", checkpoint=small)
    judging = bs.Session(model=tiny_bert, checkpoint=small, checkpoint_task="rte", glue=tiny_glue, store=trained)
    with pytest.raises(bs.UserError, match=message):
        judging.check_model()


def test_a_checkpoint_of_another_origin_is_remarked_on(session, tmp_path):
    own = session.measure("attention-change", "rte")
    other = session.measure("attention-change", "rte", checkpoint=save_bert(tmp_path / "other", seed=5))
    remarks = get_measure("attention-change").remarks
    assert remarks(own) == []
    assert remarks(other)[0].startswith(
        f"probably not fine-tuned from {session.model}: the mean cosine of the models' weight"
    )


def test_a_measurement_becomes_a_table_with_a_row_per_head(session):
    measurement = session.measure("special-tokens", task="rte")
    frame = measurement.to_frame()
    assert len(frame) == LAYERS * HEADS
    assert (frame["layer"].iloc[0], frame["head"].iloc[-1]) == (1, HEADS)
    second = frame[(frame["layer"] == 2) & (frame["head"] == 3)]
    assert second["cls"].item() == np.asarray(measurement.values["cls"])[1, 2]


@pytest.mark.parametrize(
    ("measure", "options", "axes", "values", "rows"),
    [
        ("head-ablation", {"heads": "1.2 3.4 2"}, ["set"], {"score", "sets", "baseline"}, 3),
        ("head-ablation", {}, ["layer", "head"], {"score", "baseline"}, LAYERS * HEADS),
        ("layer-ablation", {}, ["layer"], {"score", "baseline"}, LAYERS),
        ("head-pruning", {}, ["layer", "head"], {"baseline", "importance", "removed"}, LAYERS * HEADS),
        ("weight-pruning", {}, ["step"], {"baseline", "score", "share", "pruned"}, 7),
        ("anisotropy", {}, ["state"], {"cosine", "centred"}, LAYERS + 1),
        ("scores", {}, [], {"accuracy", "constant", "majority", "entropy"}, 1),
        ("published-figures", {}, ["task"], {"tasks"}, 7),
    ],
)
def test_the_rows_of_a_table_are_the_axes_of_the_measure(session, measure, options, axes, values, rows):
    measurement = session.measure(measure, "rte" if get_measure(measure).on_task else None, **options)
    frame = measurement.to_frame()
    assert list(frame.columns[: len(axes)]) == axes
    assert set(frame.columns) == {*axes, *values}
    assert len(frame) == rows
    assert [frame[axis].iloc[0] for axis in axes] == [0 if axis == "state" else 1 for axis in axes]


def test_every_array_of_every_measure_has_the_axes_that_are_declared(session):
    for name in measure_names():
        measure = get_measure(name)
        try:
            measurement = session.measure(name, "rte" if measure.on_task else None)
        except bs.UserError:  # no frames or no spaCy pipeline
            continue
        for value, content in measurement.values.items():
            axes = measure.other_axes.get(value, measure.axes_of(measurement.options))
            assert np.ndim(content) in (0, len(axes)), (name, value)


def test_several_claims_are_judged_at_once_and_become_a_table_and_a_chart(session):
    pytest.importorskip("altair")
    verdicts = session.judge_all(task="rte", claims=["E1", "C1"])
    frame = verdicts.to_frame()
    assert set(frame["id"]) >= {"E1-rte", "C1-rte"}
    low = {str(verdict.case): verdict.interval[0] for verdict in verdicts if verdict.interval}
    assert frame.set_index("id")["low"].dropna().to_dict() == low
    assert "<table" in verdicts._repr_html_()
    counted = re.findall(r"(\d+) [a-z ]+", repr(verdicts))
    assert sum(map(int, counted)) == len(verdicts)
    (rows,) = verdicts.plot().to_dict()["datasets"].values()
    assert {row["claim"]: row["outcome"] for row in rows} == {
        str(verdict.case).replace("-rte", ""): verdict.status for verdict in verdicts
    }
    alone = session.judge_all(task="rte", claims="C1")
    assert {verdict.case.claim.id for verdict in alone} == {"C1"}


def test_claims_that_cannot_be_judged_are_named(session, capsys):
    without = session.judge_all(task="rte", claims="B4-own-by-task")
    assert without == []
    assert {"id", "verdict", "observed", "low", "high"} <= {*without.to_frame().columns}
    assert "1 claim skipped (B4-rte-own-by-task): " in capsys.readouterr().err


def test_figures_are_altair_charts(session, tiny_bert):
    pytest.importorskip("altair")
    measurement = session.measure("special-tokens", task="rte")
    assert measurement.plot().to_dict()["title"].endswith("RTE, seed 1: attention to [SEP]")  # not the paper's
    assert session.judge("E1", task="rte", seeds=1).plot().to_dict()["title"] == measurement.plot().to_dict()["title"]
    with pytest.raises(bs.UserError, match="has no chart"):
        session.measure("scores", task="rte").plot()


def test_a_heads_attention_over_a_text_is_that_of_transformers(tiny_bert):
    from transformers import AutoModel, AutoTokenizer

    tokens, weights = bs.head_map(str(tiny_bert), "the nurse sold letters", layer=2, head=3, offline=True)
    inputs = AutoTokenizer.from_pretrained(tiny_bert)("the nurse sold letters", return_tensors="pt")
    model = AutoModel.from_pretrained(tiny_bert, attn_implementation="eager").eval()
    theirs = model(**inputs, output_attentions=True).attentions[1][0, 2].detach().numpy()
    np.testing.assert_allclose(weights, theirs, atol=1e-6)
    assert len(tokens) == len(weights)
    chart = bs.show_head(str(tiny_bert), "the nurse sold letters", layer=2, head=3, offline=True)
    (rows,) = chart.to_dict()["datasets"].values()
    assert len(rows) == len(tokens) ** 2
    for empty in ((" ",), ("the nurse", "")):
        with pytest.raises(bs.UserError, match="the text is empty: give at least one word"):
            bs.show_head(str(tiny_bert), *empty, offline=True)
    with pytest.raises(bs.UserError, match="head 99.1 does not exist"):
        bs.head_map(str(tiny_bert), "the nurse", layer=99, offline=True)
    of_all_heads = bs.show_head(str(tiny_bert), "the nurse sold letters", layer=2, head=None, offline=True)
    (tiles,) = of_all_heads.to_dict()["datasets"].values()
    of_layer = model(**inputs, output_attentions=True).attentions[1][0].detach().numpy()
    assert list(dict.fromkeys(tile["head"] for tile in tiles)) == [f"head {head + 1}" for head in range(len(of_layer))]
    np.testing.assert_allclose([tile["weight"] for tile in tiles], of_layer.ravel(), atol=1e-6)


def test_charts_are_shown_without_a_network(session, tiny_bert):
    pytest.importorskip("altair")
    measurement = session.measure("special-tokens", task="rte")
    text = "the nurse sold letters"
    for chart in (
        measurement.plot(),
        measurement.plot().properties(width=300),
        session.judge_all(task="rte", claims="E1").plot(),
        bs.show_head(str(tiny_bert), text, offline=True),
        bs.show_head(str(tiny_bert), text, head=None, offline=True),
    ):
        shown = chart._repr_mimebundle_()["text/html"]
        assert shown.startswith("<svg")
        assert "<script" not in shown
    larger = measurement.plot().configure_axis(labelFontSize=19)._repr_mimebundle_()["text/html"]
    assert 'font-size="19px"' in larger


def test_measures_are_listed_with_their_titles():
    assert bs.list_measures()["scores"]
    assert "attention-change" in bs.list_measures()
