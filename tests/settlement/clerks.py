"""A user who may send and listen, and lacks the right Manage."""

from __future__ import annotations

from typing import Final

from sbnotebook.emulator import RunningEmulator
from sbnotebook.emulator.entities.options import AuthorizationRule, Claim
from sbnotebook.settlement import Connection

CLERK: Final = AuthorizationRule("clerk", "Y2xlcms=", "Y2xlcms=", frozenset({Claim.SEND, Claim.LISTEN}))
"""The key to start an emulator with."""


def clerks_connection(emulator: RunningEmulator) -> Connection:
    endpoint, *_ = emulator.connection_string.split(";")
    return Connection(f"{endpoint};SharedAccessKeyName=clerk;SharedAccessKey=Y2xlcms=;UseDevelopmentEmulator=true;")
