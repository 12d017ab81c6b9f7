"""Sessions on this machine alone."""

from typing import Any

from bertsecrets.session import Session


def local_session(**options: Any) -> Session:
    """Return a session on the CPU that needs no network and accepts unofficial data."""
    return Session(**{"device": "cpu", "offline": True, "allow_unofficial_data": True} | options)
