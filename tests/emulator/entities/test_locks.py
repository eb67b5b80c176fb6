from __future__ import annotations

from uuid import uuid4

from sbnotebook.emulator.entities import BrokeredMessage
from sbnotebook.emulator.entities.locks import Locks


def locked(locks: Locks, number: int, until: int) -> BrokeredMessage:
    message = BrokeredMessage(number, number, 0, b"")
    locks.take(message, until)
    return message


def test_a_lock_is_held_until_its_end() -> None:
    locks = Locks()
    message = locked(locks, 1, until=10)
    assert message.lock_token is not None
    assert locks.held(message.lock_token, 9) is message
    assert locks.held(message.lock_token, 10) is None
    assert locks.held(message.lock_token, 11) is None
    assert locks.held(uuid4(), 0) is None


def test_locks_end_in_order_and_a_renewed_one_later() -> None:
    locks = Locks()
    first, second, third = (locked(locks, number, until=10 * number) for number in (1, 2, 3))
    locks.renew(first, 50)
    assert (locks.next_end, first.locked_until) == (20, 50)
    assert locks.expired(19) == []
    assert locks.expired(30) == [second, third]
    assert len(locks) == 3  # the caller decides on them
    for message in (second, third):
        locks.drop(message)
    assert locks.next_end == 50


def test_a_dropped_lock_is_no_more() -> None:
    locks = Locks()
    message = locked(locks, 1, until=10)
    token = message.lock_token
    assert token is not None
    locks.drop(message)
    locks.drop(message)
    locks.renew(message, 99)
    assert (locks.held(token, 0), len(locks), locks.next_end) == (None, 0, None)
    assert (message.lock_token, message.locked_until) == (None, 0)


def test_all_locks_are_listed() -> None:
    locks = Locks()
    messages = [locked(locks, number, until=10) for number in range(3)]
    assert locks.all() == messages
