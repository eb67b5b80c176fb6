"""Faults on demand, with which a test or a benchmark makes the emulator behave badly.

Persistent faults are fields of :class:`Faults`. They apply until you change them or call ``RunningEmulator.reset``, for
all entities except those that have their own::

    emulator.faults.entity("orders").server_busy = 2

The faults of ``ACTS`` happen once and at once: each is a method of ``RunningEmulator``. ``POST /faults`` takes all of
them as JSON.
"""

from __future__ import annotations

from collections.abc import Callable, Mapping
from dataclasses import dataclass, field, fields
from typing import Any, Final, Literal, NamedTuple, cast

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
_MAX_PATH: Final = 400
_BROKEN_OFF: Final = "The service was unable to process the request; please retry the operation."


def _fault(default: Any, what: str, seen: str = "", choices: tuple[object, ...] = ()) -> Any:
    return field(default=default, metadata={"what": what, "seen": seen, "choices": choices})


@dataclass(slots=True)
class EntityFaults:
    """The persistent faults of an entity, by default none. Counts go down to 0 as the faults happen."""

    accept_delay_ms: int = _fault(0, "each sent message is confirmed later", "a slow send")
    settle_delay_ms: int = _fault(
        0, "each settlement over the link of its message is confirmed later", "a slow `complete_message`"
    )
    delivery_delay_ms: int = _fault(0, "each message arrives later, its lock runs already", "a slow receive")
    server_busy: int = _fault(0, "the next N sends and requests are refused", "`ServiceBusServerBusyError`")
    reject_nth: int = _fault(
        0,
        "the nth message sent from now on is refused, with its batch, as `reject_condition` says",
        "the exception of that condition: `ServiceBusQuotaExceededError` for `amqp:resource-limit-exceeded`",
    )
    reject_condition: str = _fault("amqp:internal-error", "the condition of `reject_nth`, of AMQP or of Service Bus")
    drop_before_nth: int = _fault(
        0,
        "the nth send, settlement or request from now on ends its connection, and is not carried out",
        "`ServiceBusConnectionError`",
    )
    drop_after_nth: int = _fault(
        0,
        "the nth send, settlement or request from now on ends its connection, and is carried out",
        "`ServiceBusConnectionError`: the same, so the outcome is unknown",
    )
    # Azure does that now and then: azure-sdk-for-js issues 12450 and 13471, azure-sdk-for-python issue 39459.
    empty_peeks: int = _fault(0, "the next N peeks come back empty", "an empty list, although there are messages")
    # No source says that Azure answers with all of them, however large they are together.
    short_answers: int = _fault(
        0,
        "an answer has at most N of the deferred messages that a request asks for",
        "fewer messages from `receive_deferred_messages`",
    )
    # A preview feature: a namespace may lack it. Where none was removed, the answer is 200 with the count 0
    # (azure-sdk-for-js 39309), or 204 (azure-servicebus 7.13.0b1 reads both).
    batch_delete: str = _fault(
        "taken",
        "`refused`: requests to remove messages by their age are; `zero`: an answer that none was removed has a count",
        "the SDK for Python has no such request",
        ("taken", "refused", "zero"),
    )
    # "Batch deletion is done on a best-effort basis" (documentation); azure-sdk-for-net issue 43801.
    short_deletes: int = _fault(
        0,
        "a request to remove messages by their age removes at most N",
        "the SDK for Python has no such request",
    )
    # No source says that Azure confirms them.
    unconfirmed: str = _fault(
        "",
        "settlements with the outcome *released*, or of several messages at once (`ranges`), are carried out and never "
        "confirmed",
        "a settlement without an answer",
        ("", "released", "ranges"),
    )
    # Azure was seen to do that after 12 to 20 minutes (azure-service-bus issues 684 and 685, azure-sdk-for-net 28025).
    # Over the management node the message can still be settled.
    link_settles_minutes: int = _fault(
        0,
        "N minutes after the delivery of a message, its link no longer settles it and says that the lock is lost, "
        "although it was renewed",
        "`MessageLockLostError`",
    )
    # Also those whose lock has ended. Of Azure 5,000 are reported (azure-amqp issue 152, azure-sdk-for-net 6450), which
    # stop the link; azure-sdk-for-python 16163 reports a detach.
    max_unsettled: int = _fault(
        0,
        "messages of one link that may be unsettled; one more detaches the link, or with `over_max_unsettled` set to "
        "`stop` does not come",
        "`ServiceBusConnectionError`; nothing more is received",
    )
    over_max_unsettled: str = _fault("detach", "what happens to a link at `max_unsettled`", choices=("detach", "stop"))
    # azure-service-bus-dotnet issue 386.
    mixed_partitions: str = _fault(
        "taken",
        "`refused`: a request about lock tokens of several partitions is refused",
        "`ServiceBusError`",
        ("taken", "refused"),
    )
    # No source says what Azure does.
    refused_tokens: str = _fault(
        "kept",
        "`settled`: a request about lock tokens of which some are lost is refused, and settles the other messages all "
        "the same",
        "`MessageLockLostError`",
        ("kept", "settled"),
    )
    broken_off: int = _fault(
        0,
        "the next N settlements, over a link or by a request, are answered with `amqp:internal-error`; with "
        "`broken_off_is` set to `settled` they are carried out all the same, and with `busy` the answer is "
        "`com.microsoft:server-busy`",
        "`ServiceBusError`, so the outcome is unknown",
    )
    # No source says whether Azure throttles settlements.
    broken_off_is: str = _fault(
        "kept", "the state of the messages of `broken_off`", choices=("kept", "settled", "busy")
    )
    # In a session, Azure was seen to place it behind messages that came meanwhile (azure-sdk-for-net issue 35846,
    # azure-sdk-for-java issues 24064 and 30027), and promises nothing.
    order_after_release: str = _fault(
        "place",
        "a message that is given back comes again at the `front` or at the `back` of the active messages, and not in "
        "its old `place`",
        "another order, within a session, too",
        ("place", "front", "back"),
    )
    # Of a delivery Azure says scheduled (azure-sdk-for-js 19357); of a peek no source says anything.
    activated_state: str = _fault(
        "active",
        "`scheduled`: a peek says so of a message that was scheduled and is active by now",
        "`ServiceBusMessageState.SCHEDULED`",
        ("active", "scheduled"),
    )

    def happens(self, name: Literal["server_busy", "empty_peeks", "broken_off"]) -> bool:
        """Return whether a fault that is counted happens now, and count it."""
        left: int = getattr(self, name)
        if left <= 0:
            return False
        setattr(self, name, left - 1)
        return True

    def rejects(self, count: int) -> bool:
        """Return whether the message to refuse is among the ``count`` messages that have just come in."""
        left = self.reject_nth
        if not left:
            return False
        self.reject_nth = max(left - count, 0)
        return left <= count

    def drop(self) -> Literal["before", "after"] | None:
        """Return when the connection ends: before or after the request that has just come in; None if it does not."""
        before, after = self.drop_before_nth, self.drop_after_nth
        self.drop_before_nth, self.drop_after_nth = max(before - 1, 0), max(after - 1, 0)
        if before == 1:
            return "before"
        return "after" if after == 1 else None

    def break_off(self, settle: Callable[[], object]) -> None:
        """Break off the settlement that has just come in, if it is one of those; ``settle`` carries it out."""
        if not self.happens("broken_off"):
            return
        if self.broken_off_is == "busy":
            raise RefusedError(Condition.SERVER_BUSY, SERVER_BUSY)
        if self.broken_off_is == "settled":
            settle()
        raise RefusedError(Condition.INTERNAL_ERROR, _BROKEN_OFF)

    def refuses_on_link(self, held_ms: int) -> bool:
        """Return whether a link refuses to settle a message that it delivered so many milliseconds ago."""
        return 0 < self.link_settles_minutes * 60_000 <= held_ms

    def stops_link(self, unsettled: int) -> bool:
        return 0 < self.max_unsettled <= unsettled and self.over_max_unsettled == "stop"

    def detaches_link(self, unsettled: int) -> bool:
        return 0 < self.max_unsettled < unsettled and self.over_max_unsettled == "detach"


