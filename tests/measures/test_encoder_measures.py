"""Measures without a task: the example sentence, the pattern classifier, frames."""

import json
from dataclasses import replace

import numpy as np
import pytest
import torch
from measurements import of_id
from sessions import local_session

from bertsecrets.claims.eligibility import Skipped
from bertsecrets.claims.requirements import measure_case
from bertsecrets.cli.main import main
from bertsecrets.measures.example_sentence import EXAMPLE_SENTENCE
from bertsecrets.texts.corpus import write_frames
from bertsecrets.types import Subject

pytestmark = pytest.mark.usefixtures("quick")


def test_the_example_sentence_reads_the_row_of_he(tmp_path, tiny_bert):
    main(["measure", "example-sentence", "--model", str(tiny_bert), "--store", str(tmp_path / "runs"), "--offline",
          "--device", "cpu", "--json", str(tmp_path / "x.json")])  # fmt: skip
    measurement = json.loads((tmp_path / "x.json").read_text())
    assert (measurement["task"], measurement["examples"]) == ("all", 1)

    from transformers import AutoModel, AutoTokenizer

    tokenizer = AutoTokenizer.from_pretrained(tiny_bert)
    model = AutoModel.from_pretrained(tiny_bert, attn_implementation="eager").eval()
    coded = tokenizer(EXAMPLE_SENTENCE, return_tensors="pt")
    with torch.no_grad():
        maps = torch.stack([layer[0] for layer in model(**coded, output_attentions=True).attentions]).numpy()
    words = coded.word_ids()  # He was becoming agitated .
    rows = [i for i, word in enumerate(words) if word == 0]
    for name, word in {"was": 1, "becoming": 2, "agitated": 3}.items():
        columns = [i for i, other in enumerate(words) if other == word]
        expected = maps[:, :, rows][..., columns].max((2, 3))
        np.testing.assert_allclose(measurement["values"][name], expected, atol=1e-6)
    np.testing.assert_allclose(measurement["values"]["sep"], maps[:, :, rows, len(words) - 1].max(2), atol=1e-6)
    target = [i for i, word in enumerate(words) if word == 3]
    np.testing.assert_allclose(
        measurement["values"]["he_from_agitated"], maps[:, :, target][..., rows].max((2, 3)), atol=1e-6
    )
    others = np.stack([np.delete(maps[:, :, i], [*rows, i], axis=-1).max(-1) for i in target]).max(0)
    np.testing.assert_allclose(measurement["values"]["rest_from_agitated"], others, atol=1e-6)


def test_measurements_of_synthetic_frame_sentences_are_marked(tmp_path, tiny_glue, tiny_bert):
    frames = write_frames(tmp_path, 3)
    given = {"store": tmp_path / "runs", "glue": tiny_glue, "model": tiny_bert, "frames": frames}
    marked = local_session(**given).measure("frame-heads")
    assert (marked.examples, marked.provenance.made_up_data, marked.provenance.official_data) == (3, True, False)
    frames.write_text(frames.read_text().replace(', "made_up": "transfer"', ""))
    others = local_session(**given).measure("frame-heads")
    assert (others.provenance.made_up_data, others.provenance.official_data) == (False, True)


def test_the_bare_encoder_is_measured_once_whatever_the_seeds(tmp_path, tiny_glue, tiny_bert):
    frames = tmp_path / "frames.jsonl"
    frames.write_text('{"sentence": "He was here and agitated", "target": "agitated", "core_elements": ["He"]}\n')
    bench = local_session(store=tmp_path / "runs", glue=tiny_glue, frames=frames)
    (needed,) = measure_case(bench, of_id("B3-all-gap"), str(tiny_bert), [1, 2, 3])
    assert {name: (measurement.measure, measurement.subject) for name, measurement in needed.items()} == {
        "frames": ("frame-heads", Subject(str(tiny_bert), "all", "untrained", 1))
    }


def test_missing_inputs_of_a_claim_are_named(tmp_path, tiny_glue):
    bench = local_session(store=tmp_path / "runs", glue=tiny_glue)
    bench.resources = replace(bench.resources, spacy="no_such")

    def lacking(name):
        answer = bench.eligibility(of_id(name))
        return answer.reason if isinstance(answer, Skipped) else None

    assert lacking("B1-all").startswith("frame-heads needs the option frames")
    assert lacking("B4-rte-own-by-task").startswith("frame-heads needs the option frames")
    assert lacking("B4-rte-by-task") is None
    assert lacking("B5-all-l7h6") is None
    assert "no_such" in lacking("E4-rte")
    assert "RTE" not in lacking("E4-mrpc")
    assert "SST-2" in lacking("E2-all")
    assert "STS-B" in lacking("G6-all")
