"""A held session, for synchronous code."""

from __future__ import annotations

from typing import Any

from sbnotebook.client.batch import LockedBatch
from sbnotebook.client.portal import run
from sbnotebook.settlement.entity import AsyncEntity
from sbnotebook.settlement.locking.sessions import SessionBatch, SessionState

__all__ = ["LockedSession"]


class LockedSession(LockedBatch):
    """A session that is held alone, under a lock that is renewed in the background until it is closed.

    A batch whose messages are those of the session: lock them with ``receive``. Made by ``entity.session(…)`` and
    ``entity.next_session(…)``.

    Args:
        entity: where the session is.
        session: the asynchronous session, not open yet.
    """

    def __init__(self, entity: AsyncEntity, session: SessionBatch) -> None:
        self._session = session
        super().__init__(entity, session)

    @property
    def session_id(self) -> str:
        """Which session it is."""
        return self._session.session_id

    @property
    def is_lost(self) -> bool:
        """Whether the session's lock was lost, and with it all messages that were held."""
        return self._session.is_lost

    def get_state(self) -> bytes | None:
        """The session's state; None when it has none."""
        return run(self._session.get_state)

    def get_state_text(self) -> str | None:
        """The session's state as text."""
        return run(self._session.get_state_text)

    def get_state_json(self) -> Any:
        """The session's state as what its JSON says.

        Raises:
            DecisionError: it is no JSON.
        """
        return run(self._session.get_state_json)

    def set_state(self, state: SessionState) -> None:
        """Give the session another state: bytes, a text, what becomes JSON, or None for no state."""
        run(self._session.set_state, state)

    @property
    def _caption(self) -> str:
        lost = ", its lock is lost" if self.is_lost else ""
        return f"{super()._caption}, session {self.session_id!r}{lost}"
