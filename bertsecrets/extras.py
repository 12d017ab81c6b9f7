"""Packages that only some users need, the extras that install them, and the advice when one is missing."""

from collections.abc import Iterator
from contextlib import contextmanager
from importlib.util import find_spec

from bertsecrets.errors import MissingError

# By package: the module that it brings, its extra, and what it is needed for.
PACKAGES = {
    "scikit-learn": ("sklearn", "lab", "training pattern classifiers and the measure word-baselines"),
    "pillow": ("PIL", "lab", "drawing contact sheets and pictures of maps"),
    "matplotlib": ("matplotlib", "lab", "drawing maps in their colours"),
    "altair": ("altair", "report", "drawing figures"),
    "vl-convert-python": ("vl_convert", "report", "drawing figures"),
    "jinja2": ("jinja2", "report", "writing a report page"),
    "ray": ("ray", "ray", "running on a Ray cluster"),
}


@contextmanager
def from_extra(package: str) -> Iterator[None]:
    """Let the block import an optional package: `with from_extra("scikit-learn"): import sklearn`.

    Raises:
        MissingError: the package is not installed.
    """
    try:
        yield
    except ModuleNotFoundError as error:
        if not (error.name or "").startswith(PACKAGES[package][0]):
            raise
        raise MissingError(_advice(package)) from error


def extra_problem(package: str) -> str | None:
    """Return the advice for a package that is not installed, without importing it; None if it is installed."""
    return None if find_spec(PACKAGES[package][0]) else _advice(package)


def check_extra(extra: str) -> None:
    """Make sure that all packages of an extra are installed, without importing them.

    Raises:
        MissingError: one is not.
    """
    packages = (package for package, (_, own, _) in PACKAGES.items() if own == extra)
    if problem := next(filter(None, map(extra_problem, packages)), None):
        raise MissingError(problem)


def _advice(package: str) -> str:
    _, extra, purpose = PACKAGES[package]
    return f'{purpose} needs {package}, which is not installed: pip install "bertsecrets[{extra}]"'
