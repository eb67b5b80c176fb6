"""The one way in which tests open a namespace that has a journal and an archive of its own."""

from __future__ import annotations

from typing import TYPE_CHECKING

from sbnotebook.client import Namespace
from sbnotebook.client.targets import Target
from sbnotebook.settlement import Connection, Journal

if TYPE_CHECKING:
    from pathlib import Path

__all__ = ["opened"]


def opened(connection_string: str | None, folder: Path, *, write: bool | None = None) -> Namespace:
    """Open the namespace of an emulator.

    Args:
        connection_string: of the emulator.
        folder: for the journal and the archive, which a later namespace finds there again.
        write: false for a read-only connection.
    """
    target = Target(Connection(connection_string, write=write), "a test")
    return Namespace(target, journal=Journal(folder / "journal.sqlite"))
