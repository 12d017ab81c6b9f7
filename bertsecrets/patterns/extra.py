"""The optional packages of `bertsecrets[patterns-training]`, and what to do where one is missing."""

from collections.abc import Iterator
from contextlib import contextmanager

from bertsecrets.errors import MissingError

EXTRA = "patterns-training"


@contextmanager
def from_extra(package: str, purpose: str) -> Iterator[None]:
    """Import an optional package inside the block: `with from_extra("scikit-learn", "training"): import sklearn`.

    Raises:
        MissingError: it is not installed.
    """
    try:
        yield
    except ModuleNotFoundError as error:
        raise MissingError(f'{purpose} needs {package}: pip install "bertsecrets[{EXTRA}]"') from error
