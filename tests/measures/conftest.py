"""Fixtures shared by tests of several measures."""

import pytest
from sessions import local_session

from bertsecrets.session import Session


@pytest.fixture
def session(quick, runs, tiny_glue, tiny_bert) -> Session:
    return local_session(model=tiny_bert, glue=[tiny_glue], store=runs)
