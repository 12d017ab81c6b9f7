"""Type checks for the arguments of public functions, with one-line errors as on the command line."""

import functools
import inspect
import os
import re
import typing
from collections.abc import Callable, Iterable
from pathlib import Path
from types import NoneType, UnionType
from typing import Any, TypeVar

import numpy as np

from bertsecrets.errors import UserError, quoted

F = TypeVar("F", bound=Callable[..., Any])
NAMES: dict[type, str] = {int: "a whole number", float: "a number", str: "text", bool: "true or false", Path: "a path"}


def checked(function: F) -> F:
    """Decorate a public function so that every call checks its arguments against the annotations, and converts them.

    Arguments are checked only if they are annotated as an integer, float, string, boolean, path or class, or as a
    collection or union of these. Numpy integers become Python integers. Text becomes a path if the annotation allows a
    path but no text.

    >>> @checked
    ... def double(number: int) -> int:
    ...     return 2 * number
    >>> double("2")
    Traceback (most recent call last):
    bertsecrets.errors.UserError: number must be a whole number, not '2'
    """
    signature = inspect.signature(function)

    @functools.cache
    def hints() -> dict[str, Any]:
        return typing.get_type_hints(function)

    @functools.wraps(function)
    def calls(*given: Any, **named: Any) -> Any:
        bound = signature.bind(*given, **named)
        for name, value in bound.arguments.items():
            if signature.parameters[name].kind not in (inspect.Parameter.VAR_KEYWORD, inspect.Parameter.VAR_POSITIONAL):
                bound.arguments[name] = check_argument(name, value, hints().get(name, Any))
        return function(*bound.args, **bound.kwargs)

    return typing.cast(F, calls)


def is_text(value: object) -> bool:
    """Return whether a value is a string that can be encoded. A string with a lone surrogate cannot be encoded."""
    return isinstance(value, str) and not re.search(r"[\ud800-\udfff]", value)


def check_argument(name: str, value: object, hint: Any) -> Any:
    """Return an argument, converted as described in `checked`. Raise a `UserError` if its type does not match `hint`.

    True and False do not count as numbers.
    """
    if isinstance(value, np.integer):
        value = int(value)
    options = _options(hint)
    if not any(_fits(value, option) for option in options):
        expected = " or ".join(_described(option) for option in options if option is not NoneType)
        raise UserError(f"{name} must be {expected}, not {quoted(value)}")
    if isinstance(value, str) and Path in options and not {str, object} & {*options}:
        if not value:
            raise UserError(f"{name} is empty: give a path")
        return Path(value)
    return value


def _options(hint: Any) -> tuple[Any, ...]:
    return typing.get_args(hint) if typing.get_origin(hint) in (typing.Union, UnionType) else (hint,)


def _fits(value: object, hint: Any) -> bool:
    kind = typing.get_origin(hint) or hint
    if not isinstance(kind, type) or kind is Any:
        return True
    if isinstance(value, bool) and kind in (int, float):
        return False
    if kind is Path:
        return isinstance(value, str | os.PathLike)
    if kind is float:
        return isinstance(value, int | float)
    items = typing.get_args(hint)
    if isinstance(value, str | bytes) and kind not in (str, bytes):
        return kind is object
    if not isinstance(value, kind) or (kind is str and not is_text(value)):
        return False
    return not (len(items) == 1 and isinstance(value, list | tuple | set)) or all(
        any(_fits(item, option) for option in _options(items[0])) for item in value
    )


def _described(hint: Any) -> str:
    kind = typing.get_origin(hint) or hint
    if isinstance(kind, type) and issubclass(kind, Iterable) and kind is not str and (items := typing.get_args(hint)):
        return f"a collection of {NAMES.get(items[0], getattr(items[0], '__name__', 'values'))}"
    return NAMES.get(kind, f"a {getattr(kind, '__name__', kind)}")
