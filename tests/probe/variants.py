"""Ways in which a service may differ: for each probe at least one in which it must report a difference."""

from __future__ import annotations

import time
from collections.abc import Callable, Iterator, Sequence
from dataclasses import dataclass
from datetime import timedelta
from itertools import islice
from typing import TYPE_CHECKING, Any, Literal
from uuid import UUID

from aiohttp import ClientSession

from sbnotebook.emulator import RunningEmulator
from sbnotebook.emulator.amqp.connection import AmqpConnection
from sbnotebook.emulator.entities import box, message_log, transaction
from sbnotebook.emulator.entities.box import Box, ReceivingEntity, Settlement
from sbnotebook.emulator.entities.message import TRANSITIONS, BrokeredMessage, BrokeredState, MessageEvent, Place
from sbnotebook.emulator.entities.queue import Destination, Queue
from sbnotebook.emulator.entities.refusals import RefusedError
from sbnotebook.emulator.service import http_app, management, peer
from sbnotebook.emulator.service.access import NamespaceAccess
from sbnotebook.probe import probe as probe_module
from sbnotebook.probe.probe import Site

if TYPE_CHECKING:
    import pytest

__all__ = ["LIKE_EXPECTED", "OTHER_VARIANTS", "VARIANTS", "Service"]


@dataclass(slots=True)
class Service:
    """An emulator that a variant changes."""

    emulator: RunningEmulator
    patch: pytest.MonkeyPatch
    time_passes: bool = True

    def wrap(self, owner: Any, name: str, around: Callable[..., Any]) -> None:
        """Put a function around a method; it gets the method first."""
        method = getattr(owner, name)

        def wrapped(*args: Any, **options: Any) -> Any:
            return around(method, *args, **options)

        self.patch.setattr(owner, name, wrapped)

    def counts(self, event: MessageEvent, *, counts: bool) -> None:
        """Change whether a delivery counts."""
        self.patch.setitem(TRANSITIONS, event, (TRANSITIONS[event][0], counts))

    def leads(self, event: MessageEvent, to: Place) -> None:
        """Change where an event leads to."""
        self.patch.setitem(TRANSITIONS, event, (to, TRANSITIONS[event][1]))

    def queues_have(self, **changed: Any) -> None:
        """Change the options of each queue that a probe makes."""

        def queue(method: Any, site: Site, **options: Any) -> Any:
            return method(site, **options | changed)

        self.wrap(Site, "queue", queue)


def _fault(**faults: object) -> Callable[[Service], None]:
    """Set faults of the emulator."""

    def set_faults(service: Service) -> None:
        for name, value in faults.items():
            setattr(service.emulator.faults, name, value)

    return set_faults


def _without(owner: Any, name: str, result: object = None) -> Callable[[Service], None]:
    """Put a method that does nothing in the place of another."""

    def nothing(*_: Any, **__: Any) -> object:
        return result

    return lambda service: service.patch.setattr(owner, name, nothing)


def _hide_scheduled(service: Service) -> None:
    def peek(method: Any, self: Box, *args: Any) -> Iterator[BrokeredMessage]:
        return (message for message in method(self, *args) if message.state is not BrokeredState.SCHEDULED)

    service.wrap(Box, "peek", peek)


def _answers(status: int) -> Callable[[Service], None]:
    """Refuse each request over HTTP with one status."""

    def refusal(method: Any, request: Any, _: int, detail: str) -> Any:
        return method(request, status, detail)

    return lambda service: service.wrap(http_app, "_refusal", refusal)


def _pages_of(count: int) -> Callable[[Service], None]:
    return lambda service: service.patch.setattr(management, "_MAX_PEEKED", count)


def _renumbered_letters(change: int) -> Callable[[Service], None]:
    def put(method: Any, self: Box, message: BrokeredMessage, *args: Any) -> None:
        if self is not self.owner:
            message.sequence_number += change
        method(self, message, *args)

    return lambda service: service.wrap(Box, "put", put)


def _keep_numbers(service: Service) -> None:
    """An active message has the number under which it was scheduled."""

    def peek(method: Any, self: Box, *args: Any) -> Iterator[BrokeredMessage]:
        return map(_with_first_number, method(self, *args))

    service.wrap(Box, "peek", peek)

    def receive(method: Any, *args: Any, **options: Any) -> BrokeredMessage | None:
        return _with_first_number(method(*args, **options))

    service.wrap(Box, "receive", receive)


def _lower_numbers(service: Service) -> None:
    """An active message has a lower number than the one under which it was scheduled."""

    def receive(method: Any, *args: Any, **options: Any) -> BrokeredMessage | None:
        message = _with_first_number(method(*args, **options))
        if message is not None and message.scheduled_time is not None:
            message.sequence_number -= 1
        return message

    service.wrap(Box, "receive", receive)