@dataclass(slots=True)
class Faults(EntityFaults):
    """The persistent faults of the emulator, by default none."""

    slow_disk_ms: int = _fault(0, "each commit takes N ms longer", "all clients wait")
    network_delay_ms: int = _fault(
        0,
        "every byte of every connection arrives N ms later, in each direction: half a round trip",
        "all calls wait for the network, opening a connection most",
    )
    # Each message that is sent, peeked or named in a request is one. Messages that come over a link, and their
    # settlements there, are not counted: no source says that Service Bus refuses them.
    operations_per_second: int = _fault(
        0,
        "the sends and requests of all clients are refused after N operations in a second; each message counts",
        "`ServiceBusServerBusyError`, as in the tier Standard after 1,000",
    )
    transaction_timeout_ms: int = _fault(
        120_000,
        "transactions end N ms after their first operation; two minutes by default",
        "the SDK for Python has no transactions",
    )
    transaction_refusal: Literal["rejected", "in_state", "detach"] = _fault(
        "rejected",
        "work that is refused in a transaction gets the outcome `rejected`, the same in a transactional state "
        "(`in_state`), or loses its link (`detach`)",
        choices=("rejected", "in_state", "detach"),
    )
    settles_before_discharge: bool = _fault(
        default=True, what="`false`: a settlement in a transaction is not confirmed as settled", choices=(True, False)
    )
    late_discharge: Literal["rejected", "accepted"] = _fault(
        "rejected",
        "`accepted`: the discharge of a transaction that is rolled back already succeeds, without effect",
        choices=("rejected", "accepted"),
    )
    entities: dict[str, EntityFaults] = field(default_factory=dict[str, EntityFaults])

    def entity(self, path: str) -> EntityFaults:
        """Return the faults of one entity, which from now on has its own instead of those of all."""
        return self.entities.setdefault(path.casefold(), EntityFaults())

    def at(self, path: str) -> EntityFaults:
        return self.entities.get(path.casefold(), self) if self.entities else self

    def change(self, document: Mapping[str, Any]) -> None:
        """Set the faults that a JSON object names, those of an entity all together."""
        values = {name: _checked(Faults, name, value) for name, value in document.items()}
        self.entities.update(values.pop("entities", {}))
        for name, value in values.items():
            setattr(self, name, value)


