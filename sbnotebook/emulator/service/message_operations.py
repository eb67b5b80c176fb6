"""The operations of a management node on messages and sessions."""

from __future__ import annotations

from functools import partial
from typing import Any, Final, cast
from uuid import UUID

from sbnotebook.amqp import AmqpValue, Array, Int, Long, Timestamp
from sbnotebook.emulator.entities.message import read_sent
from sbnotebook.emulator.entities.partitions import PARTITION_SHIFT
from sbnotebook.emulator.entities.quotas import Tier
from sbnotebook.emulator.entities.refusals import Condition, RefusedError
from sbnotebook.emulator.entities.sessions import MessageSession
from sbnotebook.emulator.service.requests import Call, Reply, done, nothing
from sbnotebook.emulator.service.settling import asked_settlement, settle, settle_later

_MAX_PEEKED: Final = 250  # Messages in one answer; the service has the same limit, which it does not document
_MAX_PEEKED_BYTES: Final = 1_000_000  # Bytes in one answer, unless its first message alone is larger
_MAX_DELETED: Final = 500
# Messages that one request removes at most (Service Bus documentation, "Batch delete messages")
_MAX_DELETED_PREMIUM: Final = 4000
# The last second of .NET (ms): a client that asks for sessions updated since then wants all that have messages
_EVER: Final = 253_402_300_799_000


def schedule(call: Call) -> Reply:
    destination, messages = call.entity, [read_sent(item["message"]) for item in call.body["messages"]]
    # Check all messages before the first is scheduled.
    size, limit = sum(len(message.payload) for message in messages), call.broker.max_message_size(destination)
    if size > limit:
        text = f"The messages have {size} bytes, the limit is {limit}."
        raise RefusedError(Condition.MESSAGE_SIZE_EXCEEDED, text)
    destination.check(messages)
    if call.transaction is None:
        numbers = [destination.send(message, call.now) for message in messages]
    else:
        numbers = call.transaction.schedule(destination, messages)
    return done({"sequence-numbers": Array([Long(number) for number in numbers], Long)})


def cancel_scheduled(call: Call) -> Reply:
    destination, numbers = call.entity, [int(number) for number in call.body["sequence-numbers"]]

    def check(now: int) -> None:
        del now
        if any(destination.find_scheduled(number) is None for number in numbers):
            text = "One or more of the messages are not scheduled: they are active already, cancelled, or unknown."
            raise RefusedError(Condition.MESSAGE_NOT_FOUND, text)

    check(call.now)
    if call.transaction is None:
        destination.cancel_scheduled(numbers)
    else:
        call.transaction.do(destination, check, lambda _: destination.cancel_scheduled(numbers))
    return done(None)


def peek(call: Call) -> Reply:
    """Return messages from a number on: as many as fit into one answer, and at least one."""
    entity, faults = call.entity, call.faults
    if faults.happens("empty_peeks"):
        return nothing()
    entity.owner.accessed_time = call.now
    count = min(int(call.body["message-count"]), _MAX_PEEKED)
    session_id = call.body.get("session-id")
    session_id = None if session_id is None or entity.sessions is None else str(session_id)
    options = {
        "without_body": call.body.get("omit-message-body") is True,
        "keeps_scheduled": faults.activated_state == "scheduled",
    }
    rendered: list[AmqpValue] = []
    size = 0
    for message in entity.peek(int(call.body["from-sequence-number"]), max(count, 0), session_id):
        payload = entity.rendered(message, **options)
        size += len(payload)
        if rendered and size > _MAX_PEEKED_BYTES:
            break
        rendered.append({"message": payload})
    return done({"messages": rendered}) if rendered else nothing()


def renew_lock(call: Call) -> Reply:
    """Renew the locks of messages, all of them or none."""
    if call.entity.sessions is not None:
        raise RefusedError(Condition.NOT_ALLOWED, "The entity has sessions: renew the lock of the session.")
    tokens = _tokens(call)
    if any(call.entity.held(token, call.now) is None for token in tokens):
        raise call.entity.lock_lost()
    return done({"expirations": Array([Timestamp(call.entity.renew(token, call.now)) for token in tokens], Timestamp)})


