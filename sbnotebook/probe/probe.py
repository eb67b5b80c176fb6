"""Probes, their findings and the queues they use. A finding names neither secrets nor the namespace."""

from __future__ import annotations

import re
from collections.abc import AsyncGenerator, Awaitable, Callable, Iterable, Iterator, Sequence
from contextlib import AbstractAsyncContextManager, AsyncExitStack, asynccontextmanager, suppress
from dataclasses import dataclass
from datetime import timedelta
from enum import StrEnum
from itertools import islice
from typing import TYPE_CHECKING, Any, Final, NamedTuple, Self, TypeAlias, cast
from uuid import uuid4

from azure.core.exceptions import ResourceExistsError, ResourceNotFoundError
from azure.servicebus import ServiceBusMessage, ServiceBusReceivedMessage, ServiceBusSubQueue
from azure.servicebus.exceptions import ServiceBusError

from sbnotebook.model import Decision
from sbnotebook.model.connection_strings import canonical_host, scrub
from sbnotebook.settlement import Connection
from sbnotebook.settlement.sdk.clients import adopt
from sbnotebook.settlement.sdk.errors import condition_of
from sbnotebook.settlement.sdk.receivers import ReceivedLock
from sbnotebook.settlement.sdk.settling import LinkSettling, ranges

if TYPE_CHECKING:
    from azure.servicebus.aio import ServiceBusClient, ServiceBusReceiver, ServiceBusSender

_MAX_WORDS: Final = 240
_WORD: Final = re.compile(r"[\w-]++")
_ADDRESS: Final = re.compile(r"(?<!\d)(?:\d{1,3}\.){3}\d{1,3}(?::\d+)?")


class ProbeVerdict(StrEnum):
    """What a probe found."""

    EXPECTED = "as expected"
    DIFFERENT = "different"
    UNKNOWN = "could not tell"


class Saw(NamedTuple):
    """The result of a probe: True if Service Bus did as expected, None if unknown, and the words that show it."""

    is_expected: bool | None
    words: str


_Look: TypeAlias = Callable[["Site"], Awaitable[Saw]]


@dataclass(frozen=True, slots=True)
class Probe:
    """One assumption about Service Bus, and how to check it.

    Its name is in ``docs/reference/azure-facts.md``, in the report, and in the names of its temporary entities.
    """

    name: str
    expectation: str
    look: _Look


@dataclass(frozen=True, slots=True)
class Finding:
    """The finding of one probe, without secrets and without the name of the namespace."""

    probe: Probe
    verdict: ProbeVerdict
    saw: str


def words_of(error: BaseException | None) -> str:
    """Return an error's condition and text, the first line of it; or that there was none."""
    if error is None:
        return "it succeeded"
    if isinstance(error, BaseExceptionGroup):
        return words_of(cast("BaseExceptionGroup[BaseException]", error).exceptions[0])
    condition = condition_of(error)[0]
    text = " ".join([type(error).__name__, f"({condition})" if condition else "", str(error).partition("\n")[0]])
    return scrub(text, _MAX_WORDS)


def probe(look: _Look) -> Probe:
    """Make a function a probe of its name; its docstring is the expectation."""
    return Probe(look.__name__.replace("_", "-"), str(look.__doc__), look)


def without_names(text: str, host: str) -> str:
    """Return a text without secrets, and with NAMESPACE in place of the namespace's own name.

    Example:
        >>> without_names("Shop.servicebus.windows.net:5671, SystemTracker:shop:queue", "shop.servicebus.windows.net")
        'NAMESPACE.servicebus.windows.net:5671, SystemTracker:NAMESPACE:queue'
    """
    name = canonical_host(host).partition(".")[0].partition(":")[0].lower()
    shown = _WORD.sub(lambda match: "NAMESPACE" if match[0].lower() == name else match[0], scrub(text))
    return _ADDRESS.sub("ADDRESS", shown)


def kind_of_host(host: str) -> str:
    """Return the public part of a namespace's host name.

    Example:
        >>> kind_of_host("shop.servicebus.windows.net")
        'NAMESPACE.servicebus.windows.net'
    """
    _, dot, domain = canonical_host(host).partition(".")
    return f"NAMESPACE.{domain.partition(':')[0]}" if dot and not domain[-1:].isdigit() else "an address"


# ---------------------------------------------------------------- the place of a probe

_LIVES_FOR: Final = timedelta(minutes=10)
"""Service Bus itself removes a queue that was left and not used for so long."""
_ANSWER_WITHIN: Final = 10.0
_BATCH: Final = 500
"""Messages without a body that fit into a batch of every tier."""


def blank(count: int = 1, **options: Any) -> Iterator[ServiceBusMessage]:
    """Yield messages without a body."""
    return (ServiceBusMessage("", **options) for _ in range(count))


def new_prefix() -> str:
    """Return a prefix for the names of temporary entities that no other entity has."""
    return f"sbnotebook-probe-{uuid4().hex[:10]}"


def second_name(name: str) -> str:
    """Return the name of the other queue of a probe that needs two."""
    return f"{name}.second"


async def remove_queue(connection: Connection, name: str) -> None:
    """Remove a queue; a missing one counts as removed."""
    async with connection.administration_client() as client:
        with suppress(ResourceNotFoundError):
            await client.delete_queue(name)