class Act(NamedTuple):
    """A fault that happens once and at once."""

    what: str
    seen: str  # what the SDK's user sees, without retries
    takes_path: bool = True  # whether it can be for one entity only


ACTS: Final = {
    "lose_locks": Act(
        "every lock is lost; no delivery counts as failed", "`MessageLockLostError`, `SessionLockLostError`"
    ),
    "close_links": Act(
        "links are detached, as when the entity was changed. The path `orders/$management` means those for requests, "
        "as after ten idle minutes",
        "`ServiceBusConnectionError`, and the next call works again",
    ),
    "drop_connections": Act(
        "connections end without a word", "`ServiceBusConnectionError`, and the next call works again"
    ),
    "freeze": Act(
        "the emulator answers no client, until `thaw()`",
        "`OperationTimeoutError` of a send with a `timeout`, an empty list from a receive",
    ),
    "freeze_new": Act("no new connection is answered, until `thaw()`", "the first call waits", takes_path=False),
    "thaw": Act(
        "all clients are answered again, first what they sent meanwhile", "the calls continue", takes_path=False
    ),
}
"""By the name of the method of ``RunningEmulator``, which is that in JSON."""


def _checked(kind: type[EntityFaults], name: str, value: object) -> Any:
    known = {each.name: each for each in fields(kind)}
    if name not in known:
        raise ConfigurationError(f"There is no fault {name[:40]!r}: choose among {', '.join(known)}.")
    if name == "entities":
        return _entities(value)
    choices = known[name].metadata["choices"]
    if name == "reject_condition":
        _expect(isinstance(value, str) and value.isascii() and 0 < len(value) <= _MAX_CONDITION, name, "a condition")
    elif choices:
        _expect(value in choices, name, f"one of {', '.join(map(repr, choices))}")
    else:
        limit = MAX_DELAY_MS if name.endswith("_ms") else MAX_COUNT
        _expect(type(value) is int and 0 <= value <= limit, name, f"a number from 0 to {limit}")
    return value


def _entities(value: object) -> dict[str, EntityFaults]:
    _expect(isinstance(value, dict), "entities", "an object with faults by entity path")
    given = cast("dict[str, Any]", value)
    for path, document in given.items():
        _expect(0 < len(path) <= _MAX_PATH and isinstance(document, dict), path[:40], "an object of faults")
    return {
        path.casefold(): EntityFaults(**{name: _checked(EntityFaults, name, fault) for name, fault in document.items()})
        for path, document in given.items()
    }


def _expect(condition: bool, name: str, rule: str) -> None:
    if not condition:
        raise ConfigurationError(f"{name!r} must be {rule}.")
