"""Errors of operations that an entity refuses; they have no effect."""

from __future__ import annotations

from enum import Enum, auto

from sbnotebook.errors import EmulatorError


class Refusal(Enum):
    """The kinds of refusal; the service has a condition for each."""

    DISABLED = auto()
    QUOTA_EXCEEDED = auto()
    TOO_LARGE = auto()
    NO_SESSION_ID = auto()
    NOT_ALLOWED = auto()
    BAD_ARGUMENT = auto()
    MESSAGE_LOCK_LOST = auto()
    SESSION_IS_LOCKED = auto()
    SESSION_LOCK_LOST = auto()
    MESSAGE_NOT_FOUND = auto()
    UNKNOWN_TRANSACTION = auto()
    BROKEN_OFF = auto()
    SERVER_BUSY = auto()


class RefusedError(EmulatorError):
    """An operation that an entity refuses."""

    def __init__(self, refusal: Refusal, sentence: str) -> None:
        super().__init__(sentence)
        self.refusal = refusal


class EntityExistsError(EmulatorError):
    """An entity of this name exists already."""


class EntityNotFoundError(EmulatorError):
    """No entity of this name exists."""
