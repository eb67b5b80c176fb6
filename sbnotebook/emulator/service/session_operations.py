"""What is asked of an entity about its sessions.

Source: Service Bus documentation, "AMQP 1.0 in Azure Service Bus request-response-based operations".
"""

from __future__ import annotations

from typing import Any, Final

from sbnotebook.emulator.entities import ReceivingEntity, Refusal, RefusedError
from sbnotebook.emulator.service.operations import Operation, done, nothing
from sbnotebook.emulator.service.requests import Reply
from sbnotebook.model.amqp import Array, Int, Timestamp

__all__ = ["session_operations"]

_EVER: Final = 253_402_300_799_000
"""The last second that .NET knows (ms): whoever asks for sessions updated since then wants all that have messages."""
_MAX_SESSIONS: Final = 1000


def session_operations(entity: ReceivingEntity) -> dict[str, Operation]:
    """The operations of an entity with sessions."""
    node = _Sessions(entity)
    return {
        "com.microsoft:get-session-state": node.get_state,
        "com.microsoft:set-session-state": node.set_state,
        "com.microsoft:renew-session-lock": node.renew_lock,
        "com.microsoft:get-message-sessions": node.list_sessions,
    }


class _Sessions:
    def __init__(self, entity: ReceivingEntity) -> None:
        self._entity = entity

    def get_state(self, body: dict[str, Any], now: int) -> Reply:
        return done({"session-state": self._entity.held_session(str(body["session-id"]), now).state})

    def set_state(self, body: dict[str, Any], now: int) -> Reply:
        session = self._entity.held_session(str(body["session-id"]), now)
        state: object = body["session-state"]
        if state is not None and not isinstance(state, bytes):
            raise RefusedError(Refusal.BAD_ARGUMENT, "The state of a session must be bytes.")
        self._entity.set_session_state(session, state, now)
        return done(None)

    def renew_lock(self, body: dict[str, Any], now: int) -> Reply:
        session = self._entity.held_session(str(body["session-id"]), now)
        return done({"expiration": Timestamp(self._entity.renew_session(session, now))})

    def list_sessions(self, body: dict[str, Any], now: int) -> Reply:
        del now
        since, skip, top = (int(body[key]) for key in ("last-updated-time", "skip", "top"))
        if skip < 0 or top < 0 or self._entity.sessions is None:
            raise RefusedError(Refusal.BAD_ARGUMENT, "skip and top must not be negative.")
        found = [session.session_id for session in self._entity.sessions.listed(None if since >= _EVER else since)]
        page = found[skip : skip + min(top, _MAX_SESSIONS)]
        if not page:
            return nothing()
        return done({"skip": Int(skip + len(page)), "sessions-ids": Array(page, str)})
