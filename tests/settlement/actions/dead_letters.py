"""Dead letters to be resubmitted, and resubmits of them that were interrupted."""

from __future__ import annotations

from datetime import UTC, datetime, timedelta
from typing import Final

from sbnotebook.amqp import Long
from sbnotebook.model import DeadLetter, Message, PeekedMessage, Resubmit
from sbnotebook.model.clones import clone_of
from sbnotebook.model.message import time_text
from sbnotebook.settlement import AsyncNamespace
from sbnotebook.settlement.memory.journal import ResubmitEntry, ResubmitState
from tests.filled_queues import settle_first

NOW: Final = datetime(2026, 1, 1, tzinfo=UTC)


async def dead_letters(namespace: AsyncNamespace, name: str, count: int) -> list[PeekedMessage]:
    """The dead letters of a queue; the queue is made where there is none."""
    if name not in {counts.address.name for counts in await namespace.entities()}:
        await namespace.create_queue(name)
    queue = namespace.entity(name)
    properties = {"n": Long(7)}
    await queue.send(
        (Message(body=b"%d" % n, message_id=f"m{n}", application_properties=properties) for n in range(count)),
        max_in_flight=1,
    )
    await settle_first(queue, DeadLetter("Bad", "no good"), count)
    return await namespace.entity(f"{name}/$dlq").peek()


async def cut_off(
    namespace: AsyncNamespace,
    letter: PeekedMessage,
    to: str,
    *,
    sent: bool,
    marked: bool = False,
    edited: bool = False,
    delay: timedelta | None = None,
    namespace_of_destination: str = "",
) -> ResubmitEntry:
    """An interrupted resubmit: its clone sent or not, and recorded or not."""
    clone = clone_of(letter, Resubmit(delay=delay), None, datetime.now(UTC))
    entry = ResubmitEntry(
        namespace=namespace.identity(),
        source=letter.entity.path,
        sequence_number=letter.sequence_number,
        message_id=letter.message_id,
        destination=to,
        clone_id=clone.message_id or "",
        enqueued_time=time_text(letter.enqueued_time),
        destination_namespace=namespace_of_destination,
        edited=edited,
        scheduled=clone.scheduled_enqueue_time,
    )
    ids = namespace.journal.intend([entry])
    if sent:
        assert (await namespace.entity(to).send([clone])).ok
    if marked:
        namespace.journal.mark(ids, ResubmitState.SENT)
    return entry
