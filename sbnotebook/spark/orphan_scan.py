"""Finding messages that are deferred in an entity and belong to no micro-batch: nobody receives them by himself."""

from __future__ import annotations

import logging
from collections.abc import Iterable
from typing import Final

import anyio

from sbnotebook.client.scrubbing import in_words
from sbnotebook.model import MessageState
from sbnotebook.settlement import AsyncEntity
from sbnotebook.settlement.patience import patiently
from sbnotebook.spark.consume_offset import Taken

__all__ = ["OrphanScan"]

_LOG: Final = logging.getLogger(__name__)
_REST: Final = 2.0
"""How long to rest after a page, in times that it took: the stream goes first."""
_NAMED: Final = 5


class OrphanScan:
    """One look at all of an entity.

    Args:
        entity: which one.
    """

    def __init__(self, entity: AsyncEntity) -> None:
        self.rests = True
        """Whether most of the time is left to others; may be changed while it looks."""
        self._entity = entity
        self._ours: set[int] = set()
        self._is_done = False

    def except_for(self, numbers: Iterable[int]) -> None:
        """These messages are the stream's own."""
        if not self._is_done:
            self._ours.update(numbers)

    async def find(self) -> dict[int, Taken]:
        """Look at once, and give what is known of the messages by number."""
        self.rests = False
        return await self._look()

    async def report(self) -> int:
        """Look beside the stream, and warn once if there are any; gives how many there are."""
        address = self._entity.address
        try:
            found = sorted(await self._look())
        except Exception as error:  # noqa: BLE001 (it is a look only, and must not end the stream)
            _LOG.warning("Deferred messages of %s could not be looked for: %s", address, in_words(error))
            return 0
        if found:
            _LOG.warning(
                "%d messages of %s are deferred and belong to no micro-batch of this stream (the first: %s). Unless "
                "another stream or program has deferred them and comes back for them, nobody receives them by himself: "
                'then .option("orphans", "adopt") takes them into this stream, and "ignore" ends this warning.',
                len(found),
                address,
                ", ".join(f"#{number}" for number in found[:_NAMED]),
            )
        return len(found)

    async def _look(self) -> dict[int, Taken]:
        orphans: dict[int, Taken] = {}
        peeker, start = self._entity.namespace.peeker(self._entity.address), 1
        while True:
            began = anyio.current_time()
            page = await patiently(peeker.page, start, address=self._entity.address)
            if not page:
                # What this stream has taken meanwhile was in its offset before it was deferred.
                ours, self._ours, self._is_done = self._ours, set(), True
                return {number: message for number, message in orphans.items() if number not in ours}
            start = page[-1].sequence_number + 1
            orphans |= {m.sequence_number: Taken.of(m) for m in page if m.state is MessageState.DEFERRED}
            if self.rests:
                await anyio.sleep((anyio.current_time() - began) * _REST)
