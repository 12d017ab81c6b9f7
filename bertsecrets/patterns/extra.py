"""The optional packages of `bertsecrets[patterns-training]`, and what to do where one is missing."""

from collections.abc import Iterator
from contextlib import contextmanager
from importlib.util import find_spec

from bertsecrets.errors import MissingError

EXTRA = "patterns-training"
MODULES = {"scikit-learn": "sklearn", "pillow": "PIL"}
TRAINING = "training pattern classifiers"


@contextmanager
def from_extra(package: str, purpose: str = TRAINING) -> Iterator[None]:
    """Import an optional package inside the block: `with from_extra("scikit-learn"): import sklearn`.

    Raises:
        MissingError: it is not installed.
    """
    try:
        yield
    except ModuleNotFoundError as error:
        raise MissingError(_advice(package, purpose)) from error


def extra_problem(package: str, purpose: str = TRAINING) -> str | None:
    """Return that a package is not installed, without importing it; None where it is."""
    return None if find_spec(MODULES[package]) else _advice(package, purpose)


def _advice(package: str, purpose: str) -> str:
    return f'{purpose} needs {package}: pip install "bertsecrets[{EXTRA}]"'
