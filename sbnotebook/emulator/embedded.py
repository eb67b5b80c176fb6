"""An emulator inside of this process, in a thread of its own."""

from __future__ import annotations

import asyncio
import atexit
import threading
from collections.abc import Callable, Coroutine, Generator, Iterable, Mapping, Sequence
from concurrent.futures import CancelledError, Future
from contextlib import AbstractContextManager, contextmanager
from pathlib import Path
from typing import TYPE_CHECKING, Any, TypeVar

from sbnotebook.emulator.config import apply_config, config_of, config_to_json
from sbnotebook.emulator.entities.box import Counts, Receivable, ReceivingEntity
from sbnotebook.emulator.entities.message import BrokeredMessage, BrokeredState
from sbnotebook.emulator.entities.message_log import PARTITION_SHIFT
from sbnotebook.emulator.entities.options import (
    AuthorizationRule,
    QueueOptions,
    SubscriptionOptions,
    Tier,
    TopicOptions,
)
from sbnotebook.emulator.entities.queue import Topic
from sbnotebook.emulator.entities.registry import AnyEntity
from sbnotebook.emulator.entities.rules.rule import Rule
from sbnotebook.emulator.faults import Faults
from sbnotebook.errors import EmulatorError

if TYPE_CHECKING:
    from sbnotebook.emulator.clock import Clock
    from sbnotebook.emulator.server import EmulatorServer
    from sbnotebook.emulator.service.broker import Broker

_T = TypeVar("_T")


class RunningEmulator:
    """An emulator that runs in another thread.

    Attributes:
        connection_string: what clients are made with.
        http_url: address of the HTTP side.
    """

    def __init__(self, server: EmulatorServer, loop: asyncio.AbstractEventLoop) -> None:
        self.connection_string = server.connection_string
        self.http_url = server.http_url
        self._server = server
        self._loop = loop
        self.ended: Future[None] = Future()
        self.lock = threading.Lock()  # Tasks given to the loop before the end are run or cancelled.
        self._clock = server.broker.clock

    @property
    def faults(self) -> Faults:
        """Return the current faults, which you can change at any time."""
        return self._server.broker.faults

    def counts(self, path: str) -> Counts:
        """Return the numbers of messages that a queue or subscription holds now."""
        return self._do(lambda broker: _found(broker, path, ReceivingEntity, "queue or subscription").counts)

    def create_queue(self, name: str, options: QueueOptions | None = None) -> None:
        """Create a queue."""
        self._do(lambda broker: broker.registry.create_queue(name, options, now=broker.now))

    def create_topic(self, name: str, options: TopicOptions | None = None) -> None:
        """Create a topic; raise the errors of ``create_queue``."""
        self._do(lambda broker: broker.registry.create_topic(name, options, now=broker.now))

    def create_subscription(
        self,
        topic: str,
        name: str,
        options: SubscriptionOptions | None = None,
        *,
        rules: Sequence[Rule] | None = None,
    ) -> None:
        """Create a subscription."""
        self._do(
            lambda broker: broker.registry.create_subscription(
                _found(broker, topic, Topic, "topic"), name, options, now=broker.now, rules=rules
            )
        )

    def delete(self, path: str) -> None:
        """Remove a queue, topic or subscription with all its messages."""
        self._do(lambda broker: broker.delete(_found(broker, path, AnyEntity, "queue, topic or subscription")))

    def paths(self) -> list[str]:
        """Return the paths of all queues, topics and subscriptions."""
        return self._do(
            lambda broker: [
                *(queue.path for queue in broker.registry.queues),
                *(each.path for topic in broker.registry.topics for each in (topic, *topic.subscriptions)),
            ]
        )

    def configuration(self) -> dict[str, Any]:
        """Return the entities with their options and rules as a ``Config.json``, without messages and keys."""
        return self._do(lambda broker: config_to_json(broker.registry))

    def configure(self, configuration: Any) -> None:
        """Create the entities of a ``Config.json``, also where a stranger wrote it."""
        config = config_of(configuration)
        self._do(lambda broker: apply_config(broker.registry, config, broker.now))

    def put(self, path: str, messages: Iterable[BrokeredMessage]) -> None:
        """Put messages into an entity or a sub-queue as they are, with their numbers and times."""

        def put(broker: Broker) -> None:
            found = _found(broker, path, Receivable, "queue or subscription")
            for message in messages:
                found.put(message, broker.now)
                found.deferred_count += message.state is BrokeredState.DEFERRED
                # Later messages get higher numbers.
                number = message.sequence_number % (1 << PARTITION_SHIFT)
                found.owner.last_sequence_number = max(found.owner.last_sequence_number, number)

        self._do(put)

    # The faults of ``broker.ACTS``.

    def lose_locks(self, path: str | None = None) -> None:
        """Lose all locks, or those of one entity."""
        self._break("lose_locks", path)

    def close_links(self, path: str | None = None) -> None:
        """Detach all links, or those to one entity or, with ``orders/$management``, to its management node."""
        self._break("close_links", path)

    def drop_connections(self, path: str | None = None) -> None:
        """Drop all connections, or those of one entity, without a close."""
        self._break("drop_connections", path)

    def freeze(self, path: str | None = None) -> None:
        """Stop answering until ``thaw``, for all clients or those that use one entity now."""
        self._break("freeze", path)

    def freeze_new(self) -> None:
        """Stop answering new connections until ``thaw``."""
        self._break("freeze_new")

    def thaw(self) -> None:
        """Answer all clients again, and the requests that they sent meanwhile."""
        self._break("thaw")

    def use_clock(self, clock: Clock) -> None:
        """Use another clock from now on, until ``reset``. With a ``ManualClock`` time stands still."""
        self._do(lambda broker: broker.use_clock(clock))

    def reset(self) -> None:
        """Return to an empty namespace: no entity, no fault, no connection, and the clock of the start."""
        self._run(lambda: self._server.broker.clear(self._clock))

    def stop(self) -> None:
        """Ask the emulator to end. ``running`` waits for the end."""
        with self.lock:
            if not self.ended.done():
                self._loop.call_soon_threadsafe(self._server.request_stop)

    def _break(self, act: str, path: str | None = None) -> None:
        from sbnotebook.emulator.service.broker import change_faults

        self._do(lambda broker: change_faults(broker, {act: path or True}))

    def _do(self, function: Callable[[Broker], _T]) -> _T:
        """Call a function in the emulator's loop, and return its result once all changes are stored."""

        async def act() -> _T:
            broker = self._server.broker
            broker.advance()
            result = function(broker)
            await broker.committed()
            return result

        return self._run(act)

    def _run(self, function: Callable[[], Coroutine[Any, Any, _T]]) -> _T:
        with self.lock:
            if self.ended.done():
                raise EmulatorError("The emulator has ended.")
            answer = asyncio.run_coroutine_threadsafe(function(), self._loop)
        try:
            return answer.result()
        except CancelledError:
            raise EmulatorError("The emulator has ended.") from None


