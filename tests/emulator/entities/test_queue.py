from __future__ import annotations

from collections.abc import Callable

from hypothesis import settings
from hypothesis import strategies as st
from hypothesis.stateful import RuleBasedStateMachine, invariant, precondition, rule

from sbnotebook.emulator.entities import (
    Change,
    MessageAdded,
    MessageDeadLettered,
    MessageRemoved,
    MessageState,
    MessageUpdated,
    Queue,
    QueueOptions,
    SentMessage,
)

Sent = Callable[[object], SentMessage]


def test_numbers_count_up_and_are_never_used_again(queue: Queue, sent: Sent) -> None:
    assert [queue.send(sent(1), 0).sequence_number for _ in range(3)] == [1, 2, 3]
    for _ in range(3):
        queue.receive_and_delete()
    assert queue.send(sent(1), 0).sequence_number == 4
    assert Queue("q", QueueOptions(), [], last_sequence_number=9).send(sent(1), 0).sequence_number == 10


def test_a_scheduled_message_gets_a_new_number_when_it_is_due(queue: Queue, sent: Sent) -> None:
    scheduled = queue.send(sent("later")._replace(scheduled_time=1_000), now=0)
    queue.send(sent("now"), now=0)
    assert scheduled.state is MessageState.SCHEDULED
    assert queue.next_deadline == 1_000
    queue.expire(999)
    assert queue.counts.scheduled == 1
    queue.expire(1_000)
    active = list(queue.peek(0, 10))[1]
    assert (active.sequence_number, active.enqueued_sequence_number, active.enqueued_time) == (3, 1, 1_000)
    assert (active.state, active.payload) == (MessageState.ACTIVE, scheduled.payload)
    assert queue.counts.scheduled == 0
    assert not queue.cancel_scheduled([1])


def test_a_time_that_has_passed_schedules_nothing(queue: Queue, sent: Sent) -> None:
    message = queue.send(sent("old")._replace(scheduled_time=1_000), now=1_000)
    assert (message.state, queue.next_deadline) == (MessageState.ACTIVE, None)


def test_cancelled_messages_are_forgotten_in_the_end(queue: Queue, sent: Sent) -> None:
    queue.send(sent("kept")._replace(scheduled_time=9_000), now=0)
    deadlines: set[int | None] = set()
    for _ in range(200):
        message = queue.send(sent("cancelled")._replace(scheduled_time=1_000), now=0)
        assert queue.cancel_scheduled([message.sequence_number])
        deadlines.add(queue.next_deadline)
    assert deadlines == {1_000, 9_000}
    queue.expire(9_000)
    assert queue.counts == (1, 0, 0, 0, 0)


def test_scheduled_messages_are_cancelled_all_or_none(queue: Queue, sent: Sent) -> None:
    for _ in range(2):
        queue.send(sent("later")._replace(scheduled_time=1_000), now=0)
    queue.send(sent("now"), now=0)
    assert not queue.cancel_scheduled([1, 3])
    assert queue.counts.scheduled == 2
    assert queue.cancel_scheduled([1, 2])
    queue.expire(2_000)
    assert [message.sequence_number for message in queue.peek(0, 10)] == [3]


def test_counts_tell_the_states_apart(queue: Queue, sent: Sent) -> None:
    for number in range(6):
        queue.send(sent(number), 0)
    queue.send(sent("later")._replace(scheduled_time=1_000), 0)
    tokens = [message.lock_token for message in (queue.receive(0) for _ in range(3)) if message]
    assert tokens[0] is not None
    assert tokens[1] is not None
    queue.defer(tokens[0], 0)
    queue.dead_letter_message(tokens[1], 0, None, None)
    assert queue.counts == (4, 1, 1, 1, 1)


def test_every_change_is_recorded(queue: Queue, changes: list[Change], sent: Sent) -> None:
    for _ in range(4):
        queue.send(sent(1), 0)
    tokens = [message.lock_token for message in (queue.receive(0) for _ in range(4)) if message and message.lock_token]
    changes.clear()
    queue.renew(tokens[0], 0)
    queue.release(tokens[0], 0)
    assert not changes  # locks are not kept
    queue.complete(tokens[1], 0)
    queue.abandon(tokens[2], 0)
    queue.dead_letter_message(tokens[3], 0, "r", None)
    assert [type(change) for change in changes] == [MessageRemoved, MessageUpdated, MessageDeadLettered]


def test_an_activation_is_a_removal_and_a_new_message(queue: Queue, changes: list[Change], sent: Sent) -> None:
    queue.send(sent("later")._replace(scheduled_time=5), 0)
    queue.expire(5)
    added, removed, again = changes
    assert isinstance(added, MessageAdded)
    assert isinstance(removed, MessageRemoved)
    assert isinstance(again, MessageAdded)
    assert (added.message.sequence_number, removed.sequence_number, again.message.sequence_number) == (1, 1, 2)


