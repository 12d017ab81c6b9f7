"""The report page: the first screen, the cards of the claims, and the paper's figures next to ours."""

import json
import re
from dataclasses import replace

import pytest
from measurements import SETTINGS, of_id
from reported import GRID, MODEL, of, of_figures, verdicts
from verdicts import beats, verdict

from bertsecrets.claims.verdict import Verdict
from bertsecrets.report.cards import cards_of, strip_rows
from bertsecrets.report.findings import Findings, Table
from bertsecrets.report.html import comparison_page, page
from bertsecrets.report.replicas import paper_figures, table_1
from bertsecrets.types import Provenance

COMMAND = ["bertsecrets", "report", "--model", MODEL, "--task", "rte", "--html", "my report.html"]


@pytest.fixture(scope="module")
def shown() -> str:
    return page({MODEL: verdicts()}, SETTINGS, command=COMMAND, rerun=["bertsecrets", "report", "--offline"])


def visible(html: str) -> str:
    return re.sub(r"\s+", " ", re.sub(r"<[^>]+>", " ", re.sub(r"<(script|style).*?</\1>", "", html, flags=re.S)))


def test_open_ends_are_cut_on_the_axis_of_a_claim():
    card = next(card for card in cards_of({MODEL: verdicts()}) if str(card.verdict.case) == "C1p-rte")
    rows = {
        kind: [row for row in card.strip if row["kind"] == kind]
        for kind in ("published", "band", "interval", "seed", "extent")
    }
    assert [row["low"] for row in rows["published"]] == [-0.251]
    assert [(row["low"], row["high"]) for row in rows["interval"]] == [(-0.3, -0.1)]
    assert [row["low"] for row in rows["seed"]] == [-0.21, -0.19]
    ((low, high),) = [(row["low"], row["high"]) for row in rows["band"]]
    assert low == min(row["low"] for row in rows["extent"]) < -0.3
    assert high == 0.0
    assert [row["row"] for row in rows["extent"]][::2] == ["published", "observed", "seeds"]
    assert strip_rows(Verdict(of_id("G7-rte"), "not applicable", "why", observed=float("nan"))) == []


def test_the_page_is_small_and_loads_nothing(shown):
    assert len(shown.encode()) < 5_000_000
    assert re.findall(r'(?:src|href)="(?!#)[^"]*"', shown[: shown.index('<script type="application/json"')]) == []
    assert re.findall(r"@import|url\(", shown[: shown.index("</style>")]) == []


def test_unofficial_data_have_a_banner(shown):
    assert "say nothing about the paper" not in shown
    judged = beats("D2-rte", 80, 20)
    made_up = tuple(
        replace(measurement, provenance=Provenance(official_data=False)) for measurement in judged.measurements
    )
    html = page({MODEL: [replace(judged, measurements=made_up)]}, SETTINGS)
    assert "The verdicts say nothing about the paper" in html


def test_a_column_in_which_no_claim_applies_is_left_out():
    absent = Verdict(of_id("A3-all-across-tasks"), "not applicable", "needs two tasks")
    shown = page({MODEL: [beats("D2-rte", 80, 20), absent]}, SETTINGS)
    assert re.findall(r'<th scope="col" data-task="(\w+)"', shown) == ["rte"]
    assert "needs two tasks" in shown


def test_the_page_of_a_checkpoint_says_that_it_is_about_one_checkpoint():
    shown = visible(page({MODEL: [replace(beats("D2-rte", 80, 20), open=True)]}, SETTINGS, checkpoint=True))
    head = shown[: shown.index("Overview")]
    assert "One checkpoint, not a training procedure." in head
    assert "Training not by this suite" in head
    assert "seed 1" not in shown
    other = visible(page({MODEL: [beats("D2-rte", 80, 20)]}, SETTINGS))
    assert ("One checkpoint" in other, "Training seed 1" in other) == (False, True)


def test_claims_about_published_figures_alone_name_no_model():
    figures = of("published-figures", {"gain": 0.7})
    shown = visible(page({MODEL: [replace(verdict("D7-rte", "reproduced", 58.9), measurements=(figures,))]}, SETTINGS))
    assert "Evidence published-figures on RTE: no model" in shown


