"""Share the documentation of a verb between the asynchronous library and this package."""

from __future__ import annotations

import inspect
from collections.abc import Callable
from typing import Any, TypeVar

__all__ = ["mirrors"]

F = TypeVar("F", bound=Callable[..., Any])


def mirrors(verb: object) -> Callable[[F], F]:
    """Give a synchronous verb the docstring of the asynchronous verb that does its work.

    Args:
        verb: an asynchronous function or method, or a property.

    Example:
        >>> @mirrors(sorted)
        ... def in_order(items): ...
        >>> in_order.__doc__[:21]
        'Return a new list con'
    """

    def take_docstring(function: F) -> F:
        function.__doc__ = inspect.getdoc(verb)
        return function

    return take_docstring
