"""Rehearse a resubmit: carry it out on copies of its messages, in an emulator of this process."""

from __future__ import annotations

import os
import shlex
import subprocess
from collections import Counter
from collections.abc import Awaitable, Callable, Mapping, Sequence
from dataclasses import dataclass, fields, replace
from datetime import UTC, datetime, timedelta
from enum import StrEnum
from functools import partial
from typing import Any, Final

import anyio.to_thread

from sbnotebook.analysis.tables import ShownRows, Table
from sbnotebook.client.copying import MOST, Copied, copied
from sbnotebook.client.portal import blocking
from sbnotebook.errors import ConfigurationError, DecisionError
from sbnotebook.model import (
    Abandon,
    Complete,
    DeadLetter,
    EntityAddress,
    Fate,
    FateStatus,
    Outcome,
    OutcomeStatus,
    PeekedMessage,
    ReceivedMessage,
    Resubmit,
)
from sbnotebook.model.clones import clone_id_of
from sbnotebook.model.edits import refuse_coroutine_function
from sbnotebook.settlement import AsyncNamespace as Resources
from sbnotebook.settlement import MessageFunction, Plan, Policy, PolicyRow, Then

Consumer = MessageFunction | str | Sequence[str]
"""A function that is called with each message; or a command, which gets the connection string of the emulator in the
environment variables SERVICEBUS_CONNECTION_STRING and SBNOTEBOOK_CONNECTION."""
_Look = Callable[[], Awaitable[dict[int, Fate]]]

_IDLE: Final = 1.0
"""Seconds without a message after which a function has had all messages."""
_POLICY: Final = Policy(
    failed=PolicyRow(DeadLetter(), Then.GO_ON), stopped=PolicyRow(Abandon(), Then.STOP), completed=Complete()
)


class RehearsalResult(StrEnum):
    """The end of a message in a rehearsal."""

    CONSUMED = "consumed"
    """The consumer completed it."""
    DEAD_LETTERED = "dead-lettered again"
    """The consumer, or Service Bus, dead-lettered it again."""
    ARRIVED = "arrived"
    """It is in its destination: there was no consumer, or the consumer left it there."""
    REFUSED = "refused by a filter"
    """No subscription of the topic took it."""
    DUPLICATE = "duplicate"
    """The destination dropped it as a duplicate: an earlier run has sent its clone already."""
    TOO_LARGE = "too large"
    """It is larger than the destination allows."""
    NOT_SENT = "not sent"
    """The resubmit skipped it, or failed."""


@dataclass(frozen=True, slots=True)
class Rehearsed:
    """The result of one message.

    Args:
        sequence_number: of the message in the namespace.
        message_id: of the message.
        result: what happened.
        reason: why it was dead-lettered again, or not sent.
        description: more of the reason.
    """

    sequence_number: int
    message_id: str | None
    result: RehearsalResult
    reason: str | None = None
    description: str | None = None


class Rehearsal(ShownRows[Rehearsed]):
    """The result of each message of a rehearsed plan, in the order of the plan."""

    _fields = tuple(each.name for each in fields(Rehearsed))

    @property
    def counts(self) -> dict[RehearsalResult, int]:
        """Return the number of messages by result, for the results that occurred."""
        counts = Counter(each.result for each in self)
        return {result: counts[result] for result in RehearsalResult if counts[result]}

    def _table(self, most: int) -> Table:
        counts = ", ".join(f"{count:,} {result}" for result, count in self.counts.items())
        more = f" The first {most}:" if len(self) > most else ""
        rows = [[getattr(each, name) for name in self._fields] for each in self[:most]]
        return self._fields, rows, f"Rehearsed {len(self):,}: {counts}.{more}"


async def rehearse(plan: Plan, consumer: Consumer | None = None, *, timeout: timedelta, on: Resources) -> Rehearsal:
    """Carry a resubmit out on copies: see :meth:`sbnotebook.client.Namespace.rehearse`.

    :func:`sbnotebook.client.copying.copied` makes the copies. A delay of the plan is left out. A message at which a
    function raises an exception is dead-lettered at once.
    """
    _check(plan, consumer)
    decision = plan.decision
    assert isinstance(decision, Resubmit)  # noqa: S101 (checked above)
    to = decision.to or plan.entity.sends_to
    async with copied(on.connection, plan.entity, plan.messages, beside=(to.name,)) as copy:
        local = Resources(copy.connection, journal=copy.journal, archive=None)
        try:
            messages = copy.messages
            await _remember_clones(on, local, to, copy)
            again = local.entity(plan.entity).plan_resubmit(messages, replace(decision, delay=None), edit=plan.edit)
            outcomes = dict(zip((m.sequence_number for m in messages), await again.apply(), strict=True))
            look = partial(_fates, local, to, [m for m in messages if outcomes[m.sequence_number].ok])
            arrived = await look()
            ended = arrived if consumer is None else await _consume(copy, local, look, consumer, timeout)
        finally:
            with anyio.CancelScope(shield=True):
                await local.close()
    is_topic = any(
        place.subscription is not None for place in copy.places if place.name.casefold() == to.name.casefold()
    )
    return Rehearsal(
        _judged(message, copy.unreadable, outcomes.get(message.sequence_number), arrived, ended, is_topic=is_topic)
        for message in plan.messages
    )


