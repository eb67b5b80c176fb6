"""Emulators that take the place of a namespace in Azure: under the name of one, and with writing off."""

from __future__ import annotations

from dataclasses import replace
from typing import Any

from sbnotebook.model.connection_strings import hidden
from sbnotebook.settlement import Connection

__all__ = ["HOST", "in_azure", "take_place"]

HOST = "contoso.servicebus.windows.net"


def in_azure(connection_string: str) -> Connection:
    """A connection to an emulator that takes it for a namespace in Azure."""
    connection = Connection(connection_string, write=False)
    assert connection.parsed is not None
    connection.parsed, connection.host = replace(connection.parsed, is_emulator=False), HOST
    return connection


def take_place(connection_string: str) -> Any:
    """Lead connections to HOST to an emulator, in this process; returns what connected before."""
    found = Connection.with_credential

    def with_credential(host: Any, *given: Any, **options: Any) -> Connection:
        text = hidden(host)
        is_ours = text is not None and text.reveal().strip() == HOST
        return in_azure(connection_string) if is_ours else found(host, *given, **options)

    Connection.with_credential = staticmethod(with_credential)  # pyright: ignore[reportAttributeAccessIssue]
    return found