def test_several_models_are_shown_side_by_side():
    whole = verdicts()[1]
    one = replace(whole, measurements=tuple(m for m in whole.measurements if m.measure == "attention-change"))
    other = replace(
        one, measurements=tuple(replace(m, subject=replace(m.subject, model="b")) for m in one.measurements)
    )
    absent = Verdict(of_id("G7-rte"), "not applicable", "six layers")
    elsewhere = Verdict(of_id("D2-sst2"), "deviates", "why", observed=1.0)
    again = ["bertsecrets", "report", "--offline"]
    shown = page({MODEL: [one, elsewhere], "b": [other, absent]}, SETTINGS, rerun=again)
    heads = re.findall(r'<th scope="col" data-task="(\w+)"[^>]*>[^<]*<small>(.*?)</small>', shown)
    assert heads == [("sst2", MODEL), ("rte", MODEL), ("rte", "b")]  # models are side by side for each task
    assert len(set(re.findall(r'<details class="card" id="(.*?)"', shown))) == 3
    head = visible(shown[: shown.index('<section id="overview"')])
    assert "m : 2 claims: 1 reproduced, 1 deviates" in head
    assert "b : 2 claims: 1 reproduced, 0 deviate, 1 not applicable" in head
    assert "bertsecrets report --offline --model b --claim C1p-rte" in shown
    assert "<dt>G7-rte<small>b</small></dt>" in shown
    similar = page({model: [elsewhere] for model in ("a/b", "a-b", "a_b", "a b")}, SETTINGS)
    assert len(set(re.findall(r'<details class="card" id="(.*?)"', similar))) == 4
    of_figure_5 = shown[shown.index('id="figure-5"') :]
    captions = re.findall(r"<figcaption>(.*?)</figcaption>", of_figure_5)
    assert [caption.split(":")[0] for caption in captions].count("K19, figure 5") == 1
    assert {caption.split(",")[0] for caption in captions} == {"K19", MODEL, "b"}


# ---------------------------------------------------------------------- the paper's figures


def test_every_figure_of_the_paper_is_next_to_ours():
    figures = {
        paper.number: on_tasks for paper, on_tasks in paper_figures([*of_figures(1), *of_figures(2)], SETTINGS).items()
    }
    assert list(figures) == ["2", "3", "5", "6", "7", "8", "9"]
    for number, on_tasks in figures.items():
        captions = " ".join(chart.caption for _, panels, _ in on_tasks for chart in panels)
        assert "K19" in captions
        assert ("m, RTE, mean of seeds 1, 2" in captions) is (number != "3")
    theirs, padded, cropped = figures["5"][0][1]
    assert "200 tokens" in padded.caption
    assert [row[1:] for row in cropped.rows] == [tuple(row) for row in GRID]
    assert theirs.rows[0][:2] == (1, 0.98)  # RTE, layer 1, head 1
    assert cropped.header == ("layer", "head 1", "head 2", "head 3")
    sep, _, cls, _ = figures["6"][0][1]
    assert ("[SEP]" in sep.caption, "[CLS]" in cls.caption) == (True, True)


def test_our_figure_is_the_mean_over_seeds_of_the_fine_tuned_model():
    pair = [of("attention-change", {"cosine": GRID + shift}, seed=seed) for seed, shift in ((1, 0.0), (2, 0.1))]
    other = of("attention-change", {"cosine": GRID * 0}, initialisation="random")
    (((_, panels, _),),) = paper_figures([*pair, other], SETTINGS).values()
    assert panels[1].rows[0][1] == pytest.approx(0.55)
    scores = [of("scores", {"accuracy": share}, seed=seed) for seed, share in ((1, 0.6), (2, 0.64))]
    header, (row,) = table_1(scores)
    assert row[header.index("fine-tuned, ours")] == "62.0 ± 2.8"


def test_figures_that_need_samples_are_left_out_without_samples():
    light = [replace(one, samples={}) for one in of_figures()]
    assert {paper.number for paper in paper_figures(light, SETTINGS)} >= {"5", "6", "8", "9"}


def test_constant_answers_are_marked_in_table_1(shown):
    header, (row,) = table_1([*of_figures(1), *of_figures(2)])
    cells = dict(zip(header, row, strict=True))
    assert all(
        f">{score}</span>" in cells[f"not fine-tuned, {whose}"]
        for whose, score in {"K19": "52.7", "ours": "53.0 ± 0.0"}.items()
    )
    assert (cells["fine-tuned, K19"], cells["fine-tuned, ours"]) == ("64.6", "61.0 ± 0.0")
    assert (cells["frozen encoder"], cells["majority class"]) == ("–", "53.0")
    assert shown.count('class="constant" title') == 6  # SST-2 and QNLI too


def test_every_chart_has_its_data_in_the_page(shown):
    (text,) = re.findall(r'<script type="application/json" id="charts">(.*?)</script>', shown, re.S)
    charts = json.loads(text)
    places = re.findall(r'data-chart="(\w+)"', shown)
    assert set(places) == set(charts) - {"strip"}
    assert len(places) == len(set(places))


def test_an_old_and_a_new_value_are_not_separated_by_a_line_break():
    findings = Findings("drift", "from a to b", [Table(["largest"], [["1.2: 0.1 -> 0.2"]])], ["all:\n0.3 -> 0.4"])
    assert re.findall("0[.].\u00a0\u2192\u00a00[.].", comparison_page(findings)) == [
        "0.1\u00a0\u2192\u00a00.2",
        "0.3\u00a0\u2192\u00a00.4",
    ]