class Site:
    """The queues of a probe, and the SDK's clients of them.

    ``wait`` waits some seconds; a test turns the emulator's clock meanwhile. ``made`` gets the name of each queue
    before it is made, so that it is removed in any case.
    """

    def __init__(
        self, connection: Connection, name: str, *, wait: Callable[[float], Awaitable[None]], made: set[str]
    ) -> None:
        self.connection = connection
        self.wait = wait
        self.name = name
        self._made = made
        self._stack = AsyncExitStack()

    async def __aenter__(self) -> Self:
        self.client: ServiceBusClient = await self._stack.enter_async_context(self.connection.new_client(retries=3))
        return self

    async def __aexit__(self, *_: object) -> None:
        await self._stack.aclose()

    async def queue(self, *, lock: float = 60, is_second: bool = False, **options: Any) -> str:
        """Make a queue, the one of :attr:`name` or the second, and return its name."""
        name = second_name(self.name) if is_second else self.name
        self._made.add(name)
        async with self.connection.administration_client() as client:
            try:
                await client.create_queue(
                    name, lock_duration=timedelta(seconds=lock), auto_delete_on_idle=_LIVES_FOR, **options
                )
            except ResourceExistsError:
                self._made.discard(name)  # then it is not ours
                raise
        return name

    async def send(self, messages: Iterable[ServiceBusMessage], *, at_once: int = _BATCH) -> None:
        """Send small messages to the queue, in batches of a size."""
        async with self.sender() as sender:
            coming = iter(messages)
            while some := [*islice(coming, at_once)]:
                await sender.send_messages(some)

    @asynccontextmanager
    async def filled(
        self, messages: Iterable[ServiceBusMessage] = (), *, session: str | None = None, **options: Any
    ) -> AsyncGenerator[ServiceBusReceiver]:
        """Make a queue with messages, and open a receiver of it, or of a session, while the block runs."""
        in_session = {} if session is None else {"session_id": session}
        await self.queue(requires_session=session is not None, **options)
        await self.send(messages)
        async with self.receiver(**in_session) as receiver:
            yield receiver

    @asynccontextmanager
    async def partitioned(self, count: int) -> AsyncGenerator[ServiceBusReceiver]:
        """Make a queue with messages in several partitions, and open a receiver of it while the block runs."""
        await self.queue(enable_partitioning=True)
        # One by one, as a batch has one partition key.
        await self.send((ServiceBusMessage("", partition_key=str(number)) for number in range(count)), at_once=1)
        async with self.receiver() as receiver:
            yield receiver

    @asynccontextmanager
    async def receiver(self, queue: str | None = None, **options: Any) -> AsyncGenerator[ServiceBusReceiver]:
        """Open a receiver of the SDK while the block runs."""
        receiver = self.client.get_queue_receiver(queue or self.name, **options)
        adopt(receiver)
        async with receiver:
            yield receiver

    def letters(self) -> AbstractAsyncContextManager[ServiceBusReceiver]:
        """Open a receiver of the dead-letter queue while the block runs."""
        return self.receiver(sub_queue=ServiceBusSubQueue.DEAD_LETTER)

    @asynccontextmanager
    async def sender(self) -> AsyncGenerator[ServiceBusSender]:
        """Open a sender of the SDK while the block runs."""
        sender = self.client.get_queue_sender(self.name)
        adopt(sender)
        async with sender:
            yield sender

    async def take(
        self, receiver: ServiceBusReceiver, count: int, *, within: float = 10
    ) -> list[ServiceBusReceivedMessage]:
        """Receive as many messages, in order."""
        found: list[ServiceBusReceivedMessage] = []
        while len(found) < count:
            more = await receiver.receive_messages(max_message_count=count - len(found), max_wait_time=within)
            if not more:
                raise TimeoutError(f"{len(found):,} of {count:,} messages came within {within:.0f} seconds.")
            found += more
        return found

    async def peek(self, receiver: ServiceBusReceiver, count: int = 1) -> list[ServiceBusReceivedMessage]:
        """Peek from the beginning; the SDK continues behind the last message that it received."""
        return await receiver.peek_messages(max_message_count=count, sequence_number=1)

    async def settle(
        self, receiver: ServiceBusReceiver, decision: Decision, messages: Sequence[ServiceBusReceivedMessage]
    ) -> list[Exception | None]:
        """Settle messages over their link, a range of them by one frame."""
        found: list[Exception | None] = [None] * len(messages)
        locks = [*map(ReceivedLock.of_message, messages)]
        parts = ranges(locks)

        def ended(index: int, errors: list[Exception | None]) -> None:
            found[parts[index]] = errors

        await LinkSettling(receiver).run(
            [(locks[part], decision) for part in parts],
            answer_within=lambda: _ANSWER_WITHIN,
            began=lambda _: True,
            ended=ended,
        )
        return found

    async def count(self) -> int:
        """Return the number of active messages of the queue, as the administration counts them."""
        async with self.connection.administration_client() as client:
            return int((await client.get_queue_runtime_properties(self.name)).active_message_count or 0)

    def with_key(self, name: str, key: str) -> Connection:
        """Return a connection to the same namespace with another key."""
        emulator = ";UseDevelopmentEmulator=true" if self.connection.is_emulator else ""
        endpoint = f"Endpoint=sb://{self.connection.host}"
        return Connection(f"{endpoint};SharedAccessKeyName={name};SharedAccessKey={key}{emulator}", allow_remote=True)

    async def refusal(self, attempt: Awaitable[object]) -> Exception | None:
        """Return the error of an attempt that Service Bus refuses; None where it does not."""
        try:
            await attempt
        except (ServiceBusError, ValueError) as error:
            return error
        return None