def receive_deferred(call: Call) -> Reply:
    entity = call.entity
    numbers = [int(number) for number in call.body["sequence-numbers"][: call.faults.short_answers or None]]
    delete = int(call.body["receiver-settle-mode"]) == 0
    messages = entity.receive_deferred(numbers, call.now, delete=delete, session=_session(call))
    if messages is None:
        text = "Failed to lock one or more specified messages: they do not exist, are not deferred, or are locked."
        raise RefusedError(Condition.MESSAGE_NOT_FOUND, text)
    # A deleted message has no lock; a session's messages share the session's lock.
    items: list[AmqpValue] = []
    for message in messages:
        is_locked = message.lock_token is not None
        payload = entity.rendered(message, with_lock=is_locked and entity.sessions is None)
        items.append({"message": payload, **({"lock-token": message.lock_token} if is_locked else {})})
    return done({"messages": items})


def update_disposition(call: Call) -> Reply:
    """Settle messages, all of them or none."""
    settlement = asked_settlement(call.body)
    session = None if call.body.get("session-id") is None else _session(call)
    tokens = _tokens(call)
    if session is not None and not session.held.keys() >= set(tokens):
        raise call.entity.lock_lost()
    if call.transaction is None:
        settle(call.entity, tokens, settlement, call.now, call.faults)
    else:
        settle_later(call.transaction, call.entity, tokens, settlement, call.now)
    return done(None)


def batch_delete(call: Call) -> Reply:
    """Remove messages, the oldest first; locked ones stay (Service Bus documentation, "Batch delete messages")."""
    entity, faults, count = call.entity, call.faults, int(call.body["message-count"])
    if faults.batch_delete == "refused":
        raise RefusedError(Condition.NOT_IMPLEMENTED, "The operation is not supported.")
    if entity.owner.is_partitioned:
        raise RefusedError(Condition.NOT_ALLOWED, "Batch delete is not supported with partitioned entities.")
    most = _MAX_DELETED_PREMIUM if call.broker.registry.tier is Tier.PREMIUM else _MAX_DELETED
    # Which condition Service Bus gives, no source says (azure-sdk-for-net issue 43801).
    if not 0 < count <= most:
        raise RefusedError(Condition.ARGUMENT_ERROR, f"A request removes 1 to {most} messages.")
    count = min(count, faults.short_deletes or count)
    deleted = entity.delete(count, int(call.body["enqueued-time-utc"]), call.now, _session(call))
    return done({"message-count": Int(deleted)}) if deleted or faults.batch_delete == "zero" else nothing()


def get_session_state(call: Call) -> Reply:
    return done({"session-state": call.entity.held_session(str(call.body["session-id"]), call.now).state})


def set_session_state(call: Call) -> Reply:
    entity, session_id = call.entity, str(call.body["session-id"])
    session = entity.held_session(session_id, call.now)
    state: object = call.body["session-state"]
    if state is not None and not isinstance(state, bytes):
        raise RefusedError(Condition.ARGUMENT_ERROR, "The state of a session must be bytes.")
    if call.transaction is None:
        entity.set_session_state(session, state, call.now)
    else:
        act = partial(entity.set_session_state, session, state)
        call.transaction.do(entity, partial(entity.held_session, session_id), act)
    return done(None)


def renew_session_lock(call: Call) -> Reply:
    session = call.entity.held_session(str(call.body["session-id"]), call.now)
    return done({"expiration": Timestamp(call.entity.renew_session(session, call.now))})


def list_sessions(call: Call) -> Reply:
    since, place = int(call.body["last-updated-time"]), call.page
    found = [session.session_id for session in call.entity.sessions.listed(None if since >= _EVER else since)]
    page = found[place]
    return done({"skip": Int(place.start + len(page)), "sessions-ids": Array(page, str)}) if page else nothing()


def _tokens(call: Call) -> list[UUID]:
    tokens = cast("list[UUID]", call.body["lock-tokens"])
    if call.faults.mixed_partitions == "refused":
        held = (call.entity.held(token, call.now) for token in tokens)
        if len({message.sequence_number >> PARTITION_SHIFT for message in held if message is not None}) > 1:
            text = "Batching lock tokens for different partitions is not supported."
            raise RefusedError(Condition.NOT_ALLOWED, text)
    return tokens


def _session(call: Call) -> MessageSession | None:
    entity: Any = call.entity
    if entity.sessions is None:
        return None
    session_id = call.body.get("session-id")
    if session_id is None:
        raise RefusedError(Condition.NOT_ALLOWED, "The entity has sessions: say which session is meant.")
    return entity.owner.held_session(str(session_id), call.now)