def _found(broker: Broker, path: str, kind: Any, name: str) -> Any:
    entity = broker.registry.find(path)
    if not isinstance(entity, kind):
        raise EmulatorError(f"There is no {name} {path!r}.")
    return entity


def running(
    *,
    queues: Iterable[str] | Mapping[str, QueueOptions | None] = (),
    topics: Mapping[str, Iterable[str]] | None = None,
    data_dir: Path | None = None,
    clock: Clock | None = None,
    port: int = 0,
    tier: Tier = Tier.PREMIUM,
    keys: Sequence[AuthorizationRule] = (),
    key: str | None = None,
) -> AbstractContextManager[RunningEmulator]:
    """Run an emulator while the block runs, in a thread with its own event loop.

    Example:
        >>> with running(queues=["orders"]) as emulator:
        ...     emulator.counts("orders").active
        0
    """
    from sbnotebook.emulator.server import EmulatorServer

    server = EmulatorServer(
        port=port,
        data_dir=data_dir,
        queues=queues,
        topics=topics,
        clock=clock,
        tier=tier,
        keys=keys,
        key=key,
    )
    return _in_thread(server)


@contextmanager
def _in_thread(server: EmulatorServer) -> Generator[RunningEmulator]:
    from sbnotebook.emulator.server import run_loop

    started: Future[RunningEmulator] = Future()

    def run() -> None:
        try:
            run_loop(_serve(server, started))
        except BaseException as error:  # noqa: BLE001 - the block raises it
            if not started.done():
                started.set_exception(error)

    thread = threading.Thread(target=run, name="sbnotebook-emulator", daemon=True)
    thread.start()
    emulator = started.result()

    def end() -> None:
        emulator.stop()
        thread.join()

    # An emulator left open ends here: when Python destroys its last objects, the thread is gone already.
    atexit.register(end)
    try:
        yield emulator
    finally:
        atexit.unregister(end)
        end()
        if emulator.ended.done():  # always, but in a process that was forked
            emulator.ended.result()


async def _serve(server: EmulatorServer, started: Future[RunningEmulator]) -> None:
    emulator = None
    try:
        async with server:
            emulator = RunningEmulator(server, asyncio.get_running_loop())
            started.set_result(emulator)
            await server.serve()
        with emulator.lock:
            emulator.ended.set_result(None)
    except BaseException as error:
        if emulator is not None:
            with emulator.lock:
                emulator.ended.set_exception(error)
        raise
