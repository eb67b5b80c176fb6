from __future__ import annotations

import re
from collections.abc import Callable
from dataclasses import replace
from itertools import product
from pathlib import Path
from uuid import UUID, uuid4

import pytest

from sbnotebook.emulator.entities.box import ABANDON, COMPLETE, DEFER, RELEASE, Settlement
from sbnotebook.emulator.entities.message import TRANSITIONS, BrokeredMessage, BrokeredState
from sbnotebook.emulator.entities.options import QueueOptions
from sbnotebook.emulator.entities.queue import Queue
from sbnotebook.emulator.entities.registry import Registry
from tests.emulator.entities.conftest import BURY, sent, settles

PAGE = Path(__file__).resolve().parents[3] / "docs" / "explanation" / "outcomes.md"
ROW = re.compile(r"\| ([a-z ]+) \| ([a-z ]+) \| ([a-z ]+) \|.*\| (yes)? *\|")
TABLE = {(row[1], row[2]): (row[3], row[4] == "yes") for row in ROW.finditer(PAGE.read_text(encoding="utf-8"))}
"""By the place of a message and an event: where it leads to, and whether the delivery counts as failed."""

LOCKED_FOR, LIVES_FOR, SCHEDULED_FOR = 10_000, 5_000, 1_000
INSIDE = ["scheduled", "active", "locked", "deferred", "deferred locked"]


class Subject:
    """A queue with one message in a place."""

    def __init__(self, place: str, *, expires: bool) -> None:
        self.registry = Registry()
        self.registry.create_queue("target")
        options = QueueOptions(LOCKED_FOR, 3, dead_letter_on_expiration=True)
        self.queue = self.registry.create_queue("orders", options)
        # Where it has to expire, it must not become active first.
        when = (LIVES_FOR + SCHEDULED_FOR if expires else SCHEDULED_FOR) if place == "scheduled" else None
        self.queue.send(sent(time_to_live=LIVES_FOR if expires else None, scheduled_time=when), 0)
        if place not in ("scheduled", "active"):
            self.queue.receive(0)
        if place in ("deferred", "deferred locked"):
            self.queue.settle(self.token, DEFER, 0)
        if place == "deferred locked":
            assert self.queue.receive_deferred([1], 0)
        assert self.place == place

    @property
    def message(self) -> BrokeredMessage | None:
        return next(self.queue.peek(0, 1), None)

    @property
    def token(self) -> UUID:
        found = self.message
        return found.lock_token if found is not None and found.lock_token is not None else uuid4()

    @property
    def place(self) -> str:
        if self.message is not None:
            is_locked = self.message.lock_token is not None
            if is_locked and self.message.state is BrokeredState.ACTIVE:
                return "locked"
            return self.message.state.name.lower() + " locked" * is_locked
        return "dead lettered" if self.queue.counts.dead_letter else "gone"

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


EVENTS: dict[str, Callable[[Subject], object]] = {
    "activate": lambda subject: subject.registry.expire(SCHEDULED_FOR),
    "cancel": lambda subject: subject.queue.cancel_scheduled([1]),
    "receive": lambda subject: either(subject.queue, delete=False),
    "receive and delete": lambda subject: either(subject.queue, delete=True),
    "complete": lambda subject: subject.settle(COMPLETE),
    "abandon": lambda subject: subject.settle(ABANDON),
    "defer": lambda subject: subject.settle(DEFER),
    "dead letter": lambda subject: subject.settle(BURY),
    "release": lambda subject: subject.settle(RELEASE),
    "lock expired": lambda subject: subject.queue.expire(LOCKED_FOR) if subject.queue.counts.locked else None,
    "lock dropped": lambda subject: subject.queue.drop_locks(0),
    "expire": Subject.expire,
    "forward": Subject.forward,
}


@pytest.mark.parametrize(("place", "event"), list(product(INSIDE, EVENTS)))
def test_a_message_goes_where_the_table_says_or_stays(place: str, event: str) -> None:
    subject = Subject(place, expires=event == "expire")
    failures = subject.failures
    answer = EVENTS[event](subject)
    to, counts = TABLE.get((place, event), (place, False))
    assert subject.place == to
    if to != "gone":
        assert subject.failures == failures + counts
    if (place, event) not in TABLE:
        assert not answer


def test_the_documentation_names_all_places_and_events() -> None:
    assert {place for place, _ in TABLE} == set(INSIDE)
    assert {event for _, event in TABLE} == set(EVENTS)
    assert {event.replace("_", " ") for event in TRANSITIONS} <= set(EVENTS)


@pytest.mark.parametrize(("place", "event"), [pair for pair, (_, counts) in TABLE.items() if counts])
def test_the_last_failure_dead_letters_a_message(place: str, event: str) -> None:
    subject = Subject(place, expires=False)
    subject.queue.options = replace(subject.queue.options, max_delivery_count=subject.failures + 1)
    EVENTS[event](subject)
    assert subject.place == "dead lettered"