def _with_first_number(message: BrokeredMessage | None) -> Any:
    if message is not None and message.scheduled_time is not None:
        message.sequence_number = message.enqueued_sequence_number
    return message


def _due_times(service: Service) -> None:
    """A scheduled message shows the time for which it is scheduled."""

    def rendered(method: Any, self: Box, message: BrokeredMessage, **options: bool) -> bytes:
        if message.scheduled_time is not None:
            message.enqueued_time = message.scheduled_time
        return method(self, message, **options)

    service.wrap(Box, "rendered", rendered)


def _first_times(service: Service) -> None:
    """A message that was scheduled shows the time when it was sent for good."""
    sent: dict[int, int] = {}

    def rendered(method: Any, self: Box, message: BrokeredMessage, **options: bool) -> bytes:
        message.enqueued_time = sent.setdefault(message.enqueued_sequence_number, message.enqueued_time)
        return method(self, message, **options)

    service.wrap(Box, "rendered", rendered)


def _delivers(before: bytes, after: bytes) -> Callable[[Service], None]:
    """Change the bytes of each message."""

    def rendered(method: Any, *args: Any, **options: bool) -> bytes:
        return method(*args, **options).replace(before, after)

    return lambda service: service.wrap(Box, "rendered", rendered)


def _one_twice(service: Service) -> None:
    """In place of the second message, the first one comes again."""

    def tour(log: Any, number: int) -> Iterator[BrokeredMessage]:
        found = [*message_log.tour(log, number)]
        return iter([found[0], found[0], *found[2:]] if number <= 1 else found)

    service.patch.setattr(box, "tour", tour)


def _peek_at(which: int) -> Callable[[Service], None]:
    """A peek of one message gives always the same one."""

    def peek(method: Any, self: Box, number: int, count: int, *args: Any) -> Iterator[BrokeredMessage]:
        return iter([[*method(self, 1, 1_000, *args)][which]]) if count == 1 else method(self, number, count, *args)

    return lambda service: service.wrap(Box, "peek", peek)


def _first_partition(service: Service) -> None:
    def tour(log: Any, number: int) -> Iterator[BrokeredMessage]:
        found = [*message_log.tour(log, number)]
        return (each for each in found if each.sequence_number >> 48 == number >> 48)

    service.patch.setattr(box, "tour", tour)


def _peek_behind(service: Service) -> None:
    def tour(log: Any, number: int) -> Iterator[BrokeredMessage]:
        return islice(message_log.tour(log, number), 1, None)

    service.patch.setattr(box, "tour", tour)


def _time_stands_still(service: Service) -> None:
    service.time_passes = False


def _unconfirmed(kind: Literal["released", "ranges"]) -> Callable[[Service], None]:
    def set_fault(service: Service) -> None:
        service.emulator.faults.unconfirmed = kind
        service.patch.setattr(probe_module, "_ANSWER_WITHIN", 0.5)

    return set_fault


def _locks_end_with_links(service: Service) -> None:
    async def take(method: Any, *args: Any, **options: Any) -> Any:
        taken = await method(*args, **options)
        service.emulator.lose_locks()
        return taken

    service.wrap(Site, "take", take)


def _gone_with_links(service: Service) -> None:
    service.leads("lock_dropped", "gone")
    _locks_end_with_links(service)


def _refuse_some(event: MessageEvent, refused: set[int]) -> Callable[[Service], None]:
    """Refuse to settle some messages, by their numbers."""

    def settle(method: Any, self: Box, token: UUID, settlement: Settlement, now: int) -> None:
        message = self.held(token, now)
        if settlement.event is event and message is not None and message.sequence_number in refused:
            raise self.lock_lost()
        method(self, token, settlement, now)

    return lambda service: service.wrap(Box, "settle", settle)


def _as_many_as_there_are(service: Service) -> None:
    def receive_deferred(method: Any, self: Box, numbers: Sequence[int], *args: Any, **options: Any) -> Any:
        found: list[BrokeredMessage] = []
        for number in numbers:
            found += method(self, [number], *args, **options) or []
        return found

    service.wrap(Box, "receive_deferred", receive_deferred)


def _some_stay_locked(service: Service) -> None:
    """A request that is refused because a message is missing still locks the first of the others."""

    def receive_deferred(method: Any, self: Box, numbers: Sequence[int], *args: Any, **options: Any) -> Any:
        found = method(self, numbers, *args, **options)
        if found is None and len(numbers) > 1:
            method(self, numbers[:1], *args, **options)
        return found

    service.wrap(Box, "receive_deferred", receive_deferred)


