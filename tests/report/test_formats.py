"""The published format of verdicts: its schema, compatibility, and files that follow it."""

from dataclasses import replace
from pathlib import Path
from typing import get_args

import pytest
from measurements import SETTINGS
from verdicts import beats, filed

from bertsecrets.formats import Outcome, VerdictsFile, json_schema
from bertsecrets.report.html import page
from bertsecrets.settings import load_settings
from bertsecrets.store.entries import write_json
from bertsecrets.store.files import read_json
from bertsecrets.types import Provenance

PUBLISHED = Path(__file__).parents[2] / "docs" / "schema" / "verdicts-3.json"
FIRST = {  # fields of version 1.0, which must not be removed
    "VerdictsFile": "format format_version made commit modified software model settings incomplete over_tasks together "
    "verdicts",
    "VerdictData": "id claim variant task statement source unit published published_constant_answer band observed "
    "interval verdict against reason power p_against p_for remarks known_deviation models seeds by_seed extreme limits "
    "official_data data seconds reused",
    "OverTasksData": "claim speaks_of tasks judged holds_on_at_least fails_on_at_least verdict p_for p_against",
    "TogetherData": "judged false_alarms false_discovery_rate surviving not_surviving",
}


@pytest.fixture(scope="module")
def check():
    """Return a function that validates data against the published schema, or against one of its definitions."""
    jsonschema = pytest.importorskip("jsonschema")
    published = read_json(PUBLISHED)
    jsonschema.Draft202012Validator.check_schema(published)

    def validate(data, part=None):
        schema = {"$ref": f"#/$defs/{part}", "$defs": published["$defs"]} if part else published
        jsonschema.Draft202012Validator(schema).validate(data)

    return validate


def test_the_published_schema_equals_the_generated_one():
    assert read_json(PUBLISHED) == json_schema()


def test_the_schema_has_its_version_and_describes_every_field():
    schema = json_schema()
    assert schema["$schema"] == "https://json-schema.org/draft/2020-12/schema"
    assert schema["$id"].endswith(f":{schema['version'].partition('.')[0]}")
    for name, part in {"VerdictsFile": schema, **schema["$defs"]}.items():
        for field, own in part["properties"].items():
            assert own.get("description", "").endswith("."), (name, field)


def test_fields_of_the_first_version_stay_and_only_they_are_required():
    schema = json_schema()
    for name, fields in FIRST.items():
        part = schema if name == "VerdictsFile" else schema["$defs"][name]
        assert set(fields.split()) <= set(part["properties"]), name
        assert set(VerdictsFile.model_json_schema()["required"]) == set(FIRST["VerdictsFile"].split())
        assert part.get("additionalProperties", True) is True


def test_files_with_every_outcome_follow_the_schema(check, tmp_path):
    write_json(tmp_path / "v.json", filed().model_dump(mode="json"))
    data = read_json(tmp_path / "v.json")
    check(data)
    by_id = {entry["id"]: entry for entry in data["verdicts"]}
    assert {entry["verdict"] for entry in by_id.values()} == {*get_args(Outcome), None}
    assert by_id["D2-rte"]["band"] == [0.0, None]
    assert by_id["D2-mnli"]["interval"] == [None, 30.0]
    assert (by_id["G7-rte"]["observed"], by_id["D3-rte"]["p_for"]) == (None, None)
    read = VerdictsFile.model_validate_json((tmp_path / "v.json").read_text(), strict=True)
    assert read.model_dump(mode="json") == data


def test_the_precision_is_that_of_the_trained_checkpoints():
    verdict = beats("D2-rte", 80, 20)
    assert filed([verdict]).settings["finetune"]["precision"] == load_settings().finetune.precision == "auto"
    trained = [
        replace(measurement, provenance=replace(measurement.provenance, training={"precision": "bfloat16", "steps": 3}))
        for measurement in verdict.measurements
    ]
    half = replace(verdict, measurements=tuple(trained))
    assert filed([half]).settings["finetune"]["precision"] == "bfloat16"
    assert ["trained in bfloat16" in each.remarks for each in (verdict, half)] == [False, True]
    assert "trained in bfloat16" in page({"m": [half]}, SETTINGS)
    untrained = replace(trained[0], provenance=Provenance(training={"precision": "float32", "steps": 0}))
    shown = filed([replace(verdict, measurements=(trained[0], untrained))])
    assert shown.settings["finetune"]["precision"] == "bfloat16"
