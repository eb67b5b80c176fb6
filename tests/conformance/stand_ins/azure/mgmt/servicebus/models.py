"""A replacement of the resource manager's descriptions of entities."""

from __future__ import annotations

from dataclasses import dataclass
from enum import StrEnum

__all__ = ["AccessRights", "SBAuthorizationRule", "SBQueue", "SBSubscription"]


class AccessRights(StrEnum):
    """What a key lets its holder do."""

    manage = "Manage"
    send = "Send"
    listen = "Listen"


@dataclass
class SBQueue:
    """A queue as the tests want it."""

    lock_duration: str = "PT30S"
    requires_duplicate_detection: bool = False
    dead_lettering_on_message_expiration: bool = False
    requires_session: bool = False
    enable_partitioning: bool = False


@dataclass
class SBSubscription:
    """A subscription as the tests want it."""

    lock_duration: str = "PT30S"
    requires_session: bool = False


@dataclass
class SBAuthorizationRule:
    """A key as the tests want it."""

    rights: list[AccessRights]
