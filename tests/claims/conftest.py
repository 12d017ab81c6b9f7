"""What tests of claims share."""

import pytest


@pytest.fixture
def nothing_on_record(monkeypatch):
    """No runs on record: of what is not cited, the spread over seeds is not known."""
    monkeypatch.setattr("bertsecrets.claims.record.runs_on_record", lambda: ())
