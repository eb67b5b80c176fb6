"""The broker, which all connections share, and its turn: take in, deliver, store, and only then confirm.

Here are its faults that happen at once, too: lost locks, closed links, dropped and frozen connections.

Connections are limited. A client that has shown that it may be here, by a token or the proof of a lease, keeps its
place. Of the others the oldest one goes when there are too many: a client needs much less than a second to show it, so
who keeps others out has to connect again and again.
"""

from __future__ import annotations

import asyncio
import secrets
import time
from collections import OrderedDict, defaultdict
from collections.abc import Callable, Mapping, Sequence
from contextlib import suppress
from dataclasses import asdict
from math import inf
from typing import TYPE_CHECKING, Any, Final
from uuid import UUID, uuid4

from sbnotebook.emulator.amqp.frames import SharedMemory
from sbnotebook.emulator.amqp.performatives import Accepted, Modified, Outcome, Rejected, Released
from sbnotebook.emulator.clock import Clock, SystemClock
from sbnotebook.emulator.entities.box import ABANDON, COMPLETE, DEFER, RELEASE, Receivable, ReceivingEntity, Settlement
from sbnotebook.emulator.entities.message import DeadLetterReason
from sbnotebook.emulator.entities.options import Options
from sbnotebook.emulator.entities.queue import Topic
from sbnotebook.emulator.entities.refusals import Condition, RefusedError
from sbnotebook.emulator.entities.registry import AnyEntity, Changes, Registry
from sbnotebook.emulator.entities.transaction import Transaction, root_of
from sbnotebook.emulator.faults import SERVER_BUSY, EntityFaults, Faults
from sbnotebook.emulator.logs import clean_logger
from sbnotebook.emulator.service.access import MANAGEMENT, NamespaceAccess
from sbnotebook.emulator.store import Store
from sbnotebook.errors import ConfigurationError

if TYPE_CHECKING:
    from sbnotebook.emulator.service.links import ReceiverLink, SessionReceiverLink
    from sbnotebook.emulator.service.peer import AmqpPeer

    _Source = Receivable | SessionReceiverLink
    _Receivers = OrderedDict[ReceiverLink, None]  # in turn

_MOST: Final = 5000  # Connections, as a namespace has at most (Service Bus documentation, "Service Bus quotas")
# Connections over HTTP that have shown nothing. Each may hold the body of a request, or a WebSocket message.
_MOST_HTTP: Final = 128
_OTHER_FILES: Final = 64  # Files that the process needs beside its connections


