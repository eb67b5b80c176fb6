"""The host, tier, identity and rights of a connection."""

from __future__ import annotations

from dataclasses import dataclass
from typing import Final

import anyio

from sbnotebook.analysis import tables
from sbnotebook.errors import ConfigurationError
from sbnotebook.settlement import administration
from sbnotebook.settlement.connecting.connection import Connection
from sbnotebook.settlement.connecting.identity import signed_in_as
from sbnotebook.settlement.connecting.refusals import unreachable

__all__ = ["About", "about"]

_TIER_WITHIN: Final = 2.0
"""Seconds to wait for the name of the tier, which is optional."""


@dataclass(frozen=True, slots=True)
class About:
    """The host, tier, identity and rights of a connection. Shown as a few lines; it holds no secret.

    Args:
        host: the namespace's host name.
        is_emulator: True for an emulator on a development machine.
        tier: such as Premium; None when the service did not say.
        signed_in_as: the name of the key, or the account, in words.
        found_by: how the target was found, in words.
        read_only: True where writing is off.
    """

    host: str
    is_emulator: bool
    tier: str | None
    signed_in_as: str
    found_by: str
    read_only: bool

    def __repr__(self) -> str:
        head, *rows = self._rows()
        return "\n".join(f"{name:14}{tables.printable(value)}" for name, value in (head, *rows))

    def _repr_html_(self) -> str:
        head, *rows = self._rows()
        return tables.html_table(head, rows)

    def _rows(self) -> list[tuple[str, str]]:
        kind = ", ".join(filter(None, ("emulator" if self.is_emulator else "Azure", self.tier)))
        if self.read_only:
            writing = "off: nothing can be changed; %sb_connect --write turns it on"
        else:
            writing = "on" if self.is_emulator else "on: %sb_connect --read-only turns it off"
        return [
            ("Connected to", f"{self.host} ({kind})"),
            ("signed in as", self.signed_in_as),
            ("found by", self.found_by),
            ("writing", writing),
        ]


async def about(connection: Connection, found_by: str) -> About:
    """Ask the service for the tier and the identity of a connection.

    Args:
        connection: the connection.
        found_by: how its target was found, in words.

    Raises:
        ConfigurationError: nothing listens where the emulator should be.
    """
    tier: str | None = None
    who = ""
    why_not: str | None = None

    async def ask_tier() -> None:
        nonlocal tier, why_not
        with anyio.move_on_after(_TIER_WITHIN):
            # A user without the right to ask is connected nevertheless.
            try:
                tier = await administration.tier_of(connection)
            except Exception as error:  # noqa: BLE001
                if connection.is_emulator:  # which listens at one port for both
                    why_not = unreachable(connection.host, str(error), is_emulator=True)

    async def ask_who() -> None:
        nonlocal who
        who = await signed_in_as(connection)

    async with anyio.create_task_group() as tasks:
        tasks.start_soon(ask_tier)
        tasks.start_soon(ask_who)
    if why_not is not None:
        raise ConfigurationError(why_not)
    return About(connection.host, connection.is_emulator, tier, who, found_by, connection.read_only)