async def _remember_clones(namespace: Resources, local: Resources, to: EntityAddress, copy: Copied) -> None:
    """Let the copy of a destination that detects duplicates know the clones that earlier runs have sent.

    The destination remembers message ids; which ones cannot be asked. The clones that it still holds tell some of them.
    """
    destination = namespace.clone_search(to)
    window = await destination.duplicate_window()
    if window is None:
        return
    ids, since = {clone_id_of(message) for message in copy.messages}, datetime.now(UTC) - window
    there: list[PeekedMessage] = []
    for place in await destination.places():
        async for page in namespace.peeker(place).pages():
            there += [each for each in page if each.message_id in ids and (each.enqueued_time or since) > since]
    if not there:
        return
    (await local.entity(to).send(there)).raise_for_failures()
    for place in copy.places:
        purge = await local.entity(place).purge(
            only=lambda page: [each for each in page if each.message_id in ids], archived=False
        )
        await purge.apply()


def _check(plan: Plan, consumer: Consumer | None) -> None:
    if not isinstance(plan.decision, Resubmit) or not plan.sends_clones:
        raise DecisionError(f"Rehearse a resubmit; a {plan.decision.verb} sends nothing to a consumer.")
    if plan.decision.to_host is not None:
        raise DecisionError("Rehearse a plan within one namespace; this one sends to another.")
    if not 1 <= len(plan.messages) <= MOST:
        raise DecisionError(f"A rehearsal has 1 to {MOST:,} messages, not {len(plan.messages):,}: choose others.")
    if any(message.enqueued_time is None for message in plan.messages):
        raise DecisionError("Some messages of the plan are not there any more: peek again.")
    if consumer is not None and not callable(consumer) and not "".join(map(str, consumer)).strip():
        raise ConfigurationError("consumer is a function, or a command such as 'python consumer.py'.")
    if callable(consumer):
        refuse_coroutine_function(consumer, "The consumer")


async def _fates(namespace: Resources, to: EntityAddress, messages: list[ReceivedMessage]) -> dict[int, Fate]:
    found = await namespace.clone_search(to).fates(map(clone_id_of, messages), datetime.now(UTC))
    return {message.sequence_number: found[clone_id_of(message)] for message in messages}


async def _consume(
    copy: Copied, local: Resources, look: _Look, consumer: Consumer, timeout: timedelta
) -> dict[int, Fate]:
    if callable(consumer):
        for place, in_sessions in copy.places.items():
            there = local.entity(place)
            await there.process(consumer, policy=_POLICY, max_wait=_IDLE, by_session=in_sessions, archived=False)
        return await look()
    address = copy.emulator.connection_string
    secrets = {"SERVICEBUS_CONNECTION_STRING": address, "SBNOTEBOOK_CONNECTION": address}
    is_text = isinstance(consumer, str)
    try:
        command = _words(consumer) if is_text else [*consumer]
        process = await blocking(subprocess.Popen[Any], command, env=os.environ | secrets, stdin=subprocess.DEVNULL)
    except (OSError, ValueError) as error:
        # The other words may hold a secret.
        named = str((consumer.split() if is_text else consumer)[0])[:200]
        raise ConfigurationError(f"The consumer {named!r} cannot be started: {error}.") from None
    try:
        return await _watched(look, process, timeout)
    finally:
        with anyio.CancelScope(shield=True):
            await anyio.to_thread.run_sync(_end, process)


def _words(command: str) -> list[str]:
    """Split a command as a shell does, but keep backslashes, which paths of Windows have."""
    reader = shlex.shlex(command, posix=True, punctuation_chars=False)
    reader.whitespace_split, reader.escape, reader.commenters = True, "", ""
    return [*reader]


async def _watched(look: _Look, process: subprocess.Popen[Any], timeout: timedelta) -> dict[int, Fate]:
    until = anyio.current_time() + timeout.total_seconds()
    while True:
        has_ended = process.poll() is not None or anyio.current_time() >= until
        fates = await look()
        if has_ended or all(fate.status is not FateStatus.WAITING for fate in fates.values()):
            return fates
        await anyio.sleep(0.2)


def _end(process: subprocess.Popen[Any]) -> None:
    process.terminate()
    try:
        process.wait(timeout=5)
    except subprocess.TimeoutExpired:
        process.kill()
        process.wait()


def _judged(
    message: ReceivedMessage,
    unreadable: Mapping[int, str],
    outcome: Outcome | None,
    arrived: dict[int, Fate],
    ended: dict[int, Fate],
    *,
    is_topic: bool,
) -> Rehearsed:
    number = message.sequence_number
    known = number, message.message_id
    if outcome is None:
        return Rehearsed(*known, RehearsalResult.NOT_SENT, "unreadable", unreadable.get(number))
    if outcome.status is not OutcomeStatus.SETTLED:
        is_too_large = outcome.condition == "amqp:link:message-size-exceeded"
        result = RehearsalResult.TOO_LARGE if is_too_large else RehearsalResult.NOT_SENT
        return Rehearsed(*known, result, str(outcome.status), outcome.description)
    fate = ended[number]
    if fate.status is FateStatus.CAME_BACK:
        return Rehearsed(*known, RehearsalResult.DEAD_LETTERED, fate.reason, fate.description)
    if arrived[number].status not in (FateStatus.WAITING, FateStatus.CAME_BACK):
        return Rehearsed(*known, RehearsalResult.REFUSED if is_topic else RehearsalResult.DUPLICATE)
    is_there = fate.status is FateStatus.WAITING
    return Rehearsed(*known, RehearsalResult.ARRIVED if is_there else RehearsalResult.CONSUMED)