def _counts_twice(event: MessageEvent) -> Callable[[Service], None]:
    """Count one delivery more when a message is abandoned or deferred."""

    def settle(settle_once: Any, self: Box, token: UUID, settlement: Settlement, now: int) -> None:
        message = self.held(token, now)
        if message is not None and settlement.event is event:
            message.delivery_count += 1
        settle_once(self, token, settlement, now)

    return lambda service: service.wrap(Box, "settle", settle)


def _hundred_at_once(service: Service) -> None:
    def receive_deferred(method: Any, self: Box, numbers: Sequence[int], *args: Any, **options: Any) -> Any:
        return method(self, numbers[:100], *args, **options)

    service.wrap(Box, "receive_deferred", receive_deferred)


def _no_deferred_letters(service: Service) -> None:
    def receive_deferred(method: Any, self: Box, *args: Any, **options: Any) -> Any:
        return method(self, *args, **options) if self is self.owner else None

    service.wrap(Box, "receive_deferred", receive_deferred)


def _any_session(service: Service) -> None:
    def accept_session(method: Any, self: ReceivingEntity, session_id: str | None, now: int) -> Any:
        return method(self, session_id or "one", now)

    service.wrap(ReceivingEntity, "accept_session", accept_session)


def _deletes_all(service: Service) -> None:
    """The time of a request counts for nothing."""

    def delete(method: Any, self: Box, count: int, before: int, now: int, *args: Any) -> int:
        return method(self, count, max(before, now + 1), now, *args)

    service.wrap(Box, "delete", delete)


def _good_half(service: Service) -> None:
    """Of a batch that is refused, the first message is taken."""

    def check(method: Any, self: Destination, messages: Sequence[Any]) -> None:
        try:
            method(self, messages)
        except RefusedError:
            if isinstance(self, Queue):
                self.send(messages[0], round(time.time() * 1000))
            raise

    service.wrap(Destination, "check", check)


def _bodies(*, without: bool) -> Callable[[Service], None]:
    """In answer to any request, a peek leaves the bodies out, or in."""

    def rendered(method: Any, *args: Any, **options: bool) -> bytes:
        return method(*args, **options | {"without_body": without})

    return lambda service: service.wrap(Box, "rendered", rendered)


def _letters_apart(service: Service) -> None:
    """A dead-letter queue is another entity than its queue."""

    def root_of(method: Any, entity: Any) -> Any:
        return entity if entity.owner is not entity else method(entity)

    service.wrap(transaction, "root_of", root_of)


def _sent_at_once(service: Service) -> None:
    """Do not roll back messages sent in a transaction."""

    def send(method: Any, self: transaction.Transaction, *args: Any) -> Any:
        answer = method(self, *args)
        _, act = self._steps.pop()  # pyright: ignore[reportPrivateUsage]
        act(round(time.time() * 1000))
        return answer

    service.wrap(transaction.Transaction, "send", send)


def _settled_at_once(service: Service) -> None:
    """Remove messages settled in a transaction before its commit."""

    def settle(method: Any, self: transaction.Transaction, *args: Any) -> Any:
        method(self, *args)
        _, act = self._steps.pop()  # pyright: ignore[reportPrivateUsage]
        act(round(time.time() * 1000))

    service.wrap(transaction.Transaction, "settle", settle)


def _frames_of(size: int) -> Callable[[Service], None]:
    def init(method: Any, *args: Any, **options: Any) -> None:
        method(*args, **options | {"max_frame_size": size})

    return lambda service: service.wrap(AmqpConnection, "__init__", init)


def _refuse(*_: Any, **__: Any) -> None:
    raise ConnectionRefusedError


