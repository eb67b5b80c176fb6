"""The one way in which tests of the settlement library make a namespace."""

from __future__ import annotations

from pathlib import Path
from typing import Any

from sbnotebook.emulator import RunningEmulator
from sbnotebook.settlement import Archive, AsyncNamespace, Connection, Journal

__all__ = ["archive_in", "namespace_of"]


def namespace_of(
    place: RunningEmulator | Connection, folder: Path, *, journal: Journal | None = None, **options: Any
) -> AsyncNamespace:
    """Return a namespace whose journal, and whose archive, are in a folder.

    ``options`` are others of :class:`AsyncNamespace`.
    """
    connection = place if isinstance(place, Connection) else Connection(place.connection_string)
    return AsyncNamespace(connection, journal=journal or Journal(folder / "journal.sqlite"), **options)


def archive_in(namespace: AsyncNamespace) -> Archive:
    """Return the archive of a namespace that has one."""
    assert namespace.archive is not None
    return namespace.archive
