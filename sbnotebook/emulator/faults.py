"""Faults on demand, with which a test or a benchmark makes the emulator behave badly.

Persistent faults are fields. They apply until you change them or call ``RunningEmulator.reset``:

========================= =================================================================================
``accept_delay_ms``       the confirmation of each sent message is held back
``settle_delay_ms``       the confirmation of each settlement over its link is held back
``delivery_delay_ms``     each message arrives later, while its lock runs already
``server_busy``           so many of the next sends and requests are refused as ``com.microsoft:server-busy``
``reject_nth``            the nth message sent over a link from now on is refused with ``reject_condition``
``drop_before_nth``       the nth send, settlement or request from now on ends its connection, not carried out
``drop_after_nth``        the nth send, settlement or request from now on ends its connection, carried out
``empty_peeks``           so many of the next peeks come back empty, although there are messages
``short_answers``         an answer holds at most so many of the deferred messages that a request asks for
``unconfirmed``           dispositions carried out and never confirmed: ``released``, or ``ranges`` of deliveries
``link_settles_minutes``  a link settles a message for so long after its delivery, however long its lock is renewed
``max_unsettled``         messages of one link that may be unsettled; ``over_max_unsettled`` says what happens then
``mixed_partitions``      ``refused``: a request about lock tokens of several partitions is refused
``refused_tokens``        ``settled``: a request with some lost lock tokens is refused, but settles the others
``broken_off``            so many of the next settlements get ``amqp:internal-error``; ``broken_off_is``: their effect
``order_after_release``   where a message comes again that was given back: ``front``, ``place`` or ``back``
``activated_state``       ``scheduled``: a peek says so of a message that was scheduled and is active by now
``slow_disk_ms``          each commit takes longer, and nothing else happens meanwhile; for all entities only
``network_delay_ms``      every byte of every connection arrives later, in each direction; for all entities only
``operations_per_second`` more sends, requests and messages in a second are refused as server-busy; for all only
========================= =================================================================================

How transactions behave, where Azure's answer is not known, is set by the last fields of :class:`Faults`. The others
hold for all entities except those that have their own::

    emulator.faults.entity("orders").server_busy = 2

Faults that happen once and at once are methods of ``RunningEmulator``: ``lose_locks``, ``close_links``,
``drop_connections``, ``freeze``, ``freeze_new`` and ``thaw``. ``POST /faults`` takes all of them as JSON.
"""

from __future__ import annotations

from collections.abc import Callable, Mapping
from dataclasses import asdict, dataclass, field, fields
from enum import Enum, auto
from typing import Any, Final, Literal, Self, cast

from sbnotebook.emulator.entities.refusals import Condition, RefusedError
from sbnotebook.errors import ConfigurationError

MAX_DELAY_MS: Final = 600_000
"""The longest delay that can be asked for over HTTP."""
MAX_COUNT: Final = 1_000_000
"""The largest number of events that can be asked for over HTTP."""

SERVER_BUSY: Final = (
    "The request was terminated because the entity is being throttled. Please wait 2 seconds and try again."
)
"""In the words of Service Bus."""

_MAX_CONDITION: Final = 100
_CHOICES: Final[dict[str, tuple[object, ...]]] = {
    "unconfirmed": ("", "released", "ranges"),
    "over_max_unsettled": ("detach", "stop"),
    "mixed_partitions": ("taken", "refused"),
    "refused_tokens": ("kept", "settled"),
    "broken_off_is": ("kept", "settled", "busy"),
    "activated_state": ("active", "scheduled"),
    "transaction_refusal": ("rejected", "in_state", "detach"),
    "settles_before_discharge": (True, False),
    "late_discharge": ("rejected", "accepted"),
    "order_after_release": ("place", "front", "back"),
}
"""The faults that are one of several values, by name."""
_MAX_PATH: Final = 400
_BROKEN_OFF: Final = "The service was unable to process the request; please retry the operation."


class Drop(Enum):
    """The moment when a connection ends: before the request is carried out, or after it."""

    BEFORE = auto()
    AFTER = auto()


