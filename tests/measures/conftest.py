"""Fixtures shared by tests of several measures."""

import pytest

from bertsecrets.session import Session


@pytest.fixture
def session(quick, runs, tiny_glue, tiny_bert) -> Session:
    return Session(
        model=str(tiny_bert), glue=[tiny_glue], store=runs, device="cpu", allow_unofficial_data=True, offline=True
    )
