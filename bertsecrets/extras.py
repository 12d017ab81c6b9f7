"""Packages that only some users need, each in an extra of its own, and what to do where one is missing."""

from collections.abc import Iterator
from contextlib import contextmanager
from importlib.util import find_spec

from bertsecrets.errors import MissingError

# By package: the module that it brings, its extra, and what it is needed for.
PACKAGES = {
    "scikit-learn": ("sklearn", "patterns-training", "training pattern classifiers"),
    "pillow": ("PIL", "patterns-training", "drawing contact sheets and pictures of maps"),
    "matplotlib": ("matplotlib", "report", "drawing figures"),
    "jinja2": ("jinja2", "report", "writing a report page"),
}


@contextmanager
def from_extra(package: str) -> Iterator[None]:
    """Import an optional package inside the block: `with from_extra("scikit-learn"): import sklearn`.

    Raises:
        MissingError: it is not installed.
    """
    try:
        yield
    except ModuleNotFoundError as error:
        if not (error.name or "").startswith(PACKAGES[package][0]):
            raise
        raise MissingError(_advice(package)) from error


def extra_problem(package: str) -> str | None:
    """Return that a package is not installed, without importing it; None where it is."""
    return None if find_spec(PACKAGES[package][0]) else _advice(package)


def _advice(package: str) -> str:
    _, extra, purpose = PACKAGES[package]
    return f'{purpose} needs {package}, which is not installed: pip install "bertsecrets[{extra}]"'
