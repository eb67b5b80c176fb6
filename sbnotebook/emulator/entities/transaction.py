"""A transaction: work that is carried out as a whole, or not at all.

Until it is committed, its work is a list of steps that nothing shows. Then all of them are checked once more and
carried out in one turn, so the store keeps all of their changes or none.

Sources: Service Bus documentation, "Overview of Service Bus transaction processing", "Service Bus quotas" and
"Partitioned queues and topics"; for the texts, what Service Bus answered (azure-sdk-for-net 14038, 18160).
"""

from __future__ import annotations

from collections.abc import Callable, Iterable, Sequence
from functools import partial
from itertools import repeat
from typing import Any, Final, cast
from uuid import UUID

from sbnotebook.emulator.entities.box import Receivable, ReceivingEntity
from sbnotebook.emulator.entities.message import SentMessage
from sbnotebook.emulator.entities.message_log import PARTITION_SHIFT
from sbnotebook.emulator.entities.queue import Queue, Subscription, Topic
from sbnotebook.emulator.entities.refusals import Condition, RefusedError

SPANS_ENTITIES: Final = "Local transactions cannot span multiple top-level entities such as queue or topic."

_MAX_MESSAGES: Final = 100  # Messages that are sent; whether settlements count, too, is not documented

_Step = Callable[[int], object]


def root_of(entity: Queue | Topic | Receivable) -> Queue | Topic:
    owner = cast("Queue | Subscription | Topic", entity.owner)
    return owner.topic if isinstance(owner, Subscription) else owner


class Transaction:
    def __init__(self, txn_id: bytes, link: Any = None) -> None:
        self.txn_id = txn_id
        self.link = link  # on which its client declared it
        self.end: int | None = None  # when it is rolled back (ms); None before its first operation
        self.cancel_alarm: Callable[[], object] = lambda: None
        self.size = 0  # bytes of the messages that it keeps until it ends
        self.tokens: set[UUID] = set()  # the locks of the messages that it settles
        self.failure: str | None = None  # why it can only be rolled back; None while it can be committed
        self._root: Queue | Topic | None = None
        self._partitions: set[int | None] = set()
        self._message_count = 0
        self._steps: list[tuple[_Step, _Step]] = []  # checks, and acts that follow once all checks have passed

    def send(
        self, destination: Queue | Topic, messages: Sequence[SentMessage], via: Queue | Topic | None = None
    ) -> None:
        self._take(via or destination, messages)
        if via is None or via is destination:
            check = partial(_check_can_take, destination, messages)
            self._steps.append((check, lambda now: [destination.send(message, now) for message in messages]))
            return
        if isinstance(via, Topic):
            self._steps.append((partial(_check_can_take, destination, messages), lambda _: None))
        check, target = partial(_check_is_there, via), destination.path
        self._steps.append((check, lambda now: [via.transfer(each, target, now) for each in messages]))

    def schedule(self, destination: Queue | Topic, messages: Sequence[SentMessage]) -> list[int]:
        self._take(destination, messages)
        numbers = [destination.next_number(message) for message in messages]
        check = partial(_check_can_take, destination, messages)
        self._steps.append((check, lambda now: [*map(destination.send, messages, repeat(now), numbers)]))
        return numbers

    def settle(self, entity: Receivable, token: UUID, act: _Step, now: int) -> None:
        if token in self.tokens:
            raise RefusedError(Condition.NOT_ALLOWED, "The message is settled in this transaction already.")
        self._join(root_of(entity), (entity.expect_held(token, now).sequence_number >> PARTITION_SHIFT,))
        self.tokens.add(token)
        self._steps.append((partial(entity.expect_held, token), act))

    def do(self, entity: ReceivingEntity | Topic, check: _Step, act: _Step) -> None:
        self._join(root_of(entity), ())
        self._steps.append((check, act))

    def commit(self, now: int) -> None:
        if self.failure is not None:
            raise RefusedError(Condition.NOT_ALLOWED, self.failure)
        for check, _ in self._steps:
            check(now)
        for _, act in self._steps:
            act(now)

    def _take(self, root: Queue | Topic, messages: Sequence[SentMessage]) -> None:
        self._join(root, map(root.keyed_partition, messages))
        if self._message_count + len(messages) > _MAX_MESSAGES:
            text = f"More than {_MAX_MESSAGES} messages are not allowed in one transaction."
            raise RefusedError(Condition.NOT_ALLOWED, text)
        self._message_count += len(messages)
        self.size += sum(len(message.payload) for message in messages)

    def _join(self, root: Queue | Topic, partitions: Iterable[int | None]) -> None:
        if self._root is not None and self._root is not root:
            raise RefusedError(Condition.NOT_ALLOWED, SPANS_ENTITIES)
        if root.options.enable_partitioning:
            found = self._partitions.union(partitions)
            if len(found) > 1 or None in found:
                text = "Local transactions cannot span multiple entities or partitions."
                raise RefusedError(Condition.NOT_ALLOWED, text)
            self._partitions = found
        self._root = root


def _check_is_there(entity: Queue | Topic, _now: int) -> None:
    if entity.is_deleted:
        raise RefusedError(Condition.NOT_ALLOWED, f"The entity '{entity.path}' was deleted.")


def _check_can_take(destination: Queue | Topic, messages: Sequence[SentMessage], now: int) -> None:
    _check_is_there(destination, now)
    destination.check(messages)