@dataclass(slots=True)
class EntityFaults:
    """The persistent faults of an entity, by default none. Counts go down to 0 as the faults happen.

    Attributes:
        accept_delay_ms: time by which the confirmation of each sent message is delayed. The delays of
            several messages run at the same time, as on a long line.
        settle_delay_ms: the same for each settlement of a message over the link that it came on.
        delivery_delay_ms: time by which each message arrives later; its lock runs already.
        server_busy: number of the next sends and requests that are refused.
        reject_nth: the message, counted from the next, that is refused with ``reject_condition``, and
            its whole batch with it; 0 for none.
        reject_condition: the error condition of AMQP or of Service Bus that the sender gets.
        drop_before_nth: the send, settlement or request, counted from the next, that ends its
            connection instead of being carried out; 0 for none.
        drop_after_nth: the same, but it is carried out and kept, only not confirmed.
        empty_peeks: number of the next peeks that come back empty, although there are messages; Azure does that now
            and then (azure-sdk-for-js issues 12450 and 13471, azure-sdk-for-python issue 39459).
        short_answers: deferred messages that an answer holds at most; 0 for all. No source says that Azure answers
            with all of them, however large they are together.
        unconfirmed: the dispositions of received messages that are carried out and not confirmed: ``released`` for
            those of that outcome, ``ranges`` for those of several deliveries at once, empty for none. No source says
            that Azure confirms them.
        link_settles_minutes: minutes after its delivery for which a link settles a message; 0 for ever. Then the link
            answers that the lock is lost, although it is renewed; over the management node it can be settled. Azure was
            seen to do that after 12 to 20 minutes (azure-service-bus issues 684 and 685, azure-sdk-for-net 28025).
        max_unsettled: messages of one link that may be unsettled, also those whose lock has ended; 0 for any number.
            Of Azure 5,000 are reported (azure-amqp issue 152, azure-sdk-for-net 6450).
        over_max_unsettled: what happens to a link that reaches that number: with ``stop`` it delivers no more until one
            is settled, as in those issues; with ``detach`` one more detaches it (azure-sdk-for-python 16163).
        mixed_partitions: ``refused`` where a request must name lock tokens of one partition only
            (azure-service-bus-dotnet issue 386), ``taken`` for any.
        refused_tokens: state of the other messages of a request that is refused because some of its lock tokens are
            lost: ``kept``, or ``settled`` nevertheless. No source says what Azure does.
        broken_off: number of the next settlements, over a link or by a request, that are answered with
            ``amqp:internal-error``, which does not say how far the service came.
        broken_off_is: state of their messages: ``kept``, or ``settled`` nevertheless. With ``busy``, they are kept,
            and the answer is ``com.microsoft:server-busy``. No source says whether Azure throttles settlements.
        order_after_release: where a message comes again after it was released or abandoned, or after its lock or
            session ended: in its old ``place``, at the ``front`` of the active messages, or at the ``back``. In a
            session, Azure was seen to place it behind messages that came meanwhile (azure-sdk-for-net issue 35846,
            azure-sdk-for-java issues 24064 and 30027), and promises nothing.
        activated_state: the state that a peek shows of a message that was scheduled and is active by now. Of a
            delivery Azure says ``scheduled`` (azure-sdk-for-js 19357); of a peek no source says anything.
    """

    accept_delay_ms: int = 0
    settle_delay_ms: int = 0
    delivery_delay_ms: int = 0
    server_busy: int = 0
    reject_nth: int = 0
    reject_condition: str = "amqp:internal-error"
    drop_before_nth: int = 0
    drop_after_nth: int = 0
    empty_peeks: int = 0
    short_answers: int = 0
    unconfirmed: str = ""
    link_settles_minutes: int = 0
    max_unsettled: int = 0
    over_max_unsettled: str = "detach"
    mixed_partitions: str = "taken"
    refused_tokens: str = "kept"
    broken_off: int = 0
    broken_off_is: str = "kept"
    order_after_release: str = "place"
    activated_state: str = "active"

    def is_busy(self) -> bool:
        """Return whether the send or request that has just come in is refused."""
        if self.server_busy <= 0:
            return False
        self.server_busy -= 1
        return True

    def rejects(self, count: int) -> bool:
        """Return whether the message to refuse is among the ``count`` messages that have just come in."""
        left = self.reject_nth
        if not left:
            return False
        self.reject_nth = max(left - count, 0)
        return left <= count

    def drop(self) -> Drop | None:
        """Return when the connection ends with the request that has just come in; None if it does not."""
        before, after = self.drop_before_nth, self.drop_after_nth
        if not (before or after):
            return None
        self.drop_before_nth, self.drop_after_nth = max(before - 1, 0), max(after - 1, 0)
        if before == 1:
            return Drop.BEFORE
        return Drop.AFTER if after == 1 else None

    def break_off(self, settle: Callable[[], object]) -> None:
        """Break off the settlement that has just come in, if it is one of those.

        Args:
            settle: carries it out.

        Raises:
            RefusedError: it is broken off.
        """
        if self.broken_off <= 0:
            return
        self.broken_off -= 1
        if self.broken_off_is == "busy":
            raise RefusedError(Condition.SERVER_BUSY, SERVER_BUSY)
        if self.broken_off_is == "settled":
            settle()
        raise RefusedError(Condition.INTERNAL_ERROR, _BROKEN_OFF)

    def hides_messages(self) -> bool:
        """Return whether the peek that has just come in comes back empty."""
        if self.empty_peeks <= 0:
            return False
        self.empty_peeks -= 1
        return True

    def refuses_on_link(self, held_ms: int) -> bool:
        """Return whether a link refuses to settle a message that it delivered so many milliseconds ago."""
        return 0 < self.link_settles_minutes * 60_000 <= held_ms

    def stops_link(self, unsettled: int) -> bool:
        """Return whether a link delivers nothing while it has so many unsettled messages."""
        return 0 < self.max_unsettled <= unsettled and self.over_max_unsettled == "stop"

    def detaches_link(self, unsettled: int) -> bool:
        """Return whether a link is detached that has so many unsettled messages."""
        return 0 < self.max_unsettled < unsettled and self.over_max_unsettled == "detach"

    @classmethod
    def from_json(cls, document: Mapping[str, Any]) -> Self:
        """Return the faults that ``to_json`` wrote; those that it does not name are off.

        Raises:
            ConfigurationError: there is no such fault, or it cannot have this value.
        """
        return cls(**{name: _checked(cls, name, value) for name, value in document.items()})

    def to_json(self) -> dict[str, Any]:
        """Return the faults by name."""
        return asdict(self)


