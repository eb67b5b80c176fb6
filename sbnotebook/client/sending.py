"""Sending as a plan, to be looked at before anything is sent."""

from __future__ import annotations

from collections.abc import Mapping
from datetime import datetime, timedelta
from itertools import islice
from typing import TYPE_CHECKING, Any, Final

from sbnotebook.client import tables
from sbnotebook.client.durations import duration
from sbnotebook.client.frames import messages_from
from sbnotebook.errors import ConfigurationError
from sbnotebook.model import EntityAddress, Message, Report
from sbnotebook.settlement.locking.settle import DEFAULT_MAX_IN_FLIGHT
from sbnotebook.settlement.plan import Preview

if TYPE_CHECKING:
    from sbnotebook.client.entity import Entity

__all__ = ["SendPlan"]

_SHOWN: Final = 5


class SendPlan:
    """Messages that are to be sent. Making one sends nothing; :meth:`apply` does.

    Shown as what it would do, as any :class:`sbnotebook.client.Plan` is.

    Args:
        entity: where they go.
        data: what :func:`sbnotebook.client.frames.messages_from` takes, of a length that is known.
        at: when they become active, with a time zone; None for at once.
        delay: how much later than when they are sent instead, such as ``"5m"``.

    Raises:
        ConfigurationError: the first messages cannot be made of the data, or the delay is none.

    Example:
        >>> SendPlan(connect("emulator").entity("orders"), ["a", "b"], delay="5m")  # doctest: +SKIP
        Plan: send 2 messages to orders, active 0:05:00 later.
    """

    def __init__(
        self, entity: Entity, data: Any, *, at: datetime | None = None, delay: str | timedelta | None = None
    ) -> None:
        if at is not None and delay is not None:
            raise ConfigurationError("Say when by a moment or by a delay, not by both.")
        self._to = entity
        self._at = at
        self._delay = duration(delay) if delay is not None else None
        self._data: Any = [data] if isinstance(data, (Message, str, bytes, Mapping)) else data
        self._first = tuple(islice(messages_from(self._data), _SHOWN))

    @property
    def entity(self) -> EntityAddress:
        """Where the messages go."""
        return self._to.address

    def __len__(self) -> int:
        return len(self._data)

    def preview(self, rows: int = _SHOWN) -> Preview:
        """What applying would do.

        Args:
            rows: how many messages are shown, 5 at most.
        """
        count, when = len(self), ""
        if self._at is not None:
            when = f", active at {self._at.isoformat(sep=' ', timespec='seconds')}"
        elif self._delay is not None:
            when = f", active {self._delay} later"
        sentence = f"send {count:,} message{'s' if count != 1 else ''} to {self.entity}{when}."
        return Preview(sentence, self._first[:rows])

    def apply(
        self, *, max_in_flight: int = DEFAULT_MAX_IN_FLIGHT, rate: float | None = None, show_progress: bool = True
    ) -> Report:
        """Send the messages and wait for every confirmation.

        Args:
            max_in_flight: transfers that wait for their confirmation at once.
            rate: messages a second at most, None for no limit.
            show_progress: False for no bar.
        """
        limits: Any = {"max_in_flight": max_in_flight, "rate": rate, "show_progress": show_progress}
        if self._at is None and self._delay is None:
            return self._to.send(self._data, **limits)
        return self._to.schedule(self._data, at=self._at, delay=self._delay, **limits)

    def __repr__(self) -> str:
        return tables.preview_text(self.preview())

    def _repr_html_(self) -> str:
        return tables.preview_html(self.preview())