class ConnectionLimit:
    def __init__(self) -> None:
        self._all: set[asyncio.Transport] = set()
        # In the order in which they came.
        self._strangers: dict[asyncio.Transport, None] = {}
        self._http: dict[asyncio.Transport, None] = {}

    def __len__(self) -> int:
        return len(self._all)

    def arrive(self, transport: asyncio.Transport) -> None:
        self._all.add(transport)
        self._strangers[transport] = None
        most = _most()
        while self._strangers and (len(self._all) > most or len(self._strangers) > most // 2):
            self._drop(next(iter(self._strangers)))

    def speak_http(self, transport: asyncio.Transport) -> None:
        """Note that a connection is one over HTTP, of which there may be fewer."""
        if transport in self._strangers:
            self._http[transport] = None
        while len(self._http) > _MOST_HTTP:
            self._drop(next(iter(self._http)))

    def settle(self, transport: asyncio.Transport) -> None:
        self._strangers.pop(transport, None)
        self._http.pop(transport, None)

    def leave(self, transport: asyncio.Transport) -> None:
        self._all.discard(transport)
        self.settle(transport)

    def _drop(self, transport: asyncio.Transport) -> None:
        self.leave(transport)
        transport.abort()


def _most() -> int:
    try:
        import resource
    except ImportError:  # Windows, which has no such limit.
        return _MOST
    files = resource.getrlimit(resource.RLIMIT_NOFILE)[0]
    return _MOST if files == resource.RLIM_INFINITY else min(_MOST, max(files - _OTHER_FILES, files // 2))


_LOST: Final = (Condition.MESSAGE_LOCK_LOST, Condition.SESSION_LOCK_LOST)
_BROKEN_OFF: Final = (
    (Condition.INTERNAL_ERROR, "The service was unable to process the request; please retry the operation."),
    (Condition.SERVER_BUSY, SERVER_BUSY),
)
_STATUSES: Final = {
    "completed": COMPLETE,
    "abandoned": ABANDON,
    "defered": DEFER,  # as the SDKs spell it
    "deferred": DEFER,
    "released": RELEASE,
    "unlocked": RELEASE,
    "suspended": Settlement("dead_letter"),
}


def settlement_of(outcome: Outcome) -> Settlement:
    match outcome:
        case Accepted():
            return COMPLETE
        case Released():
            return RELEASE
        case Modified():
            return (DEFER if outcome.undeliverable_here else ABANDON)._replace(
                properties=outcome.message_annotations or {}
            )
        case Rejected():
            info: dict[Any, Any] = {} if outcome.error is None else dict(outcome.error.info)
            why = _why(info.pop("DeadLetterReason", None), info.pop("DeadLetterErrorDescription", None))
            return Settlement("dead_letter", info, why)


def asked_settlement(body: dict[str, Any]) -> Settlement:
    status = str(body["disposition-status"])
    settlement = _STATUSES.get(status)
    if settlement is None:
        raise RefusedError(Condition.ARGUMENT_ERROR, f"There is no disposition {status[:80]!r}.")
    if settlement in (COMPLETE, RELEASE):
        return settlement
    why = _why(body.get("deadletter-reason"), body.get("deadletter-description"))
    return settlement._replace(properties=body.get("properties-to-modify") or {}, why=why)


def settle(
    entity: Receivable,
    tokens: Sequence[UUID],
    settlement: Settlement,
    now: int,
    faults: EntityFaults,
    since: int | None = None,
) -> None:
    """Settle all of these messages or none; ``since`` is when a link delivered them (ms), None for a request."""
    takes_effect = False
    try:
        for token in tokens if since is None else ():
            entity.check_settlement(token, settlement, now)
        if faults.broken_off:
            takes_effect = faults.broken_off_is == "settled"
            _break_off(faults)
    except RefusedError as error:
        if takes_effect or (faults.refused_tokens == "settled" and error.condition in _LOST):
            for token in tokens:
                with suppress(RefusedError):
                    entity.settle(token, settlement, now)
        raise
    check_age(entity, now, faults, since)
    for token in tokens:
        entity.settle(token, settlement, now)


def _break_off(faults: EntityFaults) -> None:
    faults.broken_off -= 1
    raise RefusedError(*_BROKEN_OFF[faults.broken_off_is == "busy"])


def settle_later(
    transaction: Transaction,
    entity: Receivable,
    tokens: Sequence[UUID],
    settlement: Settlement,
    now: int,
    then: Callable[[UUID], None] = lambda _: None,
) -> None:
    """Let a transaction settle these messages; ``then`` is called with the token of each that it has settled."""
    for token in tokens:
        entity.check_settlement(token, settlement, now)
    for token in tokens:

        def settle_one(now: int, token: UUID = token) -> None:
            entity.settle(token, settlement, now)
            then(token)

        transaction.settle(entity, token, settle_one, now)


def check_age(entity: Receivable, now: int, faults: EntityFaults, since: int | None) -> None:
    """Check that a link may still settle a message that it delivered at a moment (ms)."""
    if since is not None and 0 < faults.link_settles_minutes * 60_000 <= now - since:
        raise entity.lock_lost()


def _why(reason: object, description: object) -> DeadLetterReason:
    return DeadLetterReason(*(None if value is None else str(value) for value in (reason, description)))


_MAX_MESSAGES: Final = 500
# What one entity delivers in one turn, so that others get theirs, and a client that does not read is noticed
_MAX_BYTES: Final = 4_194_304
_LOGGER: Final = clean_logger(__name__)


class Broker:
    """The namespace with its connections, in one event loop.

    In one turn of the loop every connection that has data handles it (``advance`` first, ``touch`` after). Then, once
    for all of them, messages are delivered to waiting receivers, the changes are stored in one transaction, and the
    answers are written. So no answer confirms a change that could still be lost.
    """

    def __init__(
        self,
        registry: Registry,
        clock: Clock,
        store: Store | None,
        on_failure: Callable[[Exception], None],
    ) -> None:
        self.registry = registry
        registry.is_in_use = lambda entity: any(peer.is_attached_to(entity.boxes) for peer in self.peers)
        registry.on_idle = self.delete
        registry.order_after_release = lambda path: self.faults.at(path).order_after_release
        self.clock = clock
        self.now = clock.now()  # ms; the time that ``advance`` returned last
        self.access = NamespaceAccess(registry, SystemClock())
        self.identity = store.identity if store is not None else uuid4().hex
        self.secret: Final = secrets.token_hex()  # by which the owner of the process knows it
        self.faults = Faults()
        self.freezes_new = False
        self.session_links: dict[tuple[ReceivingEntity, str], str] = {}
        self.session_waiters: dict[SessionReceiverLink, None] = {}  # in the order in which they came
        self.memory = SharedMemory()  # the memory that the clients of all connections hold
        self.peers: set[AmqpPeer] = set()
        self.leases = 0  # processes that use the emulator; each holds a connection open, which ends with it
        self.connections = ConnectionLimit()  # the connections of all clients, over HTTP, too
        # Operations of the namespace in this second, as Service Bus counts them in the tier Standard: each message is
        # one (Service Bus documentation, "Throttling operations in Azure Service Bus").
        self._second = self.operations = 0
        self._store = store
        self._on_failure = on_failure
        # Those that can take messages, or want to hear that there are none, by their source
        self.receivers: defaultdict[_Source, _Receivers] = defaultdict(OrderedDict)
        self._touched: set[AmqpPeer] = set()
        self._turn_is_due = False
        self._is_stopped = False
        self._turn_ended: asyncio.Future[None] | None = None
        self._alarm_time = inf  # ms
        self._cancel_alarm: Callable[[], object] = lambda: None

    def advance(self) -> int:
        """Do everything that is due, and return the time now (ms)."""
        self.now = now = self.clock.now()
        deadline = self.registry.next_deadline
        if deadline is not None and deadline <= now:
            self.registry.expire(now)
            self.schedule_turn()
        return now

    def touch(self, peer: AmqpPeer) -> None:
        self._touched.add(peer)
        self.schedule_turn()

    def schedule_turn(self) -> None:
        """Schedule the turn, which follows once everything that has come in was handled."""
        if not self._turn_is_due:
            self._turn_is_due = True
            asyncio.get_running_loop().call_soon(self._take_turn)

    async def committed(self) -> None:
        """Wait until all changes up to now are stored."""
        if self._turn_ended is None:
            self._turn_ended = asyncio.get_running_loop().create_future()
        self.schedule_turn()
        await asyncio.shield(self._turn_ended)

    def max_message_size(self, entity: AnyEntity | ReceivingEntity) -> int:
        """Return the size limit (bytes) of one message of an entity."""
        return self.registry.tier.quotas.message_size(getattr(root_of(entity).options, "max_message_size_kb", None))

    def update(self, entity: AnyEntity, options: Options) -> None:
        """Change an entity's options. As in Service Bus, its locks are lost and the links to it are detached."""
        self.registry.update(entity, options, now=self.advance())
        self.detach(entity, Condition.DETACH_FORCED, f"The entity '{entity.path}' was changed.")
        self.schedule_turn()

    def delete(self, entity: AnyEntity) -> None:
        removed = [*entity.subscriptions, entity] if isinstance(entity, Topic) else [entity]
        self.registry.delete(entity)
        for each in removed:
            self.detach(each, Condition.NOT_FOUND, f"The entity '{each.path}' was deleted.")
        self.schedule_turn()

    def detach(
        self, entity: AnyEntity | Receivable, condition: Condition, sentence: str, *, is_node: bool = False
    ) -> None:
        """Detach the links to an entity and its sub-queues, or to one sub-queue, or only those to management nodes."""
        for peer in list(self.peers):
            peer.detach_from(entity.boxes, condition, sentence, is_node=is_node)

    def use_clock(self, clock: Clock) -> None:
        self._cancel_alarm()
        self._alarm_time = inf
        self.clock = clock
        self.schedule_turn()

    def admit(self, faults: EntityFaults) -> None:
        """Refuse an operation if a fault says so, or if the namespace has done all operations of this second."""
        second, allowed = self.clock.now() // 1000, self.faults.operations_per_second
        if second != self._second:
            self._second, self.operations = second, 0
        if faults.count_down("server_busy") or 0 < allowed <= self.operations:
            raise RefusedError(Condition.SERVER_BUSY, SERVER_BUSY)

    async def clear(self, clock: Clock) -> None:
        """Return to an empty namespace, with a new identity: no entity, no fault, no connection."""
        for peer in list(self.peers):
            peer.abort()
        await self.committed()  # by then the loop has reported it to each of them
        self.registry.delete(*self.registry.entities)
        self.identity = uuid4().hex
        if self._store is not None:
            self._store.save_identity(self.identity)
        self.faults, self.freezes_new = Faults(), False
        self.use_clock(clock)
        await self.committed()

    def stop(self) -> None:
        self._take_turn()
        self._is_stopped = True
        self._cancel_alarm()
        for peer in list(self.peers):
            peer.close()

    def _take_turn(self) -> None:
        if self._is_stopped:
            return
        # Deliver and store before anything is confirmed.
        is_behind = self._deliver()
        self._turn_is_due = False
        if not self._commit():
            return
        # Now the confirmations may go out.
        touched, self._touched = self._touched, set()
        for peer in touched:
            peer.flush()
        if self._turn_ended is not None:
            self._turn_ended.set_result(None)
            self._turn_ended = None
        # Plan the next turn: at once if more is waiting, else when something is due.
        if is_behind:
            self.schedule_turn()
        self._set_alarm()

    def _deliver(self) -> bool:
        """Forward, deliver to the waiting receivers, and return whether more is left than one turn allows."""
        try:
            now = self.advance()
            is_behind = self.registry.continue_forwarding(now)
            if not (self.receivers or self.session_waiters):
                return is_behind
            for waiter in list(self.session_waiters):
                if waiter.entity.sessions is not None and waiter.entity.sessions.free:
                    waiter.accept(None, now)
            for source, waiting in list(self.receivers.items()):
                _deliver(source, waiting, now)
                if not waiting:
                    del self.receivers[source]
        except Exception:
            # Messages that arrived must still be stored and confirmed; the next turn delivers.
            _LOGGER.exception("Messages were not delivered.")
            return False
        return is_behind or any(waiting and source.has_available for source, waiting in self.receivers.items())

    def _commit(self) -> bool:
        changes = self.registry.changes
        if changes and self.faults.slow_disk_ms:
            time.sleep(self.faults.slow_disk_ms / 1000)  # All clients wait, as for a slow disk.
        try:
            if self._store is not None:
                self._store.apply(changes)
            self.registry.changes = Changes()
        except Exception as error:  # noqa: BLE001 - the changes are not stored, for any reason
            # Memory is ahead of the file now. Nothing was confirmed: drop all connections and end.
            _LOGGER.critical("The store failed, the emulator ends: %r", error)
            self._is_stopped = True
            for peer in list(self.peers):
                peer.abort()
            self._on_failure(error)
            return False
        self.registry.residency.shed()
        return True

    def _set_alarm(self) -> None:
        deadline = self.registry.next_deadline
        if deadline is None or self._alarm_time <= deadline:
            return  # An alarm that comes too early sets the next one, which is cheaper than to set it anew each turn.
        self._cancel_alarm()
        self._alarm_time = deadline
        self._cancel_alarm = self.clock.wake_at(deadline, self._on_alarm)

    def _on_alarm(self) -> None:
        self._alarm_time = inf
        self.schedule_turn()


def _deliver(source: _Source, waiting: _Receivers, now: int) -> None:
    """Give available messages to the receivers that can take them, in turn. Those that can take no more are removed."""
    messages = size = 0
    while waiting and source.has_available and messages < _MAX_MESSAGES and size < _MAX_BYTES:
        receiver = next(iter(waiting))
        if receiver.can_take:
            waiting.move_to_end(receiver)
            size += receiver.deliver(now)
            messages += 1
        else:
            _dismiss(receiver, waiting)
    for receiver in list(waiting):
        if not receiver.can_take or (receiver.is_draining and not source.has_available):
            _dismiss(receiver, waiting)


def _dismiss(receiver: ReceiverLink, waiting: _Receivers) -> None:
    del waiting[receiver]
    if receiver.is_draining:
        receiver.end_drain()


def change_faults(broker: Broker, document: Mapping[str, Any]) -> dict[str, Any]:
    standing = dict(document)
    asked = {name: _target(broker, name, standing.pop(name)) for name in ACTS if name in standing}
    faults = Faults() if "reset" in asked else broker.faults
    faults.change(standing)
    broker.faults = faults
    for name, path in asked.items():
        ACTS[name](broker, path)
    return asdict(faults)


def _lose_locks(broker: Broker, path: str | None) -> None:
    # As when the service moves an entity.
    now = broker.advance()
    for entity in _named(broker, path):
        if isinstance(entity, Receivable):
            entity.drop_locks(now)
    broker.schedule_turn()


def _close_links(broker: Broker, path: str | None) -> None:
    is_node = path is not None and path.endswith(MANAGEMENT)
    for entity in _named(broker, path and path.removesuffix(MANAGEMENT)):
        broker.detach(entity, Condition.DETACH_FORCED, f"The entity '{entity.path}' was changed.", is_node=is_node)
    broker.schedule_turn()


def _drop_connections(broker: Broker, path: str | None) -> None:
    for peer in _connected(broker, path):
        peer.abort()


def _freeze(broker: Broker, path: str | None) -> None:
    for peer in _connected(broker, path):
        peer.freeze()
    if path is None:
        _freeze_new(broker)


def _freeze_new(broker: Broker, *_: object) -> None:
    broker.freezes_new = True


def _thaw(broker: Broker, *_: object) -> None:
    broker.freezes_new = False
    for peer in list(broker.peers):
        peer.thaw()


ACTS: Final[dict[str, Callable[[Broker, str | None], None]]] = {
    "reset": _thaw,  # and of the faults that persist
    "thaw": _thaw,
    "freeze_new": _freeze_new,
    "lose_locks": _lose_locks,
    "close_links": _close_links,
    "drop_connections": _drop_connections,
    "freeze": _freeze,
}
"""In the order in which those of one request happen, by the name of the method of ``RunningEmulator``."""
_OF_ALL: Final = frozenset(("reset", "thaw", "freeze_new"))  # Those that cannot be for one entity only


def _target(broker: Broker, name: str, value: object) -> str | None:
    if value is True:
        return None
    if name in _OF_ALL:
        raise ConfigurationError(f"{name!r} can only be true.")
    if not isinstance(value, str):
        raise ConfigurationError(f"{name!r} must be the path of an entity, or true for all.")
    _named(broker, value.removesuffix(MANAGEMENT) if name == "close_links" else value)
    return value


def _named(broker: Broker, path: str | None) -> list[AnyEntity | Receivable]:
    registry = broker.registry
    if path is None:
        return [*registry.entities, *(each for topic in registry.topics for each in topic.subscriptions)]
    entity = registry.find(path)
    if entity is None:
        raise ConfigurationError(f"There is no entity {path[:80]!r}.")
    return [entity]


def _connected(broker: Broker, path: str | None) -> list[AmqpPeer]:
    boxes = [] if path is None else [box for entity in _named(broker, path) for box in entity.boxes]
    return [peer for peer in broker.peers if path is None or peer.is_attached_to(boxes)]