@dataclass(slots=True)
class Faults(EntityFaults):
    """The persistent faults of the emulator, by default none.

    Attributes:
        slow_disk_ms: time by which each commit takes longer.
        network_delay_ms: time by which every byte of every connection arrives later, in each direction: half a round
            trip. Opening a connection takes a round trip, as over a network. Connections for HTTP have it, too.
        operations_per_second: operations that the namespace does in a second, 0 for any number; the sends and requests
            after them are refused as ``com.microsoft:server-busy``. Each message that is sent, peeked or named in a
            request is one, as in the tier Standard, which does 1,000. Messages that come over a link, and their
            settlements there, are not counted: no source says that Service Bus refuses them.
        transaction_timeout_ms: time from the first operation of a transaction to its rollback.
        transaction_refusal: how work that is refused in a transaction is answered: with the outcome ``rejected``, with
            the same in a transactional state (``in_state``), or by detaching the link (``detach``).
        settles_before_discharge: whether a settlement in a transaction is confirmed as settled before the discharge.
        late_discharge: how the discharge of a transaction that is unknown, or rolled back for its time, is answered:
            ``rejected`` or ``accepted``.
        entities: the faults of those entities that have their own, by path in lower case.

    Example:
        >>> faults = Faults(accept_delay_ms=80)
        >>> faults.entity("Orders").reject_nth = 2
        >>> faults.at("orders").accept_delay_ms, faults.at("orders").rejects(1), faults.at("orders").rejects(1)
        (0, False, True)
        >>> faults.at("invoices").accept_delay_ms
        80
    """

    slow_disk_ms: int = 0
    network_delay_ms: int = 0
    operations_per_second: int = 0
    transaction_timeout_ms: int = 120_000
    transaction_refusal: Literal["rejected", "in_state", "detach"] = "rejected"
    settles_before_discharge: bool = True
    late_discharge: Literal["rejected", "accepted"] = "rejected"
    entities: dict[str, EntityFaults] = field(default_factory=dict[str, EntityFaults])

    def entity(self, path: str) -> EntityFaults:
        """Return the faults of one entity, which from now on has its own instead of those of all.

        Args:
            path: entity path of a queue, topic, subscription or sub-queue.
        """
        return self.entities.setdefault(path.casefold(), EntityFaults())

    def at(self, path: str) -> EntityFaults:
        """Return the faults that are in force for an entity."""
        return self.entities.get(path.casefold(), self) if self.entities else self

    def change(self, document: Mapping[str, Any]) -> None:
        """Set the faults that a JSON object names, those of an entity all together.

        Raises:
            ConfigurationError: there is no such fault, or it cannot have this value; nothing is set.
        """
        values = {name: _checked(Faults, name, value) for name, value in document.items()}
        self.entities.update(values.pop("entities", {}))
        for name, value in values.items():
            setattr(self, name, value)


def _checked(kind: type[EntityFaults], name: str, value: object) -> Any:
    known = [each.name for each in fields(kind)]
    if name not in known:
        raise ConfigurationError(f"There is no fault {name[:40]!r}: choose among {', '.join(known)}.")
    if name == "entities":
        return _entities(value)
    if name == "reject_condition":
        _expect(isinstance(value, str) and value.isascii() and 0 < len(value) <= _MAX_CONDITION, name, "a condition")
        return value
    if name in _CHOICES:
        _expect(value in _CHOICES[name], name, f"one of {', '.join(map(repr, _CHOICES[name]))}")
        return value
    limit = MAX_DELAY_MS if name.endswith("_ms") else MAX_COUNT
    _expect(type(value) is int and 0 <= value <= limit, name, f"a number from 0 to {limit}")
    return value


def _entities(value: object) -> dict[str, EntityFaults]:
    _expect(isinstance(value, dict), "entities", "an object with faults by entity path")
    given = cast("dict[str, Any]", value)
    for path, document in given.items():
        _expect(0 < len(path) <= _MAX_PATH and isinstance(document, dict), path[:40], "an object of faults")
    return {path.casefold(): EntityFaults.from_json(document) for path, document in given.items()}


def _expect(condition: bool, name: str, rule: str) -> None:
    if not condition:
        raise ConfigurationError(f"{name!r} must be {rule}.")