class QueueMachine(RuleBasedStateMachine):
    """A queue against lists: whatever is done in whatever order, each message is in one known place."""

    def __init__(self) -> None:
        super().__init__()
        self.now = 0
        self.queue = Queue("orders", QueueOptions(lock_duration=100, max_delivery_count=3), [])
        self.available: set[int] = set()
        self.deferred: set[int] = set()
        self.scheduled: dict[int, int] = {}
        self.locked: dict[int, tuple[int, bool]] = {}  # until when, and whether it is a deferred one
        self.dead: set[int] = set()
        self.failures: dict[int, int] = {}
        self.last = 0

    def fail(self, number: int) -> None:
        self.failures[number] = self.failures.get(number, 0) + 1
        _, is_deferred = self.locked.pop(number)
        if self.failures[number] == 3:
            self.dead.add(number)
        else:
            (self.deferred if is_deferred else self.available).add(number)

    @rule(delay=st.integers(-5, 300))
    def send(self, delay: int) -> None:
        message = self.queue.send(SentMessage(b"\x00\x53\x75\xa0\x00", self.now + delay if delay else None), self.now)
        self.last += 1
        assert message.sequence_number == self.last
        if delay > 0:
            self.scheduled[self.last] = self.now + delay
        else:
            self.available.add(self.last)

    @rule()
    def receive(self) -> None:
        message = self.queue.receive(self.now)
        if not self.available:
            assert message is None
            return
        assert message is not None
        assert message.sequence_number == min(self.available)
        self.available.remove(message.sequence_number)
        self.locked[message.sequence_number] = (self.now + 100, False)

    @precondition(lambda self: self.deferred)
    @rule(data=st.data())
    def receive_deferred(self, data: st.DataObject) -> None:
        number = data.draw(st.sampled_from(sorted(self.deferred)))
        assert self.queue.receive_deferred([number], self.now) is not None
        self.deferred.remove(number)
        self.locked[number] = (self.now + 100, True)

    @precondition(lambda self: self.locked)
    @rule(data=st.data(), how=st.sampled_from(["complete", "abandon", "release", "defer", "dead_letter", "renew"]))
    def settle(self, data: st.DataObject, how: str) -> None:
        number = data.draw(st.sampled_from(sorted(self.locked)))
        message = next(self.queue.peek(number, 1))
        token = message.lock_token
        assert token is not None
        match how:
            case "complete":
                assert self.queue.complete(token, self.now)
                del self.locked[number]
            case "abandon":
                assert self.queue.abandon(token, self.now)
                self.fail(number)
            case "release":
                assert self.queue.release(token, self.now)
                (self.deferred if self.locked.pop(number)[1] else self.available).add(number)
            case "defer":
                assert self.queue.defer(token, self.now)
                self.locked[number] = (0, True)
                self.fail(number)
            case "dead_letter":
                assert self.queue.dead_letter_message(token, self.now, "r", "d")
                del self.locked[number]
                self.dead.add(number)
            case _:
                assert self.queue.renew(token, self.now) == self.now + 100
                self.locked[number] = (self.now + 100, self.locked[number][1])

    @rule(milliseconds=st.integers(1, 120))
    def wait(self, milliseconds: int) -> None:
        self.now += milliseconds
        deadline = self.queue.next_deadline
        self.queue.expire(self.now)
        due = [number for number, time in self.scheduled.items() if time <= self.now]
        lost = [number for number, (until, _) in self.locked.items() if until <= self.now]
        assert not (due or lost) or (deadline is not None and deadline <= self.now)
        for number in sorted(due, key=lambda number: (self.scheduled[number], number)):
            del self.scheduled[number]
            self.last += 1
            self.available.add(self.last)
        for number in lost:
            self.fail(number)

    @invariant()
    def every_message_is_where_it_belongs(self) -> None:
        living = self.available | self.deferred | set(self.scheduled) | set(self.locked)
        assert [message.sequence_number for message in self.queue.peek(0, 10_000)] == sorted(living)
        assert {message.sequence_number for message in self.queue.dead_letter.peek(0, 10_000)} == self.dead
        deferred = len(self.deferred) + sum(is_deferred for _, is_deferred in self.locked.values())
        active = len(living) - len(self.scheduled) - deferred
        assert self.queue.counts == (active, len(self.locked), deferred, len(self.scheduled), len(self.dead))


TestQueueMachine = QueueMachine.TestCase
TestQueueMachine.settings = settings(max_examples=60, stateful_step_count=40, deadline=None)