VARIANTS: dict[str, Callable[[Service], None]] = {
    "peek-states": _hide_scheduled,
    "page-size": _pages_of(100),
    "peek-without-bodies": _bodies(without=False),
    "no-empty-peeks": _fault(empty_peeks=3),
    "dead-letter-number": _renumbered_letters(1_000),
    "scheduled-number": _keep_numbers,
    "activated-state": _fault(activated_state="scheduled"),
    "scheduled-times": _due_times,
    "no-time-to-live": lambda service: service.queues_have(default_message_time_to_live=timedelta(days=1)),
    "partition-pages": _first_partition,
    "peek-from-number": _peek_behind,
    "lost-lock-refused": _time_stands_still,
    "release-not-counted": lambda service: service.counts("release", counts=True),
    "release-confirmed": _unconfirmed("released"),
    "release-range-confirmed": _unconfirmed("ranges"),
    "defer-range-confirmed": _unconfirmed("ranges"),
    "complete-range-confirmed": _unconfirmed("ranges"),
    "lock-outlives-link": _locks_end_with_links,
    "order-after-release": _fault(order_after_release="back"),
    "order-after-release-in-session": _fault(order_after_release="back"),
    "order-after-session-reopens": _fault(order_after_release="back"),
    "partition-token-batch": _fault(mixed_partitions="taken"),
    "refused-tokens": _fault(refused_tokens="settled"),
    "deferred-all-or-none": _as_many_as_there_are,
    "deferred-delivery-count": lambda service: service.counts("abandon", counts=False),
    "dead-letter-delivery-count": _counts_twice("abandon"),
    "deferred-removed-250": _hundred_at_once,
    "deferred-expiry": _time_stands_still,
    "deferred-dead-letter-of-session": _no_deferred_letters,
    "deferred-only-session": _any_session,
    "batch-refused-whole": lambda service: service.queues_have(requires_session=False),
    "batch-of-one-partition-key": _without(Destination, "check_batch"),
    "partitioned-size": lambda service: service.queues_have(enable_partitioning=False),
    "frame-size": _frames_of(1 << 18),
    "websocket": lambda service: service.patch.setattr(ClientSession, "ws_connect", _refuse),
    "listen-key-counts": _without(NamespaceAccess, "require_manage"),
    "batch-delete": _fault(batch_delete="refused"),
    "administration-statuses": _answers(400),
    "transaction-committed": _letters_apart,
    "transaction-rolled-back": _sent_at_once,
    "transaction-to-another": _without(peer, "via_entity"),
    "peek-in-transaction": _settled_at_once,
    "held-on-one-link": _fault(max_unsettled=100),
}

OTHER_VARIANTS: list[tuple[str, Callable[[Service], None], str]] = [
    ("page-size", _pages_of(1_000), "260 of 260 messages"),
    ("peek-without-bodies", _bodies(without=True), "259 bytes with the body, 259 without"),
    ("dead-letter-number", _renumbered_letters(-1), "2 became 1"),
    ("scheduled-times", _first_times, "enqueued 10.0 s before it was due, then -10.0 s after"),
    ("scheduled-times", _delivers(b"scheduled-enqueue", b"scheduled-another"), "a time was missing: "),
    ("partition-pages", _one_twice, "59 of 60 messages"),
    ("peek-from-number", _peek_at(0), "1 of 30 messages"),
    ("peek-from-number", _peek_at(-1), "1 of 30 messages"),
    ("release-range-confirmed", _refuse_some("release", {2, 4}), "3 of 5 confirmed, 5 are there: "),
    (
        "release-range-confirmed",
        lambda service: service.leads("release", "gone"),
        "5 of 5 confirmed, 0 are there",
    ),
    (
        "complete-range-confirmed",
        lambda service: service.leads("complete", "active"),
        "5 of 5 confirmed, 5 are there",
    ),
    ("lock-outlives-link", _gone_with_links, "it was held; by its token: "),
    (
        "refused-tokens",
        lambda service: service.leads("complete", "active"),
        "",
    ),
    ("order-after-release", _fault(order_after_release="front"), ""),
    ("order-after-release-in-session", _fault(order_after_release="front"), ""),
    ("held-on-one-link", _fault(max_unsettled=100, over_max_unsettled="stop"), ""),
    ("held-on-one-link", _refuse_some("complete", {1}), "300 held"),
    ("deferred-all-or-none", _some_stay_locked, ""),
    ("deferred-delivery-count", _counts_twice("abandon"), "delivery counts [1, 3, 5], abandoned in between"),
    ("batch-refused-whole", _good_half, ""),
    ("batch-delete", _deletes_all, "3 removed, 2 left; a deferred message stays"),
    (
        "partitioned-size",
        lambda service: service.queues_have(max_size_in_megabytes=2_048),
        "1,024 MB were asked for, 32,768 MB given",
    ),
    ("frame-size", _frames_of(1 << 15), "32,768 bytes"),
    ("websocket", _without(Box, "peek", ()), "0 of 1 message"),
    ("websocket", _delivers(b"over a", b"user a"), "1 of 1 message"),
    ("administration-statuses", _answers(412), "taken: 412; removed: 412; "),
    ("peek-in-transaction", _sent_at_once, "1 clones and 1 of 1 dead letter in the open transaction"),
]
"""More of them, with the beginning of what is seen."""

LIKE_EXPECTED: list[tuple[str, Callable[[Service], None], str]] = [
    ("scheduled-number", _lower_numbers, "2 → 1"),
    ("deferred-delivery-count", _counts_twice("defer"), "delivery counts [2, 3, 4], abandoned in between"),
    (
        "no-time-to-live",
        lambda service: service.queues_have(default_message_time_to_live=timedelta(milliseconds=2**32 - 1)),
        "49.7 days",
    ),
]
"""Services that differ in what a probe does not ask, or answer in another way."""
