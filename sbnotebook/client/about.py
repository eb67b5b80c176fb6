"""The host, tier, identity and rights of a connection."""

from __future__ import annotations

import contextlib
from dataclasses import dataclass
from typing import Final

import anyio

from sbnotebook.analysis import tables
from sbnotebook.settlement import Connection, sign_in

_TIER_WITHIN: Final = 2.0
"""Seconds to wait for the name of the tier, which is optional."""


@dataclass(frozen=True, slots=True)
class About:
    """The host, tier, identity and rights of a connection. Shown as a few lines; it holds no secret."""

    host: str
    is_emulator: bool
    tier: str | None
    signed_in_as: str
    is_confirmed: bool
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
        still = "" if self.is_confirmed else "; the sign-in is checked at the first use"
        return [
            ("Connected to", f"{self.host} ({kind}){still}"),
            ("signed in as", self.signed_in_as),
            ("source", self.found_by),
            ("writing", writing),
        ]


async def about(connection: Connection, found_by: str) -> About:
    """Reach the namespace, sign in, and ask for its tier."""
    signed_in, tier = await sign_in(connection), None
    # A user without the right to ask is connected nevertheless.
    with anyio.move_on_after(_TIER_WITHIN), contextlib.suppress(Exception):
        tier = await connection.tier()
    return About(
        connection.host,
        connection.is_emulator,
        tier,
        signed_in.name,
        signed_in.is_confirmed,
        found_by,
        connection.read_only,
    )
