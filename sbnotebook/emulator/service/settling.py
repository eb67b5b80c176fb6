"""The settlement of messages, by links and by requests alike."""

from __future__ import annotations

from collections.abc import Callable, Sequence
from contextlib import suppress
from typing import Any, Final, cast
from uuid import UUID

from sbnotebook.emulator.amqp.performatives import Accepted, Modified, Outcome, Rejected, Released
from sbnotebook.emulator.entities.box import ABANDON, COMPLETE, DEFER, RELEASE, Receivable, Settlement
from sbnotebook.emulator.entities.message import DeadLetterReason
from sbnotebook.emulator.entities.refusals import Condition, RefusedError
from sbnotebook.emulator.entities.transaction import Transaction
from sbnotebook.emulator.entities.transitions import MessageEvent
from sbnotebook.emulator.faults import SERVER_BUSY, EntityFaults

_LOST: Final = (Condition.MESSAGE_LOCK_LOST, Condition.SESSION_LOCK_LOST)
_BROKEN_OFF: Final = "The service was unable to process the request; please retry the operation."
_STATUSES: Final = {
    "completed": COMPLETE,
    "abandoned": ABANDON,
    "defered": DEFER,  # as the SDKs spell it
    "deferred": DEFER,
    "released": RELEASE,
    "unlocked": RELEASE,
    "suspended": Settlement(MessageEvent.DEAD_LETTER),
}


def settlement_of(outcome: Outcome) -> Settlement:
    """Return the settlement that an outcome of AMQP asks for."""
    match outcome:
        case Accepted():
            return COMPLETE
        case Released():
            return RELEASE
        case Modified():
            event = MessageEvent.DEFER if outcome.undeliverable_here else MessageEvent.ABANDON
            return Settlement(event, outcome.message_annotations or {})
        case Rejected():
            info: dict[Any, Any] = {} if outcome.error is None else dict(outcome.error.info)
            reason, description = (info.pop(f"DeadLetter{part}", None) for part in ("Reason", "ErrorDescription"))
            return Settlement(MessageEvent.DEAD_LETTER, info, _why(reason, description))


def asked_settlement(body: dict[str, Any]) -> Settlement:
    status = str(body["disposition-status"])
    settlement = _STATUSES.get(status)
    if settlement is None:
        raise RefusedError(Condition.ARGUMENT_ERROR, f"There is no disposition {status[:80]!r}.")
    if settlement in (COMPLETE, RELEASE):
        return settlement
    properties = cast("dict[str, Any] | None", body.get("properties-to-modify")) or {}
    why = _why(body.get("deadletter-reason"), body.get("deadletter-description"))
    return settlement._replace(properties=properties, why=why)


def settle(
    entity: Receivable,
    tokens: Sequence[UUID],
    settlement: Settlement,
    now: int,
    faults: EntityFaults,
    since: int | None = None,
) -> None:
    """Settle all of these messages or none; ``since`` is when a link delivered them (ms), None for a request."""

    def settle_held() -> None:
        for token in tokens:
            with suppress(RefusedError):
                entity.settle(token, settlement, now)

    try:
        for token in tokens if since is None else ():
            entity.check_settlement(token, settlement, now)
    except RefusedError as error:
        if faults.refused_tokens == "settled" and error.condition in _LOST:
            settle_held()
        raise
    if faults.broken_off:
        _break_off(faults, settle_held)
    check_age(entity, now, faults, since)
    for token in tokens:
        entity.settle(token, settlement, now)


def _break_off(faults: EntityFaults, settle_held: Callable[[], None]) -> None:
    faults.broken_off -= 1
    if faults.broken_off_is == "busy":
        raise RefusedError(Condition.SERVER_BUSY, SERVER_BUSY)
    if faults.broken_off_is == "settled":
        settle_held()
    raise RefusedError(Condition.INTERNAL_ERROR, _BROKEN_OFF)


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
