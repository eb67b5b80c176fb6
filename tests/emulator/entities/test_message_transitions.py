from __future__ import annotations

from collections.abc import Callable
from dataclasses import replace
from itertools import product
from pathlib import Path
from uuid import UUID, uuid4

import pytest

from sbnotebook.emulator.entities.box import ABANDON, COMPLETE, DEFER, RELEASE, Settlement
from sbnotebook.emulator.entities.message import TRANSITIONS, BrokeredMessage, MessageEvent, Place, place_of
from sbnotebook.emulator.entities.options import QueueOptions
from sbnotebook.emulator.entities.queue import Queue
from sbnotebook.emulator.entities.registry import Registry
from tests.emulator.entities.conftest import BURY, sent, settles

PAGE = Path(__file__).resolve().parents[3] / "docs" / "explanation" / "outcomes.md"

LOCKED_FOR, LIVES_FOR, SCHEDULED_FOR = 10_000, 5_000, 1_000
INSIDE = [Place.SCHEDULED, Place.ACTIVE, Place.LOCKED, Place.DEFERRED, Place.DEFERRED_LOCKED]


class Subject:
    """A queue with one message in a place."""

    def __init__(self, place: Place, *, expires: bool) -> None:
        self.registry = Registry()
        self.registry.create_queue("target")
        options = QueueOptions(LOCKED_FOR, 3, dead_letter_on_expiration=True)
        self.queue = self.registry.create_queue("orders", options)
        # Where it has to expire, it must not become active first.
        when = (LIVES_FOR + SCHEDULED_FOR if expires else SCHEDULED_FOR) if place is Place.SCHEDULED else None
        self.queue.send(sent(time_to_live=LIVES_FOR if expires else None, scheduled_time=when), 0)
        if place not in (Place.SCHEDULED, Place.ACTIVE):
            self.queue.receive(0)
        if place in (Place.DEFERRED, Place.DEFERRED_LOCKED):
            self.queue.settle(self.token, DEFER, 0)
        if place is Place.DEFERRED_LOCKED:
            assert self.queue.receive_deferred([1], 0)
        assert self.place is place

    @property
    def message(self) -> BrokeredMessage | None:
        return next(self.queue.peek(0, 1), None)

    @property
    def token(self) -> UUID:
        found = self.message
        return found.lock_token if found is not None and found.lock_token is not None else uuid4()

    @property
    def place(self) -> Place:
        if self.message is not None:
            return place_of(self.message)
        return Place.DEAD_LETTERED if self.queue.counts.dead_letter else Place.GONE

    @property
    def failures(self) -> int:
        found = self.message or next(self.queue.dead_letter.peek(0, 1), None)
        return 0 if found is None else found.delivery_count

    def settle(self, settlement: Settlement) -> bool:
        return settles(self.queue, self.token, settlement, 0)

    def expire(self) -> None:
        self.registry.expire(LIVES_FOR)
        self.queue.receive_deferred([1], LIVES_FOR)

    def forward(self) -> None:
        self.queue.options = replace(self.queue.options, forward_to="target")
        self.queue.start_forwarding(0)


def either(queue: Queue, *, delete: bool) -> object:
    found = queue.receive(0, delete=delete)
    return found or queue.receive_deferred([1], 0, delete=delete)


EVENTS: dict[MessageEvent, Callable[[Subject], object]] = {
    MessageEvent.ACTIVATE: lambda subject: subject.registry.expire(SCHEDULED_FOR),
    MessageEvent.CANCEL: lambda subject: subject.queue.cancel_scheduled([1]),
    MessageEvent.RECEIVE: lambda subject: either(subject.queue, delete=False),
    MessageEvent.RECEIVE_AND_DELETE: lambda subject: either(subject.queue, delete=True),
    MessageEvent.COMPLETE: lambda subject: subject.settle(COMPLETE),
    MessageEvent.ABANDON: lambda subject: subject.settle(ABANDON),
    MessageEvent.DEFER: lambda subject: subject.settle(DEFER),
    MessageEvent.DEAD_LETTER: lambda subject: subject.settle(BURY),
    MessageEvent.RELEASE: lambda subject: subject.settle(RELEASE),
    MessageEvent.LOCK_EXPIRED: lambda subject: subject.queue.expire(LOCKED_FOR) if subject.queue.locked_count else None,
    MessageEvent.LOCK_DROPPED: lambda subject: subject.queue.drop_locks(0),
    MessageEvent.EXPIRE: Subject.expire,
    MessageEvent.FORWARD: Subject.forward,
}


@pytest.mark.parametrize(("place", "event"), list(product(INSIDE, MessageEvent)))
def test_a_message_goes_where_the_table_says_or_stays(place: Place, event: MessageEvent) -> None:
    subject = Subject(place, expires=event is MessageEvent.EXPIRE)
    failures = subject.failures
    answer = EVENTS[event](subject)
    row = TRANSITIONS.get((place, event))
    assert subject.place is (place if row is None else row.to)
    if subject.place is not Place.GONE:
        assert subject.failures == failures + (row is not None and row.counts)
    if row is None:
        assert not answer


def test_every_event_can_happen_somewhere() -> None:
    assert {event for _, event in TRANSITIONS} == set(MessageEvent)
    assert {place for place, _ in TRANSITIONS} == set(INSIDE)


@pytest.mark.parametrize(("place", "event"), [pair for pair, row in TRANSITIONS.items() if row.counts])
def test_the_last_failure_dead_letters_a_message(place: Place, event: MessageEvent) -> None:
    subject = Subject(place, expires=False)
    subject.queue.options = replace(subject.queue.options, max_delivery_count=subject.failures + 1)
    EVENTS[event](subject)
    assert subject.place is Place.DEAD_LETTERED


def test_the_documentation_shows_the_table() -> None:
    table = PAGE.read_text(encoding="utf-8").partition("| From | What happens | To |")[2].partition("\n\n")[0]
    shown = [[cell.strip() for cell in line.split("|")[1:-1]] for line in table.splitlines()[2:]]
    assert [(*cells[:3], cells[-1]) for cells in shown] == [
        (*(each.name.lower().replace("_", " ") for each in (place, event, row.to)), "yes" if row.counts else "")
        for (place, event), row in TRANSITIONS.items()
    ]
