"""Errors without secrets, for Spark, which shows their text and keeps it in its event log."""

from __future__ import annotations

from collections.abc import Iterable
from contextlib import ContextDecorator
from typing import Final, Self

from sbnotebook.errors import ConfigurationError, SbNotebookError
from sbnotebook.model.connection_strings import scrub
from sbnotebook.settlement import explained

_MAX_TEXT: Final = 1000


class scrubbed(ContextDecorator):  # noqa: N801 (used like a function)
    """A block that raises errors without secrets, without the errors that caused them, and in a few lines.

    An error of sbnotebook's own keeps its type; the text of any other names its type. Spark also shows users the stack
    of an error. It begins at this block, so that the sentence is not lost below it.
    """

    def __init__(self, secrets: Iterable[str] = ()) -> None:
        self._secrets = tuple(secrets)

    def __enter__(self) -> Self:
        return self

    def __exit__(self, kind: type[BaseException] | None, error: BaseException | None, stack: object) -> None:
        if not isinstance(error, Exception):
            return
        clean = _clean(error, self._secrets)
        try:
            raise clean.with_traceback(None) from None
        except SbNotebookError:
            clean.__context__ = None  # not only hidden, but gone
            raise


def in_words(error: BaseException, secrets: Iterable[str] = ()) -> str:
    """Return the text of an error, with the name of its type unless it is one of sbnotebook's own."""
    while isinstance(error, BaseExceptionGroup):
        error = error.exceptions[0]  # pyright: ignore[reportUnknownVariableType, reportUnknownMemberType]
    if isinstance(error, SbNotebookError):
        return str(error)
    return f"{type(error).__name__}: {explained(error, secrets)[:_MAX_TEXT]}"  # pyright: ignore[reportUnknownArgumentType]


def _clean(error: Exception, secrets: Iterable[str]) -> SbNotebookError:
    text = in_words(error, secrets)
    for secret in secrets:
        text = text.replace(secret, "***")
    text = scrub(text)
    if isinstance(error, SbNotebookError) and text == str(error):
        return error
    return ConfigurationError(text) if isinstance(error, ConfigurationError) else SbNotebookError(text)
