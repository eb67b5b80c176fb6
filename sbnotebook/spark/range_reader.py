"""Peeking ranges of sequence numbers into record batches."""

from __future__ import annotations

import gc
from collections.abc import AsyncIterator, Generator, Iterable
from contextlib import closing, contextmanager
from typing import TYPE_CHECKING, Final, TypeVar

from sbnotebook.client.portal import Work
from sbnotebook.client.targets import NamespaceTarget
from sbnotebook.model import EntityAddress, MessageState
from sbnotebook.settlement.patience import PATIENCE, patiently
from sbnotebook.settlement.peek import PAGE, PayloadPage, Peeker, Wanted
from sbnotebook.spark.schema import MessageBatches
from sbnotebook.spark.warm_namespace import warm_namespace

if TYPE_CHECKING:
    import pyarrow as pa

    from sbnotebook.model import PeekedMessage
    from sbnotebook.spark.sequence_ranges import SequenceRange

__all__ = ["ahead", "read_ranges"]

T = TypeVar("T")

_ROWS, _BYTES = 2000, 4 << 20
"""Of a record batch, about: each costs Spark some milliseconds, and each is in memory as a whole."""
_CUT_OFF: Final = 30.0
"""Seconds that a page that nobody waits for any more may take to end."""


def read_ranges(
    target: NamespaceTarget,
    entity: EntityAddress,
    ranges: Iterable[SequenceRange],
    batches: MessageBatches,
    *,
    max_messages: int | None = None,
    state: MessageState | None = None,
    patience: float = 0.0,
) -> Generator[pa.RecordBatch]:
    """Read messages; while some are converted, the next are asked for. The connection stays open for the next task.

    A service that does not answer any more in the middle is asked again for a minute.

    Args:
        target: the namespace.
        entity: where the messages stand.
        ranges: which ones.
        batches: makes the columns; of a message no more is read than they need.
        max_messages: how many of each range at most, None for all.
        state: only messages in this state.
        patience: seconds for which a service that does not answer at all is asked again.
    """
    with warm_namespace(target) as namespace:
        peeker, held = namespace.peeker(entity), _Held(batches)
        for numbers in ranges:
            wanted = Wanted(numbers.first, numbers.last, max_messages, state)
            with closing(ahead(_pages(peeker, entity, wanted, patience))) as pages:
                for page in pages:
                    if (batch := held.add(page, wanted)) is not None:
                        yield batch
                    if not wanted.count:
                        break
        if (batch := held.batch()) is not None:
            yield batch


def ahead(pages: AsyncIterator[T]) -> Generator[T]:
    """What an asynchronous iterator gives, which works on the next item on the background loop meanwhile.

    Args:
        pages: none of them is None.
    """
    work = Work(anext, pages, None).start()
    try:
        while (page := work.result()) is not None:
            work = Work(anext, pages, None).start()
            yield page
    finally:
        work.cancel()
        work.wait(_CUT_OFF)


class _Held:
    """Messages that are no record batch yet.

    Args:
        batches: makes it.
    """

    def __init__(self, batches: MessageBatches) -> None:
        self._batches = batches
        self._size = 0
        self._messages: list[PeekedMessage] = []

    def add(self, page: PayloadPage, wanted: Wanted) -> pa.RecordBatch | None:
        """Take what is wanted of a page; the batch when there is enough for one."""
        with _uncollected():
            self._messages += wanted.take(page.messages(self._batches.sections))
            self._size += sum(map(len, page.payloads))
            return self.batch() if len(self._messages) >= _ROWS or self._size >= _BYTES else None

    def batch(self) -> pa.RecordBatch | None:
        """All that is held as a batch; None for nothing."""
        messages, self._messages, self._size = self._messages, [], 0
        return self._batches.of(messages) if messages else None


@contextmanager
def _uncollected() -> Generator[None]:
    """Spare Python to look for cycles among new objects again and again, which takes a fifth of the time.

    Messages have none.
    """
    was_enabled = gc.isenabled()
    gc.disable()
    try:
        yield
    finally:
        if was_enabled:
            gc.enable()


async def _pages(peeker: Peeker, entity: EntityAddress, wanted: Wanted, patience: float) -> AsyncIterator[PayloadPage]:
    """Page after page to the last number that is wanted; who reads them may want less."""
    most = PAGE if wanted.max_messages is None or wanted.state else wanted.max_messages
    asked = Wanted(wanted.next_number, wanted.to_sequence_number)
    while asked.count:
        count = min(asked.count, most)
        page = await patiently(peeker.payload_page, asked.next_number, count, address=entity, patience=patience)
        if not page.payloads:
            return
        yield page
        asked.go_on_behind(page.last_number)
        patience = PATIENCE
